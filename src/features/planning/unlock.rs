//! Runs `unlock`: it releases every lock of the pull request, removes it from all queues of locks, and discards its
//! plans. It also works on closed pull requests.

use std::collections::BTreeMap;

use super::CommandCx;
use crate::features::replies::{self, Reply};
use crate::model::{PlanState, PullState};
use crate::queue::JobError;
use crate::render::{Body, Released};

pub(super) async fn run(cx: &CommandCx<'_>) -> Result<Reply, JobError> {
    let plans = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let waited = cx.ctx.store.waiter_list_of_pull(&cx.pull.at).await?;
    let freed = cx
        .ctx
        .store
        .lock_release_all(&cx.pull.at, &cx.cause("unlocked by comment"))
        .await?;
    for waiter in &waited {
        replies::set_queued_statuses(cx.ctx, &waiter.key).await?;
    }
    let mut released = BTreeMap::new();
    for lock in freed {
        let key = lock.project;
        released.insert(
            key.clone(),
            Released {
                lock: true,
                ..Released::nothing(key)
            },
        );
    }
    for waiter in waited {
        let key = waiter.project;
        released
            .entry(key.clone())
            .or_insert(Released::nothing(key))
            .line = true;
    }
    // An applied plan is done, so nobody loses anything when its record is deleted.
    let (applied, discarded): (Vec<_>, Vec<_>) = plans
        .into_iter()
        .partition(|plan| plan.state == PlanState::Applied);
    for plan in &discarded {
        let key = plan.project.clone();
        released
            .entry(key.clone())
            .or_insert(Released::nothing(key))
            .plan = true;
    }
    let is_undone = !applied.is_empty() && cx.pull.state != PullState::Merged;
    let reply = Reply::new(Body::Unlocked {
        released: released.into_values().collect(),
        applied: is_undone,
    });
    if cx.pull.state != PullState::Open {
        return Ok(reply);
    }
    let mut statuses =
        replies::left_queue_statuses(cx.ctx, &cx.pull.at, &cx.pull.head, |_| true).await?;
    statuses.extend(replies::discarded_statuses(cx.ctx, cx.pull, &discarded, cx.row.id).await?);
    Ok(reply.with_statuses(&cx.pull.head, statuses))
}
