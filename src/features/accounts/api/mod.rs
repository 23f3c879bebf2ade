//! `/api/accounts/…`, with the paths, methods and fields of Gerrit's `/accounts/`, and the flags of changes and plans.
//!
//! An account changes itself. The user of `--web-basic-auth` and accounts with a capability (`refs/meta/config`) change
//! others. `self` in a path is the account that asks. The `ETag` of what is read is the newest commit of the account. A
//! change with `If-Match` is made only while the account has that commit.
//!
//! | File | Content |
//! |---|---|
//! | `search.rs` | queries |
//! | `properties.rs` | accounts as a whole, their names and states |
//! | `emails.rs` | addresses |
//! | `secrets.rs` | HTTP password, SSH keys, external IDs |
//! | `preferences.rs` | preferences and watches |
//! | `stars.rs` | stars |
//! | `flags.rs` | reviewed flags of files and resources |

mod emails;
mod flags;
mod preferences;
mod properties;
mod search;
mod secrets;
mod stars;

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use gix_hash::ObjectId;
use lockkeeper_accounts::access::Capability;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::findings::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::error;

use super::actions::address_in;
use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::sign_in::{AccountCaller, AccountSignIn, RequestSlot, SignInRefusal};
use super::store::AccountRow;
use crate::kit::web::csrf::is_browser;
use crate::kit::web::text::{seconds_text, shown};
use crate::kit::web::{RouteAccess, Routes, WebError, auth};
use crate::model::Origin;

/// Maximum size of a body in bytes.
const MAX_BODY: usize = 128 * 1024;

/// Returns the routes, which sign in on their own.
pub(crate) fn routes() -> Routes<Arc<AccountSignIn>> {
    let mut routes = Routes::new();
    for (method, path, handler) in [
        search::routes(),
        properties::routes(),
        emails::routes(),
        secrets::routes(),
        preferences::routes(),
        stars::routes(),
        flags::routes(),
    ]
    .concat()
    {
        routes = routes.with(method, path, RouteAccess::Everybody, handler);
    }
    routes
}

