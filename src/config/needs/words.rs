//! How refusals are worded.

use std::collections::BTreeSet;

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
    (format!("{what} cannot be found out: {}", why.trim_end_matches('.')), vec![again.to_owned()])
}

/// A way out, after which the command is given once more.
pub(super) fn then(way: &str) -> String {
    format!("{way}; then comment the command again.")
}

/// Something from outside as code, so that it addresses nobody and breaks nothing.
pub(super) fn name(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
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
