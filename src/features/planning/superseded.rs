//! Ends or repeats a plan when a newer event of the pull request leads to a newer plan that replaces it.
//!
//! The newer plan covers a plan of the whole pull request, or of projects whose locks were handed over. Such a plan
//! ends without a reply. If a comment requested it, the newer plan replies to that comment (`command_stands_in`).
//!
//! People would miss a plan with a request of its own, such as one project or arguments for Terraform. While it waits
//! it is left alone, because it will use the newest commit anyway. While it runs it is interrupted and begun again.
//!
//! In both cases the statuses of the old commit end, and the pull request keeps its locks: the newer plan needs them,
//! and no other pull request may take them in between.

use super::{CommandSpec, WorkRound, forget, policy_checks};
use crate::command::{Command, PlanCommand};
use crate::context::RunCtx;
use crate::features::replies::{self, Reply};
use crate::model::{CommitStatus, RunKind};
use crate::queue::JobError;
use crate::render::status;
use crate::store::{CommandRow, StopKind, StopRequest};

/// Returns the reply that ends a command that was superseded before this attempt began. `None`: the command
/// continues.
pub(super) async fn before(
    ctx: &RunCtx,
    row: &CommandRow,
    spec: &CommandSpec,
    stop: &StopRequest,
) -> Result<Option<Reply>, JobError> {
    let statuses = wind_up(ctx, row, stop).await?;
    if is_answered(spec) {
        return Ok(Some(Reply {
            statuses,
            head: row.head.clone(),
            ..Reply::given_over(StopKind::Superseded.as_str())
        }));
    }
    again(ctx, row, statuses).await?;
    Ok(None)
}

/// Decides about a command that was superseded while it ran.
pub(super) async fn after(
    ctx: &RunCtx,
    row: &CommandRow,
    spec: &CommandSpec,
    stop: &StopRequest,
) -> Result<WorkRound, JobError> {
    // Its head has been recorded since it began.
    let row = ctx
        .store
        .command_get(row.id)
        .await?
        .unwrap_or_else(|| row.clone());
    Ok(before(ctx, &row, spec, stop)
        .await?
        .map_or(WorkRound::Again, WorkRound::Over))
}

/// Returns true if the newer plan also replies to the author of this command.
fn is_answered(spec: &CommandSpec) -> bool {
    match spec {
        CommandSpec::Autoplan | CommandSpec::Turn(_) => true,
        CommandSpec::Command(Command::Plan(PlanCommand {
            target, extra_args, ..
        })) => !target.is_targeted() && extra_args.is_empty(),
        CommandSpec::Command(_)
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => false,
    }
}

/// Lets the command begin again, and sets the statuses of the old commit now.
async fn again(
    ctx: &RunCtx,
    row: &CommandRow,
    statuses: Vec<CommitStatus>,
) -> Result<(), JobError> {
    if let Some(head) = &row.head {
        for job in statuses
            .into_iter()
            .filter_map(|status| replies::status_job(row, head, status))
        {
            ctx.store.job_push(&job).await?;
        }
    }
    ctx.store
        .command_go_on(row.id, StopKind::Superseded)
        .await?;
    Ok(())
}

/// Ends the remaining runs of the command. Returns the statuses that say so; none if it never began.
async fn wind_up(
    ctx: &RunCtx,
    row: &CommandRow,
    stop: &StopRequest,
) -> Result<Vec<CommitStatus>, JobError> {
    if row.head.is_none() {
        return Ok(Vec::new());
    }
    let runs = ctx.store.run_list(row.id).await?;
    let of_run = |run: &crate::store::RunRow| {
        replies::project_status(
            ctx,
            run.kind,
            &run.project,
            run.id,
            status::superseded(run.kind, &stop.why),
        )
    };
    let mut statuses: Vec<CommitStatus> = runs
        .iter()
        .filter(|run| run.has_status)
        .map(of_run)
        .collect();
    statuses.push(replies::superseded_status(ctx, RunKind::Plan, &stop.why));
    let of_policies = || status::policies_superseded(&stop.why);
    statuses.extend(policy_checks::status_without_results(ctx, row, of_policies));
    forget(ctx, runs, &format!("{} before its turn came.", stop.why)).await?;
    // No comment shows them (P5).
    let store = &ctx.store;
    store.plan_discard_of_command(&row.pull, row.id).await?;
    Ok(statuses)
}
