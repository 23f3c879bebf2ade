//! `apply`: exactly the plans on record (P5), each at most once (P3).
//!
//! Before Terraform starts, in this order: the live pull on the forge is compared with the record; the plan file is
//! compared with its digest; the tool must be the one that planned; then the gate checks the apply lock, the pull, the
//! project lock and the plan in one transaction and puts on record that the apply has begun. Whatever cannot be
//! found out refuses (P6).

use std::collections::BTreeMap;
use std::iter;

use anyhow::Context;
use futures::future::join_all;
use tracing::{Instrument, info_span, warn};

use super::plan::held;
use super::projects::{self, Ready, Work};
use super::{CommandCx, headline};
use crate::command::{ApplyCommand, MergeMethod, MergeWish};
use crate::context::Ctx;
use crate::handlers::reply::Reply;
use crate::handlers::standing;
use crate::handlers::standing::Standings;
use crate::jobs::describe_error;
use crate::model::{CommitSha, Lock, PlanRecord, PlanState, ProjectOutcome, Pull, PullRef, PullState, RunId, RunKind};
use crate::queue::JobError;
use crate::render::{Body, Next, ProjectReport, Refusal, UserText, status};
use crate::store::{ApplyGate, ApplyGrant, CommandRow, NewRun, RunRow, RunState};
use crate::workflow::{RunError, RunOutput, StepError, ToolError};

pub(super) async fn run(cx: &CommandCx<'_>, command: &ApplyCommand) -> Result<Reply, JobError> {
    if let Some(refusal) = projects::var_file_refusal(cx.ctx, &command.extra_args) {
        return Ok(refusal);
    }
    if let MergeWish::By(method) = command.merge {
        return Ok(no_merging(method));
    }
    if let Some(lock) = cx.ctx.store.apply_lock_get().await? {
        return Ok(Reply::new(Body::Refused(Refusal::apply_locked(&lock))));
    }
    let plans = match projects::plans(cx, &command.target).await? {
        projects::Plans::Some(plans) => plans,
        projects::Plans::Refused(reply) => return Ok(reply),
    };
    cx.start(vec![standing::pending(cx.ctx, RunKind::Apply)]).await?;
    let abreast = match plans.first().and_then(|group| group.first()) {
        Some(plan) => projects::apply_abreast(cx, plan).await,
        None => 1,
    };
    let work = Work::of_plans(abreast);
    let groups = runs_to_come(cx, plans).await?;
    let reports = join_all(groups.iter().map(|group| apply_group(cx, &work, group, command))).await;
    if cx.lost.is_cancelled() {
        return Err(super::taken_over());
    }
    let mut reports: Vec<ProjectReport> =
        reports.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    reports.sort_by(|a, b| a.key.cmp(&b.key));
    answer(cx.ctx, &cx.pull.at, &cx.pull.head, Body::Projects(reports)).await
}

/// Nothing is merged in this version, so a way of merging cannot be followed.
fn no_merging(method: MergeMethod) -> Reply {
    Reply::refused(
        "not_available",
        format!("`--auto-merge-method {method}` cannot be followed: this version of Lockkeeper does not merge."),
        vec!["Leave the flag out, apply, and merge by hand.".to_owned()],
    )
}

async fn answer(ctx: &Ctx, pull: &PullRef, head: &CommitSha, body: Body) -> Result<Reply, JobError> {
    let standing = Standings::of(ctx, pull, head).await?;
    Ok(Reply::new(body).with_statuses(head, vec![standing.apply_status(ctx)]))
}

/// A run for every plan before the first begins, so that an apply that is cut off can tell of each.
async fn runs_to_come(
    cx: &CommandCx<'_>,
    plans: Vec<Vec<PlanRecord>>,
) -> Result<Vec<Vec<(RunId, PlanRecord)>>, JobError> {
    let mut groups = Vec::new();
    for group in plans {
        let mut runs = Vec::new();
        for plan in group {
            let (pull, project) = (cx.pull.at.clone(), plan.project.clone());
            let new = NewRun { command: cx.row.id, kind: RunKind::Apply, pull, project };
            runs.push((cx.ctx.store.run_create(&new).await?, plan));
        }
        groups.push(runs);
    }
    Ok(groups)
}

