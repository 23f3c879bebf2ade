//! `explain [-d DIR] [-w WORKSPACE] [-p PROJECT]`

use std::fmt;

use super::Command;
use super::flags::Arguments;
use super::mistake::CommandFault;
use super::printer::Printer;
use super::spec::{CommandName, GrammarRow, Operands, WordRules};
use super::target::{CommandTarget, DIR, PROJECT, WORKSPACE};

/// The `explain` command, which shows the projects that a plan would cover, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExplainCommand {
    /// Projects that the command explains.
    pub target: CommandTarget,
}

pub(super) static SPEC: GrammarRow = GrammarRow {
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

fn build(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Command, CommandFault> {
    Ok(Command::Explain(ExplainCommand {
        target: CommandTarget::read(arguments, rules)?,
    }))
}

impl fmt::Display for ExplainCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::Explain);
        self.target.print(&mut printer);
        printer.finish(f)
    }
}
