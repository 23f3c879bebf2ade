//! Limits for other deployments: what a peer that lies, wastes or waits achieves, and what it does to others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use lockkeeper::features::registry::{JoinFault, PeerState, PeerTerms, PeerUrl, Visibility};
use lockkeeper_registry::records::TakedownKind;
use lockkeeper_registry::signed_note::{NoteSigner, NoteVerifier};
use lockkeeper_registry::states::VersionState;
use serde_json::Value;
use tokio::time::timeout;

use super::deployments::{Answered, Deployment, PATIENCE, name};
use super::peers::{
    GO_MODULE, MODULE, NET, NET_AT, VPC, VPC_LIST, change_pages, digest_of, page_of, peer_get, two,
    vpc_path,
};
use super::world::by_ops;
use crate::support::db::{TestDb, execute, store_test};

const ONE: &str = "one.example.com";
const TWO: &str = "two.example.com";
const THREE: &str = "three.example.com";

/// Opens a chain: the first one makes records, the second one relays them, and the third one accepts them from the second.
async fn chain(db: &TestDb, flags: &[(&str, &str)]) -> (Deployment, Deployment, Deployment) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, THREE, flags).await;
    three.join(&two, "*", "*").await;
    // The second one tells of the first one.
    assert_eq!(three.pull().await, 0);
    let (maker, accepts, by) = (name(ONE), "*".parse().unwrap(), by_ops());
    let approved = three.store().registry_peer_approve(&maker, &accepts, &by);
    assert!(approved.await.unwrap().is_some());
    assert_eq!(three.state(ONE).await, PeerState::Approved);
    (one, two, three)
}

/// Counts the versions of a module that were taken down: `1.0.0`, `1.0.1` and so on.
async fn deleted(at: &Deployment, count: u32) -> u32 {
    let mut deleted = 0;
    for number in 0..count {
        let version = at.version(&numbered(number)).await;
        let state = version.map(|version| version.known.state());
        deleted += u32::from(state == Some(VersionState::Deleted));
    }
    deleted
}

fn numbered(number: u32) -> String {
    format!("module acme/vpc/aws 1.0.{number}")
}

async fn publish_numbered(at: &Deployment, count: u32) {
    for number in 0..count {
        at.admin.publish(&numbered(number), &MODULE).await;
    }
}

async fn take_down_numbered(at: &Deployment, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let key = numbered(number);
        at.admin
            .take_down(&key, TakedownKind::Mistake, "wrong")
            .await;
    }
}

async fn a_walk_that_begins_again_merges_nothing_of_another_past(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 2);
    // A page that ends before the longest tree has to fit it.
    let token = two.token_for(&one).await;
    let path = "/registry/peer/v1/diff?after=0&limit=1&met=2&accepts=*";
    let short: Value = serde_json::from_slice(&one.server.get(path, &token).await.body).unwrap();
    two.accepts(ONE, "*").await;
    let mut without = short.clone();
    without.as_object_mut().unwrap().remove("met_proof");
    change_pages(&one, move |page| *page = without.clone());
    two.pull().await;
    let error = two.error(ONE).await;
    assert!(error.contains("no proof that it fits the 2"), "{error}");
    assert_eq!(two.peer(ONE).await.walk.last_id(), 0);
    // With it, the walk goes on.
    let pages = AtomicU64::new(0);
    change_pages(&one, move |page| {
        if pages.fetch_add(1, Ordering::Relaxed) == 0 {
            *page = short.clone();
        }
    });
    two.pull().await;
    assert_eq!(
        (two.error(ONE).await, two.fault().await),
        (String::new(), None)
    );
    assert_eq!(two.peer(ONE).await.walk.last_id(), 2);
    one.honest();

    // The deployment makes up another past, and signs it with its key.
    for table in [
        "registry_log",
        "registry_log_hashes",
        "registry_packages",
        "registry_go_mods",
        "registry_versions",
        "registry_names",
    ] {
        execute(&one.db, &format!("DELETE FROM {table}")).await;
    }
    publish_numbered(&one, 3).await;
    two.accepts(ONE, "*").await;
    // A head with a size that the log never reaches stops no comparison.
    execute(&two.db, "UPDATE registry_peers SET head = NULL").await;
    assert_eq!(two.pull().await, 0);
    let error = two.error(ONE).await;
    assert!(error.contains("those that were merged before"), "{error}");
    assert_eq!(two.state(ONE).await, PeerState::Diverged);
    assert!(two.version(&numbered(0)).await.is_none());
}

