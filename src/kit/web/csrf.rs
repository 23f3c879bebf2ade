//! Prevents other sites from making the browser of a user change something.
//!
//! Three independent checks, which a form has to pass:
//! - the browser says that the request comes from one of our own pages (`Sec-Fetch-Site`, else `Origin`);
//! - the form carries a token that only this server can make;
//! - the token fits the cookie of this browser (`SameSite=Strict`, so it does not travel with foreign requests) and
//!   the user it was made for.
//!
//! The routes that Atlantis has for its own page (`POST /apply/lock`, `DELETE /apply/unlock`, `DELETE /locks`) stay
//! for scripts. A script has no token. It shows instead that it is no browser and that it knows the password
//! ([`Script`]).

use std::fmt;
use std::sync::Arc;

use axum::Form;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;
use url::Url;

use super::WebState;
use super::auth::WebUser;
use super::errors::WebError;
use crate::store::Store;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Headers that only browsers send with a request that changes something.
const BROWSER_MARKS: [HeaderName; 5] = [
    FETCH_SITE,
    HeaderName::from_static("sec-fetch-mode"),
    header::ORIGIN,
    header::REFERER,
    header::COOKIE,
];

/// Returns random text that nobody can guess.
fn fresh_secret() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

/// A form without fields except the token.
#[derive(Deserialize)]
pub(crate) struct EmptyForm {}

/// Key that signs the tokens of forms. All replicas share it.
pub(crate) struct CsrfKey(String);

impl CsrfKey {
    /// Reads the key, or creates it.
    pub async fn load(store: &Store) -> Result<Self, sqlx::Error> {
        store
            .setting_get_or_insert("csrf_key", &fresh_secret())
            .await
            .map(Self)
    }

    fn mac(&self, session: &BrowserSession, user: &WebUser) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes())
            .expect("HMAC takes keys of any length");
        mac.update(session.0.as_bytes());
        mac.update(b"\0");
        mac.update(user.name.as_bytes());
        mac
    }

    /// Returns the token for the forms of a page.
    pub fn token(&self, session: &BrowserSession, user: &WebUser) -> String {
        hex::encode(self.mac(session, user).finalize().into_bytes())
    }

    fn accepts(&self, session: &BrowserSession, user: &WebUser, token: &str) -> bool {
        // `verify_slice` compares in constant time.
        hex::decode(token).is_ok_and(|given| self.mac(session, user).verify_slice(&given).is_ok())
    }
}

impl fmt::Debug for CsrfKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CsrfKey(…)")
    }
}

/// Value of the cookie that tells one browser from another. It signs nobody in.
#[derive(Clone)]
pub(crate) struct BrowserSession(String);

impl BrowserSession {
    /// Returns the name of the cookie. Its prefix binds the cookie to exactly this host and to TLS, where there is
    /// TLS.
    fn cookie_name(public_url: &Url) -> &'static str {
        if public_url.scheme() == "https" {
            "__Host-lockkeeper"
        } else {
            "lockkeeper"
        }
    }

    /// Reads the cookie of a browser, if its form is one that this server issues.
    pub fn of(headers: &HeaderMap, public_url: &Url) -> Option<Self> {
        let name = Self::cookie_name(public_url);
        let cookies = headers
            .get_all(header::COOKIE)
            .into_iter()
            .filter_map(|value| value.to_str().ok());
        let mut pairs = cookies
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        let ours = value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit());
        ours.then(|| Self(value.to_owned()))
    }

    /// Creates a session for a browser that has none yet.
    pub fn fresh() -> Self {
        Self(fresh_secret())
    }

    /// Returns the value of `Set-Cookie`. The cookie lasts until the browser is closed.
    pub fn set_cookie(&self, public_url: &Url) -> String {
        let name = Self::cookie_name(public_url);
        let secure = if public_url.scheme() == "https" {
            "; Secure"
        } else {
            ""
        };
        format!(
            "{name}={}; Path=/; HttpOnly; SameSite=Strict{secure}",
            self.0
        )
    }
}

/// Returns true if a browser sent this request from one of our own pages.
fn from_our_page(headers: &HeaderMap, public_url: &Url) -> bool {
    let text = |name: &HeaderName| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or("not ASCII"))
    };
    if let Some(site) = text(&FETCH_SITE) {
        return site == "same-origin";
    }
    // Browsers omit `Sec-Fetch-Site` on plain HTTP, and old browsers always do.
    let Some(origin) = text(&header::ORIGIN) else {
        return false;
    };
    let Ok(origin) = Url::parse(origin) else {
        return false;
    };
    let ours = public_url.origin();
    let host = text(&header::HOST)
        .and_then(|host| Url::parse(&format!("{}://{host}", origin.scheme())).ok());
    origin.origin() == ours || host.is_some_and(|host| host.origin() == origin.origin())
}

#[derive(Deserialize)]
struct Signed<T> {
    #[serde(default)]
    token: String,
    #[serde(flatten)]
    fields: T,
}

/// A form that a user submitted on one of our pages, with the user.
pub(crate) struct Confirmed<T> {
    pub who: WebUser,
    pub fields: T,
}

