//! Deployments tell each other at once about new records: what a push brings, what it cannot do, and what happens when nobody
//! answers.

use std::net::TcpListener;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use lockkeeper::features::registry::{PeerState, PeerTerms, TakenDown, VersionOrigin, Visibility};
use lockkeeper_registry::records::{LogId, Record, TakedownKind};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::versions::VersionKey;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::deployments::{Deployment, PATIENCE, name};
use super::peers::{
    GO_MODULE, MODULE, NET, NET_AT, OTHER_MODULE, VPC, VPC_LIST, assert_equal, three, two, vpc_path,
};
use super::world::{Answer, by_ops, notice};
use crate::support::db::{TestDb, store_test};

const ONE: &str = "one.example.com";
const TWO: &str = "two.example.com";
const THREE: &str = "three.example.com";
const PUSH: &str = "/registry/peer/v1/versions";

/// A version that is fetched from a repository.
const FETCHED: &str = "go github.com/acme/net v1.0.0";
const LATER_FETCHED: &str = "go github.com/acme/net v1.1.0";
const FETCHED_FILES: [(&str, &[u8]); 2] = [
    ("go.mod", b"module github.com/acme/net\n"),
    ("net.go", b"package net\n"),
];
/// Flags of a deployment that would fetch it.
const FETCHES: [(&str, &str); 2] = [
    ("registry-vcs-allowlist", "github.com"),
    ("registry-on-miss", "go *=wait"),
];

/// Describes the record of a deployment with an ID, as a deployment tells others of it.
async fn push_of(at: &Deployment, id: i64) -> Value {
    let records = at.store().registry_records(LogId::new(id).unwrap(), 1);
    let (_, text) = records.await.unwrap().remove(0);
    let record = Record::parse(text.as_bytes()).unwrap();
    let key = record.key();
    json!({"name": key.name().to_string(), "version": key.version(), "record": text})
}

/// Sends a push with the token that was exchanged.
async fn send(from: &Deployment, to: &Deployment, push: &Value) -> Answer {
    send_with(to, &from.token_for(to).await, push).await
}

async fn send_with(to: &Deployment, token: &str, push: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let body = Body::from(push.to_string());
    to.server.send(Method::POST, PUSH, &headers, body).await
}

async fn state_of(at: &Deployment, key: &str) -> Option<VersionState> {
    let version = at.version(key).await;
    version.map(|version| version.known.state())
}

async fn a_publication_is_at_the_peer_without_a_pull(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let mut wake_ups = one.server.wake_ups();
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(one.push().await, 2);
    let listed = two.server.get(VPC_LIST, &two.token).await;
    assert!(listed.text().contains("1.2.3"), "{}", listed.text());
    let list = two.server.get(&format!("{NET_AT}/list"), &two.token).await;
    assert_eq!(list.text(), "v1.0.0\n");
    let ours = one.server.get(&vpc_path(&one).await, "").await;
    let theirs = two.server.get(&vpc_path(&two).await, "").await;
    assert_eq!(theirs.status, StatusCode::OK, "{}", theirs.text());
    assert_eq!(ours.body, theirs.body);
    let from = LogId::FIRST;
    let records = one.store().registry_records(from, 10).await.unwrap();
    assert_eq!(
        two.store().registry_records(from, 10).await.unwrap(),
        records
    );

    // A push moves no place in the log. The page comes later, and says nothing new.
    assert_eq!(two.peer(ONE).await.walk.last_id(), 0);
    assert_eq!(two.pull().await, 0);
    assert_eq!(two.peer(ONE).await.walk.last_id(), 2);
    let again = send(&one, &two, &push_of(&one, 1).await).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.text());
    assert_eq!(one.push().await, 0);
    // Nothing goes back to its maker.
    assert_eq!((two.push().await, one.pull().await), (0, 0));

    // Deprecations and takedowns are records like others.
    let (_, token) = one.admin.token(&["read:*", "deprecate:*"]).await;
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let answer = one.server.send(
        Method::POST,
        "/api/registry/module/acme/vpc/aws/1.2.3/deprecate",
        &headers,
        Body::from(json!({"reason": "old"}).to_string()),
    );
    let answer = answer.await;
    assert!(answer.status.is_success(), "{}", answer.text());
    let heard = timeout(PATIENCE, wake_ups.wait()).await;
    heard.expect("the server wakes those who tell peers");
    one.admin
        .take_down(NET, TakedownKind::Security, "has a key")
        .await;
    assert_eq!(one.push().await, 2);
    assert_eq!(state_of(&two, VPC).await, Some(VersionState::Deprecated));
    assert_eq!(state_of(&two, NET).await, Some(VersionState::Deleted));
    let late = send(&one, &two, &push_of(&one, 2).await).await;
    assert_eq!(late.status, StatusCode::GONE, "{}", late.text());
    assert_eq!(two.pull().await, 0);

    // The limits hold for pushes as well.
    let most = PeerTerms {
        max_versions: Some(2),
        ..PeerTerms::default()
    };
    two.change(ONE, most).await;
    let more = "module acme/vpc/aws 2.0.0";
    one.admin.publish(more, &MODULE).await;
    assert_eq!(one.push().await, 1);
    assert_eq!(two.version(more).await, None);
    assert_eq!(two.pull().await, 0);
    let skipped = two.peer(ONE).await.skipped_last.unwrap();
    assert!(skipped.contains("--max-versions"), "{skipped}");
    assert_eq!((one.fault().await, two.fault().await), (None, None));
}