async fn a_peer_that_shares_something_else_all_the_time_is_read_again_once_an_hour(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    let changes = AtomicU64::new(0);
    change_pages(&one, move |page| {
        page["sharing"] = changes.fetch_add(1, Ordering::Relaxed).to_string().into();
    });
    assert_eq!(two.pull().await, 1);
    let first = two.peer(ONE).await.walk.number;
    two.pull().await;
    assert_eq!(two.peer(ONE).await.walk.number, first + 1);
    assert_eq!(two.error(ONE).await, "");

    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 1, "new records are merged");
    let error = two.error(ONE).await;
    assert!(error.contains("has changed again"), "{error}");
    assert!(!two.peer(ONE).await.is_failing());
    two.pull().await;
    assert_eq!(two.peer(ONE).await.walk.number, first + 1);
    two.db.clock.advance(Duration::from_mins(61));
    two.pull().await;
    assert_eq!(two.peer(ONE).await.walk.number, first + 2);
    assert_eq!(two.error(ONE).await, "");
}

async fn an_answer_of_a_proxy_is_not_the_end_of_a_log(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    two.pull().await;
    one.tamper(|_, _| Answered {
        status: StatusCode::CONFLICT,
        body: Bytes::from_static(b"<html>Conflict</html>"),
    });
    two.pull().await;
    assert_eq!(two.state(ONE).await, PeerState::Joined);
    let error = two.error(ONE).await;
    assert!(error.contains("409"), "{error}");
}

async fn a_pattern_that_is_wider_than_a_namespace_does_not_name_it(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &[]).await;
    one.admin
        .namespace("go example.com/net", Visibility::Owner)
        .await;
    two.join(&one, "", "go example.com/...").await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 0);
    let digest = digest_of(&one, NET).await;
    let package = format!("/registry/peer/v1/packages/{digest}");
    assert_eq!(peer_get(&two, &one, &package).await, 404);
    one.shares(TWO, "go example.com/net/...").await;
    assert_eq!(peer_get(&two, &one, &package).await, 200);

    // The name belongs to an owner of the second one as well.
    two.admin
        .namespace("go example.com/net", Visibility::Public)
        .await;
    assert_eq!(two.pull().await, 0);
    let skipped = two.peer(ONE).await.skipped_last.unwrap();
    assert!(skipped.contains("belongs to net here"), "{skipped}");
    two.accepts(ONE, "go example.com/net/...").await;
    assert_eq!(two.pull().await, 1);
    assert!(two.version(NET).await.is_some());
}

async fn takedowns_are_counted_by_their_maker_also_through_a_relay(db: &TestDb) {
    let flags = [("registry-takedown-brake", "2")];
    let (one, two, three) = Box::pin(chain(db, &flags)).await;
    two.admin.namespace("module two", Visibility::Public).await;
    publish_numbered(&one, 5).await;
    assert_eq!(two.pull().await, 5);
    assert_eq!(three.pull().await, 5);
    take_down_numbered(&one, 0..4).await;
    // In one page, additions would come before takedowns.
    two.pull().await;
    one.admin
        .publish("module acme/new/aws 1.0.0", &MODULE)
        .await;
    two.pull().await;
    let relayed = "module two/m/aws 1.0.0";
    two.admin.publish(relayed, &MODULE).await;

    // Its maker is stopped, and its relay goes on.
    assert_eq!(three.pull().await, 3);
    assert_eq!(deleted(&three, 5).await, 2);
    assert_eq!(three.state(ONE).await, PeerState::Braked);
    assert_eq!(three.state(TWO).await, PeerState::Joined);
    assert!(three.version(relayed).await.is_some());
    assert!(three.version("module acme/new/aws 1.0.0").await.is_none());
    let skipped = three.peer(TWO).await.skipped_last.unwrap();
    assert!(skipped.contains("too many takedowns"), "{skipped}");
    assert_eq!(three.pull().await, 0);

    assert!(
        three
            .turn(ONE, PeerState::Braked, PeerState::Approved)
            .await
    );
    assert_eq!(three.pull().await, 3);
    assert_eq!(deleted(&three, 5).await, 4);
    assert!(three.version("module acme/new/aws 1.0.0").await.is_some());
    assert_eq!(three.state(ONE).await, PeerState::Approved);
    assert_eq!(three.fault().await, None);
}

async fn a_takedown_travels_on_through_a_deployment_that_has_fetched_the_version(db: &TestDb) {
    let flags = [
        ("registry-vcs-allowlist", "example.com"),
        ("registry-on-miss", "go *=wait"),
    ];
    let (one, two, three) = Box::pin(chain(db, &flags)).await;
    two.shares(THREE, "*\ngo example.com/net/...").await;
    two.fetch(NET, &GO_MODULE).await;
    assert_eq!(three.pull().await, 1);
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 0, "the version is there");
    one.admin
        .take_down(NET, TakedownKind::Security, "has a key")
        .await;
    assert_eq!((two.pull().await, three.pull().await), (1, 1));
    for at in [&two, &three] {
        let version = at.version(NET).await.unwrap();
        assert_eq!(version.known.state(), VersionState::Deleted);
    }
}

