//! Summarises the state of a pull request at its head commit, over all its commands, and derives its statuses.

use std::collections::{BTreeMap, BTreeSet};

use super::queued;
use crate::command::Command;
use crate::context::Ctx;
use crate::features::planning::CommandSpec;
use crate::model::{
    CommandId, CommandKind, CommitSha, CommitState, CommitStatus, PlanRecord, PlanState,
    ProjectKey, ProjectOutcome, Pull, PullRef, RunId, RunKind,
};
use crate::render::status::{self, StatusSummary};
use crate::store::{NewJob, NewRun, RunRow};

/// Newest run of each project at the head commit of a pull request, since the last search for its projects.
pub(crate) struct NewestRuns {
    projects: Vec<ProjectKey>,
    all: Vec<StatusSummary>,
    search: Option<StatusSearch>,
    /// Outcomes of all finished plans and applies at the head, with their commands.
    ended: Vec<(CommandId, RunKind, Option<ProjectOutcome>)>,
}

/// A plan of the whole pull request.
#[derive(Clone, Copy)]
pub(crate) struct StatusSearch {
    /// Command that made the plan.
    pub command: CommandId,
    /// True for an automatic plan. It has left out projects that are only planned by comment (`autoplan: {enabled:
    /// false}`).
    pub is_automatic: bool,
}

impl NewestRuns {
    /// Summarises the stored runs. Projects that only an earlier search found do not concern the pull request any
    /// more.
    pub async fn of(ctx: &Ctx, pull: &PullRef, head: &CommitSha) -> Result<Self, sqlx::Error> {
        let runs = ctx.store.run_list_of_head(pull, head).await?;
        let (search, ended) = (newest_search(ctx, &runs).await?, ended(&runs));
        let newest = runs
            .into_iter()
            .filter(|run| search.is_none_or(|search| run.command >= search.command));
        Ok(Self {
            search,
            ended,
            ..Self::sum(ctx, newest).await?
        })
    }

    /// Summarises the runs of a plan of the whole pull request, which works on its head.
    pub async fn of_search(
        ctx: &Ctx,
        pull: &PullRef,
        head: &CommitSha,
        command: CommandId,
    ) -> Result<Self, sqlx::Error> {
        let runs = ctx.store.run_list_of_head(pull, head).await?;
        let ended = ended(&runs);
        let own = runs.into_iter().filter(|run| run.command == command);
        Ok(Self {
            ended,
            ..Self::sum(ctx, own).await?
        })
    }

    async fn sum(ctx: &Ctx, runs: impl IntoIterator<Item = RunRow>) -> Result<Self, sqlx::Error> {
        let mut newest: BTreeMap<ProjectKey, RunRow> = BTreeMap::new();
        for run in runs
            .into_iter()
            .filter(|run| run.outcome.is_some() && run.kind.has_status())
        {
            // A second apply of an applied plan does not change the state of the project.
            let was_applied = newest
                .get(&run.project)
                .is_some_and(|old| old.outcome == Some(ProjectOutcome::Applied));
            if !(was_applied && run.outcome == Some(ProjectOutcome::UpToDate)) {
                newest.insert(run.project.clone(), run);
            }
        }
        let plans = match newest
            .values()
            .find(|run| run.outcome.is_some_and(leaves_a_plan))
        {
            Some(run) => ctx.store.plan_list(&run.pull).await?,
            None => Vec::new(),
        };
        let waiting = match newest
            .values()
            .find(|run| run.outcome == Some(ProjectOutcome::Waiting))
        {
            Some(run) => ctx.store.waiter_list_of_pull(&run.pull).await?,
            None => Vec::new(),
        };
        let (mut projects, mut all) = (Vec::new(), Vec::new());
        for (project, run) in newest {
            let Some(outcome) = run.outcome else { continue };
            let waiter = waiting.iter().find(|waiter| waiter.key.covers(&project));
            let (outcome, waits) = match (outcome, waiter) {
                (ProjectOutcome::Waiting, Some(waiter)) => (
                    ProjectOutcome::Waiting,
                    queued::queue_place(ctx, waiter).await?.or(run.message),
                ),
                // The project has left the queue, so nothing will happen automatically.
                (ProjectOutcome::Waiting, None) => (ProjectOutcome::Cancelled, None),
                (outcome, _) => (outcome, None),
            };
            let plan = plans.iter().find(|plan| plan.project == project);
            // Policies have a status of their own.
            let outcome = match (outcome, plan) {
                (ProjectOutcome::PolicyFailed, Some(plan))
                    if plan.state == PlanState::NoChanges =>
                {
                    ProjectOutcome::NoChanges
                }
                (ProjectOutcome::PolicyFailed, _) => ProjectOutcome::Planned,
                (outcome, _) => outcome,
            };
            let is_blocked = outcome == ProjectOutcome::Planned
                && plan.is_some_and(|plan| plan.blocked.is_some());
            let is_gone = leaves_a_plan(outcome) && plan.is_none();
            let outcome = if is_gone {
                ProjectOutcome::Discarded
            } else {
                outcome
            };
            all.push(StatusSummary {
                kind: run.kind,
                outcome,
                waits,
                is_blocked,
            });
            projects.push(project);
        }
        Ok(Self {
            projects,
            all,
            search: None,
            ended: Vec::new(),
        })
    }

