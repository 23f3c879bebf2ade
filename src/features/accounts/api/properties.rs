//! Accounts as a whole, their names and states.
//!
//! - `GET /api/accounts/{account}`, `PUT /api/accounts/{username}`
//! - `GET /api/accounts/{account}/detail`
//! - `GET PUT DELETE /api/accounts/{account}/name`, `GET PUT /api/accounts/{account}/status`
//! - `GET PUT /api/accounts/{account}/username`
//! - `GET PUT DELETE /api/accounts/{account}/active`
//! - `GET /api/accounts/{account}/capabilities`, `GET /api/accounts/{account}/groups`
//! - `POST /api/accounts/{account}/index`

use std::collections::BTreeMap;

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use lockkeeper_accounts::access::Capability;
use lockkeeper_accounts::external_ids::ExternalIdKey;
use serde::Deserialize;

use super::super::access::CallerAccess;
use super::super::actions::{NewAccount, PropertyChanges, read_email};
use super::super::all_users::AccountsError;
use super::super::store::AccountRow;
use super::super::view::{AccountJson, GroupJson};
use super::{AccountRequest, ApiRoute, found, sentence, unusable};
use crate::kit::web::WebError;
use crate::kit::web::extract::Segment;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        (Method::GET, "/api/accounts/{account}", get(show)),
        (Method::PUT, "/api/accounts/{account}", put(create)),
        (Method::GET, "/api/accounts/{account}/detail", get(detail)),
        (Method::GET, "/api/accounts/{account}/name", get(name)),
        (Method::PUT, "/api/accounts/{account}/name", put(set_name)),
        (
            Method::DELETE,
            "/api/accounts/{account}/name",
            delete(remove_name),
        ),
        (Method::GET, "/api/accounts/{account}/status", get(status)),
        (
            Method::PUT,
            "/api/accounts/{account}/status",
            put(set_status),
        ),
        (
            Method::GET,
            "/api/accounts/{account}/username",
            get(username),
        ),
        (
            Method::PUT,
            "/api/accounts/{account}/username",
            put(set_username),
        ),
        (Method::GET, "/api/accounts/{account}/active", get(active)),
        (Method::PUT, "/api/accounts/{account}/active", put(activate)),
        (
            Method::DELETE,
            "/api/accounts/{account}/active",
            delete(deactivate),
        ),
        (
            Method::GET,
            "/api/accounts/{account}/capabilities",
            get(capabilities),
        ),
        (Method::GET, "/api/accounts/{account}/groups", get(groups)),
        (Method::POST, "/api/accounts/{account}/index", post(index)),
    ]
}

/// Body of `PUT /api/accounts/{username}`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NewAccountBody {
    name: Option<String>,
    email: Option<String>,
    /// Name in the path, which may be repeated here.
    username: Option<String>,
    ssh_key: Option<String>,
}

