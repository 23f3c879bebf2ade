//! Packages in object stores: a store of the tests that can fail and lie, and real servers that speak the protocols of S3
//! and Azure, which `make interop` installs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use hmac::{Hmac, KeyInit as _, Mac as _};
use lockkeeper::context::PackagePlace;
use lockkeeper::features::registry::{
    Published, Registry, RegistryError, VersionOrigin, Visibility,
};
use lockkeeper::model::Sha256Digest;
use lockkeeper::objects::RemoteObjects;
use lockkeeper::seal::keyring;
use lockkeeper_registry::records::TakedownKind;
use lockkeeper_registry::versions::VersionKey;
use regex::Regex;
use sha2::Sha256;
use tokio::net::TcpListener;

use super::deployments::Deployment;
use super::peers::{MODULE, VPC, digest_of, vpc_path};
use super::world::{HOST, RegistryAdmin, Replica, archive, by_ops, write_keys};
use crate::support::db::{Backend, TestDb, store_test, tell};
use crate::support::object_store::{FakeStore, STORE_URL, StoreFault, key_of, variables_of_s3};

const GO_MOD: &[u8] = b"module example.com/net\n";

/// Returns the store at an address, as a server with these variables has it.
pub fn objects(url: &str, variables: &[(&'static str, String)]) -> RemoteObjects {
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| ((*name).to_owned(), value.clone()));
    RemoteObjects::open(&url.parse().unwrap(), &variables.collect()).unwrap()
}

/// A registry in an object store.
struct Site {
    admin: RegistryAdmin,
    url: &'static str,
    variables: Vec<(&'static str, String)>,
}

impl Site {
    async fn open(db: &TestDb, url: &'static str, variables: Vec<(&'static str, String)>) -> Self {
        let admin = RegistryAdmin::in_store(db, objects(url, &variables)).await;
        admin.namespace("go example.com", Visibility::Public).await;
        Self {
            admin,
            url,
            variables,
        }
    }

    /// Starts a server with a disk of its own.
    async fn server(&self, db: &TestDb, number: u32) -> Replica {
        let data = db.dir.path().join(format!("disk-{number}"));
        std::fs::create_dir(&data).unwrap();
        let flags = [
            ("registry-anonymous-read", "true"),
            ("registry-store", self.url),
        ];
        let variables = self.variables.iter();
        let variables: Vec<(&str, &str)> = variables
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        self.admin
            .server_in(db, number, &data, &flags, &variables)
            .await
    }

    /// Publishes a version with a file of this content. Returns its package.
    async fn publish(&self, version: &str, content: &[u8]) -> (Vec<u8>, Sha256Digest) {
        let key = format!("go example.com/net {version}");
        let files = [("go.mod", GO_MOD), ("net.go", content)];
        self.admin.publish(&key, &files).await;
        let package = archive(&key.parse().unwrap(), &files);
        let digest = Sha256Digest::of(&package);
        (package, digest)
    }
}

fn zip_of(version: &str) -> String {
    format!("/registry/go/example.com/net/@v/{version}.zip")
}

/// Returns bytes that cannot be compressed.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let bytes = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    bytes.flatten().take(size).collect()
}

/// Everything that works with every object store.
async fn story(db: &TestDb, url: &'static str, variables: Vec<(&'static str, String)>) {
    let site = Site::open(db, url, variables).await;
    let small = site.publish("v1.0.0", b"package net\n").await;
    // More than one part of an upload.
    let content = noise(10 << 20);
    let large = site.publish("v1.1.0", &content).await;
    assert!(large.0.len() > 8 << 20, "{}", large.0.len());
    let server = site.server(db, 1).await;
    for (version, (package, _)) in [("v1.0.0", &small), ("v1.1.0", &large)] {
        for _ in 0..2 {
            let answer = server.get(&zip_of(version), "").await;
            assert_eq!(
                answer.status,
                200,
                "{version}: {}",
                answer.header("content-type")
            );
            assert!(answer.body == package.as_slice(), "{version}");
        }
        let range = [("range", "bytes=10-20")];
        let part = server.request(Method::GET, &zip_of(version), &range).await;
        assert_eq!(part.status, 206);
        assert_eq!(part.body, package[10..=20]);
    }
    // The same files again change nothing.
    let key: VersionKey = "go example.com/net v1.1.0".parse().unwrap();
    let files = [("go.mod", GO_MOD), ("net.go", content.as_slice())];
    let registry = &site.admin.registry;
    let again = site.admin.package(&key, &files).await;
    let ops = by_ops();
    let again = registry.publish(again, VersionOrigin::Command, &ops);
    assert_eq!(again.await.unwrap(), Published::Same);
    let verified = registry.verify(true).await.unwrap().unwrap();
    assert_eq!((verified.versions, verified.packages), (2, 2));
    site.admin
        .take_down(
            "go example.com/net v1.1.0",
            TakedownKind::Security,
            "has a key",
        )
        .await;
    assert_eq!(server.status(&zip_of("v1.1.0"), "").await, 403);
    assert!(registry.package(&large.1).await.unwrap().is_none());
    let blobs = registry.blobs();
    assert!(blobs.has(&small.1).await.unwrap() && !blobs.has(&large.1).await.unwrap());
    assert!(!blobs.remove(&large.1).await.unwrap());
}

