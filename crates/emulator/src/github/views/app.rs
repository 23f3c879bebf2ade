//! Builds the JSON of the GitHub App and its installation.

use serde_json::{Value, json};

use crate::github::GitHubWire;
use crate::options::AppOptions;
use crate::world::{User, UserKind};

use super::node_id;
use super::user::{account, account_type};

/// Time of the App's registration, before anything else.
const REGISTERED: &str = "2020-01-01T00:00:00Z";

/// Returns the permissions of the App.
pub(in crate::github) fn permissions() -> Value {
    json!({
        "checks": "write",
        "contents": "write",
        "issues": "write",
        "members": "read",
        "metadata": "read",
        "pull_requests": "write",
        "statuses": "write",
    })
}

fn events() -> Value {
    json!(["issue_comment", "pull_request", "push"])
}

/// Builds the JSON of the App.
pub(in crate::github) fn app(github: &GitHubWire, app: &AppOptions) -> Value {
    let owner = User {
        login: app.slug.clone(),
        kind: UserKind::Organization,
    };
    json!({
        "id": app.id,
        "slug": app.slug,
        "node_id": node_id("App", app.id),
        "owner": account(github, &owner),
        "name": app.slug,
        "description": null,
        "external_url": github.html(""),
        "html_url": github.html(&format!("/apps/{}", app.slug)),
        "created_at": REGISTERED,
        "updated_at": REGISTERED,
        "permissions": permissions(),
        "events": events(),
    })
}

/// Builds the JSON of the App's installation on an account.
pub(in crate::github) fn installation(
    github: &GitHubWire,
    app: &AppOptions,
    owner: &User,
) -> Value {
    let id = app.installation;
    json!({
        "id": id,
        "account": account(github, owner),
        "repository_selection": "all",
        "access_tokens_url": github.api(&format!("/app/installations/{id}/access_tokens")),
        "repositories_url": github.api("/installation/repositories"),
        "html_url": github.html(&format!("/organizations/{}/settings/installations/{id}", owner.login)),
        "app_id": app.id,
        "app_slug": app.slug,
        "target_id": owner.id(),
        "target_type": account_type(owner.kind),
        "permissions": permissions(),
        "events": events(),
        "created_at": REGISTERED,
        "updated_at": REGISTERED,
        "single_file_name": null,
        "has_multiple_single_files": false,
        "single_file_paths": [],
        "suspended_by": null,
        "suspended_at": null,
    })
}
