//! Works on one command in the lane of its pull.
//!
//! A second run is harmless: a finished command is left alone, a plan is made anew, and an apply that had begun is
//! reported as interrupted instead of being run again (P3).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::Ctx;
use crate::handlers::commands;
use crate::model::{CommandId, PullRef};
use crate::queue::{Attempt, Job, JobError};

/// A command to work on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunCommand {
    /// The row.
    pub command: CommandId,
    /// The pull, whose commands run one at a time.
    pub pull: PullRef,
}

impl RunCommand {
    /// The lane of everything that works on a pull.
    pub fn lane_of(pull: &PullRef) -> String {
        format!("pull:{pull}")
    }
}

#[async_trait]
impl Job<Ctx> for RunCommand {
    const KIND: &'static str = "run_command";
    const PRIORITY: i64 = 10;
    /// An hour; what is tried less often says so itself.
    const MAX_ATTEMPTS: i64 = 20;

    fn lane(&self) -> String {
        Self::lane_of(&self.pull)
    }

    async fn run(&self, ctx: &Ctx, attempt: &Attempt) -> Result<(), JobError> {
        commands::run(ctx, self.command, attempt).await
    }

    async fn gave_up(&self, ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        commands::give_up(ctx, self.command, error).await
    }
}
