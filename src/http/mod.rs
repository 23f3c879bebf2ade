//! The web server: the webhook door, the pages, the API.

pub mod events;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;

use crate::context::Ctx;

/// The webhook door.
pub fn door(ctx: Arc<Ctx>) -> Router {
    Router::new()
        .route("/events", post(events::receive).layer(DefaultBodyLimit::max(events::MAX_BODY_BYTES)))
        .with_state(ctx)
}
