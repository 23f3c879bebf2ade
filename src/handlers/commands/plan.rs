//! `plan`, by comment or because the pull changed.
//!
//! Each project: lock, then a place in the pool, then Terraform, then the record. The record is kept only if the lock
//! is still held at that moment, so a plan that was overtaken by `unlock` or by the end of the pull leaves nothing behind
//! (P7). A project whose plan fails gives its lock back.

use futures::future::join_all;
use tracing::{Instrument, info_span};

use super::CommandCx;
use super::projects::{self, Selection, Work};
use crate::command::PlanCommand;
use crate::discovery::Project;
use crate::git::Checkout;
use crate::handlers::reply::Reply;
use crate::handlers::standing;
use crate::handlers::standing::Standings;
use crate::jobs::describe_error;
use crate::model::{
    CommandKind, CommandOutcome, Lock, PlanId, PlanRecord, PlanState, ProjectKey, ProjectOutcome, RunId, RunKind,
};
use crate::queue::JobError;
use crate::render::{Body, Holder, Next, ProjectReport, UserText, plan_output, status};
use crate::store::{NewRun, RecordPlan, TakeLock};
use crate::workflow::{PlanMade, RunError, RunOutput, StepError};

/// Somebody whose comment waits for this answer hears of every project, and also that there is none.
pub(super) async fn autoplan(cx: &CommandCx<'_>) -> Result<Reply, JobError> {
    let by_itself = !cx.ctx.store.command_stands_in(cx.row.id).await?;
    run(cx, &PlanCommand::default(), by_itself).await
}

pub(super) async fn by_comment(cx: &CommandCx<'_>, command: &PlanCommand) -> Result<Reply, JobError> {
    run(cx, command, false).await
}

async fn run(cx: &CommandCx<'_>, command: &PlanCommand, auto: bool) -> Result<Reply, JobError> {
    if let Some(refusal) = projects::var_file_refusal(cx.ctx, &command.extra_args) {
        return Ok(refusal);
    }
    cx.start(vec![standing::pending(cx.ctx, RunKind::Plan)]).await?;
    // A plan that was cut off by the end of the server is made again (P3).
    super::forget_cut_off(cx.ctx, cx.ctx.store.run_list(cx.row.id).await?).await?;
    let work = match projects::select(cx, &command.target, auto).await? {
        Selection::Work(work) => work,
        Selection::Refused(reply) => return refused(cx, reply, command.target.is_targeted()).await,
    };
    if !command.target.is_targeted() {
        let keep: Vec<_> = work.projects.iter().map(|project| project.key.clone()).collect();
        cx.ctx.store.plan_keep_only(&cx.pull.at, &keep).await?;
        let_go(cx, &keep).await?;
    }
    let groups = work.groups();
    let reports = join_all(groups.iter().map(|group| plan_group(cx, &work, group, command))).await;
    cx.abandoned()?;
    let mut reports: Vec<ProjectReport> =
        reports.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    reports.sort_by(|a, b| a.key.cmp(&b.key));
    answer(cx, reports, command, auto).await
}

/// Projects that only an earlier search at this head has found: nothing more comes of their statuses, red ones least.
async fn let_go(cx: &CommandCx<'_>, keep: &[ProjectKey]) -> Result<(), JobError> {
    let runs = cx.ctx.store.run_list_of_head(&cx.pull.at, &cx.pull.head).await?;
    for run in runs.into_iter().filter(|run| !keep.contains(&run.project)) {
        cx.status(standing::of_project(cx.ctx, run.kind, &run.project, run.id, status::let_go())).await?;
    }
    Ok(())
}

/// Nothing can be planned, and nothing stays pending. A slip in the name of a project changes nothing about where the
/// pull stands; whatever keeps all of it from being planned is a failure.
async fn refused(cx: &CommandCx<'_>, reply: Reply, targeted: bool) -> Result<Reply, JobError> {
    let standing = Standings::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    let stays = targeted && !standing.is_empty();
    let status = if stays { standing.plan_status(cx.ctx) } else { standing::broken(cx.ctx, RunKind::Plan) };
    Ok(reply.with_statuses(&cx.pull.head, vec![status]))
}

