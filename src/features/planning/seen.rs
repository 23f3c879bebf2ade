//! Determines whether the author of a comment can have seen a plan (P5). A push, and the plan that follows it, may have
//! come between the look and the comment.
//!
//! The comments at the end of the command that planned show the plans of all of its projects. Until the forge has the last
//! of them, no plan of the command counts as seen. The forge may take them late, and the delivery of the comment of the author
//! may be late, so the times of both on the forge are compared. A comment that was read before the command ended is older in
//! any case. Plans that the comments do not show are discarded: those of an attempt that was cut off, and of a command that
//! was superseded.

use chrono::{DateTime, TimeDelta, Utc};

use super::CommandCx;
use crate::features::replies;
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
    let store = &cx.ctx.store;
    let read_at = cx.row.created_at;
    // Both may be in the same second.
    let until = written_at.map_or(read_at, |written_at| written_at + FULL_SECOND);
    let Some(run) = store.run_get(plan.run).await? else {
        return Ok(plan.created_at <= until.min(read_at));
    };
    // Commands are removed long after their end only.
    let Some(times) = store.command_result_times(run.command).await? else {
        return Ok(plan.created_at <= until.min(read_at));
    };
    let Some(end) = times.finished_at else {
        return Ok(false);
    };
    if end.max(plan.created_at) > read_at {
        return Ok(false);
    }
    Ok(match (times.comments_left, times.shown_at) {
        (0, Some(shown_at)) => shown_at < until,
        (0, None) => end <= until,
        _ => {
            let posted = replies::posted_at(store, &cx.pull.at, run.command, &times).await?;
            posted.is_some_and(|posted| posted <= until.min(read_at))
        }
    })
}
