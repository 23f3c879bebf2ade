//! `cancel [--force]`

use std::fmt;

use super::Command;
use super::flags::Flag;
use super::spec::{CommandName, Operands, Spec};

static FORCE: Flag = Flag {
    long: "force",
    short: None,
    value: None,
    about: "Interrupt a running apply as well, which can leave things half changed.",
};

pub(super) static SPEC: Spec = Spec {
    name: CommandName::Cancel,
    about: "Stop what is waiting or running for this pull request.",
    operands: Operands::None,
    flags: &[&FORCE],
    extra: false,
    note: "What waits will not run, and plans that run are interrupted. An apply that runs is only interrupted with\n\
           `--force`: Terraform is asked to stop, and killed only if it does not within the time that the server allows.",
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
