//! Recovers jobs and leases that a dead server left.

use super::TickResult;
use crate::context::Ctx;
use crate::queue;

/// Puts the jobs of dead servers back into the queue, and ends their other leases.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    Ok(TickResult::repaired(
        queue::requeue_orphans(&ctx.store, &*ctx.clock, &ctx.nudge).await?,
    ))
}
