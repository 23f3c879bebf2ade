//! Counts and short lists for administrators and monitoring, each one cheap query.

use chrono::{DateTime, Utc};

use crate::model::{JobId, text_enum};
use crate::store::{DeliveryState, JobState, Result, Store, kept_time, on_pool};

text_enum! {
    /// Stage of a job that has not ended.
    pub enum JobStage {
        /// Waiting for a worker, or for the jobs before it in its lane.
        Waiting = "waiting",
        /// Waiting for its time, mostly for another attempt.
        Delayed = "delayed",
        Running = "running",
    }
}

/// Jobs of one kind and stage that have not ended.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct QueueLine {
    /// Kind of the jobs.
    pub kind: String,
    /// Stage of the jobs.
    pub stage: JobStage,
    /// Number of the jobs.
    pub jobs: i64,
    /// Time when the oldest of them was queued.
    pub oldest_at: DateTime<Utc>,
}

/// A lane with jobs that have not ended.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LaneRow {
    /// Name of the lane.
    pub lane: String,
    /// Number of jobs in the lane.
    pub jobs: i64,
    /// First job, which the others wait for.
    pub id: JobId,
    /// Kind of the first job.
    pub kind: String,
    /// State of the first job.
    pub state: JobState,
    /// Number of attempts of the first job.
    pub attempt: i64,
    /// Time when the first job was queued.
    pub created_at: DateTime<Utc>,
    /// Earliest time to run the first job.
    pub run_after: DateTime<Utc>,
    /// Server that works on the first job.
    pub lease_holder: Option<String>,
    /// Error of its last attempt.
    pub last_error: Option<String>,
}

/// A job that failed for good.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct FailedJob {
    pub id: JobId,
    /// Kind of the job.
    pub kind: String,
    /// Lane of the job.
    pub lane: String,
    /// Number of attempts so far.
    pub attempt: i64,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Time of the failure.
    pub finished_at: DateTime<Utc>,
}

/// Numbers of things that can pile up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct StoredCounts {
    /// Number of held locks.
    pub locks: i64,
    /// Number of places in the queues of locks.
    pub waiters: i64,
    /// Number of apply locks in effect.
    pub apply_locks: i64,
}

impl Store {
    /// Counts the jobs that have not ended, by kind and stage.
    pub async fn queue_lines(&self) -> Result<Vec<QueueLine>> {
        let now = self.clock_offset().await?.of(self.now());
        let mut lines = on_pool!(self, db => sqlx::query_as::<_, QueueLine>(
            "SELECT kind, CASE WHEN state = 'running' THEN 'running' WHEN run_after > $1 THEN 'delayed' \
             ELSE 'waiting' END AS stage, COUNT(*) AS jobs, MIN(created_at) AS oldest_at FROM jobs \
             WHERE state IN ('queued', 'running') GROUP BY 1, 2 LIMIT 200").bind(now).fetch_all(db))?;
        lines.sort_by(|a, b| (&a.kind, a.stage.as_str()).cmp(&(&b.kind, b.stage.as_str())));
        Ok(lines)
    }

    /// Lists lanes with jobs that have not ended, the longest waiting first.
    pub async fn lane_list(&self, limit: i64) -> Result<Vec<LaneRow>> {
        on_pool!(self, db => sqlx::query_as::<_, LaneRow>(
            "SELECT h.lane, open_lanes.jobs, h.id, h.kind, h.state, h.attempt, h.created_at, h.run_after, h.lease_holder, \
             h.last_error FROM jobs h JOIN (SELECT lane, MIN(seq) AS first_seq, COUNT(*) AS jobs FROM jobs \
             WHERE state IN ('queued', 'running') GROUP BY lane) open_lanes ON open_lanes.first_seq = h.seq ORDER BY h.seq LIMIT $1")
            .bind(limit).fetch_all(db))
    }

    /// Lists jobs that failed for good since a time, newest first, and returns their total number.
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

    /// Counts the deliveries received since a time, by state.
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

    /// Counts locks, places in their queues, and apply locks in effect.
    pub async fn held(&self) -> Result<StoredCounts> {
        let now = self.clock_offset().await?.of(self.now());
        on_pool!(self, db => sqlx::query_as::<_, StoredCounts>(
            "SELECT (SELECT COUNT(*) FROM locks) AS locks, (SELECT COUNT(*) FROM lock_waiters) AS waiters, \
             (SELECT COUNT(*) FROM apply_locks WHERE ends_at IS NULL OR ends_at > $1) AS apply_locks")
            .bind(now).fetch_one(db))
    }
}
