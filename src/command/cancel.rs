//! `cancel`

use super::Command;
use super::spec::{CommandName, Operands, Spec};

pub(super) static SPEC: Spec = Spec {
    name: CommandName::Cancel,
    about: "Stop what is waiting or running for this pull request.",
    operands: Operands::None,
    flags: &[],
    extra: false,
    note: "",
    examples: &[],
    build: |_, _| Ok(Command::Cancel),
};
