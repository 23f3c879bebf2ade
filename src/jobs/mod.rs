//! The kinds of jobs in the queue, one file each, and the table that runs them by name.

mod add_reaction;
mod cancel_commands;
mod clean_pull;
mod merge_pull;
mod post_comment;
mod read_delivery;
mod remove_duplicates;
mod repeat_status;
mod run_command;
mod set_status;
mod settle_repository;
mod take_turn;
mod tell_loss;

use std::sync::Arc;

use anyhow::anyhow;
use async_trait::async_trait;
use chrono::TimeDelta;

pub use add_reaction::AddReaction;
pub use cancel_commands::CancelCommands;
pub use clean_pull::CleanPull;
pub use merge_pull::MergePull;
pub use post_comment::PostComment;
pub use read_delivery::ReadDelivery;
pub use remove_duplicates::RemoveDuplicates;
pub use repeat_status::RepeatStatus;
pub use run_command::RunCommand;
pub use set_status::SetStatus;
pub use settle_repository::SettleRepository;
pub use take_turn::OfferLock;
pub use tell_loss::NotifyLockLoss;

use crate::context::Ctx;
use crate::forges::{ForgeError, Permit, WritePermit};
use crate::handlers::identity;
use crate::model::RepoId;
use crate::process::LeaseHeartbeat;
use crate::queue::{Job, JobError, Runner, RunningJob};
use crate::store::{LeaseLost, NewJob, Store};
use crate::telemetry::Metric;

/// Runs every kind of job, each with a context that writes only under its lease.
pub struct Jobs(Arc<Ctx>);

impl Jobs {
    /// Creates the runner of jobs over a context.
    pub fn new(ctx: Arc<Ctx>) -> Self {
        Self(ctx)
    }
}

/// Calls `$call` with the type of job whose kind is `$kind`.
macro_rules! by_kind {
    ($kind:expr, $job:ident => $call:expr, else => $other:expr) => {
        match $kind {
            kind if kind == <ReadDelivery as Job<Ctx>>::KIND => {
                type $job = ReadDelivery;
                $call
            }
            kind if kind == <RunCommand as Job<Ctx>>::KIND => {
                type $job = RunCommand;
                $call
            }
            kind if kind == <AddReaction as Job<Ctx>>::KIND => {
                type $job = AddReaction;
                $call
            }
            kind if kind == <CancelCommands as Job<Ctx>>::KIND => {
                type $job = CancelCommands;
                $call
            }
            kind if kind == <PostComment as Job<Ctx>>::KIND => {
                type $job = PostComment;
                $call
            }
            kind if kind == <SetStatus as Job<Ctx>>::KIND => {
                type $job = SetStatus;
                $call
            }
            kind if kind == <SettleRepository as Job<Ctx>>::KIND => {
                type $job = SettleRepository;
                $call
            }
            kind if kind == <OfferLock as Job<Ctx>>::KIND => {
                type $job = OfferLock;
                $call
            }
            kind if kind == <NotifyLockLoss as Job<Ctx>>::KIND => {
                type $job = NotifyLockLoss;
                $call
            }
            kind if kind == <RemoveDuplicates as Job<Ctx>>::KIND => {
                type $job = RemoveDuplicates;
                $call
            }
            kind if kind == <RepeatStatus as Job<Ctx>>::KIND => {
                type $job = RepeatStatus;
                $call
            }
            kind if kind == <CleanPull as Job<Ctx>>::KIND => {
                type $job = CleanPull;
                $call
            }
            kind if kind == <MergePull as Job<Ctx>>::KIND => {
                type $job = MergePull;
                $call
            }
            kind => $other(kind),
        }
    };
}

#[async_trait]
impl Runner for Jobs {
    async fn run(&self, attempt: &RunningJob) -> Result<(), JobError> {
        let ran = match self.call(attempt).await {
            Err(error) => Err(self.after_move(attempt, error).await),
            Ok(()) => Ok(()),
        };
        if let Err(JobError::Retry { .. }) = &ran {
            self.0
                .metrics
                .count(Metric::JobErrors, &[known_kind(&attempt.lease.kind)]);
        }
        ran
    }

    async fn gave_up(&self, attempt: &RunningJob, error: &JobError) -> anyhow::Result<()> {
        self.0
            .metrics
            .count(Metric::JobsGivenUp, &[known_kind(&attempt.lease.kind)]);
        by_kind!(attempt.lease.kind.as_str(), J => match read::<J>(attempt) {
            Ok(job) => job.gave_up(&self.0.under(attempt), error).await,
            Err(_) => Ok(()),
        }, else => |_| Ok(()))
    }