/// Method, path and handler of a route.
type ApiRoute = (Method, &'static str, MethodRouter<Arc<AccountSignIn>>);

/// Request of somebody who has signed in, with its body.
struct AccountRequest {
    sign_in: Arc<AccountSignIn>,
    caller: AccountCaller,
    body: Bytes,
    /// Address of the client.
    remote: Option<String>,
    /// Commit that the account must have (`If-Match`).
    expected: Option<ObjectId>,
    _slot: Option<RequestSlot>,
}

impl FromRequest<Arc<AccountSignIn>> for AccountRequest {
    type Rejection = Response;

    async fn from_request(
        request: Request,
        sign_in: &Arc<AccountSignIn>,
    ) -> Result<Self, Response> {
        Self::read(request, sign_in, AccountSignIn::count_change).await
    }
}

impl AccountRequest {
    /// Signs in, and reads the body. `count` counts what is no reading.
    async fn read(
        request: Request,
        sign_in: &Arc<AccountSignIn>,
        count: fn(&AccountSignIn, &AccountCaller) -> Result<(), SignInRefusal>,
    ) -> Result<Self, Response> {
        // A page of another site can make a browser send the password of its user.
        if !request.method().is_safe() && is_browser(request.headers()) {
            return Err(WebError::scripts_only().into_response());
        }
        let (parts, body) = request.into_parts();
        let identify = async || {
            let caller = sign_in.caller(&parts.extensions, &parts.headers).await;
            caller.map_err(refused)
        };
        let mut caller = identify().await?;
        let place = sign_in.enter(&caller).map_err(refused)?;
        let body = axum::body::to_bytes(body, MAX_BODY).await;
        let body = body.map_err(|_| too_large().into_response())?;
        if !parts.method.is_safe() {
            // A body takes its time, and the account may have been locked out since.
            caller = identify().await?;
            count(sign_in, &caller).map_err(refused)?;
        }
        let remote = auth::client(&sign_in.web, &parts.extensions, &parts.headers);
        Ok(Self {
            sign_in: Arc::clone(sign_in),
            caller,
            body,
            remote: remote.map(|address| address.to_string()),
            expected: parts.headers.get(header::IF_MATCH).and_then(expected),
            _slot: place,
        })
    }
}

/// Reads `If-Match`. Something else than the commit of an account fits none.
fn expected(value: &HeaderValue) -> Option<ObjectId> {
    match value.to_str() {
        Ok("*") => None,
        Ok(text) => {
            let hex = text.trim_matches('"').as_bytes();
            let none = ObjectId::null(gix_hash::Kind::Sha1);
            Some(ObjectId::from_hex(hex).unwrap_or(none))
        }
        Err(_) => Some(ObjectId::null(gix_hash::Kind::Sha1)),
    }
}

fn refused(refusal: SignInRefusal) -> Response {
    match refusal {
        SignInRefusal::Unauthorized => {
            let way_out = "Sign in with the user name and the HTTP password of an account (lockkeeper accounts password).";
            let error = WebError::new(StatusCode::UNAUTHORIZED, "Sign in", way_out);
            let challenge =
                HeaderValue::from_static("Basic realm=\"Lockkeeper\", charset=\"UTF-8\"");
            ([(header::WWW_AUTHENTICATE, challenge)], error).into_response()
        }
        SignInRefusal::Inactive => {
            let way_out = "The account is inactive. An administrator can activate it.";
            WebError::new(StatusCode::FORBIDDEN, "Inactive account", way_out).into_response()
        }
        SignInRefusal::Later(seconds) => {
            let way_out = format!(
                "Too many requests, changes or wrong passwords; try again in {}.",
                seconds_text(seconds)
            );
            let error = WebError::new(StatusCode::TOO_MANY_REQUESTS, "Too many requests", way_out);
            let wait = [(header::RETRY_AFTER, HeaderValue::from(seconds))];
            (wait, error).into_response()
        }
        SignInRefusal::Failed(error) => WebError::from(error).into_response(),
    }
}

impl AccountRequest {
    /// Reads the body as JSON. An empty one counts as one without fields.
    fn json<T: DeserializeOwned + Default>(&self) -> Result<T, WebError> {
        if self.body.trim_ascii().is_empty() {
            return Ok(T::default());
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            unusable(format!(
                "the body is not the JSON that belongs here: {error}"
            ))
        })
    }

    /// Reads the body as a line of text.
    fn text(&self) -> Result<&str, WebError> {
        let text = std::str::from_utf8(&self.body).map(str::trim);
        let text = text.map_err(|_| unusable("the body is not UTF-8"))?;
        if text.is_empty() {
            return Err(unusable(
                "the body is empty; send one SSH key as it stands in `authorized_keys`",
            ));
        }
        Ok(text)
    }

    fn users(&self) -> &AllUsers {
        &self.sign_in.users
    }

    /// Returns the caller as the author of changes.
    fn actor(&self) -> AccountsActor {
        let remote = self.remote.clone();
        AccountsActor {
            expected: self.expected,
            ..self.caller.actor(&self.sign_in.host, Origin::Api, remote)
        }
    }

    /// Finds an account by the name in a path.
    async fn account(&self, name: &str) -> Result<AccountRow, WebError> {
        if name == "self" {
            return self.caller.own().cloned().ok_or_else(|| {
                let why = "You have signed in as the administrator, who has no account. Name an account instead of self.";
                WebError::new(StatusCode::NOT_FOUND, "No account", why)
            });
        }
        let found = self.users().find(name).await?;
        let found = found.filter(|row| self.may_know_address(row, name));
        found.ok_or_else(|| no_account(name))
    }

    /// Returns true if the caller may know that an account has this name. Of the addresses of others, only those who
    /// may change accounts know more than the preferred one.
    fn may_know_address(&self, row: &AccountRow, name: &str) -> bool {
        let own = self.caller.own();
        let is_own = own.is_some_and(|own| own.number == row.number);
        if is_own || self.caller.has(Capability::ModifyAccount) {
            return true;
        }
        match address_in(name).parse::<AccountEmail>() {
            Ok(address) => {
                let preferred = row.preferred_email.as_deref();
                preferred.is_some_and(|email| email.to_lowercase() == address.key())
            }
            Err(_) => true,
        }
    }

    /// Finds an account whose details the caller may see and change.
    async fn own(&self, name: &str) -> Result<AccountRow, WebError> {
        self.own_or(name, Capability::ModifyAccount).await
    }

    /// Finds the account of the caller, or another one for somebody with a capability. Passwords and keys of others take
    /// more than their names: who sets a password can be that person.
    async fn own_or(&self, name: &str, capability: Capability) -> Result<AccountRow, WebError> {
        let row = self.account(name).await?;
        let own = self.caller.own();
        if own.is_none_or(|own| own.number != row.number) {
            self.may_change(&row, capability)?;
        }
        Ok(row)
    }

    /// Refuses everybody who lacks a capability.
    fn capable(&self, capability: Capability) -> Result<(), WebError> {
        if self.caller.has(capability) {
            return Ok(());
        }
        let why = format!(
            "This takes the capability {}, which an administrator can give to one of your groups.",
            capability.as_str()
        );
        Err(WebError::new(StatusCode::FORBIDDEN, "Not permitted", why).unchanged())
    }

    /// Refuses everybody who lacks a capability, or one that the account has.
    fn may_change(&self, row: &AccountRow, capability: Capability) -> Result<(), WebError> {
        self.capable(capability)?;
        if self.caller.may_change(row.number, capability) {
            return Ok(());
        }
        let why = "The account has a capability that you lack.";
        Err(WebError::new(StatusCode::FORBIDDEN, "Not permitted", why).unchanged())
    }

    /// Returns an account as it is after a change.
    async fn reread(&self, row: AccountRow) -> Result<AccountRow, WebError> {
        let newest = self.users().store().account_get(row.number).await?;
        Ok(newest.unwrap_or(row))
    }
}

