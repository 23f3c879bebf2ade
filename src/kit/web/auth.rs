//! Authenticates the users of the pages and the API: one user and password by flag (`--web-basic-auth`, reference
//! 11), and the accounts of the file `--web-accounts-file`, which are limited to owners.
//! [`sign_in_limiter`](super::sign_in_limiter) makes guessing passwords slow. Every route that distinguishes right
//! passwords from wrong ones goes through [`known`]; only the repository and the API of accounts authenticate
//! separately, and count the same wrong passwords.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::errors::WebError;
use super::sign_in_limiter::FREE_FAILURES;
use super::{PasswordMark, PasswordVerdict, WebState};
use crate::config::access::{
    Identity, NOBODY, NamedRequester, NetworkRequester, WebAccounts, WebProof,
};
use crate::model::AccountId;
use crate::secret::Secret;

/// Challenge that makes browsers ask for the password.
const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"Lockkeeper\", charset=\"UTF-8\"");
/// Header in which proxies name the address of their client.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The web user: the account that is not limited to owners.
#[derive(Clone, Debug)]
pub struct WebAuth {
    pub user: String,
    pub password: Secret,
}

impl WebAuth {
    /// Finds the account with this name and password. All are compared as digests and in constant time, so that
    /// neither a wrong length nor a wrong name answers faster.
    fn accepted(
        &self,
        accounts: &WebAccounts,
        (user, password): &(String, String),
    ) -> Option<SignedIn> {
        let limited = accounts
            .limited()
            .iter()
            .filter_map(|user| match &user.proof {
                WebProof::Password(password) => Some((user.name.as_str(), password)),
                WebProof::Account(_) => None,
            });
        let mut found = None;
        for (name, expected) in std::iter::once((self.user.as_str(), &self.password)).chain(limited)
        {
            if same(user, name) & same(password.trim(), expected.expose()) {
                found = found.or_else(|| {
                    Some(SignedIn {
                        name: name.to_owned(),
                        account: None,
                    })
                });
            }
        }
        found
    }
}

/// A user who has signed in.
#[derive(Clone, Debug)]
struct SignedIn {
    name: String,
    /// Account in Git whose password the user sent, and the mark of that password.
    account: Option<(AccountId, PasswordMark)>,
}

/// Result of checking the password of a request.
enum PasswordCheck {
    /// Right name and password.
    Yes(SignedIn),
    /// No password, or none that can be read.
    NotSaid,
    /// Wrong name or password.
    No,
    /// Right password of an account that is not active.
    Inactive(AccountId),
    /// Not checked, because this much time has to pass before.
    Later(TimeDelta),
    /// Not checked, because the account could not be read.
    Failed(anyhow::Error),
}

