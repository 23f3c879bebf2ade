//! Reasons why a version cannot be fetched.

use super::store::FillFault;
use crate::git::{GitError, SnapshotError};

/// Reason why the files of a commit make no package.
#[derive(Debug)]
pub(super) enum FilesFault {
    /// The files cannot be read here, which says nothing about the commit.
    Unread(GitError),
    /// The commit has no package of the version.
    Refused(SourceRefusal),
}

impl From<SnapshotError> for FilesFault {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Git(error) => Self::Unread(error),
            SnapshotError::Refused(_)
            | SnapshotError::TooLarge { .. }
            | SnapshotError::TooMany { .. }
            | SnapshotError::LargeFile { .. } => {
                Self::Refused(SourceRefusal::refused(error.to_string()))
            }
        }
    }
}

impl From<SourceRefusal> for FilesFault {
    fn from(refusal: SourceRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<FilesFault> for SourceRefusal {
    fn from(fault: FilesFault) -> Self {
        match fault {
            FilesFault::Unread(error) => error.into(),
            FilesFault::Refused(refusal) => refusal,
        }
    }
}

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
        FilesFault::from(error).into()
    }
}
