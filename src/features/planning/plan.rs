//! Runs `plan`, by comment or because the pull request changed.
//!
//! First it takes the locks of all projects. Then each project needs a permit of the pool, runs Terraform, and stores
//! the plan record. The record is kept only if the lock is still held at that moment. So a plan leaves nothing behind
//! if `unlock` or the end of the pull request overtakes it (P7). A project whose plan fails releases its lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use tracing::{Instrument, info_span};

use super::conflicts::{not_queued, queued};
use super::hooks::HookFacts;
use super::policy_checks;
use super::progress::StageProgress;
use super::project_run::{ProjectRun, ProjectStop, Task, refuse};
use super::projects::{self, ProjectSelection, Work};
use super::stop::Stop;
use super::{CommandCx, HandedLocks, needs, permission, tally, turn};
use crate::boxed::boxed;
use crate::command::{CommandName, CommandTarget, PlanCommand};
use crate::config::access::Action;
use crate::config::server::IdleStatuses;
use crate::discovery::Project;
use crate::discovery::terragrunt::Unresolved;
use crate::errors::describe_error;
use crate::features::applications::{UnknownState, registered};
use crate::features::registry::{module_notes, plan_notices, used_versions};
use crate::features::replies::{self, AnnotateFindings, NewestRuns, ProjectStatuses, Reply};
use crate::git::Checkout;
use crate::locks::{self, LockRequest, QueuedPlan, TakeAll, TakeOutcome};
use crate::model::{
    Cause, CommandKind, CommandOutcome, CommitState, Distribution, Lock, LockKey, Origin,
    PlanCounts, PlanId, PlanRecord, PlanState, ProjectKey, ProjectOutcome, RunKind,
};
use crate::queue::{Job, JobError};
use crate::render::{
    Body, Next, PlanList, PolicyReport, ProjectReport, UserText, plan_output, status,
};
use crate::store::{CommandState, NewJob, NewRun, PlanParts, RecordPlan};
use crate::workflow::{
    ArtifactError, PlanMade, ResourceList, RunError, RunOutput, Saved, StepError, StepFailure,
};

/// Plans automatically after a change. If somebody's comment waits for this reply, the reply lists every project, and
/// also says if there is none.
pub(super) async fn autoplan(cx: &CommandCx<'_>) -> Result<Reply, JobError> {
    let is_awaited = cx.ctx.store.command_stands_in(cx.row.id).await?;
    let wanted = if is_awaited {
        ProjectSelection::Asked(&CommandTarget::Generic)
    } else {
        ProjectSelection::Concerned
    };
    run(cx, &PlanCommand::default(), &wanted).await
}

pub(super) async fn by_comment(
    cx: &CommandCx<'_>,
    command: &PlanCommand,
) -> Result<Reply, JobError> {
    if let Some(refusal) =
        projects::argument_refusal(cx.ctx, CommandName::Plan, &command.extra_args, &[])
    {
        forget_attempt(cx).await?;
        return Ok(refusal);
    }
    run(cx, command, &ProjectSelection::Asked(&command.target)).await
}

/// Plans an application as it is on its branch.
pub(super) async fn of_application(
    cx: &CommandCx<'_>,
    command: &PlanCommand,
) -> Result<Reply, JobError> {
    match registered(cx.ctx, &cx.pull.at).await {
        Ok(application) => {
            run(
                cx,
                command,
                &ProjectSelection::Registered(&application.spec),
            )
            .await
        }
        Err(UnknownState::Refused(reason, text)) => {
            Ok(Reply::refused(reason, text.message, text.hints))
        }
        Err(error) => Err(JobError::retry(error)),
    }
}

/// Plans the requested projects whose locks became free after the pull request waited for them.
pub(super) async fn in_turn(cx: &CommandCx<'_>, turn: &HandedLocks) -> Result<Reply, JobError> {
    let reply = run(
        cx,
        &PlanCommand::default(),
        &ProjectSelection::Waited(&turn.asks),
    )
    .await?;
    let notes = turn
        .reasons
        .iter()
        .map(|reason| format!("The lock became free: this pull request was {reason}."));
    Ok(Reply {
        notes: notes.chain(reply.notes).collect(),
        ..reply
    })
}

