//! `unlock`: every lock of the pull goes back, every plan of it is discarded. Works on closed pulls too.

use std::collections::BTreeMap;

use super::CommandCx;
use crate::handlers::reply::Reply;
use crate::model::PlanState;
use crate::queue::JobError;
use crate::render::{Body, Released};

pub(super) async fn run(cx: &CommandCx<'_>) -> Result<Reply, JobError> {
    let plans = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let freed = cx.ctx.store.lock_release_all(&cx.pull.at).await?;
    let mut released = BTreeMap::new();
    for lock in freed {
        let key = lock.project;
        released.insert(key.clone(), Released { key, lock: true, plan: false });
    }
    // What was applied is done; nobody loses anything when its record goes.
    for plan in plans.into_iter().filter(|plan| plan.state != PlanState::Applied) {
        let key = plan.project;
        released.entry(key.clone()).or_insert(Released { key, lock: false, plan: false }).plan = true;
    }
    Ok(Reply::new(Body::Unlocked(released.into_values().collect())))
}
