//! Commands of this server that another one asks to stop.

use super::Found;
use crate::context::Ctx;

/// Tells them.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    let asked = ctx.store.command_list_stopping().await?;
    let told = ctx.stops.stop(&asked);
    Ok(Found {
        looked_at: asked.len() as u64,
        repaired: told,
    })
}
