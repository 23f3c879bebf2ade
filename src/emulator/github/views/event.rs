//! Builds payloads of `pull_request` and `issue_comment` webhooks.

use serde_json::{Value, json};

use crate::emulator::github::time;
use crate::emulator::world::{EmulatedComment, EmulatedPull, Repo, WorldEvent};
use crate::model::PullNumber;

use super::comment::{comment, rollup};
use super::pull::{association, merged_at, open_or_closed, pull_full};
use super::repo::repo;
use super::user::{organization, user};
use super::{WireView, merged, node_id};

/// Builds the fields that end every payload: repository, organisation, installation, sender.
pub(super) fn frame(view: &WireView<'_>, of: &Repo, repository: &Value, sender: &str) -> Value {
    let mut frame = json!({ "repository": repository, "sender": user(view.world, sender) });
    if let Some(organization) = organization(view.world, &of.owner) {
        frame["organization"] = organization;
    }
    if let Some(app) = &view.world.app {
        let node = node_id("IntegrationInstallation", app.installation);
        frame["installation"] = json!({ "id": app.installation, "node_id": node });
    }
    frame
}

/// Builds a `pull_request` event. `extra` has the fields that only some actions have.
pub(in crate::emulator) fn pull_event(
    view: &WireView<'_>,
    of: &Repo,
    number: PullNumber,
    action: &str,
    sender: &str,
    extra: Value,
) -> WorldEvent {
    let mut body = json!({ "action": action, "number": number });
    if let Some(pull) = of.pulls.get(&number) {
        body["pull_request"] = shown(view, of, pull, action);
    }
    let body = merged(
        merged(body, extra),
        frame(view, of, &repo(view, of), sender),
    );
    WorldEvent {
        name: "pull_request",
        repo: of.id,
        body,
    }
}

/// Builds a `repository` event. `extra` has the fields that only some actions have.
pub(in crate::emulator) fn repository_event(
    view: &WireView<'_>,
    of: &Repo,
    action: &str,
    sender: &str,
    extra: Value,
) -> WorldEvent {
    let body = merged(json!({ "action": action }), extra);
    WorldEvent {
        name: "repository",
        repo: of.id,
        body: merged(body, frame(view, of, &repo(view, of), sender)),
    }
}

/// Builds the JSON of the pull request in an event. GitHub sends some events before it has tried the merge.
fn shown(view: &WireView<'_>, of: &Repo, pull: &EmulatedPull, action: &str) -> Value {
    let mut shown = pull_full(view, of, pull);
    if matches!(action, "opened" | "reopened" | "synchronize" | "edited") {
        let untried =
            json!({ "mergeable": null, "rebaseable": null, "mergeable_state": "unknown" });
        shown = merged(shown, untried);
    }
    if action == "opened" {
        shown["merge_commit_sha"] = Value::Null;
    }
    shown
}

/// Builds an `issue_comment` event for a comment on a pull request.
pub(in crate::emulator) fn comment_event(
    view: &WireView<'_>,
    of: &Repo,
    (number, one): (PullNumber, &EmulatedComment),
    action: &str,
    sender: &str,
    extra: Value,
) -> WorldEvent {
    let mut body = json!({ "action": action });
    if let Some(pull) = of.pulls.get(&number) {
        body["issue"] = issue(view, of, pull);
        body["comment"] = comment(view, of, pull, one);
    }
    let body = merged(
        merged(body, extra),
        frame(view, of, &repo(view, of), sender),
    );
    WorldEvent {
        name: "issue_comment",
        repo: of.id,
        body,
    }
}

/// Builds the JSON of a pull request in its older role as an issue.
fn issue(view: &WireView<'_>, of: &Repo, pull: &EmulatedPull) -> Value {
    let (name, number) = (&of.name, pull.number);
    let own = view.world.api(&format!("/repos/{name}/issues/{number}"));
    let page = view.world.html(&format!("/{name}/pull/{number}"));
    json!({
        "url": own,
        "repository_url": view.world.api(&format!("/repos/{name}")),
        "labels_url": format!("{own}/labels{{/name}}"),
        "comments_url": format!("{own}/comments"),
        "events_url": format!("{own}/events"),
        "html_url": page,
        "id": pull.id,
        "node_id": node_id("PullRequest", pull.id),
        "number": number,
        "title": pull.title,
        "user": user(view.world, &pull.author),
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
            "url": view.world.api(&format!("/repos/{name}/pulls/{number}")),
            "html_url": page,
            "diff_url": format!("{page}.diff"),
            "patch_url": format!("{page}.patch"),
            "merged_at": merged_at(pull),
        },
    })
}
