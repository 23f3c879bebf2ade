//! Tests of the audit log in parts, for the whole server and for accounts that are limited to owners.

use axum::http::StatusCode;
use lockkeeper::claims::{application_add, application_remove};
use lockkeeper::credential::GitAccess;
use lockkeeper::model::{
    ApplicationFields, ApplyScope, Concern, ForgeHosts, LockEventKind, NewLockEvent, OwnerName,
    RepoId, Rights,
};
use lockkeeper::secret::Secret;
use serde_json::Value;

use super::fixture::{Browser, World, project, pull};
use crate::support::db::by;

const ACCOUNTS: &str = "user=kim owners=net allow=all password=kims-password-of-kim\n\
                        user=lee owners=net,dns allow=all password=lees-password-of-lee\n\
                        user=new owners=new allow=all password=news-password-of-new\n";

/// Creates two owners, each with an application, a credential, a lock and a sync, and events of the whole server.
async fn world() -> World {
    let mut world = World::new().await;
    world.web_accounts = ACCOUNTS;
    for name in ["net", "dns"] {
        let owner = OwnerName::new(name).unwrap();
        let _new = world.store.owner_create(&owner, by()).await.unwrap();
        let repo = format!("github.com/acme/{name}");
        let url = format!("https://{repo}");
        let fields = ApplicationFields {
            url: Some(&url),
            branch: Some("main"),
            ..Default::default()
        };
        let spec = fields.spec(&ForgeHosts::public()).unwrap();
        application_add(&world.store, &owner, &spec, (Rights::Whole, by()))
            .await
            .unwrap()
            .or_why()
            .unwrap();
        let access = GitAccess::Token {
            user: None,
            token: Secret::new("ghp_a_token_of_the_team"),
        };
        world
            .credentials()
            .add(&owner, &spec.url, &access, (Rights::Whole, by()))
            .await
            .unwrap();
        world
            .lock(
                &pull(&repo, 7),
                &project(name, "default", None),
                "ada",
                "planned",
            )
            .await;
        let repo: RepoId = repo.parse().unwrap();
        world
            .store
            .mirror_know(&"disk-1".parse().unwrap(), &repo)
            .await
            .unwrap();
        world.store.mirror_request_sync(&repo, by()).await.unwrap();
    }
    let _all = world
        .store
        .apply_lock_set(&ApplyScope::Server, None, by())
        .await
        .unwrap();
    world.seal_log().await;
    world
}

