//! Plans for a pull that was handed a lock it waited for. The store puts the job into the queue with the hand-over;
//! what was handed is on record with the locks, so a second run finds nothing left to do.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::context::Ctx;
use crate::handlers::commands;
use crate::model::PullRef;
use crate::queue::{Attempt, Job, JobError};
use crate::store::TAKE_TURN;

/// A pull whose turn it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeTurn {
    /// The pull.
    pub pull: PullRef,
}

#[async_trait]
impl Job<Ctx> for TakeTurn {
    const KIND: &'static str = TAKE_TURN;
    const PRIORITY: i64 = 20;
    /// Nothing but the database is asked.
    const MAX_ATTEMPTS: i64 = 100;

    fn lane(&self) -> String {
        format!("turn:{}", self.pull)
    }

    async fn run(&self, ctx: &Ctx, _attempt: &Attempt) -> Result<(), JobError> {
        commands::begin_turn(ctx, &self.pull).await
    }

    /// The locks go to whoever is next: nobody would plan under them.
    async fn gave_up(&self, ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        commands::give_up_turn(ctx, &self.pull, &error.message()).await
    }
}
