//! Failures of the pages and the API of owners.

use axum::http::StatusCode;

use crate::kit::web::{WebError, shown};
use crate::store::Owner;

/// Failure for a new owner with the name of an existing one.
pub(super) fn name_taken(owner: &Owner) -> WebError {
    let message = format!(
        "Owner `{}` already exists, added by {}.",
        owner.name, owner.created_by
    );
    WebError::nothing_changed(
        (StatusCode::CONFLICT, "Name already taken"),
        Some("name"),
        "name_taken",
        &shown(&message),
        "Use that owner, or choose another name.",
    )
}
