//! Tests that the server finds missing permissions of its credentials when it starts.

use serde_json::{Value, json};

use lockkeeper::forges::{Forge, ForgeError, ForgeFeatures};

use super::app::World;
use super::server::{Reply, ScriptedGitHub};

const NOTHING: ForgeFeatures = ForgeFeatures {
    teams: false,
    merging: false,
};
const TEAMS: ForgeFeatures = ForgeFeatures {
    teams: true,
    merging: false,
};
const MERGING: ForgeFeatures = ForgeFeatures {
    teams: false,
    merging: true,
};

async fn of_token(scopes: Option<&str>, uses: ForgeFeatures) -> Vec<String> {
    let server = ScriptedGitHub::start().await;
    let answer = Reply::json(&json!({"login": "bot"}));
    let answer = match scopes {
        Some(scopes) => answer.header("x-oauth-scopes", scopes),
        None => answer,
    };
    server.on("GET /user", answer);
    server.client().missing(uses).await.unwrap()
}

#[tokio::test]
async fn a_classic_token_tells_its_scopes() {
    assert_eq!(of_token(Some("repo, workflow"), NOTHING).await, [""; 0]);
    assert_eq!(
        of_token(Some("public_repo, admin:org"), TEAMS).await,
        [""; 0]
    );
    assert_eq!(
        of_token(Some("repo:status, gist"), NOTHING).await,
        ["the scope `repo`"]
    );
    assert_eq!(
        of_token(Some(""), TEAMS).await,
        [
            "the scope `repo`",
            "the scope `read:org`, for --gh-team-allowlist"
        ]
    );
    assert_eq!(
        of_token(None, TEAMS).await,
        [""; 0],
        "a fine-grained token does not"
    );
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_an_error_and_one_without_an_account_is_none() {
    let server = ScriptedGitHub::start().await;
    server.on(
        "GET /user",
        Reply::status(401, &json!({"message": "Bad credentials"})),
    );
    let refused = server.client().missing(NOTHING).await.unwrap_err();
    assert!(matches!(refused, ForgeError::Denied { .. }), "{refused:?}");
    let message = json!({"message": "Resource not accessible by integration"});
    server.on("GET /user", Reply::status(403, &message));
    assert_eq!(server.client().missing(TEAMS).await.unwrap(), [""; 0]);
}

async fn of_app(permissions: Value, events: Value, uses: ForgeFeatures) -> Vec<String> {
    let world = World::new().await;
    let facts = json!({"slug": "lockkeeper", "permissions": permissions, "events": events});
    world.server.on("GET /app", Reply::json(&facts));
    world.github(None).missing(uses).await.unwrap()
}

#[tokio::test]
async fn an_app_tells_its_permissions_and_events() {
    let enough = json!({"contents": "read", "issues": "write", "pull_requests": "write", "statuses": "write", "metadata": "read"});
    let events = json!(["issue_comment", "pull_request"]);
    assert_eq!(
        of_app(enough.clone(), events.clone(), NOTHING).await,
        [""; 0]
    );
    assert_eq!(
        of_app(enough.clone(), json!([]), NOTHING).await,
        [""; 0],
        "repositories have webhooks of their own"
    );
    assert_eq!(
        of_app(enough.clone(), events.clone(), MERGING).await,
        [
            "the permission Contents: read and write, to merge pull requests (--automerge) (it has read-only)"
        ]
    );
    assert_eq!(
        of_app(enough, json!(["push", "issue_comment"]), TEAMS).await,
        [
            "the permission Members (of the organization): read-only, for --gh-team-allowlist",
            "the event Pull request"
        ]
    );
    assert_eq!(
        of_app(
            json!({"contents": "write", "issues": "admin", "pull_requests": "read"}),
            events,
            NOTHING
        )
        .await,
        [
            "the permission Pull requests: read and write, to read pull requests and to comment on them (it has read-only)",
            "the permission Commit statuses: read and write, to set statuses"
        ]
    );
}
