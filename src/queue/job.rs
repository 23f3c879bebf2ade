//! A kind of job: a serialisable struct that knows its lane and how to run.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};

use super::worker::RunningJob;
use crate::forges::ForgeError;
use crate::store::{LeaseLost, NewJob};

/// A kind of job over the context `C`. Its documentation says why a second run is harmless.
#[async_trait]
pub trait Job<C: Sync>: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name of the kind in the table of jobs.
    const KIND: &'static str;
    /// Priority among lanes. Higher goes first.
    const PRIORITY: i64;
    /// Maximum number of attempts that ended in a failure. After that the job fails for good.
    const MAX_ATTEMPTS: i64;
    /// Maximum number of restarts after the server died during the job, perhaps because of it.
    const MAX_CUT_OFFS: i64 = 10;

    /// Returns the lane of the job. Jobs of one lane run one at a time, in order.
    fn lane(&self) -> String;

    /// Returns the priority among lanes, for kinds whose jobs differ. Higher goes first.
    fn priority(&self) -> i64 {
        Self::PRIORITY
    }

    /// Returns the share of the job. Jobs of one share occupy a limited number of workers of a server. Empty means no
    /// limit.
    fn share(&self) -> String {
        String::new()
    }

    /// Does the work of the job.
    async fn run(&self, ctx: &C, attempt: &RunningJob) -> Result<(), JobError>;

    /// Reports the failure of the last attempt to the people who wait for the job.
    async fn report_failure(&self, ctx: &C, error: &JobError) -> anyhow::Result<()>;

    /// Returns the row for the queue.
    fn to_new(&self) -> NewJob {
        NewJob {
            kind: Self::KIND,
            payload: serde_json::to_string(self).expect("a job consists of texts and numbers"),
            lane: self.lane(),
            share: self.share(),
            priority: self.priority(),
            run_after: None,
        }
    }
}

/// Reason of a failed attempt, and the next step.
#[derive(Debug)]
pub enum JobError {
    /// A retry may succeed.
    Retry {
        /// Earliest time of the retry. `None` lets the queue back off.
        at: Option<DateTime<Utc>>,
        /// Cause of the failure.
        error: anyhow::Error,
    },
    /// Another attempt would end the same way.
    Fail(anyhow::Error),
}

impl JobError {
    /// Returns an error that asks for a retry after the usual wait.
    pub fn retry(error: impl Into<anyhow::Error>) -> Self {
        Self::Retry {
            at: None,
            error: error.into(),
        }
    }

    /// Returns an error that asks for no retry, because another attempt would end the same way.
    pub fn fail(error: impl Into<anyhow::Error>) -> Self {
        Self::Fail(error.into())
    }

    /// Returns true if another replica has the job by now, so that nothing must be written.
    pub fn is_lease_lost(&self) -> bool {
        let (Self::Retry { error, .. } | Self::Fail(error)) = self;
        LeaseLost::is_cause_of(error.as_ref())
    }

    /// Returns the error with its causes, in one line.
    pub fn message(&self) -> String {
        match self {
            Self::Retry { error, .. } | Self::Fail(error) => format!("{error:#}"),
        }
    }
}

impl From<sqlx::Error> for JobError {
    /// Asks for a retry. The database is the truth: until it answers, nothing is decided.
    fn from(error: sqlx::Error) -> Self {
        Self::retry(anyhow::Error::new(error).context("the database query failed"))
    }
}

impl From<ForgeError> for JobError {
    /// Decides between a wait, a retry and no retry.
    fn from(error: ForgeError) -> Self {
        match error {
            ForgeError::RateLimited { until, .. } => Self::Retry {
                at: Some(until),
                error: error.into(),
            },
            ForgeError::Moved { .. }
            | ForgeError::Unavailable { .. }
            | ForgeError::Denied { .. }
            | ForgeError::NotFound { .. } => Self::retry(error),
            ForgeError::NotConfigured { .. } | ForgeError::Rejected { .. } => Self::fail(error),
        }
    }
}

/// The server stopped during a job more often than allowed.
#[derive(Debug, thiserror::Error)]
#[error("the server stopped during the job {times} times; the job may be the cause")]
pub struct TooManyInterruptions {
    /// Number of interrupted attempts.
    pub times: i64,
}

/// Returns the wait after a failed attempt: 1, 2, 4 … seconds, at most five minutes.
pub fn backoff(attempt: i64) -> Duration {
    const CEILING: Duration = Duration::from_mins(5);
    let doublings = u32::try_from(attempt.clamp(1, 16) - 1).unwrap_or(0);
    Duration::from_secs(1 << doublings).min(CEILING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_five_minutes() {
        let waits: Vec<u64> = [1, 2, 3, 8, 9, 10, 1000]
            .map(|n| backoff(n).as_secs())
            .to_vec();
        assert_eq!(waits, [1, 2, 4, 128, 256, 300, 300]);
    }
}
