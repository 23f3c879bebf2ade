//! Where a pull stands at its head commit, added up over all its commands, and the statuses that say so.

use std::collections::BTreeMap;

use crate::context::Ctx;
use crate::model::{CommandKind, CommitSha, CommitState, CommitStatus, ProjectKey, PullRef, RunId, RunKind};
use crate::render::status::{self, Standing};

/// The newest run of each project at the head commit of a pull.
pub(super) struct Standings(Vec<Standing>);

impl Standings {
    /// Adds up what is on record.
    pub async fn of(ctx: &Ctx, pull: &PullRef, head: &CommitSha) -> Result<Self, sqlx::Error> {
        let mut newest = BTreeMap::new();
        for run in ctx.store.run_list_of_head(pull, head).await? {
            if let Some(outcome) = run.outcome {
                newest.insert(run.project, Standing { kind: run.kind, outcome });
            }
        }
        Ok(Self(newest.into_values().collect()))
    }

    /// Whether nothing was run yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The combined status of planning.
    pub fn plan_status(&self, ctx: &Ctx) -> CommitStatus {
        combined(ctx, RunKind::Plan, status::plan(&self.0))
    }

    /// The combined status of applying after a plan: only where it is certain, else it is left as it is.
    pub fn apply_status_after_plan(&self, ctx: &Ctx) -> Option<CommitStatus> {
        status::apply_after_plan(&self.0).map(|line| combined(ctx, RunKind::Apply, line))
    }

    /// The combined status of applying.
    pub fn apply_status(&self, ctx: &Ctx) -> CommitStatus {
        combined(ctx, RunKind::Apply, status::apply(&self.0))
    }
}

fn combined(ctx: &Ctx, kind: RunKind, (state, text): (CommitState, String)) -> CommitStatus {
    let context = status::context(&ctx.settings.status_name, kind);
    status::status(context, state, &text, Some(format!("{}/", ctx.settings.public_url)))
}

/// A command of this kind is under way.
pub(super) fn pending(ctx: &Ctx, kind: RunKind) -> CommitStatus {
    combined(ctx, kind, status::running(kind))
}

/// A command broke before it had results.
pub(super) fn broken(ctx: &Ctx, kind: RunKind) -> CommitStatus {
    combined(ctx, kind, status::failed(kind))
}

/// What a command runs, if anything.
pub(super) fn run_kind(kind: CommandKind) -> Option<RunKind> {
    match kind {
        CommandKind::Plan | CommandKind::Autoplan => Some(RunKind::Plan),
        CommandKind::Apply => Some(RunKind::Apply),
        CommandKind::Unlock | CommandKind::Help => None,
    }
}

/// The status of one project.
pub(super) fn of_project(
    ctx: &Ctx,
    kind: RunKind,
    project: &ProjectKey,
    run: RunId,
    (state, text): (CommitState, String),
) -> CommitStatus {
    let context = status::project_context(&ctx.settings.status_name, kind, project);
    status::status(context, state, &text, Some(ctx.settings.run_url(run)))
}
