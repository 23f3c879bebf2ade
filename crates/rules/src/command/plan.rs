//! `plan [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [-- TERRAFORM ARGUMENTS]`

use std::fmt;

use super::Command;
use super::flags::Arguments;
use super::mistake::CommandFault;
use super::printer::Printer;
use super::spec::{CommandName, GrammarRow, Operands, WordRules};
use super::target::{CommandTarget, DIR, PROJECT, VERBOSE, WORKSPACE};
use crate::model::CommitSha;

/// The `plan` command, which shows what would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlanCommand {
    /// Projects that the command plans.
    pub target: CommandTarget,
    /// True if the reply carries the full log.
    pub verbose: bool,
    /// Arguments for `terraform plan`, without blocked flags.
    pub extra_args: Vec<String>,
    /// Head commit that the server knew when it read the comment, if the server plans forks. It is not a part of the text: the
    /// author of the comment has not seen a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitSha>,
}

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::Plan,
    about: "Show what would change.",
    operands: Operands::None,
    flags: &[&DIR, &WORKSPACE, &PROJECT, &VERBOSE],
    extra: true,
    note: "Without -d, -w and -p it plans every project that this pull request changes.",
    examples: &[
        ("plan", "every project that this pull request changes"),
        (
            "plan -d infra/net -- -target=aws_vpc.main",
            "one directory, one resource",
        ),
    ],
    build,
};

fn build(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Command, CommandFault> {
    Ok(Command::Plan(PlanCommand {
        target: CommandTarget::read(arguments, rules)?,
        verbose: arguments.switch(&VERBOSE),
        extra_args: arguments.extra_texts(),
        head: None,
    }))
}

impl fmt::Display for PlanCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::Plan);
        self.target.print(&mut printer);
        printer.switch(&VERBOSE, self.verbose);
        printer.extra(&self.extra_args);
        printer.finish(f)
    }
}
