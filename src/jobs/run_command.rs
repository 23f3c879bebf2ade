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
use crate::store::answers_share;

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
    /// Priority of commands that are answered at once: they wait neither for a place in the pool of runs nor for a mirror,
    /// and have workers that no other command takes.
    pub const AT_ONCE: i64 = Self::PRIORITY + 5;

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

    /// What somebody waits for goes first: what takes no time, what changes something, an explanation, a plan by comment, a
    /// plan after a push.
    fn priority(&self) -> i64 {
        match self.kind {
            CommandKind::Unlock
            | CommandKind::Cancel
            | CommandKind::Version
            | CommandKind::Help => Self::AT_ONCE,
            CommandKind::Apply | CommandKind::Import | CommandKind::StateRm => Self::PRIORITY + 4,
            CommandKind::Explain => Self::PRIORITY + 3,
            CommandKind::Plan => Self::PRIORITY + 2,
            CommandKind::Autoplan => Self::PRIORITY + 1,
        }
    }

    fn share(&self) -> String {
        let repo = &self.pull.repo;
        if self.priority() == Self::AT_ONCE {
            answers_share(repo)
        } else {
            repo.to_string()
        }
    }

    async fn run(&self, ctx: &Ctx, attempt: &Attempt) -> Result<(), JobError> {
        commands::run(ctx, self.command, attempt).await
    }

    async fn gave_up(&self, ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        commands::give_up(ctx, self.command, error).await
    }
}
