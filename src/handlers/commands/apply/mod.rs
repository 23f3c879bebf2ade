//! Runs `apply`: it applies exactly the recorded plans (P5), each at most once (P3).
//!
//! The checks before Terraform starts have this order:
//! - The tool must be the one that planned.
//! - The plan file is compared with its digest.
//! - The current pull request on the forge is compared with the plan record.
//! - The code is checked out.
//! - The requirements of the project must be met.
//! - The current pull request is compared once more.
//! - The gate checks the apply locks, the pull request, the project lock and the plan. The same transaction records
//!   that the apply has begun.
//!
//! Anything that cannot be determined refuses the apply (P6).

mod dependencies;
mod gate;
mod stopped;

use std::iter;

use futures::future::join_all;
use tracing::{Instrument, info_span};

use gate::Shut;

use super::CommandCx;
use super::course::Course;
use super::hooks::{self, Given};
use super::merging::{self, AfterApply};
use super::permission;
use super::policies::OfPlans;
use super::projects::{self, Ready, Work};
use crate::command::{ApplyCommand, CommandName};
use crate::config::access::Action;
use crate::context::Ctx;
use crate::discovery::{Order, Stage, stages};
use crate::errors::describe_error;
use crate::handlers::reply::Reply;
use crate::handlers::standing;
use crate::handlers::standing::Standings;
use crate::model::{
    CommitSha, PlanRecord, PlanState, ProjectOutcome, PullRef, PullState, RunId, RunKind,
    WorkspaceName,
};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText, status};
use crate::store::{ApplyGrant, NewRun, Stop};
use crate::workflow::{
    CheckedOut, CheckoutError, RunError, RunOutput, Source, StepError, StepFailure,
};

const LEFT_BY_AN_INTERRUPT: &str =
    "What was applied until then is in the state. Plan again to see what is left.";
const LEFT_BY_A_KILL: &str = "It may have changed more than its state says. Compare the two, then plan again to see \
                              what is left.";

pub(super) async fn run(cx: &CommandCx<'_>, command: &ApplyCommand) -> Result<Reply, JobError> {
    if let Some(refusal) = refusal(cx, command) {
        return Ok(refusal);
    }
    let plans = match projects::plans(cx, &command.target).await? {
        projects::Plans::Some(plans) => plans,
        projects::Plans::Refused(reply) => return Ok(reply),
    };
    if let Some(refusal) = stopped::refusal(cx, &plans).await? {
        return Ok(refusal);
    }
    // If somebody changed the mirror, the reads below would only find files missing.
    if let Err(error) = cx.ctx.checkouts.check_mirror(&cx.pull.at.repo) {
        return projects::checkout_refusal(error);
    }
    if let Some(refusal) = base_gone(cx).await? {
        return Ok(refusal);
    }
    // Plans of other commits are refused, so their configuration must not affect the other plans.
    let meant: Vec<&PlanRecord> = plans
        .iter()
        .filter(|plan| gate::compare(cx.pull, plan).is_ok())
        .collect();
    let policies = OfPlans::read(cx, &meant).await?;
    if let Some(refusal) = policies.refusal() {
        return Ok(refusal);
    }
    if let Some(refusal) = merging::method_without_merge(cx, command, &policies) {
        return Ok(refusal);
    }
    cx.start(vec![standing::pending(cx.ctx, RunKind::Apply)])
        .await?;
    let work = Work::of_plans(cx.ctx, policies, &meant);
    let hooked = match run_hooks(cx, &work, &meant, command).await? {
        Ok(hooked) => hooked,
        Err(refusal) => return refused_by_hook(cx, refusal).await,
    };
    let (mut course, hooked) = (Course::new(work.aborts()), hooked.as_ref());
    for stage in in_order(&work, runs_to_come(cx, plans).await?) {
        let halted = course.halted(stage.group);
        let applying = |(run, plan)| Applying {
            cx,
            work: &work,
            run,
            plan,
            command,
            hooked,
            halted: halted.clone(),
        };
        let groups = stage
            .members
            .into_iter()
            .map(|group| group.into_iter().map(applying).collect());
        let reports = join_all(groups.map(|group| apply_group(&work, group))).await;
        cx.left_to_others()?;
        course.add(
            stage.group,
            reports
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .flatten()
                .collect(),
        );
    }
    let mut reports = course.into_reports();
    work.silence(RunKind::Apply, &mut reports);
    let merging = match pushed_meanwhile(cx, &reports).await? {
        Some(pushed) => AfterApply {
            note: Some(pushed),
            job: None,
        },
        None => merging::after_apply(cx, command, &reports).await?,
    };
    let reply = answer(cx.ctx, &cx.pull.at, &cx.pull.head, Body::Projects(reports)).await?;
    let notes = merging.note.into_iter().chain(reply.notes).collect();
    Ok(Reply {
        notes,
        jobs: merging.job.into_iter().collect(),
        ..reply
    })
}

