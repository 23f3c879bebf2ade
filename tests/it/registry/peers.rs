//! Deployments exchange versions: what travels, what does not count, and what a peer that lies achieves.

use std::net::TcpListener;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use lockkeeper::features::registry::{
    AddNamespace, ForeignVersions, JoinFault, PeerState, PeerTerms, Visibility,
};
use lockkeeper::model::Sha256Digest;
use lockkeeper_registry::records::{LogId, TakedownKind};
use lockkeeper_registry::signed_note::NoteSigner;
use lockkeeper_registry::states::{BaseLocation, KnownVersion, LocatedContent, VersionState};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::archives;
use super::deployments::{Answered, Deployment, PATIENCE, name};
use super::uploads::files_below;
use super::world::{by_ops, go_mod_of_size};
use crate::support::db::{TestDb, execute, store_test};
use crate::support::program::lockkeeper;

pub const VPC: &str = "module acme/vpc/aws 1.2.3";
pub const VPC_LIST: &str = "/registry/v1/modules/acme/vpc/aws/versions";
pub const NET: &str = "go example.com/net v1.0.0";
pub const NET_AT: &str = "/registry/go/example.com/net/@v";

pub const MODULE: [(&str, &[u8]); 1] = [("main.tf", b"output \"x\" {}\n")];
pub const OTHER_MODULE: [(&str, &[u8]); 1] = [("main.tf", b"output \"y\" {}\n")];
pub const GO_MODULE: [(&str, &[u8]); 2] = [
    ("go.mod", b"module example.com/net\n\ngo 1.24\n"),
    ("net.go", b"package net\n"),
];

/// Time after which `/metrics` reads the database again.
const METRICS_AGE: Duration = Duration::from_secs(5);

/// Returns the number of peers in a state that `/metrics` says.
async fn peers_in(at: &Deployment, state: &str) -> Option<u64> {
    let name = format!("registry_peers{{state=\"{state}\"}}");
    at.server.metric(&name).await
}

/// Opens two deployments that have joined. The first one owns the names.
pub async fn two(db: &TestDb) -> (Deployment, Deployment) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    one.admin
        .namespace("go example.com/net", Visibility::Public)
        .await;
    two.join(&one, "*", "*").await;
    (one, two)
}

/// Returns the path of the package of the module.
pub async fn vpc_path(at: &Deployment) -> String {
    let download = "/registry/v1/modules/acme/vpc/aws/1.2.3/download";
    let answer = at.server.get(download, &at.token).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text());
    let link = answer.header("x-terraform-get");
    let link = link.strip_prefix("./").unwrap_or(link);
    format!("/registry/v1/modules/acme/vpc/aws/1.2.3/{link}")
}

async fn a_version_travels_with_its_package_byte_for_byte(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.server.status(VPC_LIST, &two.token).await, 404);

    assert_eq!(two.pull().await, 2);
    assert!(!two.is_here(VPC).await && !two.is_here(NET).await);
    let listed = two.server.get(VPC_LIST, &two.token).await;
    assert!(listed.text().contains("1.2.3"), "{}", listed.text());
    let list = two.server.get(&format!("{NET_AT}/list"), &two.token).await;
    assert_eq!(list.text(), "v1.0.0\n");

    // A client waits for the package, and everything else comes in the background.
    let ours = one.server.get(&vpc_path(&one).await, "").await;
    let theirs = two.server.get(&vpc_path(&two).await, "").await;
    assert_eq!(theirs.status, StatusCode::OK, "{}", theirs.text());
    assert_eq!(ours.body, theirs.body);
    assert!(two.is_here(VPC).await && !two.is_here(NET).await);
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (1, 0));
    for file in ["v1.0.0.mod", "v1.0.0.zip"] {
        let path = format!("{NET_AT}/{file}");
        let ours = one.server.get(&path, &one.token).await;
        let theirs = two.server.get(&path, &two.token).await;
        assert_eq!((ours.status.as_u16(), &ours.body), (200, &theirs.body));
    }
    assert_eq!(two.store().registry_download_count().await.unwrap(), 0);

    // Records keep the text and the signature of their maker.
    let from = LogId::FIRST;
    let records = one.store().registry_records(from, 10).await.unwrap();
    assert_eq!(
        two.store().registry_records(from, 10).await.unwrap(),
        records
    );
    assert_eq!((two.fault().await, one.fault().await), (None, None));
    // Nothing comes back as news.
    assert_eq!((one.pull().await, two.pull().await), (0, 0));
    let peer = two.peer("one.example.com").await;
    assert_eq!(
        (peer.lag_records(), peer.walk.last_id(), peer.error),
        (0, 2, None)
    );
}

