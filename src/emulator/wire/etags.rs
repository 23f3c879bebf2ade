//! Conditional requests (GitHub REST: "Use conditional requests if appropriate"): every answer to a `GET` has a tag, and
//! whoever sends it back is only told that nothing has changed, which is not counted.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use sha2::{Digest, Sha256};

/// What a request says about the answer it has.
pub(super) struct Condition {
    is_get: bool,
    known: Option<HeaderValue>,
    /// GitHub's tags differ by credentials.
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

    /// The answer with its tag, without the rest if the caller has that; says whether it is.
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
