//! Approvals and mergeability of a pull, as its forge reports them before a command runs (reference 8.2, 8.3).

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::RunKind;
use super::pull::CommitSha;

/// Reviews of a pull by people other than its author. Only the newest review of each person counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// People who approve, each with the reviewed commit. `None` means that the forge does not name the commit.
    pub by: BTreeMap<String, Option<CommitSha>>,
    /// People who request changes.
    pub asking: BTreeSet<String>,
    /// People whose review was dismissed.
    pub dismissed: BTreeSet<String>,
    /// People who approve but could not merge the pull. In a public repository, anybody can approve.
    pub onlookers: BTreeSet<String>,
    /// People who approved before the pull got its present base branch. The review says nothing about that branch,
    /// whose code is planned and applied too.
    pub before_base: BTreeSet<String>,
}

impl Approval {
    /// Returns true if somebody approves of this very commit.
    pub fn is_given_for(&self, head: &CommitSha) -> bool {
        self.by.values().any(|commit| commit.as_ref() == Some(head))
    }

    /// Returns true if somebody approves, at any commit.
    pub fn is_given_once(&self) -> bool {
        !self.by.is_empty()
    }
}

/// Mergeability of a pull, according to the forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mergeability {
    /// The pull can be merged.
    Yes,
    /// The pull could be merged but for these statuses, which are ignored ([`IgnoredStatuses`]).
    ButFor {
        /// Names of the statuses.
        statuses: BTreeSet<String>,
        /// True if the forge also requires the newest commit of the base branch in the pull, which is not checked
        /// here.
        up_to_date: bool,
    },
    /// The pull cannot be merged, for these reasons.
    No(Vec<MergeObstacle>),
    /// The forge is still computing the answer, even after several requests.
    NotKnownYet,
}

/// Obstacle to the merge of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeObstacle {
    /// The pull is a draft.
    Draft,
    /// The pull conflicts with the base branch.
    Conflicts,
    /// The base branch has newer commits, and the forge requires them in the pull.
    Behind,
    /// A required check did not pass.
    Check {
        /// Name of the check.
        name: String,
        /// State of the check.
        state: CheckState,
    },
    /// The pull has fewer approvals of people who may merge than the forge requires.
    Approvals {
        /// Number of required approvals.
        wanted: u32,
        /// Logins of people who approved.
        given: BTreeSet<String>,
    },
    /// People who may merge request changes.
    ChangesAsked(BTreeSet<String>),
    /// A rule that Lockkeeper cannot read, so the result is unknown.
    Hidden {
        /// Name of the rule, a noun.
        rule: String,
        /// Reason why the rule cannot be read, or the permission that Lockkeeper would need, in a clause.
        why: String,
    },
    /// An obstacle in the forge's own words.
    Other(String),
    /// An obstacle that the forge does not name. Every rule that it reports is met.
    Unexplained,
}

/// State of a required check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// No program has set the check.
    Missing,
    /// The check is under way.
    Pending,
    /// The check did not pass.
    Failed,
}

/// Statuses to ignore in a check of the mergeability of a pull. Lockkeeper sets one part of them at the end of the
/// command. The others belong to installations beside it (`--ignore-vcs-status-names`).
#[derive(Debug, Clone, Copy)]
pub struct IgnoredStatuses<'a> {
    /// First part of the statuses of this installation.
    pub name: &'a str,
    /// Kinds of runs that are still to come. Their statuses cannot be a success before.
    pub kinds: &'a [RunKind],
    /// First parts of the statuses of others.
    pub others: &'a [String],
}

impl IgnoredStatuses<'_> {
    /// Returns true if a status is ignored. Forges compare the names without regard to case.
    pub fn covers(&self, context: &str) -> bool {
        let first = context.split('/').next().unwrap_or_default();
        if self
            .others
            .iter()
            .any(|other| other.eq_ignore_ascii_case(first))
        {
            return true;
        }
        // Policies are checked at the end of a plan.
        let has_policies = self.kinds.contains(&RunKind::Plan);
        if has_policies && is_of(context, &format!("{}/policy_check", self.name)) {
            return true;
        }
        self.kinds
            .iter()
            .any(|kind| is_of(context, &format!("{}/{kind}", self.name)))
    }
}

/// Returns true for the combined status itself, and for that of one project.
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
        let ignored = IgnoredStatuses {
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
            assert!(ignored.covers(context), "{context}");
        }
        for context in [
            "lockkeeper/plan",
            "lockkeeper/applying",
            "lockkeeper",
            "ci/apply",
            "atlantis-eu2/plan",
            "löck",
        ] {
            assert!(!ignored.covers(context), "{context}");
        }
        let both = IgnoredStatuses {
            kinds: &[RunKind::Plan, RunKind::Apply],
            ..ignored
        };
        assert!(both.covers("lockkeeper/plan: net/default"));
    }
}
