//! Puts one status on a commit.
//!
//! A second run is harmless: the newest status of a name counts, and the statuses of one name on one commit are a lane,
//! so an older one is sent before a newer one. One that arrives after it all the same is set right by [`RepeatStatus`].

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{ATTEMPTS_WHILE_AWAY, RepeatStatus, patient, write_permit};
use crate::context::Ctx;
use crate::model::{CommandId, CommitSha, CommitStatus, RepoId};
use crate::queue::{Attempt, Job, JobError};
use crate::store::PendingStatus;
use crate::vcs::Installation;

/// A status to set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetStatus {
    /// In which repository.
    pub repo: RepoId,
    /// Through which installation of the forge's app.
    pub installation: Installation,
    /// On which commit.
    pub commit: CommitSha,
    /// What.
    pub status: CommitStatus,
    /// The command that is to end a status which is pending; `None`: it may stay as it is.
    #[serde(default)]
    pub promised: Option<CommandId>,
}

impl SetStatus {
    /// The lane of a status of a commit.
    pub fn lane_of(repo: &RepoId, commit: &CommitSha, context: &str) -> String {
        format!("status:{repo}@{commit}:{context}")
    }

    /// What is pending now and must not stay so.
    async fn note(&self, ctx: &Ctx) -> Result<(), sqlx::Error> {
        let context = self.status.context.as_str();
        let Some(command) = self.promised else {
            return ctx
                .store
                .status_settle(&self.repo, &self.commit, context)
                .await;
        };
        let (repo, head, context) = (self.repo.clone(), self.commit.clone(), context.to_owned());
        let status = PendingStatus {
            repo,
            head,
            context,
            command,
            installation: self.installation,
        };
        ctx.store.status_promise(&status).await
    }
}

#[async_trait]
impl Job<Ctx> for SetStatus {
    const KIND: &'static str = "set_status";
    /// Comments first: people wait for them, and where writes are spaced many statuses take their time.
    const PRIORITY: i64 = 28;
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_AWAY;

    fn lane(&self) -> String {
        Self::lane_of(&self.repo, &self.commit, self.status.context.as_str())
    }

    async fn run(&self, ctx: &Ctx, attempt: &Attempt) -> Result<(), JobError> {
        // An older status must not come after a newer one, not even from a replica that was paused here.
        let permit = write_permit(ctx);
        let set = ctx
            .forge
            .status_set(
                &self.repo,
                self.installation,
                &self.commit,
                &self.status,
                &permit,
            )
            .await;
        set.map_err(|error| patient(error.into(), attempt))?;
        self.note(ctx).await?;
        if attempt.lease.attempt > 1 {
            let repeat = RepeatStatus {
                statuses: self.lane(),
                since: attempt.lease.id,
                looks: 0,
            };
            if let Some(job) = repeat.at_its_time(ctx) {
                ctx.store.job_push(&job).await?;
            }
        }
        Ok(())
    }

    async fn gave_up(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(repo = %self.repo, context = %self.status.context, error = error.message(), "A status could not be set");
        Ok(())
    }
}