async fn an_agreement_after_a_brake_ends_after_a_day(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &[("registry-takedown-brake", "2")]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    publish_numbered(&one, 8).await;
    two.pull().await;
    take_down_numbered(&one, 0..3).await;
    two.pull().await;
    assert_eq!(two.state(ONE).await, PeerState::Braked);
    assert!(two.turn(ONE, PeerState::Braked, PeerState::Joined).await);
    two.db.clock.advance(Duration::from_hours(23));
    two.pull().await;
    assert_eq!(
        (deleted(&two, 8).await, two.state(ONE).await),
        (3, PeerState::Joined)
    );

    two.db.clock.advance(Duration::from_mins(61));
    assert!(two.peer(ONE).await.agreed > 0);
    take_down_numbered(&one, 3..8).await;
    two.pull().await;
    assert_eq!(
        (deleted(&two, 8).await, two.state(ONE).await),
        (5, PeerState::Braked)
    );
}

async fn takedowns_of_versions_that_were_never_here_do_not_brake(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &[("registry-takedown-brake", "2")]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    publish_numbered(&one, 4).await;
    take_down_numbered(&one, 0..4).await;
    two.pull().await;
    assert_eq!(deleted(&two, 4).await, 4);
    let peer = two.peer(ONE).await;
    assert_eq!((peer.state, peer.takedowns), (PeerState::Joined, 0));
    // They take places all the same.
    assert_eq!(peer.versions, 4);
}

async fn nothing_of_a_maker_that_was_stopped_is_merged_from_a_page_under_way(db: &TestDb) {
    let (one, two, three) = Box::pin(chain(db, &[])).await;
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    let gate = two.hold("/diff");
    let stop = async {
        gate.arrived(1).await;
        let stopped = three.turn(ONE, PeerState::Approved, PeerState::Suspended);
        assert!(stopped.await);
        gate.open();
    };
    let (pulled, ()) = tokio::join!(three.pull(), stop);
    assert_eq!(pulled, 0);
    assert!(three.version(VPC).await.is_none());
    // Nor from a page that is read again.
    assert_eq!(three.pull().await, 0);
    assert!(three.version(VPC).await.is_none());

    // It counts again, and its record comes with a new walk.
    let again = three.turn(ONE, PeerState::Suspended, PeerState::Approved);
    assert!(again.await);
    assert_eq!(three.pull().await, 1);
    assert!(three.version(VPC).await.is_some());
}

async fn a_peer_is_not_failing_because_another_one_was_stopped(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    two.join(&three, "*", "module three/*").await;
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    // Each time, the second one requests other names of the first one.
    for (from, to) in [
        (PeerState::Joined, PeerState::Suspended),
        (PeerState::Suspended, PeerState::Joined),
        (PeerState::Joined, PeerState::Suspended),
    ] {
        assert!(two.turn(THREE, from, to).await);
        assert_eq!(two.pull().await, 0);
        assert_eq!(two.error(ONE).await, "");
        assert_eq!(two.peer(ONE).await.lag_records(), 0);
    }
}

async fn a_merge_does_not_overwrite_what_an_administrator_decides_meanwhile(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    let gate = one.hold("/diff");
    let stop = async {
        gate.arrived(1).await;
        assert!(two.turn(ONE, PeerState::Joined, PeerState::Removed).await);
        gate.open();
    };
    let (pulled, ()) = tokio::join!(two.pull(), stop);
    assert_eq!(pulled, 0);
    let peer = two.peer(ONE).await;
    assert_eq!((peer.state, peer.walk.last_id()), (PeerState::Removed, 0));
    assert!(two.version(VPC).await.is_none());
}

async fn proposals_and_removed_peers_keep_nobody_out(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &[]).await;
    let (store, from, by) = (one.store(), name(TWO), by_ops());
    let url: PeerUrl = "https://mods.example.org".parse().unwrap();
    // Nobody was ever accepted under this name, so a proposal that was made up does not keep it from its deployment.
    let made_up = NoteSigner::from_seed(TWO, &[7; 32]).unwrap();
    let proposed = [(url.clone(), made_up.verifier().clone())];
    let added = store.registry_peers_propose(&from, &proposed).await;
    assert_eq!(added.unwrap(), 1);
    assert!(one.turn(TWO, PeerState::Proposed, PeerState::Removed).await);
    let mut names = Vec::new();
    for round in 0..2 {
        let mut proposed: Vec<(PeerUrl, NoteVerifier)> = Vec::new();
        for number in 0..60 {
            let text = format!("n{round}-{number}.example.org");
            let signer = NoteSigner::from_seed(&text, &[number; 32]).unwrap();
            proposed.push((url.clone(), signer.verifier().clone()));
        }
        let added = store.registry_peers_propose(&from, &proposed).await;
        assert_eq!(added.unwrap(), 50, "a list of proposals has an end");
        for number in 0..50 {
            let of = format!("n{round}-{number}.example.org");
            assert!(one.turn(&of, PeerState::Proposed, PeerState::Removed).await);
            names.push(of);
        }
    }
    two.join(&one, "*", "*").await;

    // Deployments whose records count do take places.
    for of in &names {
        assert!(one.turn(of, PeerState::Removed, PeerState::Approved).await);
    }
    let three = Deployment::open(db.backend, THREE, &[]).await;
    let word = one.invite(&three, "*", "*").await;
    let request = Deployment::request(&one, &word, "*", "*");
    let refused = three.peers.join(request, &by).await.unwrap().unwrap_err();
    assert!(matches!(refused, JoinFault::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("maximum"), "{refused}");
    // A deployment without a place sends nothing, so the other side does not list it.
    let word = three.invite(&one, "*", "*").await;
    let request = Deployment::request(&three, &word, "*", "*");
    let refused = one.peers.join(request, &by).await.unwrap().unwrap_err();
    assert!(matches!(refused, JoinFault::TooMany), "{refused}");
    let listed = three.store().registry_peers().await.unwrap();
    assert!(listed.is_empty(), "{listed:?}");
}

