//! Takes a lock from its pull request on a running server, and builds the comment for the pull request that lost it.

use super::{NotifyLockLoss, give};
use crate::context::Ctx;
use crate::features::replies::{self, PostComment};
use crate::locks::{HandOver, HandOverOutcome};
use crate::model::{CommandId, CommandKind};
use crate::render::Body;

/// Takes a lock from its pull request, and stops the running plans that this interrupts.
pub async fn give_lock(ctx: &Ctx, giving: &HandOver) -> Result<HandOverOutcome, sqlx::Error> {
    let gave = give(
        &ctx.store,
        giving,
        CommandId::next(&*ctx.ids),
        ctx.clock.now(),
    )
    .await?;
    if let HandOverOutcome::Done(given) = &gave {
        ctx.stops.stop(&given.interrupted);
    }
    ctx.wake_up.send();
    Ok(gave)
}

/// Builds the comments for a pull request that lost a lock.
pub fn loss(ctx: &Ctx, told: &NotifyLockLoss) -> Vec<PostComment> {
    let report = replies::notice(
        ctx,
        CommandKind::Unlock,
        told.notice,
        &told.pull,
        Body::LockLost(told.lost.clone()),
    );
    replies::posts(ctx, &report, &told.pull, told.since)
}