async fn a_push_that_failed_is_repeated_and_given_up_in_the_end(db: &TestDb) {
    let flags = [("registry-push-attempts", "3")];
    let one = Deployment::open(db.backend, ONE, &flags).await;
    let two = Deployment::open(db.backend, TWO, &[]).await;
    for namespace in ["module acme", "go example.com/net"] {
        one.admin.namespace(namespace, Visibility::Public).await;
    }
    two.join(&one, "*", "*").await;
    one.admin.publish(VPC, &MODULE).await;
    two.reachable(false);
    assert_eq!(one.push().await, 0);
    let pushes = one.peer(TWO).await.pushes;
    assert_eq!((pushes.attempts, pushes.last_id), (1, 0));
    let why = pushes.error.unwrap();
    assert!(why.contains("does not answer"), "{why}");

    // The pause is not over yet.
    two.reachable(true);
    assert_eq!(one.push().await, 0);
    one.db.clock.advance(Duration::from_secs(2));
    assert_eq!(one.push().await, 1);
    assert!(two.version(VPC).await.is_some());
    let pushes = one.peer(TWO).await.pushes;
    assert_eq!((pushes.attempts, pushes.error), (0, None));

    two.reachable(false);
    one.admin.publish(NET, &GO_MODULE).await;
    for attempt in 1..=3 {
        assert_eq!(one.peer(TWO).await.pushes.given_up, 0, "{attempt}");
        assert_eq!(one.push().await, 0);
        one.db.clock.advance(Duration::from_mins(6));
    }
    let pushes = one.peer(TWO).await.pushes;
    assert_eq!((pushes.given_up, pushes.last_id), (1, 2));
    let metrics = one.server.get("/metrics", "").await;
    let given_up = "lockkeeper_registry_pushes_given_up 1\n";
    assert!(metrics.text().contains(given_up), "{}", metrics.text());
    two.reachable(true);
    assert_eq!(one.push().await, 0);
    assert!(two.version(NET).await.is_none());
    assert_eq!(two.pull().await, 1);
    assert!(two.version(NET).await.is_some());

    // A peer that has read the log needs not be told of it.
    one.admin.deprecate(NET, "old", None).await;
    assert_eq!(two.pull().await, 1);
    assert_eq!(two.pull().await, 0);
    assert!(one.store().registry_pushes_due().await.unwrap().is_empty());
    assert_eq!(one.peer(TWO).await.pushes.last_id, 3);
}

