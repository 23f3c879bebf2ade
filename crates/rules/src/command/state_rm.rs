//! `state rm ADDRESS... [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [-- TERRAFORM ARGUMENTS]`

use std::fmt;

use super::Command;
use super::flags::Arguments;
use super::mistake::CommandFault;
use super::printer::Printer;
use super::spec::{CommandName, GrammarRow, Operands, WordRules};
use super::target::{CommandTarget, DIR, PROJECT, VERBOSE, WORKSPACE};
use crate::model::CommitSha;

/// The `state rm` command, which removes resources from the state without destroying them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StateRmCommand {
    /// Projects whose state changes.
    pub target: CommandTarget,
    /// True if the reply carries the full log.
    pub verbose: bool,
    /// Addresses of the resources, at least one.
    pub addresses: Vec<String>,
    /// Arguments for `terraform state rm` after `--`, without blocked flags.
    pub extra_args: Vec<String>,
    /// Head commit of the pull request that the server knew when it read the comment. It is not a part of the text: the
    /// author of the comment has not seen a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitSha>,
}

impl StateRmCommand {
    /// Returns the comment's arguments for steps: those after `--`, then the operands (reference 1.1, step 11).
    pub fn comment_args(&self) -> Vec<String> {
        self.extra_args
            .iter()
            .chain(&self.addresses)
            .cloned()
            .collect()
    }
}

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::State,
    about: "Remove resources from the state without destroying them.",
    operands: Operands::AfterWord("rm", "ADDRESS"),
    flags: &[&DIR, &WORKSPACE, &PROJECT, &VERBOSE],
    extra: true,
    note: "Put an address with quotes or brackets into single quotes: 'aws_instance.web[\"a\"]'.",
    examples: &[(
        "state rm -d infra/net aws_vpc.old",
        "forget a resource without destroying it",
    )],
    build,
};

fn build(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Command, CommandFault> {
    Ok(Command::StateRm(StateRmCommand {
        target: CommandTarget::read(arguments, rules)?,
        verbose: arguments.switch(&VERBOSE),
        addresses: arguments
            .operands
            .iter()
            .map(|word| word.text.clone())
            .collect(),
        extra_args: arguments.extra_texts(),
        head: None,
    }))
}

impl fmt::Display for StateRmCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::State);
        printer.word("rm");
        self.target.print(&mut printer);
        printer.switch(&VERBOSE, self.verbose);
        for address in &self.addresses {
            printer.word(address);
        }
        printer.extra(&self.extra_args);
        printer.finish(f)
    }
}