async fn deprecations_and_takedowns_travel(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    two.pull().await;
    two.peers.download_due().await.unwrap();
    let path = vpc_path(&two).await;
    let package = digest_of(&two, VPC).await;
    assert!(
        two.admin
            .registry
            .package(&package)
            .await
            .unwrap()
            .is_some()
    );
    one.admin.deprecate(NET, "old", None).await;
    one.admin
        .take_down(VPC, TakedownKind::Security, "has a key")
        .await;
    // A version that is gone before anybody saw it.
    one.admin
        .publish("module acme/vpc/aws 2.0.0", &MODULE)
        .await;
    one.admin
        .take_down("module acme/vpc/aws 2.0.0", TakedownKind::Legal, "no")
        .await;

    assert_eq!(two.pull().await, 4);
    for (key, state) in [
        (NET, VersionState::Deprecated),
        (VPC, VersionState::Deleted),
    ] {
        assert_eq!(two.version(key).await.unwrap().known.state(), state);
    }
    let gone = two.server.get(&path, "").await;
    assert_eq!(gone.status, StatusCode::FORBIDDEN);
    assert!(gone.text().contains("has a key"), "{}", gone.text());
    let legal = "/registry/v1/modules/acme/vpc/aws/2.0.0/download";
    assert_eq!(two.server.status(legal, &two.token).await, 451);
    // The bytes go with the takedown.
    assert!(
        two.admin
            .registry
            .package(&package)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(two.fault().await, None);
    assert_eq!(two.pull().await, 0);
}

/// Returns the digest of the package of a version.
pub async fn digest_of(at: &Deployment, key: &str) -> Sha256Digest {
    let version = at.version(key).await.unwrap();
    let mut packages = version.known.content().unwrap().content.packages.iter();
    packages.next().unwrap().digest.clone()
}

/// Opens three deployments that have joined each other. Each one has a namespace, `module n0` and so on, and takes what the
/// others say about all of them.
pub async fn three(db: &TestDb) -> Vec<Deployment> {
    let names = ["one.example.com", "two.example.com", "three.example.com"];
    let mut all = Vec::new();
    for (number, name) in names.into_iter().enumerate() {
        let deployment = Deployment::open(db.backend, name, &[]).await;
        let namespace = format!("module n{number}");
        deployment
            .admin
            .namespace(&namespace, Visibility::Public)
            .await;
        all.push(deployment);
    }
    let shared = "*\nmodule n0/*\nmodule n1/*\nmodule n2/*";
    for (left, right) in [(0, 1), (1, 2), (2, 0)] {
        all[left].join(&all[right], shared, shared).await;
    }
    all
}

/// Checks that nothing is new any more, and that all deployments have the same.
pub async fn assert_equal(all: &[Deployment]) {
    for deployment in all {
        assert_eq!(deployment.pull().await, 0);
        deployment.peers.download_due().await.unwrap();
        deployment.admin.registry.remove_orphans().await.unwrap();
        assert_eq!(deployment.fault().await, None);
    }
    for number in 0..3 {
        let name = format!("module n{number}/m/aws").parse().unwrap();
        let mut states = Vec::new();
        for deployment in all {
            let versions = deployment.admin.registry.versions(&name).await.unwrap();
            let versions: Vec<_> = versions
                .into_iter()
                .map(|version| {
                    let content = version.known.content().cloned();
                    (version.key.version(), version.known.state(), content)
                })
                .collect();
            states.push(versions);
        }
        assert_eq!(states[0].len(), 3);
        assert_eq!(states[0], states[1]);
        assert_eq!(states[1], states[2]);
    }
}

/// R3: pulls in any order and any number end with the same states.
async fn three_deployments_end_equal_in_any_order(db: &TestDb) {
    let all = Box::pin(three(db)).await;
    for (number, deployment) in all.iter().enumerate() {
        for version in ["1.0.0", "1.1.0", "1.2.0"] {
            let key = format!("module n{number}/m/aws {version}");
            deployment.admin.publish(&key, &MODULE).await;
        }
        let key = format!("module n{number}/m/aws 1.0.0");
        deployment.admin.deprecate(&key, "old", None).await;
    }
    // Two learn of a version, and then each says something else about it.
    all[1].pull().await;
    all[2].pull().await;
    all[1]
        .admin
        .deprecate("module n0/m/aws 1.1.0", "old", None)
        .await;
    all[2]
        .admin
        .take_down("module n0/m/aws 1.1.0", TakedownKind::Mistake, "wrong")
        .await;
    all[2]
        .admin
        .take_down("module n1/m/aws 1.0.0", TakedownKind::Mistake, "wrong")
        .await;
    for at in [0, 2, 1, 1, 0, 2, 0, 1, 2] {
        all[at].pull().await;
    }
    assert_equal(&all).await;
}

/// R8: a peer that is away keeps nothing from being served that is here.
async fn what_is_here_is_served_when_peers_are_away(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    two.pull().await;
    let path = vpc_path(&two).await;
    assert_eq!(two.server.status(&path, "").await, 200);

    one.reachable(false);
    assert_eq!(two.pull().await, 0);
    let error = two.error("one.example.com").await;
    assert!(error.contains("does not answer"), "{error}");
    assert_eq!(two.state("one.example.com").await, PeerState::Joined);
    assert_eq!(two.server.metric("registry_peers_failing").await, Some(1));
    assert_eq!(two.server.status(&path, "").await, 200);
    let zip = format!("{NET_AT}/v1.0.0.zip");
    let answer = two.server.get(&zip, &two.token).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), "5");
    // The next client does not wait for the peer again.
    assert_eq!(two.server.status(&zip, &two.token).await, 503);
    assert_eq!(two.fault().await, None);

    one.reachable(true);
    two.db.clock.advance(Duration::from_mins(1));
    assert_eq!(two.server.status(&zip, &two.token).await, 200);
    two.pull().await;
    assert_eq!(two.error("one.example.com").await, "");
    assert_eq!(two.server.metric("registry_peers_failing").await, Some(0));
}