async fn a_push_that_cannot_be_one_of_the_peer_is_refused(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    let push = push_of(&one, 1).await;
    let with = |field: &str, value: &str| {
        let mut push = push.clone();
        push[field] = value.into();
        push
    };
    // Somebody listens at the other address, and hears nothing.
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let address = format!("http://{}", elsewhere.local_addr().unwrap());
    let impostor = Deployment::open(db.backend, ONE, &[]).await;
    let admin = &impostor.admin;
    admin.namespace("module acme", Visibility::Public).await;
    admin.publish(VPC, &OTHER_MODULE).await;
    let forged = push_of(&impostor, 1).await;
    for (bad, why) in [
        (with("address", &address), "address"),
        (with("address", "https://two.example.com"), "address"),
        (with("address", "/etc/passwd"), "address"),
        (with("record", "add nothing\n"), "cannot be read"),
        (with("version", "1.2.4"), "not about this version"),
        (with("name", "module acme/other/aws"), "not about"),
        (json!({"name": "module acme/vpc/aws"}), "Send JSON"),
        (with("record", &"x".repeat(200_000)), "Send JSON"),
        (forged, "wrong signature of one.example.com"),
    ] {
        let answer = send(&one, &two, &bad).await;
        assert_eq!(answer.status.as_u16(), 422, "{bad}");
        assert!(answer.text().contains(why), "{why}: {}", answer.text());
    }
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (0, 0));
    elsewhere.accept().unwrap_err();
    // Nobody knows who has made that up, so the peer goes on.
    assert_eq!(two.state(ONE).await, PeerState::Joined);
    assert_eq!(two.store().registry_log_size().await.unwrap(), 0);

    for token in ["", two.token.as_str(), "lkp_wrong"] {
        assert_eq!(send_with(&two, token, &push).await.status.as_u16(), 401);
    }
    let known = two.peer(ONE).await.url.to_string();
    let answer = send(&one, &two, &with("address", &known)).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
    assert!(two.turn(ONE, PeerState::Joined, PeerState::Suspended).await);
    assert_eq!(send(&one, &two, &push).await.status.as_u16(), 403);
    assert!(
        two.turn(ONE, PeerState::Suspended, PeerState::Removed)
            .await
    );
    assert_eq!(send(&one, &two, &push).await.status.as_u16(), 401);
}

/// R6: a push is no way around the rules for pages.
async fn what_does_not_count_in_a_page_does_not_count_in_a_push(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let flags = [("registry-takedown-brake", "2")];
    let two = Deployment::open(db.backend, TWO, &flags).await;
    for deployment in [&one, &two] {
        let admin = &deployment.admin;
        admin.namespace("module acme", Visibility::Public).await;
    }
    let admin = &one.admin;
    admin.namespace("go example.com", Visibility::Public).await;
    two.join(&one, "*\nmodule acme/*", "*").await;
    two.admin.publish(VPC, &OTHER_MODULE).await;
    let ours = two.version(VPC).await;
    one.admin.publish(VPC, &MODULE).await;
    // The name belongs to an owner there, which the sender does not learn.
    one.admin
        .publish("module acme/vpc/aws 1.2.4", &MODULE)
        .await;
    for id in [1, 2] {
        let answer = send(&one, &two, &push_of(&one, id).await).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        assert_eq!(answer.text(), "The record was received.\n");
    }
    assert_eq!(two.version(VPC).await, ours);
    assert_eq!(two.version("module acme/vpc/aws 1.2.4").await, None);
    assert_eq!(two.store().registry_conflict_count().await.unwrap(), 0);
    assert_eq!(two.peer(ONE).await.skipped, 0, "pages count that");

    // A pattern names it: two contents are a conflict, and each side learns of it.
    two.accepts(ONE, "*\nmodule acme/*").await;
    let answer = send(&one, &two, &push_of(&one, 1).await).await;
    assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text());
    assert_eq!(two.push().await, 1);
    for (at, other) in [(&one, TWO), (&two, ONE)] {
        let conflicts = at.store().registry_conflicts(10).await.unwrap();
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].peer, name(other));
    }
    assert_eq!(two.version(VPC).await, ours);
    assert_eq!(one.push().await, 2);
    two.pull().await;
    assert_eq!(two.store().registry_conflict_count().await.unwrap(), 1);
    one.admin
        .take_down(VPC, TakedownKind::Mistake, "two contents")
        .await;
    assert_eq!(one.push().await, 1);
    assert_eq!(two.store().registry_conflict_count().await.unwrap(), 0);
    assert_eq!(state_of(&two, VPC).await, Some(VersionState::Deleted));

    // The brake holds before the first takedown that is one too many, and from then on nothing counts.
    let taken = ["module acme/vpc/aws 1.2.4", "module acme/vpc/aws 1.2.5"];
    one.admin.publish(taken[1], &MODULE).await;
    one.push().await;
    for key in taken {
        one.admin
            .take_down(key, TakedownKind::Mistake, "wrong")
            .await;
    }
    one.admin.publish(NET, &GO_MODULE).await;
    one.push().await;
    assert_eq!(state_of(&two, taken[0]).await, Some(VersionState::Deleted));
    assert_eq!(state_of(&two, taken[1]).await, Some(VersionState::Added));
    assert_eq!(state_of(&two, NET).await, None);
    assert_eq!(two.state(ONE).await, PeerState::Braked);
    assert_eq!((one.fault().await, two.fault().await), (None, None));
}