impl<T: DeserializeOwned + 'static> FromRequest<Arc<WebState>> for Confirmed<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, web: &Arc<WebState>) -> Result<Self, WebError> {
        if !from_our_page(request.headers(), &web.public_url) {
            return Err(WebError::from_another_site());
        }
        let session = BrowserSession::of(request.headers(), &web.public_url);
        let (mut parts, body) = request.into_parts();
        let who = WebUser::from_request_parts(&mut parts, web).await?;
        let Form(form) = Form::<Signed<T>>::from_request(Request::from_parts(parts, body), web)
            .await
            .map_err(|rejection| WebError::unreadable_form(rejection.status()))?;
        match session {
            Some(session) if web.parts.csrf.accepts(&session, &who, &form.token) => Ok(Self {
                who,
                fields: form.fields,
            }),
            Some(_) | None => Err(WebError::stale_form()),
        }
    }
}

/// A script that knows the password. Web authentication is on and has let the request in, and nothing in the request
/// comes from a browser, which would have added the password automatically.
pub(crate) struct Script(pub WebUser);

impl FromRequestParts<Arc<WebState>> for Script {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, web: &Arc<WebState>) -> Result<Self, WebError> {
        if is_browser(&parts.headers) {
            return Err(WebError::scripts_only());
        }
        if web.auth.is_none() {
            return Err(WebError::scripts_need_a_password());
        }
        WebUser::from_request_parts(parts, web).await.map(Self)
    }
}

/// Returns true if only a browser sends such headers with a request that changes something.
pub(crate) fn is_browser(headers: &HeaderMap) -> bool {
    BROWSER_MARKS.iter().any(|name| headers.contains_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn user(name: &str) -> WebUser {
        WebUser {
            name: name.to_owned(),
            account: None,
            address: None,
        }
    }

    #[test]
    fn a_token_fits_one_session_one_user_and_one_key() {
        let key = CsrfKey("k".repeat(64));
        let (session, ops) = (BrowserSession("a".repeat(64)), user("ops"));
        let token = key.token(&session, &ops);
        assert!(key.accepts(&session, &ops, &token));
        assert!(!key.accepts(&BrowserSession("b".repeat(64)), &ops, &token));
        assert!(!key.accepts(&session, &user("eve"), &token));
        assert!(!CsrfKey("l".repeat(64)).accepts(&session, &ops, &token));
        for wrong in ["", "00", "zz", &token[..62]] {
            assert!(!key.accepts(&session, &ops, wrong), "{wrong:?}");
        }
    }

    #[test]
    fn the_cookie_is_bound_to_the_host_where_there_is_tls() {
        let session = BrowserSession("0".repeat(64));
        let cookie = session.set_cookie(&"https://h/base".parse().unwrap());
        let zeros = "0".repeat(64);
        assert_eq!(
            cookie,
            format!("__Host-lockkeeper={zeros}; Path=/; HttpOnly; SameSite=Strict; Secure")
        );
        let cookie = session.set_cookie(&"http://h".parse().unwrap());
        assert_eq!(
            cookie,
            format!("lockkeeper={zeros}; Path=/; HttpOnly; SameSite=Strict")
        );
    }

    #[test]
    fn only_a_cookie_of_our_form_is_a_session() {
        let url = "https://h".parse().unwrap();
        let good = format!("a=b; __Host-lockkeeper={}", "0f".repeat(32));
        assert!(BrowserSession::of(&headers(&[("cookie", &good)]), &url).is_some());
        for wrong in [
            "__Host-lockkeeper=abc",
            "lockkeeper=0",
            "",
            &good.replace("0f0f", "xxxx"),
            &good.replace('_', ""),
        ] {
            assert!(
                BrowserSession::of(&headers(&[("cookie", wrong)]), &url).is_none(),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn only_our_own_pages_may_ask_for_changes() {
        let url = "https://locks.example/base".parse().unwrap();
        let fine: [&[(&str, &str)]; 4] = [
            &[("sec-fetch-site", "same-origin")],
            &[
                ("sec-fetch-site", "same-origin"),
                ("origin", "https://other.example"),
            ],
            &[("origin", "https://locks.example")],
            &[
                ("origin", "http://10.0.0.1:4141"),
                ("host", "10.0.0.1:4141"),
            ],
        ];
        for pairs in fine {
            assert!(from_our_page(&headers(pairs), &url), "{pairs:?}");
        }
        let foreign: [&[(&str, &str)]; 8] = [
            &[],
            &[("sec-fetch-site", "cross-site")],
            &[
                ("sec-fetch-site", "same-site"),
                ("origin", "https://locks.example"),
            ],
            &[("sec-fetch-site", "none")],
            &[("origin", "null")],
            &[("origin", "https://locks.example.evil.example")],
            &[("origin", "http://locks.example")],
            &[
                ("origin", "https://evil.example"),
                ("host", "locks.example"),
            ],
        ];
        for pairs in foreign {
            assert!(!from_our_page(&headers(pairs), &url), "{pairs:?}");
        }
    }
}
