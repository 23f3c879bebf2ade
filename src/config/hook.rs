//! Commands of the operator around a command on a pull (reference 5.3, 6.9).

use super::workflow::Shell;
use crate::model::CommandKind;

/// A command that is run before or after a command on a pull, once, in the root of the checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Source for the shell.
    pub command: String,
    /// The shell.
    pub shell: Shell,
    /// What its status calls it; `None`: its place in the list.
    pub description: Option<String>,
    /// The commands it is run for; empty: all.
    pub commands: Vec<CommandKind>,
}

impl Hook {
    /// Whether it is run for a command. A plan that a push asks for is a plan.
    pub fn is_for(&self, command: CommandKind) -> bool {
        let command = if command == CommandKind::Autoplan { CommandKind::Plan } else { command };
        self.commands.is_empty() || self.commands.contains(&command)
    }
}