/// No brake counts takedowns of versions that were never here. A deployment that is trusted no more has closed no
/// public module with them: `go` stops at 403, and after 404 it goes on to the repository.
async fn a_takedown_of_what_was_never_here_ends_with_the_trust_in_its_maker(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let (next, fetched) = ("go example.com/net v1.1.0", "go example.com/net v1.2.0");
    for key in [NET, next] {
        one.admin.publish(key, &GO_MODULE).await;
    }
    for key in [NET, next] {
        one.admin
            .take_down(key, TakedownKind::Security, "so it says")
            .await;
    }
    // The takedowns come alone, and their versions afterwards.
    for takedown in [3, 4] {
        send(&one, &two, &push_of(&one, takedown).await).await;
    }
    two.pull().await;
    for key in [NET, next] {
        assert_eq!(state_of(&two, key).await, Some(VersionState::Deleted));
        assert_eq!(two.version(key).await.unwrap().origin, None, "{key}");
    }
    assert_eq!(two.peer(ONE).await.takedowns, 0);
    let of_versions = [
        format!("{NET_AT}/v1.0.0.info"),
        format!("{NET_AT}/v1.0.0.zip"),
        format!("{NET_AT}/v1.1.0.info"),
        format!("/registry/go/sumdb/{TWO}/lookup/example.com/net@v1.1.0"),
    ];
    let (latest, list) = (
        "/registry/go/example.com/net/@latest",
        format!("{NET_AT}/list"),
    );
    for path in of_versions.iter().map(String::as_str).chain([latest]) {
        assert_eq!(two.server.status(path, &two.token).await, 403, "{path}");
    }

    two.accepts(ONE, "module other/*").await;
    let of_name = [latest, list.as_str()];
    for path in of_versions.iter().map(String::as_str).chain(of_name) {
        assert_eq!(two.server.status(path, &two.token).await, 404, "{path}");
    }
    // Nor do they keep anybody from other versions, which come from the repository.
    two.fetch(fetched, &GO_MODULE).await;
    let info = format!("{NET_AT}/v1.2.0.info");
    for path in [info.as_str(), latest] {
        let answer = two.server.get(path, &two.token).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        assert!(answer.text().contains("v1.2.0"), "{}", answer.text());
    }
    let listed = two.server.get(&list, &two.token).await;
    assert_eq!(listed.text(), "v1.2.0\n");
    for path in &of_versions {
        assert_eq!(two.server.status(path, &two.token).await, 404, "{path}");
    }

    // Somebody is accepted for the name again.
    two.accepts(ONE, "*").await;
    for path in &of_versions {
        assert_eq!(two.server.status(path, &two.token).await, 403, "{path}");
    }
    assert_eq!(two.server.status(&info, &two.token).await, 200);

    // To suspend it is no reason to fetch what it has taken down.
    assert!(two.turn(ONE, PeerState::Joined, PeerState::Suspended).await);
    for path in &of_versions {
        assert_eq!(two.server.status(path, &two.token).await, 403, "{path}");
    }
    assert!(
        two.turn(ONE, PeerState::Suspended, PeerState::Removed)
            .await
    );
    for path in &of_versions {
        assert_eq!(two.server.status(path, &two.token).await, 404, "{path}");
    }
    assert_eq!((one.fault().await, two.fault().await), (None, None));
}

