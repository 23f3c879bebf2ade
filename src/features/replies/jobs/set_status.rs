//! Sets one status on a commit.
//!
//! A second run is harmless: the newest status of a context is in effect. The statuses of one context on one commit
//! share a lane, so an older one is sent before a newer one. [`RepeatStatus`] corrects one that arrives late all the
//! same. One that is followed by a newer one before it is sent is left out.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::Ctx;
use crate::features::replies::RepeatStatus;
use crate::kit::jobs::{ATTEMPTS_WHILE_AWAY, patient, write_permit};
use crate::model::{CommandId, CommitSha, CommitStatus, PullRef, RepoId, StatusTarget, Subject};
use crate::queue::{Job, JobError, RunningJob};
use crate::store::{PendingStatus, Store};

/// A status to set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetStatus {
    /// Commit that gets the status.
    #[serde(flatten)]
    pub target: StatusTarget,
    /// Status that the commit gets.
    pub status: CommitStatus,
    /// Command that will end a pending status. `None` means that the status may stay pending.
    #[serde(default)]
    pub promised: Option<CommandId>,
}

impl SetStatus {
    /// Returns the lane of a status of a commit.
    pub fn lane_of(repo: &RepoId, commit: &CommitSha, context: &str) -> String {
        format!("status:{repo}@{commit}:{context}")
    }

    /// Creates the job for a commit of a pull. Applications have no statuses.
    pub fn of_pull(pull: &PullRef, commit: &CommitSha, status: CommitStatus) -> Option<Self> {
        let Subject::Pull(number) = pull.subject else {
            return None;
        };
        let target = StatusTarget {
            repo: pull.repo.clone(),
            pull: Some(number),
            commit: commit.clone(),
        };
        Some(Self {
            target,
            status,
            promised: None,
        })
    }

    /// Records a status that is pending and must not stay so, or removes that record.
    async fn note(&self, store: &Store) -> Result<(), sqlx::Error> {
        let StatusTarget { repo, commit, .. } = &self.target;
        let context = self.status.context.as_str();
        let Some(command) = self.promised else {
            return store.status_settle(repo, commit, context).await;
        };
        let (repo, head, context) = (repo.clone(), commit.clone(), context.to_owned());
        let status = PendingStatus {
            repo,
            head,
            context,
            command,
        };
        store.status_promise(&status).await
    }
}

#[async_trait]
impl Job<Ctx> for SetStatus {
    const KIND: &'static str = "set_status";
    /// Comments go first, because people wait for them. Many statuses take long where writes are spaced.
    const PRIORITY: i64 = 28;
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_AWAY;

    fn lane(&self) -> String {
        let StatusTarget { repo, commit, .. } = &self.target;
        Self::lane_of(repo, commit, self.status.context.as_str())
    }

    async fn run(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<(), JobError> {
        // A run may end before its pending status is set. An attempt that was made may still arrive, so it is repeated.
        if attempt.lease.attempt == 1 && ctx.store.job_is_outdated(&attempt.lease).await? {
            return Ok(());
        }
        // An older status must not follow a newer one, not even from a replica that was paused here.
        let permit = write_permit(ctx);
        let set = ctx
            .forges
            .of(&self.target.repo)?
            .status_set(&self.target, &self.status, &permit)
            .await;
        set.map_err(|error| patient(error.into(), attempt))?;
        if attempt.lease.attempt == 1 {
            return Ok(self.note(&ctx.store.last_of_job()).await?);
        }
        self.note(&ctx.store).await?;
        let repeat = RepeatStatus {
            statuses: self.lane(),
            since: attempt.lease.id,
            looks: 0,
        };
        if let Some(job) = repeat.at_its_time(ctx) {
            ctx.store.job_push(&job).await?;
        }
        Ok(())
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(repo = %self.target.repo, context = %self.status.context, error = error.message(), "Could not set a status");
        Ok(())
    }
}