async fn a_change_clears_the_failures_of_the_walks_before(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let (name_of_one, three) = (name("one.example.com"), "three.example.com");
    one.reachable(false);
    let fails = async || {
        assert_eq!(two.pull().await, 0);
        let error = two.error("one.example.com").await;
        assert!(error.contains("does not answer"), "{error}");
    };
    fails().await;
    two.accepts("one.example.com", "module acme/*").await;
    assert_eq!(two.peer("one.example.com").await.error, None);
    // The next attempt fails as well.
    fails().await;

    let signer = NoteSigner::from_seed(three, &[7; 32]).unwrap();
    let url = format!("https://{three}").parse().unwrap();
    let proposed = [(url, signer.verifier().clone())];
    let added = two.store().registry_peers_propose(&name_of_one, &proposed);
    assert_eq!(added.await.unwrap(), 1);
    let (of, accepts) = (name(three), "module three/*".parse().unwrap());
    let by = by_ops();
    let approved = two.store().registry_peer_approve(&of, &accepts, &by);
    assert!(approved.await.unwrap().is_some());
    assert_eq!(two.peer("one.example.com").await.error, None);

    // The reason why the exchange was stopped is no failure of a walk.
    let diverged = "UPDATE registry_peers SET state = 'diverged', error = 'its log was cut', error_at = state_at \
                    WHERE name = 'one.example.com'";
    execute(&two.db, diverged).await;
    two.accepts("one.example.com", "*").await;
    assert_eq!(two.error("one.example.com").await, "its log was cut");
}

/// R8: a peer that takes requests and never answers keeps nothing from being served that is here.
async fn what_is_here_is_served_while_a_peer_is_mute(db: &TestDb) {
    let waits = ("registry-on-miss", "*=wait");
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[waits]).await;
    let admin = &one.admin;
    admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    two.peers.download_due().await.unwrap();
    let path = vpc_path(&two).await;

    // The list leads to a request to the peer, which does not answer. Requests for missing versions would wait for a minute.
    let gate = one.hold("/diff");
    let answers = async {
        let listed = two.server.get(VPC_LIST, &two.token).await;
        assert!(listed.text().contains("1.2.3"), "{}", listed.text());
        assert_eq!(two.server.status(&path, "").await, 200);
        let download = VPC_LIST.replace("versions", "1.2.3/download");
        assert_eq!(two.server.status(&download, &two.token).await, 204);
    };
    timeout(PATIENCE, answers).await.unwrap();
    gate.arrived(1).await;
    gate.open();
}

/// R5: a log with another past is noticed, and nothing of it is merged.
async fn a_log_that_was_replaced_stops_the_exchange_with_that_peer_alone(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, "three.example.com", &[]).await;
    three
        .admin
        .namespace("module three", Visibility::Public)
        .await;
    two.join(&three, "*", "*").await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 2);

    // The same answers with fewer records: somebody has restored an old database.
    one.tamper(|path, answered| {
        if path.ends_with("/diff") {
            return Answered {
                status: StatusCode::CONFLICT,
                body: Bytes::from_static(b"The log has 1 records."),
            };
        }
        answered
    });
    three
        .admin
        .publish("module three/m/aws 1.0.0", &MODULE)
        .await;
    // The stop lets the logs of the others be read again, so a page that was under way is dropped.
    let merged = two.pull().await + two.pull().await;
    assert_eq!(merged, 1, "the others go on");
    let peer = two.peer("one.example.com").await;
    assert_eq!(peer.state, PeerState::Diverged);
    let (why, since) = peer.error.unwrap();
    assert!(why.contains("was cut"), "{why}");
    assert_eq!(since, two.db.now());
    assert_eq!(peers_in(&two, "diverged").await, Some(1));
    assert_eq!(peers_in(&two, "joined").await, Some(1));
    // Nothing is requested from it any more.
    one.honest();
    one.admin.deprecate(NET, "old", None).await;
    assert_eq!(two.pull().await, 0);
    assert_eq!(two.server.status(VPC_LIST, &two.token).await, 200);

    assert!(
        two.turn("one.example.com", PeerState::Diverged, PeerState::Joined)
            .await
    );
    assert_eq!(two.pull().await, 1);
    assert_eq!(two.state("one.example.com").await, PeerState::Joined);
    two.db.clock.advance(METRICS_AGE);
    assert_eq!(peers_in(&two, "diverged").await, Some(0));
    assert_eq!(peers_in(&two, "joined").await, Some(2));
}

/// Changes the JSON of pages on their way.
pub fn change_pages(at: &Deployment, change: impl Fn(&mut Value) + Send + Sync + 'static) {
    at.tamper(move |path, answered| {
        if !path.ends_with("/diff") {
            return answered;
        }
        let mut page: Value = serde_json::from_slice(&answered.body).unwrap();
        change(&mut page);
        Answered {
            body: serde_json::to_vec(&page).unwrap().into(),
            ..answered
        }
    });
}

async fn nothing_of_a_page_that_does_not_fit_is_merged(db: &TestDb) {
    type Change = Box<dyn Fn(&mut Value) + Send + Sync>;
    let cases: Vec<(&str, PeerState, Change)> = vec![
        (
            "record 1 is missing",
            PeerState::Diverged,
            Box::new(|page| drop(page["added"].as_array_mut().unwrap().remove(0))),
        ),
        (
            "out of order",
            PeerState::Diverged,
            Box::new(|page| page["added"].as_array_mut().unwrap().reverse()),
        ),
        (
            "not those of its head",
            PeerState::Diverged,
            Box::new(|page| {
                // A withheld record with a wrong hash.
                let item = page["added"].as_array_mut().unwrap().remove(0);
                let hash = lockkeeper_registry::tlog::LogHash::EMPTY_TREE.to_string();
                page["withheld"] = json!([{"id": item["id"], "hash": hash}]);
            }),
        ),
        (
            "head of its log is not valid",
            PeerState::Diverged,
            Box::new(|page| {
                let head = page["head"].as_str().unwrap().replace("\n2\n", "\n3\n");
                page["head"] = head.into();
            }),
        ),
        (
            "cannot be read",
            PeerState::Joined,
            Box::new(|page| page["added"][0]["record"] = "add nothing".into()),
        ),
        (
            "list of another action",
            PeerState::Joined,
            Box::new(|page| {
                let added = page["added"].take();
                page["added"] = json!([]);
                page["deleted"] = added;
            }),
        ),
        (
            "not the JSON of a page",
            PeerState::Joined,
            Box::new(|page| *page = json!({"added": []})),
        ),
        (
            "is longer than",
            PeerState::Joined,
            Box::new(|page| page["head"] = "x".repeat(13 << 20).into()),
        ),
    ];
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    for (why, state, change) in cases {
        change_pages(&one, change);
        assert_eq!(two.pull().await, 0, "{why}");
        let error = two.error("one.example.com").await;
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!(two.state("one.example.com").await, state, "{why}");
        assert_eq!(two.store().registry_log_size().await.unwrap(), 0);
        if state == PeerState::Diverged {
            assert!(
                two.turn("one.example.com", PeerState::Diverged, PeerState::Joined)
                    .await
            );
        }
    }
    one.honest();
    assert_eq!(two.pull().await, 2);
    assert_eq!(two.error("one.example.com").await, "");
}

