//! A newer event of the pull leads to a plan that takes the place of this one.
//!
//! What the newer plan answers as well, a plan of the whole pull or of what it was handed locks for, ends without a word; if a comment asked for it, the
//! newer plan takes over the duty to answer (`command_stands_in`). A plan that asks for something of
//! its own, one project or arguments for Terraform, would be missed: while it waits it is left alone, because it will
//! see the newest commit anyway, and when it runs it is interrupted and begun again. Either way the statuses of the old
//! commit end, and the locks stay with the pull: the newer plan wants them, and nobody may come in between.

use super::{Round, forget};
use crate::command::{Command, PlanCommand};
use crate::context::Ctx;
use crate::handlers::Spec;
use crate::handlers::reply::{self, Reply};
use crate::handlers::standing;
use crate::model::{CommitStatus, RunKind};
use crate::queue::JobError;
use crate::render::status;
use crate::store::{CommandRow, Stop, StopKind};

/// What becomes of a command that was superseded before this attempt began; `None`: it goes on.
pub(super) async fn before(
    ctx: &Ctx,
    row: &CommandRow,
    spec: &Spec,
    stop: &Stop,
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

/// What becomes of a command that was superseded while it ran.
pub(super) async fn after(
    ctx: &Ctx,
    row: &CommandRow,
    spec: &Spec,
    stop: &Stop,
) -> Result<Round, JobError> {
    // The head it works on is on record since it began.
    let row = ctx
        .store
        .command_get(row.id)
        .await?
        .unwrap_or_else(|| row.clone());
    Ok(before(ctx, &row, spec, stop)
        .await?
        .map_or(Round::Again, Round::Over))
}

/// Whether the plan that takes the place of the command answers whoever asked for it.
fn is_answered(spec: &Spec) -> bool {
    match spec {
        Spec::Autoplan | Spec::Turn(_) => true,
        Spec::Command(Command::Plan(PlanCommand {
            target, extra_args, ..
        })) => !target.is_targeted() && extra_args.is_empty(),
        Spec::Command(_) | Spec::Mistake(_) | Spec::NotServed | Spec::Unclaimed => false,
    }
}

/// Lets the command begin once more; what it has to say about the old commit is said now.
async fn again(ctx: &Ctx, row: &CommandRow, statuses: Vec<CommitStatus>) -> Result<(), JobError> {
    if let Some(head) = &row.head {
        for job in statuses
            .into_iter()
            .filter_map(|status| reply::status_job(row, head, status))
        {
            ctx.store.job_push(&job).await?;
        }
    }
    ctx.store
        .command_go_on(row.id, StopKind::Superseded)
        .await?;
    Ok(())
}

/// Ends what is left of the command's runs; returns the statuses that say so, none if it never began.
async fn wind_up(ctx: &Ctx, row: &CommandRow, stop: &Stop) -> Result<Vec<CommitStatus>, JobError> {
    if row.head.is_none() {
        return Ok(Vec::new());
    }
    let runs = ctx.store.run_list(row.id).await?;
    let of_run = |run: &crate::store::RunRow| {
        standing::of_project(
            ctx,
            run.kind,
            &run.project,
            run.id,
            status::superseded(run.kind, &stop.why),
        )
    };
    let mut statuses: Vec<CommitStatus> = runs.iter().map(of_run).collect();
    statuses.push(standing::superseded(ctx, RunKind::Plan, &stop.why));
    forget(ctx, runs, &format!("{} before its turn came.", stop.why)).await?;
    Ok(statuses)
}
