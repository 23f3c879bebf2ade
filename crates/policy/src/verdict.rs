//! Verdict of one policy set on one plan. It is stored with the record of the plan, in the same transaction.

use lockkeeper_model::model::Sha256Digest;

use crate::findings::Finding;
use crate::sets::{SetDigest, SetName};

/// Verdict of one policy set on one plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Set that was evaluated.
    pub set: SetName,
    /// Definition of the set at that time.
    pub definition: SetDigest,
    /// Result.
    pub outcome: VerdictOutcome,
    /// Origin of the policies, for people: the directory, or the commit that a branch or tag pointed at.
    pub origin: String,
    /// SHA-256 of the policies that were evaluated, if they are known.
    pub content: Option<Sha256Digest>,
    /// Findings, worst first, at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Number of findings beyond that limit.
    pub more_findings: u32,
    /// Digests of the violations that an approval has to cover. Empty unless the outcome is `Failed`.
    pub items: Vec<Sha256Digest>,
    /// Text that the tool printed, for the page of the run and folded in comments; at most [`MAX_OUTPUT`] bytes.
    pub output: String,
}

/// Result of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictOutcome {
    /// Nothing is violated.
    Passed,
    /// At least one violation; approvals can let it pass.
    Failed,
    /// The set could not be evaluated. No approval lets it pass. Holds the reason and the way out, in a sentence for people.
    NotEvaluated(String),
}

/// Largest number of findings that are kept of one set.
pub const MAX_FINDINGS: usize = 200;

/// Largest output that is kept of one set, in bytes.
pub const MAX_OUTPUT: usize = 256 * 1024;
