//! What people do on the pages.

use crate::context::Ctx;
use crate::handlers::{commands, reply};
use crate::model::{Actor, Cause, CommandId, CommandKind, Lock, LockEventKind, LockId, Origin};
use crate::render::{Body, Released};
use crate::store::{Cancelled, NewJob};

/// Gives a lock back and discards the plans made under it; the pull that held it is told. `None`: it is not held any
/// more, or an apply is running under it.
pub async fn discard_lock(ctx: &Ctx, id: LockId, who: &str) -> Result<Option<Lock>, sqlx::Error> {
    let actor = Actor { login: who.to_owned(), origin: Origin::Page };
    let cause = Cause::new(actor, "discarded on the dashboard");
    let freed = ctx.store.lock_discard(id, LockEventKind::Stolen, &cause, |lock| notice(ctx, lock, who)).await?;
    ctx.nudge.nudge();
    Ok(freed)
}

/// Cancels a command; an apply under way only with `force`. The pull hears of it by the command's own comment.
pub async fn cancel_command(ctx: &Ctx, id: CommandId, who: &str, force: bool) -> Result<Cancelled, sqlx::Error> {
    let who = Actor { login: who.to_owned(), origin: Origin::Page };
    commands::cancel_one(ctx, id, &who, force).await
}

fn notice(ctx: &Ctx, lock: &Lock, who: &str) -> Vec<NewJob> {
    let released = Released::lock_and_plan(lock.project.clone());
    let body = Body::LockDiscarded { by: who.to_owned(), released };
    let report = reply::notice(ctx, CommandKind::Unlock, CommandId::next(&*ctx.ids), &lock.pull, body);
    reply::comments(ctx, &report, &lock.pull, None, ctx.clock.now())
}
