//! Removes the checkouts that a closed pull left on this disk.
//!
//! The job runs in the lane of the pull, so a run never loses its checkout. A second run finds nothing.

use anyhow::Context;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::Ctx;
use crate::features::planning::RunCommand;
use crate::model::PullRef;
use crate::queue::{Job, JobError, RunningJob};

/// A pull to clean up after.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CleanPull {
    /// Pull that was closed.
    pub pull: PullRef,
}

#[async_trait]
impl Job<Ctx> for CleanPull {
    const KIND: &'static str = "clean_pull";
    const PRIORITY: i64 = 0;
    const MAX_ATTEMPTS: i64 = 10;

    fn lane(&self) -> String {
        RunCommand::lane_of(&self.pull)
    }

    async fn run(&self, ctx: &Ctx, _attempt: &RunningJob) -> Result<(), JobError> {
        let removed = ctx.checkouts.remove_pull(&self.pull).await;
        removed
            .context("cannot remove the checkouts of a closed pull request")
            .map_err(|error| JobError::Retry { at: None, error })
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(pull = %self.pull, error = error.message(), "Could not remove the checkouts of a closed pull request");
        Ok(())
    }
}
