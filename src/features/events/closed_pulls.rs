//! Releases locks of pull requests that are closed on the forge or do not exist any more (P7).

use std::time::Duration;

use chrono::TimeDelta;
use tracing::warn;

use super::missed::follow;
use super::{close_pull, gone};
use crate::context::Ctx;
use crate::features::renames;
use crate::forges::ForgeError;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::{Actor, Origin, PullRef, PullState};
use crate::store::Absence;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
        "closed_pulls",
        "Releases the locks of closed pull requests if their close event was missed or a server died while handling \
         it. Also releases the locks of deleted pull requests and repositories.",
        Duration::from_mins(5),
        |ctx| Box::pin(tick(ctx)),
    )
    .looking_at_start();

/// Time within which a listing counts as recent. It is longer than a rate limit window of the forge, for which the
/// lists may have to wait.
const LISTED_LATELY: TimeDelta = TimeDelta::hours(2);

/// Closes pull requests that hold locks, or wait for them, although they are closed on the forge: the close event was
/// missed, or the replica died while handling it. Pull requests in recently listed repositories are left to `missed`,
/// which costs less. An error at one pull request does not stop the others. An error that only concerns its
/// repository, and not the forge or the database, does not fail the tick either.
async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    // A server that has just started checks all of them: it may have received a close event that it did not finish.
    let listed_since = ctx.started_at.max(ctx.clock.now() - LISTED_LATELY);
    let pulls = ctx.store.pull_list_unseen(listed_since).await?;
    let (mut found, mut failures) = (
        TickResult {
            looked_at: pulls.len() as u64,
            repaired: 0,
        },
        Vec::new(),
    );
    for at in pulls {
        match check_pull(ctx, &at).await {
            Ok(closed) => found.repaired += closed,
            Err(error) => {
                warn!(pull = %at, error = format!("{error:#}"), "Cannot clean up after a pull request that holds locks");
                if !is_of_repository(&error) {
                    failures.push(error.context(format!("{at} could not be checked")));
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

/// Returns true if the forge refuses requests for one repository only.
fn is_of_repository(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            ForgeError::Denied { .. }
                | ForgeError::NotConfigured { .. }
                | ForgeError::Rejected { .. }
                | ForgeError::NotFound { .. }
                | ForgeError::Moved { .. }
        )
    )
}

/// Checks one pull request. Returns how many pull requests hold nothing any more because of that.
async fn check_pull(ctx: &Ctx, at: &PullRef) -> anyhow::Result<u64> {
    let pull = match ctx.forges.of(&at.repo)?.pull(at).await {
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
    if !renames::is_settled(ctx, &pull, None)
        .await
        .map_err(failed)?
    {
        return Ok(0);
    }
    if pull.state != PullState::Open {
        close_pull(ctx, &pull, &Actor::lockkeeper(Origin::Reconciler))
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