/// Returns a note if the applied commit is not the newest one any more.
async fn pushed_meanwhile(
    cx: &CommandCx<'_>,
    reports: &[ProjectReport],
) -> Result<Option<String>, JobError> {
    if !reports
        .iter()
        .any(|report| report.outcome == ProjectOutcome::Applied)
    {
        return Ok(None);
    }
    let known = cx.ctx.store.head_get(&cx.pull.at).await?;
    let newer = known
        .map(|known| known.at.head)
        .filter(|head| *head != cx.pull.head);
    Ok(newer.map(|newer| {
        format!(
            "Commits were pushed while this ran: what was applied is `{}`, and the newest commit is `{}`.",
            cx.pull.head.short(),
            newer.short()
        )
    }))
}

/// Refuses a pull request if its base branch does not exist any more. It cannot be merged, so its applied code would
/// not be in any branch.
async fn base_gone(cx: &CommandCx<'_>) -> Result<Option<Reply>, JobError> {
    if cx.pull.at.number.is_application() {
        return Ok(None);
    }
    let base = &cx.pull.base_branch;
    let is_there = cx
        .ctx
        .forge
        .has_branch(&cx.pull.at.repo, cx.row.installation, base)
        .await;
    if is_there? {
        return Ok(None);
    }
    projects::checkout_refusal(CheckoutError::BaseGone { base: base.clone() }).map(Some)
}

/// Returns the refusal of a command that is wrong in itself.
fn refusal(cx: &CommandCx<'_>, command: &ApplyCommand) -> Option<Reply> {
    projects::argument_refusal(cx.ctx, CommandName::Apply, &command.extra_args, &[])
        .or_else(|| forbids_all(cx, command).then(|| no_apply_all(cx)))
}

/// A plan and the run that is to apply it.
type Run = (RunId, PlanRecord);

/// Sorts the plans by the configuration of the planned commit. If it cannot be read, the plans are sorted by their
/// groups.
fn in_order(work: &Work, runs: Vec<Run>) -> Vec<Stage<Vec<Run>>> {
    let order = |run: Run| {
        (
            work.order(&run.1)
                .unwrap_or_else(|| Order::in_group(run.1.order_group)),
            run,
        )
    };
    let all = stages(
        runs.into_iter().map(order).collect(),
        |(order, (_, plan))| (&plan.project, order),
    );
    let without = |stage: Stage<(Order, Run)>| Stage {
        group: stage.group,
        members: stage.members.into_iter().map(|(_, run)| run).collect(),
    };
    all.into_iter()
        .map(|stage| projects::grouped(without(stage), |(_, plan)| &plan.project))
        .collect()
}

