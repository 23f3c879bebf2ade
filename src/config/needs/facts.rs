//! What has been found out about a pull.

use crate::model::{Approval, Mergeability};

/// Something that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// It is so.
    Known(T),
    /// It could not be found out; why, in one line.
    Unknown(String),
}

impl<T> Default for Fact<T> {
    fn default() -> Self {
        Self::Unknown("nobody has asked".to_owned())
    }
}

/// What has been found out about a pull, as far as it was needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Who approves of it.
    pub approval: Fact<Approval>,
    /// Whether it could be merged.
    pub mergeability: Fact<Mergeability>,
    /// How far the base branch is ahead.
    pub base: Fact<BaseGap>,
}

/// How many commits of the base branch, as it is now, are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseGap {
    /// In the head of the pull.
    pub in_head: u64,
    /// In what is planned or applied: the head, or its merge with the base branch.
    pub in_planned: u64,
    /// Whether that is the merge (`--checkout-strategy=merge`).
    pub is_merged: bool,
}
