//! Builds payloads of `push` webhooks.

use serde_json::{Value, json};

use crate::emulator::git::CommitInfo;
use crate::emulator::world::{Repo, User, WorldEvent};
use crate::model::{BranchName, CommitSha};

use super::event::frame;
use super::repo::pushed_repo;
use super::{WireView, merged};

/// A branch that moved, with its new commits.
pub(in crate::emulator) struct PushFacts<'a> {
    pub(in crate::emulator) branch: &'a BranchName,
    pub(in crate::emulator) before: Option<&'a CommitSha>,
    pub(in crate::emulator) after: Option<&'a CommitSha>,
    pub(in crate::emulator) forced: bool,
    pub(in crate::emulator) commits: &'a [CommitInfo],
    pub(in crate::emulator) head: Option<&'a CommitInfo>,
}

/// Builds a `push` event.
pub(in crate::emulator) fn push_event(
    view: &WireView<'_>,
    of: &Repo,
    facts: &PushFacts<'_>,
    pusher: &str,
) -> WorldEvent {
    let none = "0".repeat(40);
    let id = |sha: Option<&CommitSha>| sha.map_or_else(|| none.clone(), ToString::to_string);
    let (before, after) = (id(facts.before), id(facts.after));
    let page = view.world.html(&format!("/{}", of.name));
    let show = |one: &CommitInfo| commit(&page, one);
    let body = json!({
        "ref": format!("refs/heads/{}", facts.branch),
        "before": before,
        "after": after,
        "created": facts.before.is_none(),
        "deleted": facts.after.is_none(),
        "forced": facts.forced,
        "base_ref": null,
        "compare": format!("{page}/compare/{}...{}", &before[..12], &after[..12]),
        "commits": facts.commits.iter().map(show).collect::<Vec<_>>(),
        "head_commit": facts.head.map(show),
        "pusher": { "name": pusher, "email": User::new(pusher).email() },
    });
    WorldEvent {
        name: "push",
        repo: of.id,
        body: merged(body, frame(view, of, &pushed_repo(view, of), pusher)),
    }
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
