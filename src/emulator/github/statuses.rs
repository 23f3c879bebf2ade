//! Serves the statuses of commits.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::Value;

use crate::emulator::EmulatorError;
use crate::emulator::world::NewStatus;
use crate::model::{BranchName, CommitSha};

use super::auth::Caller;
use super::errors::{ApiError, read_body};
use super::paging::Listing;
use super::views::{WireView, combined_status, status};
use super::{Cx, WireResponse, branches};

pub(super) async fn create(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, sha)): Path<(String, String, String)>,
    body: Bytes,
) -> WireResponse {
    let (key, author) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let new: NewStatus = read_body(&body)?;
    let made = cx.world.set_status(&key, &sha, &author, new).await?;
    let state = cx.world.state();
    let json = status(
        &WireView {
            world: &cx.world,
            state: &state,
        },
        state.repo(&key)?,
        &made,
    );
    let location = json["url"]
        .as_str()
        .and_then(|url| HeaderValue::from_str(url).ok());
    let location = location.ok_or_else(|| ApiError::Broken("a status without URL".to_owned()))?;
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, location)],
        Json(json),
    )
        .into_response())
}

/// `…/commits/{ref}/status`, `…/statuses` and `…/check-runs`. The ref may contain slashes.
pub(super) async fn of_commit(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, rest)): Path<(String, String, String)>,
    listing: Listing,
) -> WireResponse {
    let key = caller.repo(&cx.world.state(), &owner, &repo)?.name.key();
    let (name, what) = rest.rsplit_once('/').ok_or(ApiError::NotFound)?;
    if !matches!(what, "status" | "statuses" | "check-runs") {
        return Err(ApiError::NotFound);
    }
    let sha = resolve(&cx, &key, name).await?.ok_or(ApiError::NotFound)?;
    if what == "check-runs" {
        return Ok(Json(branches::no_check_runs()).into_response());
    }
    let state = cx.world.state();
    let repo = state.repo(&key)?;
    let view = WireView {
        world: &cx.world,
        state: &state,
    };
    let all = repo.statuses_of(&sha);
    if what == "status" {
        return Ok(Json(combined_status(
            &view,
            repo,
            &sha,
            &all.latest,
            listing.page(),
        ))
        .into_response());
    }
    // The list is newest first (GitHub REST: list commit statuses for a reference).
    let list: Vec<Value> = all
        .history
        .iter()
        .rev()
        .map(|one| status(&view, repo, one))
        .collect();
    Ok(listing.answer(&cx, list))
}

/// Returns the commit that a path segment or `ref=` names.
pub(super) async fn resolve(
    cx: &Cx,
    repo: &str,
    name: &str,
) -> Result<Option<CommitSha>, ApiError> {
    let git = cx.world.repo_handle(repo)?.git;
    match revision(name) {
        Some(revision) => Ok(git.resolve(&revision).await.map_err(EmulatorError::from)?),
        None => Ok(None),
    }
}

/// Converts a commit id, `heads/branch`, `pull/1/head` or a branch, with or without `refs/`, to a full name.
/// Expressions that only git would understand are refused.
fn revision(name: &str) -> Option<String> {
    if let Ok(sha) = CommitSha::new(name) {
        return Some(sha.to_string());
    }
    let name = name.strip_prefix("refs/").unwrap_or(name);
    let name = BranchName::new(name).ok()?;
    let qualified = name.as_str().starts_with("heads/") || name.as_str().starts_with("pull/");
    Some(if qualified {
        format!("refs/{name}")
    } else {
        format!("refs/heads/{name}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_is_a_commit_or_a_branch_and_no_expression() {
        let sha = "a".repeat(40);
        assert_eq!(revision(&sha), Some(sha.clone()));
        assert_eq!(
            revision("feature/x").as_deref(),
            Some("refs/heads/feature/x")
        );
        assert_eq!(
            revision("refs/heads/main").as_deref(),
            Some("refs/heads/main")
        );
        assert_eq!(revision("pull/1/head").as_deref(), Some("refs/pull/1/head"));
        for expression in ["main~1", "main^{tree}", "@{-1}", "--all", ":/x"] {
            assert_eq!(revision(expression), None, "{expression}");
        }
    }
}