async fn run(
    cx: &CommandCx<'_>,
    command: &PlanCommand,
    wanted: &ProjectSelection<'_>,
) -> Result<Reply, JobError> {
    let when = cx.ctx.settings.comments.silence.idle_statuses();
    let is_asked = !wanted.is_automatic();
    let pending = || replies::pending_status(cx.ctx, RunKind::Plan);
    cx.start(if may_be_idle(when, is_asked) {
        vec![pending()]
    } else {
        vec![]
    })
    .await?;
    forget_attempt(cx).await?;
    let given = HookFacts::of(&command.target, &command.extra_args);
    let work = match boxed(|| projects::select(cx, wanted, given)).await {
        Ok(work) => work,
        Err(stop) => return refused(cx, stop.into_reply()?, wanted).await,
    };
    if when == IdleStatuses::IfAsked && !is_asked && !work.projects.is_empty() {
        cx.status(pending()).await?;
    }
    if policy_checks::is_on(cx, &work, work.projects.iter().map(|project| &project.key)) {
        let running = replies::policies_status(cx.ctx, status::policies_running());
        cx.status(running).await?;
    }
    if wanted.is_everything() {
        let keep: Vec<_> = work
            .projects
            .iter()
            .map(|project| project.key.clone())
            .collect();
        let cause = cx.cause("the pull request no longer concerns the project");
        cx.ctx
            .store
            .plan_keep_only(&cx.pull.at, &keep, &cause)
            .await?;
        end_obsolete_statuses(cx, &keep).await?;
    }
    let lacking = work.lacking(cx).await?;
    let denied = denied(cx, &work).await?;
    let locks = boxed(|| take_locks(cx, &work, command, wanted, &denied)).await?;
    let order = PlanRequest {
        command,
        wanted,
        denied,
        locks,
        statuses: ProjectStatuses::of(cx.ctx, cx.pull, RunKind::Plan, work.projects.len()).await?,
        not_known: &work.not_known,
    };
    let running = work.projects.iter().filter(|project| order.runs(project));
    let mut reports = tokio::select! {
        reports = boxed(|| plan_in_order(cx, &work, &order)) => reports?,
        never = work.ask_early(cx, RunKind::Plan, running) => match never {},
    };
    if order.locks.gave_way.is_empty() {
        work.silence(RunKind::Plan, &mut reports);
    }
    let reply = boxed(|| answer(cx, &work, reports, &order)).await?;
    let behind = lacking.is_some().then(|| cx.pull.base_branch.clone());
    Ok(Reply {
        notes: lacking.into_iter().chain(reply.notes).collect(),
        behind,
        ..reply
    })
}

/// Plans the projects, group by group.
async fn plan_in_order(
    cx: &CommandCx<'_>,
    work: &Work,
    order: &PlanRequest<'_>,
) -> Result<Vec<ProjectReport>, JobError> {
    let mut progress = StageProgress::new(work.aborts());
    for stage in work.stages() {
        let halted = progress.halted(stage.group);
        let groups = stage
            .members
            .iter()
            .map(|group| boxed(|| plan_group(cx, work, group, order, halted.as_ref())));
        let reports = join_all(groups).await;
        cx.abandoned()?;
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
    Ok(progress.into_reports())
}

/// Ends what an earlier attempt of the command has left. A plan that the end of the server interrupted is made again (P3).
async fn forget_attempt(cx: &CommandCx<'_>) -> Result<(), sqlx::Error> {
    // Only an attempt that had started has runs.
    if cx.row.state != CommandState::Running {
        return Ok(());
    }
    let store = &cx.ctx.store;
    super::forget_cut_off(cx.ctx, store.run_list(cx.row.id).await?).await?;
    // If this attempt comes to another end, its reply does not show them (P5).
    store.plan_discard_of_command(&cx.pull.at, cx.row.id).await
}

/// Returns true if a plan sets statuses before its projects are known, and also if there are none.
fn may_be_idle(when: IdleStatuses, is_asked: bool) -> bool {
    match when {
        IdleStatuses::Always => true,
        IdleStatuses::IfAsked => is_asked,
        IdleStatuses::Never => false,
    }
}

/// Request for a plan, and the locks that could be taken for it.
struct PlanRequest<'a> {
    command: &'a PlanCommand,
    wanted: &'a ProjectSelection<'a>,
    denied: BTreeMap<ProjectKey, UserText>,
    locks: TakeAll,
    statuses: ProjectStatuses,
    not_known: &'a [Unresolved],
}

