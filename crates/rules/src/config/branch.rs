//! Filters of base branches: the key `branch` of a project or of an entry of the server's file (reference 3.11).

use regex::Regex;

use super::yaml::{FileReader, FromYaml, KeyShape, Located, Shaped, ValueName, YamlNode};
use crate::model::BranchName;

/// A regular expression for the name of a base branch. It may match anywhere in the name unless it has anchors.
#[derive(Debug, Clone)]
pub struct BranchFilter(Regex);

impl BranchFilter {
    /// Creates a filter from the expression between the slashes.
    pub fn new(expression: Regex) -> Self {
        Self(expression)
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

impl Shaped for BranchFilter {
    const SHAPE: KeyShape = KeyShape::SlashedRegex;
}

impl FromYaml for BranchFilter {
    fn read(reader: &mut FileReader, node: &YamlNode, name: ValueName) -> Option<Self> {
        let text = Located::read(reader, node, name)?;
        reader.slashed_expression(&text, name.key).map(Self)
    }
}

impl PartialEq for BranchFilter {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for BranchFilter {}
