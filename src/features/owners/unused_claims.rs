//! Removes claims that no application and no credential refers to.

use tracing::info;

use crate::claims::{Collection, collect};
use crate::config::server::Periods;
use crate::context::Ctx;
use crate::kit::reconcile::{Reconciler, TickResult};

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "claims",
    "Removes claims on repositories that neither an application nor a credential refers to.",
    Periods::DEFAULT.claims,
    |ctx| Box::pin(tick(ctx)),
)
.set_by(|periods| periods.claims);

/// Removes the unused claims, because each keeps other owners from its repository.
async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    let Collection { unused, removed } = collect(&ctx.store).await?;
    if removed > 0 {
        info!(unused, removed, "Removed claims that nothing referred to");
    }
    Ok(TickResult {
        looked_at: unused,
        repaired: removed,
    })
}
