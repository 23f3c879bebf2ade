//! `unlock`

use super::Command;
use super::spec::{CommandName, Operands, Spec};

pub(super) static SPEC: Spec = Spec {
    name: CommandName::Unlock,
    about: "Give back every lock of this pull request and discard its plans.",
    operands: Operands::None,
    flags: &[],
    extra: false,
    note: "It always means the whole pull request. To give back the lock of one project only, open that lock on\n\
           the dashboard and discard it there.",
    examples: &[],
    build: |_, _| Ok(Command::Unlock),
};
