//! Counts requests for monitors.

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use crate::telemetry::{Metric, Metrics, status_class};

/// Counts a request by the route as the router knows it, so that addresses of others make no series.
pub(crate) async fn count(
    State(metrics): State<Metrics>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = method(request.method());
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics.count(
        Metric::HttpRequests,
        &[route, method, status_class(response.status().as_u16())],
    );
    response
}

/// Anybody can make up a verb.
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