async fn packages_are_kept_in_an_object_store_and_served_from_verified_copies(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    story(db, STORE_URL, variables).await;
    let keys = store.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(
        keys[0].starts_with("mods/sha256/") && keys[1] == "mods/store-id",
        "{keys:?}"
    );
    assert!(store.parts.lock().unwrap().is_empty());
}

/// R7: one reading of the store for all requests.
async fn many_requests_for_a_package_read_it_once(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    let (package, digest) = site.publish("v1.0.0", &noise(600_000)).await;
    let server = Arc::new(site.server(db, 1).await);
    let requests = (0..20).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.get(&zip_of("v1.0.0"), "").await })
    });
    for request in requests.collect::<Vec<_>>() {
        assert!(request.await.unwrap().body == package.as_slice());
    }
    assert_eq!(store.count(&Method::GET, &digest), 1);
}

async fn a_store_that_is_away_keeps_nothing_but_its_packages_from_being_served(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    let (package, _) = site.publish("v1.0.0", b"package net // 0\n").await;
    site.publish("v1.1.0", b"package net // 1\n").await;
    let server = site.server(db, 1).await;
    assert_eq!(server.status(&zip_of("v1.0.0"), "").await, 200);
    store.set(StoreFault::Away);
    let started_now = site.server(db, 2).await;
    for server in [&server, &started_now] {
        for file in ["list", "v1.1.0.info", "v1.1.0.mod"] {
            let path = format!("/registry/go/example.com/net/@v/{file}");
            assert_eq!(server.status(&path, "").await, 200, "{file}");
        }
        let away = server.get(&zip_of("v1.1.0"), "").await;
        assert_eq!(
            (away.status.as_u16(), away.header("retry-after")),
            (503, "5")
        );
        assert!(!away.text().contains("127.0.0.1"), "{}", away.text());
    }
    assert!(server.get(&zip_of("v1.0.0"), "").await.body == package.as_slice());
    let key: VersionKey = "go example.com/net v1.2.0".parse().unwrap();
    let files = [
        ("go.mod", GO_MOD),
        ("net.go", b"package net // 2\n".as_slice()),
    ];
    let registry = &site.admin.registry;
    let staged = site.admin.package(&key, &files).await;
    let ops = by_ops();
    let failed = registry.publish(staged, VersionOrigin::Command, &ops);
    let error = failed.await.unwrap_err();
    assert!(error.is_store_away(), "{error}");
    assert!(registry.version(&key).await.unwrap().is_none());
    store.set(StoreFault::None);
    site.admin
        .publish("go example.com/net v1.2.0", &files)
        .await;
    // The second server has looked for the store when it started.
    for (server, away) in [(server, 1), (started_now, 2)] {
        for version in ["v1.0.0", "v1.1.0", "v1.2.0"] {
            assert_eq!(server.status(&zip_of(version), "").await, 200, "{version}");
        }
        assert_eq!(server.store_failures("away").await, Some(away));
    }
}