impl PlanRequest<'_> {
    /// Returns true if the project is planned: it may be, and its lock, if it needs one, could be taken.
    fn runs(&self, project: &Project) -> bool {
        let lock = self.locks.took.get(&project.key);
        !self.denied.contains_key(&project.key) && lock.is_none_or(TakeOutcome::is_held)
    }

    fn extra_args(&self, project: &ProjectKey) -> &[String] {
        self.wanted
            .extra_args(project)
            .unwrap_or(&self.command.extra_args)
    }
}

/// Finds projects that the author may not plan, or with an unmet requirement. No locks are taken for them.
async fn denied(
    cx: &CommandCx<'_>,
    work: &Work,
) -> Result<BTreeMap<ProjectKey, UserText>, JobError> {
    let mut denied = BTreeMap::new();
    for project in &work.projects {
        if let Some(why) = permission::check_project(cx, Action::Plan, &project.key).await? {
            denied.insert(project.key.clone(), why);
        } else if let Some(why) = needs::refusal_of_plan(cx, work, &project.key).await? {
            denied.insert(project.key.clone(), why);
        }
    }
    Ok(denied)
}

/// Takes all locks before any plan is made. A pull request that has to hand over a lock then loses no plan that it
/// was shown.
async fn take_locks(
    cx: &CommandCx<'_>,
    work: &Work,
    command: &PlanCommand,
    wanted: &ProjectSelection<'_>,
    denied: &BTreeMap<ProjectKey, UserText>,
) -> Result<TakeAll, JobError> {
    let ask = |project: &ProjectKey| QueuedPlan {
        project: project.clone(),
        extra_args: wanted
            .extra_args(project)
            .unwrap_or(&command.extra_args)
            .to_vec(),
    };
    let request = |project: &Project| {
        let policy = work.policy(&project.key);
        let key = LockKey::in_scope(policy.scope, &cx.pull.at.repo, &project.key);
        policy.mode.taken_by_plan().then(|| LockRequest {
            key,
            ask: ask(&project.key),
        })
    };
    let granted = work
        .projects
        .iter()
        .filter(|project| !denied.contains_key(&project.key));
    let requests: Vec<LockRequest> = granted.filter_map(request).collect();
    // People who request a run of an application do not expect one hours later.
    let may_queue = cx.ctx.settings.locking.queue && !cx.pull.at.subject.is_application();
    let all = locks::take_all(
        &cx.ctx.store,
        &cx.pull.at,
        &cx.pull.url,
        &requests,
        &cause(cx),
        may_queue,
    )
    .await?;
    tally::locks(cx.ctx, &all);
    let mut gone = wanted.waited_for();
    gone.retain(|project| work.projects.iter().all(|found| found.key != *project));
    turn::pass_on(cx.ctx, cx.row, gone).await?;
    Ok(all)
}

fn cause(cx: &CommandCx<'_>) -> Cause {
    match (cx.row.actor.origin, cx.row.kind == CommandKind::Autoplan) {
        (Origin::Queue, _) => cx.cause("planned when its turn came"),
        (_, true) => cx.cause("planned when the pull request changed"),
        (_, false) => cx.cause_of("planned"),
    }
}

/// Ends the statuses of projects that only an earlier search at this head has found. Nothing more will happen to
/// them, and failures must not remain.
async fn end_obsolete_statuses(cx: &CommandCx<'_>, keep: &[ProjectKey]) -> Result<(), JobError> {
    let runs = cx
        .ctx
        .store
        .run_list_of_head(&cx.pull.at, &cx.pull.head)
        .await?;
    for run in runs
        .into_iter()
        .filter(|run| run.has_status && !keep.contains(&run.project))
    {
        cx.status(replies::project_status(
            cx.ctx,
            run.kind,
            &run.project,
            run.id,
            status::not_concerned(),
        ))
        .await?;
    }
    Ok(())
}

/// Refuses the whole plan, so that nothing stays pending. A typing error in the name of a project does not change the
/// statuses of the pull request. A reason that prevents all plans is a failure.
async fn refused(
    cx: &CommandCx<'_>,
    reply: Reply,
    wanted: &ProjectSelection<'_>,
) -> Result<Reply, JobError> {
    turn::pass_on(cx.ctx, cx.row, wanted.waited_for()).await?;
    let targeted = !wanted.is_everything();
    let newest = NewestRuns::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?;
    let stays = targeted && !newest.is_empty();
    let status = if stays {
        newest.plan_status(cx.ctx)
    } else {
        replies::broken_status(cx.ctx, RunKind::Plan)
    };
    Ok(reply.with_statuses(&cx.pull.head, vec![status]))
}

