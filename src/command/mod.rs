//! The comment grammar: from the text of a comment on a pull to a typed command (reference 1.1 to 1.4).
//!
//! People write commands between code review and lunch, on phones, by copying from a reply. So: what is plainly
//! a command runs; what is talk about commands is ignored; what was meant as a command but is wrong gets one
//! reply that shows the place and the way out. Nothing that a comment says can reach Terraform except through a
//! type of this module.
//!
//! - [`Grammar`] holds what the operator configured and reads comments.
//! - `comment` decides by Markdown which line, if any, is a command; `names` whether it is addressed to the bot.
//! - `split` and `flags` take it apart; `spec` is the table of commands; each command has a file with its row.
//! - `mistake` writes the answer to a wrong command; `quote` keeps what was typed from acting in it.
//!
//! Pure: no files, no network, no clock.

mod apply;
mod approve_policies;
mod cancel;
mod comment;
mod explain;
mod extra;
mod flags;
mod grammar;
mod help;
mod import;
mod mistake;
mod names;
mod plan;
mod printer;
mod quote;
mod spec;
mod split;
mod state_rm;
mod suggest;
mod target;
#[cfg(test)]
mod tests;
mod unlock;
mod version;

use std::fmt;

pub use apply::{ApplyCommand, MergeWish};
pub use approve_policies::ApprovePoliciesCommand;
pub use cancel::CancelCommand;
pub use comment::{Formatting, Ignored};
pub use explain::ExplainCommand;
pub use extra::{AddedArg, BlockedArgs, ExtraArgs, InvalidAddedArg, RefusedArg, var_files_outside};
pub use grammar::{Grammar, Reading};
pub use help::HelpCommand;
pub use import::ImportCommand;
pub use mistake::Mistake;
pub use names::Names;
pub use plan::PlanCommand;
pub use spec::{CommandName, UnknownCommand};
pub use state_rm::StateRmCommand;
pub use target::{DirPattern, DirSelector, InvalidDir, ProjectSelector, Target};
pub use version::VersionCommand;

/// What a comment asks for. Kept as JSON between delivery and run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Show what would change.
    Plan(PlanCommand),
    /// Make the planned changes.
    Apply(ApplyCommand),
    /// Give back all locks of the pull and discard its plans.
    Unlock,
    /// Stop what waits or runs.
    Cancel(CancelCommand),
    /// Say what would be planned, and why.
    Explain(ExplainCommand),
    /// Let plans pass although policies failed.
    ApprovePolicies(ApprovePoliciesCommand),
    /// Tell which tool would run.
    Version(VersionCommand),
    /// Take something that exists into the state.
    Import(ImportCommand),
    /// Let something leave the state.
    StateRm(StateRmCommand),
    /// Explain the commands.
    Help(HelpCommand),
}

impl Command {
    /// Its name.
    pub const fn name(&self) -> CommandName {
        match self {
            Self::Plan(_) => CommandName::Plan,
            Self::Apply(_) => CommandName::Apply,
            Self::Unlock => CommandName::Unlock,
            Self::Cancel(_) => CommandName::Cancel,
            Self::Explain(_) => CommandName::Explain,
            Self::ApprovePolicies(_) => CommandName::ApprovePolicies,
            Self::Version(_) => CommandName::Version,
            Self::Import(_) => CommandName::Import,
            Self::StateRm(_) => CommandName::State,
            Self::Help(_) => CommandName::Help,
        }
    }

    /// The projects it is about; `None` for commands about the whole pull or about nothing.
    pub const fn target(&self) -> Option<&Target> {
        match self {
            Self::Plan(PlanCommand { target, .. })
            | Self::Apply(ApplyCommand { target, .. })
            | Self::ApprovePolicies(ApprovePoliciesCommand { target, .. })
            | Self::Explain(ExplainCommand { target })
            | Self::Version(VersionCommand { target, .. })
            | Self::Import(ImportCommand { target, .. })
            | Self::StateRm(StateRmCommand { target, .. }) => Some(target),
            Self::Unlock | Self::Cancel(_) | Self::Help(_) => None,
        }
    }

    /// The arguments that steps see (`COMMENT_ARGS`): those behind `--`, then the operands (reference 1.1, step 11).
    pub fn comment_args(&self) -> Vec<String> {
        match self {
            Self::Plan(command) => command.extra_args.clone(),
            Self::Apply(command) => command.extra_args.clone(),
            Self::Import(command) => command.comment_args(),
            Self::StateRm(command) => command.comment_args(),
            Self::Unlock
            | Self::Cancel(_)
            | Self::Explain(_)
            | Self::ApprovePolicies(_)
            | Self::Version(_)
            | Self::Help(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Command {
    /// As it is typed after the bot's name; reading it again gives the same command.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(command) => command.fmt(f),
            Self::Apply(command) => command.fmt(f),
            Self::ApprovePolicies(command) => command.fmt(f),
            Self::Version(command) => command.fmt(f),
            Self::Import(command) => command.fmt(f),
            Self::StateRm(command) => command.fmt(f),
            Self::Help(command) => command.fmt(f),
            Self::Cancel(command) => command.fmt(f),
            Self::Explain(command) => command.fmt(f),
            Self::Unlock => f.pad(self.name().as_str()),
        }
    }
}
