//! How refusals are worded.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::CommitSha;

/// A demand that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// The rule, who made it, and how things are; one sentence.
    pub message: String,
    /// Ways out, each with who can go it.
    pub hints: Vec<String>,
}

/// What the sentences talk about.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// Who opened the pull.
    pub author: &'a str,
    /// Its base branch.
    pub base: &'a str,
    /// The word that opens commands.
    pub executable: &'a str,
    /// First part of the statuses of this installation.
    pub status_name: &'a str,
}

/// A fact that could not be found out.
pub(super) fn unknown(what: &str, why: &str) -> (String, Vec<String>) {
    let again = "Comment the command again in a moment. If it says the same then, whoever operates the server can \
                     look into it.";
    (
        format!("{what} cannot be found out: {}", why.trim_end_matches('.')),
        vec![again.to_owned()],
    )
}

/// A way out, after which the command is given once more.
pub(super) fn then(way: &str) -> String {
    format!("{way}; then comment the command again.")
}

/// Something from outside as code, so that it addresses nobody and breaks nothing.
pub(super) fn name(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}

/// `` `abc12345` ``
pub(super) fn commit(commit: &CommitSha) -> String {
    format!("`{}`", commit.short())
}

/// `` 1 approval is of an older commit (`abc12345`, by `bob`) ``; `None`: there are none.
pub(super) fn approvals_of_older(all: &BTreeMap<String, Option<CommitSha>>) -> Option<String> {
    let of = |(login, of): (&String, &Option<CommitSha>)| {
        let of = of.as_ref().map_or_else(|| "unknown".to_owned(), commit);
        format!("{of}, by {}", name(login))
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

/// Most names that are listed.
const SHOWN: usize = 10;

/// `` `a`, `b` and `c` ``
pub(super) fn names(all: &BTreeSet<String>) -> String {
    let mut shown: Vec<String> = all.iter().take(SHOWN).map(|text| name(text)).collect();
    if all.len() > SHOWN {
        shown.push(format!("{} more", all.len() - SHOWN));
    }
    match shown.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        Some((only, _)) => only.clone(),
        None => "nobody".to_owned(),
    }
}
