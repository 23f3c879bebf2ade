//! Failures of the pages and the API of locks.

use axum::http::StatusCode;

use crate::kit::web::{WebError, shown};

/// Failure for a lock that nobody holds.
pub(super) fn no_such_lock(asked: &str) -> WebError {
    let asked = shown(asked);
    let message = format!(
        "There is no lock “{asked}”. Most likely it was released. That happens when its pull request is merged or closed, \
         with an unlock comment, when its plan fails, or when somebody releases it here."
    );
    WebError::new(StatusCode::NOT_FOUND, "Lock not found", message)
}

/// Failure for a classic name of more than one lock.
pub(super) fn several_locks(asked: &str) -> WebError {
    let asked = shown(asked);
    let message = format!(
        "More than one lock has the name “{asked}”, and none was changed. Put the host before the name, as in \
         github.com/owner/repo/path/workspace, or use the identifier that GET /api/locks shows as ID."
    );
    WebError::new(StatusCode::CONFLICT, "Ambiguous lock name", message)
}
