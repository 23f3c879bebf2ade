//! Methods to merge a pull.

use std::fmt;
use std::str::FromStr;

/// Method by which a forge merges a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeMethod {
    /// Adds a merge commit.
    Merge,
    /// Puts the commits on top of the base branch.
    Rebase,
    /// Squashes all commits into one.
    Squash,
}

impl MergeMethod {
    /// Every method, in order of preference when no method is named.
    pub const ALL: [Self; 3] = [Self::Merge, Self::Rebase, Self::Squash];

    /// Returns the spelling of GitHub's REST API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Rebase => "rebase",
            Self::Squash => "squash",
        }
    }
}

impl fmt::Display for MergeMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for MergeMethod {
    type Err = UnknownMethod;

    /// Reads a method. Case does not matter.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|method| method.as_str().eq_ignore_ascii_case(text))
            .ok_or(UnknownMethod)
    }
}

/// Error for a text that is no merge method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the methods are `merge`, `rebase` and `squash`")]
pub struct UnknownMethod;
