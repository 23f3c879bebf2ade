//! Serves pull requests: lists, single pull requests with their files, and merges.

use std::cmp::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::emulator::git::MAX_FILES;
use crate::emulator::world::{EmulatedPull, MergePayload, Repo};
use crate::model::PullNumber;

use super::auth::Caller;
use super::errors::{ApiError, read_body};
use super::paging::{Listing, Params};
use super::views::{WireView, changed_file, pull_full, pull_simple};
use super::{Cx, WireResponse};

/// Parses a number in a path. Any other text is an unknown resource.
pub(super) fn number(text: &str) -> Result<PullNumber, ApiError> {
    text.parse().map(PullNumber).map_err(|_| ApiError::NotFound)
}

pub(super) async fn list(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo)): Path<(String, String)>,
    listing: Listing,
) -> WireResponse {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let view = WireView {
        world: &cx.world,
        state: &state,
    };
    let pulls = sorted(repo, &listing.params)
        .into_iter()
        .filter(|pull| wanted(pull, &listing.params));
    let list: Vec<Value> = pulls.map(|pull| pull_simple(&view, repo, pull)).collect();
    Ok(listing.answer(&cx, list))
}

/// Returns true if a pull request matches the parameters `state`, `head` (as `owner:branch`) and `base`.
fn wanted(pull: &EmulatedPull, params: &Params) -> bool {
    let of_state = match params.get("state").map(String::as_str) {
        Some("all") => true,
        Some("closed") => !pull.is_open(),
        _ => pull.is_open(),
    };
    let owner = pull.head_repo.split('/').next().unwrap_or_default();
    let label = format!("{owner}:{}", pull.head_branch);
    of_state
        && params
            .get("head")
            .is_none_or(|head| head.eq_ignore_ascii_case(&label))
        && params
            .get("base")
            .is_none_or(|base| base == pull.base_branch.as_str())
}

/// Sorts pull requests as the query requests, by default the newest first.
fn sorted<'a>(repo: &'a Repo, params: &Params) -> Vec<&'a EmulatedPull> {
    let mut pulls: Vec<&EmulatedPull> = repo.pulls.values().collect();
    let key = params.get("sort").map_or("created", String::as_str);
    let ascending = match params.get("direction").map(String::as_str) {
        Some(direction) => direction == "asc",
        None => key != "created",
    };
    let compare = |a: &&EmulatedPull, b: &&EmulatedPull| -> Ordering {
        let order = match key {
            "updated" => a.updated_at.cmp(&b.updated_at),
            "popularity" => a.comments.len().cmp(&b.comments.len()),
            _ => a.created_at.cmp(&b.created_at),
        };
        order.then(a.number.cmp(&b.number))
    };
    pulls.sort_by(compare);
    if !ascending {
        pulls.reverse();
    }
    pulls
}

pub(super) async fn get(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
) -> WireResponse {
    let (shown, key) = {
        let state = cx.world.state();
        let repo = caller.repo(&state, &owner, &repo)?;
        let pull = repo.pull(number(&text)?)?;
        let view = WireView {
            world: &cx.world,
            state: &state,
        };
        (pull_full(&view, repo, pull), repo.name.key())
    };
    cx.world.settle(&key, number(&text)?)?;
    Ok(Json(shown).into_response())
}

pub(super) async fn files(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    listing: Listing,
) -> WireResponse {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let pull = repo.pull(number(&text)?)?;
    let view = WireView {
        world: &cx.world,
        state: &state,
    };
    let files = pull.diff.files.iter().take(MAX_FILES);
    let list: Vec<Value> = files
        .map(|file| changed_file(&view, repo, pull, file))
        .collect();
    Ok(listing.answer(&cx, list))
}

pub(super) async fn merge(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    body: Bytes,
) -> WireResponse {
    let (key, author) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let ask: MergePayload = read_body(&body)?;
    let (sha, events) = cx
        .world
        .merge_as_asked(&key, number(&text)?, &author.login, &ask)
        .await?;
    cx.publish_later(events);
    Ok(
        Json(json!({ "sha": sha, "merged": true, "message": "Pull Request successfully merged" }))
            .into_response(),
    )
}