/// What the pull is told, and its combined statuses.
async fn answer(
    cx: &CommandCx<'_>,
    reports: Vec<ProjectReport>,
    command: &PlanCommand,
    auto: bool,
) -> Result<Reply, JobError> {
    let standing = if command.target.is_targeted() {
        Standings::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?
    } else {
        Standings::of_search(cx.ctx, cx.row.id).await?
    };
    let mut statuses = vec![standing.plan_status(cx.ctx)];
    statuses.extend(standing.apply_status_after_plan(cx.ctx, cx.pull).await?);
    let reply = match reports.is_empty() {
        false => Reply::new(Body::Projects(reports)),
        true if auto || cx.ctx.settings.silence_no_projects => Reply::silent(CommandOutcome::Success),
        true => Reply::new(Body::NoProjects(None)),
    };
    Ok(reply.with_statuses(&cx.pull.head, statuses))
}

/// Projects that share a directory and a workspace share files on disk: one after the other.
async fn plan_group(
    cx: &CommandCx<'_>,
    work: &Work,
    group: &[&Project],
    command: &PlanCommand,
) -> Result<Vec<ProjectReport>, JobError> {
    let _turn = work.turn().await;
    let mut reports = Vec::new();
    for project in group {
        let span = info_span!("plan", project = %project.key);
        reports.push(plan_project(cx, work, project, command).instrument(span).await?);
    }
    Ok(reports)
}

async fn plan_project(
    cx: &CommandCx<'_>,
    work: &Work,
    project: &Project,
    command: &PlanCommand,
) -> Result<ProjectReport, JobError> {
    let (ctx, key) = (cx.ctx, &project.key);
    let new = NewRun { command: cx.row.id, kind: RunKind::Plan, pull: cx.pull.at.clone(), project: key.clone() };
    let run = ctx.store.run_create(&new).await?;
    cx.status(standing::of_project(ctx, RunKind::Plan, key, run, status::running(RunKind::Plan))).await?;
    let report = attempt(cx, work, project, command, run).await?;
    let report = ProjectReport { log: super::log(ctx, command.verbose, run).await?, ..report };
    if cx.abandoned().is_err() {
        return Ok(report);
    }
    cx.finish_run(run, &report).await?;
    let stopped = report.outcome == ProjectOutcome::Cancelled;
    let state = match cx.superseded().await?.filter(|_| stopped) {
        Some(stop) => status::superseded(RunKind::Plan, &stop.why),
        None => status::project(RunKind::Plan, report.outcome, report.counts),
    };
    cx.status(standing::of_project(ctx, RunKind::Plan, key, run, state)).await?;
    Ok(report)
}

async fn attempt(
    cx: &CommandCx<'_>,
    work: &Work,
    project: &Project,
    command: &PlanCommand,
    run: RunId,
) -> Result<ProjectReport, JobError> {
    let key = &project.key;
    let report = ProjectReport {
        run_url: Some(cx.ctx.settings.run_url(run)),
        ..ProjectReport::new(key.clone(), ProjectOutcome::Failed)
    };
    let lock = match take_lock(cx, project).await? {
        TakeLock::Taken(lock) | TakeLock::AlreadyOurs(lock) => lock,
        TakeLock::HeldBy(lock) => return Ok(held(cx, report, &lock)),
        TakeLock::PullClosed => return Ok(stopped(report, "the pull request was closed before its turn came.")),
    };
    let Ok(_place) = projects::place_in_pool(cx, RunKind::Plan).await else {
        drop_plan(cx, key).await?;
        return Ok(stopped(report, &format!("{} before its turn came.", why_stopped(cx).await?)));
    };
    cx.ctx.store.run_start(run).await?;
    cx.ctx.hub.announce(run);
    let output = RunOutput::start(cx.ctx.store.clone(), cx.ctx.hub.clone(), run);
    let made = work.plan(cx, project, &command.extra_args, &output).await;
    if let Err(error) = &made {
        output.say(&describe_error(error)).await;
    }
    output.finish().await;
    match made {
        Ok((made, checkout)) => record(cx, project, run, &lock, made, &checkout, report).await,
        Err(error) => {
            drop_plan(cx, key).await?;
            failed(cx, report, &error).await
        }
    }
}

/// A plan that came to nothing gives its lock back, unless it is made again: by this command after a restart, or by the
/// one that takes its place.
async fn drop_plan(cx: &CommandCx<'_>, key: &ProjectKey) -> Result<(), JobError> {
    if cx.abandoned().is_ok() && cx.superseded().await?.is_none() {
        cx.ctx.store.plan_drop(&cx.pull.at, key).await?;
    }
    Ok(())
}

async fn take_lock(cx: &CommandCx<'_>, project: &Project) -> Result<TakeLock, JobError> {
    let reason = match cx.row.kind {
        CommandKind::Autoplan => "planned when the pull request changed",
        CommandKind::Plan | CommandKind::Apply | CommandKind::Unlock | CommandKind::Cancel | CommandKind::Help => {
            "planned by comment"
        }
    };
    let (store, pull) = (&cx.ctx.store, cx.pull);
    Ok(store.lock_take(&pull.at, &pull.url, &project.key, &cx.row.actor.login, reason).await?)
}

