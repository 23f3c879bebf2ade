//! Builds the reply for an apply, an import or a `state rm` that the end of the server interrupted (P1, P3).

use std::collections::BTreeMap;

use anyhow::Context;

use super::apply::answer;
use super::{PRIVATE, forget_cut_off, headline, tally};
use crate::context::RunCtx;
use crate::features::replies::{self, Reply};
use crate::model::{Actor, Cause, Origin, ProjectOutcome, RunKind};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText, status};
use crate::store::{CommandRow, RunRow, RunState, StateChanged};

/// Maximum number of output pieces of a run in a comment, about 2 MiB. The page of the run has all of its output.
const LAST_PIECES: i64 = 64;

/// Builds the reply to a command that changes something and was interrupted by the end of the server. Returns `None`
/// if nothing had begun, because the command can then still run. Also returns `None` for all other commands, which
/// are begun again (P3). It only reads the database, which knows what happened even while the forge is unavailable.
pub(super) async fn reply(ctx: &RunCtx, row: &CommandRow) -> Result<Option<Reply>, JobError> {
    if !row.kind.changes() {
        return Ok(None);
    }
    let runs = ctx.store.run_list(row.id).await?;
    ctx.store.hooks_cut_off(row.id).await?;
    if runs.iter().all(|run| run.started_at.is_none()) {
        forget_cut_off(ctx, runs).await?;
        return Ok(None);
    }
    // Runs of an earlier attempt that had not begun can remain, and a later attempt repeated them.
    let newest: BTreeMap<_, _> = runs
        .into_iter()
        .map(|run| (run.project.clone(), run))
        .collect();
    let (mut reports, mut statuses) = (Vec::new(), Vec::new());
    for run in newest.into_values() {
        let (id, kind, has_status) = (run.id, run.kind, run.has_status);
        let report = after_crash(ctx, run).await?;
        if has_status {
            let state = status::project(kind, report.outcome, report.counts);
            statuses.push(replies::project_status(ctx, kind, &report.key, id, state));
        }
        reports.push(report);
    }
    let head = row
        .head
        .clone()
        .context("a change began without a recorded head commit")
        .map_err(JobError::Fail)?;
    let body = Body::Interrupted(reports);
    if replies::status_kind(row.kind).is_none() {
        return Ok(Some(Reply {
            head: Some(head),
            ..Reply::new(body)
        }));
    }
    let mut reply = answer(ctx, &row.pull, &head, body).await?;
    reply.statuses.extend(statuses);
    Ok(Some(reply))
}

/// Reports what is known of one project of a command that was interrupted.
async fn after_crash(ctx: &RunCtx, run: RunRow) -> Result<ProjectReport, JobError> {
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
    ctx.runs.hub.announce(run.id);
    Ok(report)
}

/// Records the end of a run and its consequences. Returns `false` if the run had ended before.
async fn ended(ctx: &RunCtx, run: &RunRow, report: &ProjectReport) -> Result<bool, sqlx::Error> {
    let message = headline(report);
    match (run.kind, run.state) {
        // Nobody knows how far it came.
        (RunKind::Import | RunKind::StateRm, RunState::Running) => {
            let cause = Cause::new(
                Actor::lockkeeper(Origin::Reconciler),
                "the change of the state was interrupted",
            );
            let end = StateChanged {
                outcome: report.outcome,
                message: message.as_deref(),
                touched: true,
                release_lock: false,
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

/// Returns the end of a run's output, as far as a comment may show it.
async fn end_of_output(ctx: &RunCtx, run: &RunRow) -> Result<String, sqlx::Error> {
    if run.private {
        Ok(PRIVATE.to_owned())
    } else {
        ctx.store.run_output_tail(run.id, LAST_PIECES).await
    }
}

/// Reports on a run that was interrupted. Its plan can never be applied after that.
async fn cut_off(
    ctx: &RunCtx,
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
            "the apply was interrupted",
        );
        ctx.store.apply_abandon(&run.pull, run.id, &cause).await?;
    }
    let (word, done, to_see) = words(run.kind);
    let hints = [
        format!(
            "The state shows {done}, as far as {} could still write it.",
            tool.title()
        ),
        format!(
            "Plan again to see {to_see}. If {} could not release its own lock of the state, the plan shows that, and \
             the command that clears the lock.",
            tool.title()
        ),
    ];
    let message = format!(
        "the {word} was interrupted, because Lockkeeper stopped while it was running. It is not repeated \
         automatically."
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

/// Returns the name of the command, its traces in the state, and what a plan would show.
const fn words(kind: RunKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        RunKind::Import => (
            "import",
            "whether the resource was imported",
            "whether it was imported; an earlier plan is discarded",
        ),
        RunKind::StateRm => (
            "`state rm`",
            "whether the resources were removed",
            "what is left; an earlier plan is discarded",
        ),
        RunKind::Plan | RunKind::Apply | RunKind::Version => {
            ("apply", "what was applied until then", "what is left")
        }
    }
}
