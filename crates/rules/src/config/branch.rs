//! Filters of base branches: the key `branch` of a project or of an entry of the server's file (reference 3.11).

use regex::Regex;

use super::yaml::{Fields, FileReader};
use crate::model::BranchName;

/// A regular expression for the name of a base branch. It may match anywhere in the name unless it has anchors.
#[derive(Debug, Clone)]
pub struct BranchFilter(Regex);

impl BranchFilter {
    /// Creates a filter from the expression between the slashes.
    pub fn new(expression: Regex) -> Self {
        Self(expression)
    }

    /// Reads `branch` from a mapping.
    pub(in crate::config) fn read(reader: &mut FileReader, fields: &Fields<'_>) -> Option<Self> {
        let text = reader.text(fields, "branch")?;
        reader.slashed_expression(&text, "branch").map(Self)
    }

    /// Returns true if the filter matches the branch.
    pub fn fits(&self, branch: &BranchName) -> bool {
        self.0.is_match(branch.as_str())
    }

    /// Returns the expression without slashes.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for BranchFilter {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for BranchFilter {}
