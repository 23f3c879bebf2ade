//! Who uses the pages and the API: one user and password by flag (`--web-basic-auth`, reference 11).

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Web;
use super::errors::Failure;
use crate::config::access::Identity;
use crate::secret::Secret;

/// Shown by browsers when they ask for the password.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Lockkeeper\", charset=\"UTF-8\"");
/// Stands for the person when nobody has to sign in.
const NOBODY: &str = "somebody at the dashboard";

/// The web user.
#[derive(Clone, Debug)]
pub struct WebAuth {
    /// Name.
    pub user: String,
    /// Password.
    pub password: Secret,
}

impl WebAuth {
    /// Whether the request carries the name and the password. Both are compared as digests and in constant time, so
    /// that neither a wrong length nor a wrong name answers faster.
    pub(super) fn accepts(&self, headers: &HeaderMap) -> bool {
        let Some((user, password)) = credentials(headers) else {
            return false;
        };
        let user_fits = same(&user, &self.user);
        let password_fits = same(password.trim(), self.password.expose());
        user_fits & password_fits
    }
}

fn same(given: &str, expected: &str) -> bool {
    Sha256::digest(given).as_slice().ct_eq(Sha256::digest(expected).as_slice()).into()
}

/// `Authorization: Basic base64(user:password)`, RFC 7617.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Who makes the request: the web user, or a stand-in when nobody has to sign in.
#[derive(Clone, Debug)]
pub struct WebUser(pub String);

impl FromRequestParts<Arc<Web>> for WebUser {
    type Rejection = Failure;

    async fn from_request_parts(_: &mut Parts, web: &Arc<Web>) -> Result<Self, Failure> {
        // The guard let the request in, so it is the one user there is.
        Ok(Self(web.auth.as_ref().map_or_else(|| NOBODY.to_owned(), |auth| auth.user.clone())))
    }
}

impl WebUser {
    /// Somebody at a page.
    pub(super) fn at_page(&self) -> Identity {
        Identity::Web(self.0.clone())
    }

    /// A script with the same password.
    pub(super) fn by_script(&self) -> Identity {
        Identity::Api(self.0.clone())
    }
}

/// Lets nobody in but the web user, if there is one.
pub(super) async fn guard(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response {
    let welcome = web.auth.as_ref().is_none_or(|auth| auth.accepts(request.headers()));
    if welcome {
        return next.run(request).await;
    }
    if request.headers().contains_key(header::AUTHORIZATION) {
        tracing::warn!("Somebody gave a wrong user or password for the dashboard");
    }
    ([(header::WWW_AUTHENTICATE, CHALLENGE)], Failure::who_are_you()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_the_very_user_and_password_get_in() {
        let auth = WebAuth { user: "ops".to_owned(), password: Secret::new("a:b ü") };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert!(auth.accepts(&with(&basic("ops:a:b ü"))));
        assert!(auth.accepts(&with(&basic("ops:a:b ü").replace("Basic", "bAsIc"))));
        for wrong in ["ops:a:b", "ops:", "ops", "", ":a:b ü", "OPS:a:b ü", "ops:a:b ü2"] {
            assert!(!auth.accepts(&with(&basic(wrong))), "{wrong:?}");
        }
        for malformed in ["Basic", "Basic !!!", "Bearer b3BzOmE6YiDDvA==", "Basic /w=="] {
            assert!(!auth.accepts(&with(malformed)), "{malformed:?}");
        }
        assert!(!auth.accepts(&HeaderMap::new()));
    }
}
