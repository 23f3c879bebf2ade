//! Builds the JSON of reviews and permissions.

use serde_json::{Value, json};

use crate::github::{GitHubWire, time};
use crate::world::{EmulatedPull, Repo, Review, ReviewState, Role};

use super::pull::association;
use super::user::user;
use super::{merged, node_id};

/// Builds the JSON of a review in a list.
pub(in crate::github) fn review(
    github: &GitHubWire,
    repo: &Repo,
    pull: &EmulatedPull,
    review: &Review,
) -> Value {
    let own = github.html(&format!(
        "/{}/pull/{}#pullrequestreview-{}",
        repo.name, pull.number, review.id
    ));
    let of = github.api(&format!("/repos/{}/pulls/{}", repo.name, pull.number));
    json!({
        "id": review.id,
        "node_id": node_id("PullRequestReview", review.id),
        "user": user(github, &review.author),
        "body": "",
        "state": verdict(review.state),
        "html_url": own,
        "pull_request_url": of,
        "_links": { "html": { "href": own }, "pull_request": { "href": of } },
        "submitted_at": time(review.at),
        "commit_id": review.commit,
        "author_association": association(repo, &review.author),
    })
}

/// Builds the JSON of an account's permission in a repository.
pub(in crate::github) fn permission(github: &GitHubWire, repo: &Repo, login: &str) -> Value {
    let role = repo.role(login);
    let permissions = json!({
        "pull": role.has(Role::Read),
        "triage": role.has(Role::Triage),
        "push": role.has(Role::Write),
        "maintain": role.has(Role::Maintain),
        "admin": role.has(Role::Admin),
    });
    let who = merged(
        user(github, login),
        json!({ "role_name": role_name(role), "permissions": permissions }),
    );
    json!({ "permission": role_name(base_role(role)), "role_name": role_name(role), "user": who })
}

/// Returns GitHub's word for the verdict of a review.
fn verdict(state: ReviewState) -> &'static str {
    match state {
        ReviewState::Approved => "APPROVED",
        ReviewState::ChangesRequested => "CHANGES_REQUESTED",
        ReviewState::Commented => "COMMENTED",
        ReviewState::Dismissed => "DISMISSED",
    }
}

/// Returns GitHub's word for a role.
fn role_name(role: Role) -> &'static str {
    match role {
        Role::None => "none",
        Role::Read => "read",
        Role::Triage => "triage",
        Role::Write => "write",
        Role::Maintain => "maintain",
        Role::Admin => "admin",
    }
}

/// Returns the role that GitHub shows where it only shows its original roles.
fn base_role(role: Role) -> Role {
    match role {
        Role::Triage => Role::Read,
        Role::Maintain => Role::Write,
        Role::None | Role::Read | Role::Write | Role::Admin => role,
    }
}
