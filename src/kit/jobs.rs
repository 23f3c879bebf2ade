//! Kinds of jobs, and what several of them need: the permit to write to a forge, limits on attempts, and later looks.

use std::sync::Arc;

use anyhow::anyhow;
use async_trait::async_trait;
use chrono::TimeDelta;
use futures::future::BoxFuture;

use crate::context::{Ctx, ServerCtx};
use crate::forges::{ForgeError, Permit, WritePermit};
use crate::process::LeaseHeartbeat;
use crate::queue::{Job, JobError, RunningJob};
use crate::store::{LeaseLost, NewJob, Store};

/// A kind of job, as a feature registers it.
pub(crate) struct JobKind {
    /// Name in the queue and in metrics.
    pub name: &'static str,
    /// Maximum number of attempts that ended in a failure.
    pub max_attempts: i64,
    /// Maximum number of restarts after the server died during the job.
    pub max_cut_offs: i64,
    /// Does the work, with a context that writes only under the lease of the job.
    pub run: for<'a> fn(&'a ServerCtx, &'a RunningJob) -> BoxFuture<'a, Result<(), JobError>>,
    /// Reports the failure of the last attempt.
    pub report_failure: for<'a> fn(
        &'a ServerCtx,
        &'a RunningJob,
        &'a JobError,
    ) -> BoxFuture<'a, anyhow::Result<()>>,
}

impl JobKind {
    /// Describes the kind of the job `J`.
    pub const fn of<J, C>() -> Self
    where
        J: Job<C>,
        C: Sync + 'static,
        ServerCtx: AsRef<C>,
    {
        Self {
            name: J::KIND,
            max_attempts: J::MAX_ATTEMPTS,
            max_cut_offs: J::MAX_CUT_OFFS,
            run: |ctx, attempt| {
                Box::pin(async move { read::<J, C>(attempt)?.run(ctx.as_ref(), attempt).await })
            },
            report_failure: |ctx, attempt, error| {
                Box::pin(async move {
                    match read::<J, C>(attempt) {
                        Ok(job) => job.report_failure(ctx.as_ref(), error).await,
                        // It failed because nobody can read it, and so nobody can be told.
                        Err(_) => Ok(()),
                    }
                })
            },
        }
    }
}

fn read<J: Job<C>, C: Sync>(attempt: &RunningJob) -> Result<J, JobError> {
    serde_json::from_str(&attempt.lease.payload).map_err(|error| {
        JobError::Fail(
            anyhow!(error).context(format!("cannot read a job of the kind `{}`", J::KIND)),
        )
    })
}

/// The right of a job to write to the forge: the job holds its lease, and this server renews its leases in time.
struct UnderLease {
    /// Store that writes under the lease.
    store: Store,
    heartbeat: LeaseHeartbeat,
}

#[async_trait]
impl Permit for UnderLease {
    async fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.store.lease_check().await?;
        // The answer of the database may be old, because this process may have been paused since. The check of the
        // heartbeat uses no other clock and does not wait.
        if self.heartbeat.is_alive() {
            Ok(())
        } else {
            Err(Box::new(LeaseLost))
        }
    }
}

/// Returns the permit for the writes of a job to the forge. Without it, a job would learn too late that another
/// server took it over.
pub(crate) fn write_permit(ctx: &Ctx) -> WritePermit {
    Arc::new(UnderLease {
        store: ctx.store.clone(),
        heartbeat: ctx.heartbeat.clone(),
    })
}

/// Waits before each search for a request that arrived after its sender gave it up. The first is short, because
/// people see the effect. The second finds requests that were held up for longer. A request has a minute, so the
/// first search comes after all requests that were under way.
const LOOKS: [TimeDelta; 2] = [TimeDelta::minutes(2), TimeDelta::minutes(15)];

/// Returns a job that searches for such requests, delayed for its number of looks. `None` means that there were
/// enough.
pub(crate) fn delayed_search(ctx: &Ctx, looks: usize, job: NewJob) -> Option<NewJob> {
    LOOKS.get(looks).map(|wait| NewJob {
        run_after: Some(ctx.clock.now() + *wait),
        ..job
    })
}

/// Attempts while a forge may be unavailable: a day, with five minutes between them.
pub(crate) const ATTEMPTS_WHILE_AWAY: i64 = 300;
/// Attempts while a forge refuses a request: an hour, because somebody may be fixing the permissions.
pub(crate) const ATTEMPTS_WHILE_REFUSED: i64 = 20;

/// Limits retries of work that can wait. The job waits long for an unavailable forge, and only shortly for one that
/// refuses.
pub(crate) fn patient(error: JobError, attempt: &RunningJob) -> JobError {
    let refused = |error: &anyhow::Error| {
        matches!(
            error.downcast_ref(),
            Some(ForgeError::Denied { .. } | ForgeError::NotFound { .. })
        )
    };
    match error {
        JobError::Retry { error, .. }
            if attempt.lease.tries() >= ATTEMPTS_WHILE_REFUSED && refused(&error) =>
        {
            JobError::Fail(error)
        }
        other @ (JobError::Retry { .. } | JobError::Fail(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::DateTime;

    use super::*;
    use crate::clock::{CountingIds, ManualClock};
    use crate::store::DatabaseUrl;

    #[tokio::test]
    async fn a_server_that_is_not_heard_of_does_not_write_whatever_the_database_says() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(DateTime::UNIX_EPOCH));
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        let store = Store::open(&url, clock, Arc::new(CountingIds::default()))
            .await
            .unwrap();
        let permit = |heartbeat: &LeaseHeartbeat| UnderLease {
            store: store.clone(),
            heartbeat: heartbeat.clone(),
        };
        permit(&LeaseHeartbeat::unneeded()).check().await.unwrap();
        let heartbeat = LeaseHeartbeat::every(Duration::ZERO);
        heartbeat.beat(heartbeat.prepare());
        let refused = permit(&heartbeat).check().await.unwrap_err();
        assert!(LeaseLost::is_cause_of(&*refused), "{refused}");
    }
}