/// Runs the hooks before the apply, in a checkout of the first plan that is left to apply, and returns its state.
/// Files that hooks write there do not change the configuration of the plans. Without hooks, nothing is checked out
/// yet. If `meant` is empty, no hooks run.
async fn run_hooks(
    cx: &CommandCx<'_>,
    work: &Work,
    meant: &[&PlanRecord],
    command: &ApplyCommand,
) -> Result<Result<Option<CheckedOut>, Reply>, JobError> {
    let rules = work.rules();
    let first = meant
        .iter()
        .find(|plan| gate::nothing_left(plan.state).is_none())
        .or(meant.first());
    let Some(plan) = first.filter(|_| hooks::any(cx, rules)) else {
        return Ok(Ok(None));
    };
    let fetched = cx
        .ctx
        .checkouts
        .fetch_plan(&*cx.ctx.forge, plan, cx.row.installation)
        .await;
    let prepared = match fetched {
        Ok(source) => {
            work.checkout_of(cx, &source, &WorkspaceName::default())
                .await
        }
        Err(error) => Err(error),
    };
    let checkout = match prepared {
        Ok(checkout) => checkout,
        Err(error) => return projects::checkout_refusal(error).map(Err),
    };
    if let Some(failed) = hooks::before(
        cx,
        rules,
        &checkout,
        Given::of(&command.target, &command.extra_args),
    )
    .await?
    {
        return Ok(Err(failed));
    }
    let ran_in = || cx.ctx.checkouts.checked_out(&Source::of_plan(plan));
    Ok(Ok(hooks::any_before(cx, rules).then(ran_in)))
}

/// Adds the status of applies to a refusal. Nothing was applied, so the pull request has the same state as before.
async fn refused_by_hook(cx: &CommandCx<'_>, refusal: Reply) -> Result<Reply, JobError> {
    let standing = Standings::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    Ok(refusal.with_statuses(&cx.pull.head, vec![standing.apply_status(cx.ctx)]))
}

/// Checks `--disable-apply-all` (reference 10.2): an apply has to name its target.
fn forbids_all(cx: &CommandCx<'_>, command: &ApplyCommand) -> bool {
    !cx.ctx.settings.style.offer_apply_all && !command.target.is_targeted()
}

fn no_apply_all(cx: &CommandCx<'_>) -> Reply {
    let word = &cx.ctx.settings.executable;
    Reply::refused(
        "apply_all_disabled",
        "on this server an apply has to name its project (`--disable-apply-all`).".to_owned(),
        vec![format!(
            "Comment `{word} apply -d DIR -w WORKSPACE` or `{word} apply -p PROJECT`; the plan shows the line."
        )],
    )
}

/// Builds the reply with the status of applies.
pub(super) async fn answer(
    ctx: &Ctx,
    pull: &PullRef,
    head: &CommitSha,
    body: Body,
) -> Result<Reply, JobError> {
    let standing = Standings::of(ctx, pull, head).await?;
    Ok(Reply::new(body).with_statuses(head, vec![standing.apply_status(ctx)]))
}

/// Creates a run for every plan before the first begins, so that an interrupted apply can report each of them.
async fn runs_to_come(cx: &CommandCx<'_>, plans: Vec<PlanRecord>) -> Result<Vec<Run>, JobError> {
    let mut runs = Vec::new();
    for plan in plans {
        let (pull, project) = (cx.pull.at.clone(), plan.project.clone());
        let new = NewRun {
            command: cx.row.id,
            kind: RunKind::Apply,
            pull,
            project,
        };
        runs.push((cx.ctx.store.run_create(&new).await?, plan));
    }
    Ok(runs)
}

/// Applies plans with the same directory and workspace one after the other, because they share files on disk.
async fn apply_group(
    work: &Work,
    group: Vec<Applying<'_>>,
) -> Result<Vec<ProjectReport>, JobError> {
    let _turn = work.turn().await;
    let mut reports = Vec::new();
    for applying in group {
        let span = info_span!("apply", project = %applying.plan.project);
        reports.push(Box::pin(applying.report().instrument(span)).await?);
    }
    Ok(reports)
}

/// The apply of one plan.
struct Applying<'a> {
    cx: &'a CommandCx<'a>,
    work: &'a Work,
    run: RunId,
    plan: PlanRecord,
    command: &'a ApplyCommand,
    /// State on which the hooks before it ran, if there were any.
    hooked: Option<&'a CheckedOut>,
    /// Reason why it is not tried, if an earlier failure halts it.
    halted: Option<UserText>,
}

