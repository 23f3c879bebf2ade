//! Passes on the news of other replicas (`store::news`). It wakes workers, viewers, commands that are to stop and the
//! reconcilers of mirrors and of the registry. All of them also look on their own timers, only later, so lost news do no harm.

use crate::context::ServerCtx;
use crate::features::planning;
use crate::store::{News, NewsOutcome};

/// Passes on news until the connection is lost. Returns `false` if no other replica can send news.
pub(super) async fn listen(ctx: &ServerCtx) -> anyhow::Result<bool> {
    let Some(mut listener) = ctx.store.listen().await? else {
        return Ok(false);
    };
    // News from before the connection are lost, so everybody looks once.
    ctx.wake_up.send();
    ctx.mirror_wake_up.send();
    ctx.registry_wake_up.send();
    loop {
        match listener.next().await? {
            NewsOutcome::News(News::Jobs) => ctx.wake_up.send(),
            NewsOutcome::News(News::Mirrors) => ctx.mirror_wake_up.send(),
            NewsOutcome::News(News::Registry) => ctx.registry_wake_up.send(),
            NewsOutcome::Missed => {
                ctx.wake_up.send();
                ctx.mirror_wake_up.send();
                ctx.registry_wake_up.send();
            }
            NewsOutcome::News(News::Run(run)) => ctx.runs.hub.announce(run),
            NewsOutcome::News(News::Stops) => planning::stop_cancelled(ctx).await.map(drop)?,
        }
    }
}
