//! Locks of pulls that the forge says are closed, or does not have any more (P7).

use chrono::TimeDelta;
use tracing::warn;

use super::missed::follow;
use super::{Found, gone};
use crate::context::Ctx;
use crate::handlers::events::close_pull;
use crate::handlers::identity::{self, Asker};
use crate::model::{Actor, Origin, PullRef, PullState};
use crate::store::Absence;
use crate::vcs::ForgeError;

/// Longer than a window of the forge's requests, in which the lists may have to wait.
const LISTED_LATELY: TimeDelta = TimeDelta::hours(2);

/// Closes pulls that hold locks, or wait for them, although the forge says they are closed: the close event was missed,
/// or the replica died over it. Those that `missed` finds in the lists of open pulls, which cost less, are left to it. One
/// that cannot be looked at keeps nobody from the others; where that is for its repository, and not for the forge or the
/// database, it is no failure of the repair either.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    // A server that has just started asks about all: it may have been told of a close that it did not live to note.
    let listed_since = ctx.started_at.max(ctx.clock.now() - LISTED_LATELY);
    let pulls = ctx.store.pull_list_unseen(listed_since).await?;
    let (mut found, mut failures) = (
        Found {
            looked_at: pulls.len() as u64,
            repaired: 0,
        },
        Vec::new(),
    );
    for at in pulls {
        match look_at(ctx, &at).await {
            Ok(closed) => found.repaired += closed,
            Err(error) => {
                warn!(pull = %at, error = format!("{error:#}"), "Cannot clean up after a pull request that holds locks");
                if !is_of_repository(&error) {
                    failures.push(error.context(format!("{at} could not be looked after")));
                }
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

/// Whether it is about one repository that something cannot be looked at: the forge refuses it there.
fn is_of_repository(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            ForgeError::Denied { .. }
                | ForgeError::Rejected { .. }
                | ForgeError::NotFound { .. }
                | ForgeError::Moved { .. }
        )
    )
}

/// Says how many pulls hold nothing any more because of what was found.
async fn look_at(ctx: &Ctx, at: &PullRef) -> anyhow::Result<u64> {
    let pull = match ctx.forge.pull(at, None).await {
        Ok(pull) => pull,
        Err(ForgeError::NotFound { .. }) => return gone::pull(ctx, at).await,
        Err(ForgeError::Moved { repo, .. }) => {
            follow(ctx, &repo).await;
            return Ok(0);
        }
        Err(error) => return Err(error.into()),
    };
    ctx.store.absence_forget(Absence::Pull(at)).await?;
    ctx.store.absence_forget(Absence::Repo(&at.repo)).await?;
    let failed = |error: crate::queue::JobError| anyhow::anyhow!(error.message());
    if !identity::is_settled(ctx, &pull, Asker::default())
        .await
        .map_err(failed)?
    {
        return Ok(0);
    }
    if pull.state != PullState::Open {
        close_pull(ctx, &pull, None, &Actor::lockkeeper(Origin::Reconciler))
            .await
            .map_err(failed)?;
        return Ok(1);
    }
    if pull.archived {
        gone::archived(ctx, &at.repo).await
    } else {
        Ok(0)
    }
}