/// R4: bytes with another checksum are not served.
async fn wrong_bytes_of_a_store_are_noticed_and_never_served(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    let (package, digest) = site.publish("v1.0.0", b"package net\n").await;
    let server = site.server(db, 1).await;
    for fault in [StoreFault::Lies, StoreFault::CutsOff] {
        store.set(fault);
        let wrong = server.get(&zip_of("v1.0.0"), "").await;
        assert_eq!(wrong.status, 500, "{fault:?}");
        // The copy that the publication has left here hides nothing.
        let verified = site.admin.registry.verify(true).await.unwrap();
        assert!(verified.is_err(), "{fault:?}");
    }
    assert_eq!(server.store_failures("wrong").await, Some(2));
    store.set(StoreFault::None);
    // Damaged for good, and then mended by the same files.
    for (number, damaged, said) in [
        (2, "damaged", "has 7 bytes instead of"),
        (3, "", "it is empty"),
    ] {
        let object = (key_of(&digest), damaged.as_bytes().to_vec());
        store.objects.lock().unwrap().extend([object]);
        let registry = &site.admin.registry;
        let fault = registry.verify(true).await.unwrap().unwrap_err();
        assert!(fault.to_string().contains(said), "{fault}");
        let server = site.server(db, number).await;
        assert_eq!(server.status(&zip_of("v1.0.0"), "").await, 500);
        assert_eq!(server.store_failures("wrong").await, Some(1), "{said}");
        let key: VersionKey = "go example.com/net v1.0.0".parse().unwrap();
        let files = [("go.mod", GO_MOD), ("net.go", b"package net\n".as_slice())];
        let again = site.admin.package(&key, &files).await;
        let ops = by_ops();
        let again = registry.publish(again, VersionOrigin::Command, &ops);
        assert_eq!(again.await.unwrap(), Published::Same);
        assert!(registry.verify(true).await.unwrap().is_ok());
        assert!(server.get(&zip_of("v1.0.0"), "").await.body == package.as_slice());
    }
}

async fn a_package_that_the_store_has_confirmed_and_lost_is_named_and_mended(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    let key: VersionKey = "go example.com/net v1.0.0".parse().unwrap();
    let files = [("go.mod", GO_MOD), ("net.go", b"package net\n".as_slice())];
    let package = archive(&key, &files);
    let digest = Sha256Digest::of(&package);
    let registry = &site.admin.registry;
    let ops = by_ops();
    store.set(StoreFault::LosesPackages);
    let staged = site.admin.package(&key, &files).await;
    let lost = registry.publish(staged, VersionOrigin::Command, &ops).await;
    let error = lost.unwrap_err();
    assert!(matches!(error, RegistryError::PackageGone(_)), "{error}");
    store.set(StoreFault::None);
    assert!(store.has_lost(&digest));
    // A server without a copy offers nothing, and does not say that there is no such version.
    let server = site.server(db, 1).await;
    assert_eq!(server.status(&zip_of("v1.0.0"), "").await, 500);
    assert_eq!(server.store_failures("missing").await, Some(1));
    let fault = registry.verify(true).await.unwrap().unwrap_err();
    assert!(fault.to_string().contains("is missing"), "{fault}");
    let again = site.admin.package(&key, &files).await;
    let again = registry.publish(again, VersionOrigin::Command, &ops);
    assert_eq!(again.await.unwrap(), Published::Same);
    assert!(!store.has_lost(&digest));
    assert!(registry.verify(true).await.unwrap().is_ok());
    assert!(server.get(&zip_of("v1.0.0"), "").await.body == package.as_slice());
}

/// R1: the base location stays at the peer until the store here really has the package.
async fn a_package_of_a_peer_that_the_store_loses_is_downloaded_again(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let one = Deployment::open(db.backend, "one.example.com", &[]).await;
    let two = Deployment::open_in_store(db.backend, "two.example.com", STORE_URL, &variables).await;
    let admin = &one.admin;
    admin.namespace("module acme", Visibility::Public).await;
    two.join(&one, "*", "*").await;
    admin.publish(VPC, &MODULE).await;
    assert_eq!(two.pull().await, 1);
    let digest = digest_of(&one, VPC).await;

    store.set(StoreFault::LosesPackages);
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (0, 1));
    assert!(store.has_lost(&digest));
    assert!(!two.is_here(VPC).await);
    let waiting = two.store().registry_download(&VPC.parse().unwrap()).await;
    let waiting = waiting.unwrap().unwrap();
    let why = "the store of packages here has confirmed the package and does not have it";
    assert_eq!((waiting.error.as_deref(), waiting.wrong), (Some(why), 0));
    assert_eq!(two.peer("one.example.com").await.wrong_packages, 0);
    // A client learns that the package is elsewhere, and not that it is damaged.
    assert_eq!(two.server.status(&vpc_path(&two).await, "").await, 503);
    assert_eq!(two.fault().await, None);

    store.set(StoreFault::None);
    two.db.clock.advance(Duration::from_mins(1));
    let report = two.peers.download_due().await.unwrap();
    assert_eq!((report.arrived, report.failed), (1, 0));
    assert!(store.keys().contains(&key_of(&digest)));
    assert!(two.is_here(VPC).await);
    let ours = one.server.get(&vpc_path(&one).await, "").await;
    let theirs = two.server.get(&vpc_path(&two).await, "").await;
    assert_eq!((theirs.status.as_u16(), theirs.body), (200, ours.body));
    assert_eq!(two.fault().await, None);
}

