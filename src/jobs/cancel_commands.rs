//! Carries out one `cancel`, beside the lane of its pull: it must not wait for what it is to stop.
//!
//! A second run is harmless: what was cancelled and the answer are one transaction.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::Ctx;
use crate::handlers::commands;
use crate::model::{CommandId, PullRef};
use crate::queue::{Attempt, Job, JobError};

/// A `cancel` to carry out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CancelCommands {
    /// The row.
    pub command: CommandId,
    /// The pull.
    pub pull: PullRef,
}

#[async_trait]
impl Job<Ctx> for CancelCommands {
    const KIND: &'static str = "cancel_commands";
    /// Before what is to be posted, after what came in: the comment that asks is among that.
    const PRIORITY: i64 = 35;
    const MAX_ATTEMPTS: i64 = 20;

    fn lane(&self) -> String {
        format!("cancel:{}", self.pull)
    }

    async fn run(&self, ctx: &Ctx, attempt: &Attempt) -> Result<(), JobError> {
        commands::run(ctx, self.command, attempt).await
    }

    async fn gave_up(&self, ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        commands::give_up(ctx, self.command, error).await
    }
}