/// Builds the reply and the combined statuses.
async fn answer(
    cx: &CommandCx<'_>,
    work: &Work,
    reports: Vec<ProjectReport>,
    order: &PlanRequest<'_>,
) -> Result<Reply, JobError> {
    let newest = if order.wanted.is_everything() {
        NewestRuns::of_search(cx.ctx, &cx.pull.at, &cx.pull.head, cx.row.id).await?
    } else {
        NewestRuns::of(cx.ctx, &cx.pull.at, &cx.pull.head).await?
    };
    if reports.is_empty()
        && !may_be_idle(
            cx.ctx.settings.comments.silence.idle_statuses(),
            !order.wanted.is_automatic(),
        )
    {
        // Statuses that an earlier plan has set must not stay when they are not true any more.
        let runs = cx
            .ctx
            .store
            .run_list_of_head(&cx.pull.at, &cx.pull.head)
            .await?;
        if runs.is_empty() {
            return Ok(told(cx, reports, order));
        }
    }
    let mut statuses = vec![newest.plan_status(cx.ctx)];
    statuses.extend(policy_checks::status(cx, &newest, |project| work.policies(project)).await?);
    statuses.extend(
        newest
            .apply_status_after_plan(cx.ctx, cx.pull, cx.row.id)
            .await?,
    );
    let jobs = annotate(cx, &reports).into_iter().collect();
    let reply = told(cx, reports, order).with_statuses(&cx.pull.head, statuses);
    Ok(Reply { jobs, ..reply })
}

/// Returns the job that shows the findings of policy checks beside the code, if there can be any. Findings of an earlier
/// plan are replaced, too.
fn annotate(cx: &CommandCx<'_>, reports: &[ProjectReport]) -> Option<NewJob> {
    let is_checked = reports.iter().any(|report| report.policies.is_some());
    if !is_checked && !policy_checks::may_be_on(cx) {
        return None;
    }
    AnnotateFindings::of_pull(&cx.pull.at, &cx.pull.head).map(|job| job.to_new())
}

/// Builds the reply to the command.
fn told(cx: &CommandCx<'_>, reports: Vec<ProjectReport>, order: &PlanRequest<'_>) -> Reply {
    let reply = match reports.is_empty() {
        false => Reply::new(Body::Projects(reports)),
        // Silence would say that no projects are concerned, which nobody knows.
        true if !order.not_known.is_empty() && !cx.ctx.settings.comments.silence.no_projects => {
            return Reply::new(Body::NoProjects(Some(none_known(cx, order.not_known))));
        }
        true if order.wanted.is_automatic() || cx.ctx.settings.comments.silence.no_projects => {
            Reply::silent(CommandOutcome::Success)
        }
        true => Reply::new(Body::NoProjects(None)),
    };
    let gave_way = order.locks.gave_way.iter().map(gave_way);
    Reply {
        notes: gave_way.chain(may_be_more(order.not_known)).collect(),
        ..reply
    }
}

/// Maximum number of places in a comment; `explain` lists all of them.
const PLACES: usize = 3;

fn places(not_known: &[Unresolved]) -> Vec<String> {
    let mut places: Vec<String> = not_known
        .iter()
        .take(PLACES)
        .map(|one| format!("`{}:{}`: {}", one.file, one.line, one.what))
        .collect();
    if not_known.len() > PLACES {
        places.push(format!("{} more places", not_known.len() - PLACES));
    }
    places
}

/// Notes that the plan may have left out units of Terragrunt, because their inputs are unknown.
fn may_be_more(not_known: &[Unresolved]) -> Option<String> {
    let more = "The change may concern more Terragrunt units than were planned, because some of their inputs cannot \
                be determined without running Terragrunt";
    (!not_known.is_empty()).then(|| format!("{more}: {}.", places(not_known).join("; ")))
}

fn none_known(cx: &CommandCx<'_>, not_known: &[Unresolved]) -> UserText {
    let word = cx.ctx.settings.comments.executable();
    let message = "No file that this pull request changes is known to belong to a project. The change may still \
                   concern Terragrunt units, because some of their inputs cannot be determined without running \
                   Terragrunt:";
    let next = format!(
        "Plan the affected directories by hand: `{word} plan -d DIR`. `{word} explain` lists all such places."
    );
    UserText::new(message, places(not_known).into_iter().chain([next]))
}

fn gave_way(lock: &Lock) -> String {
    format!(
        "The lock of {} was handed over to another pull request, because the two would have waited for each other \
         forever. This pull request is queued for the lock now. A plan under the lock was discarded.",
        lock.project
    )
}

