//! What operators and monitors look at: counts and short lists, each one cheap query.

use chrono::{DateTime, Utc};

use super::{DeliveryState, JobState, Result, Store, kept_time, on_pool};
use crate::model::{JobId, text_enum};

text_enum! {
    /// What a job that has not ended does.
    pub enum JobStage {
        /// It waits for a worker, or for those before it in its lane.
        Waiting = "waiting",
        /// It waits for its time, mostly for another try.
        Delayed = "delayed",
        /// Somebody works on it.
        Running = "running",
    }
}

/// Jobs of a kind that have not ended.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct QueueLine {
    /// Which kind of work.
    pub kind: String,
    /// What they do.
    pub stage: JobStage,
    /// How many there are.
    pub jobs: i64,
    /// When the oldest of them was put into the queue.
    pub oldest_at: DateTime<Utc>,
}

/// A lane with jobs that have not ended.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LaneRow {
    /// Its name.
    pub lane: String,
    /// How many jobs there are in it.
    pub jobs: i64,
    /// The first of them, which the others wait for.
    pub id: JobId,
    /// Which kind of work that is.
    pub kind: String,
    /// Where that is.
    pub state: JobState,
    /// How often it was tried.
    pub attempt: i64,
    /// When it was put into the queue.
    pub created_at: DateTime<Utc>,
    /// Not before this time.
    pub run_after: DateTime<Utc>,
    /// Which server works on it.
    pub lease_holder: Option<String>,
    /// What the last try failed with.
    pub last_error: Option<String>,
}

/// A job that was given up.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct FailedJob {
    /// The job.
    pub id: JobId,
    /// Which kind of work.
    pub kind: String,
    /// Its lane.
    pub lane: String,
    /// How often it was tried.
    pub attempt: i64,
    /// Why it was given up.
    pub last_error: Option<String>,
    /// When.
    pub finished_at: DateTime<Utc>,
}

/// How much there is of what can pile up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct Held {
    /// Locks that are held.
    pub locks: i64,
    /// Places in lines for them.
    pub waiters: i64,
    /// Switches that stop applies.
    pub apply_locks: i64,
}

impl Store {
    /// The jobs that have not ended, by kind and by what they do.
    pub async fn queue_lines(&self) -> Result<Vec<QueueLine>> {
        let now = self.skew().await?.of(self.now());
        let mut lines = on_pool!(self, db => sqlx::query_as::<_, QueueLine>(
            "SELECT kind, CASE WHEN state = 'running' THEN 'running' WHEN run_after > $1 THEN 'delayed' \
             ELSE 'waiting' END AS stage, COUNT(*) AS jobs, MIN(created_at) AS oldest_at FROM jobs \
             WHERE state IN ('queued', 'running') GROUP BY 1, 2 LIMIT 200").bind(now).fetch_all(db))?;
        lines.sort_by(|a, b| (&a.kind, a.stage.as_str()).cmp(&(&b.kind, b.stage.as_str())));
        Ok(lines)
    }

    /// Lanes in which something is left to do, those that wait longest first.
    pub async fn lane_list(&self, limit: i64) -> Result<Vec<LaneRow>> {
        on_pool!(self, db => sqlx::query_as::<_, LaneRow>(
            "SELECT h.lane, open_lanes.jobs, h.id, h.kind, h.state, h.attempt, h.created_at, h.run_after, h.lease_holder, \
             h.last_error FROM jobs h JOIN (SELECT lane, MIN(seq) AS first_seq, COUNT(*) AS jobs FROM jobs \
             WHERE state IN ('queued', 'running') GROUP BY lane) open_lanes ON open_lanes.first_seq = h.seq ORDER BY h.seq LIMIT $1")
            .bind(limit).fetch_all(db))
    }

    /// Jobs that were given up since a time, newest first, and how many there are in all.
    pub async fn job_list_failed_since(
        &self,
        since: DateTime<Utc>,
        limit: i64,
    ) -> Result<(Vec<FailedJob>, i64)> {
        let since = kept_time(since);
        let newest = on_pool!(self, db => sqlx::query_as::<_, FailedJob>(
            "SELECT id, kind, lane, attempt, last_error, finished_at FROM jobs WHERE state = 'failed' \
             AND finished_at >= $1 ORDER BY finished_at DESC, seq DESC LIMIT $2")
            .bind(since).bind(limit).fetch_all(db))?;
        let count = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM jobs WHERE state = 'failed' AND finished_at >= $1")
            .bind(since).fetch_one(db))?;
        Ok((newest, count))
    }

    /// How many deliveries came since a time, by what became of them.
    pub async fn delivery_count_since(
        &self,
        since: DateTime<Utc>,
    ) -> Result<Vec<(DeliveryState, i64)>> {
        let mut counts = on_pool!(self, db => sqlx::query_as::<_, (DeliveryState, i64)>(
            "SELECT state, COUNT(*) FROM deliveries WHERE received_at >= $1 GROUP BY state")
            .bind(kept_time(since)).fetch_all(db))?;
        counts.sort_by_key(|(state, _)| state.as_str());
        Ok(counts)
    }

    /// How much there is of what can pile up.
    pub async fn held(&self) -> Result<Held> {
        let now = self.skew().await?.of(self.now());
        on_pool!(self, db => sqlx::query_as::<_, Held>(
            "SELECT (SELECT COUNT(*) FROM locks) AS locks, (SELECT COUNT(*) FROM lock_waiters) AS waiters, \
             (SELECT COUNT(*) FROM apply_locks WHERE ends_at IS NULL OR ends_at > $1) AS apply_locks")
            .bind(now).fetch_one(db))
    }
}