async fn a_peer_adds_only_so_many_versions_and_bytes(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    publish_numbered(&one, 3).await;
    let most = |max_versions, max_bytes| PeerTerms {
        max_versions,
        max_bytes,
        ..PeerTerms::default()
    };
    two.change(ONE, most(Some(2), None)).await;
    assert_eq!(two.pull().await, 2);
    let peer = two.peer(ONE).await;
    assert_eq!((peer.versions, peer.skipped, peer.limited), (2, 1, 1));
    let skipped = peer.skipped_last.unwrap();
    assert!(skipped.contains("--max-versions"), "{skipped}");
    // Takedowns come all the same.
    take_down_numbered(&one, 0..1).await;
    assert_eq!(two.pull().await, 1);

    two.change(ONE, most(Some(100), None)).await;
    assert_eq!(two.pull().await, 1);
    let peer = two.peer(ONE).await;
    assert_eq!((peer.versions, peer.skipped, peer.limited), (3, 0, 0));
    two.change(ONE, most(None, Some(peer.bytes))).await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 0);
    let skipped = two.peer(ONE).await.skipped_last.unwrap();
    assert!(skipped.contains("--max-bytes"), "{skipped}");
    two.change(ONE, most(None, Some(1 << 30))).await;
    assert_eq!(two.pull().await, 1);
    let after = two.peer(ONE).await;
    assert_eq!(after.versions, 4);
    assert!(after.bytes > peer.bytes);
}

/// Sends other bytes than the recorded ones.
fn send_wrong_packages(at: &Deployment) {
    at.tamper(|path, answered| {
        let is_package = path.contains("/packages/");
        let body = if is_package {
            Bytes::from_static(b"wrong")
        } else {
            answered.body
        };
        Answered { body, ..answered }
    });
}

async fn wrong_packages_are_given_up_until_somebody_wants_them(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    two.pull().await;
    send_wrong_packages(&one);
    let attempt = async || {
        two.db.clock.advance(Duration::from_hours(2));
        let report = two.peers.download_due().await.unwrap();
        (report.arrived, report.failed)
    };
    for number in 0..20 {
        assert_eq!(attempt().await, (0, 1), "{number}");
    }
    assert_eq!(attempt().await, (0, 0));
    let key = VPC.parse().unwrap();
    let waiting = two.store().registry_download(&key).await.unwrap().unwrap();
    assert!(waiting.is_given_up() && waiting.wrong == 20, "{waiting:?}");
    assert_eq!(two.peer(ONE).await.wrong_packages, 20);
    assert_eq!(two.server.metric("registry_wrong_packages").await, Some(20));

    // An administrator lets it begin again.
    assert!(two.turn(ONE, PeerState::Joined, PeerState::Suspended).await);
    assert!(two.turn(ONE, PeerState::Suspended, PeerState::Joined).await);
    for number in 0..20 {
        assert_eq!(attempt().await, (0, 1), "{number}");
    }
    assert_eq!(attempt().await, (0, 0));
    // A client does so too.
    one.honest();
    assert_eq!(two.server.status(&vpc_path(&two).await, "").await, 200);
    assert_eq!(two.store().registry_download_count().await.unwrap(), 0);
}

