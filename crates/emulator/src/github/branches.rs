//! Serves branches and their protection.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use serde_json::Value;

use crate::EmulatorError;
use crate::model::BranchName;

use super::auth::Caller;
use super::errors::ApiError;
use super::paging::Listing;
use super::views::{branch, protection};
use super::{Cx, WireResponse};

/// `GET …/branches/{branch}`
pub(super) async fn get(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, name)): Path<(String, String, String)>,
) -> WireResponse {
    let key = caller.repo(&cx.world.state(), &owner, &repo)?.name.key();
    let name = BranchName::new(&name).map_err(|_| ApiError::NotFound)?;
    let git = cx.world.repo_handle(&key)?.git;
    let tip = git
        .resolve(&format!("refs/heads/{name}"))
        .await
        .map_err(EmulatorError::from)?;
    let tip = tip.ok_or(ApiError::NotFound)?;
    let commit = git
        .commit(tip.as_str())
        .await
        .map_err(EmulatorError::from)?;
    let state = cx.world.state();
    Ok(Json(branch(&cx.github, state.repo(&key)?, &name, &commit)).into_response())
}

/// `GET …/branches/{branch}/protection`
pub(super) async fn get_protection(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, name)): Path<(String, String, String)>,
) -> WireResponse {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let name = BranchName::new(&name).map_err(|_| ApiError::NotFound)?;
    let rules = repo.protections.get(&name).ok_or(ApiError::NotFound)?;
    Ok(Json(protection(&cx.github, repo, &name, rules)).into_response())
}

/// `GET …/rules/branches/{branch}`: always empty, because rulesets are not emulated.
pub(super) async fn rules(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, _)): Path<(String, String, String)>,
    listing: Listing,
) -> WireResponse {
    caller.repo(&cx.world.state(), &owner, &repo)?;
    Ok(listing.answer(&cx, Vec::<Value>::new()))
}
