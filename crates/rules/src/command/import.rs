//! `import ADDRESS ID [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [-- TERRAFORM ARGUMENTS]`

use std::fmt;

use super::Command;
use super::flags::Arguments;
use super::mistake::{CommandFault, FaultKind};
use super::printer::Printer;
use super::spec::{CommandName, GrammarRow, Operands, WordRules};
use super::target::{CommandTarget, DIR, PROJECT, VERBOSE, WORKSPACE};
use crate::model::CommitSha;

/// The `import` command, which adds an existing object to the state.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ImportCommand {
    /// Project that receives the resource.
    pub target: CommandTarget,
    /// True if the reply carries the full log.
    pub verbose: bool,
    /// Address of the resource in the configuration.
    pub address: String,
    /// Identifier of the object at the provider.
    pub id: String,
    /// Arguments for `terraform import` after `--`, without blocked flags.
    pub extra_args: Vec<String>,
    /// Head commit of the pull request that the server knew when it read the comment. It is not a part of the text: the
    /// author of the comment has not seen a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitSha>,
}

impl ImportCommand {
    /// Returns the comment's arguments for steps: those after `--`, then the operands (reference 1.1, step 11).
    pub fn comment_args(&self) -> Vec<String> {
        self.extra_args
            .iter()
            .chain([&self.address, &self.id])
            .cloned()
            .collect()
    }
}

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::Import,
    about: "Import an existing resource into the state of one project.",
    operands: Operands::Each(&["ADDRESS", "ID"]),
    flags: &[&DIR, &WORKSPACE, &PROJECT, &VERBOSE],
    extra: true,
    note: "Put an address with quotes or brackets into single quotes: 'aws_instance.web[\"a\"]'.",
    examples: &[(
        "import -d infra/net aws_vpc.main vpc-0a1b2c",
        "import an existing resource into the state",
    )],
    build,
};

fn build(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Command, CommandFault> {
    let [address, id] = arguments.operands.as_slice() else {
        return Err(CommandFault::nowhere(FaultKind::MissingOperand {
            name: "ADDRESS",
        }));
    };
    Ok(Command::Import(ImportCommand {
        target: CommandTarget::read(arguments, rules)?,
        verbose: arguments.switch(&VERBOSE),
        address: address.text.clone(),
        id: id.text.clone(),
        extra_args: arguments.extra_texts(),
        head: None,
    }))
}

impl fmt::Display for ImportCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::Import);
        self.target.print(&mut printer);
        printer.switch(&VERBOSE, self.verbose);
        printer.word(&self.address);
        printer.word(&self.id);
        printer.extra(&self.extra_args);
        printer.finish(f)
    }
}
