//! `apply [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [--auto-merge-disabled] [--auto-merge-method METHOD]
//! [-- TERRAFORM ARGUMENTS]`

use std::fmt;

use chrono::{DateTime, Utc};

use super::Command;
use super::flags::{Arguments, CommandFlag};
use super::mistake::{CommandFault, FaultKind};
use super::printer::Printer;
use super::spec::{CommandName, GrammarRow, Operands, WordRules};
use super::target::{CommandTarget, DIR, PROJECT, VERBOSE, WORKSPACE};
use crate::model::{MergeMethod, UnknownMethod};

static NO_MERGE: CommandFlag = CommandFlag {
    long: "auto-merge-disabled",
    short: None,
    value: None,
    about: "Leave the pull request open even if everything was applied.",
};
static METHOD: CommandFlag = CommandFlag {
    long: "auto-merge-method",
    short: None,
    value: Some("METHOD"),
    about: "How to merge once everything was applied: merge, rebase or squash.",
};

/// The `apply` command, which makes the planned changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ApplyCommand {
    /// Projects that the command applies.
    pub target: CommandTarget,
    /// True if the reply carries the full log.
    pub verbose: bool,
    /// Merge instructions for a pull request whose changes are all applied.
    pub merge: MergeOptions,
    /// Arguments for `terraform apply`, without blocked flags.
    pub extra_args: Vec<String>,
    /// Time when the comment was written, if the forge named it. It is not a part of the text: the comment may be
    /// delivered later, after a plan that its author has not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<DateTime<Utc>>,
}

/// Merge instructions of an `apply` comment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeOptions {
    /// The configuration of the repository decides.
    #[default]
    AsConfigured,
    /// The pull request stays open.
    Never,
    /// Merge method to use if the configuration merges at all.
    By(MergeMethod),
}

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::Apply,
    about: "Make the planned changes.",
    operands: Operands::None,
    flags: &[&DIR, &WORKSPACE, &PROJECT, &VERBOSE, &NO_MERGE, &METHOD],
    extra: true,
    note: "Without -d, -w and -p it applies every plan of this pull request.",
    examples: &[
        ("apply", "every plan of this pull request"),
        ("apply -d . -w staging", "one directory and workspace"),
    ],
    build,
};

fn build(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Command, CommandFault> {
    Ok(Command::Apply(ApplyCommand {
        target: CommandTarget::read(arguments, rules)?,
        verbose: arguments.switch(&VERBOSE),
        merge: merge_options(arguments)?,
        extra_args: arguments.extra_texts(),
        written_at: None,
    }))
}

fn merge_options(arguments: &Arguments) -> Result<MergeOptions, CommandFault> {
    let never = arguments.switch(&NO_MERGE);
    let Some(word) = arguments.value(&METHOD) else {
        return Ok(if never {
            MergeOptions::Never
        } else {
            MergeOptions::AsConfigured
        });
    };
    if never {
        return Err(CommandFault::at(
            word,
            FaultKind::Conflict {
                one: &NO_MERGE,
                other: &METHOD,
            },
        ));
    }
    let method = word.text.parse().map_err(|error: UnknownMethod| {
        CommandFault::bad_value(word, &METHOD, &error.to_string())
    })?;
    Ok(MergeOptions::By(method))
}

impl fmt::Display for ApplyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::Apply);
        self.target.print(&mut printer);
        printer.switch(&VERBOSE, self.verbose);
        match self.merge {
            MergeOptions::AsConfigured => {}
            MergeOptions::Never => printer.switch(&NO_MERGE, true),
            MergeOptions::By(method) => printer.value(&METHOD, method.as_str()),
        }
        printer.extra(&self.extra_args);
        printer.finish(f)
    }
}
