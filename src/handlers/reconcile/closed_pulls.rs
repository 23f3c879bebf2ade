//! Locks of pulls that the forge says are closed (P7).

use chrono::TimeDelta;
use tracing::warn;

use super::Found;
use crate::context::Ctx;
use crate::handlers::events::close_pull;
use crate::model::{Actor, Origin, PullRef, PullState};

/// Longer than a window of the forge's requests, in which the lists may have to wait.
const LISTED_LATELY: TimeDelta = TimeDelta::hours(2);

/// Closes pulls that hold locks, or wait for them, although the forge says they are closed: the close event was missed,
/// or the replica died over it. Those that `missed` finds in the lists of open pulls, which cost less, are left to it. One
/// that cannot be looked at keeps nobody from the others.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    // A server that has just started asks about all: it may have been told of a close that it did not live to note.
    let listed_since = ctx.started_at.max(ctx.clock.now() - LISTED_LATELY);
    let pulls = ctx.store.pull_list_unseen(listed_since).await?;
    let (mut found, mut failures) = (Found { looked_at: pulls.len() as u64, repaired: 0 }, Vec::new());
    for at in pulls {
        match close_if_closed(ctx, &at).await {
            Ok(closed) => found.repaired += u64::from(closed),
            Err(error) => {
                warn!(pull = %at, error = format!("{error:#}"), "Cannot clean up after a pull request that holds locks");
                failures.push(error.context(format!("{at} could not be looked after")));
            }
        }
    }
    let others = failures.len().saturating_sub(1);
    match failures.into_iter().next() {
        None => Ok(found),
        Some(first) if others == 0 => Err(first),
        Some(first) => Err(first.context(format!("{others} more pull requests failed as well"))),
    }
}

async fn close_if_closed(ctx: &Ctx, at: &PullRef) -> anyhow::Result<bool> {
    let pull = ctx.forge.pull(at, None).await?;
    if pull.state == PullState::Open {
        return Ok(false);
    }
    let closed = close_pull(ctx, &pull, None, &Actor::lockkeeper(Origin::Reconciler)).await;
    closed.map_err(|error| anyhow::anyhow!(error.message()))?;
    Ok(true)
}
