//! Carries out actions of people on the pages and through the API.

use crate::context::Ctx;
use crate::handlers::{commands, locks, reply};
use crate::jobs::{NotifyLockLoss, PostComment};
use crate::locks::{HandOver, HandOverOutcome};
use crate::model::{Actor, CommandId, CommandKind};
use crate::render::Body;
use crate::store::Cancelled;

/// Takes a lock from its pull request, and stops the running plans that this interrupts.
pub async fn give_lock(ctx: &Ctx, giving: &HandOver) -> Result<HandOverOutcome, sqlx::Error> {
    let gave = locks::give(
        &ctx.store,
        giving,
        CommandId::next(&*ctx.ids),
        ctx.clock.now(),
    )
    .await?;
    if let HandOverOutcome::Done(given) = &gave {
        ctx.stops.stop(&given.interrupted);
    }
    ctx.nudge.nudge();
    Ok(gave)
}

/// Cancels a command, or with `force` also a running apply. The reply of the command itself appears on the pull
/// request.
pub async fn cancel_command(
    ctx: &Ctx,
    id: CommandId,
    who: &Actor,
    force: bool,
) -> Result<Cancelled, sqlx::Error> {
    commands::cancel_one(ctx, id, who, force).await
}

/// Builds the comments for a pull request that lost a lock.
pub fn loss(ctx: &Ctx, told: &NotifyLockLoss) -> Vec<PostComment> {
    let report = reply::notice(
        ctx,
        CommandKind::Unlock,
        told.notice,
        &told.pull,
        Body::LockLost(told.lost.clone()),
    );
    reply::posts(ctx, &report, &told.pull, told.since)
}