async fn nobody_waits_for_a_store_that_removes_a_package(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    let (_, digest) = site.publish("v1.0.0", b"package net\n").await;
    store.set(StoreFault::Holds);
    let key = "go example.com/net v1.0.0";
    let down = site.admin.take_down(key, TakedownKind::Mistake, "no");
    let meanwhile = async {
        store.held.notified().await;
        site.publish("v1.1.0", b"package net // 1\n").await;
        // The same bytes are not published at this moment, because they would be removed.
        let tomorrow = db.now() + TimeDelta::days(1);
        let announced = db.store().registry_package_announce(&digest, tomorrow);
        assert!(!announced.await.unwrap());
        store.set(StoreFault::None);
        store.released.notify_one();
    };
    tokio::join!(Box::pin(down), Box::pin(meanwhile));
    // On a slow machine, the removal was given up and is repeated.
    db.clock.advance(Duration::from_mins(6));
    site.admin.registry.remove_orphans().await.unwrap();
    assert_eq!(store.keys().len(), 2, "{:?}", store.keys());
    assert!(!store.keys().contains(&key_of(&digest)));
}

async fn an_object_that_cannot_be_removed_does_not_keep_the_others(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    let (_, retained) = site.publish("v1.0.0", b"package net // 0\n").await;
    let (_, other) = site.publish("v1.1.0", b"package net // 1\n").await;
    *store.retained.lock().unwrap() = Some(key_of(&retained));
    for version in ["v1.0.0", "v1.1.0"] {
        let key = format!("go example.com/net {version}");
        let kind = TakedownKind::Security;
        site.admin.take_down(&key, kind, "has a key").await;
        // The first one is due again, before the second one.
        db.clock.advance(Duration::from_mins(6));
    }
    assert!(store.keys().contains(&key_of(&retained)));
    assert!(!store.keys().contains(&key_of(&other)));
    let registry = &site.admin.registry;
    let error = registry.remove_orphans().await.unwrap_err().to_string();
    assert!(error.contains("refuses a request"), "{error}");
    *store.retained.lock().unwrap() = None;
    db.clock.advance(Duration::from_mins(6));
    assert_eq!(registry.remove_orphans().await.unwrap(), 1);
    assert!(!store.keys().contains(&key_of(&retained)));
}

async fn a_store_that_refuses_requests_gets_and_tells_no_secrets(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    let (package, digest) = site.publish("v1.0.0", b"package net\n").await;
    let server = site.server(db, 1).await;
    let key: VersionKey = "go example.com/net v1.2.0".parse().unwrap();
    let files = [
        ("go.mod", GO_MOD),
        ("net.go", b"package net // 2\n".as_slice()),
    ];
    for (fault, said) in [
        (StoreFault::Refuses, "403 Forbidden: SignatureDoesNotMatch"),
        (StoreFault::Redirects, "307 Temporary Redirect"),
    ] {
        store.set(fault);
        let blobs = site.admin.registry.blobs();
        let error = blobs.remove(&digest).await.unwrap_err().to_string();
        // Answers to HEAD have no text.
        assert!(error.contains(&said[..3]), "{error}");
        let staged = site.admin.package(&key, &files).await.staged;
        let error = blobs.keep(staged).await.unwrap_err();
        assert!(error.is_unusable() && !error.is_away(), "{error}");
        let error = error.to_string();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("secret-of-the-store"), "{error}");
        assert_eq!(server.status(&zip_of("v1.0.0"), "").await, 503, "{fault:?}");
    }
    assert_eq!(server.store_failures("refused").await, Some(2));
    let requests = store.requests.lock().unwrap().clone();
    assert!(!requests.iter().any(|(_, key)| key.contains("elsewhere")));
    store.set(StoreFault::None);
    assert!(server.get(&zip_of("v1.0.0"), "").await.body == package.as_slice());
}

