//! Works on one command in the lane of its pull.
//!
//! A second run is harmless: a finished command is left alone, and a plan is made again. An apply, an import or a
//! `state rm` that had begun is reported as interrupted and does not run again (P3).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::RunCtx;
use crate::features::planning;
use crate::model::{CommandId, CommandKind, PullRef};
use crate::queue::{Job, JobError, RunningJob};
use crate::store::answers_share;

/// A command to work on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunCommand {
    /// Row of the command.
    pub command: CommandId,
    /// Pull of the command. Its commands run one at a time.
    pub pull: PullRef,
    /// Kind of the command, which decides the priority.
    pub kind: CommandKind,
}

impl RunCommand {
    /// Priority of commands that are answered at once. They wait neither for a permit of the pool of runs nor for a
    /// mirror, and have their own workers.
    pub const AT_ONCE: i64 = Self::PRIORITY + 5;

    /// Returns the lane of all work on a pull.
    pub fn lane_of(pull: &PullRef) -> String {
        format!("pull:{pull}")
    }
}

#[async_trait]
impl Job<RunCtx> for RunCommand {
    const KIND: &'static str = "run_command";
    const PRIORITY: i64 = 10;
    /// An hour. Work with fewer retries limits them itself.
    const MAX_ATTEMPTS: i64 = 20;
    /// A plan is made again three times. After that, somebody should know.
    const MAX_CUT_OFFS: i64 = 3;

    fn lane(&self) -> String {
        Self::lane_of(&self.pull)
    }

    /// Returns a higher priority for work that somebody waits for. The order is: instant commands, changes,
    /// explanations, plans by comment, and plans after a push.
    fn priority(&self) -> i64 {
        match self.kind {
            CommandKind::Unlock
            | CommandKind::Cancel
            | CommandKind::Version
            | CommandKind::Help => Self::AT_ONCE,
            CommandKind::Apply | CommandKind::Import | CommandKind::StateRm => Self::PRIORITY + 4,
            CommandKind::Explain | CommandKind::ApprovePolicies => Self::PRIORITY + 3,
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

    async fn run(&self, ctx: &RunCtx, attempt: &RunningJob) -> Result<(), JobError> {
        planning::run(ctx, self.command, attempt).await
    }

    async fn report_failure(&self, ctx: &RunCtx, error: &JobError) -> anyhow::Result<()> {
        planning::give_up(ctx, self.command, error).await
    }
}