    /// Returns true if a run exists for a project that fits.
    pub fn any(&self, is_it: impl Fn(&ProjectKey) -> bool) -> bool {
        self.projects.iter().any(is_it)
    }

    /// Returns the projects of all runs.
    pub fn projects(&self) -> impl Iterator<Item = &ProjectKey> {
        self.projects.iter()
    }

    /// Returns the newest plan of the whole pull request at this head.
    pub fn search(&self) -> Option<StatusSearch> {
        self.search
    }

    /// Returns true if the newest run of a project has applied it, or has found nothing to change.
    pub fn is_done(&self, project: &ProjectKey) -> bool {
        let mut all = self.projects.iter().zip(&self.all);
        all.find(|(own, _)| *own == project)
            .is_some_and(|(_, summary)| {
                let outcome = summary.outcome;
                matches!(
                    outcome,
                    ProjectOutcome::Applied | ProjectOutcome::UpToDate | ProjectOutcome::NoChanges
                )
            })
    }

    /// Returns true if a project is queued for a lock.
    pub fn is_waiting(&self, project: &ProjectKey) -> bool {
        let mut all = self.projects.iter().zip(&self.all);
        all.any(|(own, summary)| own == project && summary.outcome == ProjectOutcome::Waiting)
    }

    /// Returns true if there are no runs at this head yet.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the combined status of plans.
    pub fn plan_status(&self, ctx: &Ctx) -> CommitStatus {
        combined(ctx, RunKind::Plan, status::plan(&self.all))
    }

    /// Returns the combined status of applies after this command, which has planned. While a plan waits for its
    /// apply, a commit has none, unless an earlier command has set it. Then it must not stay at success (reference
    /// 9.3 lets it).
    pub async fn apply_status_after_plan(
        &self,
        ctx: &Ctx,
        pull: &Pull,
        command: CommandId,
    ) -> Result<Option<CommitStatus>, sqlx::Error> {
        match status::apply_after_plan(&self.all) {
            Some(line) => Ok(Some(combined(ctx, RunKind::Apply, line))),
            None if self.has_apply_status(ctx, pull, command).await? => {
                Ok(Some(self.apply_status(ctx)))
            }
            None => Ok(None),
        }
    }

