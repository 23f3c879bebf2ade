//! Logs one line per request, with the reference that ties an error page to the log.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument, debug, info, info_span};

use super::WebState;

/// Reference of a request, shown on error pages.
#[derive(Clone, Debug)]
pub(crate) struct Reference(pub String);

/// Returns true for paths that are requested so often that only failures are worth a line: by monitors, and by `go` and
/// `terraform`.
fn is_quiet(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/status" | "/metrics")
        || path.starts_with("/registry/")
}

/// Assigns the reference and logs the end of the request: the head of the answer, because a stream may go on. The
/// query stays out of the log.
pub(crate) async fn log(
    State(web): State<Arc<WebState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let reference = Reference(web.ids.next().simple().to_string());
    let span = info_span!("request", request.id = %reference.0, method = %request.method(), path = request.uri().path());
    let quiet = is_quiet(request.uri().path());
    request.extensions_mut().insert(reference);
    let started = web.clock.now();
    async {
        let response = next.run(request).await;
        let status = response.status().as_u16();
        let duration_ms = (web.clock.now() - started).num_milliseconds();
        if quiet && status < 400 {
            debug!(status, duration_ms, "Answered");
        } else {
            info!(status, duration_ms, "Answered");
        }
        response
    }
    .instrument(span)
    .await
}
