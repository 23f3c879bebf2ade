//! Serves reviews and the permissions of accounts.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use serde_json::Value;

use super::auth::Caller;
use super::paging::Listing;
use super::pulls::number;
use super::views::{permission, review};
use super::{Cx, WireResponse};

/// `GET …/pulls/{number}/reviews`, oldest first.
pub(super) async fn list(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    listing: Listing,
) -> WireResponse {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let pull = repo.pull(number(&text)?)?;
    let list: Vec<Value> = pull
        .reviews
        .iter()
        .map(|one| review(&cx.github, repo, pull, one))
        .collect();
    Ok(listing.answer(&cx, list))
}

/// `GET …/collaborators/{username}/permission`
pub(super) async fn get_permission(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, login)): Path<(String, String, String)>,
) -> WireResponse {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    Ok(Json(permission(&cx.github, repo, &login)).into_response())
}
