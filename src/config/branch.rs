//! Which base branches something is about: `branch` of a project or of an entry of the server (reference 3.11).

use regex::Regex;

use super::yaml::{Fields, Reader};
use crate::model::BranchName;

/// A regular expression that a base branch has to match, anywhere in its name unless it has anchors.
#[derive(Debug, Clone)]
pub struct BranchFilter(Regex);

impl BranchFilter {
    /// From the expression between the slashes.
    pub fn new(expression: Regex) -> Self {
        Self(expression)
    }

    /// Takes `branch` out of a mapping.
    pub(in crate::config) fn read(reader: &mut Reader, fields: &Fields<'_>) -> Option<Self> {
        let text = reader.text(fields, "branch")?;
        reader.slashed_expression(&text, "branch").map(Self)
    }

    /// Whether it is about a branch.
    pub fn fits(&self, branch: &BranchName) -> bool {
        self.0.is_match(branch.as_str())
    }

    /// The expression, without slashes.
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
