//! Adds the headers that every answer carries.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;

/// Content security policy: a page loads our own files and nothing else, and no inline script or style takes effect.
/// Somebody who smuggles a tag past the templates gains nothing.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every answer.
///
/// `Referrer-Policy` is `same-origin` and not `no-referrer`, because the latter makes browsers hide the `Origin` of
/// our own forms as well.
const ALWAYS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
];

/// Adds the headers. An answer without a cache lifetime is not cached.
pub(crate) fn secure(response: &mut Response) {
    let headers = response.headers_mut();
    // At once, because every growth moves all headers.
    headers.reserve(ALWAYS.len() + 1);
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}
