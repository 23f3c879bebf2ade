//! Recent runs of the reconcilers of each server. Times are those of the deadline clock (see `store::time`).

use chrono::{DateTime, Utc};

use super::{Result, Store, execute, free_text, on_pool};

/// A finished run of a reconciler.
#[derive(Clone, Debug)]
pub struct ReconcilerRun<'a> {
    /// Name of the reconciler.
    pub name: &'a str,
    /// Name of the server.
    pub replica: &'a str,
    /// Start time, by the clock of this server.
    pub started_at: DateTime<Utc>,
    /// Number of checked items.
    pub looked_at: u64,
    /// Number of fixed items.
    pub repaired: u64,
    /// Error that ended the run early, if any.
    pub error: Option<&'a str>,
}

/// Last run of a reconciler on one server, with totals of earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct ReconcilerRow {
    /// Name of the reconciler.
    pub name: String,
    /// Name of the server.
    pub replica: String,
    /// Start time of the last run.
    pub started_at: DateTime<Utc>,
    /// End time of the last run.
    pub finished_at: DateTime<Utc>,
    /// End time of the last run without an error.
    pub succeeded_at: Option<DateTime<Utc>>,
    /// Number of items that the last run checked.
    pub looked_at: i64,
    /// Number of items that the last run fixed.
    pub repaired: i64,
    /// Number of items that this server has fixed in all runs.
    pub repaired_total: i64,
    /// Error that ended the last run early, if any.
    pub error: Option<String>,
    /// Number of consecutive runs with an error.
    pub failures: i64,
}

impl Store {
    /// Stores a run that has just ended.
    pub async fn reconciler_record(&self, run: &ReconcilerRun<'_>) -> Result<()> {
        let mut tx = self.begin().await?;
        let offset = self.clock_offset_in_tx(&mut tx).await?;
        let now = offset.of(self.now());
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        execute!(
            &mut tx,
            "INSERT INTO reconcilers (name, replica, started_at, finished_at, succeeded_at, looked_at, repaired, \
             repaired_total, error, failures) VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9) \
             ON CONFLICT (name, replica) DO UPDATE SET started_at = excluded.started_at, \
             finished_at = excluded.finished_at, \
             succeeded_at = COALESCE(excluded.succeeded_at, reconcilers.succeeded_at), \
             looked_at = excluded.looked_at, repaired = excluded.repaired, \
             repaired_total = reconcilers.repaired_total + excluded.repaired, error = excluded.error, \
             failures = CASE WHEN excluded.failures = 0 THEN 0 ELSE reconcilers.failures + 1 END",
            run.name,
            run.replica,
            offset.of(run.started_at),
            now,
            run.error.is_none().then_some(now),
            count(run.looked_at),
            count(run.repaired),
            run.error.map(free_text),
            i64::from(run.error.is_some()),
        )?;
        tx.commit().await
    }

    /// Lists the last run of every reconciler on every known server, newest first.
    pub async fn reconciler_list(&self) -> Result<Vec<ReconcilerRow>> {
        on_pool!(self, db => sqlx::query_as::<_, ReconcilerRow>(
            "SELECT name, replica, started_at, finished_at, succeeded_at, looked_at, repaired, repaired_total, error, \
             failures FROM reconcilers ORDER BY finished_at DESC, name, replica LIMIT 1000").fetch_all(db))
    }

    /// Deletes the runs on servers that have been deleted.
    pub async fn reconciler_prune(&self) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM reconcilers WHERE NOT EXISTS (SELECT 1 FROM replicas r WHERE r.name = reconcilers.replica)",
        )?;
        tx.commit().await.map(|()| rows)
    }
}
