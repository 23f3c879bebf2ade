//! Recovers jobs and leases that a dead server left.

use super::Found;
use crate::context::Ctx;
use crate::queue;

/// Puts the jobs of dead servers back into the queue, and ends their other leases.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    Ok(Found::repaired(
        queue::requeue_orphans(&ctx.store, &*ctx.clock, &ctx.nudge).await?,
    ))
}