/// Builds an answer with a part of an account and the `ETag` of the account.
fn found(row: &AccountRow, body: impl Serialize) -> Response {
    ([etag(row)], Json(body)).into_response()
}

fn etag(row: &AccountRow) -> (header::HeaderName, HeaderValue) {
    let value = HeaderValue::from_str(&format!("\"{}\"", row.commit));
    let value = value.unwrap_or(HeaderValue::from_static("\"\""));
    (header::ETAG, value)
}

fn no_account(name: &str) -> WebError {
    let why = format!(
        "There is no account `{}`. Name it by its number, its user name or one of its addresses.",
        shown(name)
    );
    WebError::new(StatusCode::NOT_FOUND, "No such account", why)
}

/// Failure for a value that cannot be used.
fn unusable(why: impl std::fmt::Display) -> WebError {
    WebError::new(StatusCode::BAD_REQUEST, "Invalid input", sentence(why)).unchanged()
}

/// Makes a sentence out of an error or a question. An error begins in lower case, because the command line prints it after a
/// prefix, and has no full stop at its end. The name of a file or a ref at the beginning stays as it is.
fn sentence(why: impl std::fmt::Display) -> String {
    let mut why = shown(&why.to_string());
    let first = why.split([' ', ':']).next().unwrap_or_default();
    let is_word = first.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_word && let Some(letter) = why.get_mut(..1) {
        letter.make_ascii_uppercase();
    }
    if !why.ends_with('?') {
        why.push('.');
    }
    why
}

fn too_large() -> WebError {
    let why = format!("The body has more than {MAX_BODY} bytes.");
    WebError::new(StatusCode::PAYLOAD_TOO_LARGE, "Too large", why).unchanged()
}

impl From<Problem> for WebError {
    fn from(problem: Problem) -> Self {
        unusable(problem)
    }
}

impl From<AccountsError> for WebError {
    fn from(error: AccountsError) -> Self {
        let (status, title) = match &error {
            AccountsError::Database(_) => {
                error!(%error, "The database failed a request about accounts");
                return Self::database();
            }
            AccountsError::Damaged(_) | AccountsError::Sequence(_) => {
                error!(%error, "Cannot read or change accounts");
                return Self::internal();
            }
            AccountsError::Refused(_) | AccountsError::Invalid(_) => return unusable(error),
            AccountsError::LockedOut => (StatusCode::FORBIDDEN, "Locked out"),
            AccountsError::RightsChanged => {
                (StatusCode::CONFLICT, "The access control has changed")
            }
            AccountsError::Unreadable(_) => (StatusCode::CONFLICT, "The branch cannot be read"),
            AccountsError::NoAccount(_) => (StatusCode::NOT_FOUND, "No such account"),
            AccountsError::NoChange(_) => (StatusCode::NOT_FOUND, "No such change"),
            AccountsError::NoExternalId(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "No such external ID")
            }
            AccountsError::EmailTaken(..) | AccountsError::ExternalIdTaken(..) => {
                (StatusCode::CONFLICT, "Taken")
            }
            AccountsError::Moved | AccountsError::Changed(_) => {
                (StatusCode::PRECONDITION_FAILED, "The account has changed")
            }
            AccountsError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "Busy"),
        };
        Self::new(status, title, sentence(&error)).unchanged()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_begins_with_a_capital_letter_unless_it_begins_with_a_name() {
        for (why, expected) in [
            ("there is no account 7", "There is no account 7."),
            ("error: a.config:1: odd", "Error: a.config:1: odd."),
            ("line 2: a NUL byte", "Line 2: a NUL byte."),
            ("account.config:1: odd", "account.config:1: odd."),
            (
                "refs/users/00/1000000 cannot be read",
                "refs/users/00/1000000 cannot be read.",
            ),
            ("`a b` is not a label", "`a b` is not a label."),
            ("or which one?", "Or which one?"),
            ("ünal", "ünal."),
            ("", "."),
        ] {
            assert_eq!(sentence(why), expected);
        }
    }
}
