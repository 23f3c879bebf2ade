//! Builds the JSON of statuses.

use serde_json::{Value, json};

use crate::github::paging::PageRequest;
use crate::github::{GitHubWire, time};
use crate::model::CommitSha;
use crate::world::{Repo, ShaStatus, StatusState, user_id};

use super::repo::repo;
use super::user::user;
use super::{merged, node_id};

fn simple(github: &GitHubWire, repo: &Repo, status: &ShaStatus) -> Value {
    json!({
        "url": github.api(&format!("/repos/{}/statuses/{}", repo.name, status.sha)),
        "avatar_url": github.html(&format!("/avatars/u/{}?", user_id(&status.creator))),
        "id": status.id,
        "node_id": node_id("StatusContext", status.id),
        "state": state_word(status.state),
        "description": status.description,
        "target_url": status.target_url.as_ref().filter(|url| !url.is_empty()),
        "context": status.context,
        "created_at": time(status.created_at),
        "updated_at": time(status.created_at),
    })
}

/// Builds the JSON of a status of a commit.
pub(in crate::github) fn status(github: &GitHubWire, repo: &Repo, status: &ShaStatus) -> Value {
    merged(
        simple(github, repo, status),
        json!({ "creator": user(github, &status.creator) }),
    )
}

/// Builds the JSON of a commit's statuses, the newest of each context, with the combined state.
pub(in crate::github) fn combined_status(
    github: &GitHubWire,
    of: &Repo,
    sha: &CommitSha,
    latest: &[ShaStatus],
    page: PageRequest,
) -> Value {
    let commit = github.api(&format!("/repos/{}/commits/{sha}", of.name));
    let statuses: Vec<Value> = latest.iter().map(|one| simple(github, of, one)).collect();
    json!({
        "state": state_word(combined(latest)),
        "statuses": page.slice(statuses),
        "sha": sha,
        "total_count": latest.len(),
        "repository": repo(github, of),
        "commit_url": commit,
        "url": format!("{commit}/status"),
    })
}

/// Returns GitHub's word for the state of a status.
pub(in crate::github) fn state_word(state: StatusState) -> &'static str {
    match state {
        StatusState::Error => "error",
        StatusState::Failure => "failure",
        StatusState::Pending => "pending",
        StatusState::Success => "success",
    }
}

/// Returns failure if any status failed, pending if any is pending or there are none, else success.
fn combined(latest: &[ShaStatus]) -> StatusState {
    let any = |state| latest.iter().any(|status| status.state == state);
    if any(StatusState::Error) || any(StatusState::Failure) {
        StatusState::Failure
    } else if latest.is_empty() || any(StatusState::Pending) {
        StatusState::Pending
    } else {
        StatusState::Success
    }
}
