//! `GET /repos/{owner}/{repo}`.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;

use super::auth::Caller;
use super::views::{View, full_repo};
use super::{Answer, Cx};

pub(super) async fn get(State(cx): State<Cx>, caller: Caller, Path((owner, repo)): Path<(String, String)>) -> Answer {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let view = View { world: &cx.world, state: &state };
    Ok(Json(full_repo(&view, repo)).into_response())
}