/// Body with a new name. An empty one removes it.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NameBody {
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StatusBody {
    status: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UsernameBody {
    username: String,
}

async fn show(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    Ok(found(&row, AccountJson::of_row(&row)))
}

async fn detail(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    Ok(found(&row, api.users().json(&row).await?))
}

async fn create(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let body: NewAccountBody = api.json()?;
    api.capable(Capability::AdministrateServer)?;
    if api.expected.is_some() {
        let why = "A new account has no commit that If-Match could name.";
        let failure = WebError::new(StatusCode::PRECONDITION_FAILED, "No such commit", why);
        return Err(failure.unchanged());
    }
    if body.username.is_some_and(|given| given != name) {
        return Err(unusable(
            "the user names in the path and in the body differ",
        ));
    }
    let email = body.email.as_deref().map(read_email).transpose()?;
    let new = NewAccount {
        username: Some(ExternalIdKey::username(&name)?),
        full_name: body.name,
        email,
        ssh_key: body.ssh_key,
        ..NewAccount::default()
    };
    let number = api.users().create(&api.actor(), &new).await?;
    let row = api.users().store().account_get(number).await?;
    let row = row.ok_or(AccountsError::NoAccount(number))?;
    Ok((StatusCode::CREATED, found(&row, AccountJson::of_row(&row))).into_response())
}

async fn name(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    Ok(found(&row, row.full_name.as_deref().unwrap_or_default()))
}

async fn set_name(Segment(account): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let body: NameBody = api.json()?;
    let changes = PropertyChanges {
        full_name: Some(body.name.unwrap_or_default()),
        ..PropertyChanges::default()
    };
    set(&api, &account, changes, |row| row.full_name.clone()).await
}

async fn remove_name(Segment(account): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let changes = PropertyChanges {
        full_name: Some(String::new()),
        ..PropertyChanges::default()
    };
    set(&api, &account, changes, |row| row.full_name.clone()).await
}

async fn status(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    Ok(found(&row, row.status.as_deref().unwrap_or_default()))
}

async fn set_status(Segment(account): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let body: StatusBody = api.json()?;
    let changes = PropertyChanges {
        status: Some(body.status.unwrap_or_default()),
        ..PropertyChanges::default()
    };
    set(&api, &account, changes, |row| row.status.clone()).await
}

/// Changes a property, and answers with its new value, or with nothing if it is gone.
async fn set(
    api: &AccountRequest,
    account: &str,
    changes: PropertyChanges,
    property: impl Fn(&AccountRow) -> Option<String>,
) -> Result<Response, WebError> {
    let row = api.own(account).await?;
    let users = api.users();
    users
        .set_properties(&api.actor(), row.number, &changes)
        .await?;
    let row = api.reread(row).await?;
    match property(&row) {
        Some(value) => Ok((StatusCode::OK, Json(value)).into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

async fn username(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    match &row.username {
        Some(username) => Ok(found(&row, username)),
        None => Err(WebError::new(
            StatusCode::NOT_FOUND,
            "No user name",
            "The account has no user name.",
        )),
    }
}

async fn set_username(
    Segment(account): Segment,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let body: UsernameBody = api.json()?;
    let row = api.own_or(&account, Capability::AdministrateServer).await?;
    if row.username.is_some() {
        let why = "The account has a user name, and keeps it.";
        let failure = WebError::new(StatusCode::METHOD_NOT_ALLOWED, "User name set", why);
        return Err(failure.unchanged());
    }
    let key = ExternalIdKey::username(&body.username).map_err(|problem| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        WebError::new(status, "Invalid user name", sentence(problem)).unchanged()
    })?;
    api.users()
        .link(&api.actor(), row.number, &key, None)
        .await?;
    Ok(Json(key.id()).into_response())
}

/// 200 for an active account, 204 for an inactive one.
async fn active(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    Ok(if row.active {
        found(&row, "ok")
    } else {
        StatusCode::NO_CONTENT.into_response()
    })
}

async fn activate(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    api.may_change(&row, Capability::ModifyAccount)?;
    let status = if row.active {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    api.users()
        .set_active(&api.actor(), row.number, true)
        .await?;
    Ok((status, Json("ok")).into_response())
}

async fn deactivate(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    api.may_change(&row, Capability::ModifyAccount)?;
    if !row.active {
        let why = "The account is already inactive.";
        return Err(WebError::new(StatusCode::CONFLICT, "Inactive already", why));
    }
    api.users()
        .set_active(&api.actor(), row.number, false)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Lists the capabilities of an account.
async fn capabilities(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    if name == "self" && api.caller.own().is_none() {
        let all = Capability::ALL.map(|capability| (capability.as_str(), true));
        return Ok(Json(BTreeMap::from(all)).into_response());
    }
    let row = api.own(&name).await?;
    let access = CallerAccess::new(api.users().access().await?, row.number);
    let has = Capability::ALL.into_iter();
    let has = has.filter(|capability| access.has(*capability));
    let has: BTreeMap<&str, bool> = has.map(|known| (known.as_str(), true)).collect();
    Ok(found(&row, has))
}

/// Lists the groups of an account.
async fn groups(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    let access = CallerAccess::new(api.users().access().await?, row.number);
    let groups: Vec<GroupJson> = access.groups().map(GroupJson::named).collect();
    Ok(found(&row, groups))
}

/// Makes the rows of an account again. That reads all external IDs, so not everybody may have it done.
async fn index(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.account(&name).await?;
    api.capable(Capability::ModifyAccount)?;
    api.users().index(&api.actor(), row.number).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
