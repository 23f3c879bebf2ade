//! Statuses of commits, as forges show them.

use std::fmt;

use sha2::{Digest, Sha256};

use super::pull::{CommitSha, PullNumber};
use super::repo::RepoId;
use super::text::text_enum;

text_enum! {
    /// State of a status, in the words of GitHub's REST API.
    pub enum CommitState {
        /// The work is under way.
        Pending = "pending",
        /// The work ended with a success.
        Success = "success",
        /// The work ended with a failure.
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
    /// Maximum length in characters. A longer name ends in a hash of the whole (reference 9.1).
    pub const MAX_CHARS: usize = 255;

    /// Creates a name. Shortens one that is too long so that two long names stay different.
    pub fn new(text: &str) -> Self {
        if text.chars().count() <= Self::MAX_CHARS {
            return Self(text.to_owned());
        }
        let hash = &hex::encode(Sha256::digest(text))[..12];
        let kept: String = text.chars().take(Self::MAX_CHARS - 13).collect();
        Self(format!("{kept}-{hash}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StatusContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Place of a status. A forge shows statuses on the commit, on the pull, or on both.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StatusTarget {
    /// Repository of the commit.
    pub repo: RepoId,
    /// Pull with the commit. Jobs of version 0.2.0 have none, nor do jobs whose command was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullNumber>,
    pub commit: CommitSha,
}

/// A status to set on a commit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommitStatus {
    /// Name of the status.
    pub context: StatusContext,
    /// State of the status.
    pub state: CommitState,
    /// One line for people.
    pub description: String,
    /// URL of the page with details.
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