async fn read(browser: &Browser, path: &str) -> Value {
    let answer = browser.get(path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// Returns number, kind and subject of each event.
async fn told(browser: &Browser, path: &str) -> Vec<String> {
    let read = read(browser, path).await;
    let line = |event: &Value| {
        let of = event["repo"]
            .as_str()
            .or(event["owner"].as_str())
            .unwrap_or("everybody");
        format!("{} {} {of}", event["seq"], event["kind"].as_str().unwrap())
    };
    read["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(line)
        .collect()
}

const OF_NET: [&str; 6] = [
    "6 sync_asked github.com/acme/net",
    "5 taken github.com/acme/net",
    "4 registered net",
    "3 registered net",
    "2 claimed net",
    "1 registered net",
];
const OF_DNS: [&str; 6] = [
    "12 sync_asked github.com/acme/dns",
    "11 taken github.com/acme/dns",
    "10 registered dns",
    "9 registered dns",
    "8 claimed dns",
    "7 registered dns",
];

#[tokio::test]
async fn an_account_sees_what_concerns_its_owners_and_what_they_have_claimed() {
    let world = world().await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    let lee = world.browser_of("lee", "lees-password-of-lee").await;
    let ops = world.browser().await;
    assert_eq!(told(&kim, "/api/audit").await, OF_NET);
    assert_eq!(told(&kim, "/api/audit?after=3").await, OF_NET[4..]);
    assert_eq!(told(&lee, "/api/audit").await, [OF_DNS, OF_NET].concat());
    assert_eq!(told(&lee, "/api/audit?owner=dns").await, OF_DNS);
    assert_eq!(told(&ops, "/api/audit?owner=NET").await, OF_NET);
    assert_eq!(
        told(&ops, "/api/audit").await,
        [&["13 apply_locked everybody"], &OF_DNS[..], &OF_NET[..]].concat()
    );
    assert_eq!(
        kim.get("/api/audit?owner=dns").await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        kim.get("/audit?owner=dns").await.status,
        StatusCode::FORBIDDEN
    );
    let new = world.browser_of("new", "news-password-of-new").await;
    assert_eq!(
        told(&new, "/api/audit").await,
        [""; 0],
        "its owner was not added yet"
    );
}

#[tokio::test]
async fn the_events_of_a_repository_are_those_of_whoever_has_claimed_it_now() {
    let world = world().await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    for row in world
        .store
        .credential_list(None, None, None, 9)
        .await
        .unwrap()
    {
        world.store.credential_remove(row.id, by()).await.unwrap();
    }
    let net = world
        .store
        .application_list(None, None, 9)
        .await
        .unwrap()
        .remove(0);
    drop(
        application_remove(&world.store, net.id, by())
            .await
            .unwrap(),
    );
    let waiting = [
        "null unclaimed net",
        "null unregistered net",
        "null unregistered net",
    ];
    assert_eq!(
        told(&kim, "/api/audit").await,
        [&waiting[..], &OF_NET[2..]].concat(),
        "they have no number yet"
    );
    world.seal_log().await;
    let told = told(&kim, "/api/audit").await;
    let gone = [
        "17 unclaimed net",
        "16 unregistered net",
        "14 unregistered net",
    ];
    assert_eq!(
        told,
        [&gone[..], &OF_NET[2..]].concat(),
        "the repository is nobody's"
    );
}

#[tokio::test]
async fn a_denial_is_told_to_the_owner_whom_it_concerns() {
    let world = world().await;
    for of in ["dns", "github.com/acme/dns"] {
        let concern: Concern = of.parse().unwrap();
        let kind = LockEventKind::Denied;
        let event = NewLockEvent {
            kind,
            key: None,
            scope: None,
            pull: None,
            concern: Some(concern),
            cause: by().clone(),
        };
        world.store.lock_event_append(event).await.unwrap();
    }
    world.seal_log().await;
    let lee = world.browser_of("lee", "lees-password-of-lee").await;
    let denied = ["15 denied github.com/acme/dns", "14 denied dns"];
    assert_eq!(told(&lee, "/api/audit").await[..2], denied);
    assert_eq!(
        told(
            &world.browser_of("kim", "kims-password-of-kim").await,
            "/api/audit"
        )
        .await,
        OF_NET
    );
}

#[tokio::test]
async fn the_page_has_a_line_for_each() {
    let world = world().await;
    let text = world
        .browser_of("kim", "kims-password-of-kim")
        .await
        .get("/audit")
        .await
        .text();
    insta::assert_snapshot!("audit of an owner", text);
    let all = world.browser().await.get("/audit").await.text();
    assert!(
        all.contains("applies stopped") && all.contains("the whole server"),
        "{all}"
    );
    assert!(
        !text.contains("applies stopped") && !text.contains("acme/dns"),
        "{text}"
    );
}

#[tokio::test]
async fn the_log_goes_on_where_a_part_ended() {
    let world = world().await;
    let ours = |kind| NewLockEvent {
        kind,
        key: None,
        scope: None,
        pull: None,
        concern: Some("net".parse().unwrap()),
        cause: by().clone(),
    };
    for _ in 0..500 {
        world
            .store
            .lock_event_append(ours(LockEventKind::Denied))
            .await
            .unwrap();
    }
    world.seal_log().await;
    let kim = world.browser_of("kim", "kims-password-of-kim").await;
    let first = read(&kim, "/api/audit").await;
    assert_eq!(
        (first["events"].as_array().unwrap().len(), &first["next"]),
        (500, &"14".into())
    );
    assert_eq!(told(&kim, "/api/audit?after=14").await, OF_NET);
    assert_eq!(read(&kim, "/api/audit?after=14").await["next"], Value::Null);
    let page = kim.get("/audit?owner=net").await.body;
    assert!(
        page.contains("/audit?owner=net&amp;after=414") && page.contains("id=\"event-414\""),
        "{page}"
    );
    let last = kim.get("/audit?owner=net&after=14").await.body;
    assert!(
        last.contains("id=\"event-6\"") && !last.contains("Older") && !last.contains("event-14\""),
        "{last}"
    );
    assert!(
        kim.get("/audit?after=1")
            .await
            .text()
            .contains("There are no older events.")
    );
}
