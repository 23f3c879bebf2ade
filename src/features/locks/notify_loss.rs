//! Notifies a pull that somebody took a lock from it.
//!
//! A second run is harmless: the comment has the marker of the notice, and is searched for before it is posted again.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::Ctx;
use crate::features::locks;
use crate::kit::jobs::ATTEMPTS_WHILE_AWAY;
use crate::model::{CommandId, PullRef};
use crate::queue::{Job, JobError, RunningJob};
use crate::render::LostLock;

/// A lock that a pull lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotifyLockLoss {
    /// Pull that lost the lock.
    pub pull: PullRef,
    /// Identifier of the notice, in the form of a command's identifier.
    pub notice: CommandId,
    /// Description of the loss.
    pub lost: LostLock,
    /// Time of the loss.
    pub since: DateTime<Utc>,
}

#[async_trait]
impl Job<Ctx> for NotifyLockLoss {
    const KIND: &'static str = "tell_loss";
    const PRIORITY: i64 = 30;
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_AWAY;

    /// Returns the lane of the pull's comments, so that they stay in order.
    fn lane(&self) -> String {
        format!("comments:{}", self.pull)
    }

    async fn run(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<(), JobError> {
        for post in locks::loss(ctx, self) {
            post.run(ctx, attempt).await?;
        }
        Ok(())
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(pull = %self.pull, error = error.message(), "Could not notify a pull request of the loss of a lock");
        Ok(())
    }
}
