//! Tests of owners, claims and credentials: the pages, and `/api/credentials`.

use axum::body::Body;
use axum::http::{StatusCode, header};
use lockkeeper::config::access::WebRules;
use lockkeeper::credential::GitAccess;
use lockkeeper::model::{OwnerName, RepoUrl, Rights};
use lockkeeper::secret::Secret;
use serde_json::{Value, json};

use super::fixture::{Answer, Browser, World};
use super::home::settings;
use crate::support::db::by;

const TOKEN: &str = "ghp_a_token_of_the_team";

fn url(name: &str) -> RepoUrl {
    format!("https://github.com/acme/{name}").parse().unwrap()
}

async fn add(world: &World, owner: &str, name: &str) {
    let owner = OwnerName::new(owner).unwrap();
    drop(world.store.owner_create(&owner, by()).await.unwrap());
    let access = GitAccess::Token {
        user: Some("ci-bot".to_owned()),
        token: Secret::new(TOKEN),
    };
    world
        .credentials()
        .add(&owner, &url(name), &access, (Rights::Whole, by()))
        .await
        .unwrap();
}

/// Creates two owners. One has two repositories, and its credential was used.
pub async fn world() -> World {
    use lockkeeper::forges::RepoAccess as _;
    let world = World::new().await;
    add(&world, "net", "infra").await;
    add(
        &world,
        "net",
        "a-repository-with-a-long-name-that-has-to-be-broken",
    )
    .await;
    add(&world, "web", "shop").await;
    world.wait(3600);
    assert!(
        world
            .credentials()
            .for_api(&"github.com/acme/infra".parse().unwrap())
            .await
            .unwrap()
            .is_some()
    );
    world.wait(60);
    world
}

#[tokio::test]
async fn the_pages_show_owners_claims_and_credentials() {
    let browser = world().await.browser().await;
    let bodies = [
        ("owners", browser.get("/owners").await.body),
        ("owner", browser.get("/owners/Net").await.body),
        ("claims", browser.get("/claims").await.body),
    ];
    for (name, body) in bodies {
        assert!(!body.contains(TOKEN), "{name}");
        settings().bind(|| insta::assert_snapshot!(name, body));
    }
}

#[tokio::test]
async fn claims_are_filtered_by_owner() {
    let browser = world().await.browser().await;
    let text = browser.get("/claims?owner=web").await.text();
    assert!(text.contains("shop") && !text.contains("infra"), "{text}");
    assert_eq!(
        browser.get("/claims?owner=nobody").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        browser.get("/owners/nobody").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn pages_of_a_server_without_owners_say_so() {
    let browser = World::new().await.browser().await;
    assert!(
        browser
            .get("/owners")
            .await
            .text()
            .contains("No owners yet.")
    );
    assert!(
        browser
            .get("/claims")
            .await
            .text()
            .contains("No repository is claimed")
    );
}

async fn send(browser: &Browser, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() {
        Body::empty()
    } else {
        Body::from(body.to_string())
    };
    let request = browser
        .request(method, path)
        .header(header::CONTENT_TYPE, "application/json");
    browser.send(request.body(body).unwrap()).await
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test]
async fn a_credential_is_added_changed_and_removed_by_a_script_and_never_shown() {
    let world = world().await;
    let browser = world.browser().await.without_cookie();
    let body = json!({"owner": "web", "url": "git@github.com:acme/labs.git", "kind": "token", "token": TOKEN});
    let added = send(&browser, "POST", "/api/credentials", &body).await;
    assert_eq!(added.status, StatusCode::CREATED, "{}", added.body);
    let (id, fingerprint) = (
        json_of(&added)["id"].clone(),
        json_of(&added)["public"]["fingerprint"].clone(),
    );
    assert_eq!(json_of(&added)["url"], "https://github.com/acme/labs");
    let path = format!("/api/credentials/{}", id.as_str().unwrap());
    let changed = send(
        &browser,
        "POST",
        &path,
        &json!({"kind": "token", "token": "ghp_quite_another_token"}),
    )
    .await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.body);
    assert_ne!(json_of(&changed)["public"]["fingerprint"], fingerprint);
    let list = browser.get("/api/credentials?owner=web").await;
    assert_eq!(json_of(&list)["credentials"].as_array().unwrap().len(), 2);
    let removed = send(&browser, "DELETE", &path, &Value::Null).await;
    assert_eq!(
        (removed.status, &json_of(&removed)["id"]),
        (StatusCode::OK, &id)
    );
    assert_eq!(
        send(&browser, "DELETE", &path, &Value::Null).await.status,
        StatusCode::NOT_FOUND
    );
    for answer in [added, changed, list, removed] {
        assert!(!answer.body.contains("ghp_"), "{}", answer.body);
    }
    assert_eq!(world.store.claim_get(&url("labs")).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_wrong_is_named_without_the_secret_and_nothing_is_kept() {
    let world = world().await;
    let browser = world.browser().await.without_cookie();
    let with = |more: Value| {
        let mut body = json!({"owner": "web", "url": "https://github.com/acme/labs"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    for (body, status, expected) in [
        (
            with(json!({"kind": "token", "token": "ghp_short"})),
            422,
            "shorter than 16",
        ),
        (with(json!({"kind": "token"})), 422, "token"),
        (with(json!({"token": TOKEN})), 422, "kind"),
        (
            with(json!({"kind": "app", "app_id": 7, "private_key": TOKEN})),
            422,
            "installation_id",
        ),
        (
            with(json!({"kind": "token", "token": TOKEN, "app_id": 7})),
            422,
            "app_id",
        ),
        (
            with(json!({"kind": "token", "token": TOKEN, "owner": "nobody"})),
            404,
            "nobody",
        ),
        (
            with(json!({"kind": "token", "token": TOKEN, "url": "https://github.com/acme/infra"})),
            409,
            "net",
        ),
    ] {
        let answer = send(&browser, "POST", "/api/credentials", &body).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.body);
        assert!(
            answer.body.contains(expected) && !answer.body.contains("ghp_"),
            "{expected}: {}",
            answer.body
        );
    }
    assert_eq!(
        world
            .store
            .credential_list(None, None, None, 10)
            .await
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn who_may_not_change_owners_may_not_change_credentials() {
    let mut world = world().await;
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let browser = world.browser().await.without_cookie();
    let body = json!({"owner": "web", "url": "https://github.com/acme/labs", "kind": "token", "token": TOKEN});
    assert_eq!(
        send(&browser, "POST", "/api/credentials", &body)
            .await
            .status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(world.store.claim_get(&url("labs")).await.unwrap(), None);
}
