//! Ends a command that cannot be carried out: it limits the retries and cleans up after the last one.

use anyhow::anyhow;

use super::{interrupted, policy_checks, tally};
use crate::context::RunCtx;
use crate::features::replies::{self, Reply};
use crate::forges::ForgeError;
use crate::model::{Actor, Cause, CommandId, CommitStatus, Origin, ProjectOutcome, RunKind};
use crate::queue::{JobError, RunningJob, TooManyInterruptions};
use crate::render::{Body, UserText, status};
use crate::store::{CommandRow, CommandState, RunRow};
use crate::workflow::CheckoutError;

/// Number of attempts (half a minute) after which the pull request gets a reply.
const ATTEMPTS: i64 = 6;

/// Fails a command after too many attempts. A plan waits for an unavailable forge as long as the queue allows,
/// because no comment could be posted either. A command that changes something does not wait: its author does not
/// expect it an hour later.
pub(super) fn patience(row: &CommandRow, attempt: &RunningJob, error: JobError) -> JobError {
    match error {
        JobError::Retry { error, .. }
            if attempt.lease.tries() >= ATTEMPTS && !is_worth_waiting(row, &error) =>
        {
            JobError::Fail(error)
        }
        other @ (JobError::Retry { .. } | JobError::Fail(_)) => other,
    }
}

fn is_worth_waiting(row: &CommandRow, error: &anyhow::Error) -> bool {
    let away = matches!(
        forge_error(error),
        Some(ForgeError::Unavailable { .. } | ForgeError::RateLimited { .. })
    );
    away && !row.kind.changes()
}

fn forge_error(error: &anyhow::Error) -> Option<&ForgeError> {
    let of_checkout = || match error.downcast_ref::<CheckoutError>()? {
        CheckoutError::Forge(error) => Some(error),
        CheckoutError::Conflict { .. }
        | CheckoutError::HeadGone { .. }
        | CheckoutError::Busy { .. }
        | CheckoutError::LeaseLost { .. }
        | CheckoutError::BaseGone { .. }
        | CheckoutError::Dir(_)
        | CheckoutError::Part(_)
        | CheckoutError::Git(_)
        | CheckoutError::Store(_) => None,
    };
    error.downcast_ref::<ForgeError>().or_else(of_checkout)
}

/// Ends the command after its last attempt. It posts a comment, and leaves nothing pending, locked or half done.
pub(crate) async fn give_up(ctx: &RunCtx, id: CommandId, error: &JobError) -> anyhow::Result<()> {
    let Some(row) = ctx.store.command_get(id).await? else {
        return Ok(());
    };
    if row.state == CommandState::Finished {
        return Ok(());
    }
    let interrupted = interrupted::reply(ctx, &row)
        .await
        .map_err(|error| anyhow!(error.message()))?;
    let reply = match interrupted {
        Some(reply) => reply,
        None => Reply {
            statuses: wind_up(ctx, &row).await?,
            ..Reply::new(Body::Broken(broken(&row, error)))
        },
    };
    let end = reply.into_end(ctx, &row);
    if ctx.store.command_finish(&end).await? {
        tally::command(ctx, row.kind, &end);
    }
    Ok(())
}

/// Ends the runs of the command and returns the statuses that say so.
pub(super) async fn wind_up(
    ctx: &RunCtx,
    row: &CommandRow,
) -> Result<Vec<CommitStatus>, sqlx::Error> {
    let mut statuses: Vec<CommitStatus> = replies::status_kind(row.kind)
        .map(|kind| replies::broken_status(ctx, kind))
        .into_iter()
        .chain(policy_checks::status_without_results(
            ctx,
            row,
            status::policies_broken,
        ))
        .collect();
    ctx.store.hooks_cut_off(row.id).await?;
    for run in ctx.store.run_list(row.id).await? {
        if ctx
            .store
            .run_finish(
                run.id,
                ProjectOutcome::Failed,
                Some("The command could not be run."),
            )
            .await?
        {
            tally::run(ctx, run.id, ProjectOutcome::Failed).await;
        }
        ctx.runs.hub.announce(run.id);
        discard(ctx, &run).await?;
        if run.has_status {
            statuses.push(replies::project_status(
                ctx,
                run.kind,
                &run.project,
                run.id,
                status::failed(run.kind),
            ));
        }
    }
    Ok(statuses)
}

/// Drops a plan that nobody sees: it must not be applied (P5).
async fn discard(ctx: &RunCtx, run: &RunRow) -> Result<(), sqlx::Error> {
    match run.kind {
        RunKind::Plan => {
            let cause = Cause::new(
                Actor::lockkeeper(Origin::Reconciler),
                "the plan could not be made",
            );
            ctx.store.plan_drop(&run.pull, &run.project, &cause).await
        }
        RunKind::Apply | RunKind::Version | RunKind::Import | RunKind::StateRm => Ok(()),
    }
}

/// Explains that the command is not begun again. The command itself may be the reason why the server stopped so
/// often.
fn cut_off(row: &CommandRow, times: i64) -> UserText {
    UserText {
        message: format!(
            "Lockkeeper stopped {times} times during this command, and does not retry it automatically. Nothing was \
             applied."
        ),
        hints: vec![
            "Ask an administrator to find out why Lockkeeper stopped before you retry the command. A common cause is \
             too little memory for a run."
                .to_owned(),
            format!("Then run the command again. Its id in the log is `{}`.", row.id),
        ],
    }
}

/// Explains an internal error to a person who cannot fix it. The full cause is in the log, under the id of the
/// command.
fn broken(row: &CommandRow, error: &JobError) -> UserText {
    let (JobError::Retry { error, .. } | JobError::Fail(error)) = error;
    if let Some(TooManyInterruptions { times }) = error.downcast_ref() {
        return cut_off(row, *times);
    }
    let known = forge_error(error).map(ToString::to_string);
    let cause = known.unwrap_or_else(|| "an internal error occurred".to_owned());
    UserText {
        message: format!("this command could not be run: {cause}."),
        hints: vec![
            "Run the command again to retry.".to_owned(),
            format!(
                "If it fails again, an administrator can find the cause in the log under `{}`.",
                row.id
            ),
        ],
    }
}