/// Checks the password of a request, unless too many were wrong.
async fn known(
    web: &WebState,
    auth: &WebAuth,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> PasswordCheck {
    let Some(given) = credentials(headers) else {
        return PasswordCheck::NotSaid;
    };
    let (address, now) = (client(web, extensions, headers), web.clock.now());
    if let Some(wait) = web.parts.sign_in_limiter.wait(address, now) {
        return PasswordCheck::Later(wait);
    }
    // Nothing awaits before a wrong password is counted, so that of several guesses sent at once, each counts before the next
    // is checked. Only accounts need a slow hash, and take turns for it.
    let accounts = web.accounts.now();
    if let Some(user) = auth.accepted(&accounts, &given) {
        web.parts.sign_in_limiter.record_success(address, now);
        return PasswordCheck::Yes(user);
    }
    if accounts.uses_accounts() {
        let account = accounts.account_of(&given.0);
        return by_account(web, address, given, account).await;
    }
    wrong(web, address, &given, now)
}

/// Checks the password of the account of a user.
async fn by_account(
    web: &WebState,
    address: Option<IpAddr>,
    given: (String, String),
    account: Option<AccountId>,
) -> PasswordCheck {
    let signed_in = |mark| SignedIn {
        name: given.0.clone(),
        account: account.map(|account| (account, mark)),
    };
    if let Some(account) = account {
        match web.passwords.recall(account, &given.1).await {
            Ok(Some(PasswordVerdict::Right(mark))) => {
                web.parts
                    .sign_in_limiter
                    .record_success(address, web.clock.now());
                return PasswordCheck::Yes(signed_in(mark));
            }
            Ok(Some(PasswordVerdict::Inactive)) => return PasswordCheck::Inactive(account),
            Ok(Some(PasswordVerdict::Wrong) | None) => {}
            Err(error) => return PasswordCheck::Failed(error),
        }
    }
    let _turn = web.parts.sign_in_limiter.turn(address).await;
    let now = web.clock.now();
    if let Some(wait) = web.parts.sign_in_limiter.wait(address, now) {
        return PasswordCheck::Later(wait);
    }
    if web
        .parts
        .sign_in_limiter
        .was_wrong(address, &guess(&given), now)
    {
        return wrong(web, address, &given, now);
    }
    match web.passwords.check(account, &given.1).await {
        Ok(PasswordVerdict::Right(mark)) => {
            web.parts.sign_in_limiter.record_success(address, now);
            PasswordCheck::Yes(signed_in(mark))
        }
        Ok(PasswordVerdict::Inactive) => match account {
            Some(account) => PasswordCheck::Inactive(account),
            None => wrong(web, address, &given, now),
        },
        Ok(PasswordVerdict::Wrong) => wrong(web, address, &given, now),
        Err(error) => PasswordCheck::Failed(error),
    }
}

/// Returns the text of a guess. The repository of accounts knows people by other names, so a guess there is another one.
fn guess((user, password): &(String, String)) -> String {
    format!("pages:{user}:{password}")
}

/// Counts a wrong password.
fn wrong(
    web: &WebState,
    address: Option<IpAddr>,
    given: &(String, String),
    now: DateTime<Utc>,
) -> PasswordCheck {
    if let Some(wrong) = web
        .parts
        .sign_in_limiter
        .record_failure(address, &guess(given), now)
    {
        let (remote, slowed) = (address.map(tracing::field::display), wrong > FREE_FAILURES);
        tracing::warn!(
            remote,
            wrong,
            slowed,
            "Wrong user name or password for the dashboard"
        );
    }
    PasswordCheck::No
}

/// Returns true if a request comes from a user who has signed in, for routes that do not answer with a page.
pub(crate) async fn is_known(web: &WebState, extensions: &Extensions, headers: &HeaderMap) -> bool {
    match &web.auth {
        Some(auth) => matches!(
            known(web, auth, extensions, headers).await,
            PasswordCheck::Yes(_)
        ),
        None => false,
    }
}

/// Returns true if these are name and password of the web user, which is not limited to anything.
pub(crate) fn is_web_user(web: &WebState, user: &str, password: &str) -> bool {
    web.auth
        .as_ref()
        .is_some_and(|auth| same(user, &auth.user) & same(password.trim(), auth.password.expose()))
}

fn same(given: &str, expected: &str) -> bool {
    Sha256::digest(given)
        .as_slice()
        .ct_eq(Sha256::digest(expected).as_slice())
        .into()
}

/// Reads `Authorization: Basic base64(user:password)`, RFC 7617. An empty password is none.
pub(crate) fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    // git first tries the user of an address with an empty password. It guesses nothing, so it does not count as a guess.
    (!password.is_empty()).then(|| (user.to_owned(), password.to_owned()))
}

/// The user who makes the request, and the address of the request. Where nobody has to sign in, a placeholder stands
/// for the user. The address is unknown where the server is called without a connection.
#[derive(Clone, Debug)]
pub struct WebUser {
    pub name: String,
    /// Account in Git of the user, and the mark of its password.
    pub(crate) account: Option<(AccountId, PasswordMark)>,
    pub(crate) address: Option<IpAddr>,
}

impl FromRequestParts<Arc<WebState>> for WebUser {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, web: &Arc<WebState>) -> Result<Self, WebError> {
        // The guard has let the request in and stored the user.
        let (name, account) = match (&web.auth, parts.extensions.get::<SignedIn>()) {
            (None, _) => (NOBODY.to_owned(), None),
            (Some(_), Some(user)) => (user.name.clone(), user.account),
            (Some(_), None) => return Err(WebError::unauthorized()),
        };
        Ok(Self {
            name,
            account,
            address: client(web, &parts.extensions, &parts.headers),
        })
    }
}

