//! Recovers jobs and leases that a dead server left.

use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::queue;
use std::time::Duration;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "orphans",
    "Puts the work of lost servers back into the queue, and ends their other claims.",
    Duration::from_secs(15),
    |ctx| Box::pin(tick(ctx)),
)
.on_every_replica()
.renewing_first();

/// Puts the jobs of dead servers back into the queue, and ends their other leases.
async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    Ok(TickResult::repaired(
        queue::requeue_orphans(&ctx.store, &*ctx.clock, &ctx.wake_up).await?,
    ))
}
