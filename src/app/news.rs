//! Passes on what other replicas tell (`store::news`): it wakes workers, viewers, commands that are to stop
//! and the repair of mirrors. All of
//! them look by themselves as well, only later, so news that are lost do no harm.

use crate::context::Ctx;
use crate::handlers::reconcile;
use crate::store::{Heard, News};

/// Passes on news until the connection is lost; `false` when there is nobody to hear from.
pub(super) async fn listen(ctx: &Ctx) -> anyhow::Result<bool> {
    let Some(mut listener) = ctx.store.listen().await? else {
        return Ok(false);
    };
    // Whatever happened before we listened.
    ctx.nudge.nudge();
    ctx.mirror_nudge.nudge();
    loop {
        match listener.next().await? {
            Heard::News(News::Jobs) => ctx.nudge.nudge(),
            Heard::News(News::Mirrors) => ctx.mirror_nudge.nudge(),
            Heard::Missed => {
                ctx.nudge.nudge();
                ctx.mirror_nudge.nudge();
            }
            Heard::News(News::Run(run)) => ctx.hub.announce(run),
            Heard::News(News::Stops) => reconcile::stops(ctx).await?,
        }
    }
}
