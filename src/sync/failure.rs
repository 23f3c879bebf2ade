//! Converts failures of git and of the forge to failures of a sync.

use crate::forges::ForgeError;
use crate::git::GitError;
use crate::model::{FailureKind, SyncFailure};

/// Maximum length of a stored message, in characters.
const MAX_MESSAGE: usize = 1000;

/// Creates a failure with its message cut for the row and the page.
pub(super) fn failure(kind: FailureKind, message: &str) -> SyncFailure {
    SyncFailure {
        kind,
        message: message.chars().take(MAX_MESSAGE).collect(),
    }
}

pub(super) fn of_git(error: &GitError) -> SyncFailure {
    let kind = match error {
        GitError::NotFound { .. } => FailureKind::NotFound,
        GitError::AuthFailed { .. } => FailureKind::Authentication,
        GitError::Unreachable { .. } => FailureKind::Unreachable,
        GitError::TimedOut { .. } => FailureKind::TimedOut,
        // A mirror that was changed is replaced like a damaged one.
        GitError::Corrupt { .. } | GitError::Altered { .. } => FailureKind::Corrupt,
        GitError::Busy { .. }
        | GitError::TooLarge { .. }
        | GitError::Fsck { .. }
        | GitError::Other { .. } => FailureKind::Other,
    };
    failure(kind, &error.to_string())
}

/// Returns the failure of an attempt to replace a damaged mirror. If runs prevented the replacement, the mirror is
/// still damaged, so the next attempt has to replace it.
pub(super) fn of_replacing(error: &GitError, before: Option<&SyncFailure>) -> SyncFailure {
    let is_damaged = before.is_some_and(|before| before.kind == FailureKind::Corrupt);
    if is_damaged && matches!(error, GitError::Busy { .. }) {
        return failure(FailureKind::Corrupt, &error.to_string());
    }
    of_git(error)
}

pub(super) fn of_forge(error: &ForgeError) -> SyncFailure {
    let kind = match error {
        ForgeError::NotFound { .. } | ForgeError::NotConfigured { .. } => FailureKind::NotFound,
        ForgeError::Denied { .. } => FailureKind::Authentication,
        ForgeError::RateLimited { .. } | ForgeError::Unavailable { .. } => FailureKind::Unreachable,
        ForgeError::Moved { .. } | ForgeError::Rejected { .. } => FailureKind::Other,
    };
    failure(kind, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_mirror_that_runs_kept_in_place_is_replaced_by_the_next_attempt() {
        let busy = GitError::Busy {
            doing: "create the mirror again".to_owned(),
            message: "runs use it".to_owned(),
        };
        let kind = |before| of_replacing(&busy, Some(&failure(before, "before"))).kind;
        assert_eq!(kind(FailureKind::Corrupt), FailureKind::Corrupt);
        assert_eq!(
            kind(FailureKind::Verification),
            FailureKind::Other,
            "the mismatches are counted by themselves"
        );
        assert_eq!(of_replacing(&busy, None).kind, FailureKind::Other);
    }
}
