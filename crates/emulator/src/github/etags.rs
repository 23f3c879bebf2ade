//! Implements conditional requests (GitHub REST: "Use conditional requests if appropriate"). Every answer to a `GET`
//! has a tag. A client that sends the tag back gets an empty answer if nothing has changed, and the request is not
//! counted.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use sha2::{Digest, Sha256};

/// Tag that a client knows, and the request's other inputs to a tag.
pub(super) struct Condition {
    is_get: bool,
    known: Option<HeaderValue>,
    /// Credentials of the caller, because GitHub's tags depend on them.
    caller: Vec<u8>,
}

impl Condition {
    pub(super) fn of(request: &Request) -> Self {
        let header = |name| request.headers().get(name);
        Self {
            is_get: request.method() == Method::GET,
            known: header(IF_NONE_MATCH).cloned(),
            caller: header(AUTHORIZATION)
                .map(|value| value.as_bytes().to_vec())
                .unwrap_or_default(),
        }
    }

    /// Adds the tag to the answer. If the client knows the tag, removes the body and returns true.
    pub(super) async fn apply(self, response: Response) -> (Response, bool) {
        if !self.is_get || response.status() != StatusCode::OK {
            return (response, false);
        }
        let (mut head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let digest = Sha256::new()
            .chain_update(&self.caller)
            .chain_update(&body)
            .finalize();
        let tag = HeaderValue::from_str(&format!("W/\"{}\"", hex::encode(digest)));
        let tag = tag.expect("hexadecimal digits make a header");
        let unchanged = self.known.as_ref() == Some(&tag);
        head.headers.insert(ETAG, tag);
        if !unchanged {
            return (Response::from_parts(head, Body::from(body)), false);
        }
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(CONTENT_TYPE);
        head.headers.remove(CONTENT_LENGTH);
        (Response::from_parts(head, Body::empty()), true)
    }
}
