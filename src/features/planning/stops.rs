//! Stops commands of this server that people cancelled on another server.

use crate::context::Ctx;
use crate::kit::reconcile::{Reconciler, TickResult};
use std::time::Duration;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "stops",
    "Stops commands of this server that were cancelled on another server.",
    Duration::from_secs(2),
    |ctx| Box::pin(tick(ctx)),
)
.on_every_replica();

/// Stops the cancelled commands of this server.
pub(crate) async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    let asked = ctx.store.command_list_stopping().await?;
    let told = ctx.stops.stop(&asked);
    Ok(TickResult {
        looked_at: asked.len() as u64,
        repaired: told,
    })
}
