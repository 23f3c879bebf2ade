//! Decides whether a plan may be applied: pure, from the configured sets, the verdicts and the approvals (P6).

use chrono::{DateTime, Utc};
use lockkeeper_model::model::{PlanId, Sha256Digest};

use crate::sets::{PolicySet, SetDigest, SetName};
use crate::verdict::Verdict;

/// What the gate needs to know of a configured set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededSet {
    pub name: SetName,
    pub definition: SetDigest,
    pub approve_count: u32,
    pub sticky: bool,
    /// True if the author of the pull request may not approve.
    pub prevent_self_approve: bool,
}

/// Approval of the violations of one set, by one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyApproval {
    pub set: SetName,
    /// Plan whose violations the person saw.
    pub plan: PlanId,
    /// Person: the account of this server or the numeric account of the forge, never a login alone.
    pub person: String,
    /// Login at that time, for people.
    pub login: String,
    /// Teams of the set's owners, and of rules that need approval, that the person was in.
    pub teams: Vec<String>,
    /// True if the person is an author of the pull request.
    pub is_author: bool,
    /// Violations that the person saw.
    pub items: Vec<Sha256Digest>,
    /// Digest of the set's definition at that time.
    pub definition: SetDigest,
    pub at: DateTime<Utc>,
}

/// Standing of one set for one plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetStanding {
    /// Nothing is violated.
    Passed,
    /// Violations, and enough approvals of them. Holds the logins.
    Approved(Vec<String>),
    /// Violations without enough approvals.
    NeedsApproval {
        /// Number of approvals that are needed.
        needed: u32,
        /// Logins of people whose approvals count.
        by: Vec<String>,
    },
    /// The set could not be evaluated.
    NotEvaluated(String),
    /// The plan has no verdict of this set: it was configured after the plan.
    Missing,
    /// The set was changed after the plan.
    Changed,
    /// The plan has a verdict of this set, but the set is not configured any more.
    Removed,
}
