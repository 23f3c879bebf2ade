//! Work and claims that a dead server left.

use super::Found;
use crate::context::Ctx;
use crate::queue;

/// Puts jobs back into the queue whose server is gone, and ends its other leases.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    Ok(Found::repaired(
        queue::requeue_orphans(&ctx.store, &*ctx.clock, &ctx.nudge).await?,
    ))
}