async fn a_peer_that_sends_slowly_does_not_stop_other_downloads(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    three
        .admin
        .namespace("module three", Visibility::Public)
        .await;
    two.join(&three, "*", "*").await;
    for number in 0..10 {
        let text = format!("output \"x{number}\" {{}}\n");
        let files = [("main.tf", text.as_bytes())];
        one.admin.publish(&numbered(number), &files).await;
    }
    let other = "module three/m/aws 1.0.0";
    three.admin.publish(other, &MODULE).await;
    assert_eq!(two.pull().await, 11);
    let gate = one.hold("/packages/");
    let open = async {
        gate.arrived(2).await;
        let comes = async {
            while !two.is_here(other).await {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, comes).await.unwrap();
        assert_eq!(gate.waiting(), 2, "a peer has two places");
        gate.open();
    };
    let (report, ()) = tokio::join!(two.peers.download_due(), open);
    assert_eq!(report.unwrap().arrived, 11);
    assert_eq!(two.fault().await, None);
}

async fn a_peer_with_many_packages_does_not_stop_other_downloads(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    three
        .admin
        .namespace("module three", Visibility::Public)
        .await;
    two.join(&three, "*", "*").await;
    let other = "module three/m/aws 1.0.0";
    three.admin.publish(other, &MODULE).await;
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 2);
    for number in 0..60 {
        let row = format!(
            "INSERT INTO registry_downloads (kind, name, version, peer, attempts, next_at) \
             VALUES ('module', 'acme/old/aws', '1.0.{number}', '{ONE}', 0, '2020-01-01T00:00:00Z')"
        );
        execute(&two.db, &row).await;
    }
    let store = two.store();
    let peers = store.registry_download_peers().await.unwrap();
    assert_eq!(peers, [name(ONE), name(THREE)]);
    let due = store.registry_downloads_due(&name(ONE), 50).await.unwrap();
    assert_eq!(due.len(), 50);
    assert!(due.iter().all(|waiting| waiting.peer == name(ONE)));
    // The first turn has the oldest ones of one, and everything of the other.
    two.peers.download_due().await.unwrap();
    assert_eq!(
        (two.is_here(VPC).await, two.is_here(other).await),
        (false, true)
    );
    two.peers.download_due().await.unwrap();
    assert!(two.is_here(VPC).await);
}

async fn a_digest_alone_brings_no_package_and_no_bytes_are_served_unseen(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &[]).await;
    one.admin.namespace("module acme", Visibility::Owner).await;
    two.admin.namespace("module two", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    one.admin.publish(VPC, &MODULE).await;
    // Both have the same bytes, and only the first name is private.
    let same = "module two/m/aws 1.0.0";
    two.admin.publish(same, &MODULE).await;
    let digest = digest_of(&one, VPC).await;
    assert_eq!(digest_of(&two, same).await, digest);
    let package = format!("/registry/peer/v1/packages/{digest}");
    assert_eq!(one.pull().await, 1);
    assert_eq!(peer_get(&two, &one, &package).await, 404);

    // The bytes are here, but nobody has compared them with the record of this version.
    two.reachable(false);
    let download = "/registry/v1/modules/two/m/aws/1.0.0/download";
    let answer = one.server.get(download, &one.token).await;
    let link = answer.header("x-terraform-get");
    let link = link.strip_prefix("./").unwrap_or(link);
    let path = format!("/registry/v1/modules/two/m/aws/1.0.0/{link}");
    assert_eq!(one.server.status(&path, "").await, 503);

    two.reachable(true);
    one.db.clock.advance(Duration::from_mins(1));
    let report = one.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (1, 0));
    assert_eq!(one.server.status(&path, "").await, 200);
    assert_eq!(peer_get(&two, &one, &package).await, 200);
}

/// Publishes a version whose readers at the other deployment are its owner alone. Returns the path of its package there.
async fn publish_privately(one: &Deployment, two: &Deployment) -> String {
    let private = PeerTerms {
        visibility: Some(Visibility::Owner),
        ..PeerTerms::default()
    };
    two.change(ONE, private).await;
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    two.peers.download_due().await.unwrap();
    assert!(two.is_here(VPC).await);
    format!("/registry/peer/v1/packages/{}", digest_of(two, VPC).await)
}

async fn private_names_of_a_peer_do_not_go_to_others(db: &TestDb) {
    let (one, two, three) = Box::pin(chain(db, &[])).await;
    let package = publish_privately(&one, &two).await;
    assert_eq!(three.pull().await, 0);
    assert!(three.version(VPC).await.is_none());
    let page = page_of(&three, &two, "*").await;
    assert_eq!(page["withheld"].as_array().unwrap().len(), 1);
    assert_eq!(peer_get(&three, &two, &package).await, 404);

    // Nor after the exchange with their maker has ended.
    assert!(two.turn(ONE, PeerState::Joined, PeerState::Removed).await);
    assert_eq!(peer_get(&three, &two, &package).await, 404);
    assert_eq!(three.pull().await, 0);

    two.shares(THREE, "module acme/*").await;
    assert_eq!(peer_get(&three, &two, &package).await, 200);
    assert_eq!(three.pull().await, 1);
}

