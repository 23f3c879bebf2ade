//! Reasons why a version cannot be fetched.

use super::store::FillFault;
use crate::git::{GitError, SnapshotError};

/// Reason why a version or a list of versions cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) struct SourceRefusal {
    /// Kind of the failure, which decides when somebody is asked again.
    pub fault: FillFault,
    /// Explanation, as a clause.
    pub why: String,
}

impl SourceRefusal {
    pub fn not_found(why: impl Into<String>) -> Self {
        Self {
            fault: FillFault::NotFound,
            why: why.into(),
        }
    }

    pub fn refused(why: impl Into<String>) -> Self {
        Self {
            fault: FillFault::Refused,
            why: why.into(),
        }
    }

    pub fn failed(why: impl Into<String>) -> Self {
        Self {
            fault: FillFault::Failed,
            why: why.into(),
        }
    }
}

impl From<GitError> for SourceRefusal {
    fn from(error: GitError) -> Self {
        let why = error.to_string();
        match error {
            GitError::NotFound { .. } | GitError::AuthFailed { .. } => {
                Self::not_found(format!("the repository is not there, or not public: {why}"))
            }
            GitError::Fsck { .. } | GitError::TooLarge { .. } => Self::refused(why),
            GitError::Unreachable { .. }
            | GitError::Corrupt { .. }
            | GitError::Altered { .. }
            | GitError::TimedOut { .. }
            | GitError::Busy { .. }
            | GitError::Other { .. } => Self::failed(why),
        }
    }
}

impl From<SnapshotError> for SourceRefusal {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Git(error) => error.into(),
            SnapshotError::Refused(_)
            | SnapshotError::TooLarge { .. }
            | SnapshotError::TooMany { .. }
            | SnapshotError::LargeFile { .. } => Self::refused(error.to_string()),
        }
    }
}