impl Applying<'_> {
    /// Carries out the whole apply, and records how far it came.
    async fn report(&self) -> Result<ProjectReport, JobError> {
        let Self { cx, run, plan, .. } = self;
        let (ctx, key) = (cx.ctx, &plan.project);
        cx.status(standing::of_project(
            ctx,
            RunKind::Apply,
            key,
            *run,
            status::running(RunKind::Apply),
        ))
        .await?;
        let report = self.attempt().await?;
        let report = ProjectReport {
            log: super::log(ctx, self.command.verbose, *run).await?,
            ..report
        };
        if cx.left_to_others().is_err() {
            return Ok(report);
        }
        cx.finish_run(*run, &report).await?;
        let (state, line) = status::project(RunKind::Apply, report.outcome, report.counts);
        let state = (state, report.status.clone().unwrap_or(line));
        cx.status(standing::of_project(ctx, RunKind::Apply, key, *run, state))
            .await?;
        Ok(report)
    }

    async fn attempt(&self) -> Result<ProjectReport, JobError> {
        let Self { cx, plan, .. } = self;
        let report = ProjectReport {
            run_url: Some(cx.ctx.settings.run_url(self.run)),
            ..ProjectReport::new(plan.project.clone(), ProjectOutcome::Failed)
        };
        if let Err(shut) = gate::compare(cx.pull, plan) {
            return Ok(shut.into_report(cx, report));
        }
        if let Some(message) = permission::check_project(cx, Action::Apply, &plan.project).await? {
            return Ok(Shut::ForNow(message).into_report(cx, report));
        }
        if let Some(why) = gate::nothing_left(plan.state) {
            let message = Some(UserText::new(why, []));
            let applied = status::project(RunKind::Apply, ProjectOutcome::Applied, None).1;
            let status = (plan.state == PlanState::Applied).then_some(applied);
            return Ok(ProjectReport {
                outcome: ProjectOutcome::UpToDate,
                message,
                status,
                ..report
            });
        }
        if let Some(shut) = gate::blocked(plan) {
            return Ok(shut.into_report(cx, report));
        }
        if let Some(why) = self.halted.clone().filter(|_| !cx.stop.is_cancelled()) {
            return Ok(ProjectReport {
                outcome: ProjectOutcome::Skipped,
                message: Some(why),
                ..report
            });
        }
        if let Some(why) =
            projects::argument_of_other_tool(cx.ctx, &self.command.extra_args, plan.distribution)
        {
            return Ok(
                Shut::ForNow(UserText::new(format!("{why}. Nothing was applied."), []))
                    .into_report(cx, report),
            );
        }
        if let Err(shut) = gate::seen_by_hooks(cx, self.hooked, plan) {
            return Ok(shut.into_report(cx, report));
        }
        if let Some(why) = dependencies::unmet(cx, self.work, plan).await? {
            return Ok(Shut::ForNow(why).into_report(cx, report));
        }
        let Ok(_place) = projects::place_in_pool(cx, RunKind::Apply).await else {
            return Ok(not_begun(cx).await?.into_report(cx, report));
        };
        let ready = match gate::prepare(cx, self.work, plan).await {
            Ok(ready) => ready,
            Err(shut) => return Ok(shut.into_report(cx, report)),
        };
        if cx.stop.is_cancelled() {
            return Ok(not_begun(cx).await?.into_report(cx, report));
        }
        match gate::pass(cx, self.work, plan, self.run).await? {
            Ok(grant) => self.through(ready, grant, report).await,
            Err(shut) => Ok(shut.into_report(cx, report)),
        }
    }

    /// Runs the apply after the gate. From here on the apply has begun, even if it fails.
    async fn through(
        &self,
        ready: Ready,
        grant: ApplyGrant,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let Self { cx, run, .. } = self;
        cx.ctx.hub.announce(*run);
        if ready.workflow.keeps_output_private() {
            cx.ctx.store.run_keep_private(*run).await?;
        }
        let output = RunOutput::start(cx.ctx.store.clone(), cx.ctx.hub.clone(), *run);
        let applied = self
            .work
            .apply(cx, &self.plan, &ready, &self.command.extra_args, &output)
            .await;
        if let Err(error) = &applied {
            output.say(&describe_error(error)).await;
        }
        output.finish().await;
        if cx.lost.is_cancelled() {
            return Ok(report);
        }
        let state = if applied.is_ok() {
            PlanState::Applied
        } else {
            PlanState::ApplyFailed
        };
        cx.ctx
            .store
            .apply_end(grant, &cx.pull.at, state, &cx.cause("the apply ended"))
            .await?;
        let report = ProjectReport {
            message: closed_meanwhile(cx).await?,
            ..report
        };
        Ok(match applied {
            Ok(output) => ProjectReport {
                outcome: ProjectOutcome::Applied,
                output,
                ..report
            },
            Err(error) => {
                let state_lock = cx
                    .ctx
                    .checkouts
                    .state_lock_left(&cx.pull.at, &self.plan.project)
                    .await;
                let report = ProjectReport {
                    state_lock,
                    tool: self.plan.distribution,
                    ..report
                };
                failed(cx, report, &error, cx.asked_to_stop().await?).await
            }
        })
    }
}

