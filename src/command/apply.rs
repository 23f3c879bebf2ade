//! `apply [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [--auto-merge-disabled] [--auto-merge-method METHOD]
//! [-- TERRAFORM ARGUMENTS]`

use std::fmt;

use super::Command;
use super::flags::{Arguments, Flag};
use super::mistake::{Fault, Problem};
use super::printer::Printer;
use super::spec::{CommandName, Operands, Rules, Spec};
use super::target::{DIR, PROJECT, Target, VERBOSE, WORKSPACE};
use crate::model::{MergeMethod, UnknownMethod};

static NO_MERGE: Flag = Flag {
    long: "auto-merge-disabled",
    short: None,
    value: None,
    about: "Leave the pull request open even if everything was applied.",
};
static METHOD: Flag = Flag {
    long: "auto-merge-method",
    short: None,
    value: Some("METHOD"),
    about: "How to merge once everything was applied: merge, rebase or squash.",
};

/// The `apply` command, which makes the planned changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ApplyCommand {
    /// Projects that the command applies.
    pub target: Target,
    /// True if the reply carries the full log.
    pub verbose: bool,
    /// Merge instructions for a pull request whose changes are all applied.
    pub merge: MergeWish,
    /// Arguments for `terraform apply`, without blocked flags.
    pub extra_args: Vec<String>,
}

/// Merge instructions of an `apply` comment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeWish {
    /// The configuration of the repository decides.
    #[default]
    AsConfigured,
    /// The pull request stays open.
    Never,
    /// Merge method to use if the configuration merges at all.
    By(MergeMethod),
}

pub(super) static SPEC: Spec = Spec {
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

fn build(arguments: &Arguments, rules: &Rules<'_>) -> Result<Command, Fault> {
    Ok(Command::Apply(ApplyCommand {
        target: Target::read(arguments, rules)?,
        verbose: arguments.switch(&VERBOSE),
        merge: merge_wish(arguments, rules)?,
        extra_args: arguments.extra_texts(),
    }))
}

fn merge_wish(arguments: &Arguments, rules: &Rules<'_>) -> Result<MergeWish, Fault> {
    let never = arguments.switch(&NO_MERGE);
    let Some(word) = arguments.value(&METHOD) else {
        return Ok(if never {
            MergeWish::Never
        } else {
            MergeWish::AsConfigured
        });
    };
    if never {
        return Err(Fault::at(
            word,
            Problem::Conflict {
                one: &NO_MERGE,
                other: &METHOD,
            },
        ));
    }
    if !rules.merge_methods {
        return Err(Fault::at(word, Problem::NoMergeMethods));
    }
    let method = word
        .text
        .parse()
        .map_err(|error: UnknownMethod| Fault::bad_value(word, &METHOD, &error.to_string()))?;
    Ok(MergeWish::By(method))
}

impl fmt::Display for ApplyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::Apply);
        self.target.print(&mut printer);
        printer.switch(&VERBOSE, self.verbose);
        match self.merge {
            MergeWish::AsConfigured => {}
            MergeWish::Never => printer.switch(&NO_MERGE, true),
            MergeWish::By(method) => printer.value(&METHOD, method.as_str()),
        }
        printer.extra(&self.extra_args);
        printer.finish(f)
    }
}
