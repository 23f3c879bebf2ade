//! A kind of job: a serialisable struct that knows its lane and how to run.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};

use super::worker::Attempt;
use crate::store::{LeaseLost, NewJob};
use crate::vcs::ForgeError;

/// A kind of job over the context `C`. Its documentation says why a second run is harmless.
#[async_trait]
pub trait Job<C: Sync>: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name in the table of jobs.
    const KIND: &'static str;
    /// Higher goes first among lanes.
    const PRIORITY: i64;
    /// After this many attempts that came to an end, and not a good one, the job is given up.
    const MAX_ATTEMPTS: i64;
    /// So often the job is begun again after the server was gone in the middle of it: perhaps because of it.
    const MAX_CUT_OFFS: i64 = 10;

    /// Jobs of one lane run one at a time, in order.
    fn lane(&self) -> String;

    /// Higher goes first among lanes; for kinds whose jobs are not all alike.
    fn priority(&self) -> i64 {
        Self::PRIORITY
    }

    /// Jobs of one share may take only so many workers of a server; empty: any number.
    fn share(&self) -> String {
        String::new()
    }

    /// Does the work.
    async fn run(&self, ctx: &C, attempt: &Attempt) -> Result<(), JobError>;

    /// The last attempt failed: tells whoever waits for it.
    async fn gave_up(&self, ctx: &C, error: &JobError) -> anyhow::Result<()>;

    /// The row for the queue.
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

/// Why an attempt did not end well, and what is to be done about it.
#[derive(Debug)]
pub enum JobError {
    /// Worth another try.
    Retry {
        /// Not before this time; `None` lets the queue back off.
        at: Option<DateTime<Utc>>,
        /// What went wrong.
        error: anyhow::Error,
    },
    /// Another try would end the same way.
    Fail(anyhow::Error),
}

impl JobError {
    /// Worth another try after the usual wait.
    pub fn retry(error: impl Into<anyhow::Error>) -> Self {
        Self::Retry {
            at: None,
            error: error.into(),
        }
    }

    /// Another try would end the same way.
    pub fn fail(error: impl Into<anyhow::Error>) -> Self {
        Self::Fail(error.into())
    }

    /// Whether another replica has the job by now, so that there is nothing to be written down.
    pub fn is_lease_lost(&self) -> bool {
        let (Self::Retry { error, .. } | Self::Fail(error)) = self;
        LeaseLost::is_cause_of(error.as_ref())
    }

    /// What went wrong, with its causes, in one line.
    pub fn message(&self) -> String {
        match self {
            Self::Retry { error, .. } | Self::Fail(error) => format!("{error:#}"),
        }
    }
}

impl From<sqlx::Error> for JobError {
    /// The database is the truth: until it answers, nothing is decided.
    fn from(error: sqlx::Error) -> Self {
        Self::retry(anyhow::Error::new(error).context("the database did not do what was asked"))
    }
}

impl From<ForgeError> for JobError {
    /// Wait, try again, or give up.
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
            ForgeError::Rejected { .. } => Self::fail(error),
        }
    }
}

/// The server was gone in the middle of a job as often as is borne.
#[derive(Debug, thiserror::Error)]
#[error("the server stopped in the middle of it {times} times, perhaps because of it")]
pub struct CutOff {
    /// How often.
    pub times: i64,
}

/// The wait after a failed attempt: 1, 2, 4 … seconds, at most five minutes.
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