/// An administrator who takes the same version down means it, also when the other deployment is no longer trusted.
async fn a_takedown_here_of_what_was_never_here_stays(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let next = "go example.com/net v1.1.0";
    for key in [NET, next] {
        one.admin.publish(key, &GO_MODULE).await;
        one.admin
            .take_down(key, TakedownKind::Security, "so it says")
            .await;
    }
    let third = "go example.com/net v1.3.0";
    one.admin.publish(third, &GO_MODULE).await;
    one.admin.deprecate(third, "old", None).await;
    // The versions themselves do not come.
    for notice in [2, 4, 6] {
        send(&one, &two, &push_of(&one, notice).await).await;
    }
    let (ours, theirs) = (
        format!("{NET_AT}/v1.0.0.info"),
        format!("{NET_AT}/v1.1.0.info"),
    );
    for path in [&ours, &theirs] {
        assert_eq!(two.server.status(path, &two.token).await, 403, "{path}");
    }
    let (key, reason, by) = (NET.parse().unwrap(), notice("a backdoor", None), by_ops());
    let taken = two
        .admin
        .registry
        .take_down(&key, TakedownKind::Security, reason, &by);
    assert!(matches!(taken.await.unwrap(), TakenDown::Confirmed(_)));
    assert_eq!(two.version(NET).await.unwrap().publisher(), None);
    two.admin
        .take_down(third, TakedownKind::Security, "a backdoor")
        .await;

    two.accepts(ONE, "module other/*").await;
    let deprecated = format!("{NET_AT}/v1.3.0.info");
    for path in [&ours, &deprecated] {
        assert_eq!(two.server.status(path, &two.token).await, 403, "{path}");
    }
    assert_eq!(two.server.status(&theirs, &two.token).await, 404);
    // Other versions of the module come from the repository.
    two.fetch("go example.com/net v1.2.0", &GO_MODULE).await;
    let fetched = format!("{NET_AT}/v1.2.0.info");
    assert_eq!(two.server.status(&fetched, &two.token).await, 200);
    assert_eq!((one.fault().await, two.fault().await), (None, None));
}

async fn a_fetched_version_comes_to_those_who_would_fetch_it(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &FETCHES).await;
    let three = Deployment::open(db.backend, THREE, &FETCHES).await;
    two.join(&one, "*", "go github.com/...").await;
    // A pattern for all names does not mean what came from repositories.
    three.join(&one, "*", "*").await;
    one.fetch(FETCHED, &FETCHED_FILES).await;
    assert_eq!(one.push().await, 1);
    let version = two.version(FETCHED).await.unwrap();
    assert_eq!(version.origin, Some(VersionOrigin::PeerVersionControl));
    let limits = two.peer(ONE).await;
    assert_eq!((limits.versions, limits.bytes), (0, 0));
    let cache = two.store().registry_cache().await.unwrap();
    assert_eq!((cache.versions, limits.fetched_versions), (1, 1));
    assert_eq!(cache.bytes, limits.fetched_bytes);
    assert!(cache.bytes > 0);
    assert_eq!((two.pull().await, three.pull().await), (0, 0));
    assert_eq!(three.version(FETCHED).await, None);
    assert_eq!(three.peer(ONE).await.skipped_last, None);

    // It is served like at the deployment that has fetched it.
    for file in ["v1.0.0.info", "v1.0.0.mod", "v1.0.0.zip"] {
        let path = format!("/registry/go/github.com/acme/net/@v/{file}");
        let ours = one.server.get(&path, &one.token).await;
        let theirs = two.server.get(&path, &two.token).await;
        assert_eq!(ours.status, StatusCode::OK, "{file}");
        assert_eq!(ours.body, theirs.body, "{file}: {}", theirs.status);
    }
    one.admin
        .take_down(FETCHED, TakedownKind::Legal, "not ours")
        .await;
    assert_eq!(one.push().await, 1);
    assert_eq!(state_of(&two, FETCHED).await, Some(VersionState::Deleted));
    assert_eq!(two.store().registry_cache().await.unwrap().bytes, 0);

    // A deployment may fetch no more for others than it may publish, and the takedown has freed no place.
    let most = PeerTerms {
        max_versions: Some(1),
        ..PeerTerms::default()
    };
    two.change(ONE, most).await;
    one.fetch(LATER_FETCHED, &FETCHED_FILES).await;
    assert_eq!(one.push().await, 1);
    assert_eq!(two.pull().await, 0);
    assert_eq!(two.version(LATER_FETCHED).await, None);
    let peer = two.peer(ONE).await;
    assert_eq!((peer.limited, peer.fetched_versions), (1, 1));
    let skipped = peer.skipped_last.unwrap();
    assert!(skipped.contains("--max-versions"), "{skipped}");
    let metrics = two.server.get("/metrics", "").await;
    let limited = "lockkeeper_registry_peers_limited 1\n";
    assert!(metrics.text().contains(limited), "{}", metrics.text());
    assert_eq!((one.fault().await, two.fault().await), (None, None));
}

