//! Serves the statuses of commits.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::EmulatorError;
use crate::model::{BranchName, CommitSha};
use crate::world::{NewStatus, StatusState};

use super::auth::Caller;
use super::errors::{ApiError, read_body};
use super::paging::Listing;
use super::views::{combined_status, state_word, status};
use super::{Cx, WireResponse, check_runs};

/// Body of a request to set a status.
#[derive(Deserialize)]
struct StatusPayload {
    state: String,
    context: Option<String>,
    description: Option<String>,
    target_url: Option<String>,
}

const MAX_DESCRIPTION_CHARS: usize = 140;
const MAX_CONTEXT_CHARS: usize = 255;

impl StatusPayload {
    /// Checks the fields by GitHub's rules.
    fn check(self) -> Result<NewStatus, ApiError> {
        let invalid = |field, message: &str| {
            Err(ApiError::Invalid {
                resource: "Status",
                code: "custom",
                field,
                message: message.to_owned(),
            })
        };
        let longer = |text: &Option<String>, max| {
            text.as_ref().is_some_and(|text| text.chars().count() > max)
        };
        let Some(state) = STATES
            .into_iter()
            .find(|state| state_word(*state) == self.state)
        else {
            return invalid("state", "state is not included in the list");
        };
        if longer(&self.description, MAX_DESCRIPTION_CHARS) {
            return invalid(
                "description",
                "description is too long (maximum is 140 characters)",
            );
        }
        if longer(&self.context, MAX_CONTEXT_CHARS) {
            return invalid("context", "context is too long (maximum is 255 characters)");
        }
        match &self.target_url {
            Some(url)
                if !url.is_empty()
                    && !url.starts_with("http://")
                    && !url.starts_with("https://") =>
            {
                invalid("target_url", "target_url must use http(s) scheme")
            }
            _ => Ok(NewStatus {
                state,
                context: self.context.unwrap_or_else(|| "default".to_owned()),
                description: self.description,
                target_url: self.target_url,
            }),
        }
    }
}

const STATES: [StatusState; 4] = [
    StatusState::Error,
    StatusState::Failure,
    StatusState::Pending,
    StatusState::Success,
];

pub(super) async fn create(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo, sha)): Path<(String, String, String)>,
    body: Bytes,
) -> WireResponse {
    let (key, author) = caller.writes(&cx.world.state(), &owner, &repo)?;
    let new: StatusPayload = read_body(&body)?;
    let commit = cx.world.commit(&key, &sha).await?;
    let made = cx.world.set_status(&key, commit, &author, new.check()?)?;
    let state = cx.world.state();
    let json = status(&cx.github, state.repo(&key)?, &made);
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
        return Ok(Json(check_runs::of_commit(&cx, &key, &sha, &listing)?).into_response());
    }
    let state = cx.world.state();
    let repo = state.repo(&key)?;
    let all = repo.statuses_of(&sha);
    if what == "status" {
        return Ok(Json(combined_status(
            &cx.github,
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
        .map(|one| status(&cx.github, repo, one))
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

    fn new(state: &str, description: &str, url: &str) -> StatusPayload {
        let (description, target_url) = (Some(description.to_owned()), Some(url.to_owned()));
        StatusPayload {
            state: state.to_owned(),
            context: None,
            description,
            target_url,
        }
    }

    #[test]
    fn a_status_is_checked_by_githubs_rules() {
        let good = new("success", &"ü".repeat(140), "https://x").check();
        assert_eq!(good.unwrap().state, StatusState::Success);
        for (status, wrong) in [
            (new("done", "", ""), "state"),
            (new("success", &"x".repeat(141), ""), "description"),
            (new("success", "", "ftp://x"), "target_url"),
        ] {
            assert!(
                matches!(status.check(), Err(ApiError::Invalid { field, .. }) if field == wrong),
                "{wrong}"
            );
        }
    }

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
