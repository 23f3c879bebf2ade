//! Everything by which an account is recognized: HTTP password, SSH keys, external IDs.
//!
//! - `PUT DELETE /api/accounts/{account}/password.http`
//! - `GET POST /api/accounts/{account}/sshkeys`
//! - `GET DELETE /api/accounts/{account}/sshkeys/{number}`
//! - `GET /api/accounts/{account}/external.ids`
//! - `POST /api/accounts/{account}/external.ids:delete`

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use lockkeeper_accounts::access::Capability;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use lockkeeper_accounts::findings::Problem;
use serde::{Deserialize, Serialize};

use super::super::store::AccountRow;
use super::super::view::AccountKeyJson;
use super::{AccountRequest, ApiRoute, found, unusable};
use crate::kit::web::WebError;
use crate::kit::web::extract::Segment;
use crate::kit::web::text::shown;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        (
            Method::PUT,
            "/api/accounts/{account}/password.http",
            put(set_password),
        ),
        (
            Method::DELETE,
            "/api/accounts/{account}/password.http",
            delete(remove_password),
        ),
        (Method::GET, "/api/accounts/{account}/sshkeys", get(keys)),
        (
            Method::POST,
            "/api/accounts/{account}/sshkeys",
            post(add_key),
        ),
        (
            Method::GET,
            "/api/accounts/{account}/sshkeys/{number}",
            get(key),
        ),
        (
            Method::DELETE,
            "/api/accounts/{account}/sshkeys/{number}",
            delete(delete_key),
        ),
        (
            Method::GET,
            "/api/accounts/{account}/external.ids",
            get(external_ids),
        ),
        (
            Method::POST,
            "/api/accounts/{account}/external.ids:delete",
            post(unlink),
        ),
    ]
}

/// Body of a new password.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PasswordBody {
    generate: bool,
}

#[derive(Serialize)]
struct IdentityJson {
    identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    email_address: Option<String>,
    trusted: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    can_delete: bool,
}

/// Generates a password. A chosen one could be guessed.
async fn set_password(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let body: PasswordBody = api.json()?;
    let row = api.own_or(&name, Capability::AdministrateServer).await?;
    if row.username.is_none() {
        let why = "The account has no user name, and a password belongs to one.";
        return Err(WebError::new(StatusCode::CONFLICT, "No user name", why).unchanged());
    }
    if !body.generate {
        return Err(unusable(
            "passwords are generated; send {\"generate\": true}",
        ));
    }
    let actor = api.actor();
    let password = api.users().generate_password(&actor, row.number);
    let password = password.await?;
    Ok((StatusCode::OK, Json(password.expose())).into_response())
}

async fn remove_password(
    Segment(name): Segment,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own_or(&name, Capability::AdministrateServer).await?;
    api.users()
        .remove_password(&api.actor(), row.number)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn keys(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.own_or(&name, Capability::AdministrateServer).await?;
    Ok(found(&row, api.users().ssh_keys(&row).await?))
}

/// Adds the key that the body is.
async fn add_key(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let line = api.text()?;
    let row = api.own_or(&name, Capability::AdministrateServer).await?;
    let actor = api.actor();
    let number = api.users().add_ssh_key(&actor, row.number, line);
    let number = number.await?;
    let row = api.reread(row).await?;
    let key = ssh_key(&api, &row, number).await?;
    Ok((StatusCode::CREATED, Json(key)).into_response())
}

async fn key(
    Segment((name, number)): Segment<(String, usize)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own_or(&name, Capability::AdministrateServer).await?;
    Ok(found(&row, ssh_key(&api, &row, number).await?))
}

async fn delete_key(
    Segment((name, number)): Segment<(String, usize)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own_or(&name, Capability::AdministrateServer).await?;
    let actor = api.actor();
    let deleted = api.users().delete_ssh_key(&actor, row.number, number);
    if !deleted.await? {
        return Err(no_key(number));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn ssh_key(
    api: &AccountRequest,
    row: &AccountRow,
    number: usize,
) -> Result<AccountKeyJson, WebError> {
    let key = api.users().ssh_key(row, number).await?;
    key.ok_or_else(|| no_key(number))
}

fn no_key(number: usize) -> WebError {
    let why = format!("The account has no SSH key with the number {number}.");
    WebError::new(StatusCode::NOT_FOUND, "No such key", why)
}

async fn external_ids(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.own_or(&name, Capability::AccessDatabase).await?;
    let ids = api.users().external_ids(row.number).await?;
    let ids = ids.into_iter().map(|id| IdentityJson {
        identity: id.key.as_str().to_owned(),
        email_address: id.email.map(|email| email.as_str().to_owned()),
        trusted: true,
        can_delete: may_unlink(&api, &id.key),
    });
    Ok(found(&row, ids.collect::<Vec<_>>()))
}

/// Returns true if an external ID may be removed. Without its number on the forge, an account could act there although
/// it is locked out.
fn may_unlink(api: &AccountRequest, key: &ExternalIdKey) -> bool {
    key.scheme() == "mailto"
        || api.caller.has(Capability::AccessDatabase) && key.as_username().is_none()
}

async fn unlink(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let keys: Vec<String> = api.json()?;
    let row = api.own_or(&name, Capability::AccessDatabase).await?;
    let keys = keys.iter().map(|key| key.parse::<ExternalIdKey>());
    let keys: Vec<ExternalIdKey> = keys.collect::<Result<_, Problem>>()?;
    if let Some(key) = keys.iter().find(|key| !may_unlink(&api, key)) {
        let why = format!(
            "`{}` cannot be removed here: a user name stays as long as its account, and only an administrator removes \
             what tells on a forge or at a provider who somebody is.",
            shown(key.as_str())
        );
        return Err(WebError::new(StatusCode::CONFLICT, "Not removable", why).unchanged());
    }
    api.users().unlink(&api.actor(), row.number, &keys).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
