//! Removes expired apply locks.

use std::time::Duration;

use tracing::info;

use crate::context::Ctx;
use crate::kit::reconcile::{Reconciler, TickResult};

/// Reconciler of expired apply locks. They stop nothing any more, so only lists and the audit log wait for it.
pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "apply_locks",
    "Removes expired apply locks, and records that in the audit log.",
    Duration::from_secs(30),
    |ctx| Box::pin(tick(ctx)),
);

async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    let ended = ctx.store.apply_lock_expire().await?;
    for lock in &ended {
        info!(scope = %lock.scope, holder = lock.holder.login, "An apply lock expired");
    }
    Ok(TickResult::repaired(u64::try_from(ended.len())?))
}
