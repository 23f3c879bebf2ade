//! Builds the JSON of repositories.

use serde_json::{Map, Value, json};

use crate::github::{GitHubWire, time};
use crate::model::MergeMethod;
use crate::world::{Repo, UserKind};

use super::user::{account, email, organization};
use super::{merged, node_id};

/// Links below the repository's own URL: name of the field, and appended path.
const LINKS: [(&str, &str); 37] = [
    ("forks_url", "/forks"),
    ("keys_url", "/keys{/key_id}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("teams_url", "/teams"),
    ("hooks_url", "/hooks"),
    ("issue_events_url", "/issues/events{/number}"),
    ("events_url", "/events"),
    ("assignees_url", "/assignees{/user}"),
    ("branches_url", "/branches{/branch}"),
    ("tags_url", "/tags"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("trees_url", "/git/trees{/sha}"),
    ("statuses_url", "/statuses/{sha}"),
    ("languages_url", "/languages"),
    ("stargazers_url", "/stargazers"),
    ("contributors_url", "/contributors"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("commits_url", "/commits{/sha}"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("comments_url", "/comments{/number}"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("contents_url", "/contents/{+path}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("merges_url", "/merges"),
    ("archive_url", "/{archive_format}{/ref}"),
    ("downloads_url", "/downloads"),
    ("issues_url", "/issues{/number}"),
    ("pulls_url", "/pulls{/number}"),
    ("milestones_url", "/milestones{/number}"),
    (
        "notifications_url",
        "/notifications{?since,all,participating}",
    ),
    ("labels_url", "/labels{/name}"),
    ("releases_url", "/releases{/id}"),
    ("deployments_url", "/deployments"),
    ("url", ""),
];

/// Builds the JSON of a repository as part of pull requests and events.
pub(in crate::github) fn repo(github: &GitHubWire, repo: &Repo) -> Value {
    let name = &repo.name;
    let api = github.api(&format!("/repos/{name}"));
    let links: Map<String, Value> = LINKS
        .iter()
        .map(|(field, rest)| ((*field).to_owned(), json!(format!("{api}{rest}"))))
        .collect();
    let page = github.html(&format!("/{name}"));
    let host = github.base_url.trim_start_matches("http://");
    let facts = json!({
        "id": repo.id,
        "node_id": node_id("Repository", repo.id),
        "name": name.name,
        "full_name": name.to_string(),
        "private": !repo.public,
        "owner": account(github, &repo.owner),
        "html_url": page,
        "description": null,
        "fork": repo.parent.is_some(),
        "created_at": time(repo.created_at),
        "updated_at": time(repo.pushed_at),
        "pushed_at": time(repo.pushed_at),
        "git_url": format!("git://{host}/{name}.git"),
        "ssh_url": format!("git@{host}:{name}.git"),
        "clone_url": format!("{page}.git"),
        "svn_url": page,
        "homepage": null,
        "size": 0,
    });
    merged(merged(Value::Object(links), facts), settings(repo))
}

fn settings(repo: &Repo) -> Value {
    let open = repo.open_pulls().count();
    json!({
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": "HCL",
        "has_issues": true,
        "has_projects": true,
        "has_downloads": true,
        "has_wiki": true,
        "has_pages": false,
        "has_discussions": false,
        "forks_count": 0,
        "mirror_url": null,
        "archived": repo.archived,
        "disabled": false,
        "open_issues_count": open,
        "license": null,
        "allow_forking": true,
        "is_template": false,
        "web_commit_signoff_required": false,
        "topics": [],
        "visibility": if repo.public { "public" } else { "private" },
        "custom_properties": {},
        "forks": 0,
        "open_issues": open,
        "watchers": 0,
        "default_branch": repo.default_branch,
    })
}

/// Builds the answer to `GET /repos/{owner}/{repo}`. A fork has a parent, unless that was deleted.
pub(in crate::github) fn full_repo(
    github: &GitHubWire,
    one: &Repo,
    parent: Option<&Repo>,
) -> Value {
    let mut full = merged(
        repo(github, one),
        json!({
            "permissions": { "admin": false, "maintain": false, "push": true, "triage": true, "pull": true },
            "allow_squash_merge": one.merge_methods.contains(&MergeMethod::Squash),
            "allow_merge_commit": one.merge_methods.contains(&MergeMethod::Merge),
            "allow_rebase_merge": one.merge_methods.contains(&MergeMethod::Rebase),
            "allow_auto_merge": false,
            "allow_update_branch": false,
            "delete_branch_on_merge": false,
            "network_count": 0,
            "subscribers_count": 0,
        }),
    );
    if one.owner.kind == UserKind::Organization {
        full["organization"] = account(github, &one.owner);
    }
    if let Some(parent) = parent {
        full["parent"] = repo(github, parent);
        full["source"] = repo(github, parent);
    }
    full
}

/// Builds the JSON of a repository in a push event. It has times as numbers, and differs in a few more fields.
pub(super) fn pushed_repo(github: &GitHubWire, one: &Repo) -> Value {
    let mut shown = merged(
        repo(github, one),
        json!({
            "url": github.html(&format!("/{}", one.name)),
            "created_at": one.created_at.timestamp(),
            "pushed_at": one.pushed_at.timestamp(),
            "stargazers": 0,
            "master_branch": "main",
        }),
    );
    shown["owner"]["name"] = json!(one.owner.login);
    shown["owner"]["email"] = json!(email(&one.owner.login));
    if organization(github, &one.owner).is_some() {
        shown["organization"] = json!(one.owner.login);
    }
    shown
}
