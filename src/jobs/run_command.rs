//! Works on one command in the lane of its pull.
//!
//! A second run is harmless: a finished command is left alone, a plan is made anew, and an apply, an import or a `state rm`
//! that had begun is reported as interrupted instead of being run again (P3).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::Ctx;
use crate::handlers::commands;
use crate::model::{CommandId, CommandKind, PullRef};
use crate::queue::{Attempt, Job, JobError};

/// A command to work on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunCommand {
    /// The row.
    pub command: CommandId,
    /// The pull, whose commands run one at a time.
    pub pull: PullRef,
    /// What is asked for; decides who goes first.
    pub kind: CommandKind,
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
    /// A plan is made again three times; then somebody should hear of it.
    const MAX_CUT_OFFS: i64 = 3;

    fn lane(&self) -> String {
        Self::lane_of(&self.pull)
    }

    /// What somebody waits for goes first: what changes something, short answers, a plan by comment, a plan after a push.
    fn priority(&self) -> i64 {
        let urgency = match self.kind {
            CommandKind::Apply | CommandKind::Import | CommandKind::StateRm => 4,
            CommandKind::Unlock
            | CommandKind::Cancel
            | CommandKind::Explain
            | CommandKind::Version
            | CommandKind::Help => 3,
            CommandKind::Plan => 2,
            CommandKind::Autoplan => 1,
        };
        Self::PRIORITY + urgency
    }

    fn share(&self) -> String {
        self.pull.repo.to_string()
    }

    async fn run(&self, ctx: &Ctx, attempt: &Attempt) -> Result<(), JobError> {
        commands::run(ctx, self.command, attempt).await
    }

    async fn gave_up(&self, ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        commands::give_up(ctx, self.command, error).await
    }
}
