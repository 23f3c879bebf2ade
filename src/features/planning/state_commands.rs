//! Runs `import` and `state rm`: they change the state of a project, without a plan (reference 1.7, 6.6).
//!
//! The checks have this order:
//! - the permission of the author;
//! - the head of the pull request, which must be the one that was known when the comment was read;
//! - the requirements of the project;
//! - a permit of the pool;
//! - the checkout;
//! - the gate, which checks the apply locks, the pull request and the project lock. The same transaction records that
//!   the change has begun.
//!
//! From there on a change is treated like an apply: it is never begun again automatically (P3), only `cancel --force`
//! interrupts it, and its lock stays until it has ended. An earlier plan is discarded as soon as the state may have
//! changed.

mod change;

use std::collections::BTreeMap;

use futures::future::join_all;
use tracing::{Instrument, info_span};

use change::Changing;

use super::CommandCx;
use super::hooks::HookFacts;
use super::progress::StageProgress;
use super::project_run::ProjectRun;
use super::projects::{self, ProjectSelection, Work};
use super::stop::Stop;
use crate::command::{CommandName, CommandTarget, ImportCommand, StateRmCommand};
use crate::config::access::Action;
use crate::config::workflow::{Stage, Workflow};
use crate::discovery::Project;
use crate::features::replies::{self, Reply};
use crate::model::{
    CommandOutcome, CommitSha, CommitStatus, PlanRecord, ProjectKey, ProjectOutcome, RunId,
    RunKind, code_span,
};
use crate::queue::JobError;
use crate::render::{Body, ProjectReport, UserText};
use crate::store::NewRun;
use crate::workflow::CommentWords;

/// Maximum number of projects that a refusal names.
const MOST_NAMED: usize = 10;

/// Kind of the state change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateChange {
    Import,
    StateRm,
}

impl StateChange {
    const fn run_kind(self) -> RunKind {
        match self {
            Self::Import => RunKind::Import,
            Self::StateRm => RunKind::StateRm,
        }
    }

    const fn action(self) -> Action {
        match self {
            Self::Import => Action::Import,
            Self::StateRm => Action::StateRm,
        }
    }

    const fn command(self) -> CommandName {
        match self {
            Self::Import => CommandName::Import,
            Self::StateRm => CommandName::State,
        }
    }

    const fn outcome(self) -> ProjectOutcome {
        match self {
            Self::Import => ProjectOutcome::Imported,
            Self::StateRm => ProjectOutcome::StateRemoved,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::StateRm => "`state rm`",
        }
    }

    /// Returns the reason of the lock, for the audit log.
    const fn reason(self) -> &'static str {
        match self {
            Self::Import => "imported by comment",
            Self::StateRm => "removed from the state by comment",
        }
    }

    fn stage(self, workflow: &Workflow) -> &Stage {
        match self {
            Self::Import => &workflow.import,
            Self::StateRm => &workflow.state_rm,
        }
    }
}

/// Request for a change of the state.
struct StateChangeRequest<'a> {
    change: StateChange,
    target: &'a CommandTarget,
    /// Arguments for commands of the administrator: the arguments after `--`, then the operands (reference 1.1, step
    /// 11).
    arguments: Vec<String>,
    given: CommentWords<'a>,
    verbose: bool,
    /// Head commit that was known when the comment was read.
    head: Option<&'a CommitSha>,
}

/// Imports a resource into the state of one project.
pub(super) async fn import(cx: &CommandCx<'_>, command: &ImportCommand) -> Result<Reply, Stop> {
    let ImportCommand {
        target,
        verbose,
        address,
        id,
        extra_args,
        head,
    } = command;
    let (arguments, operands) = (command.comment_args(), [address.clone(), id.clone()]);
    let given = CommentWords {
        extra: extra_args,
        operands: &operands,
    };
    run(
        cx,
        &StateChangeRequest {
            change: StateChange::Import,
            target,
            arguments,
            given,
            verbose: *verbose,
            head: head.as_ref(),
        },
    )
    .await
}

/// Removes resources from the states of projects.
pub(super) async fn state_rm(cx: &CommandCx<'_>, command: &StateRmCommand) -> Result<Reply, Stop> {
    let StateRmCommand {
        target,
        verbose,
        addresses,
        extra_args,
        head,
    } = command;
    let arguments = command.comment_args();
    let given = CommentWords {
        extra: extra_args,
        operands: addresses,
    };
    run(
        cx,
        &StateChangeRequest {
            change: StateChange::StateRm,
            target,
            arguments,
            given,
            verbose: *verbose,
            head: head.as_ref(),
        },
    )
    .await
}

