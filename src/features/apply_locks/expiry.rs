//! Removes apply locks whose time is over.

use std::time::Duration;

use tracing::info;

use crate::context::Ctx;
use crate::handlers::reconcile::{Found, Reconciler};

/// They stop nothing any more; only lists and the audit log wait for it.
pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "apply_locks",
    "Removes apply locks whose time is over, and puts that on record.",
    Duration::from_secs(30),
    |ctx| Box::pin(tick(ctx)),
);

async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    let ended = ctx.store.apply_lock_expire().await?;
    for lock in &ended {
        info!(scope = %lock.scope, holder = lock.holder, "The time of an apply lock ended");
    }
    Ok(Found::repaired(u64::try_from(ended.len())?))
}