async fn a_peer_leads_nobody_to_another_address(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    one.admin.publish(NET, &GO_MODULE).await;
    two.admin.namespace("module two", Visibility::Public).await;
    two.admin.publish("module two/vpc/aws 1.0.0", &MODULE).await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    one.redirect(format!("http://{}", elsewhere.local_addr().unwrap()));
    assert_eq!((two.pull().await, two.push().await), (0, 0));
    let error = two.error("one.example.com").await;
    assert!(error.contains("307"), "{error}");
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (0, 1));
    let came = elsewhere.accept();
    assert!(came.is_err(), "a request with a token has gone elsewhere");
    one.honest();
    assert_eq!(two.pull().await, 1);
}

/// R6: names from outside do not become those of an owner by accident.
async fn a_namespace_is_not_added_above_names_of_peers(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    let (store, by) = (two.db.store(), by_ops());
    let (prefix, owner) = ("module acme".parse().unwrap(), "net".parse().unwrap());
    drop(store.owner_create(&owner, &by).await.unwrap());
    let added = store.registry_namespace_add(
        &prefix,
        &owner,
        Visibility::Public,
        ForeignVersions::Refuse,
        &by,
    );
    let taken = "module acme/vpc/aws".parse().unwrap();
    assert_eq!(added.await.unwrap(), AddNamespace::InUse(taken));
}

/// Names are compared by their bytes, and not in the order of the language that the database has.
async fn a_namespace_has_the_names_below_a_slash_and_no_others(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    for name in ["example.com/net~tools", "example.com/lib/z"] {
        let key = format!("go {name}");
        one.admin.namespace(&key, Visibility::Public).await;
        let go_mod = format!("module {name}\n");
        let files: [(&str, &[u8]); 1] = [("go.mod", go_mod.as_bytes())];
        one.admin.publish(&format!("{key} v1.0.0"), &files).await;
    }
    assert_eq!(two.pull().await, 2);
    let (store, by) = (two.db.store(), by_ops());
    let owner = "net".parse().unwrap();
    drop(store.owner_create(&owner, &by).await.unwrap());
    let add = async |prefix: &str| {
        let (prefix, foreign) = (prefix.parse().unwrap(), ForeignVersions::Refuse);
        let added = store.registry_namespace_add(&prefix, &owner, Visibility::Public, foreign, &by);
        added.await.unwrap()
    };
    let added = add("go example.com/net").await;
    assert!(matches!(added, AddNamespace::Added(_)), "{added:?}");
    let taken = "go example.com/lib/z".parse().unwrap();
    assert_eq!(add("go example.com/Lib").await, AddNamespace::InUse(taken));
}

async fn a_record_that_its_maker_did_not_sign_is_found_out(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    // A deployment with the name of the one, and a member that takes it for the real one.
    let impostor = Deployment::open(db.backend, "one.example.com", &[]).await;
    let fooled = Deployment::open(db.backend, "three.example.com", &[]).await;
    impostor
        .admin
        .namespace("module acme", Visibility::Public)
        .await;
    impostor.admin.publish(VPC, &OTHER_MODULE).await;
    fooled.join(&impostor, "*", "*").await;
    assert_eq!(fooled.pull().await, 1);
    two.join(&fooled, "*", "*").await;
    assert_eq!(two.pull().await, 0);
    // Who relays a record cannot tell, so the record alone does not count.
    let relay = two.peer("three.example.com").await;
    assert_eq!(relay.state, PeerState::Joined);
    let why = relay.skipped_last.unwrap();
    assert!(why.contains("wrong signature of one.example.com"), "{why}");
    assert!(two.version(VPC).await.is_none());
    // The real one goes on.
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    assert_eq!(two.version(VPC).await.unwrap().known, {
        let theirs = one.version(VPC).await.unwrap();
        let located = theirs.known.content().unwrap().clone();
        KnownVersion::Added(LocatedContent {
            base: BaseLocation::Peer(name("one.example.com")),
            ..located
        })
    });
}