/// Plans that share a directory and a workspace share files on disk: one after the other.
async fn apply_group(
    cx: &CommandCx<'_>,
    work: &Work,
    group: &[(RunId, PlanRecord)],
    command: &ApplyCommand,
) -> Result<Vec<ProjectReport>, JobError> {
    let _turn = work.turn().await;
    let mut reports = Vec::new();
    for (run, plan) in group {
        let span = info_span!("apply", project = %plan.project);
        reports.push(apply_plan(cx, work, *run, plan, command).instrument(span).await?);
    }
    Ok(reports)
}

async fn apply_plan(
    cx: &CommandCx<'_>,
    work: &Work,
    run: RunId,
    plan: &PlanRecord,
    command: &ApplyCommand,
) -> Result<ProjectReport, JobError> {
    let (ctx, key) = (cx.ctx, &plan.project);
    cx.status(standing::of_project(ctx, RunKind::Apply, key, run, status::running(RunKind::Apply))).await?;
    let report = attempt(cx, work, plan, command, run).await?;
    let report = ProjectReport { log: super::log(ctx, command.verbose, run).await?, ..report };
    if cx.lost.is_cancelled() {
        return Ok(report);
    }
    cx.finish_run(run, &report).await?;
    let state = status::project(RunKind::Apply, report.outcome, report.counts);
    cx.status(standing::of_project(ctx, RunKind::Apply, key, run, state)).await?;
    Ok(report)
}

async fn attempt(
    cx: &CommandCx<'_>,
    work: &Work,
    plan: &PlanRecord,
    command: &ApplyCommand,
    run: RunId,
) -> Result<ProjectReport, JobError> {
    let report = ProjectReport {
        run_url: Some(cx.ctx.settings.run_url(run)),
        ..ProjectReport::new(plan.project.clone(), ProjectOutcome::Failed)
    };
    if let Err(shut) = compare(cx.pull, plan) {
        return Ok(shut.into_report(cx, report));
    }
    if let Some(why) = nothing_left(plan.state) {
        let message = Some(UserText::new(why, []));
        return Ok(ProjectReport { outcome: ProjectOutcome::UpToDate, message, ..report });
    }
    let Ok(_place) = projects::place_in_pool(cx).await else {
        let text = UserText::new("stopped before anything was applied.", []);
        return Ok(Shut::ForNow(text).into_report(cx, report));
    };
    let ready = match prepare(cx, work, plan).await {
        Ok(ready) => ready,
        Err(shut) => return Ok(shut.into_report(cx, report)),
    };
    match gate(cx, plan, run).await? {
        Ok(grant) => through(cx, work, plan, command, run, ready, grant, report).await,
        Err(shut) => Ok(shut.into_report(cx, report)),
    }
}

/// Why there is nothing to apply, if so.
fn nothing_left(state: PlanState) -> Option<&'static str> {
    match state {
        PlanState::NoChanges => Some("The plan has no changes."),
        PlanState::Applied => Some("This plan was applied before. A new plan shows whether anything is left to do."),
        PlanState::Planned | PlanState::Applying | PlanState::ApplyFailed | PlanState::Discarded => None,
    }
}

/// Why a plan is not applied.
enum Shut {
    /// Another pull holds the lock.
    Held(Box<Lock>),
    /// This plan never will be; a new one may.
    Stale(UserText),
    /// Something that passes.
    ForNow(UserText),
    /// The pull is not open.
    Closed(String),
}

impl Shut {
    /// What differs from the record.
    fn stale(differs: impl std::fmt::Display) -> Self {
        Self::Stale(UserText::new(format!("{differs}. Nothing was applied."), []))
    }

    fn into_report(self, cx: &CommandCx<'_>, report: ProjectReport) -> ProjectReport {
        let refused = |text, next| ProjectReport {
            outcome: ProjectOutcome::Refused,
            message: Some(text),
            next,
            ..report.clone()
        };
        match self {
            Self::Held(lock) => held(cx, report, &lock),
            Self::Stale(text) => refused(text, Next::Plan),
            Self::ForNow(text) => refused(text, Next::ByOutcome),
            Self::Closed(state) => {
                let message = format!("the pull request is {state} now. Nothing was applied.");
                refused(UserText::new(message, []), Next::Nothing)
            }
        }
    }
}

