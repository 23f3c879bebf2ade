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

use gate::GateRefusal;

use super::hooks::{self, HookFacts};
use super::merging::{self, AfterApply};
use super::policies::PlannedRules;
use super::progress::StageProgress;
use super::project_run::{ProjectRun, ProjectStop, Task, refuse};
use super::projects::{self, ApplyInputs, PlanUse, Work};
use super::stop::Stop;
use super::{CommandCx, permission};
use crate::command::{ApplyCommand, CommandName};
use crate::config::access::Action;
use crate::context::Ctx;
use crate::discovery::{OrderPosition, ProjectGroup, stages};
use crate::errors::describe_error;
use crate::features::replies::{self, NewestRuns, ProjectStatuses, Reply};
use crate::model::{
    CommitSha, Distribution, PlanRecord, PlanState, ProjectOutcome, PullRef, PullState, RunId,
    RunKind, WorkspaceName,
};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText, status};
use crate::store::{ApplyGrant, NewJob, NewRun, StopRequest};
use crate::workflow::{
    CheckedOut, CheckoutError, RunError, RunOutput, Source, StepError, StepFailure,
};

const LEFT_BY_AN_INTERRUPT: &str =
    "The state has the changes that were applied until then. Plan again to see what is left.";
const LEFT_BY_A_KILL: &str = "The infrastructure may have changes that the state does not have. Compare both, then \
                              plan again to see what is left.";

pub(super) async fn run(cx: &CommandCx<'_>, command: &ApplyCommand) -> Result<Reply, Stop> {
    if let Some(refusal) = refusal(cx, command) {
        return Ok(refusal);
    }
    let plans = projects::plans(cx, &command.target, PlanUse::Apply).await?;
    if let Some(refusal) = stopped::refusal(cx, &plans).await? {
        return Ok(refusal);
    }
    // If somebody changed the mirror, the reads below would only find files missing.
    cx.ctx
        .checkouts
        .check_mirror(&cx.pull.at.repo)
        .map_err(projects::checkout_refusal)?;
    check_base(cx).await?;
    // Plans of other commits are refused, so their configuration must not affect the other plans.
    let meant: Vec<&PlanRecord> = plans
        .iter()
        .filter(|plan| gate::compare(cx.pull, plan).is_ok())
        .collect();
    let policies = PlannedRules::read(cx, &meant).await?;
    if let Some(refusal) = policies.refusal() {
        return Ok(refusal);
    }
    if let Some(refusal) = merging::method_without_merge(cx, command, &policies) {
        return Ok(refusal);
    }
    cx.start(vec![replies::pending_status(cx.ctx, RunKind::Apply)])
        .await?;
    let work = Work::of_plans(cx.ctx, policies, &meant);
    let hooked = match run_hooks(cx, &work, &meant, command).await {
        Ok(hooked) => hooked,
        Err(stop) => return Ok(refused_by_hook(cx, stop.into_reply()?).await?),
    };
    let (mut progress, hooked) = (StageProgress::new(work.aborts()), hooked.as_ref());
    let statuses = ProjectStatuses::of(cx.ctx, cx.pull, RunKind::Apply, plans.len()).await?;
    let runs = runs_to_come(cx, plans, &statuses).await?;
    for stage in in_order(&work, runs) {
        let halted = progress.halted(stage.group);
        let applying = |(run, plan): PlannedRun| Applying {
            work: &work,
            run,
            has_status: statuses.has(&plan.project),
            plan,
            command,
            hooked,
        };
        let groups = stage
            .members
            .into_iter()
            .map(|group| group.into_iter().map(applying).collect());
        let reports =
            join_all(groups.map(|group| apply_group(cx, group, command.verbose, halted.as_ref())))
                .await;
        cx.left_to_others()?;
        progress.add(
            stage.group,
            reports
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .flatten()
                .collect(),
        );
    }
    let mut reports = progress.into_reports();
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
            "Commits were pushed during this apply: commit `{}` was applied, and the newest commit is `{}`.",
            cx.pull.head.short(),
            newer.short()
        )
    }))
}

