//! `explain [-d DIR] [-w WORKSPACE] [-p PROJECT]`

use std::fmt;

use super::Command;
use super::flags::Arguments;
use super::mistake::Fault;
use super::printer::Printer;
use super::spec::{CommandName, Operands, Rules, Spec};
use super::target::{DIR, PROJECT, Target, WORKSPACE};

/// The `explain` command, which shows the projects that a plan would cover, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExplainCommand {
    /// Projects that the command explains.
    pub target: Target,
}

pub(super) static SPEC: Spec = Spec {
    name: CommandName::Explain,
    about: "Show which projects would be planned, by which rule, and why the others would not.",
    operands: Operands::None,
    flags: &[&DIR, &WORKSPACE, &PROJECT],
    extra: false,
    note: "Nothing is run, and no lock is taken. Each value has its source: a default, a flag of the\nserver, or a \
           line of a file. `lockkeeper check` shows the same on your machine before you push.",
    examples: &[(
        "explain",
        "why each project of this pull request is planned, or not",
    )],
    build,
};

fn build(arguments: &Arguments, rules: &Rules<'_>) -> Result<Command, Fault> {
    Ok(Command::Explain(ExplainCommand {
        target: Target::read(arguments, rules)?,
    }))
}

impl fmt::Display for ExplainCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::Explain);
        self.target.print(&mut printer);
        printer.finish(f)
    }
}