    fn max_attempts(&self, kind: &str) -> i64 {
        by_kind!(kind, J => <J as Job<Ctx>>::MAX_ATTEMPTS, else => |_| 1)
    }

    fn max_cut_offs(&self, kind: &str) -> i64 {
        by_kind!(kind, J => <J as Job<Ctx>>::MAX_CUT_OFFS, else => |_| 0)
    }
}

impl Jobs {
    /// Moves the data of a repository after a job found that it has another name. The job moves as well, and is
    /// retried.
    async fn after_move(&self, attempt: &RunningJob, error: JobError) -> JobError {
        let Some(repo) = moved(&error) else {
            return error;
        };
        match identity::look(&self.0.under(attempt), &repo, Some(attempt.lease.id)).await {
            Ok(()) => {
                let (JobError::Retry { error, .. } | JobError::Fail(error)) = error;
                // The job has the new name now. If it has not, endless retries would not help.
                let at = (attempt.lease.tries() <= TRIES_AFTER_A_MOVE).then(|| self.0.clock.now());
                JobError::Retry { at, error }
            }
            Err(error) => error,
        }
    }

    async fn call(&self, attempt: &RunningJob) -> Result<(), JobError> {
        by_kind!(attempt.lease.kind.as_str(), J => read::<J>(attempt)?.run(&self.0.under(attempt), attempt).await, else => |kind| {
            Err(JobError::Fail(anyhow!("this version does not know jobs of the kind `{kind}`")))
        })
    }
}

/// Returns a kind as a label. The queue may hold jobs of a newer version.
fn known_kind(kind: &str) -> &'static str {
    by_kind!(kind, J => <J as Job<Ctx>>::KIND, else => |_| "unknown")
}

fn read<J: Job<Ctx>>(attempt: &RunningJob) -> Result<J, JobError> {
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
    pulse: LeaseHeartbeat,
}

#[async_trait]
impl Permit for UnderLease {
    async fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.store.lease_check().await?;
        // The answer of the database may be old, because this process may have been paused since. The check of the
        // pulse uses no other clock and does not wait.
        if self.pulse.is_alive() {
            Ok(())
        } else {
            Err(Box::new(LeaseLost))
        }
    }
}

/// Returns the permit for the writes of a job to the forge. Without it, a job would learn too late that another
/// server took it over.
fn write_permit(ctx: &Ctx) -> WritePermit {
    Arc::new(UnderLease {
        store: ctx.store.clone(),
        pulse: ctx.terraform.supervisor.pulse.clone(),
    })
}

/// Maximum number of immediate retries of a job that was moved to another repository.
const TRIES_AFTER_A_MOVE: i64 = 3;

/// Waits before each search for a request that arrived after its sender gave it up. The first is short, because
/// people see the effect. The second finds requests that were held up for longer. A request has a minute, so the
/// first search comes after all requests that were under way.
const LOOKS: [TimeDelta; 2] = [TimeDelta::minutes(2), TimeDelta::minutes(15)];

/// Returns a job that searches for such requests, delayed for its number of looks. `None` means that there were
/// enough.
fn look_again(ctx: &Ctx, looks: usize, job: NewJob) -> Option<NewJob> {
    LOOKS.get(looks).map(|wait| NewJob {
        run_after: Some(ctx.clock.now() + *wait),
        ..job
    })
}

/// Returns the old name of a renamed repository, if the rename caused the error.
fn moved(error: &JobError) -> Option<RepoId> {
    let (JobError::Retry { error, .. } | JobError::Fail(error)) = error;
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(ForgeError::Moved { repo, .. }) => Some((**repo).clone()),
        _ => None,
    })
}

/// Attempts while a forge may be unavailable: a day, with five minutes between them.
const ATTEMPTS_WHILE_AWAY: i64 = 300;
/// Attempts while a forge refuses a request: an hour, because somebody may be fixing the permissions.
const ATTEMPTS_WHILE_REFUSED: i64 = 20;

/// Limits retries of work that can wait. The job waits long for an unavailable forge, and only shortly for one that
/// refuses.
fn patient(error: JobError, attempt: &RunningJob) -> JobError {
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
        let permit = |pulse: &LeaseHeartbeat| UnderLease {
            store: store.clone(),
            pulse: pulse.clone(),
        };
        permit(&LeaseHeartbeat::unneeded()).check().await.unwrap();
        let pulse = LeaseHeartbeat::every(Duration::ZERO);
        pulse.beat(pulse.prepare());
        let refused = permit(&pulse).check().await.unwrap_err();
        assert!(LeaseLost::is_cause_of(&*refused), "{refused}");
    }
}
