//! `version [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose]`

use std::fmt;

use super::Command;
use super::flags::Arguments;
use super::mistake::Fault;
use super::printer::Printer;
use super::spec::{CommandName, Operands, Rules, Spec};
use super::target::{DIR, PROJECT, Target, VERBOSE, WORKSPACE};

/// The `version` command, which shows the tool and version that would run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VersionCommand {
    /// Projects whose tool is shown.
    pub target: Target,
    /// True if the reply carries the full log.
    pub verbose: bool,
}

pub(super) static SPEC: Spec = Spec {
    name: CommandName::Version,
    about: "Show which version of Terraform or OpenTofu a project uses.",
    operands: Operands::None,
    flags: &[&DIR, &WORKSPACE, &PROJECT, &VERBOSE],
    extra: false,
    note: "",
    examples: &[],
    build,
};

fn build(arguments: &Arguments, rules: &Rules<'_>) -> Result<Command, Fault> {
    let verbose = arguments.switch(&VERBOSE);
    Ok(Command::Version(VersionCommand {
        target: Target::read(arguments, rules)?,
        verbose,
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
