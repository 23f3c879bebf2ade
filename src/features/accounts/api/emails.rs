//! Addresses of an account.
//!
//! - `GET /api/accounts/{account}/emails`
//! - `GET PUT DELETE /api/accounts/{account}/emails/{email}`
//! - `PUT /api/accounts/{account}/emails/{email}/preferred`

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, put};
use lockkeeper_accounts::access::Capability;
use serde::{Deserialize, Serialize};

use super::super::actions::{PropertyChanges, read_email};
use super::super::store::AccountRow;
use super::{AccountRequest, ApiRoute, found};
use crate::kit::web::WebError;
use crate::kit::web::extract::Segment;
use crate::kit::web::text::shown;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        (Method::GET, "/api/accounts/{account}/emails", get(list)),
        (
            Method::GET,
            "/api/accounts/{account}/emails/{email}",
            get(show),
        ),
        (
            Method::PUT,
            "/api/accounts/{account}/emails/{email}",
            put(add),
        ),
        (
            Method::DELETE,
            "/api/accounts/{account}/emails/{email}",
            delete(remove),
        ),
        (
            Method::PUT,
            "/api/accounts/{account}/emails/{email}/preferred",
            put(prefer),
        ),
    ]
}

#[derive(Serialize)]
struct EmailJson {
    email: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    preferred: bool,
}

/// Body of a new address.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EmailBody {
    /// Address in the path, which may be repeated here.
    email: Option<String>,
    preferred: bool,
    /// The server sends no mail, so every address is added without a confirmation.
    no_confirmation: bool,
}

async fn list(Segment(name): Segment, api: AccountRequest) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    Ok(found(&row, emails(&api, &row).await?))
}

async fn show(
    Segment((name, email)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    let email = of_account(&api, &row, &email).await?;
    Ok(found(&row, email))
}

/// An address that nobody has confirmed would let its account speak for somebody else.
async fn add(
    Segment((name, email)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let body: EmailBody = api.json()?;
    api.capable(Capability::AdministrateServer)?;
    let row = api.own(&name).await?;
    let email = read_email(&email)?;
    if body.email.is_some_and(|given| given != email.as_str()) {
        return Err(super::unusable(
            "the addresses in the path and in the body differ",
        ));
    }
    if !body.no_confirmation {
        let why = "the server cannot send a mail to confirm the address; send \"no_confirmation\": true if you know whose it is";
        return Err(super::unusable(why));
    }
    let users = api.users();
    if users.store().account_of_email(&email).await? == Some(row.number) {
        let why = "The account has this address already.";
        return Err(WebError::new(StatusCode::CONFLICT, "Present already", why));
    }
    users
        .add_email(&api.actor(), row.number, &email, body.preferred)
        .await?;
    let added = EmailJson {
        email: email.as_str().to_owned(),
        preferred: body.preferred,
    };
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

async fn remove(
    Segment((name, email)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    let parsed = read_email(&email)?;
    let actor = api.actor();
    let removed = api.users().remove_email(&actor, row.number, &parsed);
    if !removed.await? {
        return Err(none(&email));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn prefer(
    Segment((name, email)): Segment<(String, String)>,
    api: AccountRequest,
) -> Result<Response, WebError> {
    let row = api.own(&name).await?;
    let there = of_account(&api, &row, &email).await?;
    if there.preferred && api.expected.is_none_or(|expected| expected == row.commit) {
        return Ok(StatusCode::OK.into_response());
    }
    let changes = PropertyChanges {
        preferred_email: Some(there.email),
        ..PropertyChanges::default()
    };
    api.users()
        .set_properties(&api.actor(), row.number, &changes)
        .await?;
    Ok(StatusCode::CREATED.into_response())
}

async fn of_account(
    api: &AccountRequest,
    row: &AccountRow,
    email: &str,
) -> Result<EmailJson, WebError> {
    let key = read_email(email)?.key();
    let emails = emails(api, row).await?;
    let same = |known: &EmailJson| known.email.to_lowercase() == key;
    emails.into_iter().find(same).ok_or_else(|| none(email))
}

async fn emails(api: &AccountRequest, row: &AccountRow) -> Result<Vec<EmailJson>, WebError> {
    let mut emails: Vec<EmailJson> = Vec::new();
    for id in api.users().external_ids(row.number).await? {
        let Some(email) = id.email else { continue };
        let email = email.as_str().to_owned();
        if emails.iter().all(|known| known.email != email) {
            let preferred = row.preferred_email.as_ref() == Some(&email);
            emails.push(EmailJson { email, preferred });
        }
    }
    emails.sort_by(|a, b| a.email.cmp(&b.email));
    Ok(emails)
}

fn none(email: &str) -> WebError {
    let why = format!("The account does not have the address `{}`.", shown(email));
    WebError::new(StatusCode::NOT_FOUND, "No such address", why)
}
