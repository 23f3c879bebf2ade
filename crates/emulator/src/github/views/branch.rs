//! Builds the JSON of branches and their protection.

use serde_json::{Value, json};

use crate::git::CommitInfo;
use crate::github::GitHubWire;
use crate::model::BranchName;
use crate::world::{Protection, Repo};

use super::node_id;

/// Builds the JSON of a single branch. Every caller may see the required checks of its protection.
pub(in crate::github) fn branch(
    github: &GitHubWire,
    repo: &Repo,
    name: &BranchName,
    tip: &CommitInfo,
) -> Value {
    let own = github.api(&format!("/repos/{}/branches/{name}", repo.name));
    let rules = repo.protections.get(name);
    let checks = rules.map(|rules| rules.checks.clone()).unwrap_or_default();
    json!({
        "name": name,
        "commit": commit(github, repo, tip),
        "_links": { "self": own, "html": github.html(&format!("/{}/tree/{name}", repo.name)) },
        "protected": rules.is_some(),
        "protection": {
            "enabled": rules.is_some(),
            "required_status_checks": {
                "enforcement_level": if checks.is_empty() { "off" } else { "non_admins" },
                "contexts": checks,
                "checks": app_less(&checks),
            },
        },
        "protection_url": format!("{own}/protection"),
    })
}

fn app_less(checks: &[String]) -> Vec<Value> {
    checks
        .iter()
        .map(|context| json!({ "context": context, "app_id": null }))
        .collect()
}

fn commit(github: &GitHubWire, repo: &Repo, commit: &CommitInfo) -> Value {
    let own = github.api(&format!("/repos/{}/commits/{}", repo.name, commit.sha));
    let git = |what: &str, sha: &str| github.api(&format!("/repos/{}/git/{what}/{sha}", repo.name));
    let person = |(name, email): &(String, String)| json!({ "name": name, "email": email, "date": commit.date });
    json!({
        "sha": commit.sha,
        "node_id": node_id("Commit", 1),
        "url": own,
        "html_url": github.html(&format!("/{}/commit/{}", repo.name, commit.sha)),
        "comments_url": format!("{own}/comments"),
        "commit": {
            "url": git("commits", &commit.sha),
            "author": person(&commit.author),
            "committer": person(&commit.committer),
            "message": commit.message,
            "tree": { "sha": commit.tree, "url": git("trees", &commit.tree) },
            "comment_count": 0,
        },
        "author": null,
        "committer": null,
        "parents": [],
    })
}

/// Builds the JSON of a branch's protection.
pub(in crate::github) fn protection(
    github: &GitHubWire,
    repo: &Repo,
    name: &BranchName,
    rules: &Protection,
) -> Value {
    let own = github.api(&format!("/repos/{}/branches/{name}/protection", repo.name));
    let on = |enabled: bool| json!({ "enabled": enabled });
    let mut all = json!({
        "url": own,
        "enforce_admins": { "url": format!("{own}/enforce_admins"), "enabled": false },
        "required_linear_history": on(false),
        "allow_force_pushes": on(false),
        "allow_deletions": on(false),
        "block_creations": on(false),
        "required_conversation_resolution": on(rules.conversations),
        "required_signatures": { "url": format!("{own}/required_signatures"), "enabled": false },
        "lock_branch": on(false),
        "allow_fork_syncing": on(false),
    });
    if !rules.checks.is_empty() {
        all["required_status_checks"] = json!({
            "url": format!("{own}/required_status_checks"),
            "strict": false,
            "contexts": rules.checks,
            "contexts_url": format!("{own}/required_status_checks/contexts"),
            "checks": app_less(&rules.checks),
        });
    }
    if let Some(count) = rules.approvals {
        all["required_pull_request_reviews"] = json!({
            "url": format!("{own}/required_pull_request_reviews"),
            "dismiss_stale_reviews": false,
            "require_code_owner_reviews": false,
            "require_last_push_approval": false,
            "required_approving_review_count": count,
        });
    }
    all
}
