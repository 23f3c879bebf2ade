//! What is told of an apply, an import or a `state rm` that was cut off by the end of the server (P1, P3).

use std::collections::BTreeMap;

use anyhow::Context;

use super::apply::answer;
use super::{PRIVATE, forget_cut_off, headline};
use crate::context::Ctx;
use crate::handlers::reply::Reply;
use crate::handlers::standing;
use crate::handlers::tally;
use crate::model::{Actor, Cause, Origin, ProjectOutcome, RunKind};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText, status};
use crate::store::{CommandRow, RunRow, RunState, StateChanged};

/// Of what a run printed so many pieces are told, about 2 MiB at most; the page of the run has all of it.
const LAST_PIECES: i64 = 64;

/// The answer to a command that changes something and was cut off by the end of the server; `None` when nothing of it had
/// begun, so that it may simply be done, and for all others, which are begun again (P3). Nobody but the database is asked:
/// what happened is on record even while the forge is away.
pub(super) async fn reply(ctx: &Ctx, row: &CommandRow) -> Result<Option<Reply>, JobError> {
    if !row.kind.changes() {
        return Ok(None);
    }
    let runs = ctx.store.run_list(row.id).await?;
    ctx.store.hooks_cut_off(row.id).await?;
    if runs.iter().all(|run| run.started_at.is_none()) {
        forget_cut_off(ctx, runs).await?;
        return Ok(None);
    }
    // Of an earlier attempt that had not begun, runs may be left that a later one did again.
    let newest: BTreeMap<_, _> = runs
        .into_iter()
        .map(|run| (run.project.clone(), run))
        .collect();
    let (mut reports, mut statuses) = (Vec::new(), Vec::new());
    for run in newest.into_values() {
        let (id, kind) = (run.id, run.kind);
        let report = after_crash(ctx, run).await?;
        if kind.has_status() {
            let state = status::project(kind, report.outcome, report.counts);
            statuses.push(standing::of_project(ctx, kind, &report.key, id, state));
        }
        reports.push(report);
    }
    let head = row
        .head
        .clone()
        .context("a change began without a head commit on record")
        .map_err(JobError::Fail)?;
    let body = Body::Interrupted(reports);
    if standing::status_kind(row.kind).is_none() {
        return Ok(Some(Reply {
            head: Some(head),
            ..Reply::new(body)
        }));
    }
    let mut reply = answer(ctx, &row.pull, &head, body).await?;
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
            return Ok(ProjectReport {
                outcome,
                output: end_of_output(ctx, &run).await?,
                message,
                ..report
            });
        }
        (RunState::Running, _) => cut_off(ctx, &run, report).await?,
        (RunState::Queued, _) => ProjectReport {
            outcome: ProjectOutcome::Skipped,
            message: text(match run.kind {
                RunKind::Apply => "Lockkeeper stopped before its turn came. Its plan is kept.",
                RunKind::Plan | RunKind::Version | RunKind::Import | RunKind::StateRm => {
                    "Lockkeeper stopped before its turn came. Nothing was changed there."
                }
            }),
            ..report
        },
    };
    if ended(ctx, &run, &report).await? {
        tally::run(ctx, run.id, report.outcome).await;
    }
    ctx.hub.announce(run.id);
    Ok(report)
}

/// Puts the end of a run on record, with what follows from it; `false` when it had ended before.
async fn ended(ctx: &Ctx, run: &RunRow, report: &ProjectReport) -> Result<bool, sqlx::Error> {
    let message = headline(report);
    match (run.kind, run.state) {
        // Nobody can say how far it came.
        (RunKind::Import | RunKind::StateRm, RunState::Running) => {
            let cause = Cause::new(
                Actor::lockkeeper(Origin::Reconciler),
                "the change of the state was cut off",
            );
            let end = StateChanged {
                outcome: report.outcome,
                message: message.as_deref(),
                touched: true,
                give_back: false,
            };
            ctx.store
                .state_change_end(&run.pull, &run.project, run.id, &end, &cause)
                .await
        }
        (
            RunKind::Plan | RunKind::Apply | RunKind::Version | RunKind::Import | RunKind::StateRm,
            _,
        ) => {
            ctx.store
                .run_finish(run.id, report.outcome, message.as_deref())
                .await
        }
    }
}

/// The end of what a run printed, as far as a comment may show it.
async fn end_of_output(ctx: &Ctx, run: &RunRow) -> Result<String, sqlx::Error> {
    if run.private {
        Ok(PRIVATE.to_owned())
    } else {
        ctx.store.run_output_tail(run.id, LAST_PIECES).await
    }
}

/// What is known of what was under way; nobody may go on with a plan of that project.
async fn cut_off(
    ctx: &Ctx,
    run: &RunRow,
    report: ProjectReport,
) -> Result<ProjectReport, JobError> {
    let plans = ctx.store.plan_list(&run.pull).await?;
    let tool = plans
        .into_iter()
        .find(|plan| plan.project == run.project)
        .map_or(report.tool, |plan| plan.distribution);
    if run.kind == RunKind::Apply {
        let cause = Cause::new(
            Actor::lockkeeper(Origin::Reconciler),
            "the apply was cut off",
        );
        ctx.store.apply_abandon(&run.pull, run.id, &cause).await?;
    }
    let (word, done, to_see) = words(run.kind);
    let hints = [
        format!(
            "{done} is in the state, as far as {} could still write it.",
            tool.title()
        ),
        format!(
            "Plan again to see {to_see}. If {} could not give back its own lock of the state, the plan says so, with \
             the command that clears it.",
            tool.title()
        ),
    ];
    let message = format!(
        "the {word} was interrupted: Lockkeeper stopped while it was under way. It is not run again by itself."
    );
    Ok(ProjectReport {
        outcome: ProjectOutcome::Failed,
        state_lock: ctx.checkouts.state_lock_left(&run.pull, &run.project).await,
        tool,
        output: end_of_output(ctx, run).await?,
        message: Some(UserText::new(message, hints)),
        ..report
    })
}

/// What it is called, what is in the state, and what a plan shows.
const fn words(kind: RunKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        RunKind::Import => (
            "import",
            "If it was imported, it",
            "whether it was; a plan that was made before is discarded",
        ),
        RunKind::StateRm => (
            "`state rm`",
            "Whether resources were removed",
            "what is left; a plan that was made before is discarded",
        ),
        RunKind::Plan | RunKind::Apply | RunKind::Version => {
            ("apply", "What was applied until then", "what is left")
        }
    }
}
