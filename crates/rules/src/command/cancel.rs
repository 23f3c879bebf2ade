//! `cancel [--force]`

use std::fmt;

use super::Command;
use super::flags::CommandFlag;
use super::spec::{CommandName, GrammarRow, Operands};

static FORCE: CommandFlag = CommandFlag {
    long: "force",
    short: None,
    value: None,
    about: "Interrupt a running apply as well, which can leave its changes incomplete.",
};

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::Cancel,
    about: "Stop the queued and running commands of this pull request.",
    operands: Operands::None,
    flags: &[&FORCE],
    extra: false,
    note: "Queued commands do not run, and running plans are interrupted. A running apply is only interrupted \
           with\n`--force`: Terraform is asked to stop, and killed if it does not stop within the time limit of the \
           server.",
    examples: &[],
    build: |arguments, _| {
        Ok(Command::Cancel(CancelCommand {
            force: arguments.switch(&FORCE),
        }))
    },
};

/// The `cancel` command, which stops queued and running work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CancelCommand {
    /// True if a running apply is interrupted as well.
    pub force: bool,
}

impl fmt::Display for CancelCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.force {
            "cancel --force"
        } else {
            "cancel"
        })
    }
}
