//! Builds the JSON of pull requests, their files and their changes of the base branch.

use serde_json::{Value, json};

use crate::git::{FileChange, FileChangeKind};
use crate::github::{GitHubWire, time};
use crate::model::{BranchName, CommitSha, PullState};
use crate::world::{BaseChange, EmulatedPull, Repo, StatusState, UserKind};

use super::repo::repo;
use super::user::{account, account_of, user};
use super::{merged, node_id};

/// Builds the JSON of a pull request as an item of a list.
pub(in crate::github) fn pull_simple(
    github: &GitHubWire,
    pull: &EmulatedPull,
    base: &Repo,
    head: Option<&Repo>,
) -> Value {
    merged(links(github, base, pull), facts(github, pull, base, head))
}

/// Builds the JSON of the event that a pull request got another base branch.
pub(in crate::github) fn base_change(
    github: &GitHubWire,
    repo: &Repo,
    change: &BaseChange,
) -> Value {
    json!({
        "id": change.id,
        "node_id": node_id("BaseRefChangedEvent", change.id),
        "url": github.api(&format!("/repos/{}/issues/events/{}", repo.name, change.id)),
        "actor": user(github, &change.by),
        "event": "base_ref_changed",
        "commit_id": null,
        "commit_url": null,
        "created_at": time(change.at),
        "performed_via_github_app": null,
    })
}

fn links(github: &GitHubWire, base: &Repo, pull: &EmulatedPull) -> Value {
    let (name, number) = (&base.name, pull.number);
    let api = |rest: String| github.api(&format!("/repos/{name}{rest}"));
    let (own, issue) = (
        api(format!("/pulls/{number}")),
        api(format!("/issues/{number}")),
    );
    let page = github.html(&format!("/{name}/pull/{number}"));
    let statuses = api(format!("/statuses/{}", pull.head));
    let review_comment = api("/pulls/comments{/number}".to_owned());
    json!({
        "url": own,
        "html_url": page,
        "diff_url": format!("{page}.diff"),
        "patch_url": format!("{page}.patch"),
        "issue_url": issue,
        "commits_url": format!("{own}/commits"),
        "review_comments_url": format!("{own}/comments"),
        "review_comment_url": review_comment,
        "comments_url": format!("{issue}/comments"),
        "statuses_url": statuses,
        "_links": {
            "self": { "href": own },
            "html": { "href": page },
            "issue": { "href": issue },
            "comments": { "href": format!("{issue}/comments") },
            "review_comments": { "href": format!("{own}/comments") },
            "review_comment": { "href": review_comment },
            "commits": { "href": format!("{own}/commits") },
            "statuses": { "href": statuses },
        },
    })
}

fn facts(github: &GitHubWire, pull: &EmulatedPull, base: &Repo, head: Option<&Repo>) -> Value {
    json!({
        "id": pull.id,
        "node_id": node_id("PullRequest", pull.id),
        "number": pull.number,
        "state": open_or_closed(pull),
        "locked": false,
        "title": pull.title,
        "user": user(github, &pull.author),
        "body": pull.body,
        "created_at": time(pull.created_at),
        "updated_at": time(pull.updated_at),
        "closed_at": pull.closed_at.map(time),
        "merged_at": merged_at(pull),
        "merge_commit_sha": pull.merge_commit,
        "assignee": null,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": pull.labels.iter().zip(1..).map(|(name, n)| label(github, base, name, n)).collect::<Value>(),
        "milestone": null,
        "draft": pull.draft,
        "head": end(github, head, &pull.head_branch, &pull.head),
        "base": end(github, Some(base), &pull.base_branch, &pull.base),
        "author_association": association(base, &pull.author),
        "auto_merge": null,
        "active_lock_reason": null,
    })
}

fn label(github: &GitHubWire, base: &Repo, name: &str, number: u64) -> Value {
    json!({
        "id": number,
        "node_id": node_id("Label", number),
        "url": github.api(&format!("/repos/{}/labels/{name}", base.name)),
        "name": name,
        "description": null,
        "color": "ededed",
        "default": false,
    })
}

/// Returns the state in JSON. GitHub's API has no separate state for merged pull requests.
pub(super) fn open_or_closed(pull: &EmulatedPull) -> &'static str {
    if pull.is_open() { "open" } else { "closed" }
}

