//! Plans for a pull that was handed a lock it waited for.
//!
//! The store queues the job with the hand-over. The rows of the locks say what was handed over, so a second run finds
//! nothing to do.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::RunCtx;
use crate::features::planning;
use crate::model::PullRef;
use crate::queue::{Job, JobError, RunningJob};
use crate::store::TAKE_TURN;

/// A pull whose turn has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfferLock {
    /// Pull that got the lock.
    pub pull: PullRef,
}

#[async_trait]
impl Job<RunCtx> for OfferLock {
    const KIND: &'static str = TAKE_TURN;
    const PRIORITY: i64 = 20;
    /// The job uses nothing but the database.
    const MAX_ATTEMPTS: i64 = 100;

    fn lane(&self) -> String {
        format!("turn:{}", self.pull)
    }

    async fn run(&self, ctx: &RunCtx, _attempt: &RunningJob) -> Result<(), JobError> {
        planning::begin_turn(ctx, &self.pull).await
    }

    /// Hands the locks over to the next pull, because this one would not plan under them.
    async fn report_failure(&self, ctx: &RunCtx, error: &JobError) -> anyhow::Result<()> {
        planning::give_up_turn(ctx, &self.pull, &error.message()).await
    }
}
