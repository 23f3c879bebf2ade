//! Handles a pull request that was closed or merged: nothing of it stays locked (P7).

use tracing::info;

use super::{CleanPull, DeliveryEnd};
use crate::context::Ctx;
use crate::features::replies;
use crate::model::{Actor, Cause, CommandId, CommandKind, Lock, Pull, PullEvent, PullState};
use crate::queue::{Job, JobError};
use crate::render::{Body, Released, Report};
use crate::store::NewJob;

pub(super) async fn handle(
    ctx: &Ctx,
    event: &PullEvent,
    by: &Actor,
) -> Result<DeliveryEnd, JobError> {
    // The event may be late, so only the current state on the forge counts.
    let forge = ctx.forges.of(&event.pull.repo)?;
    let pull = forge.pull(&event.pull).await?;
    if pull.state == PullState::Open {
        return Ok(DeliveryEnd::ignored("the pull request is open again"));
    }
    close_pull(ctx, &pull, by).await?;
    Ok(DeliveryEnd::handled())
}

/// Releases the locks of a pull request that is not open, stops its plans, and notifies it. A second call finds
/// nothing to do.
pub(crate) async fn close_pull(ctx: &Ctx, pull: &Pull, by: &Actor) -> Result<(), JobError> {
    let outbox = |freed: &[Lock]| notices(ctx, pull, freed);
    let cause = Cause::new(by.clone(), format!("the pull request is {}", pull.state));
    let waited = ctx.store.waiter_list_of_pull(&pull.at).await?;
    let freed = ctx
        .store
        .pull_close(&pull.at, pull.state, &pull.url, &cause, outbox)
        .await?;
    let stopped = ctx
        .store
        .command_stop_plans(&pull.at, "the pull request was closed")
        .await?;
    ctx.stops.stop(&stopped);
    for waiter in &waited {
        replies::set_queued_statuses(ctx, &waiter.key).await?;
    }
    ctx.store
        .job_push(
            &CleanPull {
                pull: pull.at.clone(),
            }
            .to_new(),
        )
        .await?;
    info!(pull = %pull.at, locks = freed.len(), stopped = stopped.len(), "The pull request is closed");
    Ok(())
}

fn notices(ctx: &Ctx, pull: &Pull, freed: &[Lock]) -> Vec<NewJob> {
    if freed.is_empty() {
        return Vec::new();
    }
    let released = freed
        .iter()
        .map(|lock| Released::lock_and_plan(lock.project.clone()))
        .collect();
    let body = Body::Closed {
        merged: pull.state == PullState::Merged,
        released,
    };
    let id = CommandId::next(&*ctx.ids);
    let report = Report {
        head: Some(pull.head.clone()),
        ..replies::notice(ctx, CommandKind::Unlock, id, &pull.at, body)
    };
    replies::comment_jobs(ctx, &report, &pull.at, ctx.clock.now())
}
