//! Failures of the pages of runs.

use std::time::Duration;

use axum::http::StatusCode;
use chrono::{DateTime, Utc};

use crate::kit::web::WebError;

/// Failure for a run that never existed or was removed.
pub(super) fn no_such_run() -> WebError {
    let message = "No run has this identifier. The address may be incomplete, or the run is older than the runs that \
                   this server keeps.";
    WebError::new(StatusCode::NOT_FOUND, "Run not found", message)
}

/// Failure for a run that is older than the retention time.
pub(super) fn run_removed(kept: Duration, asked_at: DateTime<Utc>) -> WebError {
    let days = kept.as_secs() / 86_400;
    let message = format!(
        "This server removes commands and their runs after {days} days (--keep-runs), and this one is from {}. The \
         comment on its pull request still has the result.",
        asked_at.format("%Y-%m-%d")
    );
    WebError::new(StatusCode::GONE, "This run was removed", message)
}

/// Failure for interrupting an apply without confirmation.
pub(super) fn apply_must_be_confirmed() -> WebError {
    let message = "This apply is in progress and was not interrupted, because that can leave the infrastructure half \
                   changed. To interrupt it anyway, open the page of the run again and confirm it there.";
    WebError::new(StatusCode::CONFLICT, "Apply is running", message)
}

/// Failure for cancelling a command that has ended.
pub(super) fn command_is_over() -> WebError {
    let message = "The command had ended before it could be cancelled. Its page shows the result.";
    WebError::new(StatusCode::CONFLICT, "Too late to cancel", message)
}

/// Failure for a browser above the limit of viewers.
pub(super) fn too_many_viewers() -> WebError {
    let message =
        "Too many browsers are watching runs on this replica. Reload the page to see new output.";
    WebError::new(StatusCode::SERVICE_UNAVAILABLE, "Too many viewers", message)
}
