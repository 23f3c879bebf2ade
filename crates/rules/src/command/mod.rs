//! Reads the text of a comment on a pull request into a typed command (reference 1.1 to 1.4).
//!
//! People write commands between code review and lunch, on phones, by copying from a reply. A comment that is clearly
//! a command runs. Talk about commands is ignored. A comment that is meant as a command but is wrong gets one reply,
//! which shows the place and the way out. A comment can reach Terraform only through a type of this module.
//!
//! - [`Grammar`] holds the settings of the administrator and reads comments.
//! - `comment` decides by Markdown which line, if any, is a command; `names` decides if the line addresses the bot.
//! - `split` and `flags` take the line apart; `spec` is the table of commands; each command has a file with its row.
//! - `mistake` writes the answer to a wrong command; `quote` keeps quoted text from taking effect.
//!
//! The module is pure: it uses no files, no network and no clock.

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

pub use apply::{ApplyCommand, MergeOptions};
pub use approve_policies::ApprovePoliciesCommand;
pub use cancel::CancelCommand;
pub use comment::{Formatting, IgnoredComment};
pub use explain::ExplainCommand;
pub use extra::{AddedArg, BlockedArgs, ExtraArgs, InvalidAddedArg, RefusedArg, var_files_outside};
pub use grammar::{CommentReading, Grammar};
pub use help::HelpCommand;
pub use import::ImportCommand;
pub use mistake::Mistake;
pub use names::BotNames;
pub use plan::PlanCommand;
pub use spec::{CommandName, UnknownCommand};
pub use state_rm::StateRmCommand;
pub use target::{CommandTarget, DirArgument, DirPattern, InvalidDir, ProjectSelector};
pub use version::VersionCommand;

/// A command of a comment. The database keeps it as JSON between delivery and run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Shows what would change.
    Plan(PlanCommand),
    /// Makes the planned changes.
    Apply(ApplyCommand),
    /// Releases all locks of the pull request and discards its plans.
    Unlock,
    /// Stops queued and running work.
    Cancel(CancelCommand),
    /// Shows which projects a plan would cover, and why.
    Explain(ExplainCommand),
    /// Lets plans be applied although they violate policies.
    ApprovePolicies(ApprovePoliciesCommand),
    /// Shows which tool and version would run.
    Version(VersionCommand),
    /// Adds an existing object to the state.
    Import(ImportCommand),
    /// Removes resources from the state without destroying them.
    StateRm(StateRmCommand),
    /// Shows the commands or the usage of one.
    Help(HelpCommand),
}

impl Command {
    /// Returns the name of the command.
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

    /// Returns the projects of the command; `None` for commands about the whole pull request or about nothing.
    pub const fn target(&self) -> Option<&CommandTarget> {
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

    /// Returns the arguments that steps see (`COMMENT_ARGS`): those after `--`, then the operands (reference 1.1,
    /// step 11).
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
    /// Writes the command as it is typed after the name of the bot; reading that text gives the same command.
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
