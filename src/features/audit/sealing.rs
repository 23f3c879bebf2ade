//! Adds new events of the audit log to its chain.

use std::time::Duration;

use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::locks::seal_log;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "audit_seal",
    "Adds new events of the audit log to its chain, and signs a checkpoint.",
    Duration::from_secs(10),
    |ctx| Box::pin(tick(ctx)),
);

/// Seals all events that wait for it. The result has no fixes, because nothing was wrong.
async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let looked_at = seal_log(&ctx.store, &ctx.server.audit).await?;
    Ok(TickResult {
        looked_at,
        repaired: 0,
    })
}
