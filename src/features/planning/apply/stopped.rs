//! Refuses a command before it begins if apply locks prevent every one of its plans. If they do not prevent all
//! plans, or if a lock is set later, the gate of each apply refuses.

use super::CommandCx;
use crate::features::apply_locks::{apply_locks_line, apply_refusal};
use crate::features::replies::{NewestRuns, Reply};
use crate::model::{ApplyLock, PlanRecord};
use crate::queue::JobError;
use crate::render::Body;

/// Returns the refusal if apply locks prevent each of these plans. It names all of the locks.
pub(super) async fn refusal(
    cx: &CommandCx<'_>,
    plans: &[PlanRecord],
) -> Result<Option<Reply>, JobError> {
    let locks = cx.ctx.store.apply_lock_list().await?;
    if !plans
        .iter()
        .all(|plan| locks.iter().any(|lock| is_in_way(lock, plan)))
    {
        return Ok(None);
    }
    let in_way: Vec<ApplyLock> = locks
        .into_iter()
        .filter(|lock| plans.iter().any(|plan| is_in_way(lock, plan)))
        .collect();
    if in_way.is_empty() {
        return Ok(None);
    }
    let newest_runs = NewestRuns::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    let status = newest_runs.apply_status_while_stopped(cx.ctx, apply_locks_line(&in_way));
    let refusal = apply_refusal(&in_way, &cx.ctx.settings.apply_locks_url());
    Ok(Some(Reply::new(Body::Refused(refusal)).with_statuses(
        &cx.pull.head,
        status.into_iter().collect(),
    )))
}

fn is_in_way(lock: &ApplyLock, plan: &PlanRecord) -> bool {
    lock.scope.covers(&plan.pull.repo, &plan.project.dir)
}
