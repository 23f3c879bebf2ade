//! Tests of the pages of repositories and their mirrors, and of their API.

use axum::body::Body;
use axum::http::{StatusCode, header};
use lockkeeper::config::access::WebRules;
use lockkeeper::model::{
    AttemptLease, DataDirId, FailureKind, Jitter, MirrorEvent, RepoId, Sha256Digest, SyncFacts,
    SyncFailure, SyncState,
};
use lockkeeper::store::{MirrorChange, MirrorSearch};
use serde_json::{Value, json};

use super::fixture::{Browser, World, form};

pub const INFRA: &str = "github.com/acme/a-rather-long-repository-name-for-infrastructure";
const DISKS: [&str; 2] = [
    "0198c5f2-7a3e-7d2a-9c1e-3f6b8a7d4e21",
    "0198c5f2-9b11-7aa0-8f00-5b1c2d3e4f50",
];

async fn change(world: &World, disk: &str, repo: &str, event: &MirrorEvent) {
    let (data_dir_id, repo): (DataDirId, RepoId) = (disk.parse().unwrap(), repo.parse().unwrap());
    let change = world
        .store
        .mirror_change(&data_dir_id, &repo, event)
        .await
        .unwrap();
    assert!(
        matches!(change, MirrorChange::Changed(_)),
        "{} {change:?}",
        event.name()
    );
}

async fn start(world: &World, disk: &str, repo: &str) {
    let lease = AttemptLease {
        key: format!("repository_sync:{disk}:{repo}"),
        holder: "keeper-1/7".to_owned(),
    };
    change(
        world,
        disk,
        repo,
        &MirrorEvent::Started {
            at: world.clock_now(),
            lease,
        },
    )
    .await;
}

async fn sync(world: &World, disk: &str, repo: &str) {
    start(world, disk, repo).await;
    let checksum = Sha256Digest::of(b"refs");
    let facts = SyncFacts {
        checksum,
        refs: 412,
        refused: Vec::new(),
        bytes: Some(5 << 30),
        connectivity: true,
        maintained: true,
    };
    let (at, holder, jitter) = (world.clock_now(), "keeper-1/7".to_owned(), Jitter::of("x"));
    change(
        world,
        disk,
        repo,
        &MirrorEvent::Succeeded {
            at,
            holder,
            facts,
            jitter,
        },
    )
    .await;
}

async fn fail(world: &World, disk: &str, repo: &str, kind: FailureKind, message: &str) {
    start(world, disk, repo).await;
    let failure = SyncFailure {
        kind,
        message: message.to_owned(),
    };
    let (at, holder, jitter) = (world.clock_now(), "keeper-1/7".to_owned(), Jitter::of("x"));
    change(
        world,
        disk,
        repo,
        &MirrorEvent::Failed {
            at,
            holder,
            failure,
            jitter,
        },
    )
    .await;
}

/// Creates mirrors on two disks. One repository is refused on one disk and in sync on the other. Others are new,
/// different or in progress.
pub async fn world() -> World {
    let world = World::new().await;
    for disk in DISKS {
        for repo in [INFRA, "github.com/acme/labs", "github.com/acme/modules"] {
            assert!(
                world
                    .store
                    .mirror_know(&disk.parse().unwrap(), &repo.parse().unwrap())
                    .await
                    .unwrap()
            );
        }
    }
    sync(&world, DISKS[0], INFRA).await;
    sync(&world, DISKS[1], INFRA).await;
    sync(&world, DISKS[0], "github.com/acme/labs").await;
    world.wait(3 * 3600);
    change(
        &world,
        DISKS[0],
        INFRA,
        &MirrorEvent::Updated {
            at: world.clock_now(),
        },
    )
    .await;
    fail(
        &world,
        DISKS[0],
        INFRA,
        FailureKind::Authentication,
        "the forge answered 401 <b>Bad credentials</b>",
    )
    .await;
    change(
        &world,
        DISKS[0],
        "github.com/acme/labs",
        &MirrorEvent::Updated {
            at: world.clock_now(),
        },
    )
    .await;
    let differs = "the mirror has 411 references and the forge advertises 412";
    fail(
        &world,
        DISKS[0],
        "github.com/acme/labs",
        FailureKind::Verification,
        differs,
    )
    .await;
    start(&world, DISKS[1], "github.com/acme/modules").await;
    world.wait(120);
    world
}

