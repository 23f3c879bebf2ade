//! Opens a database and brings its schema up to date.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::TryFutureExt;
use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::{Acquire, ConnectOptions as _, Connection, Executor};
use sqlx_postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx_sqlite::SqlitePool;
use sqlx_sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use tracing::info;

use super::shared_commit::SqliteWriter;
use super::time::DeadlineClock;
use super::{DbPool, Store, on_pool};
use crate::clock::{Clock, Ids};
use crate::secret::{create_private, make_private};

/// Maximum wait for a free connection before a caller gets the error that the database is overloaded.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for SQLite's write lock, which another process may hold (a backup, the command line).
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout after which PostgreSQL rolls back an idle transaction. Its client was paused or cut off, and it holds rows
/// that others wait for. The timeout is shorter than a lease.
const SILENT_TRANSACTION: &str = "SET idle_in_transaction_session_timeout = '30s'";
/// Time after its last use in which a connection to PostgreSQL is used again without a check.
const TRUSTED: Duration = Duration::from_secs(1);
const SQLITE_READERS: u32 = 8;
const POSTGRES_CONNECTIONS: u32 = 20;

/// Address of the database.
#[derive(Clone)]
pub enum DatabaseUrl {
    /// A file, created if it does not exist.
    Sqlite(PathBuf),
    /// A server and an existing database on it.
    Postgres(Box<PgConnectOptions>),
}

/// Reason why a text names no database. Never repeats the text, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a database: {0}; expected `postgres://user:password@host/name` or `sqlite:/path/to/file`"
)]
pub struct InvalidDatabaseUrl(String);

impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(InvalidDatabaseUrl(
                    "the path of the file is missing".to_owned(),
                ));
            }
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let options: PgConnectOptions = text.parse().map_err(|_| {
                InvalidDatabaseUrl("the PostgreSQL address cannot be parsed".to_owned())
            })?;
            return Ok(Self::Postgres(Box::new(
                options.application_name("lockkeeper"),
            )));
        }
        Err(InvalidDatabaseUrl(
            "the scheme is neither `postgres` nor `sqlite`".to_owned(),
        ))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DatabaseUrl {
    /// Formats the address without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(options) => {
                write!(
                    f,
                    "postgres://{}:{}/{}",
                    options.get_host(),
                    options.get_port(),
                    options.get_database().unwrap_or("")
                )
            }
        }
    }
}

/// A connection for a statement that is sent again and again. The pools check every connection that is returned, which
/// takes as long as a short statement.
pub(crate) enum OwnConnection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// Migrations of a database, for either kind.
struct Migrations {
    sqlite: Migrator,
    postgres: Migrator,
}

