//! Checks that the author of a command may give it (reference 1.8).

use super::{CommandCx, CommandSpec};
use crate::authz::{self, Decision, Denial, PullCommand, Resource};
use crate::command::Command;
use crate::config::access::{Action, Identity};
use crate::context::Ctx;
use crate::features::replies::{self, Reply};
use crate::model::{CommandKind, ProjectKey, Pull};
use crate::queue::JobError;
use crate::render::UserText;
use crate::store::CommandRow;

/// Stable reason for programs that read replies.
const REASON: &str = "not_allowed";

/// Returns the refusal of the whole command, if there is one.
pub(super) async fn check(
    ctx: &Ctx,
    row: &CommandRow,
    pull: &Pull,
    spec: &CommandSpec,
) -> Result<Option<Reply>, JobError> {
    let args = args_of(spec);
    let asked = PullCommand { pull, args: &args };
    let mut is_unasked = false;
    let decision = match decide(ctx, row, spec, &Resource::Pull(asked)).await? {
        Decision::Granted if is_of_fork_unasked(row, pull, spec) => {
            is_unasked = true;
            authz::check_fork(ctx, &Identity::of_actor(&row.actor), asked).await?
        }
        decision @ (Decision::Granted | Decision::Denied(_)) => decision,
    };
    let Decision::Denied(denial) = decision else {
        return Ok(None);
    };
    if !is_by_itself(ctx, row, spec).await? {
        let mut why = text(*denial);
        if is_unasked && has_moved(row, pull, spec) {
            why.message = format!(
                "the fork has newer commits than the one for which this was requested. {}",
                why.message
            );
        }
        return Ok(Some(told(why)));
    }
    let reply = Reply::silent_for(format!("{REASON}: {}", denial.message()));
    // People with write access can request the plan, so they should see that it waits for them.
    if pull.is_fork() && !authz::has_rules(ctx) && !ctx.settings.comments.silence.fork_errors {
        return Ok(Some(
            reply.with_statuses(&pull.head, vec![replies::unasked_status(ctx)]),
        ));
    }
    Ok(Some(reply))
}

/// Asks the forge about the author of a command before [`check`] needs the answer.
pub(super) async fn ask_early(ctx: &Ctx, row: &CommandRow, spec: &CommandSpec) {
    if let Some(action) = action_of(ctx, spec) {
        authz::ask_early(ctx, &Identity::of_actor(&row.actor), action, &row.pull.repo).await;
    }
}

/// Returns the refusal of a command that asks the forge nothing about its pull request.
pub(super) async fn check_unseen(
    ctx: &Ctx,
    row: &CommandRow,
    spec: &CommandSpec,
) -> Result<Option<Reply>, JobError> {
    let args = args_of(spec);
    let on = Resource::Unseen {
        pull: &row.pull,
        args: &args,
    };
    Ok(match decide(ctx, row, spec, &on).await? {
        Decision::Granted => None,
        Decision::Denied(denial) => Some(told(text(*denial))),
    })
}

async fn decide(
    ctx: &Ctx,
    row: &CommandRow,
    spec: &CommandSpec,
    on: &Resource<'_>,
) -> Result<Decision, JobError> {
    let Some(action) = action_of(ctx, spec) else {
        return Ok(Decision::Granted);
    };
    Ok(authz::check(ctx, &Identity::of_actor(&row.actor), action, on).await?)
}

/// Returns true if the command would run code of a fork that nobody with write access requested. That is a plan from
/// the queue of a lock, or a commit that arrived while the command was running, or after the comment that requested a plan.
fn is_of_fork_unasked(row: &CommandRow, pull: &Pull, spec: &CommandSpec) -> bool {
    let is_unasked = match spec {
        CommandSpec::Turn(_) => true,
        // For an event, the people behind the code have just been checked.
        CommandSpec::Command(
            Command::Unlock | Command::Cancel(_) | Command::Help(_) | Command::Explain(_),
        )
        | CommandSpec::Autoplan
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => false,
        CommandSpec::Command(_) => has_moved(row, pull, spec),
    };
    is_unasked && pull.is_fork()
}

