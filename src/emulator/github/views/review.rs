//! Builds the JSON of reviews and permissions.

use serde_json::{Value, json};

use crate::emulator::github::time;
use crate::emulator::world::{EmulatedPull, EmulatedWorld, Repo, Review, Role};

use super::pull::association;
use super::user::user;
use super::{WireView, merged, node_id};

/// Builds the JSON of a review in a list.
pub(in crate::emulator::github) fn review(
    view: &WireView<'_>,
    repo: &Repo,
    pull: &EmulatedPull,
    review: &Review,
) -> Value {
    let own = view.world.html(&format!(
        "/{}/pull/{}#pullrequestreview-{}",
        repo.name, pull.number, review.id
    ));
    let of = view
        .world
        .api(&format!("/repos/{}/pulls/{}", repo.name, pull.number));
    json!({
        "id": review.id,
        "node_id": node_id("PullRequestReview", review.id),
        "user": user(view.world, &review.author),
        "body": "",
        "state": review.state.as_str(),
        "html_url": own,
        "pull_request_url": of,
        "_links": { "html": { "href": own }, "pull_request": { "href": of } },
        "submitted_at": time(review.at),
        "commit_id": review.commit,
        "author_association": association(repo, &review.author),
    })
}

/// Builds the JSON of an account's permission in a repository.
pub(in crate::emulator::github) fn permission(
    world: &EmulatedWorld,
    repo: &Repo,
    login: &str,
) -> Value {
    let role = repo.role(login);
    let permissions = json!({
        "pull": role.has(Role::Read),
        "triage": role.has(Role::Triage),
        "push": role.has(Role::Write),
        "maintain": role.has(Role::Maintain),
        "admin": role.has(Role::Admin),
    });
    let who = merged(
        user(world, login),
        json!({ "role_name": role.as_str(), "permissions": permissions }),
    );
    json!({ "permission": role.base().as_str(), "role_name": role.as_str(), "user": who })
}
