//! Sets the statuses of pull requests that are queued for a lock. They name the holder of the lock and the position
//! in the queue, so they change with every change of the queue.

use std::collections::BTreeMap;

use super::SetStatus;
use super::statuses::{NewestRuns, project_status};
use crate::context::Ctx;
use crate::model::{
    CommitSha, CommitState, CommitStatus, LockKey, ProjectKey, ProjectOutcome, PullRef, Waiter,
};
use crate::queue::Job;
use crate::render::status;
use crate::store::{Result, RunRow};

/// Maximum number of queued pull requests with current statuses. Those behind them get new statuses when they come
/// nearer.
const MOST_TOLD: usize = 20;

/// Describes the pull request that a waiter waits for, and its position. `None`: nobody holds the lock at this
/// moment.
pub(crate) async fn queue_place(ctx: &Ctx, waiter: &Waiter) -> Result<Option<String>> {
    let Some(holder) = ctx.store.lock_holder(&waiter.key).await? else {
        return Ok(None);
    };
    let mut before: Vec<PullRef> = ctx
        .store
        .waiter_list(&waiter.key)
        .await?
        .into_iter()
        .map(|one| one.pull)
        .collect();
    before.dedup();
    let place = before
        .iter()
        .position(|pull| *pull == waiter.pull)
        .map_or(1, |at| at + 1);
    let called = holder.pull.subject.short_name(holder.title.as_deref());
    Ok(Some(status::queued(&called, &holder.holder.login, place)))
}

/// Updates the statuses of the pull requests that are queued for a lock.
pub(crate) async fn set_queued_statuses(ctx: &Ctx, key: &LockKey) -> Result<()> {
    for waiter in ctx.store.waiter_list(key).await?.iter().take(MOST_TOLD) {
        let Some(line) = queue_place(ctx, waiter).await? else {
            continue;
        };
        let Some(known) = ctx.store.head_get(&waiter.pull).await? else {
            continue;
        };
        let (pull, head) = (&waiter.pull, &known.at.head);
        let is_told = |project: &ProjectKey| waiter.key.covers(project);
        let statuses = of_waiting(
            ctx,
            pull,
            head,
            is_told,
            &(CommitState::Pending, format!("{line}.")),
        )
        .await?;
        push(ctx, pull, head, statuses).await?;
    }
    Ok(())
}

/// Returns the statuses of projects that were queued at their last plan, after the pull request has left the queue.
/// Without them the old statuses would stay pending. `of` selects the projects. The list is empty if there are no
/// such projects.
pub(crate) async fn left_queue_statuses(
    ctx: &Ctx,
    pull: &PullRef,
    head: &CommitSha,
    of: impl Fn(&ProjectKey) -> bool,
) -> Result<Vec<CommitStatus>> {
    of_waiting(ctx, pull, head, of, &status::left_line()).await
}

/// Sets the same statuses if no running command can set them.
pub(crate) async fn set_left_queue_statuses(
    ctx: &Ctx,
    pull: &PullRef,
    projects: &[ProjectKey],
) -> Result<()> {
    if projects.is_empty() || pull.subject.is_application() {
        return Ok(());
    }
    // A pull request that is not open has no head, and nobody looks at its statuses.
    let Some(known) = ctx.store.head_get(pull).await? else {
        return Ok(());
    };
    let head = known.at.head;
    let statuses =
        left_queue_statuses(ctx, pull, &head, |project| projects.contains(project)).await?;
    push(ctx, pull, &head, statuses).await
}

/// Returns the statuses of projects whose newest run waits, and the combined status.
async fn of_waiting(
    ctx: &Ctx,
    pull: &PullRef,
    head: &CommitSha,
    of: impl Fn(&ProjectKey) -> bool,
    told: &(CommitState, String),
) -> Result<Vec<CommitStatus>> {
    let runs = ctx.store.run_list_of_head(pull, head).await?;
    let newest: BTreeMap<&ProjectKey, &RunRow> =
        runs.iter().map(|run| (&run.project, run)).collect();
    let waiting = newest
        .into_values()
        .filter(|run| run.outcome == Some(ProjectOutcome::Waiting) && of(&run.project));
    let of_run = |run: &RunRow| project_status(ctx, run.kind, &run.project, run.id, told.clone());
    let mut statuses: Vec<CommitStatus> = waiting.map(of_run).collect();
    if !statuses.is_empty() {
        statuses.push(NewestRuns::of(ctx, pull, head).await?.plan_status(ctx));
    }
    Ok(statuses)
}

async fn push(
    ctx: &Ctx,
    pull: &PullRef,
    head: &CommitSha,
    statuses: Vec<CommitStatus>,
) -> Result<()> {
    for status in statuses {
        if let Some(job) = SetStatus::of_pull(pull, head, status) {
            ctx.store.job_push(&job.to_new()).await?;
        }
    }
    ctx.wake_up.send();
    Ok(())
}
