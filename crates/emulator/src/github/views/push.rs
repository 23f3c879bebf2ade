//! Builds the payload of a `push` webhook.

use serde_json::{Value, json};

use crate::git::CommitInfo;
use crate::github::GitHubWire;
use crate::model::CommitSha;
use crate::world::{BranchPush, WorldEvent};

use super::event::frame;
use super::merged;
use super::repo::pushed_repo;
use super::user::email;

/// Builds the payload of a `push` webhook.
pub(super) fn push_payload(github: &GitHubWire, event: &WorldEvent, push: &BranchPush) -> Value {
    let (of, pusher) = (&event.repo, &event.by);
    let none = "0".repeat(40);
    let id = |sha: Option<&CommitSha>| sha.map_or_else(|| none.clone(), ToString::to_string);
    let (before, after) = (id(push.before.as_ref()), id(push.after.as_ref()));
    let page = github.html(&format!("/{}", of.name));
    let show = |one: &CommitInfo| commit(&page, one);
    let payload = json!({
        "ref": format!("refs/heads/{}", push.branch),
        "before": before,
        "after": after,
        "created": push.before.is_none(),
        "deleted": push.after.is_none(),
        "forced": push.forced,
        "base_ref": null,
        "compare": format!("{page}/compare/{}...{}", &before[..12], &after[..12]),
        "commits": push.commits.iter().map(show).collect::<Vec<_>>(),
        "head_commit": push.head.as_ref().map(show),
        "pusher": { "name": pusher, "email": email(pusher) },
    });
    let repository = pushed_repo(github, of);
    merged(payload, frame(github, of, &repository, pusher))
}

fn commit(page: &str, one: &CommitInfo) -> Value {
    let files = |letters: &str| -> Vec<&str> {
        one.files
            .iter()
            .filter(|(letter, _)| letters.contains(*letter))
            .map(|(_, path)| path.as_str())
            .collect()
    };
    let person = |(name, email): &(String, String)| json!({ "name": name, "email": email, "username": name });
    json!({
        "id": one.sha,
        "tree_id": one.tree,
        "distinct": true,
        "message": one.message,
        "timestamp": one.date,
        "url": format!("{page}/commit/{}", one.sha),
        "author": person(&one.author),
        "committer": person(&one.committer),
        "added": files("A"),
        "removed": files("D"),
        "modified": files("MT"),
    })
}
