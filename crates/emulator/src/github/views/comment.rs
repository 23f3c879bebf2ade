//! Builds the JSON of comments and reactions.

use serde_json::{Value, json};

use crate::github::{GitHubWire, time};
use crate::world::{EmulatedComment, EmulatedPull, Reaction, Repo};

use super::node_id;
use super::pull::association;
use super::user::user;

/// Builds the JSON of a comment on a pull request.
pub(in crate::github) fn comment(
    github: &GitHubWire,
    repo: &Repo,
    pull: &EmulatedPull,
    comment: &EmulatedComment,
) -> Value {
    let (name, number, id) = (&repo.name, pull.number, comment.id);
    let own = github.api(&format!("/repos/{name}/issues/comments/{id}"));
    let reactions = repo
        .reactions
        .iter()
        .filter(|reaction| reaction.comment == id);
    let via = github
        .app
        .as_ref()
        .filter(|_| comment.via_app)
        .map(|app| super::app(github, app));
    json!({
        "url": own,
        "html_url": github.html(&format!("/{name}/pull/{number}#issuecomment-{id}")),
        "issue_url": github.api(&format!("/repos/{name}/issues/{number}")),
        "id": id,
        "node_id": node_id("IssueComment", id),
        "user": user(github, &comment.author),
        "created_at": time(comment.created_at),
        "updated_at": time(comment.updated_at),
        "author_association": association(repo, &comment.author),
        "body": comment.body,
        "reactions": rollup(&own, reactions),
        "performed_via_github_app": via,
    })
}

/// Counts the reactions of each kind.
pub(super) fn rollup<'a>(of: &str, reactions: impl Iterator<Item = &'a Reaction>) -> Value {
    let mut counts = json!({
        "url": format!("{of}/reactions"),
        "total_count": 0,
        "+1": 0,
        "-1": 0,
        "laugh": 0,
        "hooray": 0,
        "confused": 0,
        "heart": 0,
        "rocket": 0,
        "eyes": 0,
    });
    for reaction in reactions {
        for field in ["total_count", reaction.content.as_str()] {
            counts[field] = json!(counts[field].as_u64().unwrap_or(0) + 1);
        }
    }
    counts
}

/// Builds the JSON of a reaction to a comment.
pub(in crate::github) fn reaction(github: &GitHubWire, reaction: &Reaction) -> Value {
    json!({
        "id": reaction.id,
        "node_id": node_id("Reaction", reaction.id),
        "user": user(github, &reaction.login),
        "content": reaction.content,
        "created_at": time(reaction.at),
    })
}