/// R4: a package counts only with the recorded checksum.
async fn a_package_that_is_not_the_recorded_one_is_fetched_elsewhere(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, "three.example.com", &[]).await;
    three.join(&one, "*", "*").await;
    two.join(&three, "*", "*").await;
    one.admin.publish(VPC, &MODULE).await;
    three.pull().await;
    two.pull().await;
    one.tamper(|path, answered| {
        if !path.contains("/packages/") {
            return answered;
        }
        let mut body = answered.body.to_vec();
        let last = body.len() - 1;
        body[last] ^= 1;
        Answered {
            body: body.into(),
            ..answered
        }
    });
    // Nobody has the right bytes yet: those of the one are wrong, and the three has none.
    let base = match &two
        .version(VPC)
        .await
        .unwrap()
        .known
        .content()
        .unwrap()
        .base
    {
        BaseLocation::Peer(peer) => peer.to_string(),
        BaseLocation::Here => panic!("nothing was downloaded yet"),
    };
    assert!(["one.example.com", "three.example.com"].contains(&base.as_str()));
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (0, 1));
    assert_eq!(two.peer("one.example.com").await.wrong_packages, 1);
    assert_eq!(two.server.metric("registry_wrong_packages").await, Some(1));
    assert!(!two.is_here(VPC).await);
    assert_eq!(two.fault().await, None);

    one.honest();
    three.peers.download_due().await.unwrap();
    one.tamper(|path, answered| {
        let is_package = path.contains("/packages/");
        let body = if is_package {
            Bytes::from_static(b"short")
        } else {
            answered.body
        };
        Answered { body, ..answered }
    });
    two.db.clock.advance(Duration::from_mins(1));
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (1, 0));
    assert!(two.is_here(VPC).await);
    assert_eq!(two.fault().await, None);
}

/// R4: a peer can sign a record of any bytes. Its packages have to follow the rules of uploads.
async fn nothing_is_kept_of_hostile_archives_that_a_peer_has_signed(db: &TestDb) {
    // Larger packages do not come in turns.
    const LARGEST: usize = 10 << 20;
    let (one, two) = Box::pin(two(db)).await;
    let archives = archives::of_different_versions(LARGEST);
    let count = archives.len() as u64;
    assert!(count > 50, "{count}");
    for (key, hostile) in &archives {
        one.admin.publish_hostile(key, &hostile.archive).await;
    }
    assert_eq!(two.pull().await, count);
    let mut failed = 0;
    while failed < count {
        let report = two.peers.download_due().await.unwrap();
        assert!(report.arrived == 0 && report.failed > 0, "{report:?}");
        failed += report.failed;
    }
    // Only the identifier of the store.
    assert_eq!(files_below(&two.db.dir.path().join("packages")), 1);
    for (key, hostile) in &archives {
        let waiting = two.store().registry_download(key).await.unwrap().unwrap();
        assert_eq!((waiting.attempts, waiting.wrong), (1, 1), "{waiting:?}");
        let why = waiting.error.unwrap();
        // Answers of the API write code in other quotes.
        let reason = hostile.reason.replace(['“', '”'], "`");
        assert!(
            why.starts_with("one.example.com: the package breaks a rule: ")
                && why.contains(&reason),
            "{key} {reason}: {why}"
        );
        assert!(!two.is_here(&key.to_string()).await, "{key}");
        let version = key.version();
        let path = if key.as_go().is_some() {
            format!("{NET_AT}/{version}.zip")
        } else {
            let base = VPC_LIST.replace("versions", &version);
            let download = format!("{base}/download");
            let answer = two.server.get(&download, &two.token).await;
            let link = answer.header("x-terraform-get");
            link.replace("./", &format!("{base}/"))
        };
        assert_eq!(two.server.status(&path, &two.token).await, 503, "{path}");
    }
    assert_eq!(two.peer("one.example.com").await.wrong_packages, count);
    let command = ["registry", "peers", "show", "one.example.com"];
    let said = lockkeeper(&command, &two.db.url, &[], &[]);
    let shown = format!("{count} packages were not the recorded ones");
    assert!(said.out.contains(&shown), "{}{}", said.out, said.err);
    assert_eq!(two.fault().await, None);
}

/// A peer with an earlier release can have such versions.
async fn a_package_with_a_large_go_mod_file_does_not_come_and_stops_no_other(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let go_mod = go_mod_of_size("example.com/net", (1 << 20) + 1);
    let files = [("go.mod", go_mod.as_bytes()), GO_MODULE[1]];
    one.admin.publish_unlimited(NET, &files).await;
    one.admin.publish(VPC, &MODULE).await;
    // What was published before is served as it was.
    let path = format!("{NET_AT}/v1.0.0.mod");
    assert_eq!(one.server.get(&path, &one.token).await.text(), go_mod);
    assert_eq!(two.pull().await, 2);
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (1, 1));
    assert!(two.is_here(VPC).await && !two.is_here(NET).await);
    let waiting = two.store().registry_download(&NET.parse().unwrap()).await;
    let waiting = waiting.unwrap().unwrap();
    let why = waiting.error.unwrap();
    let expected =
        "one.example.com: the package breaks a rule: the go.mod file has more than 1048576 bytes";
    assert!(why.starts_with(expected), "{why}");
    assert_eq!(two.server.status(&path, &two.token).await, 503);
    assert_eq!((one.fault().await, two.fault().await), (None, None));
}

