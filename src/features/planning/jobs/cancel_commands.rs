//! Carries out one `cancel`, outside the lane of its pull, because it must not wait for the commands that it stops.
//!
//! A second run is harmless: one transaction cancels the commands and stores the reply.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::RunCtx;
use crate::features::planning;
use crate::model::{CommandId, PullRef};
use crate::queue::{Job, JobError, RunningJob};

/// A `cancel` to carry out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CancelCommands {
    /// Row of the command.
    pub command: CommandId,
    /// Pull whose commands are cancelled.
    pub pull: PullRef,
}

#[async_trait]
impl Job<RunCtx> for CancelCommands {
    const KIND: &'static str = "cancel_commands";
    /// Before comments and statuses, and after deliveries: one of those carries the request to cancel.
    const PRIORITY: i64 = 35;
    const MAX_ATTEMPTS: i64 = 20;

    fn lane(&self) -> String {
        format!("cancel:{}", self.pull)
    }

    async fn run(&self, ctx: &RunCtx, attempt: &RunningJob) -> Result<(), JobError> {
        planning::run(ctx, self.command, attempt).await
    }

    async fn report_failure(&self, ctx: &RunCtx, error: &JobError) -> anyhow::Result<()> {
        planning::give_up(ctx, self.command, error).await
    }
}