async fn a_store_without_credentials_is_named_with_the_missing_variables(db: &TestDb) {
    let (_store, mut variables) = FakeStore::start().await;
    let keys = [
        "LOCKKEEPER_STORE_AWS_ACCESS_KEY_ID",
        "LOCKKEEPER_STORE_AWS_SECRET_ACCESS_KEY",
    ];
    variables.retain(|(name, _)| !keys.contains(name));
    // Nobody answers when the server wants the role of the machine.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    variables.push(("LOCKKEEPER_STORE_AWS_METADATA_ENDPOINT", nobody));
    let file = db.dir.path().join("keys");
    write_keys(&file);
    let place = PackagePlace {
        remote: Some(objects(STORE_URL, &variables)),
        ..PackagePlace::from(&db.dir.path().join("packages"))
    };
    let ring = Arc::new(keyring(&file).unwrap());
    let opened = Registry::open(
        db.store().clone(),
        Some(ring),
        HOST.parse().unwrap(),
        &place,
    );
    let error = opened.await.err().unwrap().to_string();
    for part in [
        "the store of packages cannot be used: `s3://packages/mods`: ",
        "the role of this machine was tried",
        keys[0],
        keys[1],
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("LOCKKEEPER_STORE_AWS_REGION"), "{error}");
}

async fn a_store_without_conditions_keeps_packages(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    store.set(StoreFault::NoConditions);
    let site = Site::open(db, STORE_URL, variables).await;
    let (package, _) = site.publish("v1.0.0", b"package net\n").await;
    let server = site.server(db, 1).await;
    assert!(server.get(&zip_of("v1.0.0"), "").await.body == package.as_slice());
}

#[test]
fn an_upload_whose_last_answer_is_lost_is_no_failure() {
    tell(async {
        let db = TestDb::new(Backend::Sqlite).await;
        let (store, variables) = FakeStore::start().await;
        let site = Site::open(&db, STORE_URL, variables).await;
        store.set(StoreFault::LosesAnswer);
        let (package, digest) = site.publish("v1.0.0", &noise(9 << 20)).await;
        assert!(store.objects.lock().unwrap()[&key_of(&digest)] == package);
    });
}

async fn the_store_of_another_database_is_refused(db: &TestDb) {
    let (store, variables) = FakeStore::start().await;
    let site = Site::open(db, STORE_URL, variables).await;
    site.publish("v1.0.0", b"package net\n").await;
    let open = || {
        let ring = Arc::new(keyring(&db.dir.path().join("keys")).unwrap());
        let place = PackagePlace {
            remote: Some(objects(STORE_URL, &site.variables)),
            ..PackagePlace::from(&db.dir.path().join("other"))
        };
        let store = db.store().clone();
        async move { Registry::open(store, Some(ring), HOST.parse().unwrap(), &place).await }
    };
    assert!(open().await.is_ok());
    let id = "mods/store-id".to_owned();
    let other = b"0123456789abcdef0123456789abcdef\n".to_vec();
    store.objects.lock().unwrap().insert(id.clone(), other);
    let error = open().await.err().unwrap().to_string();
    assert!(
        error.contains("is not the store of packages of this database"),
        "{error}"
    );
    store.objects.lock().unwrap().remove(&id);
    let error = open().await.err().unwrap().to_string();
    assert!(error.contains("is not a store of packages"), "{error}");
    assert!(!error.contains("secret-of-the-store"), "{error}");
    let ours = format!("{}\n", site.admin.registry.blobs().store_id());
    let object = (id, ours.clone().into_bytes());
    store.objects.lock().unwrap().extend([object]);
    assert!(open().await.is_ok());
    // The packages were copied from a directory, which is still a store.
    let dir = db.dir.path().join("other");
    std::fs::write(dir.join("store-id"), &ours).unwrap();
    let error = open().await.err().unwrap().to_string();
    assert!(
        error.contains("is still a store of packages, and so is `s3://packages/mods`"),
        "{error}"
    );
    std::fs::rename(dir.join("store-id"), dir.join("store-id.moved")).unwrap();
    assert!(open().await.is_ok());
    // A command without the flag publishes and removes nothing there.
    let ring = Arc::new(keyring(&db.dir.path().join("keys")).unwrap());
    let without = Registry::open(db.store().clone(), Some(ring), HOST.parse().unwrap(), &dir);
    let error = without.await.err().unwrap().to_string();
    assert!(error.contains("set --registry-store"), "{error}");
}

store_test!(
    packages_are_kept_in_an_object_store_and_served_from_verified_copies,
    many_requests_for_a_package_read_it_once,
    a_store_that_is_away_keeps_nothing_but_its_packages_from_being_served,
    wrong_bytes_of_a_store_are_noticed_and_never_served,
    a_package_that_the_store_has_confirmed_and_lost_is_named_and_mended,
    a_package_of_a_peer_that_the_store_loses_is_downloaded_again,
    nobody_waits_for_a_store_that_removes_a_package,
    an_object_that_cannot_be_removed_does_not_keep_the_others,
    a_store_that_refuses_requests_gets_and_tells_no_secrets,
    a_store_without_credentials_is_named_with_the_missing_variables,
    a_store_without_conditions_keeps_packages,
    the_store_of_another_database_is_refused,
);