/// Plans projects with the same directory and workspace one after the other, because they share files on disk.
async fn plan_group(
    cx: &CommandCx<'_>,
    work: &Work,
    group: &[&Project],
    order: &PlanRequest<'_>,
    halted: Option<&UserText>,
) -> Result<Vec<ProjectReport>, JobError> {
    let _turn = work.turn().await;
    let mut reports = Vec::new();
    for project in group {
        let span = info_span!("plan", project = %project.key);
        reports.push(
            plan_project(cx, work, project, order, halted)
                .instrument(span)
                .await?,
        );
    }
    Ok(reports)
}

async fn plan_project(
    cx: &CommandCx<'_>,
    work: &Work,
    project: &Project,
    order: &PlanRequest<'_>,
    halted: Option<&UserText>,
) -> Result<ProjectReport, JobError> {
    let new = NewRun {
        command: cx.row.id,
        kind: RunKind::Plan,
        pull: cx.pull.at.clone(),
        project: project.key.clone(),
    };
    let running = |id| {
        let line = status::running(RunKind::Plan);
        let status = replies::project_status(cx.ctx, RunKind::Plan, &project.key, id, line);
        cx.status_job(status)
    };
    let id = order.statuses.create_run(cx.ctx, &new, running).await?;
    cx.ctx.wake_up.send();
    let run = ProjectRun {
        cx,
        project: &project.key,
        kind: RunKind::Plan,
        id,
        has_status: order.statuses.has(&project.key),
        verbose: order.command.verbose,
        halted,
    };
    let planning = Planning {
        work,
        project,
        order,
    };
    run.drive(&planning).await
}

/// The plan of one project.
struct Planning<'a> {
    work: &'a Work,
    project: &'a Project,
    order: &'a PlanRequest<'a>,
}

impl Planning<'_> {
    /// Lock that was taken for the plan, if it needs one.
    fn lock(&self) -> Option<&Lock> {
        match self.order.locks.took.get(&self.project.key) {
            Some(TakeOutcome::Held(lock)) => Some(lock),
            Some(
                TakeOutcome::Queued { .. } | TakeOutcome::Refused { .. } | TakeOutcome::PullClosed,
            )
            | None => None,
        }
    }

    /// Stores the plan file and its record (P5).
    async fn record(
        &self,
        run: &ProjectRun<'_>,
        made: PlanMade,
        checkout: &Checkout,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let (cx, project, lock) = (run.cx, self.project, self.lock());
        let modules = used_versions(&cx.ctx.runs.registry, &made.modules);
        let mut read = read_output(&made);
        if let Err(why) = &modules
            && !read.no_changes
        {
            read.blocked.get_or_insert_with(|| why.clone());
        }
        let modules = modules.unwrap_or_default();
        let id = PlanId::next(&*cx.ctx.ids);
        let file = made.file.filter(|_| !read.no_changes);
        let saved = match save(cx, id, file).await? {
            Ok(saved) => saved,
            Err(error) => {
                drop_plan(cx, &project.key, lock).await?;
                return failed(cx, report, &RunError::Artifact(error)).await;
            }
        };
        let (digest, file) = saved.map(|saved| (saved.digest, saved.with_record)).unzip();
        let plan = PlanRecord {
            id,
            pull: cx.pull.at.clone(),
            project: project.key.clone(),
            run: run.id,
            head: checkout.head.clone(),
            base_branch: cx.pull.base_branch.clone(),
            base: checkout.base.clone(),
            distribution: made.tool.distribution,
            tool_version: made.tool.version,
            workflow: made.workflow,
            order_group: project.order.group,
            digest,
            counts: read.counts.unwrap_or_default(),
            blocked: read.blocked.clone(),
            state: if read.no_changes {
                PlanState::NoChanges
            } else {
                PlanState::Planned
            },
            created_at: cx.ctx.clock.now(),
        };
        let (held, file) = (lock.map(|lock| lock.id), file.flatten());
        let store = &cx.ctx.store;
        let parts = PlanParts {
            modules: &modules,
            verdicts: &made.policies,
        };
        match store
            .plan_record(&plan, held, file.as_deref(), &parts)
            .await?
        {
            RecordPlan::Recorded => {
                let notes = if modules.is_empty() {
                    Vec::new()
                } else {
                    module_notes(&plan_notices(cx.ctx, cx.pull, id).await?)
                };
                let stays = !give_back_unused(cx, &plan).await?;
                let lock_url = lock
                    .filter(|_| stays)
                    .map(|lock| cx.ctx.settings.lock_url(lock.id));
                let planned = planned(report, made.output, read);
                let policies = self.policies(run, id).await?;
                let report = ProjectReport {
                    outcome: match &policies {
                        Some(policies) if !policies.is_met() => ProjectOutcome::PolicyFailed,
                        Some(_) | None => planned.outcome,
                    },
                    lock_url,
                    modules: notes,
                    policies,
                    ..planned
                };
                Ok(ProjectReport {
                    status: (!report.may_be_applied()).then(|| WILL_NOT_BE_APPLIED.to_owned()),
                    ..report
                })
            }
            lost @ (RecordPlan::LockLost | RecordPlan::Overtaken) => {
                cx.ctx
                    .runs
                    .artifacts
                    .remove(id)
                    .await
                    .map_err(JobError::retry)?;
                if lost == RecordPlan::Overtaken {
                    Err(super::taken_over())
                } else {
                    not_kept(cx, report).await
                }
            }
        }
    }

    /// Reports on the policy sets of a plan that was just recorded. Approvals of an earlier plan may count for it.
    async fn policies(
        &self,
        run: &ProjectRun<'_>,
        plan: PlanId,
    ) -> Result<Option<PolicyReport>, sqlx::Error> {
        let rules = self.work.policies(run.project);
        let Some(sets) = rules.sets(run.project, &run.cx.pull.labels) else {
            return Ok(None);
        };
        let found = run.cx.ctx.store.policy_results_of_run(run.id).await?;
        let today = policy_checks::today(run.cx);
        let report = policy_checks::report(&sets, &found.unwrap_or_default(), plan, today);
        Ok(if rules.workflow(run.project).keeps_output_private() {
            report.map(policy_checks::without_output)
        } else {
            report
        })
    }
}