/// R6: versions stay when their peer is accepted for less, and nobody says any more who reads them.
async fn a_name_for_which_nobody_is_accepted_any_more_is_not_shared(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    three.join(&two, "module three/*", "*").await;
    assert_eq!(three.pull().await, 0);
    let (maker, accepts, by) = (name(ONE), "*".parse().unwrap(), by_ops());
    let approved = three.store().registry_peer_approve(&maker, &accepts, &by);
    assert!(approved.await.unwrap().is_some());
    let package = publish_privately(&one, &two).await;
    assert_eq!(peer_get(&three, &two, &package).await, 404);

    two.accepts(ONE, "go *").await;
    assert!(two.is_here(VPC).await);
    assert_eq!(peer_get(&three, &two, &package).await, 404);
    let page = page_of(&three, &two, "*").await;
    assert_eq!(page["withheld"].as_array().unwrap().len(), 1);
    assert_eq!(three.pull().await, 0);
    assert!(three.version(VPC).await.is_none());

    // Somebody is accepted for it again, and it is read again there.
    let public = PeerTerms {
        accepts: Some("*".parse().unwrap()),
        visibility: Some(Visibility::Public),
        ..PeerTerms::default()
    };
    two.change(ONE, public).await;
    assert_eq!(peer_get(&three, &two, &package).await, 200);
    assert_eq!(three.pull().await, 1);
    // A name that was public has no readers then: neither other deployments nor clients get it.
    two.accepts(ONE, "go *").await;
    assert_eq!(peer_get(&three, &two, &package).await, 404);
    assert_eq!(two.server.status(VPC_LIST, &two.token).await, 404);
}

/// After 404, `go` would fetch the same code elsewhere. Versions that nobody reads any more are 404 until their takedown.
async fn a_takedown_stays_one_when_its_peer_is_accepted_for_less(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let (newer_vpc, newer_net) = ("module acme/vpc/aws 1.3.0", "go example.com/net v1.1.0");
    for (key, files) in [
        (VPC, &MODULE[..]),
        (newer_vpc, &MODULE[..]),
        (NET, &GO_MODULE[..]),
        (newer_net, &GO_MODULE[..]),
    ] {
        one.admin.publish(key, files).await;
    }
    assert_eq!(two.pull().await, 4);
    two.peers.download_due().await.unwrap();
    let link = vpc_path(&two).await;
    let (security, legal) = (TakedownKind::Security, TakedownKind::Legal);
    one.admin.take_down(NET, security, "has a key").await;
    one.admin.take_down(VPC, legal, "A court said so.").await;
    assert_eq!(two.pull().await, 2);
    let less = "module other/*";
    two.accepts(ONE, less).await;

    let of_go = [
        format!("{NET_AT}/v1.0.0.info"),
        format!("{NET_AT}/v1.0.0.mod"),
        format!("{NET_AT}/v1.0.0.zip"),
        "/registry/go/cached-only/example.com/net/@v/v1.0.0.info".to_owned(),
        format!("/registry/go/sumdb/{TWO}/lookup/example.com/net@v1.0.0"),
    ];
    let of_terraform = [VPC_LIST.replace("versions", "1.2.3/download"), link];
    let latest = "/registry/go/example.com/net/@latest";
    let list = format!("{NET_AT}/list");
    let lists = [latest, list.as_str(), VPC_LIST];
    let (_, stranger) = two.admin.token(&["read:go example.org/..."]).await;
    for path in &of_go {
        let answer = two.server.get(path, &two.token).await;
        let text = "example.com/net v1.0.0 was taken down for security on 2026-03-02: has a key.\n";
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (403, text),
            "{path}"
        );
        assert_eq!(two.server.status(path, &stranger).await, 404, "{path}");
    }
    for path in &of_terraform {
        let answer = two.server.get(path, &two.token).await;
        let text =
            "acme/vpc/aws 1.2.3 was taken down for legal reasons on 2026-03-02: A court said so.\n";
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (451, text),
            "{path}"
        );
    }
    let newer = format!("{NET_AT}/v1.1.0.info");
    for path in lists.into_iter().chain([newer.as_str()]) {
        assert_eq!(two.server.status(path, &two.token).await, 404, "{path}");
    }

    // Nothing is left of either name.
    two.accepts(ONE, "*").await;
    one.admin.take_down(newer_net, security, "it too").await;
    one.admin.take_down(newer_vpc, security, "it too").await;
    assert_eq!(two.pull().await, 2);
    two.accepts(ONE, less).await;
    for path in lists {
        let answer = two.server.get(path, &two.token).await;
        assert_eq!(answer.status.as_u16(), 403, "{path}");
        assert!(answer.text().contains(": it too."), "{}", answer.text());
        assert_eq!(two.server.status(path, &stranger).await, 404, "{path}");
    }

    // Private names look as if they were not here, and their readers still learn of the takedowns.
    let private = PeerTerms {
        accepts: Some("module acme/*\ngo example.com/net/...".parse().unwrap()),
        visibility: Some(Visibility::Owner),
        ..PeerTerms::default()
    };
    two.change(ONE, private).await;
    two.accepts(ONE, less).await;
    let (_, named) = two.admin.token(&["read:go example.com/net/..."]).await;
    for path in of_go.iter().map(String::as_str).chain([latest]) {
        assert_eq!(two.server.status(path, &two.token).await, 404, "{path}");
        assert_eq!(two.server.status(path, &named).await, 403, "{path}");
    }
}