async fn run(cx: &CommandCx<'_>, order: &StateChangeRequest<'_>) -> Result<Reply, Stop> {
    let CommentWords { extra, operands } = order.given;
    if let Some(refusal) =
        projects::argument_refusal(cx.ctx, order.change.command(), extra, operands)
    {
        return Ok(refusal);
    }
    if let Some(refusal) = moved(cx, order.head) {
        return Ok(refusal);
    }
    // No status reports it (reference 9.1).
    cx.start(vec![]).await?;
    let given = HookFacts::of(order.target, &order.arguments);
    let work = projects::select(cx, &ProjectSelection::Named(order.target), given).await?;
    match work.projects.as_slice() {
        [] => return Ok(no_projects(cx)),
        [_, _, ..] if order.change == StateChange::Import => return Ok(several(&work.projects)),
        [_, ..] => {}
    }
    let plans = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let runs = runs_to_come(cx, order.change, &work).await?;
    let mut progress = StageProgress::new(work.aborts());
    for stage in work.stages() {
        let halted = progress.halted(stage.group);
        let groups = stage
            .members
            .iter()
            .map(|group| change_group(cx, &work, order, group, &runs, halted.as_ref()));
        let reports = join_all(groups).await;
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
    let statuses = discarded(cx, &plans).await?;
    Ok(Reply::new(Body::Projects(progress.into_reports())).with_statuses(&cx.pull.head, statuses))
}

/// Refuses a command if somebody has pushed since its comment was read: it would run code that its author has not seen.
fn moved(cx: &CommandCx<'_>, known: Option<&CommitSha>) -> Option<Reply> {
    let known = known.filter(|known| **known != cx.pull.head)?;
    let message = format!(
        "the pull request is at commit `{}` now, and was at `{}` when Lockkeeper read the comment, so nobody knows whether \
         its author has seen the new code. Nothing was changed.",
        cx.pull.head.short(),
        known.short()
    );
    let hints = vec![
        "Look at the new commits, then comment the command again.".to_owned(),
        "If nobody has pushed since the comment, the event about an earlier push is late. Comment the command again after \
         Lockkeeper has planned the commit."
            .to_owned(),
    ];
    Some(Reply::refused("new_commit", message, hints))
}

/// Returns the statuses of plans that existed before and were discarded meanwhile.
async fn discarded(
    cx: &CommandCx<'_>,
    before: &[PlanRecord],
) -> Result<Vec<CommitStatus>, JobError> {
    let left = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let is_gone = |plan: &&PlanRecord| left.iter().all(|other| other.id != plan.id);
    let gone: Vec<PlanRecord> = before.iter().filter(is_gone).cloned().collect();
    replies::discarded_statuses(cx.ctx, cx.pull, &gone, cx.row.id)
        .await
        .map_err(JobError::from)
}

fn no_projects(cx: &CommandCx<'_>) -> Reply {
    if cx.ctx.settings.comments.silence.no_projects {
        Reply::silent(CommandOutcome::Success)
    } else {
        Reply::new(Body::NoProjects(None))
    }
}

/// Refuses an import that could be for several projects: a resource is in one state only.
fn several(found: &[Project]) -> Reply {
    let flags = |project: &Project| Some(code_span(&project.key.flags()?));
    let mut named: Vec<String> = found.iter().take(MOST_NAMED).filter_map(flags).collect();
    if found.len() > MOST_NAMED {
        named.push(format!("and {} more", found.len() - MOST_NAMED));
    }
    Reply::refused(
        "several_projects",
        format!(
            "a resource can be imported into one project only, and {} projects match. Nothing was changed.",
            found.len()
        ),
        vec![format!(
            "Run the command again with the flags of one of them: {}.",
            named.join(", ")
        )],
    )
}

/// Creates a run for every project before the first begins, so that an interrupted command can report each of them.
async fn runs_to_come(
    cx: &CommandCx<'_>,
    change: StateChange,
    work: &Work,
) -> Result<BTreeMap<ProjectKey, RunId>, JobError> {
    let mut runs = BTreeMap::new();
    for Project { key, .. } in &work.projects {
        let (pull, project) = (cx.pull.at.clone(), key.clone());
        let new = NewRun {
            command: cx.row.id,
            kind: change.run_kind(),
            pull,
            project,
        };
        runs.insert(key.clone(), cx.ctx.store.run_create(&new).await?);
    }
    Ok(runs)
}

/// Changes projects with the same directory and workspace one after the other, because they share files on disk, and
/// the state.
async fn change_group(
    cx: &CommandCx<'_>,
    work: &Work,
    order: &StateChangeRequest<'_>,
    group: &[&Project],
    runs: &BTreeMap<ProjectKey, RunId>,
    halted: Option<&UserText>,
) -> Result<Vec<ProjectReport>, JobError> {
    let _turn = work.turn().await;
    let mut reports = Vec::new();
    for Project { key, .. } in group {
        let run = ProjectRun {
            cx,
            project: key,
            kind: order.change.run_kind(),
            id: runs[key],
            has_status: false,
            verbose: order.verbose,
            halted,
        };
        let span = info_span!("change_state", project = %key, change = ?order.change);
        let changing = Changing { work, order };
        reports.push(run.drive(&changing).instrument(span).await?);
    }
    Ok(reports)
}
