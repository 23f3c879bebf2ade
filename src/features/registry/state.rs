//! The state of the database that servers compare with what they have in memory.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::store::{OwnConnection, Result, Store, Tx, execute};

const STATE: &str =
    "SELECT changes AS access, (SELECT COALESCE(MAX(id), 0) FROM registry_log) AS records
    FROM registry_access";

/// Time after which a connection is replaced, so that no server stays with one to a database that was replaced.
const LONGEST: Duration = Duration::from_mins(1);

/// Longest wait for an answer on the connection that was kept. The system gives up a dead one only after many minutes.
const KEPT_TIME: Duration = Duration::from_secs(5);

/// Longest wait for a new connection and its answer. Together with [`KEPT_TIME`], it is shorter than that of a request.
const NEW_TIME: Duration = Duration::from_secs(10);

/// State of the registry. Nothing that readers may see changes without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryState {
    /// Number of records. Every change of a version is one, except that somebody here confirms the takedown of another
    /// deployment: such versions are not kept in memory.
    pub records: i64,
    /// Number of changes of tokens, namespaces and peers.
    pub access: i64,
}

#[derive(sqlx::FromRow)]
struct StateRow {
    records: i64,
    access: i64,
}

/// Reads the state again and again, on a connection of its own.
pub struct StateReader {
    store: Store,
    /// The connection, and when it was opened.
    connection: Option<(OwnConnection, Instant)>,
}

impl StateReader {
    /// Reads the state of this database. The connection is opened when it is needed.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            connection: None,
        }
    }

    /// Returns the current state. Fails like an overloaded database if there is no answer in time.
    pub async fn read(&mut self) -> Result<RegistryState> {
        // Taken out, so that a reading that is cancelled leaves no connection with half an answer.
        let kept = self.connection.take();
        if let Some((mut connection, since)) = kept.filter(|(_, since)| since.elapsed() < LONGEST) {
            // It fails if it was cut off since, for example because the database was started again, and has no answer if the
            // host of the database is gone. Then a new one answers.
            if let Ok(Ok(state)) = timeout(KEPT_TIME, state_on(&mut connection)).await {
                self.connection = Some((connection, since));
                return Ok(state);
            }
        }
        let opened = timeout(NEW_TIME, first_state(&self.store)).await;
        let (connection, state) = opened.map_err(|_| sqlx::Error::PoolTimedOut)??;
        self.connection = Some((connection, Instant::now()));
        Ok(state)
    }
}

/// Reads the state on a new connection.
async fn first_state(store: &Store) -> Result<(OwnConnection, RegistryState)> {
    let mut connection = store.own_connection().await?;
    let state = state_on(&mut connection).await?;
    Ok((connection, state))
}

async fn state_on(connection: &mut OwnConnection) -> Result<RegistryState> {
    let row: StateRow = match connection {
        OwnConnection::Sqlite(db) => sqlx::query_as(STATE).fetch_one(db).await?,
        OwnConnection::Postgres(db) => sqlx::query_as(STATE).fetch_one(db).await?,
    };
    Ok(RegistryState {
        records: row.records,
        access: row.access,
    })
}

/// Makes all servers forget tokens and namespaces that they have in memory.
pub(super) async fn registry_access_changed_in_tx(tx: &mut Tx) -> Result<()> {
    execute!(tx, "UPDATE registry_access SET changes = changes + 1").map(drop)
}