impl Store {
    /// Connects and applies the missing migrations. On a database that several replicas may share, the clock of the
    /// database decides on leases.
    pub async fn open(
        url: &DatabaseUrl,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, sqlx::Error> {
        let migrations = Migrations {
            sqlite: sqlx::migrate!("migrations/sqlite"),
            postgres: sqlx::migrate!("migrations/postgres"),
        };
        Self::open_with(url, migrations, clock, ids).await
    }

    /// Connects to the database of `--reviewed-flags-url` and applies the missing migrations, which are others.
    pub async fn open_reviewed_flags(
        url: &DatabaseUrl,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, sqlx::Error> {
        let migrations = Migrations {
            sqlite: sqlx::migrate!("migrations/reviewed_flags/sqlite"),
            postgres: sqlx::migrate!("migrations/reviewed_flags/postgres"),
        };
        Self::open_with(url, migrations, clock, ids).await
    }

    async fn open_with(
        url: &DatabaseUrl,
        migrations: Migrations,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, sqlx::Error> {
        let pool = match url {
            DatabaseUrl::Sqlite(path) => open_sqlite(path, migrations.sqlite).await?,
            DatabaseUrl::Postgres(options) => open_postgres(options, migrations.postgres).await?,
        };
        Ok(Self {
            pool,
            clock,
            ids,
            deadline_clock: DeadlineClock::Database,
            fence: None,
        })
    }

    /// Connects to a database with the tables of this release, and changes nothing. `None`: there is no database yet.
    pub async fn open_existing(
        url: &DatabaseUrl,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Option<Self>, sqlx::Error> {
        let (pool, wanted) = match url {
            DatabaseUrl::Sqlite(path) if !path.exists() => return Ok(None),
            DatabaseUrl::Sqlite(path) => {
                let (write, read) = sqlite_pools(path, false).await?;
                let write = SqliteWriter::new(write);
                (
                    DbPool::Sqlite { write, read },
                    sqlx::migrate!("migrations/sqlite"),
                )
            }
            DatabaseUrl::Postgres(options) => (
                DbPool::Postgres(postgres_pool(options).await?),
                sqlx::migrate!("migrations/postgres"),
            ),
        };
        let store = Self {
            pool,
            clock,
            ids,
            deadline_clock: DeadlineClock::Database,
            fence: None,
        };
        let applied = on_pool!(store, db => sqlx::query_scalar::<_, i64>("SELECT version FROM _sqlx_migrations")
            .fetch_all(db));
        let applied = match applied {
            Err(error) if is_missing_table(&error) => Vec::new(),
            applied => applied?,
        };
        let is_ready = wanted
            .iter()
            .all(|migration| applied.contains(&migration.version));
        match (is_ready, applied.is_empty()) {
            (true, _) => Ok(Some(store)),
            (false, true) => Ok(None),
            (false, false) => Err(sqlx::Error::Configuration(
                "it has the tables of an older release. Start the server of this release with it first".into(),
            )),
        }
    }

    /// Opens a connection beside those of the pools, which does not count as one of them. Neither this nor its statements
    /// have a time limit.
    pub(crate) async fn own_connection(&self) -> Result<OwnConnection, sqlx::Error> {
        Ok(match &self.pool {
            DbPool::Sqlite { read, .. } => {
                OwnConnection::Sqlite(read.connect_options().connect().await?)
            }
            DbPool::Postgres(pool) => {
                OwnConnection::Postgres(pool.connect_options().connect().await?)
            }
        })
    }

    /// Closes every connection; SQLite folds its write-ahead log into the file.
    pub async fn close(&self) {
        match &self.pool {
            DbPool::Sqlite { write, read } => {
                read.close().await;
                write.close().await;
            }
            DbPool::Postgres(pool) => pool.close().await,
        }
    }
}

/// Returns true if a table does not exist. SQLite reports this only in the text of the error.
fn is_missing_table(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error.is_some_and(|error| {
        error.code().as_deref() == Some("42P01") || error.message().starts_with("no such table")
    })
}

/// Opens SQLite with `synchronous = FULL`, because an answered delivery must survive a power cut (P1).
async fn open_sqlite(path: &Path, migrations: Migrator) -> Result<DbPool, sqlx::Error> {
    let (write, read) = sqlite_pools(path, true).await?;
    apply_missing(migrations, &write).await?;
    Ok(DbPool::Sqlite {
        write: SqliteWriter::new(write),
        read,
    })
}

/// Opens the pools for writing and reading. The readers connect when they are needed, after the migrations.
pub(super) async fn sqlite_pools(
    path: &Path,
    create: bool,
) -> Result<(SqlitePool, SqlitePool), sqlx::Error> {
    keep_private(path, create)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(create)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT);
    // A connection to a file does not go stale, so it is not tested before use.
    let pool = |max| {
        let options = SqlitePoolOptions::new().test_before_acquire(false);
        options
            .max_connections(max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .before_acquire(|c, _| Box::pin(is_idle(c)))
    };
    let write = pool(1).connect_with(options.clone()).await?;
    Ok((write, pool(SQLITE_READERS).connect_lazy_with(options)))
}

/// Makes the database file and SQLite's files beside it readable only by their owner, because they hold outputs,
/// deliveries and sealed credentials. New files beside it get the mode of the database file; those of an earlier
/// release are changed.
fn keep_private(path: &Path, create: bool) -> std::io::Result<()> {
    if create
        && let Err(error) = create_private(path)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        if make_private(Path::new(&file))? {
            info!(file = %file.display(), "Changed the mode of a database file to 0600, because other users could read it");
        }
    }
    Ok(())
}

/// Returns true if a connection can begin a transaction. SQLite may roll back a transaction on its own, for example
/// when the disk is full. The connection then stays in the transaction and has to be thrown away; there is only one
/// that writes.
async fn is_idle(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    if connection.is_in_transaction() {
        // A dropped transaction is rolled back in the background; this waits for it.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

async fn open_postgres(
    options: &PgConnectOptions,
    migrations: Migrator,
) -> Result<DbPool, sqlx::Error> {
    let pool = postgres_pool(options).await?;
    apply_missing(migrations, &pool).await?;
    Ok(DbPool::Postgres(pool))
}

async fn postgres_pool(options: &PgConnectOptions) -> Result<PgPool, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|connection, meta| Box::pin(is_alive(connection, meta.idle_for)));
    pool.after_connect(|connection, _| {
        Box::pin(connection.execute(SILENT_TRANSACTION).map_ok(drop))
    })
    .connect_with(options.clone())
    .await
}

/// Returns true if a connection can be used. Asking costs a round trip, so one that was used a moment ago is trusted.
async fn is_alive(connection: &mut PgConnection, idle_for: Duration) -> Result<bool, sqlx::Error> {
    if idle_for < TRUSTED {
        return Ok(true);
    }
    connection.ping().await.map(|()| true)
}

/// Applies the missing migrations. Newer migrations of a newer release are fine: while replicas are replaced one by
/// one, the old ones continue to work.
async fn apply_missing<'a, A>(mut migrator: Migrator, database: A) -> Result<(), MigrateError>
where
    A: Acquire<'a>,
    <A::Connection as std::ops::Deref>::Target: Migrate,
{
    migrator.set_ignore_missing(true).run(database).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_the_password() {
        let url: DatabaseUrl = "postgres://bot:hunter2@db.example:5433/locks"
            .parse()
            .unwrap();
        assert_eq!(url.to_string(), "postgres://db.example:5433/locks");
        assert_eq!(format!("{url:?}"), "postgres://db.example:5433/locks");
        let error = "postgres://bot:hunter2@:x/"
            .parse::<DatabaseUrl>()
            .unwrap_err()
            .to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn the_files_are_for_their_owner_alone_also_those_of_earlier_releases() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let files = ["l.db", "l.db-wal", "l.db-shm"].map(|name| dir.path().join(name));
        for _ in 0..2 {
            let pool = open_sqlite(&files[0], sqlx::migrate!("migrations/sqlite"))
                .await
                .unwrap();
            for file in &files {
                assert_eq!(
                    std::fs::metadata(file).unwrap().permissions().mode() & 0o777,
                    0o600,
                    "{}",
                    file.display()
                );
                std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
            }
            drop(pool);
        }
    }

    /// Checks the settings of every connection, because each one has its own.
    #[tokio::test]
    async fn what_was_answered_survives_a_power_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (write, read) = sqlite_pools(&dir.path().join("l.db"), true).await.unwrap();
        for pool in [write, read] {
            // The value 2 means FULL.
            for (setting, expected) in [
                ("synchronous", "2"),
                ("foreign_keys", "1"),
                ("journal_mode", "wal"),
            ] {
                let question = format!("SELECT CAST({setting} AS TEXT) FROM pragma_{setting}");
                let is: String = sqlx::query_scalar(sqlx::AssertSqlSafe(question))
                    .fetch_one(&pool)
                    .await
                    .unwrap();
                assert_eq!(is, expected, "{setting}");
            }
        }
    }

    #[test]
    fn both_spellings_of_a_file_work() {
        for text in ["sqlite:/data/l.db", "sqlite:///data/l.db"] {
            assert_eq!(
                text.parse::<DatabaseUrl>().unwrap().to_string(),
                "sqlite:/data/l.db"
            );
        }
        assert!("mysql://x".parse::<DatabaseUrl>().is_err());
    }
}