impl Task for Planning<'_> {
    type Begun = ();
    type Done = Result<(PlanMade, Arc<Checkout>), RunError>;

    fn tool(&self, run: &ProjectRun<'_>) -> Distribution {
        self.work.distribution(run.cx, run.project)
    }

    fn still_ours(&self, cx: &CommandCx<'_>) -> Result<(), JobError> {
        cx.abandoned()
    }

    async fn check(&self, run: &ProjectRun<'_>, report: &ProjectReport) -> Result<(), ProjectStop> {
        let (cx, key) = (run.cx, run.project);
        if let Some(why) = self.order.denied.get(key) {
            return Err(refuse(report, ProjectOutcome::Refused, why.clone()));
        }
        if let Some(took) = self.order.locks.took.get(key)
            && self.lock().is_none()
        {
            let report = without_lock(cx, report.clone(), took);
            return Err(Stop::Reply(Box::new(report)));
        }
        if let Some(why) = run.skipped() {
            drop_plan(cx, key, self.lock()).await?;
            return Err(refuse(report, ProjectOutcome::Skipped, why.clone()));
        }
        Ok(())
    }

    async fn not_begun(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        drop_plan(run.cx, run.project, self.lock()).await?;
        let why = format!("{} before its turn came.", why_stopped(run.cx).await?);
        Ok(stopped(report.clone(), &why))
    }

    async fn begin(&self, run: &ProjectRun<'_>, _: &ProjectReport) -> Result<(), ProjectStop> {
        Ok(run.cx.ctx.store.run_start(run.id).await?)
    }

    fn is_private(&self, run: &ProjectRun<'_>, (): &()) -> bool {
        let workflow = self.work.policies(run.project).workflow(run.project);
        workflow.keeps_output_private()
    }

    async fn carry_out(
        &self,
        run: &ProjectRun<'_>,
        (): &(),
        output: &RunOutput,
    ) -> Result<(PlanMade, Arc<Checkout>), RunError> {
        let extra = self.order.extra_args(run.project);
        self.work.plan(run.cx, self.project, extra, output).await
    }

    fn error(done: &Self::Done) -> Option<&RunError> {
        done.as_ref().err()
    }

    async fn end(
        &self,
        run: &ProjectRun<'_>,
        (): (),
        made: Self::Done,
        report: ProjectReport,
    ) -> Result<ProjectReport, JobError> {
        let (cx, lock) = (run.cx, self.lock());
        match made {
            Ok((made, checkout)) => self.record(run, made, &checkout, report).await,
            Err(error) => {
                drop_plan(cx, run.project, lock).await?;
                failed(cx, report, &error).await
            }
        }
    }

    async fn last_status(
        &self,
        run: &ProjectRun<'_>,
        report: &ProjectReport,
    ) -> Result<Option<NewJob>, JobError> {
        let cx = run.cx;
        let was_stopped = report.outcome == ProjectOutcome::Cancelled;
        let stop = if was_stopped {
            cx.superseded().await?
        } else {
            None
        };
        let state = if let Some(stop) = stop {
            status::superseded(RunKind::Plan, &stop.why)
        } else {
            let (state, line) = status::project(RunKind::Plan, report.outcome, report.counts);
            let state = if report.may_be_applied() {
                state
            } else {
                CommitState::Failure
            };
            (state, report.status.clone().unwrap_or(line))
        };
        let status = replies::project_status(cx.ctx, run.kind, run.project, run.id, state);
        Ok(cx.last_status_job(status))
    }
}