    /// Returns true if an earlier command has set the combined status of applies: an apply, or a plan that left nothing
    /// to apply, perhaps because it concerned no project.
    async fn has_apply_status(
        &self,
        ctx: &Ctx,
        pull: &Pull,
        command: CommandId,
    ) -> Result<bool, sqlx::Error> {
        let commands = ctx
            .store
            .command_list_ended_at(&pull.at, &pull.head)
            .await?;
        let sets = |kind: RunKind, outcome: Option<ProjectOutcome>| {
            let may_be_idle = [ProjectOutcome::NoChanges, ProjectOutcome::PolicyFailed];
            kind == RunKind::Apply || may_be_idle.map(Some).contains(&outcome)
        };
        let has_set = |id: &CommandId| {
            let mut own = self.ended.iter().filter(|(of, ..)| of == id);
            own.all(|(_, kind, outcome)| sets(*kind, *outcome))
        };
        Ok(commands.iter().filter(|id| **id < command).any(has_set))
    }

    /// Returns the combined status of applies while apply locks stop them, with this line. `None` if everything is
    /// applied anyway.
    pub fn apply_status_while_stopped(&self, ctx: &Ctx, line: String) -> Option<CommitStatus> {
        match status::apply(&self.all).0 {
            CommitState::Success => None,
            state @ (CommitState::Pending | CommitState::Failure) => {
                Some(combined(ctx, RunKind::Apply, (state, line)))
            }
        }
    }

    /// Returns the combined status of applies.
    pub fn apply_status(&self, ctx: &Ctx) -> CommitStatus {
        combined(ctx, RunKind::Apply, status::apply(&self.all))
    }
}

/// Returns the outcomes of runs, with their commands.
fn ended(runs: &[RunRow]) -> Vec<(CommandId, RunKind, Option<ProjectOutcome>)> {
    let of_run = |run: &RunRow| (run.command, run.kind, run.outcome);
    runs.iter().map(of_run).collect()
}

/// Returns true if the outcome leaves a plan record. `unlock`, an import or a person on a page can discard it later.
fn leaves_a_plan(outcome: ProjectOutcome) -> bool {
    matches!(
        outcome,
        ProjectOutcome::Planned | ProjectOutcome::NoChanges | ProjectOutcome::PolicyFailed
    )
}

/// Finds the newest command of these runs that searched the whole pull request for projects.
async fn newest_search(ctx: &Ctx, runs: &[RunRow]) -> Result<Option<StatusSearch>, sqlx::Error> {
    let commands: BTreeSet<CommandId> = runs.iter().map(|run| run.command).collect();
    for id in commands.into_iter().rev() {
        if let Some(row) = ctx.store.command_get(id).await?
            && let Ok(spec) = CommandSpec::from_json(&row.spec)
            && is_search(&spec)
        {
            return Ok(Some(StatusSearch {
                command: id,
                is_automatic: spec == CommandSpec::Autoplan,
            }));
        }
    }
    Ok(None)
}

fn is_search(spec: &CommandSpec) -> bool {
    match spec {
        CommandSpec::Autoplan => true,
        CommandSpec::Command(Command::Plan(plan)) => !plan.target.is_targeted(),
        CommandSpec::Command(_)
        | CommandSpec::Turn(_)
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => false,
    }
}

fn combined(ctx: &Ctx, kind: RunKind, (state, text): (CommitState, String)) -> CommitStatus {
    let context = status::context(&ctx.settings.comments.status_name, kind);
    status::status(
        context,
        state,
        &text,
        Some(format!("{}/", ctx.settings.base_url)),
    )
}

/// Returns the status of policy checks with this state and description.
pub(crate) fn policies_status(ctx: &Ctx, (state, text): (CommitState, String)) -> CommitStatus {
    let context = status::policy_context(&ctx.settings.comments.status_name);
    let page = format!("{}/", ctx.settings.base_url);
    status::status(context, state, &text, Some(page))
}

/// Returns the status of a running command.
pub(crate) fn pending_status(ctx: &Ctx, kind: RunKind) -> CommitStatus {
    combined(ctx, kind, status::running(kind))
}

/// Returns the status of a command that failed before it had results.
pub(crate) fn broken_status(ctx: &Ctx, kind: RunKind) -> CommitStatus {
    combined(ctx, kind, status::failed(kind))
}

