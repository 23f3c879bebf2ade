//! Takes a lock from its pull request on a running server, and builds the comment for the pull request that lost it.

use super::{NotifyLockLoss, hand_over};
use crate::context::Ctx;
use crate::features::replies::{self, PostComment};
use crate::locks::{HandOver, HandOverOutcome};
use crate::model::{CommandId, CommandKind};
use crate::render::Body;

/// Takes a lock from its pull request, and stops the running plans that this interrupts.
pub async fn hand_over_on_server(
    ctx: &Ctx,
    giving: &HandOver,
) -> Result<HandOverOutcome, sqlx::Error> {
    let outcome = hand_over(
        &ctx.store,
        giving,
        CommandId::next(&*ctx.ids),
        ctx.clock.now(),
    )
    .await?;
    if let HandOverOutcome::Done(given) = &outcome {
        ctx.stops.stop(&given.interrupted);
    }
    ctx.wake_up.send();
    Ok(outcome)
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