/// R6: others are accepted for all names, and those of a private peer stay private when it is accepted for fewer.
async fn private_names_stay_private_when_their_peer_is_accepted_for_less(db: &TestDb) {
    let (one, two, three) = Box::pin(chain(db, &[])).await;
    let terms = |accepts: &str, visibility| PeerTerms {
        accepts: Some(accepts.parse().unwrap()),
        visibility: Some(visibility),
        ..PeerTerms::default()
    };
    let (both, less) = ("module acme/*\ngo example.com/...", "go example.com/...");
    let (_, named) = two.admin.token(&["read:module acme/*"]).await;
    let package = async || {
        let path = format!("/registry/peer/v1/packages/{}", digest_of(&two, VPC).await);
        peer_get(&three, &two, &path).await
    };
    let listed = async |token: &str| two.server.status(VPC_LIST, token).await;
    two.change(ONE, terms(both, Visibility::Owner)).await;
    one.admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    two.peers.download_due().await.unwrap();

    two.accepts(ONE, less).await;
    assert_eq!(two.peer(ONE).await.closed.to_string(), "module acme/*");
    assert_eq!((package().await, three.pull().await), (404, 0));
    assert_eq!((listed(&two.token).await, listed(&named).await), (404, 200));
    // The patterns are accepted again, and a join with other terms replaces them.
    two.accepts(ONE, both).await;
    assert_eq!(two.peer(ONE).await.closed.to_string(), "");
    assert!(two.turn(ONE, PeerState::Joined, PeerState::Removed).await);
    one.join(&two, less, "*").await;
    assert_eq!(two.peer(ONE).await.accepts.to_string(), less);
    assert_eq!((package().await, three.pull().await), (404, 0));
    assert_eq!((listed(&two.token).await, listed(&named).await), (404, 200));

    // It becomes public for other names, or is accepted for these and nobody opens them.
    two.change(ONE, terms(less, Visibility::Public)).await;
    for accepts in [less, both] {
        two.accepts(ONE, accepts).await;
        assert_eq!(two.peer(ONE).await.closed.to_string(), "module acme/*");
        assert_eq!(package().await, 404);
        assert_eq!((listed(&two.token).await, listed(&named).await), (404, 200));
    }
    two.change(ONE, terms("*", Visibility::Public)).await;
    assert_eq!(two.peer(ONE).await.closed.to_string(), "");
    assert_eq!((package().await, three.pull().await), (200, 1));
    assert_eq!((listed(&two.token).await, listed(&named).await), (200, 200));
}

/// R6: who guesses a private name learns nothing of it, also when its peer is accepted for public ones alone.
async fn a_private_takedown_stays_private_when_its_peer_becomes_public_for_others(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let terms = |accepts: &str, visibility| PeerTerms {
        accepts: Some(accepts.parse().unwrap()),
        visibility: Some(visibility),
        ..PeerTerms::default()
    };
    let private = "go example.com/net/...";
    two.change(ONE, terms(private, Visibility::Owner)).await;
    one.admin.publish(NET, &GO_MODULE).await;
    assert_eq!(two.pull().await, 1);
    one.admin
        .take_down(NET, TakedownKind::Security, "has a key")
        .await;
    assert_eq!(two.pull().await, 1);
    let (_, named) = two.admin.token(&["read:go example.com/net/..."]).await;
    let path = format!("{NET_AT}/v1.0.0.info");
    let statuses = async || {
        let anybody = two.server.status(&path, &two.token).await;
        (anybody, two.server.status(&path, &named).await)
    };
    assert_eq!(statuses().await, (404, 403));
    // The same path in another case is not that of the module.
    for accepts in ["module acme/*", "go example.com/Net/..."] {
        two.change(ONE, terms(accepts, Visibility::Public)).await;
        assert_eq!(two.peer(ONE).await.closed.to_string(), private);
        assert_eq!(statuses().await, (404, 403), "{accepts}");
    }
    two.change(ONE, terms(private, Visibility::Public)).await;
    assert_eq!(two.peer(ONE).await.closed.to_string(), "");
    assert_eq!(statuses().await, (403, 403));
}

