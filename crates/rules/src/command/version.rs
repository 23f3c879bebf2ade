//! `version [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose]`

use std::fmt;

use super::Command;
use super::flags::Arguments;
use super::mistake::CommandFault;
use super::printer::Printer;
use super::spec::{CommandName, GrammarRow, Operands, WordRules};
use super::target::{CommandTarget, DIR, PROJECT, VERBOSE, WORKSPACE};
use crate::model::CommitSha;

/// The `version` command, which shows the tool and version that would run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VersionCommand {
    /// Projects whose tool is shown.
    pub target: CommandTarget,
    /// True if the reply carries the full log.
    pub verbose: bool,
    /// Head commit that the server knew when it read the comment, if the server plans forks: hooks run code of the commit. It
    /// is not a part of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitSha>,
}

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::Version,
    about: "Show which version of Terraform or OpenTofu a project uses.",
    operands: Operands::None,
    flags: &[&DIR, &WORKSPACE, &PROJECT, &VERBOSE],
    extra: false,
    note: "",
    examples: &[],
    build,
};

fn build(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Command, CommandFault> {
    let verbose = arguments.switch(&VERBOSE);
    Ok(Command::Version(VersionCommand {
        target: CommandTarget::read(arguments, rules)?,
        verbose,
        head: None,
    }))
}

impl fmt::Display for VersionCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::Version);
        self.target.print(&mut printer);
        printer.switch(&VERBOSE, self.verbose);
        printer.finish(f)
    }
}
