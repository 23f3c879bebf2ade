//! Ends statuses that stay pending although nothing works on them any more. The job of a command was lost, or the
//! final status could not be set for so long that its job gave up.

use std::time::Duration;

use chrono::TimeDelta;
use tracing::{info, warn};

use super::SetStatus;
use crate::context::RunCtx;
use crate::features::planning;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::{CommitState, CommitStatus, StatusContext, StatusTarget, Subject};
use crate::queue::{Job, JobError};
use crate::render::status;
use crate::store::{CommandRow, PendingStatus};

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "pending_statuses",
    "Ends statuses of commits that no command will end any more.",
    Duration::from_mins(5),
    |ctx| Box::pin(tick(ctx)),
);

/// Maximum number of commands and statuses in one tick.
const AT_ONCE: i64 = 200;
/// Retention period of statuses. Nobody waits for the status of an older commit.
const KEEP: TimeDelta = TimeDelta::days(30);

/// Gives up commands without a job, and ends statuses that nothing else will end. Each is done once: if a status
/// cannot be set this time either, it stays as it is.
async fn tick(ctx: &RunCtx) -> anyhow::Result<TickResult> {
    let mut found = lost_commands(ctx).await?;
    ctx.store.status_prune(ctx.clock.now() - KEEP).await?;
    for left in ctx.store.status_list_left(AT_ONCE).await? {
        found.looked_at += 1;
        let job = end_of(ctx, &left).await?;
        if ctx.store.status_end_abandoned(&left, &job.to_new()).await? {
            found.repaired += 1;
            info!(repo = %left.repo, head = left.head.short(), context = left.context, "Ended a status that was left pending");
        }
    }
    if found.repaired > 0 {
        ctx.wake_up.send();
    }
    Ok(found)
}

async fn lost_commands(ctx: &RunCtx) -> anyhow::Result<TickResult> {
    let lost = ctx.store.command_list_lost(AT_ONCE).await?;
    for id in &lost {
        warn!(command = %id, "A command has lost its job and is given up");
        planning::give_up(
            ctx,
            *id,
            &JobError::Fail(anyhow::anyhow!("its job was lost")),
        )
        .await?;
    }
    let count = u64::try_from(lost.len()).unwrap_or(u64::MAX);
    Ok(TickResult {
        looked_at: count,
        repaired: count,
    })
}

/// Returns the status that should have been set last, if its job is stored. Otherwise it returns one that says what
/// happened.
async fn end_of(ctx: &RunCtx, left: &PendingStatus) -> anyhow::Result<SetStatus> {
    let command = ctx.store.command_get(left.command).await?;
    let interrupted = interrupted(left, command.as_ref());
    let given_up = ctx.store.job_given_up_in(&interrupted.lane()).await?;
    let given_up = given_up.and_then(|payload| serde_json::from_str::<SetStatus>(&payload).ok());
    Ok(given_up
        .filter(|job| job.status.state != CommitState::Pending)
        .unwrap_or(interrupted))
}

fn interrupted(left: &PendingStatus, command: Option<&CommandRow>) -> SetStatus {
    let (state, text) = status::interrupted();
    let context = StatusContext::new(&left.context);
    let pull = command.and_then(|row| match row.pull.subject {
        Subject::Pull(number) => Some(number),
        Subject::Application(_) => None,
    });
    SetStatus {
        target: StatusTarget {
            repo: left.repo.clone(),
            pull,
            commit: left.head.clone(),
        },
        status: CommitStatus {
            context,
            state,
            description: text,
            url: None,
        },
        promised: None,
    }
}
