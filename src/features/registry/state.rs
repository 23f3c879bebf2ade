//! The state of the database that servers compare with what they have in memory.

use crate::store::{Result, Store, Tx, execute, on_pool};

/// State of the registry. Nothing that readers may see changes without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryState {
    /// Number of records. Every change of a version is one.
    pub records: i64,
    /// Number of changes of tokens and namespaces.
    pub access: i64,
}

#[derive(sqlx::FromRow)]
struct StateRow {
    records: i64,
    access: i64,
}

impl Store {
    /// Returns the current state.
    pub async fn registry_state(&self) -> Result<RegistryState> {
        let row = on_pool!(self, db => sqlx::query_as::<_, StateRow>(
            "SELECT changes AS access, (SELECT COALESCE(MAX(id), 0) FROM registry_log) AS records
               FROM registry_access"
        ).fetch_one(db))?;
        Ok(RegistryState {
            records: row.records,
            access: row.access,
        })
    }
}

/// Makes all servers forget tokens and namespaces that they have in memory.
pub(super) async fn registry_access_changed_in_tx(tx: &mut Tx) -> Result<()> {
    execute!(tx, "UPDATE registry_access SET changes = changes + 1").map(drop)
}
