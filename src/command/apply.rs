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

/// Make the planned changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ApplyCommand {
    /// Of which projects.
    pub target: Target,
    /// Whether the reply carries the log.
    pub verbose: bool,
    /// What to do with the pull when everything was applied.
    pub merge: MergeWish,
    /// For `terraform apply`; no blocked flag among them.
    pub extra_args: Vec<String>,
}

/// What a comment says about merging after an apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeWish {
    /// Nothing: the configuration decides.
    #[default]
    AsConfigured,
    /// Do not merge.
    Never,
    /// If the configuration merges, then this way.
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
