//! The switch that stops every apply.

use chrono::{DateTime, Utc};

use super::{Result, Store, Tx, execute, free_text, on_pool, on_tx};
use crate::model::ApplyLock;

/// Scope of the server-wide switch.
const GLOBAL: &str = "global";
const GET: &str = "SELECT holder, reason, taken_at FROM apply_locks WHERE scope = $1";

/// Whether the switch was moved.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetApplyLock {
    /// It was off.
    Set,
    /// Somebody had set it before; theirs stays.
    AlreadySet,
}

impl Store {
    /// Stops every apply from now on. An apply that passed its gate before goes on.
    pub async fn apply_lock_set(&self, holder: &str, reason: &str) -> Result<SetApplyLock> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "INSERT INTO apply_locks (scope, holder, reason, taken_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (scope) DO NOTHING",
            GLOBAL,
            free_text(holder),
            free_text(reason),
            self.now(),
        )?;
        tx.commit().await?;
        Ok(if rows == 1 { SetApplyLock::Set } else { SetApplyLock::AlreadySet })
    }

    /// Allows applies again; `false` when they were not stopped.
    pub async fn apply_lock_clear(&self) -> Result<bool> {
        let mut tx = self.begin().await?;
        let rows = execute!(&mut tx, "DELETE FROM apply_locks WHERE scope = $1", GLOBAL)?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Whether applies are stopped, and by whom.
    pub async fn apply_lock_get(&self) -> Result<Option<ApplyLock>> {
        on_pool!(self, db => sqlx::query_as::<_, ApplyLockRow>(GET).bind(GLOBAL).fetch_optional(db))
            .map(|row| row.map(ApplyLock::from))
    }
}

pub(super) async fn apply_lock_in_tx(tx: &mut Tx) -> Result<Option<ApplyLock>> {
    on_tx!(tx, db => sqlx::query_as::<_, ApplyLockRow>(GET).bind(GLOBAL).fetch_optional(db))
        .map(|row| row.map(ApplyLock::from))
}

#[derive(sqlx::FromRow)]
struct ApplyLockRow {
    holder: String,
    reason: String,
    taken_at: DateTime<Utc>,
}

impl From<ApplyLockRow> for ApplyLock {
    fn from(row: ApplyLockRow) -> Self {
        Self { holder: row.holder, reason: row.reason, taken_at: row.taken_at }
    }
}
