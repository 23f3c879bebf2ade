//! Determines whether the author of a comment can have seen a plan (P5). A push, and the plan that follows it, may have
//! come between the look and the comment.
//!
//! One comment, at the end of the command that planned, shows the plans of all of its projects. Until then, plans that
//! are already stored count as unseen. The comment of the author counts from the time when it was written: its delivery
//! may be late.

use chrono::{DateTime, TimeDelta, Utc};

use super::CommandCx;
use crate::model::PlanRecord;

/// Precision of the times that a forge names.
const FULL_SECOND: TimeDelta = TimeDelta::seconds(1);

/// Returns true if the author of the comment can have seen a plan. `written_at` is the time of the comment, if the forge
/// named it; otherwise the time when this server read the comment counts.
pub(super) async fn by_author(
    cx: &CommandCx<'_>,
    plan: &PlanRecord,
    written_at: Option<DateTime<Utc>>,
) -> Result<bool, sqlx::Error> {
    let read_at = cx.row.created_at;
    let looked_until =
        written_at.map_or(read_at, |written_at| read_at.min(written_at + FULL_SECOND));
    Ok(readable_since(cx, plan)
        .await?
        .is_some_and(|since| since <= looked_until))
}

/// Returns the time since which people can read a plan. `None`: the command that made the plan has not ended.
async fn readable_since(
    cx: &CommandCx<'_>,
    plan: &PlanRecord,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let store = &cx.ctx.store;
    let command = match store.run_get(plan.run).await? {
        Some(run) => store.command_get(run.command).await?,
        None => None,
    };
    // Commands are removed long after their end only.
    let Some(command) = command else {
        return Ok(Some(plan.created_at));
    };
    Ok(command.finished_at.map(|end| end.max(plan.created_at)))
}