async fn two_contents_of_a_version_are_a_conflict_until_a_takedown(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    for deployment in [&one, &two] {
        deployment
            .admin
            .namespace("module acme", Visibility::Public)
            .await;
    }
    two.join(&one, "module acme/*", "module acme/*").await;
    one.admin.publish(VPC, &MODULE).await;
    two.admin.publish(VPC, &OTHER_MODULE).await;
    let ours = two.version(VPC).await;
    assert_eq!((one.pull().await, two.pull().await), (0, 0));
    for (at, other) in [(&one, "two.example.com"), (&two, "one.example.com")] {
        let conflicts = at.store().registry_conflicts(10).await.unwrap();
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].peer, name(other));
        assert!(
            conflicts[0]
                .record
                .starts_with("add module acme/vpc/aws 1.2.3\n")
        );
        assert_eq!(at.state(other).await, PeerState::Joined);
        assert_eq!(at.server.metric("registry_conflicts").await, Some(1));
    }
    assert_eq!(two.version(VPC).await, ours);
    // Seen again, it is the same conflict.
    two.store()
        .registry_peer_change(&name("one.example.com"), &PeerTerms::default(), &by_ops())
        .await
        .unwrap();
    two.pull().await;
    assert_eq!(two.store().registry_conflict_count().await.unwrap(), 1);

    one.admin
        .take_down(VPC, TakedownKind::Mistake, "two contents")
        .await;
    assert_eq!(one.store().registry_conflict_count().await.unwrap(), 0);
    assert_eq!(two.pull().await, 1);
    assert_eq!(two.store().registry_conflict_count().await.unwrap(), 0);
    let state = two.version(VPC).await.unwrap().known.state();
    assert_eq!(state, VersionState::Deleted);
    for at in [&one, &two] {
        at.db.clock.advance(METRICS_AGE);
        assert_eq!(at.server.metric("registry_conflicts").await, Some(0));
    }
}

async fn a_peer_with_many_conflicts_hides_none_of_another_one(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    two.admin.namespace("module acme", Visibility::Public).await;
    two.accepts("one.example.com", "module acme/*").await;
    one.admin.publish(VPC, &MODULE).await;
    two.admin.publish(VPC, &OTHER_MODULE).await;
    assert_eq!(two.pull().await, 0);
    let rows = (0..1_000).map(|number| {
        let name = format!("acme/n{number:03}/aws");
        format!(
            "('module', '{name}', '1.0.0', 'three.example.com', 'add', '2030-01-01T00:00:00+00:00')"
        )
    });
    let rows: Vec<String> = rows.collect();
    let rows = rows.join(", ");
    let columns = "kind, name, version, peer, record, since";
    let sql = format!("INSERT INTO registry_conflicts ({columns}) VALUES {rows}");
    execute(&two.db, &sql).await;
    let show = ["registry", "peers", "show", "one.example.com"];
    let shown = lockkeeper(&show, &two.db.url, &["--json"], &[]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let conflicts = shown["conflicts"].as_array().unwrap().iter();
    let names: Vec<&Value> = conflicts.map(|conflict| &conflict["name"]).collect();
    assert_eq!(names, ["acme/vpc/aws"]);
}

async fn the_page_shows_peers_to_people_who_sign_in(db: &TestDb) {
    let flags = [
        ("web-basic-auth", "true"),
        ("web-username", "ops"),
        ("web-password", "a long password of the tests"),
    ];
    let one = Deployment::open(db.backend, "one.example.com", &flags).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    for deployment in [&one, &two] {
        let admin = &deployment.admin;
        admin.namespace("module acme", Visibility::Public).await;
    }
    two.join(&one, "module acme/*", "module acme/*").await;
    one.admin.publish(VPC, &MODULE).await;
    two.admin.publish(VPC, &OTHER_MODULE).await;
    one.pull().await;
    two.reachable(false);
    one.pull().await;
    let basic = "Basic b3BzOmEgbG9uZyBwYXNzd29yZCBvZiB0aGUgdGVzdHM=";
    let headers = [("authorization", basic)];
    let page = one
        .server
        .request(Method::GET, "/registry/peers", &headers)
        .await;
    assert_eq!(page.status, StatusCode::OK);
    for text in [
        "two.example.com",
        "joined",
        "1 of 1",
        "does not answer",
        "Versions with two contents",
        "counts for: module acme",
    ] {
        assert!(page.text().contains(text), "{text}: {}", page.text());
    }
    assert!(!page.text().contains("lkp_"));
    assert_eq!(one.server.status("/registry/peers", "").await, 401);
    // Nobody signs in to the other server, so it shows no names.
    let page = two.server.get("/registry/peers", "").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text().contains("not shown to you") && !page.text().contains("one.example.com"));
}

/// R6: records of a peer for a name of an owner here do not count unless a pattern names it.
async fn nothing_from_outside_stands_in_for_a_name_that_an_owner_here_has(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    two.admin.namespace("module acme", Visibility::Public).await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 1);
    assert_eq!(two.version(VPC).await, None);
    let peer = two.peer("one.example.com").await;
    assert_eq!(peer.skipped, 1);
    let why = peer.skipped_last.unwrap();
    assert!(why.contains("belongs to net here"), "{why}");

    two.accepts("one.example.com", "*\nmodule acme/*").await;
    assert_eq!(two.pull().await, 1);
    assert!(two.version(VPC).await.is_some());
    assert_eq!(two.peer("one.example.com").await.skipped, 0);
}