/// Reports that the lock was not taken.
fn without_lock(cx: &CommandCx<'_>, report: ProjectReport, took: &TakeOutcome) -> ProjectReport {
    match took {
        TakeOutcome::Held(_) => report,
        TakeOutcome::Queued { holder, place } => queued(cx, report, holder, *place),
        TakeOutcome::Refused { holder, why } => not_queued(cx, report, holder, why),
        TakeOutcome::PullClosed => {
            stopped(report, "the pull request was closed before its turn came.")
        }
    }
}

/// Discards an earlier plan of a project whose new plan was not made, and releases the lock that was taken for it. A
/// plan that will be made again keeps both: this command after a restart, or the newer plan, makes it.
async fn drop_plan(
    cx: &CommandCx<'_>,
    project: &ProjectKey,
    lock: Option<&Lock>,
) -> Result<(), JobError> {
    if cx.abandoned().is_err() || cx.superseded().await?.is_some() {
        return Ok(());
    }
    match lock {
        Some(_) => {
            let cause = cx.cause("the plan did not finish");
            Ok(cx.ctx.store.plan_drop(&cx.pull.at, project, &cause).await?)
        }
        None => Ok(cx.ctx.store.plan_discard(&cx.pull.at, project).await?),
    }
}

/// Status of a project whose plan will not be applied.
const WILL_NOT_BE_APPLIED: &str = "Planned, but will not be applied: see the comment.";

fn planned(report: ProjectReport, output: String, read: PlanReading) -> ProjectReport {
    let PlanReading {
        counts,
        no_changes,
        changes_outside,
        list,
        uncompared,
        blocked,
    } = read;
    let outcome = if no_changes {
        ProjectOutcome::NoChanges
    } else {
        ProjectOutcome::Planned
    };
    ProjectReport {
        outcome,
        output,
        counts,
        list,
        uncompared,
        blocked,
        changes_outside,
        ..report
    }
}

/// Releases the lock of an application that has nothing to apply, because an application has no end of its own. A
/// pull request keeps its lock until it is merged or closed, even if there is nothing to apply yet.
async fn give_back_unused(cx: &CommandCx<'_>, plan: &PlanRecord) -> Result<bool, JobError> {
    if plan.state != PlanState::NoChanges || !plan.pull.subject.is_application() {
        return Ok(false);
    }
    Ok(cx
        .ctx
        .store
        .lock_release(
            &plan.pull,
            &plan.project,
            &cx.cause("the plan has no changes"),
        )
        .await?)
}

/// Facts read from a plan that was made.
struct PlanReading {
    /// Numbers of the planned changes.
    counts: Option<PlanCounts>,
    no_changes: bool,
    changes_outside: bool,
    list: PlanList,
    /// True if the text is incomplete, so that nobody can check it against the plan file.
    uncompared: bool,
    /// Reason why it must not be applied.
    blocked: Option<String>,
}

