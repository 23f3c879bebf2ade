//! Commit statuses.

use std::fmt;

use sha2::{Digest, Sha256};

use super::text::text_enum;

text_enum! {
    /// The three states a status can have in the words of GitHub's REST API.
    pub enum CommitState {
        /// Under way.
        Pending = "pending",
        /// Fine.
        Success = "success",
        /// Not fine.
        Failure = "failure",
    }
}

/// The name of a status: `lockkeeper/plan`, `lockkeeper/plan: net`.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct StatusContext(String);

impl StatusContext {
    /// Longest context; a longer one ends in a hash of the whole (reference 9.1).
    pub const MAX_CHARS: usize = 255;

    /// Cuts a name that is too long without letting two long names become one.
    pub fn new(text: &str) -> Self {
        if text.chars().count() <= Self::MAX_CHARS {
            return Self(text.to_owned());
        }
        let hash = &hex::encode(Sha256::digest(text))[..12];
        let kept: String = text.chars().take(Self::MAX_CHARS - 13).collect();
        Self(format!("{kept}-{hash}"))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StatusContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A status to put on a commit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommitStatus {
    /// Its name.
    pub context: StatusContext,
    /// Its state.
    pub state: CommitState,
    /// One line for people.
    pub description: String,
    /// Page with details.
    pub url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_contexts_stay_apart() {
        let long =
            |end: &str| StatusContext::new(&format!("lockkeeper/plan: {}{end}", "é".repeat(300)));
        assert_eq!(long("a").as_str().chars().count(), StatusContext::MAX_CHARS);
        assert_ne!(long("a"), long("b"));
    }
}
