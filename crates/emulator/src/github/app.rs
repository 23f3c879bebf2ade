//! Answers requests about the caller: the user of a token, the App, its installation, and tokens for it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::options::AppOptions;

use super::auth::Caller;
use super::errors::{ApiError, read_body};
use super::paging::Listing;
use super::views::{self, permissions};
use super::{Cx, InstallationToken, WireResponse, time};

pub(super) async fn user(State(cx): State<Cx>, caller: Caller) -> WireResponse {
    match caller {
        Caller::User(login) => Ok(Json(views::public_user(&cx.github, &login)).into_response()),
        Caller::Anonymous => Err(ApiError::AuthenticationRequired),
        Caller::Installation { .. } | Caller::App => Err(ApiError::NotForIntegrations),
    }
}

pub(super) async fn app(State(cx): State<Cx>, caller: Caller) -> WireResponse {
    let app = installed(&cx, &caller)?;
    Ok(Json(views::app(&cx.github, app)).into_response())
}

pub(super) async fn installations(
    State(cx): State<Cx>,
    caller: Caller,
    listing: Listing,
) -> WireResponse {
    let app = installed(&cx, &caller)?;
    let state = cx.world.state();
    let owner = state.repos.values().next().map(|repo| repo.owner.clone());
    let list: Vec<Value> = owner
        .iter()
        .map(|owner| views::installation(&cx.github, app, owner))
        .collect();
    Ok(listing.answer(&cx, list))
}

pub(super) async fn repo_installation(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo)): Path<(String, String)>,
) -> WireResponse {
    let app = installed(&cx, &caller)?;
    let state = cx.world.state();
    let repo = state.repo(&format!("{owner}/{repo}"))?;
    Ok(Json(views::installation(&cx.github, app, &repo.owner)).into_response())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenRequest {
    repositories: Option<Vec<String>>,
    repository_ids: Option<Vec<u64>>,
    permissions: Option<Value>,
}

/// Life of an installation token (GitHub Apps: generating an installation access token).
const TOKEN_LIFE: TimeDelta = TimeDelta::hours(1);

pub(super) async fn access_token(
    State(cx): State<Cx>,
    caller: Caller,
    Path(id): Path<String>,
    body: Bytes,
) -> WireResponse {
    let app = installed(&cx, &caller)?;
    if id.parse() != Ok(app.installation) {
        return Err(ApiError::NotFound);
    }
    let wanted: TokenRequest = read_body(&body)?;
    let repositories = limited_to(&cx, &wanted)?;
    let expires_at = app.clock.now() + TOKEN_LIFE;
    let mut tokens = cx.github.tokens();
    let token = format!("ghs_emulated{:024}", tokens.len() + 1);
    let selection = if repositories.is_some() {
        "selected"
    } else {
        "all"
    };
    let mut answer = json!({
        "token": token,
        "expires_at": time(expires_at),
        "permissions": wanted.permissions.unwrap_or_else(permissions),
        "repository_selection": selection,
    });
    if let Some(keys) = &repositories {
        let state = cx.world.state();
        let list: Result<Vec<Value>, _> = keys
            .iter()
            .map(|key| Ok(views::repo(&cx.github, state.repo(key)?)))
            .collect();
        answer["repositories"] = Value::Array(list.map_err(|error: crate::EmulatorError| error)?);
    }
    tokens.insert(
        token,
        InstallationToken {
            expires_at,
            repositories,
        },
    );
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// Returns the repositories that a token is limited to, by name or id. A repository that does not exist is an error.
fn limited_to(cx: &Cx, wanted: &TokenRequest) -> Result<Option<Vec<String>>, ApiError> {
    if wanted.repositories.is_none() && wanted.repository_ids.is_none() {
        return Ok(None);
    }
    let state = cx.world.state();
    let missing = || {
        let text = "There is at least one repository that does not exist or is not accessible to the parent installation.";
        ApiError::Unprocessable(text.to_owned())
    };
    let mut keys = Vec::new();
    for name in wanted.repositories.iter().flatten() {
        let found = state
            .repos
            .values()
            .find(|repo| repo.name.name.eq_ignore_ascii_case(name));
        keys.push(found.ok_or_else(missing)?.name.key());
    }
    for id in wanted.repository_ids.iter().flatten() {
        let found = state.repos.values().find(|repo| repo.id == *id);
        keys.push(found.ok_or_else(missing)?.name.key());
    }
    Ok(Some(keys))
}

fn installed<'a>(cx: &'a Cx, caller: &Caller) -> Result<&'a AppOptions, ApiError> {
    caller.must_be_app()?;
    cx.github.app.as_ref().ok_or(ApiError::NotFound)
}