/// Reads a plan. The plan file says what the plan would do. The output of the built-in `plan` step has to say the
/// same, because people read both. Commands of the administrator may print text that a pull request controls, in a
/// form of their own. So their text is not compared, and a plan that they make always counts as one to apply.
fn read_output(made: &PlanMade) -> PlanReading {
    let text = plan_output::summary(
        made.plan_output
            .as_ref()
            .map_or(&made.output, |plan| &plan.text),
    );
    let by_text = PlanReading {
        counts: text.counts,
        no_changes: text.no_changes && made.plan_output.is_some(),
        changes_outside: text.changes_outside,
        list: PlanList::None,
        uncompared: false,
        blocked: None,
    };
    match (&made.shown, &made.plan_output) {
        (ResourceList::NoFile, _) => by_text,
        (ResourceList::TooOld, _) => {
            let tool = format!("{} {}", made.tool.distribution.title(), made.tool.version);
            let why = format!(
                "{tool} cannot show a plan in a machine-readable form; this requires 0.12 or later"
            );
            PlanReading {
                list: PlanList::Missing(why),
                ..by_text
            }
        }
        (ResourceList::Failed(why), None) => PlanReading {
            list: PlanList::Missing(why.clone()),
            ..by_text
        },
        (ResourceList::Failed(why), Some(_)) => {
            let blocked = Some(format!(
                "the resources that it changes cannot be determined, because {why}"
            ));
            PlanReading {
                no_changes: false,
                list: PlanList::Missing(why.clone()),
                blocked,
                ..by_text
            }
        }
        (ResourceList::Listed(changes), plan) => {
            let no_changes = by_text.no_changes && changes.is_empty();
            // A text without numbers is about outputs or a refresh; its numbers would all be zero.
            let has_counts = text.counts.is_some() || !changes.resources.is_empty();
            let compared = plan.as_ref().filter(|plan| !plan.is_cut);
            let why = compared.and_then(|plan| plan_output::disagreement(&plan.text, changes));
            let blocked = why.map(|why| {
                format!("the text of the plan and its machine-readable form disagree: {why}. The list is that of the plan file")
            });
            PlanReading {
                counts: has_counts.then(|| changes.counts()),
                no_changes,
                list: if no_changes {
                    PlanList::None
                } else {
                    PlanList::Of(changes.clone())
                },
                uncompared: plan.as_ref().is_some_and(|plan| plan.is_cut),
                blocked,
                ..by_text
            }
        }
    }
}

/// Saves the plan file. The people at the pull request have to deal with a file that is too large. Any other error
/// may be temporary.
async fn save(
    cx: &CommandCx<'_>,
    id: PlanId,
    file: Option<Vec<u8>>,
) -> Result<Result<Option<Saved>, ArtifactError>, JobError> {
    let Some(file) = file else {
        return Ok(Ok(None));
    };
    match cx.ctx.runs.artifacts.save(id, file).await {
        Ok(saved) => Ok(Ok(Some(saved))),
        Err(error @ ArtifactError::TooLarge { .. }) => Ok(Err(error)),
        Err(error) => Err(JobError::retry(error)),
    }
}

/// Reports that the lock was released while the plan was made.
async fn not_kept(cx: &CommandCx<'_>, report: ProjectReport) -> Result<ProjectReport, JobError> {
    let stop = cx.asked_to_stop().await?;
    let next = if stop.is_some() {
        Next::Nothing
    } else {
        Next::Plan
    };
    let why = stop.map_or_else(|| "the lock was released".to_owned(), |stop| stop.why);
    let message = format!("{why} while the plan was made, so it was not kept.");
    Ok(ProjectReport {
        next,
        ..stopped(report, &message)
    })
}

/// Reports a plan that was stopped early. The same reason would stop the next plan too, so no new plan is offered.
fn stopped(report: ProjectReport, why: &str) -> ProjectReport {
    let message = Some(UserText::new(why, []));
    ProjectReport {
        outcome: ProjectOutcome::Cancelled,
        message,
        next: Next::Nothing,
        ..report
    }
}

async fn why_stopped(cx: &CommandCx<'_>) -> Result<String, JobError> {
    let stop = cx.asked_to_stop().await?;
    Ok(stop.map_or_else(|| "the server was stopped".to_owned(), |stop| stop.why))
}

async fn failed(
    cx: &CommandCx<'_>,
    report: ProjectReport,
    error: &RunError,
) -> Result<ProjectReport, JobError> {
    let report = ProjectReport {
        output: error.output().to_owned(),
        ..report
    };
    if let RunError::Step(StepError {
        step,
        why: StepFailure::Stopped { .. },
        ..
    }) = error
    {
        let message = format!("{}, so {step} was interrupted.", why_stopped(cx).await?);
        return Ok(stopped(report, &message));
    }
    let text = UserText {
        message: format!("{}.", describe_error(error)),
        hints: projects::hints(cx, error).await,
    };
    Ok(ProjectReport {
        outcome: ProjectOutcome::Failed,
        message: Some(text),
        ..report
    })
}
