//! What the failure of git or of the forge means for a mirror.

use crate::git::GitError;
use crate::model::{FailureKind, SyncFailure};
use crate::vcs::ForgeError;

/// Longest message that is kept, in characters.
const MAX_MESSAGE: usize = 1000;

/// A failure with its message cut to what a row and a page can take.
pub(super) fn failure(kind: FailureKind, message: &str) -> SyncFailure {
    SyncFailure { kind, message: message.chars().take(MAX_MESSAGE).collect() }
}

pub(super) fn of_git(error: &GitError) -> SyncFailure {
    let kind = match error {
        GitError::NotFound { .. } => FailureKind::NotFound,
        GitError::AuthFailed { .. } => FailureKind::Authentication,
        GitError::Unreachable { .. } => FailureKind::Unreachable,
        GitError::TimedOut { .. } => FailureKind::TimedOut,
        // A mirror that was changed is replaced like a damaged one.
        GitError::Corrupt { .. } | GitError::Altered { .. } => FailureKind::Corrupt,
        GitError::Busy { .. } | GitError::TooLarge { .. } | GitError::Fsck { .. } | GitError::Other { .. } => {
            FailureKind::Other
        }
    };
    failure(kind, &error.to_string())
}

pub(super) fn of_forge(error: &ForgeError) -> SyncFailure {
    let kind = match error {
        ForgeError::NotFound { .. } => FailureKind::NotFound,
        ForgeError::Denied { .. } => FailureKind::Authentication,
        ForgeError::RateLimited { .. } | ForgeError::Unavailable { .. } => FailureKind::Unreachable,
        ForgeError::Moved { .. } | ForgeError::Rejected { .. } => FailureKind::Other,
    };
    failure(kind, &error.to_string())
}