/// A real server of an object store. Dropping it ends the process.
struct RealStore {
    process: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Drop for RealStore {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl RealStore {
    /// Starts a program that `make interop` has installed, on a port that it chooses, and waits until it tells its address.
    async fn start(name: &str, args: impl Fn(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("told");
        let process = start_program(&program(name), &args(dir.path()), &told);
        let mut store = Self {
            process,
            url: String::new(),
            _dir: dir,
        };
        let address =
            Regex::new(r"(?:Running|listens) on (http://127\.0\.0\.1:[1-9][0-9]*)\s").unwrap();
        let answers = async {
            loop {
                let text = std::fs::read_to_string(&told).unwrap();
                if let Some(found) = address.captures(&text) {
                    return found[1].to_owned();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let started = tokio::time::timeout(Duration::from_mins(2), answers).await;
        store.url = started.unwrap_or_else(|_| {
            let told = std::fs::read_to_string(&told).unwrap();
            panic!("{name} does not start: {told}")
        });
        store
    }

    /// Creates the bucket or container of the test with these headers.
    async fn create(&self, path: &str, headers: &[(&str, String)]) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client.put(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let answer = request.header("content-length", "0").send().await.unwrap();
        let status = answer.status();
        assert!(
            status.is_success(),
            "{status}: {}",
            answer.text().await.unwrap()
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a server of the test, which is no program of Lockkeeper"
)]
fn start_program(program: &Path, args: &[String], told: &Path) -> Child {
    let told = File::create(told).unwrap();
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.stdout(told.try_clone().unwrap()).stderr(told);
    command.spawn().unwrap()
}

fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("LOCKKEEPER_INTEROP").expect("run `make interop`");
    Path::new(&folder).join(name)
}

#[test]
#[ignore = "needs the server that `make interop` installs"]
fn packages_are_kept_in_s3() {
    tell(async {
        let moto = RealStore::start("moto", |_| {
            ["-H", "127.0.0.1", "-p", "0"].map(str::to_owned).to_vec()
        });
        let moto = moto.await;
        moto.create("/packages", &[]).await;
        let variables = variables_of_s3(moto.url.clone());
        story(&TestDb::new(Backend::Sqlite).await, STORE_URL, variables).await;
    });
}

/// Account and key of azurite, which are the same everywhere.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

#[test]
#[ignore = "needs the server that `make interop` installs"]
fn packages_are_kept_in_azure() {
    tell(async {
        let azurite = RealStore::start("azurite", |dir| {
            let dir = dir.display().to_string();
            let args = [
                "--blobHost",
                "127.0.0.1",
                "--blobPort",
                "0",
                "--location",
                &dir,
            ];
            let more = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"];
            args.iter()
                .chain(&more)
                .map(|arg| (*arg).to_owned())
                .collect()
        });
        let azurite = azurite.await;
        // The server of the tests does not look at the date.
        let (date, version) = ("Mon, 02 Mar 2026 09:00:00 GMT", "2021-12-02");
        let path = format!("/{ACCOUNT}/packages");
        let text = format!(
            "PUT{}x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}{path}\nrestype:container",
            "\n".repeat(12)
        );
        let key = STANDARD.decode(ACCOUNT_KEY).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(text.as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let headers = [
            ("x-ms-date", date.to_owned()),
            ("x-ms-version", version.to_owned()),
            ("authorization", format!("SharedKey {ACCOUNT}:{signature}")),
        ];
        azurite
            .create(&format!("{path}?restype=container"), &headers)
            .await;
        let variables = vec![
            (
                "LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_NAME",
                ACCOUNT.to_owned(),
            ),
            (
                "LOCKKEEPER_STORE_AZURE_STORAGE_ACCOUNT_KEY",
                ACCOUNT_KEY.to_owned(),
            ),
            (
                "LOCKKEEPER_STORE_AZURE_ENDPOINT",
                format!("{}/{ACCOUNT}", azurite.url),
            ),
            ("LOCKKEEPER_STORE_AZURE_ALLOW_HTTP", "true".to_owned()),
        ];
        let db = TestDb::new(Backend::Sqlite).await;
        story(&db, "az://packages/mods", variables).await;
    });
}
