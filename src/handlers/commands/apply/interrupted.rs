//! What is told of an apply that was cut off by the end of the server (P1, P3).

use std::collections::BTreeMap;

use anyhow::Context;

use super::answer;
use crate::context::Ctx;
use crate::handlers::commands::{PRIVATE, forget_cut_off, headline};
use crate::handlers::reply::Reply;
use crate::handlers::standing;
use crate::handlers::tally;
use crate::model::{Actor, Cause, Origin, ProjectOutcome, RunKind};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText, status};
use crate::store::{CommandRow, RunRow, RunState};

/// Of what a run printed so many pieces are told, about 2 MiB at most; the page of the run has all of it.
const LAST_PIECES: i64 = 64;

/// The answer to an apply that was cut off by the end of the server; `None` when Terraform was not started for any of
/// it, so that it may simply be done (P3). Nobody but the database is asked: what happened is on record even while the
/// forge is away.
pub(in crate::handlers::commands) async fn interrupted(ctx: &Ctx, row: &CommandRow) -> Result<Option<Reply>, JobError> {
    let runs = ctx.store.run_list(row.id).await?;
    ctx.store.hooks_cut_off(row.id).await?;
    if runs.iter().all(|run| run.started_at.is_none()) {
        forget_cut_off(ctx, runs).await?;
        return Ok(None);
    }
    // Of an earlier attempt that had not begun, runs may be left that a later one did again.
    let newest: BTreeMap<_, _> = runs.into_iter().map(|run| (run.project.clone(), run)).collect();
    let (mut reports, mut statuses) = (Vec::new(), Vec::new());
    for run in newest.into_values() {
        let id = run.id;
        let report = after_crash(ctx, run).await?;
        let state = status::project(RunKind::Apply, report.outcome, report.counts);
        statuses.push(standing::of_project(ctx, RunKind::Apply, &report.key, id, state));
        reports.push(report);
    }
    let head = row.head.clone().context("an apply began without a head commit on record").map_err(JobError::Fail)?;
    let mut reply = answer(ctx, &row.pull, &head, Body::Interrupted(reports)).await?;
    reply.statuses.extend(statuses);
    Ok(Some(reply))
}

/// What is known of one project of an apply that was cut off.
async fn after_crash(ctx: &Ctx, run: RunRow) -> Result<ProjectReport, JobError> {
    let report = ProjectReport {
        run_url: Some(ctx.settings.run_url(run.id)),
        ..ProjectReport::new(run.project.clone(), ProjectOutcome::Failed)
    };
    let text = |message: &str| Some(UserText::new(message, []));
    let report = match (run.state, run.outcome) {
        (RunState::Finished, outcome) => {
            let outcome = outcome.unwrap_or(ProjectOutcome::Failed);
            let message = run.message.as_deref().filter(|_| !outcome.is_success());
            let message = message.and_then(text);
            return Ok(ProjectReport { outcome, output: end_of_output(ctx, &run).await?, message, ..report });
        }
        (RunState::Running, _) => cut_off(ctx, &run, report).await?,
        (RunState::Queued, _) => ProjectReport {
            outcome: ProjectOutcome::Skipped,
            message: text("Lockkeeper stopped before its turn came. Its plan is kept."),
            ..report
        },
    };
    if ctx.store.run_finish(run.id, report.outcome, headline(&report).as_deref()).await? {
        tally::run(ctx, run.id, report.outcome).await;
    }
    ctx.hub.announce(run.id);
    Ok(report)
}

/// The end of what a run printed, as far as a comment may show it.
async fn end_of_output(ctx: &Ctx, run: &RunRow) -> Result<String, sqlx::Error> {
    if run.private { Ok(PRIVATE.to_owned()) } else { ctx.store.run_output_tail(run.id, LAST_PIECES).await }
}

/// What is known of the apply that was under way; nobody may go on with its plan.
async fn cut_off(ctx: &Ctx, run: &RunRow, report: ProjectReport) -> Result<ProjectReport, JobError> {
    let plans = ctx.store.plan_list(&run.pull).await?;
    let tool = plans.into_iter().find(|plan| plan.project == run.project).map_or(report.tool, |plan| plan.distribution);
    let cause = Cause::new(Actor::lockkeeper(Origin::Reconciler), "the apply was cut off");
    ctx.store.apply_abandon(&run.pull, run.id, &cause).await?;
    let hints = [
        format!("What was applied until then is in the state, as far as {} could still write it.", tool.title()),
        format!(
            "Plan again to see what is left. If {} could not give back its own lock of the state, the plan says so, with \
             the command that clears it.",
            tool.title()
        ),
    ];
    let message =
        "the apply was interrupted: Lockkeeper stopped while it was under way. It is not run again by itself.";
    Ok(ProjectReport {
        outcome: ProjectOutcome::Failed,
        state_lock: ctx.checkouts.state_lock_left(&run.pull, &run.project).await,
        tool,
        output: end_of_output(ctx, run).await?,
        message: Some(UserText::new(message, hints)),
        ..report
    })
}