/// Refuses a pull request if its base branch does not exist any more. It cannot be merged, so its applied code would
/// not be in any branch.
async fn check_base(cx: &CommandCx<'_>) -> Result<(), Stop> {
    if cx.pull.at.subject.is_application() || cx.early.has_base(cx.pull) {
        return Ok(());
    }
    let base = &cx.pull.base_branch;
    let repo = &cx.pull.at.repo;
    let tip = async { cx.ctx.forges.of(repo)?.branch_tip(repo, base).await }.await;
    if tip?.is_some() {
        return Ok(());
    }
    let base = base.clone();
    Err(projects::checkout_refusal(CheckoutError::BaseGone { base }))
}

/// Returns the refusal of a command that is wrong in itself.
fn refusal(cx: &CommandCx<'_>, command: &ApplyCommand) -> Option<Reply> {
    projects::argument_refusal(cx.ctx, CommandName::Apply, &command.extra_args, &[])
        .or_else(|| forbids_all(cx, command).then(|| no_apply_all(cx)))
}

/// A plan and the run that is to apply it.
type PlannedRun = (RunId, PlanRecord);

/// Sorts the plans by the configuration of the planned commit. If it cannot be read, the plans are sorted by their
/// groups.
fn in_order(work: &Work, runs: Vec<PlannedRun>) -> Vec<ProjectGroup<Vec<PlannedRun>>> {
    let order = |run: PlannedRun| {
        (
            work.order(&run.1)
                .unwrap_or_else(|| OrderPosition::in_group(run.1.order_group)),
            run,
        )
    };
    let all = stages(
        runs.into_iter().map(order).collect(),
        |(order, (_, plan))| (&plan.project, order),
    );
    let without = |stage: ProjectGroup<(OrderPosition, PlannedRun)>| ProjectGroup {
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
) -> Result<Option<CheckedOut>, Stop> {
    let rules = work.rules();
    let first = meant
        .iter()
        .find(|plan| gate::nothing_left(plan.state).is_none())
        .or(meant.first());
    let Some(plan) = first.filter(|_| hooks::any(cx, rules)) else {
        return Ok(None);
    };
    let fetched = cx.ctx.checkouts.fetch_plan(plan).await;
    let source = fetched.map_err(projects::checkout_refusal)?;
    let checkout = work
        .checkout_of(cx, &source, &WorkspaceName::default())
        .await
        .map_err(projects::checkout_refusal)?;
    let given = HookFacts::of(&command.target, &command.extra_args);
    hooks::before(cx, rules, &checkout, given).await?;
    let ran_in = || cx.ctx.checkouts.checked_out(&Source::of_plan(plan));
    Ok(hooks::any_before(cx, rules).then(ran_in))
}

/// Adds the status of applies to a refusal. Nothing was applied, so the pull request has the same state as before.
async fn refused_by_hook(cx: &CommandCx<'_>, refusal: Reply) -> Result<Reply, JobError> {
    let newest = NewestRuns::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    Ok(refusal.with_statuses(&cx.pull.head, vec![newest.apply_status(cx.ctx)]))
}

/// Checks `--disable-apply-all` (reference 10.2): an apply has to name its target.
fn forbids_all(cx: &CommandCx<'_>, command: &ApplyCommand) -> bool {
    cx.ctx.settings.comments.look.disable_apply_all && !command.target.is_targeted()
}

fn no_apply_all(cx: &CommandCx<'_>) -> Reply {
    let word = cx.ctx.settings.comments.executable();
    Reply::refused(
        "apply_all_disabled",
        "on this server, an apply must name its project (`--disable-apply-all`).".to_owned(),
        vec![format!(
            "Comment `{word} apply -d DIR -w WORKSPACE` or `{word} apply -p PROJECT`. The comment with the plan has \
             the exact command."
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
    let newest = NewestRuns::of(ctx, pull, head).await?;
    Ok(Reply::new(body).with_statuses(head, vec![newest.apply_status(ctx)]))
}

/// Creates a run for every plan before the first begins, so that an interrupted apply can report each of them.
async fn runs_to_come(
    cx: &CommandCx<'_>,
    plans: Vec<PlanRecord>,
    statuses: &ProjectStatuses,
) -> Result<Vec<PlannedRun>, JobError> {
    let mut runs = Vec::new();
    for plan in plans {
        let (pull, project) = (cx.pull.at.clone(), plan.project.clone());
        let new = NewRun {
            command: cx.row.id,
            kind: RunKind::Apply,
            pull,
            project,
        };
        runs.push((statuses.create_run(cx.ctx, &new, |_| None).await?, plan));
    }
    Ok(runs)
}

/// Applies plans with the same directory and workspace one after the other, because they share files on disk.
async fn apply_group(
    cx: &CommandCx<'_>,
    group: Vec<Applying<'_>>,
    verbose: bool,
    halted: Option<&UserText>,
) -> Result<Vec<ProjectReport>, JobError> {
    let mut reports = Vec::new();
    let Some(first) = group.first() else {
        return Ok(reports);
    };
    let _turn = first.work.turn().await;
    for applying in &group {
        let run = ProjectRun {
            cx,
            project: &applying.plan.project,
            kind: RunKind::Apply,
            id: applying.run,
            has_status: applying.has_status,
            verbose,
            halted,
        };
        if run.has_status {
            let line = status::running(run.kind);
            cx.status(replies::project_status(
                cx.ctx,
                run.kind,
                run.project,
                run.id,
                line,
            ))
            .await?;
        }
        let span = info_span!("apply", project = %applying.plan.project);
        reports.push(run.drive(applying).instrument(span).await?);
    }
    Ok(reports)
}

/// The apply of one plan.
struct Applying<'a> {
    work: &'a Work,
    run: RunId,
    has_status: bool,
    plan: PlanRecord,
    command: &'a ApplyCommand,
    /// State on which the hooks before it ran, if there were any.
    hooked: Option<&'a CheckedOut>,
}

impl Task for Applying<'_> {
    type Begun = (ApplyInputs, ApplyGrant);
    type Done = Result<String, RunError>;

    fn tool(&self, _: &ProjectRun<'_>) -> Distribution {
        self.plan.distribution
    }

    fn still_ours(&self, cx: &CommandCx<'_>) -> Result<(), JobError> {
        cx.left_to_others()
    }

    async fn check(&self, run: &ProjectRun<'_>, report: &ProjectReport) -> Result<(), ProjectStop> {
        let (cx, plan) = (run.cx, &self.plan);
        let shut = |shut: GateRefusal| shut.into_stop(cx, report);
        gate::compare(cx.pull, plan).map_err(shut)?;
        if let Some(message) = permission::check_project(cx, Action::Apply, &plan.project).await? {
            return Err(shut(GateRefusal::ForNow(message)));
        }
        if let Some(why) = gate::nothing_left(plan.state) {
            let applied = status::project(RunKind::Apply, ProjectOutcome::Applied, None).1;
            return Err(Stop::Reply(Box::new(ProjectReport {
                outcome: ProjectOutcome::UpToDate,
                message: Some(UserText::new(why, [])),
                status: (plan.state == PlanState::Applied).then_some(applied),
                ..report.clone()
            })));
        }
        if let Some(blocked) = gate::blocked(plan) {
            return Err(shut(blocked));
        }
        if let Some(why) = run.skipped() {
            return Err(refuse(report, ProjectOutcome::Skipped, why.clone()));
        }
        if let Some(why) =
            projects::argument_of_other_tool(cx.ctx, &self.command.extra_args, plan.distribution)
        {
            let text = UserText::new(format!("{why}. Nothing was applied."), []);
            return Err(shut(GateRefusal::ForNow(text)));
        }
        gate::seen_by_hooks(cx, self.hooked, plan).map_err(shut)?;
        if let Some(why) = dependencies::unmet(cx, self.work, plan).await? {
            return Err(shut(GateRefusal::ForNow(why)));
        }
        Ok(())
    }

    /// Reports that the apply has not begun. The plan stays valid.
    async fn not_begun(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let message = match run.cx.asked_to_stop().await? {
            Some(stop) => format!("{} before anything was applied.", stop.why),
            None => "stopped before anything was applied.".to_owned(),
        };
        let shut = GateRefusal::ForNow(UserText::new(message, []));
        Ok(shut.into_report(run.cx, report.clone()))
    }

    /// After it the apply has begun, even if it fails.
    async fn begin(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<(ApplyInputs, ApplyGrant), ProjectStop> {
        let cx = run.cx;
        let ready = gate::prepare(cx, self.work, self.command, &self.plan)
            .await
            .map_err(|shut| shut.into_stop(cx, report))?;
        if cx.stop.is_cancelled() {
            return Err(Stop::Reply(Box::new(self.not_begun(run, report).await?)));
        }
        match gate::pass(cx, self.work, &self.plan, run.id, &ready).await {
            Ok(grant) => Ok((ready, grant)),
            Err(Stop::Reply(shut)) => Err(shut.into_stop(cx, report)),
            Err(Stop::Job(error)) => Err(Stop::Job(error)),
        }
    }

    fn is_private(&self, _: &ProjectRun<'_>, (ready, _): &(ApplyInputs, ApplyGrant)) -> bool {
        ready.workflow.keeps_output_private()
    }

    async fn carry_out(
        &self,
        run: &ProjectRun<'_>,
        (ready, _): &(ApplyInputs, ApplyGrant),
        output: &RunOutput,
    ) -> Result<String, RunError> {
        let extra = &self.command.extra_args;
        self.work
            .apply(run.cx, &self.plan, ready, extra, output)
            .await
    }

    fn error(done: &Self::Done) -> Option<&RunError> {
        done.as_ref().err()
    }

    async fn end(
        &self,
        run: &ProjectRun<'_>,
        (_ready, grant): (ApplyInputs, ApplyGrant),
        applied: Self::Done,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let cx = run.cx;
        if cx.lost.is_cancelled() {
            return Ok(report);
        }
        let state = if applied.is_ok() {
            PlanState::Applied
        } else {
            PlanState::ApplyFailed
        };
        let cause = cx.cause("the apply ended");
        cx.ctx
            .store
            .apply_end(grant, &cx.pull.at, state, &cause)
            .await?;
        let report = ProjectReport {
            message: closed_meanwhile(cx).await?,
            ..report
        };
        match applied {
            Ok(output) => Ok(ProjectReport {
                outcome: ProjectOutcome::Applied,
                output,
                ..report
            }),
            Err(error) => {
                let checkouts = &cx.ctx.checkouts;
                let report = ProjectReport {
                    state_lock: checkouts
                        .state_lock_left(&cx.pull.at, &self.plan.project)
                        .await,
                    ..report
                };
                Ok(failed(cx, report, &error, cx.asked_to_stop().await?).await)
            }
        }
    }

    async fn last_status(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<Option<NewJob>, JobError> {
        let cx = run.cx;
        let (state, line) = status::project(run.kind, report.outcome, report.counts);
        let state = (state, report.status.clone().unwrap_or(line));
        let status = replies::project_status(cx.ctx, run.kind, run.project, run.id, state);
        Ok(cx.status_job(status))
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

async fn failed(
    cx: &CommandCx<'_>,
    report: ProjectReport,
    error: &RunError,
    stop: Option<StopRequest>,
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
            || "Lockkeeper was shut down during this apply".to_owned(),
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