/// Everything that can be checked without the gate; the refusal says what differs.
async fn prepare(cx: &CommandCx<'_>, work: &Work, plan: &PlanRecord) -> Result<Ready, Shut> {
    let ctx = cx.ctx;
    seen(cx, plan)?;
    let tool = ctx.terraform.tools.find(plan.distribution, Some(&plan.tool_version)).await;
    let tool = tool.map_err(|error| other_tool(plan, &error))?;
    let file = ctx.artifacts.load(plan).await.map_err(|error| {
        warn!(plan = %plan.id, error = describe_error(&error), "A plan file cannot be used");
        Shut::stale(error)
    })?;
    let live = ctx.forge.pull(&cx.pull.at, cx.row.installation).await.map_err(|error| {
        let message =
            format!("whether the pull request is still the one that was planned cannot be found out: {error}.");
        Shut::ForNow(UserText::new(message, ["Nothing was applied. Comment the command again in a moment.".to_owned()]))
    })?;
    compare(&live, plan)?;
    let source = ctx.checkouts.fetch_plan(&*ctx.forge, plan, cx.row.installation).await;
    let source =
        source.map_err(|error| Shut::stale(format!("the code that was planned cannot be fetched: {error}")))?;
    let checkout = work.checkout_of(cx, &source, &plan.project.workspace).await;
    let checkout =
        checkout.map_err(|error| Shut::stale(format!("the code that was planned cannot be checked out: {error}")))?;
    Ok(Ready { tool, file, checkout })
}

/// Whoever asked can have looked at the plan (P5). A push, and the plan that follows it, may have come between the
/// look and the word.
fn seen(cx: &CommandCx<'_>, plan: &PlanRecord) -> Result<(), Shut> {
    if plan.created_at <= cx.row.created_at {
        return Ok(());
    }
    let message = "the plan was made after the comment that asks to apply it, so nobody can have looked at it before. \
                   Nothing was applied.";
    Err(Shut::ForNow(UserText::new(message, ["Look at the plan, then comment the command again.".to_owned()])))
}

/// The program that made the plan is not here any more.
fn other_tool(plan: &PlanRecord, error: &ToolError) -> Shut {
    let made = format!("{} {}", plan.distribution.title(), plan.tool_version);
    let message = match error {
        ToolError::OtherVersion { found, .. } => {
            format!("the plan was made by {made}, and this server has {found} now")
        }
        ToolError::Missing { .. } | ToolError::Unreadable { .. } | ToolError::Process(_) => {
            format!("the plan was made by {made}, which this server does not have any more: {}", describe_error(error))
        }
    };
    let program = format!("{}{}", plan.distribution.program(), plan.tool_version);
    let hint = format!("Or whoever runs Lockkeeper puts `{program}` into `--tf-bin-dir`; then apply again.");
    Shut::Stale(UserText::new(format!("{message}. Nothing was applied."), [hint]))
}

/// The pull against the record (P5).
fn compare(pull: &Pull, plan: &PlanRecord) -> Result<(), Shut> {
    if pull.state != PullState::Open {
        return Err(Shut::Closed(pull.state.to_string()));
    }
    if pull.head != plan.head {
        return Err(Shut::stale(format!(
            "the plan was made for commit `{}`, and the pull request is at `{}` now",
            plan.head.short(),
            pull.head.short()
        )));
    }
    if pull.base_branch != plan.base_branch {
        return Err(Shut::stale(format!(
            "the plan was made against the base branch `{}`, and the pull request goes into `{}` now",
            plan.base_branch, pull.base_branch
        )));
    }
    Ok(())
}

async fn gate(cx: &CommandCx<'_>, plan: &PlanRecord, run: RunId) -> Result<Result<ApplyGrant, Shut>, JobError> {
    let who = &cx.row.actor.login;
    let gate = cx.ctx.store.apply_begin(plan, run, &cx.pull.url, who, "applied by comment").await?;
    Ok(match gate {
        ApplyGate::Granted(grant) => Ok(grant),
        ApplyGate::HeldBy(lock) => Err(Shut::Held(Box::new(lock))),
        ApplyGate::ApplyLocked(lock) => Err(Shut::ForNow(Refusal::apply_locked(&lock).text)),
        ApplyGate::PullClosed => Err(Shut::Closed(PullState::Closed.to_string())),
        ApplyGate::PlanGone(state) => Err(Shut::stale(gone(state))),
    })
}

fn gone(state: PlanState) -> String {
    match state {
        PlanState::Discarded => "the plan was discarded in the meantime".to_owned(),
        PlanState::Applied => "the plan was applied already".to_owned(),
        PlanState::Applying => "the plan is being applied right now".to_owned(),
        PlanState::Planned | PlanState::NoChanges | PlanState::ApplyFailed => {
            format!("the plan is in the state `{state}` and cannot be applied")
        }
    }
}

