//! Whether whoever gave a command may give it (reference 1.8).

use super::CommandCx;
use crate::command::Command;
use crate::config::access::{Action, Identity};
use crate::context::Ctx;
use crate::handlers::Spec;
use crate::handlers::authz::{self, Asked, Decision, Denial, Resource};
use crate::handlers::reply::Reply;
use crate::model::{CommandKind, ProjectKey, Pull};
use crate::queue::JobError;
use crate::render::UserText;
use crate::store::CommandRow;

/// Stable word for programs.
const REASON: &str = "not_allowed";

/// The refusal of the whole command, if there is one.
pub(super) async fn check(ctx: &Ctx, row: &CommandRow, pull: &Pull, spec: &Spec) -> Result<Option<Reply>, JobError> {
    let args = args_of(spec);
    check_on(ctx, row, spec, &Resource::Pull(Asked { pull, via: row.installation, args: &args })).await
}

/// The same for a command that asks the forge nothing about its pull.
pub(super) async fn check_unseen(ctx: &Ctx, row: &CommandRow, spec: &Spec) -> Result<Option<Reply>, JobError> {
    let args = args_of(spec);
    check_on(ctx, row, spec, &Resource::Unseen { pull: &row.pull, via: row.installation, args: &args }).await
}

async fn check_on(ctx: &Ctx, row: &CommandRow, spec: &Spec, on: &Resource<'_>) -> Result<Option<Reply>, JobError> {
    let Some(action) = action_of(spec) else { return Ok(None) };
    match authz::check(ctx, &Identity::of_actor(&row.actor), action, on).await? {
        Decision::Granted => Ok(None),
        Decision::Denied(denial) => refusal(ctx, row, *denial).await.map(Some),
    }
}

/// The refusal of one project. Teams were asked about before the command began, and say the same of every project; a
/// program of the operator may judge by project, so it is asked again for each.
pub(super) async fn check_project(
    cx: &CommandCx<'_>,
    action: Action,
    project: &ProjectKey,
) -> Result<Option<UserText>, JobError> {
    if cx.ctx.settings.team_authz.is_none() {
        return Ok(None);
    }
    let args = Spec::from_json(&cx.row.spec).map(|spec| args_of(&spec)).unwrap_or_default();
    let on = Resource::Project(Asked { pull: cx.pull, via: cx.row.installation, args: &args }, project);
    match authz::check(cx.ctx, &Identity::of_actor(&cx.row.actor), action, &on).await? {
        Decision::Granted => Ok(None),
        Decision::Denied(denial) => Ok(Some(text(*denial))),
    }
}

/// Nobody asked for a plan that a push leads to, so nobody is told that it was not made but on the dashboard
/// (reference 1.7, "autoplan"); unless it took the place of one that somebody did ask for.
async fn refusal(ctx: &Ctx, row: &CommandRow, denial: Denial) -> Result<Reply, JobError> {
    if row.kind == CommandKind::Autoplan && !ctx.store.command_stands_in(row.id).await? {
        return Ok(Reply::silent_for(format!("{REASON}: {}", denial.message())));
    }
    let text = text(denial);
    Ok(Reply::refused(REASON, text.message, text.hints))
}

fn text(denial: Denial) -> UserText {
    UserText { message: denial.message(), hints: denial.who_can }
}

/// What a command needs; `None`: nothing, everybody may be answered.
fn action_of(spec: &Spec) -> Option<Action> {
    match spec {
        // What a plan would do may know who may plan.
        Spec::Autoplan | Spec::Command(Command::Plan(_) | Command::Explain(_)) => Some(Action::Plan),
        Spec::Command(Command::Apply(_)) => Some(Action::Apply),
        Spec::Command(Command::Unlock) => Some(Action::Unlock),
        Spec::Command(Command::Cancel(command)) if command.force => Some(Action::CancelForce),
        Spec::Command(Command::Cancel(_)) => Some(Action::Cancel),
        Spec::Command(Command::ApprovePolicies(_)) => Some(Action::ApprovePolicies),
        Spec::Command(Command::Version(_)) => Some(Action::Version),
        Spec::Command(Command::Import(_)) => Some(Action::Import),
        Spec::Command(Command::StateRm(_)) => Some(Action::StateRm),
        // Whoever asked was asked about when the pull lined up.
        Spec::Turn(_) | Spec::Command(Command::Help(_)) | Spec::Mistake(_) | Spec::NotServed | Spec::Unclaimed => None,
    }
}

fn args_of(spec: &Spec) -> Vec<String> {
    match spec {
        Spec::Command(command) => command.comment_args(),
        Spec::Autoplan | Spec::Turn(_) | Spec::Mistake(_) | Spec::NotServed | Spec::Unclaimed => Vec::new(),
    }
}
