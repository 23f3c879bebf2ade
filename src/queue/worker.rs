//! Claims one job at a time, runs it and writes the result.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use chrono::TimeDelta;
use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info_span, warn};

use super::job::{JobError, TooManyInterruptions, backoff};
use super::{LEASE, WakeUp};
use crate::clock::Clock;
use crate::model::JobId;
use crate::process::LeaseHeartbeat;
use crate::store::{JobClaim, JobFinish, JobLease, Store};

/// Number of attempts after which a job that panics fails for good.
const ATTEMPTS_AT_A_PANIC: i64 = 6;

/// A claimed job at work, with the token that tells it to stop.
#[derive(Clone, Debug)]
pub struct RunningJob {
    /// Lease of the claimed job.
    pub lease: JobLease,
    /// Token that is cancelled when the lease is lost.
    pub lost: CancellationToken,
}

/// Runs each kind of job.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Does the work of one job.
    async fn run(&self, attempt: &RunningJob) -> Result<(), JobError>;

    /// Reports a job that failed for good to the people who wait for it. `attempt` was its last one.
    async fn report_failure(&self, attempt: &RunningJob, error: &JobError) -> anyhow::Result<()>;

    /// Returns the maximum number of attempts for a job of this kind.
    fn max_attempts(&self, kind: &str) -> i64;

    /// Returns the maximum number of restarts for a job of this kind after it was cut off.
    fn max_cut_offs(&self, kind: &str) -> i64;
}

/// The jobs that this process works on right now.
#[derive(Clone, Debug)]
pub struct Running {
    jobs: Arc<Mutex<HashMap<JobId, CancellationToken>>>,
    heartbeat: LeaseHeartbeat,
}

impl Running {
    /// Creates an empty list for a replica that may run jobs while the heartbeat is alive.
    pub fn new(heartbeat: LeaseHeartbeat) -> Self {
        Self {
            jobs: Arc::default(),
            heartbeat,
        }
    }

    /// Returns true if this replica may begin a job. A replica that could not renew its leases for too long may not.
    fn may_begin(&self) -> bool {
        self.heartbeat.is_alive()
    }

    /// Tells every job to stop.
    pub fn cancel_all(&self) {
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .for_each(CancellationToken::cancel);
    }

    fn enter(&self, job: JobId) -> CancellationToken {
        let token = CancellationToken::new();
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(job, token.clone());
        token
    }

