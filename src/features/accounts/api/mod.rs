//! `/api/accounts/…`, with the paths, methods and fields of Gerrit's `/accounts/`.
//!
//! An account changes itself; the administrator (`--web-basic-auth`) changes every account. `self` in a path is the
//! account that asks. The `ETag` of an answer is the newest commit of the account. A change with `If-Match` is made only
//! while the account has that commit.
//!
//! | File | Content |
//! |---|---|
//! | `search.rs` | queries |
//! | `properties.rs` | accounts as a whole, their names and states |
//! | `emails.rs` | addresses |
//! | `secrets.rs` | HTTP password, SSH keys, external IDs |
//! | `preferences.rs` | preferences and watches |

mod emails;
mod preferences;
mod properties;
mod search;
mod secrets;

use std::sync::Arc;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use gix_hash::ObjectId;
use lockkeeper_accounts::findings::Problem;
use serde::Serialize;
use tracing::error;

use super::all_users::{AccountsActor, AccountsError, AllUsers};
use super::sign_in::{AccountCaller, AccountSignIn, SignInRefusal};
use super::store::AccountRow;
use crate::kit::web::csrf::is_browser;
use crate::kit::web::text::shown;
use crate::kit::web::{RouteAccess, Routes, WebError, auth};
use crate::model::Origin;

/// Returns the routes, which sign in on their own.
pub(crate) fn routes() -> Routes<Arc<AccountSignIn>> {
    let mut routes = Routes::new();
    for (method, path, handler) in [
        search::routes(),
        properties::routes(),
        emails::routes(),
        secrets::routes(),
        preferences::routes(),
    ]
    .concat()
    {
        routes = routes.with(method, path, RouteAccess::Everybody, handler);
    }
    routes
}

/// Method, path and handler of a route.
type ApiRoute = (Method, &'static str, MethodRouter<Arc<AccountSignIn>>);

/// Request of somebody who has signed in.
struct AccountRequest {
    door: Arc<AccountSignIn>,
    caller: AccountCaller,
    /// Address of the client.
    remote: Option<String>,
    /// Commit that the account must have (`If-Match`).
    expected: Option<ObjectId>,
}

impl FromRequestParts<Arc<AccountSignIn>> for AccountRequest {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        door: &Arc<AccountSignIn>,
    ) -> Result<Self, Response> {
        // A page of another site can make a browser send the password of its user.
        if !parts.method.is_safe() && is_browser(&parts.headers) {
            return Err(WebError::scripts_only().into_response());
        }
        let caller = door.caller(&parts.extensions, &parts.headers).await;
        let caller = caller.map_err(refused)?;
        let remote = auth::client(&door.web, &parts.extensions, &parts.headers);
        Ok(Self {
            door: Arc::clone(door),
            caller,
            remote: remote.map(|address| address.to_string()),
            expected: parts.headers.get(header::IF_MATCH).and_then(expected),
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
            let way_out = format!("Too many wrong passwords; try again in {seconds} seconds.");
            let error = WebError::new(StatusCode::TOO_MANY_REQUESTS, "Too many guesses", way_out);
            let wait = [(header::RETRY_AFTER, HeaderValue::from(seconds))];
            (wait, error).into_response()
        }
        SignInRefusal::Failed(error) => WebError::from(error).into_response(),
    }
}

impl AccountRequest {
    fn users(&self) -> &AllUsers {
        &self.door.users
    }

    /// Returns the caller as the author of changes.
    fn actor(&self) -> AccountsActor {
        let remote = self.remote.clone();
        AccountsActor {
            expected: self.expected,
            ..self.caller.actor(&self.door.host, Origin::Api, remote)
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
        found.ok_or_else(|| no_account(name))
    }

    /// Finds an account whose details the caller may see and change.
    async fn own(&self, name: &str) -> Result<AccountRow, WebError> {
        let row = self.account(name).await?;
        match self.caller.own() {
            Some(own) if own.number != row.number => {
                let why = "Only an administrator may see and change the details of another account. Nothing was changed.";
                Err(WebError::new(
                    StatusCode::FORBIDDEN,
                    "Not your account",
                    why,
                ))
            }
            _ => Ok(row),
        }
    }

    /// Refuses everybody but the administrator.
    fn administrator(&self) -> Result<(), WebError> {
        if self.caller.is_administrator() {
            return Ok(());
        }
        let why = "Only an administrator may do this. Nothing was changed.";
        Err(WebError::new(StatusCode::FORBIDDEN, "Not permitted", why))
    }

    /// Answers a change with the new commit of the account.
    async fn changed(
        &self,
        row: &AccountRow,
        status: StatusCode,
        body: impl IntoResponse,
    ) -> Result<Response, WebError> {
        let row = self.users().store().account_get(row.number).await?;
        let mut response = (status, body).into_response();
        if let Some(row) = row {
            response.headers_mut().extend([etag(&row)]);
        }
        Ok(response)
    }
}

/// Answers with something that belongs to an account.
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
    let message = format!("{}. Nothing was changed.", shown(&why.to_string()));
    WebError::new(StatusCode::BAD_REQUEST, "Invalid input", message)
}

impl From<Problem> for WebError {
    fn from(problem: Problem) -> Self {
        unusable(problem)
    }
}

impl From<AccountsError> for WebError {
    fn from(error: AccountsError) -> Self {
        let message = || format!("{}. Nothing was changed.", shown(&error.to_string()));
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
            AccountsError::NoAccount(_) => (StatusCode::NOT_FOUND, "No such account"),
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
        Self::new(status, title, message())
    }
}
