//! Pages of another deployment: what they cost, and several records about one version that come together.

use lockkeeper::features::registry::{RegistryVersion, Visibility};
use lockkeeper::model::Sha256Digest;
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::records::TakedownKind;
use lockkeeper_registry::states::VersionState;
use serde_json::Value;

use super::deployments::Deployment;
use super::pages::{SIGNED_IN, page};
use super::peers::{MODULE, OTHER_MODULE, digest_of, two};
use crate::support::db::{Backend, TestDb, store_test};
use crate::support::log;

const ONE: &str = "one.example.com";
const TWO: &str = "two.example.com";
const THREE: &str = "three.example.com";

/// Versions that are fetched from a repository.
const FETCHED: &str = "go github.com/acme/net v1.0.0";
const LATER_FETCHED: &str = "go github.com/acme/net v1.1.0";
const FETCHED_FILES: [(&str, &[u8]); 2] = [
    ("go.mod", b"module github.com/acme/net\n"),
    ("net.go", b"package net\n"),
];
/// Flags of a deployment that would fetch them.
const FETCHES: [(&str, &str); 2] = [
    ("registry-vcs-allowlist", "github.com"),
    ("registry-on-miss", "go *=wait"),
];

/// Maximum number of statements about the registry in a pull of one page, with additions, deprecations and takedowns, and with the
/// removal of one package. It is the current number. Lower it when you save some.
const MOST_STATEMENTS: usize = 28;

/// A page of 120 records sends exactly the statements of a page of four.
#[tokio::test]
async fn the_number_of_records_of_a_page_adds_no_statements() {
    // Only statements of PostgreSQL are listened to, so those of the sender do not count.
    let one = Deployment::open(Backend::Sqlite, ONE, &[]).await;
    let two = Deployment::open(Backend::Postgres, TWO, &[]).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    // With an odd number of records before it, each page reads a hash of the tree.
    one.admin
        .publish("module acme/first/aws 1.0.0", &MODULE)
        .await;
    assert_eq!(two.pull().await, 1);
    let mut pages = Vec::new();
    for (name, count) in [("few", 1), ("many", 30)] {
        for number in 0..count {
            let kept = format!("module acme/{name}/aws 1.{number}.0");
            let gone = format!("module acme/{name}/aws 2.{number}.0");
            one.admin.publish(&kept, &MODULE).await;
            one.admin.publish(&gone, &MODULE).await;
            one.admin.deprecate(&kept, "old", None).await;
            one.admin
                .take_down(&gone, TakedownKind::Mistake, "wrong")
                .await;
        }
        let heard = log::listen();
        assert_eq!(two.pull().await, 4 * count);
        let heard = heard.end();
        let is_counted = |line: &&str| line.contains("db.statement=") && line.contains("registry_");
        let statements: Vec<String> = heard
            .lines()
            .filter(is_counted)
            .map(ToOwned::to_owned)
            .collect();
        pages.push(statements);
    }
    let [few, many] = pages.as_slice() else {
        panic!("two pages were read")
    };
    assert_eq!(few.len(), many.len(), "{}", many.join("\n"));
    assert!(
        (1..=MOST_STATEMENTS).contains(&many.len()),
        "{} statements:\n{}",
        many.len(),
        many.join("\n")
    );
    assert_eq!(two.fault().await, None);
}

/// The contents of the versions here are read together, whether there is one conflict or many.
#[tokio::test]
async fn the_number_of_conflicts_adds_no_statements() {
    let one = Deployment::open(Backend::Sqlite, ONE, &[]).await;
    let two = Deployment::open(Backend::Postgres, TWO, &SIGNED_IN).await;
    for deployment in [&one, &two] {
        let admin = &deployment.admin;
        admin.namespace("module acme", Visibility::Public).await;
    }
    two.join(&one, "module acme/*", "module acme/*").await;
    let mut conflicts = 0;
    for (name, count) in [("few", 1), ("many", 20)] {
        for number in 0..count {
            let key = format!("module acme/{name}/aws 1.{number}.0");
            one.admin.publish(&key, &MODULE).await;
            two.admin.publish(&key, &OTHER_MODULE).await;
        }
        assert_eq!(two.pull().await, 0);
        conflicts += count;
        let who = Some("ops:a long password of the tests");
        let heard = log::listen();
        let answer = page(&two.server, "/api/registry/peers", who).await;
        let heard = heard.end();
        let told: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(told["conflicts"].as_array().unwrap().len(), conflicts);
        let reads = heard
            .lines()
            .filter(|line| line.contains("db.statement=") && line.contains("registry_versions"));
        assert_eq!(reads.count(), 1, "{conflicts} conflicts: {heard}");
    }
}

/// Everything that a deployment knows of the names of these tests, with the bytes and the number of fetched versions, and the
/// number of downloads.
async fn known(at: &Deployment) -> (Vec<RegistryVersion>, (u64, u64), i64) {
    let mut versions = Vec::new();
    for name in ["module acme/vpc/aws", "go github.com/acme/net"] {
        let name: RegistryName = name.parse().unwrap();
        versions.extend(at.store().registry_versions(&name).await.unwrap());
    }
    let cache = at.store().registry_cache().await.unwrap();
    let downloads = at.store().registry_download_count().await.unwrap();
    (versions, (cache.bytes, cache.versions), downloads)
}