    fn leave(&self, job: JobId) {
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&job);
    }

    /// Returns the jobs that run at this moment.
    pub fn list(&self) -> Vec<JobId> {
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .copied()
            .collect()
    }

    /// Tells a job to stop, if it still runs.
    pub fn cancel(&self, job: JobId) {
        if let Some(token) = self
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&job)
        {
            token.cancel();
        }
    }

    /// Returns the number of running jobs.
    pub fn count(&self) -> usize {
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

/// Filter for the jobs of a worker. Long work has its own workers, so that it never delays short work.
#[derive(Clone, Copy, Debug)]
pub enum Kinds {
    /// Only jobs of this kind.
    Only(&'static str),
    /// All jobs except those of this kind.
    Except(&'static str),
}

/// Decision about the next job, at the end of one.
#[derive(Clone, Copy, Debug)]
pub enum NextJob<'a> {
    /// Claim it in the same step, unless this is cancelled by then.
    ClaimUnless(&'a CancellationToken),
    /// Leave it in the queue.
    Leave,
}

impl NextJob<'_> {
    fn is_wanted(self) -> bool {
        match self {
            Self::ClaimUnless(closing) => !closing.is_cancelled(),
            Self::Leave => false,
        }
    }
}

/// Outcome of a tick.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// One job was worked on; more may be queued.
    Worked,
    /// No job was ready.
    Idle,
}

/// A worker that takes jobs from the queue.
pub struct Worker<R> {
    store: Store,
    clock: Arc<dyn Clock>,
    runner: Arc<R>,
    holder: String,
    kinds: Kinds,
    most_of_a_share: i64,
    least_priority: i64,
    running: Running,
    wake_up: WakeUp,
}

impl<R: Runner> Worker<R> {
    /// Creates a worker that signs its claims with `holder`, the name of this replica.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        runner: Arc<R>,
        holder: String,
        kinds: Kinds,
        running: Running,
        wake_up: WakeUp,
    ) -> Self {
        Self {
            store,
            clock,
            runner,
            holder,
            kinds,
            most_of_a_share: i64::MAX,
            least_priority: i64::MIN,
            running,
            wake_up,
        }
    }

    /// Limits how many jobs of one share this server works on at once.
    #[must_use]
    pub fn with_most_of_a_share(self, most_of_a_share: i64) -> Self {
        Self {
            most_of_a_share,
            ..self
        }
    }

    /// Sets the lowest priority that the worker takes.
    #[must_use]
    pub fn with_least_priority(self, least_priority: i64) -> Self {
        Self {
            least_priority,
            ..self
        }
    }

    /// Claims one job, if one is ready, and works on it until it ends.
    pub async fn tick(&self) -> Result<Tick, sqlx::Error> {
        let Some(lease) = self.claim().await? else {
            return Ok(Tick::Idle);
        };
        self.run_claimed(lease, NextJob::Leave)
            .await
            .map(|_| Tick::Worked)
    }

    /// Claims the next job, if one is ready.
    pub async fn claim(&self) -> Result<Option<JobLease>, sqlx::Error> {
        if !self.running.may_begin() {
            return Ok(None);
        }
        self.store.job_claim(&self.next_claim()).await
    }

    fn next_claim(&self) -> JobClaim<'_> {
        let (only, except) = match self.kinds {
            Kinds::Only(kind) => (kind, ""),
            Kinds::Except(kind) => ("", kind),
        };
        JobClaim {
            holder: &self.holder,
            until: self.clock.now() + LEASE,
            only,
            except,
            most_of_a_share: self.most_of_a_share,
            least_priority: self.least_priority,
        }
    }

    /// Works on a claimed job and writes its result. Returns the next job if it is to be claimed and one is ready.
    pub async fn run_claimed(
        &self,
        lease: JobLease,
        next: NextJob<'_>,
    ) -> Result<Option<JobLease>, sqlx::Error> {
        let span =
            info_span!("job", kind = %lease.kind, job.id = %lease.id, attempt = lease.attempt);
        let next = self.work(lease, next).instrument(span).await?;
        self.wake_up.send();
        Ok(next)
    }

    async fn work(
        &self,
        lease: JobLease,
        next: NextJob<'_>,
    ) -> Result<Option<JobLease>, sqlx::Error> {
        let attempt = RunningJob {
            lost: self.running.enter(lease.id),
            lease,
        };
        let result = std::panic::AssertUnwindSafe(self.attempt(&attempt))
            .catch_unwind()
            .await;
        self.running.leave(attempt.lease.id);
        if attempt.lost.is_cancelled() && !attempt.lease.has_ended() {
            return self.release(&attempt.lease).await.map(|()| None);
        }
        let result = result.unwrap_or_else(|panic| Err(after_panic(&*panic, &attempt.lease)));
        let (finish, next) = match result {
            Err(error) if error.is_lease_lost() => (JobFinish::LeaseLost, None),
            Ok(()) if next.is_wanted() && self.running.may_begin() => {
                self.store
                    .job_finish_and_claim(&attempt.lease, &self.next_claim())
                    .await?
            }
            Ok(()) => (self.store.job_finish(&attempt.lease).await?, None),
            Err(error) => (self.after_error(&attempt, error).await?, None),
        };
        if finish == JobFinish::LeaseLost {
            warn!("Another replica took over the job during its work");
        }
        Ok(next)
    }

    /// Asks for another start of a job whose lease was lost, or could not be renewed for so long that it may be. If
    /// no other replica has taken the job over, it begins again.
    async fn release(&self, lease: &JobLease) -> Result<(), sqlx::Error> {
        let again = self
            .store
            .job_retry(lease, self.clock.now(), "could not renew the lease in time")
            .await?;
        match again {
            JobFinish::LeaseLost => warn!("Lost the lease of the job; its result is not written"),
            JobFinish::Recorded => {
                warn!("Could not renew the lease of the job in time; the job is started again");
            }
        }
        Ok(())
    }

    /// Runs a job, unless it was cut off too often. A job that takes the whole server down never gets as far as an
    /// error, so its count ends it.
    async fn attempt(&self, attempt: &RunningJob) -> Result<(), JobError> {
        let times = attempt.lease.cut_offs;
        if times > self.runner.max_cut_offs(&attempt.lease.kind) {
            return Err(JobError::fail(TooManyInterruptions { times }));
        }
        self.runner.run(attempt).await
    }

    async fn after_error(
        &self,
        attempt: &RunningJob,
        error: JobError,
    ) -> Result<JobFinish, sqlx::Error> {
        let (lease, message) = (&attempt.lease, error.message());
        let last = lease.tries() >= self.runner.max_attempts(&lease.kind);
        match &error {
            JobError::Retry { at, .. } if !last => {
                warn!(error = message, "The job failed and will be retried");
                let wait = TimeDelta::from_std(backoff(lease.tries())).unwrap_or(TimeDelta::MAX);
                self.store
                    .job_retry(
                        lease,
                        at.unwrap_or_else(|| self.clock.now() + wait),
                        &message,
                    )
                    .await
            }
            JobError::Retry { .. } | JobError::Fail(_) => {
                error!(error = message, "The job failed and will not be retried");
                if let Err(report) = self.runner.report_failure(attempt, &error).await {
                    error!(
                        error = format!("{report:#}"),
                        "Could not report the failure of the job"
                    );
                }
                self.store.job_fail(lease, &message).await
            }
        }
    }
}