/// Keeps the plan file and its record (P5).
async fn record(
    cx: &CommandCx<'_>,
    project: &Project,
    run: RunId,
    lock: &Lock,
    made: PlanMade,
    checkout: &Checkout,
    report: ProjectReport,
) -> Result<ProjectReport, JobError> {
    let read = plan_output::summary(&made.output);
    let id = PlanId::next(&*cx.ctx.ids);
    let digest = if read.no_changes { None } else { Some(save(cx, id, made.file).await?) };
    let plan = PlanRecord {
        id,
        pull: cx.pull.at.clone(),
        project: project.key.clone(),
        run,
        head: checkout.head.clone(),
        base_branch: cx.pull.base_branch.clone(),
        base: checkout.base.clone(),
        distribution: made.tool.distribution,
        tool_version: made.tool.version,
        digest,
        counts: read.counts.unwrap_or_default(),
        state: if read.no_changes { PlanState::NoChanges } else { PlanState::Planned },
        created_at: cx.ctx.clock.now(),
    };
    let outcome = if read.no_changes { ProjectOutcome::NoChanges } else { ProjectOutcome::Planned };
    match cx.ctx.store.plan_record(&plan, lock.id).await? {
        RecordPlan::Recorded => Ok(ProjectReport {
            outcome,
            output: made.output,
            counts: read.counts,
            changes_outside: read.changes_outside,
            lock_url: Some(cx.ctx.settings.lock_url(lock.id)),
            ..report
        }),
        RecordPlan::Overtaken => {
            cx.ctx.artifacts.remove(id).await.map_err(JobError::retry)?;
            Err(super::taken_over())
        }
        RecordPlan::LockLost => {
            cx.ctx.artifacts.remove(id).await.map_err(JobError::retry)?;
            not_kept(cx, report).await
        }
    }
}

/// The lock went back while the plan was made.
async fn not_kept(cx: &CommandCx<'_>, report: ProjectReport) -> Result<ProjectReport, JobError> {
    let stop = cx.asked_to_stop().await?;
    let next = if stop.is_some() { Next::Nothing } else { Next::Plan };
    let why = stop.map_or_else(|| "the lock was given back".to_owned(), |stop| stop.why);
    let message = format!("{why} while the plan was made, so it was not kept.");
    Ok(ProjectReport { next, ..stopped(report, &message) })
}

async fn save(cx: &CommandCx<'_>, id: PlanId, file: Vec<u8>) -> Result<crate::model::Sha256Digest, JobError> {
    cx.ctx.artifacts.save(id, file).await.map_err(JobError::retry)
}

/// Somebody stands in the way.
pub(in crate::handlers::commands) fn held(cx: &CommandCx<'_>, report: ProjectReport, lock: &Lock) -> ProjectReport {
    let holder = Holder {
        pull: lock.pull.number,
        pull_url: lock.pull_url.clone(),
        who: lock.holder.clone(),
        since: lock.taken_at,
        why: lock.reason.clone(),
    };
    let lock_url = Some(cx.ctx.settings.lock_url(lock.id));
    ProjectReport { outcome: ProjectOutcome::Locked, held_by: Some(holder), lock_url, ..report }
}

/// Whatever stops a plan early would stop the next one too, so none is offered.
fn stopped(report: ProjectReport, why: &str) -> ProjectReport {
    let message = Some(UserText::new(why, []));
    ProjectReport { outcome: ProjectOutcome::Cancelled, message, next: Next::Nothing, ..report }
}

async fn why_stopped(cx: &CommandCx<'_>) -> Result<String, JobError> {
    let stop = cx.asked_to_stop().await?;
    Ok(stop.map_or_else(|| "the server was told to stop".to_owned(), |stop| stop.why))
}

async fn failed(cx: &CommandCx<'_>, report: ProjectReport, error: &RunError) -> Result<ProjectReport, JobError> {
    let report = ProjectReport { output: error.output().to_owned(), ..report };
    if let RunError::Step(StepError::Stopped { step, .. }) = error {
        let message = format!("{}, so `{step}` was interrupted.", why_stopped(cx).await?);
        return Ok(stopped(report, &message));
    }
    let text = UserText { message: format!("{}.", describe_error(error)), hints: projects::hints(error) };
    Ok(ProjectReport { outcome: ProjectOutcome::Failed, message: Some(text), ..report })
}
