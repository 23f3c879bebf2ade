//! Facts about a pull that requirements depend on.

use crate::model::{Approval, Mergeability};

/// A fact about a pull, if it could be found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// The value that was found.
    Known(T),
    /// The reason why the fact could not be found out, in one line.
    Unknown(String),
}

impl<T> Default for Fact<T> {
    fn default() -> Self {
        Self::Unknown("the forge was not asked".to_owned())
    }
}

/// Facts about a pull, as far as the requirements need them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequirementFacts {
    /// Approvals that the pull has.
    pub approval: Fact<Approval>,
    /// Answer of the forge whether the pull can be merged.
    pub mergeability: Fact<Mergeability>,
    /// Commits of the base branch that the pull does not have.
    pub base: Fact<BaseGap>,
}

/// Number of commits of the current base branch that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseGap {
    /// Number missing in the head of the pull.
    pub in_head: u64,
    /// Number missing in the commit that is planned or applied: the head, or its merge with the base branch.
    pub in_planned: u64,
    /// True if that commit is the merge (`--checkout-strategy=merge`).
    pub is_merged: bool,
}
