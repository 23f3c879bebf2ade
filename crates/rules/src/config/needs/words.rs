//! Words the refusals of requirements.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{CommitSha, code_span};

/// A demand that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetRequirement {
    /// The rule, who made it, and the state that was found, in one sentence.
    pub message: String,
    /// Ways to meet the demand, each with the people who can do it.
    pub hints: Vec<String>,
}

/// Names that the sentences contain.
#[derive(Debug, Clone, Copy)]
pub struct SentenceNames<'a> {
    /// Login of the person who opened the pull.
    pub author: &'a str,
    /// Base branch of the pull.
    pub base: &'a str,
    /// Word that begins a command.
    pub executable: &'a str,
    /// First part of the names of this installation's statuses.
    pub status_name: &'a str,
}

/// Returns the refusal for a fact that could not be found out.
pub(super) fn unknown(what: &str, why: &str) -> (String, Vec<String>) {
    let again = "Run the command again in a moment. If the error remains, ask an administrator of Lockkeeper for help.";
    (
        format!(
            "Lockkeeper cannot determine {what}: {}",
            why.trim_end_matches('.')
        ),
        vec![again.to_owned()],
    )
}

/// Returns a hint after which the command has to be repeated.
pub(super) fn then(way: &str) -> String {
    format!("{way}; then run the command again.")
}

/// Formats a commit: `` `abc12345` ``.
pub(super) fn commit(commit: &CommitSha) -> String {
    format!("`{}`", commit.short())
}

/// Lists approvals of older commits: `` 1 approval is of an older commit (`abc12345`, by `bob`) ``. Returns `None` if
/// there are none.
pub(super) fn approvals_of_older(all: &BTreeMap<String, Option<CommitSha>>) -> Option<String> {
    let of = |(login, of): (&String, &Option<CommitSha>)| {
        let of = of.as_ref().map_or_else(|| "unknown".to_owned(), commit);
        format!("{of}, by {}", code_span(login))
    };
    let mut shown: Vec<String> = all.iter().take(SHOWN).map(of).collect();
    if all.len() > SHOWN {
        shown.push(format!("{} more", all.len() - SHOWN));
    }
    let shown = shown.join("; ");
    match all.len() {
        0 => None,
        1 => Some(format!("1 approval is of an older commit ({shown})")),
        many => Some(format!("{many} approvals are of older commits ({shown})")),
    }
}

/// Maximum number of listed names.
const SHOWN: usize = 10;

/// Lists names: `` `a`, `b` and `c` ``.
pub(super) fn names(all: &BTreeSet<String>) -> String {
    let mut shown: Vec<String> = all.iter().take(SHOWN).map(|text| code_span(text)).collect();
    if all.len() > SHOWN {
        shown.push(format!("{} more", all.len() - SHOWN));
    }
    match shown.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        Some((only, _)) => only.clone(),
        None => "nobody".to_owned(),
    }
}
