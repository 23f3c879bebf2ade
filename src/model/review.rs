//! What a forge says about a pull before something is done for it: who approves of it, and whether it could be merged
//! (reference 8.2, 8.3).

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::RunKind;
use super::pull::CommitSha;

/// What people other than the author said of a pull; of each only the newest word counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// Who approves, each with the commit that the review is of; `None`: the forge does not tell which.
    pub by: BTreeMap<String, Option<CommitSha>>,
    /// Who asks for changes.
    pub asking: BTreeSet<String>,
    /// Whose word was dismissed.
    pub dismissed: BTreeSet<String>,
    /// Who approves, but could not merge it either: anybody can do that in a public repository.
    pub onlookers: BTreeSet<String>,
}

impl Approval {
    /// Whether somebody approves of this very commit.
    pub fn is_given_for(&self, head: &CommitSha) -> bool {
        self.by.values().any(|commit| commit.as_ref() == Some(head))
    }

    /// Whether somebody approves, of whatever commit.
    pub fn is_given_once(&self) -> bool {
        !self.by.is_empty()
    }
}

/// Whether the forge would let a pull be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mergeability {
    /// It would.
    Yes,
    /// It would, but for these statuses, which are to be left aside ([`Aside`]).
    ButFor {
        /// Their names.
        statuses: BTreeSet<String>,
        /// Whether the forge also demands that the pull contains the newest commit of the base branch, which is not
        /// looked at here.
        up_to_date: bool,
    },
    /// It would not, for these reasons.
    No(Vec<Obstacle>),
    /// It is still finding out, even after it was asked several times.
    NotKnownYet,
}

/// What stands in the way of merging a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It is a draft.
    Draft,
    /// It conflicts with the base branch.
    Conflicts,
    /// The base branch has newer commits, and the forge wants them in the pull.
    Behind,
    /// A check that is required did not pass.
    Check {
        /// Its name.
        name: String,
        /// What it says.
        state: CheckState,
    },
    /// There are fewer approvals of people who may merge than the forge wants.
    Approvals {
        /// How many it wants.
        wanted: u32,
        /// Whose there are.
        given: BTreeSet<String>,
    },
    /// These people, who may merge, ask for changes.
    ChangesAsked(BTreeSet<String>),
    /// A rule that cannot be looked at from here; whether it holds is not known.
    Hidden {
        /// The rule, a noun.
        rule: String,
        /// Why it cannot be looked at, or what Lockkeeper would need; a clause.
        why: String,
    },
    /// The forge's own word.
    Other(String),
    /// The forge does not say what, and every rule that it tells of holds.
    Unexplained,
}

/// What a required check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// Nobody has set it.
    Missing,
    /// It is under way.
    Pending,
    /// It did not pass.
    Failed,
}

/// Statuses that do not count when it is asked whether a pull could be merged: those that Lockkeeper sets itself at the
/// end of what is asked for, and those of installations beside it (`--ignore-vcs-status-names`).
#[derive(Debug, Clone, Copy)]
pub struct Aside<'a> {
    /// First part of the statuses of this installation.
    pub name: &'a str,
    /// What is yet to be done; its statuses cannot be a success before.
    pub kinds: &'a [RunKind],
    /// First parts of the statuses of others.
    pub others: &'a [String],
}

impl Aside<'_> {
    /// Whether a status is left aside. Forges compare the names without regard to case.
    pub fn covers(&self, context: &str) -> bool {
        let first = context.split('/').next().unwrap_or_default();
        if self
            .others
            .iter()
            .any(|other| other.eq_ignore_ascii_case(first))
        {
            return true;
        }
        self.kinds
            .iter()
            .any(|kind| is_of(context, &format!("{}/{kind}", self.name)))
    }
}

/// The combined status itself, or that of one project.
fn is_of(context: &str, combined: &str) -> bool {
    let Some((start, rest)) = context.split_at_checked(combined.len()) else {
        return false;
    };
    start.eq_ignore_ascii_case(combined) && (rest.is_empty() || rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statuses_that_are_yet_to_come_are_left_aside() {
        let others = ["atlantis-eu".to_owned()];
        let aside = Aside {
            name: "lockkeeper",
            kinds: &[RunKind::Apply],
            others: &others,
        };
        for context in [
            "lockkeeper/apply",
            "Lockkeeper/Apply",
            "lockkeeper/apply: net/default",
            "atlantis-eu/plan",
        ] {
            assert!(aside.covers(context), "{context}");
        }
        for context in [
            "lockkeeper/plan",
            "lockkeeper/applying",
            "lockkeeper",
            "ci/apply",
            "atlantis-eu2/plan",
            "löck",
        ] {
            assert!(!aside.covers(context), "{context}");
        }
        let both = Aside {
            kinds: &[RunKind::Plan, RunKind::Apply],
            ..aside
        };
        assert!(both.covers("lockkeeper/plan: net/default"));
    }
}
