//! Counts requests for monitors.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::telemetry::{Metric, Metrics, status_class};

/// Layer that counts answers and does nothing else.
pub(crate) async fn count(
    State(metrics): State<Metrics>,
    request: Request,
    next: Next,
) -> Response {
    let counted = CountedRequest::of(&request);
    let response = next.run(request).await;
    counted.answered(&metrics, &response);
    response
}

/// Labels of a request, by the route as the router knows it, so that addresses of others make no series.
pub(super) struct CountedRequest {
    route: Option<MatchedPath>,
    method: Method,
}

impl CountedRequest {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            route: request.extensions().get::<MatchedPath>().cloned(),
            method: request.method().clone(),
        }
    }

    /// Counts the answer to the request.
    pub(super) fn answered(&self, metrics: &Metrics, response: &Response) {
        let route = self.route.as_ref().map_or("none", MatchedPath::as_str);
        add(metrics, route, &self.method, response.status());
    }
}

/// Counts an answer of a route.
pub(crate) fn add(metrics: &Metrics, route: &str, verb: &Method, status: StatusCode) {
    metrics.count(
        Metric::HttpRequests,
        &[route, method(verb), status_class(status.as_u16())],
    );
}

/// Returns the label of a method. All unknown methods share one label, because anybody can make up a verb.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