async fn a_page_ends_as_its_records_one_by_one(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &FETCHES).await;
    let three = Deployment::open(db.backend, THREE, &FETCHES).await;
    one.admin.namespace("module acme", Visibility::Public).await;
    for reader in [&two, &three] {
        reader.join(&one, "*", "*\ngo github.com/...").await;
    }
    for (version, files) in [
        ("1.0.0", &MODULE),
        ("1.1.0", &MODULE),
        ("1.2.0", &OTHER_MODULE),
        ("1.3.0", &OTHER_MODULE),
    ] {
        let key = format!("module acme/vpc/aws {version}");
        one.admin.publish(&key, files).await;
        assert_eq!(two.pull().await, 1);
    }
    let shared = digest_of(&one, "module acme/vpc/aws 1.0.0").await;
    let gone = digest_of(&one, "module acme/vpc/aws 1.2.0").await;
    one.admin
        .deprecate("module acme/vpc/aws 1.0.0", "old", None)
        .await;
    assert_eq!(two.pull().await, 1);
    one.fetch(FETCHED, &FETCHED_FILES).await;
    assert_eq!(two.pull().await, 1);
    for key in [
        "module acme/vpc/aws 1.1.0",
        "module acme/vpc/aws 1.2.0",
        "module acme/vpc/aws 1.3.0",
        FETCHED,
    ] {
        one.admin
            .take_down(key, TakedownKind::Mistake, "wrong")
            .await;
        assert_eq!(two.pull().await, 1);
    }
    one.fetch(LATER_FETCHED, &FETCHED_FILES).await;
    assert_eq!(two.pull().await, 1);

    assert_eq!(three.pull().await, 11);
    let (versions, cache, downloads) = known(&three).await;
    assert_eq!(known(&two).await, (versions.clone(), cache, downloads));
    let states: Vec<VersionState> = versions
        .iter()
        .map(|version| version.known.state())
        .collect();
    assert_eq!(
        states,
        [
            VersionState::Deprecated,
            VersionState::Deleted,
            VersionState::Deleted,
            VersionState::Deleted,
            VersionState::Deleted,
            VersionState::Added,
        ]
    );
    // The takedown has freed the bytes of a fetched version, and not its place.
    let located = versions[5].known.content().unwrap();
    let sizes = located.content.packages.iter().map(|package| package.size);
    let bytes: u64 = sizes.sum();
    assert_eq!((cache, downloads), ((bytes, 2), 2));
    for at in [&two, &three] {
        at.peers.download_due().await.unwrap();
        let store = at.store();
        let is_here =
            async |digest: &Sha256Digest| store.registry_package_is_here(digest).await.unwrap();
        assert!(is_here(&shared).await && !is_here(&gone).await);
        assert_eq!(at.fault().await, None);
    }
}

async fn a_package_goes_with_the_last_version_that_a_page_takes_down(db: &TestDb) {
    let (one, two) = Box::pin(two(db)).await;
    let keys = ["1.0.0", "1.1.0", "1.2.0"].map(|version| format!("module acme/vpc/aws {version}"));
    for key in &keys {
        one.admin.publish(key, &MODULE).await;
    }
    assert_eq!(two.pull().await, 3);
    two.peers.download_due().await.unwrap();
    let package = digest_of(&two, &keys[0]).await;
    let is_kept = async || {
        let package = two.admin.registry.package(&package).await;
        package.unwrap().is_some()
    };
    assert!(is_kept().await);
    one.admin
        .take_down(&keys[0], TakedownKind::Mistake, "wrong")
        .await;
    assert_eq!(two.pull().await, 1);
    assert!(is_kept().await, "two versions have it");
    for key in &keys[1..] {
        one.admin
            .take_down(key, TakedownKind::Mistake, "wrong")
            .await;
    }
    assert_eq!(two.pull().await, 2);
    assert!(!is_kept().await);
    assert_eq!((one.fault().await, two.fault().await), (None, None));
}

/// R1: a package that was taken down is not kept for a version whose package has never come from its peer.
async fn a_package_is_not_kept_for_a_version_that_is_still_at_a_peer(db: &TestDb) {
    let one = Deployment::open(db.backend, ONE, &[]).await;
    let two = Deployment::open(db.backend, TWO, &[]).await;
    let three = Deployment::open(db.backend, THREE, &[]).await;
    for (at, namespace) in [(&one, "module acme"), (&two, "module two")] {
        at.admin.namespace(namespace, Visibility::Public).await;
    }
    one.join(&two, "*", "*").await;
    three.join(&one, "*", "*").await;
    three.join(&two, "*", "*").await;
    let (down, same) = ("module acme/vpc/aws 1.2.3", "module two/m/aws 1.0.0");
    one.admin.publish(down, &MODULE).await;
    assert_eq!(three.pull().await, 1);
    three.peers.download_due().await.unwrap();
    assert!(three.is_here(down).await);
    two.admin.publish(same, &MODULE).await;
    let package = digest_of(&one, down).await;
    assert_eq!(digest_of(&two, same).await, package);
    assert_eq!((three.pull().await, one.pull().await), (1, 1));
    let is_kept = async |at: &Deployment| {
        let package = at.admin.registry.package(&package).await;
        package.unwrap().is_some()
    };
    assert!(is_kept(&one).await && is_kept(&three).await);

    // One takes it down on its own, and the other one with a page.
    two.reachable(false);
    one.admin
        .take_down(down, TakedownKind::Security, "has a key")
        .await;
    assert!(!is_kept(&one).await);
    assert_eq!(three.pull().await, 1);
    assert!(!is_kept(&three).await);

    two.reachable(true);
    for at in [&one, &three] {
        assert_eq!(at.peers.download_due().await.unwrap().arrived, 1);
        assert!(at.is_here(same).await && is_kept(at).await);
        assert_eq!(at.fault().await, None);
    }
}

store_test!(
    a_page_ends_as_its_records_one_by_one,
    a_package_goes_with_the_last_version_that_a_page_takes_down,
    a_package_is_not_kept_for_a_version_that_is_still_at_a_peer,
);