#[tokio::test]
async fn the_list_has_every_mirror_of_every_disk_and_what_helps_first() {
    let text = world().await.browser().await.get("/repos").await.text();
    insta::assert_snapshot!("repositories", text);
}

#[tokio::test]
async fn a_server_without_mirrors_says_when_there_will_be_one() {
    let text = World::new()
        .await
        .browser()
        .await
        .get("/repos")
        .await
        .text();
    assert!(text.contains("Mirrors\n0\nNo mirrors yet."), "{text}");
}

#[tokio::test]
async fn the_list_is_searched_by_name_and_state() {
    let browser = world().await.browser().await;
    let found = async |query: &str| {
        let text = browser.get(&format!("/repos?{query}")).await.text();
        text.split_once("Mirrors\n")
            .unwrap()
            .1
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(found("q=LABS").await, "2 of 6");
    assert_eq!(found("state=failed").await, "2 of 6");
    assert_eq!(found("q=infra&state=failed").await, "1 of 6");
    assert_eq!(found("state=other").await, "6");
    let page = browser.get("/repos?q=%3Cscript%3E&state=synced").await;
    assert!(
        page.text().contains("None of the 6 mirrors match."),
        "{}",
        page.text()
    );
    assert!(
        page.body.contains("value=\"&lt;script&gt;\"")
            && page.body.contains("value=\"synced\" selected")
    );
}

#[tokio::test]
async fn the_page_of_a_repository_tells_all_that_is_known_of_its_mirrors() {
    let browser = world().await.browser().await;
    insta::assert_snapshot!(
        "repository",
        browser.get(&format!("/repos/{INFRA}")).await.text()
    );
    let text = browser.get("/repos/github.com/acme/labs").await.text();
    assert!(
        text.contains("Differences from the forge\nthe mirror has 411 references"),
        "{text}"
    );
    let text = browser.get("/repos/github.com/acme/modules").await.text();
    assert!(
        text.contains("in progress since\n2 min ago") && text.contains("Lease held by\nkeeper-1/7"),
        "{text}"
    );
    for unknown in ["github.com/acme/x", "labs", "github.com/../x", "%00"] {
        assert_eq!(
            browser.get(&format!("/repos/{unknown}")).await.status,
            StatusCode::NOT_FOUND,
            "{unknown}"
        );
    }
}

/// Returns kind, actor and reason of the last event.
async fn last_event(world: &World) -> (String, String, String) {
    let event = world
        .store
        .lock_event_list(1)
        .await
        .unwrap()
        .remove(0)
        .event;
    (
        event.kind.to_string(),
        event.cause.actor.login,
        event.cause.reason,
    )
}

#[tokio::test]
async fn a_sync_is_asked_for_on_every_disk_with_the_reason() {
    let world = world().await;
    let browser = world.browser().await;
    let path = format!("/repos/{INFRA}");
    assert_eq!(
        browser.post(&path, "reason=+").await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let answer = browser.post(&path, "reason=access+was+given").await;
    assert_eq!(answer.header("location"), format!("{path}?notice=asked"));
    let text = browser.get(answer.header("location")).await.text();
    assert!(text.contains("Sync requested."), "{text}");
    assert_eq!(
        text.matches("by ops: access was given").count(),
        2,
        "{text}"
    );
    assert_eq!(
        last_event(&world).await,
        (
            "sync_asked".to_owned(),
            "ops".to_owned(),
            format!("{INFRA}: access was given")
        )
    );
    let search = MirrorSearch {
        state: Some(SyncState::Pending),
        text: "rather-long",
        limit: 9,
        ..Default::default()
    };
    let rows = world.store.mirror_search(search).await.unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter().all(|row| row.state.is_due(world.clock_now())),
        "nobody waits for a backoff"
    );
    assert_eq!(
        browser
            .post("/repos/github.com/acme/x", "reason=y")
            .await
            .status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn who_may_not_ask_is_not_offered_it() {
    let mut world = world().await;
    let token = world.browser().await.token().await;
    world.web_rules = WebRules::new(&["discard"]).unwrap();
    let (browser, path) = (world.browser().await, format!("/repos/{INFRA}"));
    let page = browser.get(&path).await;
    assert!(
        page.text().contains("These pages cannot request a sync")
            && !page.body.contains("<form method=\"post\"")
    );
    let request = browser
        .request("POST", &path)
        .header("sec-fetch-site", "same-origin");
    let answer = browser
        .send(form(request, &format!("token={token}&reason=x")))
        .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(
        answer
            .text()
            .contains("may not request syncs of repositories"),
        "{}",
        answer.text()
    );
    let found = world
        .store
        .mirror_search(MirrorSearch {
            limit: 9,
            ..MirrorSearch::default()
        })
        .await
        .unwrap();
    assert!(found.rows.iter().all(|row| row.state.asked.is_none()));
}

async fn ask(browser: &Browser, path: &str, body: &str) -> (StatusCode, Value) {
    let request = browser
        .request("POST", path)
        .header(header::CONTENT_TYPE, "application/json");
    let answer = browser
        .send(request.body(Body::from(body.to_owned())).unwrap())
        .await;
    (
        answer.status,
        serde_json::from_str(&answer.body).unwrap_or(Value::Null),
    )
}

#[tokio::test]
async fn programs_see_mirrors_and_ask_for_a_sync() {
    let world = world().await;
    let browser = world.browser().await.without_cookie();
    let read = async |path: &str| -> Value {
        serde_json::from_str(&browser.get(path).await.body).unwrap()
    };
    let list = read("/api/repos?state=failed").await;
    assert_eq!(
        (&list["found"], list["mirrors"].as_array().unwrap().len()),
        (&json!(2), 2)
    );
    let one = read(&format!("/api/repos/{INFRA}")).await;
    insta::assert_json_snapshot!("a mirror for programs", one["mirrors"][0]);
    assert_eq!(one["mirrors"][1]["state"], json!("synced"));
    assert_eq!(
        browser.get("/api/repos/github.com/acme/x").await.status,
        StatusCode::NOT_FOUND
    );
    let path = format!("/api/repos/{INFRA}/sync");
    let (status, told) = ask(&browser, &path, r#"{"reason":"access was given"}"#).await;
    assert_eq!(
        (status, told),
        (StatusCode::ACCEPTED, json!({ "repo": INFRA, "mirrors": 2 }))
    );
    let asked = read(&format!("/api/repos/{INFRA}")).await["mirrors"][0]["asked"].take();
    assert_eq!(
        (&asked["by"], &asked["reason"]),
        (&json!("ops"), &json!("access was given"))
    );
    assert_eq!(last_event(&world).await.0, "sync_asked");
    for (path, body, status) in [
        (path.as_str(), "", StatusCode::UNPROCESSABLE_ENTITY),
        (
            path.as_str(),
            r#"{"why":"x"}"#,
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            "/api/repos/github.com/acme/x/sync",
            r#"{"reason":"x"}"#,
            StatusCode::NOT_FOUND,
        ),
        (
            "/api/repos/github.com/acme/labs",
            r#"{"reason":"x"}"#,
            StatusCode::NOT_FOUND,
        ),
    ] {
        assert_eq!(ask(&browser, path, body).await.0, status, "{path} {body}");
    }
}
