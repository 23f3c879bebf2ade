//! Replies to `help` and to comments that cannot be carried out. No reply needs the forge.

use super::CommandSpec;
use crate::command::Command;
use crate::context::Ctx;
use crate::features::owners;
use crate::features::replies::Reply;
use crate::render::{Body, CommandRefusal};
use crate::store::CommandRow;

/// Returns the reply, if the comment needs nothing else.
pub(super) fn answer(ctx: &Ctx, row: &CommandRow, spec: &CommandSpec) -> Option<Reply> {
    match spec {
        CommandSpec::Command(Command::Help(help)) => Some(Reply::new(Body::Help(
            ctx.settings.grammar(&row.pull.repo).help(help.topic),
        ))),
        CommandSpec::Mistake(text) => Some(Reply::new(Body::Mistake(text.clone()))),
        CommandSpec::NotServed => Some(Reply::new(Body::Refused(CommandRefusal::not_allowlisted(
            &row.pull.repo,
        )))),
        CommandSpec::Unclaimed => Some(Reply::new(Body::Refused(owners::unclaimed_refusal(
            ctx,
            &row.pull.repo,
        )))),
        CommandSpec::Command(_) | CommandSpec::Autoplan | CommandSpec::Turn(_) => None,
    }
}

/// Refuses a command that the grammar knows and this version does not carry out.
pub(super) fn not_available(command: &Command) -> Reply {
    let available = [
        "plan",
        "apply",
        "cancel",
        "unlock",
        "explain",
        "version",
        "import",
        "state rm",
        "approve_policies",
        "help",
    ];
    Reply::new(Body::Refused(CommandRefusal::not_available(
        command.name().as_str(),
        &available,
    )))
}
