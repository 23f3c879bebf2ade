//! The guard of pages and the API: which requests reach a handler.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::routes::GuardedRoutes;
use super::{auth, reach};

/// Admits requests with the right password, to routes that their account may use.
pub(crate) async fn guard(
    State(routes): State<GuardedRoutes>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(refusal) = auth::check(&routes.web, &mut request).await {
        return refusal;
    }
    if let Err(failure) = routes.check_access(&request) {
        return failure.into_response();
    }
    match reach::check(&routes, request).await {
        Ok(request) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}