/// Returns a retry for the first panics of a job, then a failure. A bug does not go away, however patient the job is
/// with other errors.
fn after_panic(panic: &(dyn std::any::Any + Send), lease: &JobLease) -> JobError {
    let error = panic_error(panic);
    if lease.tries() < ATTEMPTS_AT_A_PANIC {
        JobError::retry(error)
    } else {
        JobError::Fail(error)
    }
}

fn panic_error(panic: &(dyn std::any::Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    anyhow::anyhow!("the job panicked, which is a bug in Lockkeeper: {text}")
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::clock::{CountingIds, ManualClock};
    use crate::store::{DatabaseUrl, JobState, NewJob};

    /// Succeeds with every job at once.
    struct Idle;

    #[async_trait]
    impl Runner for Idle {
        async fn run(&self, _attempt: &RunningJob) -> Result<(), JobError> {
            Ok(())
        }

        async fn report_failure(
            &self,
            _attempt: &RunningJob,
            _error: &JobError,
        ) -> anyhow::Result<()> {
            Ok(())
        }

        fn max_attempts(&self, _kind: &str) -> i64 {
            1
        }

        fn max_cut_offs(&self, _kind: &str) -> i64 {
            1
        }
    }

    #[tokio::test]
    async fn the_next_job_is_claimed_with_the_end_of_one_unless_the_server_closes() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(DateTime::UNIX_EPOCH));
        let url = DatabaseUrl::Sqlite(dir.path().join("lockkeeper.db"));
        let ids = Arc::new(CountingIds::default());
        let store = Store::open(&url, clock.clone(), ids).await.unwrap();
        let job = |lane: &str| NewJob {
            kind: "work",
            payload: "{}".to_owned(),
            lane: lane.to_owned(),
            share: String::new(),
            priority: 0,
            run_after: None,
        };
        for lane in ["a", "b", "c"] {
            store.job_push(&job(lane)).await.unwrap();
        }
        let worker = Worker::new(
            store.clone(),
            clock,
            Arc::new(Idle),
            "w".to_owned(),
            Kinds::Except(""),
            Running::new(LeaseHeartbeat::unneeded()),
            WakeUp::default(),
        );
        let closing = CancellationToken::new();
        let first = worker.claim().await.unwrap().unwrap();
        let then = NextJob::ClaimUnless(&closing);
        let second = worker.run_claimed(first, then).await.unwrap().unwrap();
        assert_eq!(second.lane, "b");
        closing.cancel();
        assert!(worker.run_claimed(second, then).await.unwrap().is_none());
        let open = store.job_list_open().await.unwrap();
        let open: Vec<_> = open
            .iter()
            .map(|job| (job.lane.as_str(), job.state))
            .collect();
        assert_eq!(open, [("c", JobState::Queued)]);
    }
}