/// The gate is open: from here on the apply has begun, whatever happens.
#[expect(clippy::too_many_arguments, reason = "everything that was checked goes through together")]
async fn through(
    cx: &CommandCx<'_>,
    work: &Work,
    plan: &PlanRecord,
    command: &ApplyCommand,
    run: RunId,
    ready: Ready,
    grant: ApplyGrant,
    report: ProjectReport,
) -> Result<ProjectReport, JobError> {
    cx.ctx.hub.announce(run);
    let output = RunOutput::start(cx.ctx.store.clone(), cx.ctx.hub.clone(), run);
    let applied = work.apply(cx, plan, &ready, &command.extra_args, &output).await;
    if let Err(error) = &applied {
        output.say(&describe_error(error)).await;
    }
    output.finish().await;
    if cx.lost.is_cancelled() {
        return Ok(report);
    }
    let state = if applied.is_ok() { PlanState::Applied } else { PlanState::ApplyFailed };
    cx.ctx.store.apply_end(grant, &cx.pull.at, state).await?;
    let report = ProjectReport { message: closed_meanwhile(cx).await?, ..report };
    Ok(match applied {
        Ok(output) => ProjectReport { outcome: ProjectOutcome::Applied, output, ..report },
        Err(error) => failed(report, &error),
    })
}

/// An apply is never stopped by the end of its pull, so this may be the only place that tells of the lock.
async fn closed_meanwhile(cx: &CommandCx<'_>) -> Result<Option<UserText>, JobError> {
    let state = cx.ctx.store.pull_state(&cx.pull.at).await?.filter(|state| *state != PullState::Open);
    let text = |state| UserText::new(format!("The pull request was {state} while this ran; its lock is free now."), []);
    Ok(state.map(text))
}

fn failed(report: ProjectReport, error: &RunError) -> ProjectReport {
    let output = error.output().to_owned();
    if let RunError::Step(error @ StepError::Stopped { .. }) = error {
        // Nothing else stops an apply: not even the end of its pull.
        let message = format!("Lockkeeper was shut down while this apply was under way, so {error}.");
        let left = "What was applied until then is in the state. Plan again to see what is left.".to_owned();
        let hints = iter::once(left).chain(report.message.map(|closed| closed.message)).collect();
        let text = UserText { message, hints };
        return ProjectReport { outcome: ProjectOutcome::Cancelled, message: Some(text), output, ..report };
    }
    let mut hints = projects::hints(error);
    hints.extend(report.message.map(|closed| closed.message));
    let text = UserText { message: format!("{}.", describe_error(error)), hints };
    ProjectReport { outcome: ProjectOutcome::Failed, message: Some(text), output, ..report }
}

/// The answer to an apply that was cut off by the end of the server; `None` when Terraform was not started for any of
/// it, so that it may simply be done (P3). Nobody but the database is asked: what happened is on record even while the
/// forge is away.
pub(super) async fn interrupted(ctx: &Ctx, row: &CommandRow) -> Result<Option<Reply>, JobError> {
    let runs = ctx.store.run_list(row.id).await?;
    if runs.iter().all(|run| run.started_at.is_none()) {
        super::forget_cut_off(ctx, runs).await?;
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
    let text = |message: &str, hints: Vec<String>| Some(UserText { message: message.to_owned(), hints });
    let report = match (run.state, run.outcome) {
        (RunState::Finished, outcome) => {
            let outcome = outcome.unwrap_or(ProjectOutcome::Failed);
            let message = run.message.as_deref().filter(|_| !outcome.is_success());
            let message = message.and_then(|message| text(message, vec![]));
            return Ok(ProjectReport { outcome, output: ctx.store.run_output(run.id).await?, message, ..report });
        }
        (RunState::Running, _) => {
            ctx.store.apply_abandon(&run.pull, run.id).await?;
            ProjectReport {
                outcome: ProjectOutcome::Failed,
                output: ctx.store.run_output(run.id).await?,
                message: text(
                    "the apply was interrupted: Lockkeeper stopped while it was under way. It is not run again by itself.",
                    vec![
                        "What was applied until then is in the state, as far as Terraform could still write it."
                            .to_owned(),
                        "Plan again to see what is left.".to_owned(),
                    ],
                ),
                ..report
            }
        }
        (RunState::Queued, _) => ProjectReport {
            outcome: ProjectOutcome::Skipped,
            message: text("Lockkeeper stopped before its turn came. Its plan is kept.", vec![]),
            ..report
        },
    };
    ctx.store.run_finish(run.id, report.outcome, headline(&report).as_deref()).await?;
    ctx.hub.announce(run.id);
    Ok(report)
}