async fn only_shared_and_accepted_names_travel(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    one.admin.namespace("module acme", Visibility::Owner).await;
    one.admin
        .namespace("go example.com/net", Visibility::Public)
        .await;
    one.admin
        .namespace("go example.com/other", Visibility::Public)
        .await;
    two.join(&one, "", "go example.com/net/...").await;
    let other = "go example.com/other v1.0.0";
    let files: [(&str, &[u8]); 1] = [("go.mod", b"module example.com/other\n")];
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    one.admin.publish(other, &files).await;
    assert_eq!(two.pull().await, 1);
    assert!(two.version(NET).await.is_some());
    assert_eq!(two.peer("one.example.com").await.walk.last_id(), 3);

    // Everything public is shared now, but the names that only their owner reads are not.
    one.shares("two.example.com", "*").await;
    two.accepts("one.example.com", "*").await;
    assert_eq!(two.pull().await, 1);
    assert!(two.version(other).await.is_some());
    assert_eq!(two.version(VPC).await, None);
    // Neither is their package.
    let digest = digest_of(&one, VPC).await;
    let answers = peer_get(&two, &one, &format!("/registry/peer/v1/packages/{digest}")).await;
    assert_eq!(answers, 404);

    // A namespace becomes public: what was withheld comes, without a change here.
    one.admin
        .change_namespace("module acme", Visibility::Public)
        .await;
    assert_eq!(two.pull().await, 1);
    assert!(two.version(VPC).await.is_some());
    // One that shares a name which is not accepted is refused.
    two.accepts("one.example.com", "module acme/*").await;
    let full: Value = page_of(&two, &one, "*").await;
    change_pages(&one, move |page| *page = full.clone());
    assert_eq!(two.pull().await, 0);
    let error = two.error("one.example.com").await;
    assert!(error.contains("no such name is accepted"), "{error}");
}

/// Sends a request to a peer with the token that was exchanged.
pub async fn peer_get(from: &Deployment, to: &Deployment, path: &str) -> u16 {
    let token = from.token_for(to).await;
    to.server.status(path, &token).await
}

pub async fn page_of(from: &Deployment, to: &Deployment, accepts: &str) -> Value {
    let token = from.token_for(to).await;
    let path = format!("/registry/peer/v1/diff?after=0&limit=1000&accepts={accepts}");
    serde_json::from_slice(&to.server.get(&path, &token).await.body).unwrap()
}

async fn many_takedowns_wait_for_an_administrator(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let flags = [("registry-takedown-brake", "2")];
    let two = Deployment::open(db.backend, "two.example.com", &flags).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    let key = |number: u32| format!("module acme/vpc/aws 1.0.{number}");
    for number in 0..5 {
        one.admin.publish(&key(number), &MODULE).await;
    }
    two.pull().await;
    for number in 0..4 {
        one.admin
            .take_down(&key(number), TakedownKind::Mistake, "wrong")
            .await;
    }
    one.admin
        .publish("module acme/new/aws 1.0.0", &MODULE)
        .await;
    two.pull().await;
    let deleted = async || {
        let mut count = 0;
        for number in 0..5 {
            let version = two.version(&key(number)).await.unwrap();
            count += u32::from(version.known.state() == VersionState::Deleted);
        }
        count
    };
    assert_eq!(deleted().await, 2, "it stops before the first one too many");
    assert_eq!(two.state("one.example.com").await, PeerState::Braked);
    assert_eq!(peers_in(&two, "braked").await, Some(1));
    assert_eq!(two.version("module acme/new/aws 1.0.0").await, None);
    assert_eq!((two.pull().await, deleted().await), (0, 2));
    // More takedowns come before somebody agrees to those that are known.
    one.admin
        .take_down(&key(4), TakedownKind::Mistake, "wrong")
        .await;
    assert!(
        two.turn("one.example.com", PeerState::Braked, PeerState::Joined)
            .await
    );
    two.pull().await;
    assert_eq!(deleted().await, 5, "somebody has agreed to more");
    assert_eq!(two.state("one.example.com").await, PeerState::Joined);
    assert!(two.version("module acme/new/aws 1.0.0").await.is_some());
    assert_eq!(two.fault().await, None);
}

async fn a_member_relays_records_of_those_who_are_approved(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, "three.example.com", &[]).await;
    three.join(&two, "*", "*").await;
    one.admin.publish(VPC, &MODULE).await;
    two.pull().await;
    two.peers.download_due().await.unwrap();
    assert_eq!(three.pull().await, 0);
    let skipped = three.peer("two.example.com").await.skipped_last.unwrap();
    assert!(skipped.contains("no peer whose records count"), "{skipped}");
    // The member was proposed, and nothing more.
    assert_eq!(three.state("one.example.com").await, PeerState::Proposed);
    assert_eq!(
        three.peer("one.example.com").await.verifier,
        *one.admin.registry.verifier()
    );

    assert!(
        three
            .turn("one.example.com", PeerState::Proposed, PeerState::Approved)
            .await
    );
    three.accepts("one.example.com", "module acme/*").await;
    one.reachable(false);
    assert_eq!(three.pull().await, 1);
    three.peers.download_due().await.unwrap();
    assert!(three.is_here(VPC).await);
    assert_eq!(three.fault().await, None);
}

async fn an_address_that_a_member_makes_up_stops_nothing(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let propose = |url: String| {
        let signer = NoteSigner::from_seed("far.example.org", &[5; 32]).unwrap();
        let members = [json!({"url": url, "key": signer.verifier().to_string()})];
        let body = json!({"members": members}).to_string();
        two.tamper(move |path, answered| match path {
            "/registry/peer/v1/members" => Answered {
                status: StatusCode::OK,
                body: body.clone().into(),
            },
            _ => answered,
        });
    };
    // A letter of a path becomes six characters where the address is stored.
    let long = format!("https://far.example.org/{}", "\u{fc}".repeat(200));
    for url in [
        long.as_str(),
        "https://user:word@far.example.org",
        "http://10.0.0.1",
        "far",
        "",
    ] {
        propose(url.to_owned());
        one.pull().await;
        let known = one.store().registry_peers().await.unwrap();
        assert_eq!(known.len(), 1, "{url}");
        assert_eq!(one.error("two.example.com").await, "", "{url}");
    }
    propose("https://far.example.org".to_owned());
    one.pull().await;
    assert_eq!(one.state("far.example.org").await, PeerState::Proposed);
}

