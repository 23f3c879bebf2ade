//! Determines whether the author of a comment can have seen a plan (P5). A push, and the plan that follows it, may have
//! come between the look and the comment.
//!
//! The comments at the end of the command that planned show the plans of all of its projects. Until the forge has the last
//! of them, no plan of the command counts as seen. The forge may take them late, and so may the delivery of the comment of
//! the author be, so the times of both on the forge are compared.

use chrono::{DateTime, TimeDelta, Utc};

use super::CommandCx;
use crate::model::PlanRecord;
use crate::store::ResultShown;

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
    // Both may be in the same second.
    let until = written_at.map(|written_at| written_at + FULL_SECOND);
    Ok(match shown(cx, plan).await? {
        ResultShown::NotYet => false,
        ResultShown::InComments(at) => at < until.unwrap_or(read_at),
        ResultShown::WithoutComment(end) => {
            end.max(plan.created_at) <= until.map_or(read_at, |until| until.min(read_at))
        }
    })
}

/// Returns since when people can read the plan.
async fn shown(cx: &CommandCx<'_>, plan: &PlanRecord) -> Result<ResultShown, sqlx::Error> {
    let store = &cx.ctx.store;
    let shown = match store.run_get(plan.run).await? {
        Some(run) => store.command_result_shown(run.command).await?,
        None => None,
    };
    // Commands are removed long after their end only.
    Ok(shown.unwrap_or(ResultShown::WithoutComment(plan.created_at)))
}
