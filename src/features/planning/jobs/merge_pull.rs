//! Merges a pull after its apply (`automerge`). The job runs in the lane of the pull, so that no plan or apply of it
//! is under way.
//!
//! A second run is harmless: a merged pull is left alone, and the forge merges at the named commit only. The comment
//! with the reason of a refused merge is searched for before it is posted again.

use anyhow::anyhow;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::RunCtx;
use crate::errors::describe_error;
use crate::features::planning::{self, MergeResult, RunCommand};
use crate::forges::ForgeError;
use crate::kit::jobs::{ATTEMPTS_WHILE_REFUSED, write_permit};
use crate::model::{CommandId, CommitSha, MergeMethod, PullRef};
use crate::queue::{Job, JobError, RunningJob};
use crate::render::UserText;
use crate::workflow::CheckoutError;

/// A pull to merge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MergePull {
    /// Pull that is merged.
    pub pull: PullRef,
    /// Apply that caused the merge.
    pub command: CommandId,
    /// Commit that was applied.
    pub head: CommitSha,
    /// Merge method that the apply named.
    pub method: Option<MergeMethod>,
    /// Number of requests that the forge refused.
    #[serde(default)]
    pub refused: usize,
    /// Identifier of the comment that says why the pull is not merged, in the form of a command's identifier.
    pub notice: CommandId,
    /// Earliest time of that comment.
    pub since: DateTime<Utc>,
}

#[async_trait]
impl Job<RunCtx> for MergePull {
    const KIND: &'static str = "merge_pull";
    /// After comments and statuses, because the branch may require one of those statuses.
    const PRIORITY: i64 = 6;
    /// An hour: nobody expects a merge much later than the apply.
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_REFUSED;

    fn lane(&self) -> String {
        RunCommand::lane_of(&self.pull)
    }

    async fn run(&self, ctx: &RunCtx, attempt: &RunningJob) -> Result<(), JobError> {
        let row = ctx.store.command_get(self.command).await?;
        let row = row.ok_or_else(|| {
            JobError::Fail(anyhow!("the command {} does not exist", self.command))
        })?;
        match planning::merge(ctx, self, &row, attempt, &write_permit(ctx)).await? {
            MergeResult::Done => {}
            MergeResult::Again(job) => {
                ctx.store.job_push(&job).await?;
            }
            MergeResult::Refused(why) => {
                for post in planning::not_merged(ctx, self, why) {
                    post.run(ctx, attempt).await?;
                }
            }
        }
        Ok(())
    }

    async fn report_failure(&self, ctx: &RunCtx, error: &JobError) -> anyhow::Result<()> {
        warn!(pull = %self.pull, error = error.message(), "Could not merge a pull request");
        let hint = format!(
            "Comment `{} apply` to try again, or merge it manually.",
            ctx.settings.comments.executable()
        );
        let (JobError::Retry { error, .. } | JobError::Fail(error)) = error;
        // Errors of the database and the like belong only in the log, which has them.
        let of_forge = error
            .downcast_ref::<ForgeError>()
            .map(|error| format!("{error}."));
        let of_git = || {
            error
                .downcast_ref::<CheckoutError>()
                .map(|error| format!("{}.", describe_error(error)))
        };
        let message = of_forge.or_else(of_git);
        let message = message.unwrap_or_else(|| "an internal error occurred.".to_owned());
        let why = UserText::new(message, [hint]);
        for post in planning::not_merged(ctx, self, why) {
            ctx.store.job_push(&post.to_new()).await?;
        }
        Ok(())
    }
}
