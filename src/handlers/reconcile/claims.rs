//! Claims that nothing refers to.

use tracing::info;

use super::Found;
use crate::claims::{Collection, collect};
use crate::context::Ctx;

/// Removes them: each keeps other owners from its repository.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    let Collection { unused, removed } = collect(&ctx.store).await?;
    if removed > 0 {
        info!(unused, removed, "Removed claims that nothing referred to");
    }
    Ok(Found {
        looked_at: unused,
        repaired: removed,
    })
}
