//! Replies to `help` and to comments that cannot be carried out. No reply needs the forge.

use crate::command::Command;
use crate::context::Ctx;
use crate::handlers::reply::Reply;
use crate::handlers::{Spec, claimed};
use crate::render::{Body, Refusal};
use crate::store::CommandRow;

/// Returns the reply, if the comment needs nothing else.
pub(super) fn answer(ctx: &Ctx, row: &CommandRow, spec: &Spec) -> Option<Reply> {
    match spec {
        Spec::Command(Command::Help(help)) => Some(Reply::new(Body::Help(
            ctx.settings.grammar.help(help.topic),
        ))),
        Spec::Mistake(text) => Some(Reply::new(Body::Mistake(text.clone()))),
        Spec::NotServed => Some(Reply::new(Body::Refused(Refusal::not_allowlisted(
            &row.pull.repo,
        )))),
        Spec::Unclaimed => Some(Reply::new(Body::Refused(claimed::refusal(
            ctx,
            &row.pull.repo,
        )))),
        Spec::Command(_) | Spec::Autoplan | Spec::Turn(_) => None,
    }
}

/// Refuses a command that the grammar knows and this version does not carry out.
pub(super) fn not_available(command: &Command) -> Reply {
    let available = [
        "plan", "apply", "cancel", "unlock", "explain", "version", "import", "state rm", "help",
    ];
    Reply::new(Body::Refused(Refusal::not_available(
        command.name().as_str(),
        &available,
    )))
}
