//! `unlock`

use super::Command;
use super::spec::{CommandName, GrammarRow, Operands};

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::Unlock,
    about: "Release all locks of this pull request and discard its plans.",
    operands: Operands::None,
    flags: &[],
    extra: false,
    note: "It always concerns the whole pull request. To release the lock of one project only, open that lock on\nthe \
           dashboard and discard it there.",
    examples: &[],
    build: |_, _| Ok(Command::Unlock),
};
