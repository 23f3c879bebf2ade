//! Reads the database from outside, and disturbs it as other programs do. The connections do not use the wires.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::{RandomIds, SystemClock};
use lockkeeper::locks::{AuditVerdict, KnownLogState, verify};
use lockkeeper::store::{DatabaseUrl, Store};
use sqlx::{ConnectOptions, Row as _};
use sqlx_postgres::PgConnectOptions;
use sqlx_sqlite::SqliteConnectOptions;

/// The database of running servers.
#[derive(Clone)]
pub enum DatabaseView {
    /// Path of the SQLite file.
    Sqlite(PathBuf),
    /// Options of a connection to the same database that the servers use.
    Postgres(Box<PgConnectOptions>),
}

/// Returns every row as texts. The columns of the query must be texts.
macro_rules! texts {
    ($connection:expr, $sql:expr) => {{
        let rows = sqlx::query($sql).fetch_all($connection).await?;
        rows.iter()
            .map(|row| (0..row.columns().len()).map(|n| row.try_get(n)).collect())
            .collect()
    }};
}

impl DatabaseView {
    /// Creates a view of the database that the servers use.
    pub fn at(url: &DatabaseUrl) -> Self {
        match url {
            DatabaseUrl::Sqlite(path) => Self::Sqlite(path.clone()),
            DatabaseUrl::Postgres(options) => Self::Postgres(options.clone()),
        }
    }

    /// Returns the address of the database.
    pub fn url(&self) -> DatabaseUrl {
        match self {
            Self::Sqlite(path) => DatabaseUrl::Sqlite(path.clone()),
            Self::Postgres(options) => DatabaseUrl::Postgres(options.clone()),
        }
    }

    /// Returns the rows of a query.
    pub async fn rows(&self, sql: &'static str) -> Vec<Vec<String>> {
        self.try_rows(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn try_rows(&self, sql: &'static str) -> Result<Vec<Vec<String>>, sqlx::Error> {
        match self {
            Self::Sqlite(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .busy_timeout(Duration::from_secs(20));
                texts!(&mut options.connect().await?, sql)
            }
            Self::Postgres(options) => texts!(&mut options.connect().await?, sql),
        }
    }

    /// Verifies the audit log and returns the verdict.
    pub async fn audit(&self) -> AuditVerdict {
        let url = match self {
            Self::Sqlite(path) => DatabaseUrl::Sqlite(path.clone()),
            Self::Postgres(options) => DatabaseUrl::Postgres(options.clone()),
        };
        let store = Store::open_existing(&url, Arc::new(SystemClock), Arc::new(RandomIds)).await;
        let store = store
            .expect("the database answers")
            .expect("the servers have made it");
        let verdict = verify(&store, &KnownLogState::default(), None)
            .await
            .expect("the log can be read");
        store.close().await;
        verdict
    }

    /// Holds the write lock of SQLite for some time, as a backup does.
    pub async fn hold(&self, time: Duration) {
        let Self::Sqlite(path) = self else { return };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(Duration::from_secs(20));
        let Ok(mut connection) = options.connect().await else {
            return;
        };
        if sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut connection)
            .await
            .is_ok()
        {
            tokio::time::sleep(time).await;
            sqlx::query("ROLLBACK")
                .execute(&mut connection)
                .await
                .expect("nothing was written");
        }
    }

    /// Ends the leases of a replica, as if its server had died a long time ago.
    pub async fn end_leases(&self, replica: &str) {
        let Self::Postgres(options) = self else {
            return;
        };
        let mut connection = options.connect().await.expect("PostgreSQL runs");
        for sql in [
            "UPDATE jobs SET lease_until = TIMESTAMPTZ 'epoch' WHERE lease_holder = $1 AND state = 'running'",
            // Recent enough that the reconciler does not remove the row before it releases what the replica held.
            "UPDATE replicas SET lease_until = now() - INTERVAL '5 minutes' WHERE name = $1",
        ] {
            sqlx::query(sql)
                .bind(replica)
                .execute(&mut connection)
                .await
                .expect("the leases are ended");
        }
    }
}
