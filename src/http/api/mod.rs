//! JSON for programs, in the shapes that Atlantis' clients know (reference 11.4).
//!
//! Two differences, on purpose: when the pages need a password, `GET /api/locks` needs it as well, because a list of
//! locks tells an outsider what a company builds and where; and no locks are `[]`, never `null`.

mod legacy;
mod locks;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};

use super::{Web, operations};

/// `/api/…` and the routes that Atlantis' own page uses.
pub(super) fn router() -> Router<Arc<Web>> {
    Router::new()
        .route("/api/locks", get(locks::list))
        .route("/api/operations", get(operations::answer))
        .route("/apply/lock", post(legacy::stop_applies))
        .route("/apply/unlock", delete(legacy::allow_applies))
        .route("/locks", delete(legacy::discard))
}