/// Returns a note if the pull request was closed meanwhile. The end of a pull request never stops a run that changes
/// something, so this may be the only message about its lock.
pub(super) async fn closed_meanwhile(cx: &CommandCx<'_>) -> Result<Option<UserText>, JobError> {
    let state = cx
        .ctx
        .store
        .pull_state(&cx.pull.at)
        .await?
        .filter(|state| *state != PullState::Open);
    let text = |state| {
        UserText::new(
            format!("The pull request was {state} while this ran; its lock is free now."),
            [],
        )
    };
    Ok(state.map(text))
}

/// Builds the report of an apply that was stopped before Terraform started. Its plan stays valid.
async fn not_begun(cx: &CommandCx<'_>) -> Result<Shut, JobError> {
    let message = match cx.asked_to_stop().await? {
        Some(stop) => format!("{} before anything was applied.", stop.why),
        None => "stopped before anything was applied.".to_owned(),
    };
    Ok(Shut::ForNow(UserText::new(message, [])))
}

async fn failed(
    cx: &CommandCx<'_>,
    report: ProjectReport,
    error: &RunError,
    stop: Option<Stop>,
) -> ProjectReport {
    let output = error.output().to_owned();
    if let RunError::Step(
        error @ StepError {
            why: StepFailure::Stopped { killed },
            ..
        },
    ) = error
    {
        // Nothing else stops an apply, not even the end of its pull request.
        let why = stop.map_or_else(
            || "Lockkeeper was shut down while this apply was under way".to_owned(),
            |s| s.why,
        );
        let message = format!("{why}, so {error}.");
        let left = if *killed {
            LEFT_BY_A_KILL
        } else {
            LEFT_BY_AN_INTERRUPT
        }
        .to_owned();
        let hints = iter::once(left)
            .chain(report.message.map(|closed| closed.message))
            .collect();
        let text = UserText { message, hints };
        return ProjectReport {
            outcome: ProjectOutcome::Cancelled,
            message: Some(text),
            output,
            ..report
        };
    }
    let mut hints = projects::hints(cx, error).await;
    if let RunError::Step(StepError {
        why: StepFailure::TimedOut { killed, .. },
        ..
    }) = error
    {
        hints.insert(
            0,
            if *killed {
                LEFT_BY_A_KILL
            } else {
                LEFT_BY_AN_INTERRUPT
            }
            .to_owned(),
        );
    }
    hints.extend(report.message.map(|closed| closed.message));
    let text = UserText {
        message: format!("{}.", describe_error(error)),
        hints,
    };
    ProjectReport {
        outcome: ProjectOutcome::Failed,
        message: Some(text),
        output,
        ..report
    }
}