/// R6: the row of a removed peer says who reads its versions, so no other deployment takes it over.
async fn nobody_joins_in_place_of_a_removed_peer(db: &TestDb) {
    let (one, two, three) = Box::pin(chain(db, &[])).await;
    let package = publish_privately(&one, &two).await;
    assert!(two.turn(ONE, PeerState::Joined, PeerState::Removed).await);
    let same = Deployment::open(db.backend, ONE, &[]).await;
    let word = two.invite(&same, "*", "go *").await;
    let request = Deployment::request(&two, &word, "*", "*");
    let refused = same.peers.join(request, &by_ops()).await.unwrap();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("another key"), "{refused}");
    assert!(refused.contains("a new database"), "{refused}");
    let left = two.peer(ONE).await;
    assert_eq!(left.state, PeerState::Removed);
    assert_eq!(left.verifier, *one.admin.registry.verifier());
    assert_eq!(left.accepts.to_string(), "*");

    // It comes back with its own key. The invitation is for public names, and those that are here stay private.
    one.join(&two, "*", "*").await;
    let back = two.peer(ONE).await;
    assert_eq!(
        (back.state, back.visibility),
        (PeerState::Joined, Visibility::Owner)
    );
    assert_eq!(peer_get(&three, &two, &package).await, 404);
    assert_eq!(three.pull().await, 0);
    let public = PeerTerms {
        visibility: Some(Visibility::Public),
        ..PeerTerms::default()
    };
    two.change(ONE, public).await;
    assert_eq!(peer_get(&three, &two, &package).await, 200);
    assert_eq!(three.pull().await, 1);
}

async fn what_is_shared_cannot_be_guessed_from_its_digest(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    two.join(&three, "*", "*").await;
    let of_one = page_of(&two, &one, "*").await["sharing"].clone();
    let of_three = page_of(&two, &three, "*").await["sharing"].clone();
    assert_ne!(of_one, of_three);
    assert_eq!(page_of(&two, &one, "*").await["sharing"], of_one);
    one.admin
        .namespace("module hidden", Visibility::Owner)
        .await;
    assert_ne!(page_of(&two, &one, "*").await["sharing"], of_one);
}

async fn a_download_that_cannot_be_kept_here_comes_last(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    one.admin.publish(VPC, &MODULE).await;
    one.admin.publish(NET, &GO_MODULE).await;
    two.pull().await;
    // A file is in the place of the directory of packages.
    let packages = two.db.dir.path().join("packages");
    let aside = two.db.dir.path().join("aside");
    std::fs::rename(&packages, &aside).unwrap();
    std::fs::write(&packages, "").unwrap();
    two.peers.download_due().await.unwrap_err();
    for key in [VPC, NET] {
        let key = key.parse().unwrap();
        let waiting = two.store().registry_download(&key).await.unwrap().unwrap();
        assert!(
            waiting.attempts == 1 && waiting.next_at > two.db.now(),
            "{waiting:?}"
        );
    }
    std::fs::remove_file(&packages).unwrap();
    std::fs::rename(&aside, &packages).unwrap();
    two.db.clock.advance(Duration::from_mins(1));
    assert_eq!(two.peers.download_due().await.unwrap().arrived, 2);
    let zip = format!("{NET_AT}/v1.0.0.zip");
    assert_eq!(two.server.status(&zip, &two.token).await, 200);
}

store_test!(
    a_walk_that_begins_again_merges_nothing_of_another_past,
    a_peer_that_shares_something_else_all_the_time_is_read_again_once_an_hour,
    an_answer_of_a_proxy_is_not_the_end_of_a_log,
    a_pattern_that_is_wider_than_a_namespace_does_not_name_it,
    takedowns_are_counted_by_their_maker_also_through_a_relay,
    a_takedown_travels_on_through_a_deployment_that_has_fetched_the_version,
    an_agreement_after_a_brake_ends_after_a_day,
    takedowns_of_versions_that_were_never_here_do_not_brake,
    nothing_of_a_maker_that_was_stopped_is_merged_from_a_page_under_way,
    a_merge_does_not_overwrite_what_an_administrator_decides_meanwhile,
    proposals_and_removed_peers_keep_nobody_out,
    a_peer_adds_only_so_many_versions_and_bytes,
    a_peer_is_not_failing_because_another_one_was_stopped,
    wrong_packages_are_given_up_until_somebody_wants_them,
    a_peer_that_sends_slowly_does_not_stop_other_downloads,
    a_peer_with_many_packages_does_not_stop_other_downloads,
    a_digest_alone_brings_no_package_and_no_bytes_are_served_unseen,
    private_names_of_a_peer_do_not_go_to_others,
    a_name_for_which_nobody_is_accepted_any_more_is_not_shared,
    a_takedown_stays_one_when_its_peer_is_accepted_for_less,
    private_names_stay_private_when_their_peer_is_accepted_for_less,
    a_private_takedown_stays_private_when_its_peer_becomes_public_for_others,
    nobody_joins_in_place_of_a_removed_peer,
    what_is_shared_cannot_be_guessed_from_its_digest,
    a_download_that_cannot_be_kept_here_comes_last,
);
