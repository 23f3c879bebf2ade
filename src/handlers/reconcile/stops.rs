//! Stops commands of this server that people cancelled on another server.

use super::TickResult;
use crate::context::Ctx;

/// Stops the cancelled commands of this server.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    let asked = ctx.store.command_list_stopping().await?;
    let told = ctx.stops.stop(&asked);
    Ok(TickResult {
        looked_at: asked.len() as u64,
        repaired: told,
    })
}
