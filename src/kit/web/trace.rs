//! Logs one line per request, with the reference that ties an error page to the log.

use axum::extract::Request;
use axum::response::Response;
use chrono::{DateTime, Utc};
use tracing::{Span, debug, info, info_span};

use super::WebState;

/// Log of a request, from its start to the head of its answer, because a stream may go on. The query stays out of the
/// log.
pub(super) struct RequestLog {
    /// Reference of the request, shown on error pages.
    reference: String,
    /// True if only failures are worth a line.
    quiet: bool,
    started: DateTime<Utc>,
}

/// Returns true for paths that are requested so often that only failures are worth a line: by monitors, and by `go` and
/// `terraform`.
fn is_quiet(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/status" | "/metrics")
        || path.starts_with("/registry/")
}

impl RequestLog {
    /// Starts the log of a request, and assigns the reference of the request.
    pub(super) fn start(web: &WebState, request: &Request) -> Self {
        Self {
            reference: web.ids.next().simple().to_string(),
            quiet: is_quiet(request.uri().path()),
            started: web.clock.now(),
        }
    }

    /// Returns the span of everything that is logged while the request is answered.
    pub(super) fn span(&self, request: &Request) -> Span {
        info_span!("request", request.id = %self.reference, method = %request.method(), path = request.uri().path())
    }

    /// Returns the reference of the request.
    pub(super) fn reference(&self) -> &str {
        &self.reference
    }

    /// Logs the end of the request.
    pub(super) fn end(&self, web: &WebState, response: &Response) {
        let status = response.status().as_u16();
        let duration_ms = (web.clock.now() - self.started).num_milliseconds();
        if self.quiet && status < 400 {
            debug!(status, duration_ms, "Answered");
        } else {
            info!(status, duration_ms, "Answered");
        }
    }
}