/// Returns true if the pull request has other commits than when the command began, or than when somebody requested it.
fn has_moved(row: &CommandRow, pull: &Pull, spec: &CommandSpec) -> bool {
    let requested = match spec {
        CommandSpec::Command(Command::Plan(plan)) => plan.head.as_ref(),
        CommandSpec::Command(Command::Version(version)) => version.head.as_ref(),
        CommandSpec::Command(_)
        | CommandSpec::Autoplan
        | CommandSpec::Turn(_)
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => None,
    };
    let mut known = row.head.iter().chain(requested);
    known.any(|head| *head != pull.head)
}

/// Returns the refusal of one project. Teams were checked before the command began, and their rules are the same for
/// every project. A program of the administrator may decide by project, so it runs again for each.
pub(super) async fn check_project(
    cx: &CommandCx<'_>,
    action: Action,
    project: &ProjectKey,
) -> Result<Option<UserText>, JobError> {
    if cx.ctx.settings.repo_rules.repos.team_authz.is_none() {
        return Ok(None);
    }
    let args = CommandSpec::from_json(&cx.row.spec)
        .map(|spec| args_of(&spec))
        .unwrap_or_default();
    let on = Resource::Project(
        PullCommand {
            pull: cx.pull,
            args: &args,
        },
        project,
    );
    match authz::check(cx.ctx, &Identity::of_actor(&cx.row.actor), action, &on).await? {
        Decision::Granted => Ok(None),
        Decision::Denied(denial) => Ok(Some(text(*denial))),
    }
}

/// Returns true for an automatic plan that nobody requested. Only the dashboard says that it was not made (reference
/// 1.7, "autoplan"). A plan that replaced a requested one is not automatic in this sense.
async fn is_by_itself(ctx: &Ctx, row: &CommandRow, spec: &CommandSpec) -> Result<bool, JobError> {
    let by_event = row.kind == CommandKind::Autoplan && !matches!(spec, CommandSpec::Turn(_));
    Ok(by_event && !ctx.store.command_stands_in(row.id).await?)
}

fn told(why: UserText) -> Reply {
    Reply::refused(REASON, why.message, why.hints)
}

fn text(denial: Denial) -> UserText {
    UserText {
        message: denial.message(),
        hints: denial.who_can,
    }
}

/// Returns the permission that a command needs. `None`: none, everybody gets a reply.
fn action_of(ctx: &Ctx, spec: &CommandSpec) -> Option<Action> {
    match spec {
        // It runs nothing, and shows what people can read in the repository.
        CommandSpec::Command(Command::Explain(_)) if !authz::has_rules(ctx) => None,
        // Everybody who may plan may see what a plan would do.
        CommandSpec::Autoplan | CommandSpec::Command(Command::Plan(_) | Command::Explain(_)) => {
            Some(Action::Plan)
        }
        CommandSpec::Command(Command::Apply(_)) => Some(Action::Apply),
        CommandSpec::Command(Command::Unlock) => Some(Action::Unlock),
        CommandSpec::Command(Command::Cancel(command)) if command.force => {
            Some(Action::CancelForce)
        }
        CommandSpec::Command(Command::Cancel(_)) => Some(Action::Cancel),
        CommandSpec::Command(Command::ApprovePolicies(_)) => Some(Action::ApprovePolicies),
        CommandSpec::Command(Command::Version(_)) => Some(Action::Version),
        CommandSpec::Command(Command::Import(_)) => Some(Action::Import),
        CommandSpec::Command(Command::StateRm(_)) => Some(Action::StateRm),
        // The author was checked when the pull request was queued.
        CommandSpec::Turn(_)
        | CommandSpec::Command(Command::Help(_))
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => None,
    }
}

fn args_of(spec: &CommandSpec) -> Vec<String> {
    match spec {
        CommandSpec::Command(command) => command.comment_args(),
        CommandSpec::Autoplan
        | CommandSpec::Turn(_)
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => Vec::new(),
    }
}
