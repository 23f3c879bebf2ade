//! Builds the JSON of statuses.

use serde_json::{Value, json};

use crate::emulator::github::paging::PageRequest;
use crate::emulator::github::time;
use crate::emulator::world::{Repo, ShaStatus, StatusState, User};
use crate::model::CommitSha;

use super::repo::repo;
use super::user::user;
use super::{WireView, merged, node_id};

fn simple(view: &WireView<'_>, repo: &Repo, status: &ShaStatus) -> Value {
    json!({
        "url": view.world.api(&format!("/repos/{}/statuses/{}", repo.name, status.sha)),
        "avatar_url": view.world.html(&format!("/avatars/u/{}?", User::new(&status.creator).id())),
        "id": status.id,
        "node_id": node_id("StatusContext", status.id),
        "state": status.state,
        "description": status.description,
        "target_url": status.target_url.as_ref().filter(|url| !url.is_empty()),
        "context": status.context,
        "created_at": time(status.created_at),
        "updated_at": time(status.created_at),
    })
}

/// Builds the JSON of a status of a commit.
pub(in crate::emulator::github) fn status(
    view: &WireView<'_>,
    repo: &Repo,
    status: &ShaStatus,
) -> Value {
    merged(
        simple(view, repo, status),
        json!({ "creator": user(view.world, &status.creator) }),
    )
}

/// Builds the JSON of a commit's statuses, the newest of each context, with the combined state.
pub(in crate::emulator::github) fn combined_status(
    view: &WireView<'_>,
    of: &Repo,
    sha: &CommitSha,
    latest: &[ShaStatus],
    page: PageRequest,
) -> Value {
    let commit = view.world.api(&format!("/repos/{}/commits/{sha}", of.name));
    let statuses: Vec<Value> = latest.iter().map(|one| simple(view, of, one)).collect();
    json!({
        "state": combined(latest),
        "statuses": page.slice(statuses),
        "sha": sha,
        "total_count": latest.len(),
        "repository": repo(view, of),
        "commit_url": commit,
        "url": format!("{commit}/status"),
    })
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