async fn a_fetched_version_obeys_the_rules_for_misses_of_the_receiver(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let never = Deployment::open(db.backend, TWO, &FETCHES[..1]).await;
    let flags = [&FETCHES[..], &[("registry-cache-versions", "2")]].concat();
    let full = Deployment::open(db.backend, THREE, &flags).await;
    for at in [&never, &full] {
        at.join(&one, "*", "go github.com/...").await;
    }
    // It has fetched the version before its tag was moved, which fills the half that others may fill.
    let moved: [(&str, &[u8]); 2] = [FETCHED_FILES[0], ("net.go", b"package moved\n")];
    full.fetch(FETCHED, &moved).await;
    let ours = full.version(FETCHED).await;
    one.fetch(FETCHED, &FETCHED_FILES).await;
    assert_eq!(one.push().await, 2);
    assert_eq!((never.pull().await, full.pull().await), (0, 0));
    assert_eq!(never.version(FETCHED).await, None);
    let skipped = never.peer(ONE).await.skipped_last.unwrap();
    assert!(skipped.contains("--registry-on-miss is never"), "{skipped}");
    assert_eq!(full.version(FETCHED).await, ours);
    let skipped = full.peer(ONE).await.skipped_last.unwrap();
    assert!(skipped.contains("with other files"), "{skipped}");
    assert_eq!(full.store().registry_conflict_count().await.unwrap(), 0);

    one.fetch(LATER_FETCHED, &FETCHED_FILES).await;
    assert_eq!(one.push().await, 2);
    assert_eq!(full.version(LATER_FETCHED).await, None);
    assert_eq!(full.pull().await, 0);
    assert_eq!(full.version(LATER_FETCHED).await, None);
    let peer = full.peer(ONE).await;
    assert_eq!((peer.limited, peer.fetched_versions), (1, 0));
    let skipped = peer.skipped_last.unwrap();
    let half = "half of --registry-cache-versions";
    assert!(skipped.contains(half), "{skipped}");
}

async fn an_answer_to_a_push_tells_nothing_of_what_is_not_shared(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &FETCHES).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    two.join(&one, "", "*").await;
    three.join(&two, "module three/*", "").await;
    let closed = PeerTerms {
        visibility: Some(Visibility::Owner),
        ..PeerTerms::default()
    };
    two.change(THREE, closed).await;
    let namespaces = ["module secret", "module three", "module free"];
    for namespace in namespaces {
        one.admin.namespace(namespace, Visibility::Public).await;
    }
    let (secret, of_three) = ("module secret/x/aws 1.0.0", "module three/x/aws 1.0.0");
    let same = "module three/same/aws 1.0.0";
    let admin = &two.admin;
    admin.namespace(namespaces[0], Visibility::Owner).await;
    admin.publish(secret, &MODULE).await;
    two.fetch(FETCHED, &FETCHED_FILES).await;
    let admin = &three.admin;
    admin.namespace(namespaces[1], Visibility::Public).await;
    for key in [of_three, same] {
        admin.publish(key, &MODULE).await;
    }
    assert_eq!(three.push().await, 2);

    one.admin.publish(secret, &MODULE).await;
    one.admin.publish(of_three, &OTHER_MODULE).await;
    one.admin.publish(same, &MODULE).await;
    one.fetch(FETCHED, &FETCHED_FILES).await;
    one.admin.publish("module free/x/aws 1.0.0", &MODULE).await;
    for id in 1..=5 {
        let answer = send(&one, &two, &push_of(&one, id).await).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{id}");
        assert_eq!(answer.text(), "The record was received.\n", "{id}");
    }
    assert_eq!(two.store().registry_conflict_count().await.unwrap(), 1);

    // It does learn of what it may read.
    two.shares(ONE, "module three/*\ngo github.com/...").await;
    for (id, status) in [(1, 202), (2, 409), (3, 200), (4, 200), (5, 202)] {
        let answer = send(&one, &two, &push_of(&one, id).await).await;
        assert_eq!(answer.status.as_u16(), status, "{id}");
    }
}

async fn a_deployment_that_floods_another_one_is_limited(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    three.join(&two, "*", "*").await;
    let admin = &three.admin;
    admin.namespace("module three", Visibility::Public).await;
    let other = "module three/x/aws 1.0.0";
    admin.publish(other, &MODULE).await;
    let token = one.token_for(&two).await;
    let mut counts = (0, 0);
    for _ in 0..700 {
        match send_with(&two, &token, &json!({})).await.status.as_u16() {
            422 => counts.0 += 1,
            429 => counts.1 += 1,
            other => panic!("{other}"),
        }
    }
    assert!(counts.0 >= 600 && counts.1 > 0, "{counts:?}");
    // Others are not limited in the same minute, and its log is read as before.
    assert_eq!(three.push().await, 1);
    assert_eq!(state_of(&two, other).await, Some(VersionState::Added));
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
}