impl WebUser {
    /// Returns the user as a person at a page.
    pub(crate) fn at_page(&self) -> NetworkRequester {
        self.asks_as(Identity::Web(self.named()))
    }

    /// Returns the user as a script with the same password.
    pub(crate) fn by_script(&self) -> NetworkRequester {
        self.asks_as(Identity::Api(self.named()))
    }

    fn named(&self) -> NamedRequester {
        NamedRequester {
            login: self.name.clone(),
            account: self.account.map(|(account, _)| account),
        }
    }

    fn asks_as(&self, who: Identity) -> NetworkRequester {
        NetworkRequester {
            who,
            remote: self.address.map(|address| address.to_string()),
        }
    }
}

/// Returns the address of the client: the peer of the connection, or the address that trusted proxies report.
pub(crate) fn client(
    web: &WebState,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> Option<IpAddr> {
    let ConnectInfo(peer) = extensions.get::<ConnectInfo<SocketAddr>>()?;
    let forwarded = headers.get_all(&FORWARDED_FOR).into_iter();
    // A value that is not text is an address that cannot be read.
    let forwarded = forwarded.map(|value| value.to_str().unwrap_or_default());
    Some(web.trusted_proxies.client(peer.ip(), forwarded))
}

/// Admits only requests with a password, if the server has one, and returns the answer to all others.
pub(super) async fn check(web: &WebState, request: &mut Request) -> Result<(), Response> {
    let Some(auth) = &web.auth else {
        return Ok(());
    };
    match known(web, auth, request.extensions(), request.headers()).await {
        PasswordCheck::Yes(user) => {
            request.extensions_mut().insert(user);
            Ok(())
        }
        PasswordCheck::NotSaid | PasswordCheck::No => {
            let challenge = [(header::WWW_AUTHENTICATE, CHALLENGE)];
            Err((challenge, WebError::unauthorized()).into_response())
        }
        PasswordCheck::Inactive(account) => {
            Err(WebError::inactive_account(account).into_response())
        }
        PasswordCheck::Failed(error) => {
            tracing::error!(%error, "Cannot check the password of an account");
            Err(WebError::database().into_response())
        }
        PasswordCheck::Later(wait) => {
            let seconds = (wait + TimeDelta::milliseconds(999)).num_seconds().max(1);
            let later = [(header::RETRY_AFTER, HeaderValue::from(seconds))];
            Err((later, WebError::too_many_wrong_passwords(seconds)).into_response())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_the_very_user_and_password_get_in() {
        let auth = WebAuth {
            user: "ops".to_owned(),
            password: Secret::new("a:b ü"),
        };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let accounts =
            WebAccounts::parse("user=kim owners=net password=0123456789abcdef", "ops").unwrap();
        let known = |headers: &HeaderMap| {
            auth.accepted(&accounts, &credentials(headers)?)
                .map(|user| user.name)
        };
        assert_eq!(known(&with(&basic("ops:a:b ü"))).as_deref(), Some("ops"));
        assert_eq!(
            known(&with(&basic("ops:a:b ü").replace("Basic", "bAsIc"))).as_deref(),
            Some("ops")
        );
        assert_eq!(
            known(&with(&basic("kim:0123456789abcdef"))).as_deref(),
            Some("kim")
        );
        for wrong in [
            "ops:a:b",
            "ops:",
            "ops",
            "",
            ":a:b ü",
            "OPS:a:b ü",
            "ops:a:b ü2",
            "kim:a:b ü",
            "ops:0123456789abcdef",
            "kim:",
        ] {
            assert_eq!(known(&with(&basic(wrong))), None, "{wrong:?}");
        }
        for malformed in [
            "Basic",
            "Basic !!!",
            "Bearer b3BzOmE6YiDDvA==",
            "Basic /w==",
        ] {
            assert_eq!(known(&with(malformed)), None, "{malformed:?}");
        }
        assert_eq!(known(&HeaderMap::new()), None);
    }
}
