//! Serves teams of an organisation and their memberships.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use serde_json::Value;

use super::auth::Caller;
use super::errors::ApiError;
use super::paging::Listing;
use super::views::{membership, team};
use super::{Cx, WireResponse};

/// `GET /orgs/{org}/teams`
pub(super) async fn list(
    State(cx): State<Cx>,
    caller: Caller,
    Path(org): Path<String>,
    listing: Listing,
) -> WireResponse {
    may_look(&caller)?;
    let state = cx.world.state();
    let org = state.org(&org).ok_or(ApiError::NotFound)?;
    let teams: Vec<Value> = state
        .teams_of(org)
        .map(|one| {
            let parent = one.parent.as_deref();
            let parent = parent.and_then(|slug| state.team(&one.org, slug));
            team(&cx.github, one, parent)
        })
        .collect();
    Ok(listing.answer(&cx, teams))
}

/// `GET /orgs/{org}/teams/{team_slug}/memberships/{username}`
pub(super) async fn get_membership(
    State(cx): State<Cx>,
    caller: Caller,
    Path((org, slug, login)): Path<(String, String, String)>,
) -> WireResponse {
    may_look(&caller)?;
    let state = cx.world.state();
    let team = state.team(&org, &slug).ok_or(ApiError::NotFound)?;
    let membership_state = state.membership(team, &login).ok_or(ApiError::NotFound)?;
    Ok(Json(membership(&cx.github, team, &login, membership_state)).into_response())
}

/// Admits members of the organisation and its Apps. Everybody with a token counts as a member.
fn may_look(caller: &Caller) -> Result<(), ApiError> {
    match caller {
        Caller::User(_) | Caller::Installation { .. } => Ok(()),
        Caller::Anonymous => Err(ApiError::AuthenticationRequired),
        Caller::App => Err(ApiError::NotForIntegrations),
    }
}
