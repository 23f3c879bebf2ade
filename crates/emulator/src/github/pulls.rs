//! Serves pull requests: lists, single pull requests with their files, and merges.

use std::cmp::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::{CommitSha, MergeMethod, PullNumber};
use crate::world::{EmulatedPull, Repo};

use super::auth::Caller;
use super::errors::{ApiError, read_body};
use super::paging::{Listing, Params};
use super::views::{base_change, changed_file, pull_full, pull_simple};
use super::{Cx, WireResponse};

/// Maximum number of files that GitHub lists for a pull request (GitHub REST: list pull requests files).
const MAX_FILES: usize = 3000;

/// Body of a request to merge.
#[derive(Deserialize)]
struct MergePayload {
    /// Head that the pull request must have.
    #[serde(default)]
    sha: Option<CommitSha>,
    #[serde(default = "usual_method")]
    merge_method: MergeMethod,
}

const fn usual_method() -> MergeMethod {
    MergeMethod::Merge
}

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
    let pulls = sorted(repo, &listing.params)
        .into_iter()
        .filter(|pull| wanted(pull, &listing.params));
    let list: Vec<Value> = pulls
        .map(|pull| {
            let head = state.head_repo(pull).map(|head| &**head);
            pull_simple(&cx.github, pull, repo, head)
        })
        .collect();
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
    let mut pulls: Vec<&EmulatedPull> = repo.pulls.values().map(|pull| &**pull).collect();
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
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let pull = repo.pull(number(&text)?)?;
    let head = state.head_repo(pull).map(|head| &**head);
    let shown = pull_full(&cx.github, pull, repo, head);
    cx.github.count_read(pull.id);
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
    let files = pull.diff.files.iter().take(MAX_FILES);
    let list: Vec<Value> = files
        .map(|file| changed_file(&cx.github, repo, pull, file))
        .collect();
    Ok(listing.answer(&cx, list))
}

/// `GET …/issues/{number}/events`, oldest first. It only has changes of the base branch.
pub(super) async fn events(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, text)): Path<(String, String, String)>,
    listing: Listing,
) -> WireResponse {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let pull = repo.pull(number(&text)?)?;
    let list: Vec<Value> = pull
        .base_changes
        .iter()
        .map(|change| base_change(&cx.github, repo, change))
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
    let MergePayload { sha, merge_method } = read_body(&body)?;
    let (by, number) = (&author.login, number(&text)?);
    let (sha, events) = cx
        .world
        .merge_if_allowed(&key, number, by, merge_method, sha.as_ref())
        .await?;
    cx.publish_later(&events);
    Ok(
        Json(json!({ "sha": sha, "merged": true, "message": "Pull Request successfully merged" }))
            .into_response(),
    )
}
