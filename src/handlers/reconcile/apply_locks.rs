//! Apply locks whose time is over.

use tracing::info;

use super::Found;
use crate::context::Ctx;

/// Removes those whose time is over, which stop nothing any more, and puts that on record.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    let ended = ctx.store.apply_lock_expire().await?;
    for lock in &ended {
        info!(scope = %lock.scope, holder = lock.holder, "The time of an apply lock ended");
    }
    Ok(Found::repaired(u64::try_from(ended.len())?))
}