/// R8: a peer that does not answer does not delay the others.
async fn a_peer_that_does_not_answer_keeps_nobody_waiting(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let mute = Deployment::open(db.backend, THREE, &[]).await;
    mute.join(&one, "*", "*").await;
    let gate = mute.hold(PUSH);
    one.admin.publish(VPC, &MODULE).await;
    // A tick waits for a moment, and the rest goes on.
    let report = one.peers.push_due(Duration::ZERO).await.unwrap();
    assert_eq!(report.peers, 2);
    let told = async {
        gate.arrived(1).await;
        while one.peer(TWO).await.pushes.last_id == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, told).await.unwrap();
    assert!(two.version(VPC).await.is_some());
    assert_eq!(one.peer(THREE).await.pushes.last_id, 0);
    gate.open();
    let told = async {
        while one.peer(THREE).await.pushes.last_id == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, told).await.unwrap();
}

/// Numbers that are the same in each run of the tests.
struct Numbers(u64);

impl Numbers {
    /// Returns a number below another one.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// R3: pages and pushes in any order end with the same states.
async fn pages_and_pushes_in_any_order_end_equal(db: &TestDb) {
    let all = Box::pin(three(db)).await;
    let mut keys = Vec::new();
    for (number, deployment) in all.iter().enumerate() {
        for version in ["1.0.0", "1.1.0", "1.2.0"] {
            let key = format!("module n{number}/m/aws {version}");
            deployment.admin.publish(&key, &MODULE).await;
            keys.push(key);
        }
    }
    let mut numbers = Numbers(19);
    for _ in 0..60 {
        let (at, to) = (numbers.below(3), numbers.below(3));
        let from = &all[at];
        match numbers.below(6) {
            0 => {
                from.pull().await;
            }
            1 => {
                from.push().await;
            }
            2 => {
                let key = &keys[numbers.below(keys.len())];
                let known = state_of(from, key).await;
                if known.is_some_and(|state| state < VersionState::Deprecated) {
                    from.admin.deprecate(key, "old", None).await;
                }
            }
            3 if numbers.below(3) == 0 => {
                let key = &keys[numbers.below(keys.len())];
                let known = state_of(from, key).await;
                if known.is_some_and(|state| state < VersionState::Deleted) {
                    let kind = TakedownKind::Mistake;
                    from.admin.take_down(key, kind, "wrong").await;
                }
            }
            // Any record again, also one that others have made.
            _ if at != to => {
                let size = from.store().registry_log_size().await.unwrap();
                let id = numbers.below(usize::try_from(size).unwrap());
                let push = push_of(from, i64::try_from(id).unwrap() + 1).await;
                let answer = send(from, &all[to], &push).await;
                let status = answer.status.as_u16();
                let text = answer.text();
                assert!([200, 202, 410].contains(&status), "{status}: {text}");
            }
            _ => {}
        }
    }
    for deployment in all.iter().chain(&all) {
        deployment.pull().await;
    }
    assert_equal(&all).await;
    for deployment in &all {
        let records = deployment.store().registry_records(LogId::FIRST, 1000);
        let records = records.await.unwrap();
        for key in &keys {
            let key: VersionKey = key.parse().unwrap();
            let of_key = records.iter().filter(|(_, text)| {
                let record = Record::parse(text.as_bytes()).unwrap();
                *record.key() == key
            });
            assert!((1..=3).contains(&of_key.count()), "{key}");
        }
    }
}

store_test!(
    a_publication_is_at_the_peer_without_a_pull,
    a_push_that_failed_is_repeated_and_given_up_in_the_end,
    a_push_that_cannot_be_one_of_the_peer_is_refused,
    what_does_not_count_in_a_page_does_not_count_in_a_push,
    a_takedown_of_what_was_never_here_ends_with_the_trust_in_its_maker,
    a_takedown_here_of_what_was_never_here_stays,
    a_fetched_version_comes_to_those_who_would_fetch_it,
    a_fetched_version_obeys_the_rules_for_misses_of_the_receiver,
    an_answer_to_a_push_tells_nothing_of_what_is_not_shared,
    a_deployment_that_floods_another_one_is_limited,
    a_peer_that_does_not_answer_keeps_nobody_waiting,
    pages_and_pushes_in_any_order_end_equal,
);