/// Returns the status of a pull request without plans, because nobody with write access requested one.
pub(crate) fn unasked_status(ctx: &Ctx) -> CommitStatus {
    combined(
        ctx,
        RunKind::Plan,
        status::unasked(ctx.settings.comments.executable()),
    )
}

/// Returns the status of a plan that a newer one replaces.
pub(crate) fn superseded_status(ctx: &Ctx, kind: RunKind, why: &str) -> CommitStatus {
    combined(ctx, kind, status::superseded(kind, why))
}

/// Returns the kind of the statuses of a command, if it has any.
pub(crate) fn status_kind(kind: CommandKind) -> Option<RunKind> {
    kind.runs().filter(|kind| kind.has_status())
}

/// Projects of a command that get statuses of their own.
pub(crate) enum ProjectStatuses {
    All,
    Only(BTreeSet<ProjectKey>),
}

impl ProjectStatuses {
    /// Decides for a command on this number of projects. If there are too many for the forge, only those that have a
    /// status at this head already get one, because that would become untrue.
    pub async fn of(
        ctx: &Ctx,
        pull: &Pull,
        kind: RunKind,
        number: usize,
    ) -> Result<Self, sqlx::Error> {
        if number <= ctx.settings.comments.project_statuses {
            return Ok(Self::All);
        }
        let runs = ctx.store.run_list_of_head(&pull.at, &pull.head).await?;
        let with_status = runs
            .into_iter()
            .filter(|run| run.kind == kind && run.has_status);
        Ok(Self::Only(with_status.map(|run| run.project).collect()))
    }

    /// Returns true if this project gets a status.
    pub fn has(&self, project: &ProjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Only(projects) => projects.contains(project),
        }
    }

    /// Stores a new run of the command, and the job that sets its first status, if it is to have one now.
    pub async fn create_run(
        &self,
        ctx: &Ctx,
        new: &NewRun,
        first: impl FnOnce(RunId) -> Option<NewJob>,
    ) -> Result<RunId, sqlx::Error> {
        if self.has(&new.project) {
            ctx.store.run_create_with(new, first).await
        } else {
            ctx.store.run_create_without_status(new).await
        }
    }
}

/// Returns the status of one project.
pub(crate) fn project_status(
    ctx: &Ctx,
    kind: RunKind,
    project: &ProjectKey,
    run: RunId,
    (state, text): (CommitState, String),
) -> CommitStatus {
    let context = status::project_context(&ctx.settings.comments.status_name, kind, project);
    status::status(context, state, &text, Some(ctx.settings.run_url(run)))
}

/// Returns the statuses after a command has discarded these plans: successful ones now say that the plan is gone.
pub(crate) async fn discarded_statuses(
    ctx: &Ctx,
    pull: &Pull,
    plans: &[PlanRecord],
    command: CommandId,
) -> Result<Vec<CommitStatus>, sqlx::Error> {
    let of_head: Vec<&PlanRecord> = plans.iter().filter(|plan| plan.head == pull.head).collect();
    if of_head.is_empty() {
        return Ok(Vec::new());
    }
    let runs = ctx.store.run_list_of_head(&pull.at, &pull.head).await?;
    let without: BTreeSet<RunId> = runs
        .iter()
        .filter(|run| !run.has_status)
        .map(|run| run.id)
        .collect();
    let of_plan = |plan: &PlanRecord| {
        let line = status::project(RunKind::Plan, ProjectOutcome::Discarded, None);
        project_status(ctx, RunKind::Plan, &plan.project, plan.run, line)
    };
    let mut statuses: Vec<CommitStatus> = of_head
        .into_iter()
        .filter(|plan| !without.contains(&plan.run))
        .map(of_plan)
        .collect();
    let newest = NewestRuns::of(ctx, &pull.at, &pull.head).await?;
    statuses.push(newest.plan_status(ctx));
    statuses.extend(newest.apply_status_after_plan(ctx, pull, command).await?);
    Ok(statuses)
}
