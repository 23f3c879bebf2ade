//! Builds the payloads of webhooks from the events of the world.

use serde_json::{Value, json};

use crate::github::{GitHubWire, time};
use crate::world::{
    CommentSnapshot, EmulatedPull, FullName, PullSnapshot, Repo, User, UserKind, WorldChange,
    WorldEvent,
};

use super::comment::{comment, rollup};
use super::pull::{association, merged_at, open_or_closed, pull_full};
use super::push::push_payload;
use super::repo::repo;
use super::user::{organization, user};
use super::{merged, node_id};

/// Builds the fields that end every payload: repository, organisation, installation, sender.
pub(super) fn frame(github: &GitHubWire, of: &Repo, repository: &Value, sender: &str) -> Value {
    let mut frame = json!({ "repository": repository, "sender": user(github, sender) });
    if let Some(organization) = organization(github, &of.owner) {
        frame["organization"] = organization;
    }
    if let Some(app) = &github.app {
        let node = node_id("IntegrationInstallation", app.installation);
        frame["installation"] = json!({ "id": app.installation, "node_id": node });
    }
    frame
}

/// Returns the name and the payload of the webhook that GitHub sends for an event of the world.
pub(in crate::github) fn payload(github: &GitHubWire, event: &WorldEvent) -> (&'static str, Value) {
    let pulls = |action, pull, extra| {
        let payload = pull_payload(github, event, action, pull, extra);
        ("pull_request", payload)
    };
    let comments = |action, comment, extra| {
        let payload = comment_payload(github, event, action, comment, extra);
        ("issue_comment", payload)
    };
    let repositories = |action, extra| {
        let payload = merged(json!({ "action": action }), extra);
        ("repository", framed(github, event, payload))
    };
    match &event.change {
        WorldChange::PullOpened(pull) => pulls("opened", pull, json!({})),
        WorldChange::PullReopened(pull) => pulls("reopened", pull, json!({})),
        WorldChange::PullClosed(pull) => pulls("closed", pull, json!({})),
        WorldChange::PullMarkedReady(pull) => pulls("ready_for_review", pull, json!({})),
        WorldChange::PullMarkedDraft(pull) => pulls("converted_to_draft", pull, json!({})),
        WorldChange::PullUpdated {
            pull,
            before,
            after,
        } => {
            let extra = json!({ "before": before, "after": after });
            pulls("synchronize", pull, extra)
        }
        WorldChange::PullBaseChanged {
            pull,
            old_branch,
            old_base,
        } => {
            let from = json!({ "ref": { "from": old_branch }, "sha": { "from": old_base } });
            pulls("edited", pull, json!({ "changes": { "base": from } }))
        }
        WorldChange::CommentAdded(comment) => comments("created", comment, json!({})),
        WorldChange::CommentDeleted(comment) => comments("deleted", comment, json!({})),
        WorldChange::CommentEdited { comment, old_body } => {
            let extra = json!({ "changes": { "body": { "from": old_body } } });
            comments("edited", comment, extra)
        }
        WorldChange::Pushed(push) => ("push", push_payload(github, event, push)),
        WorldChange::RepositoryRenamed {
            old_name,
            old_owner,
        } => {
            let (action, changes) = rename(old_name, old_owner, &event.repo.name);
            repositories(action, json!({ "changes": changes }))
        }
        WorldChange::RepositoryArchived => repositories("archived", json!({})),
        WorldChange::RepositoryDeleted => repositories("deleted", json!({})),
    }
}

/// Adds the fields that end most payloads.
fn framed(github: &GitHubWire, event: &WorldEvent, payload: Value) -> Value {
    let repository = repo(github, &event.repo);
    merged(payload, frame(github, &event.repo, &repository, &event.by))
}

/// Builds the payload of a `pull_request` webhook. `extra` has the fields that only some actions have.
fn pull_payload(
    github: &GitHubWire,
    event: &WorldEvent,
    action: &str,
    PullSnapshot { pull, head_repo }: &PullSnapshot,
    extra: Value,
) -> Value {
    let mut shown = pull_full(github, pull, &event.repo, head_repo.as_deref());
    // GitHub sends some events before it has tried the merge.
    if matches!(action, "opened" | "reopened" | "synchronize" | "edited") {
        let untried =
            json!({ "mergeable": null, "rebaseable": null, "mergeable_state": "unknown" });
        shown = merged(shown, untried);
    }
    if action == "opened" {
        shown["merge_commit_sha"] = Value::Null;
    }
    let payload = json!({ "action": action, "number": pull.number, "pull_request": shown });
    framed(github, event, merged(payload, extra))
}

/// Builds the payload of an `issue_comment` webhook. `extra` has the fields that only some actions have.
fn comment_payload(
    github: &GitHubWire,
    event: &WorldEvent,
    action: &str,
    CommentSnapshot { pull, comment: one }: &CommentSnapshot,
    extra: Value,
) -> Value {
    let payload = json!({
        "action": action,
        "issue": issue(github, &event.repo, pull),
        "comment": comment(github, &event.repo, pull, one),
    });
    framed(github, event, merged(payload, extra))
}

/// Describes a rename. GitHub reports another owner as a transfer, even if the name changes too.
fn rename(old_name: &FullName, old_owner: &User, name: &FullName) -> (&'static str, Value) {
    let from = json!({ "name": { "from": old_name.name } });
    if old_name.owner.eq_ignore_ascii_case(&name.owner) {
        return ("renamed", json!({ "repository": from }));
    }
    let kind = if old_owner.kind == UserKind::Organization {
        "organization"
    } else {
        "user"
    };
    let owner = json!({ kind: { "login": old_owner.login, "id": old_owner.id() } });
    let mut changes = json!({ "owner": { "from": owner } });
    if old_name.name != name.name {
        changes["repository"] = from;
    }
    ("transferred", changes)
}

/// Builds the JSON of a pull request in its older role as an issue.
fn issue(github: &GitHubWire, of: &Repo, pull: &EmulatedPull) -> Value {
    let (name, number) = (&of.name, pull.number);
    let own = github.api(&format!("/repos/{name}/issues/{number}"));
    let page = github.html(&format!("/{name}/pull/{number}"));
    json!({
        "url": own,
        "repository_url": github.api(&format!("/repos/{name}")),
        "labels_url": format!("{own}/labels{{/name}}"),
        "comments_url": format!("{own}/comments"),
        "events_url": format!("{own}/events"),
        "html_url": page,
        "id": pull.id,
        "node_id": node_id("PullRequest", pull.id),
        "number": number,
        "title": pull.title,
        "user": user(github, &pull.author),
        "labels": [],
        "state": open_or_closed(pull),
        "state_reason": null,
        "locked": false,
        "assignee": null,
        "assignees": [],
        "milestone": null,
        "comments": pull.comments.len(),
        "created_at": time(pull.created_at),
        "updated_at": time(pull.updated_at),
        "closed_at": pull.closed_at.map(time),
        "author_association": association(of, &pull.author),
        "active_lock_reason": null,
        "draft": pull.draft,
        "body": pull.body,
        "reactions": rollup(&own, std::iter::empty()),
        "timeline_url": format!("{own}/timeline"),
        "performed_via_github_app": null,
        "pull_request": {
            "url": github.api(&format!("/repos/{name}/pulls/{number}")),
            "html_url": page,
            "diff_url": format!("{page}.diff"),
            "patch_url": format!("{page}.patch"),
            "merged_at": merged_at(pull),
        },
    })
}