/// Returns the time of the merge, if the pull request was merged.
pub(super) fn merged_at(pull: &EmulatedPull) -> Option<String> {
    pull.closed_at
        .filter(|_| pull.state == PullState::Merged)
        .map(time)
}

/// Builds the JSON of the head or the base.
fn end(github: &GitHubWire, of: Option<&Repo>, branch: &BranchName, sha: &CommitSha) -> Value {
    let owner = of.map(|repo| &repo.owner);
    json!({
        "label": format!("{}:{branch}", owner.map_or("unknown", |owner| owner.login.as_str())),
        "ref": branch,
        "sha": sha,
        "user": owner.map(|owner| account(github, owner)),
        "repo": of.map(|of| repo(github, of)),
    })
}

/// Returns the association of an account with the repository. Bots have none on GitHub; accounts that may write are
/// members here.
pub(super) fn association(repo: &Repo, login: &str) -> &'static str {
    if account_of(login).kind == UserKind::Bot {
        "NONE"
    } else if repo.name.owner.eq_ignore_ascii_case(login) {
        "OWNER"
    } else if repo.lets_write(login) {
        "MEMBER"
    } else {
        "NONE"
    }
}

/// Builds the JSON of a single pull request.
pub(in crate::github) fn pull_full(
    github: &GitHubWire,
    pull: &EmulatedPull,
    base: &Repo,
    head: Option<&Repo>,
) -> Value {
    let files = &pull.diff.files;
    let mergeable = github
        .knows_mergeability(pull)
        .then_some(pull.merge_commit.is_some());
    let more = json!({
        "merged": pull.state == PullState::Merged,
        "mergeable": mergeable,
        "rebaseable": mergeable,
        "mergeable_state": mergeable_state(github, base, pull),
        "merged_by": pull.merged_by.as_deref().map(|login| user(github, login)),
        "comments": pull.comments.len(),
        "review_comments": 0,
        "maintainer_can_modify": false,
        "commits": pull.diff.commits,
        "additions": files.iter().map(|file| file.additions).sum::<u64>(),
        "deletions": files.iter().map(|file| file.deletions).sum::<u64>(),
        "changed_files": files.len(),
    });
    merged(pull_simple(github, pull, base, head), more)
}

/// Returns GitHub's word for the mergeability of a pull request.
fn mergeable_state(github: &GitHubWire, base: &Repo, pull: &EmulatedPull) -> &'static str {
    if !github.knows_mergeability(pull) {
        return "unknown";
    }
    if pull.merge_commit.is_none() {
        return "dirty";
    }
    if pull.draft {
        return "draft";
    }
    if base.blocks(pull) {
        return "blocked";
    }
    let all_well = base
        .statuses_of(&pull.head)
        .latest
        .iter()
        .all(|status| status.state == StatusState::Success);
    if all_well { "clean" } else { "unstable" }
}

/// Returns GitHub's word for the change of a file.
fn file_status(change: FileChangeKind) -> &'static str {
    match change {
        FileChangeKind::Added => "added",
        FileChangeKind::Modified => "modified",
        FileChangeKind::Removed => "removed",
        FileChangeKind::Renamed => "renamed",
        FileChangeKind::ModeChanged => "changed",
    }
}

/// Builds the JSON of a file that a pull request changes.
pub(in crate::github) fn changed_file(
    github: &GitHubWire,
    base: &Repo,
    pull: &EmulatedPull,
    file: &FileChange,
) -> Value {
    let (name, sha) = (&base.name, &pull.head);
    let path = super::contents::encoded(&file.path);
    let mut shown = json!({
        "sha": file.blob,
        "filename": file.path,
        "status": file_status(file.kind),
        "additions": file.additions,
        "deletions": file.deletions,
        "changes": file.additions + file.deletions,
        "blob_url": github.html(&format!("/{name}/blob/{sha}/{path}")),
        "raw_url": github.html(&format!("/{name}/raw/{sha}/{path}")),
        "contents_url": github.api(&format!("/repos/{name}/contents/{path}?ref={sha}")),
    });
    if let Some(patch) = &file.patch {
        shown["patch"] = json!(patch);
    }
    if let Some(previous) = &file.previous {
        shown["previous_filename"] = json!(previous);
    }
    shown
}