async fn a_word_joins_two_deployments_once(db: &TestDb) {
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open(db.backend, "two.example.com", &[]).await;
    let same = Deployment::open(db.backend, "two.example.com", &[]).await;
    let word = one.invite(&two, "*", "*").await;
    let request = || Deployment::request(&one, &word, "*", "*");
    two.peers.join(request(), &by_ops()).await.unwrap().unwrap();
    assert_eq!(one.state("two.example.com").await, PeerState::Joined);
    assert_eq!(
        one.peer("two.example.com").await.verifier,
        *two.admin.registry.verifier()
    );
    let again = two
        .peers
        .join(request(), &by_ops())
        .await
        .unwrap()
        .unwrap_err();
    assert!(again.to_string().contains("no invitation"), "{again}");

    // A deployment with the name of another one has another key.
    let word = one.invite(&two, "*", "*").await;
    let request = Deployment::request(&one, &word, "*", "*");
    let refused = same
        .peers
        .join(request, &by_ops())
        .await
        .unwrap()
        .unwrap_err();
    assert!(refused.to_string().contains("another key"), "{refused}");
    let expired = one.invite(&two, "*", "*").await;
    one.db.clock.advance(Duration::from_secs(3601));
    let request = Deployment::request(&one, &expired, "*", "*");
    let refused = two
        .peers
        .join(request, &by_ops())
        .await
        .unwrap()
        .unwrap_err();
    assert!(refused.to_string().contains("no invitation"), "{refused}");
    let own = one.invite(&one, "*", "*").await;
    let request = Deployment::request(&one, &own, "*", "*");
    let refused = one
        .peers
        .join(request, &by_ops())
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        refused.to_string().contains("name of this one"),
        "{refused}"
    );
    let request = Deployment::request(&one, &lockkeeper::secret::Secret::new("x"), "*", "*");
    let refused = two
        .peers
        .join(request, &by_ops())
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(refused, JoinFault::Word), "{refused}");
}

async fn only_a_peer_reads_what_is_for_peers(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    let diff = "/registry/peer/v1/diff?after=0&limit=10&accepts=*";
    for (path, token, status) in [
        (diff, "", 401),
        (diff, one.token.as_str(), 401),
        ("/registry/peer/v1/members", one.token.as_str(), 401),
        ("/registry/peer/v1/packages/00", one.token.as_str(), 401),
    ] {
        assert_eq!(one.server.status(path, token).await, status, "{path}");
    }
    for (path, status) in [
        (diff, 200),
        ("/registry/peer/v1/diff?after=2&limit=10&accepts=*", 409),
        ("/registry/peer/v1/diff?after=1&limit=10&accepts=*", 200),
        ("/registry/peer/v1/diff?after=0&limit=0&accepts=*", 400),
        ("/registry/peer/v1/diff?after=-1&limit=1&accepts=*", 400),
        (
            "/registry/peer/v1/diff?after=0&limit=1&accepts=everything",
            400,
        ),
        ("/registry/peer/v1/diff?after=0", 400),
        (
            "/registry/peer/v1/diff?after=18446744073709551615&limit=1&accepts=*",
            409,
        ),
        ("/registry/peer/v1/members", 200),
        ("/registry/peer/v1/packages/..%2fkeys", 404),
    ] {
        assert_eq!(peer_get(&two, &one, path).await, status, "{path}");
    }
    // The token of a peer is no token of a client.
    assert_eq!(peer_get(&two, &one, VPC_LIST).await, 401);
    let join = "/registry/peer/v1/join";
    let answer = one.server.request(Method::POST, join, &[]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text().contains("Content-Type"), "{}", answer.text());
    let turn = |from, to| one.turn("two.example.com", from, to);
    assert!(turn(PeerState::Joined, PeerState::Suspended).await);
    assert_eq!(peer_get(&two, &one, diff).await, 403);
    assert_eq!(two.pull().await, 0);
    let error = two.error("one.example.com").await;
    assert!(error.contains("stopped the exchange"), "{error}");
    assert!(turn(PeerState::Suspended, PeerState::Removed).await);
    assert_eq!(peer_get(&two, &one, diff).await, 401);
}

store_test!(
    a_version_travels_with_its_package_byte_for_byte,
    deprecations_and_takedowns_travel,
    three_deployments_end_equal_in_any_order,
    what_is_here_is_served_when_peers_are_away,
    a_change_clears_the_failures_of_the_walks_before,
    what_is_here_is_served_while_a_peer_is_mute,
    a_log_that_was_replaced_stops_the_exchange_with_that_peer_alone,
    nothing_of_a_page_that_does_not_fit_is_merged,
    a_peer_leads_nobody_to_another_address,
    a_namespace_is_not_added_above_names_of_peers,
    a_namespace_has_the_names_below_a_slash_and_no_others,
    a_record_that_its_maker_did_not_sign_is_found_out,
    a_package_that_is_not_the_recorded_one_is_fetched_elsewhere,
    nothing_is_kept_of_hostile_archives_that_a_peer_has_signed,
    a_package_with_a_large_go_mod_file_does_not_come_and_stops_no_other,
    two_contents_of_a_version_are_a_conflict_until_a_takedown,
    a_peer_with_many_conflicts_hides_none_of_another_one,
    the_page_shows_peers_to_people_who_sign_in,
    nothing_from_outside_stands_in_for_a_name_that_an_owner_here_has,
    only_shared_and_accepted_names_travel,
    many_takedowns_wait_for_an_administrator,
    a_member_relays_records_of_those_who_are_approved,
    an_address_that_a_member_makes_up_stops_nothing,
    a_word_joins_two_deployments_once,
    only_a_peer_reads_what_is_for_peers,
);
