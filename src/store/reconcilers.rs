//! How the repairs of each server went lately. Times are those of the judge (see `store::time`).

use chrono::{DateTime, Utc};

use super::{Result, Store, execute, free_text, on_pool};

/// How a repair went.
#[derive(Clone, Debug)]
pub struct ReconcilerRun<'a> {
    /// Name of the repair.
    pub name: &'a str,
    /// Name of the server.
    pub replica: &'a str,
    /// When it began, by our clock.
    pub started_at: DateTime<Utc>,
    /// How much it looked at.
    pub looked_at: u64,
    /// How much of that it repaired.
    pub repaired: u64,
    /// Why it did not come to its end, if it did not.
    pub error: Option<&'a str>,
}

/// How a repair went on one server, the last time and before.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct ReconcilerRow {
    /// Name of the repair.
    pub name: String,
    /// Name of the server.
    pub replica: String,
    /// When it began last.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    pub finished_at: DateTime<Utc>,
    /// When it last came to its end without an error.
    pub succeeded_at: Option<DateTime<Utc>>,
    /// How much it looked at.
    pub looked_at: i64,
    /// How much of that it repaired.
    pub repaired: i64,
    /// How much this server has repaired in all.
    pub repaired_total: i64,
    /// Why it did not come to its end, if it did not.
    pub error: Option<String>,
    /// How many times in a row it did not.
    pub failures: i64,
}

impl Store {
    /// Keeps how a repair went that has just ended.
    pub async fn reconciler_record(&self, run: &ReconcilerRun<'_>) -> Result<()> {
        let mut tx = self.begin().await?;
        let skew = self.skew_in_tx(&mut tx).await?;
        let now = skew.of(self.now());
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
            skew.of(run.started_at),
            now,
            run.error.is_none().then_some(now),
            count(run.looked_at),
            count(run.repaired),
            run.error.map(free_text),
            i64::from(run.error.is_some()),
        )?;
        tx.commit().await
    }

    /// How every repair went on every server that is remembered, the newest first.
    pub async fn reconciler_list(&self) -> Result<Vec<ReconcilerRow>> {
        on_pool!(self, db => sqlx::query_as::<_, ReconcilerRow>(
            "SELECT name, replica, started_at, finished_at, succeeded_at, looked_at, repaired, repaired_total, error, \
             failures FROM reconcilers ORDER BY finished_at DESC, name, replica LIMIT 1000").fetch_all(db))
    }

    /// Forgets how repairs went on servers that are not remembered either.
    pub async fn reconciler_prune(&self) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM reconcilers WHERE NOT EXISTS (SELECT 1 FROM replicas r WHERE r.name = reconcilers.replica)",
        )?;
        tx.commit().await.map(|()| rows)
    }
}
