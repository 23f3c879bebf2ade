//! Tests of the registry: versions and the log, namespaces, tokens, the deployment, and the verification of everything.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use lockkeeper::clock::ManualClock;
use lockkeeper::features::registry::{
    AddNamespace, Blobs, ChangeNamespace, CheckedPackage, Deprecated, ForeignVersions,
    InvalidToken, LogOutcome, NewChange, NewToken, Published, Registry, RegistryError,
    RegistryVersion, RemoveNamespace, StagedBlob, TakenDown, Token, TokenAction, TokenScope,
    VersionNotice, VersionOrigin, Visibility,
};
use lockkeeper::model::{LockEventKind, OwnerName, Reason, Sha256Digest};
use lockkeeper::seal::Keyring;
use lockkeeper::store::{DeleteOwner, Store};
use lockkeeper_registry::dirhash::{DirHash, hash_go_mod};
use lockkeeper_registry::go_zip::{GoModuleFiles, write_go_zip};
use lockkeeper_registry::names::{NameKind, NamePrefix, RegistryName};
use lockkeeper_registry::records::{
    Checksums, DeploymentName, LogId, PackageFile, PackageFiles, Record, RecordChange,
    RecordNotice, TakedownKind, VersionContent,
};
use lockkeeper_registry::signed_note::{NoteSigner, NoteVerifier, open_note};
use lockkeeper_registry::states::{BaseLocation, KnownVersion, RecordEffect, VersionState};
use lockkeeper_registry::tf_archive::{TfFile, write_tf_archive};
use lockkeeper_registry::tlog::{self, LogHash, Tile, TreeHead};
use lockkeeper_registry::versions::VersionKey;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::support::db::{Backend, TestDb, by, execute, races, seal_log, store_test};
use crate::support::log;

store_test!(
    a_version_goes_through_its_states_and_its_log,
    a_log_has_no_gaps_however_many_write,
    one_of_several_contents_is_added,
    changes_in_any_order_end_as_the_rules_say,
    a_deprecation_before_its_version_is_kept,
    nobody_publishes_below_no_namespace_or_in_other_case,
    a_namespace_belongs_to_one_owner,
    names_and_versions_are_listed_in_pages,
    an_index_lists_each_version_at_a_time_of_its_own,
    a_package_stays_while_a_version_refers_to_it,
    a_publication_waits_for_a_removal_of_its_package,
    a_removal_that_was_given_up_keeps_its_package_from_being_published,
    a_token_reads_what_its_scopes_name,
    a_deployment_has_one_name_one_key_and_one_store,
    a_registry_publishes_deprecates_and_takes_down,
    a_crash_leaves_nothing_behind_for_long,
    clients_verify_the_log,
    a_verification_names_the_first_fault,
    a_verification_reads_any_number_of_pages,
);

const NAME: &str = "mods.example.com";

fn signer() -> NoteSigner {
    NoteSigner::from_seed(NAME, &[7; 32]).unwrap()
}

fn key(text: &str) -> VersionKey {
    text.parse().unwrap()
}

fn name(text: &str) -> RegistryName {
    text.parse().unwrap()
}

fn notice(reason: &str) -> RecordNotice {
    RecordNotice {
        reason: Reason::read(reason).unwrap().unwrap(),
        replacement: None,
    }
}

fn digest(number: u8) -> Sha256Digest {
    Sha256Digest::of(&[number])
}

/// Returns content whose checksums depend on a number alone.
fn content(kind: NameKind, number: u8) -> VersionContent {
    let hash = DirHash::from_bytes([number; 32]);
    let checksums = match kind {
        NameKind::Module => Checksums::Module { files: hash },
        NameKind::Go => Checksums::Go {
            zip: hash,
            go_mod: hash_go_mod(b"module example.com/m\n"),
        },
    };
    let package = PackageFile {
        name: "package.zip".parse().unwrap(),
        digest: digest(number),
        size: number.into(),
    };
    VersionContent {
        checksums,
        packages: PackageFiles::new(vec![package]).unwrap(),
        commit: Some("c".repeat(40).parse().unwrap()),
    }
}

fn change(key: &VersionKey, change: RecordChange) -> NewChange {
    let is_go = key.kind() == NameKind::Go && matches!(change, RecordChange::Add(_));
    NewChange {
        key: key.clone(),
        change,
        base: BaseLocation::Here,
        go_mod: is_go.then(|| b"module example.com/m\n".to_vec()),
        committed_at: None,
        origin: VersionOrigin::Upload,
    }
}

/// Adds a version with the content of a number.
pub(super) async fn add(store: &Store, key: &VersionKey, number: u8) -> LogOutcome {
    let due_at = DateTime::from_timestamp(4_000_000_000, 0).unwrap();
    store
        .registry_package_announce(&digest(number), due_at)
        .await
        .unwrap();
    let add = RecordChange::Add(content(key.kind(), number));
    record(store, key, add).await
}

pub(super) async fn deprecate(store: &Store, key: &VersionKey, reason: &str) -> LogOutcome {
    record(store, key, RecordChange::Deprecate(notice(reason))).await
}

pub(super) async fn delete(store: &Store, key: &VersionKey, reason: &str) -> LogOutcome {
    let delete = RecordChange::Delete(TakedownKind::Security, notice(reason));
    record(store, key, delete).await
}

async fn record(store: &Store, key: &VersionKey, what: RecordChange) -> LogOutcome {
    let change = change(key, what);
    store.registry_log(&signer(), &change, by()).await.unwrap()
}

fn id(number: i64) -> LogOutcome {
    LogOutcome::Logged(LogId::new(number).unwrap())
}

/// Adds an owner with the namespaces of the tests.
async fn namespaces(store: &Store) {
    let net = "net".parse().unwrap();
    let _owner = store.owner_create(&net, by()).await.unwrap();
    for prefix in ["module acme", "go example.com"] {
        let prefix = prefix.parse().unwrap();
        let added = store.registry_namespace_add(
            &prefix,
            &net,
            Visibility::Public,
            ForeignVersions::Refuse,
            by(),
        );
        assert!(matches!(added.await.unwrap(), AddNamespace::Added(_)));
    }
}

async fn version(store: &Store, key: &VersionKey) -> RegistryVersion {
    store.registry_version(key).await.unwrap().unwrap()
}

/// Reads the whole log and checks it: every record, its signature, its place, and the tree.
async fn checked_log(store: &Store, verifier: &NoteVerifier) -> Vec<Record> {
    let size = store.registry_log_size().await.unwrap();
    let records = store.registry_records(LogId::FIRST, 100_000).await.unwrap();
    assert_eq!(records.len() as u64, size);
    let mut hashes: Vec<LogHash> = Vec::new();
    let mut all = Vec::new();
    for (number, (id, text)) in (0..).zip(records) {
        assert_eq!(id.get(), i64::try_from(number).unwrap() + 1);
        let record = Record::parse(text.as_bytes()).unwrap();
        assert_eq!(record.maker().id, id);
        record.verify(std::slice::from_ref(verifier)).unwrap();
        let query = tlog::stored_hashes(number, tlog::record_hash(text.as_bytes())).unwrap();
        let left = query.indexes().iter();
        let left: Vec<LogHash> = left
            .map(|at| hashes[usize::try_from(*at).unwrap()])
            .collect();
        hashes.extend(query.compute(&left).unwrap());
        all.push(record);
    }
    let places: Vec<u64> = (0..hashes.len() as u64).collect();
    assert_eq!(store.registry_log_hashes(&places).await.unwrap(), hashes);
    let beyond = store.registry_log_hashes(&[hashes.len() as u64]).await;
    beyond.unwrap_err();
    all
}

async fn a_version_goes_through_its_states_and_its_log(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    for (first, text) in [
        (1, "module acme/vpc/aws 1.2.3"),
        (4, "go example.com/m v1.2.3"),
    ] {
        let key = key(text);
        assert_eq!(store.registry_version(&key).await.unwrap(), None);
        assert_eq!(add(store, &key, 1).await, id(first));
        let located = lockkeeper_registry::states::LocatedContent {
            content: content(key.kind(), 1),
            base: BaseLocation::Here,
        };
        let expected = RegistryVersion {
            key: key.clone(),
            known: KnownVersion::Added(located.clone()),
            notice: None,
            added_at: Some(db.now()),
            committed_at: None,
            origin: Some(VersionOrigin::Upload),
            published_by: Some("ada".to_owned()),
        };
        assert_eq!(version(store, &key).await, expected);
        let go_mod = store.registry_go_mod(&key).await.unwrap();
        assert_eq!(go_mod.is_some(), key.kind() == NameKind::Go);

        // What is known changes nothing, and other content is a conflict.
        assert_eq!(add(store, &key, 1).await, LogOutcome::Known);
        assert_eq!(
            add(store, &key, 2).await,
            LogOutcome::Conflict(content(key.kind(), 1))
        );
        assert_eq!(version(store, &key).await, expected);

        db.clock.advance(Duration::from_hours(1));
        assert_eq!(deprecate(store, &key, "old").await, id(first + 1));
        assert_eq!(deprecate(store, &key, "older").await, LogOutcome::Known);
        let old = VersionNotice {
            takedown: None,
            notice: notice("old"),
            at: db.now(),
        };
        let expected = RegistryVersion {
            known: KnownVersion::Deprecated(Some(located)),
            notice: Some(old),
            ..expected
        };
        assert_eq!(version(store, &key).await, expected);
        assert!(
            store.registry_go_mod(&key).await.unwrap().is_some() == (key.kind() == NameKind::Go)
        );

        db.clock.advance(Duration::from_hours(1));
        let leak = VersionNotice {
            takedown: Some(TakedownKind::Security),
            notice: notice("leak"),
            at: db.now(),
        };
        assert_eq!(delete(store, &key, "leak").await, id(first + 2));
        assert_eq!(delete(store, &key, "again").await, LogOutcome::Known);
        let tombstoned = LogOutcome::Tombstoned(leak.clone());
        assert_eq!(add(store, &key, 1).await, tombstoned);
        assert_eq!(deprecate(store, &key, "old").await, tombstoned);
        let expected = RegistryVersion {
            known: KnownVersion::Deleted,
            notice: Some(leak),
            ..expected
        };
        assert_eq!(version(store, &key).await, expected);
        assert_eq!(store.registry_go_mod(&key).await.unwrap(), None);
        let added = store.registry_added_record(&key).await.unwrap().unwrap();
        assert_eq!(added.0.get(), first);
        assert!(added.1.starts_with(&format!("add {key}\n")), "{}", added.1);
    }
    let actions = checked_log(store, signer().verifier()).await;
    let actions: Vec<&str> = actions
        .iter()
        .map(|record| record.change().action().as_str())
        .collect();
    assert_eq!(actions, ["add", "deprecate", "delete"].repeat(2));

    seal_log(db).await;
    let events = store.lock_event_list(3).await.unwrap();
    let events: Vec<String> = events
        .iter()
        .map(|event| {
            let concern = event.event.concern.as_ref().unwrap();
            format!(
                "{} {concern}: {}",
                event.event.kind, event.event.cause.reason
            )
        })
        .collect();
    assert_eq!(
        events,
        [
            "registry_taken_down net: go example.com/m v1.2.3 (security): leak (as the test wants it)",
            "registry_deprecated net: go example.com/m v1.2.3: old (as the test wants it)",
            "registry_published net: go example.com/m v1.2.3 (as the test wants it)",
        ]
    );
}

/// R2: a record for each change, and no gaps.
async fn a_log_has_no_gaps_however_many_write(db: &TestDb) {
    namespaces(db.store()).await;
    let servers = [db.reopen().await, db.reopen().await, db.reopen().await];
    let mut tasks = JoinSet::new();
    let count = races(db.backend, 300);
    for task in 0..count {
        let store = servers[task % servers.len()].clone();
        tasks.spawn(async move {
            let key = key(&format!("module acme/vpc/aws 1.0.{task}"));
            let LogOutcome::Logged(added) = add(&store, &key, 1).await else {
                panic!("{key} was not added");
            };
            // Who sees a record sees all before it.
            let seen = store
                .registry_records(LogId::FIRST, added.get())
                .await
                .unwrap();
            assert_eq!(seen.len(), usize::try_from(added.get()).unwrap());
            if task % 3 == 0 {
                assert!(matches!(
                    deprecate(&store, &key, "old").await,
                    LogOutcome::Logged(_)
                ));
            }
        });
    }
    tasks.join_all().await;
    let records = checked_log(db.store(), signer().verifier()).await;
    assert_eq!(records.len(), count + count.div_ceil(3));
    let versions = db
        .store()
        .registry_versions(&name("module acme/vpc/aws"))
        .await;
    assert_eq!(versions.unwrap().len(), count);
}

async fn one_of_several_contents_is_added(db: &TestDb) {
    namespaces(db.store()).await;
    let servers = [db.reopen().await, db.reopen().await];
    let mut tasks = JoinSet::new();
    for task in 0..40 {
        let store = servers[task % servers.len()].clone();
        let number = u8::try_from(task / 4 % 5).unwrap();
        tasks.spawn(async move {
            let outcome = add(&store, &key("go example.com/m v1.0.0"), number).await;
            (number, outcome)
        });
    }
    let outcomes = tasks.join_all().await;
    let added: Vec<u8> = outcomes
        .iter()
        .filter(|(_, outcome)| *outcome == id(1))
        .map(|(number, _)| *number)
        .collect();
    let [ours] = added.as_slice() else {
        panic!("{added:?} were added");
    };
    for (number, outcome) in &outcomes {
        let is_right = match outcome {
            LogOutcome::Logged(_) | LogOutcome::Known => number == ours,
            LogOutcome::Conflict(there) => number != ours && *there == content(NameKind::Go, *ours),
            LogOutcome::Confirmed
            | LogOutcome::Tombstoned(_)
            | LogOutcome::NoNamespace
            | LogOutcome::Owned
            | LogOutcome::CaseConflict(_)
            | LogOutcome::PackageGone => false,
        };
        assert!(is_right, "{number}: {outcome:?}");
    }
    assert_eq!(checked_log(db.store(), signer().verifier()).await.len(), 1);
}

/// R3: states go forward only.
async fn changes_in_any_order_end_as_the_rules_say(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    let mut rng = StdRng::seed_from_u64(19);
    let keys: Vec<VersionKey> = (0..8)
        .map(|n| match n % 2 {
            0 => key(&format!("module acme/vpc/aws 1.0.{n}")),
            _ => key(&format!("go example.com/m v1.0.{n}")),
        })
        .collect();
    let mut model: BTreeMap<VersionKey, (KnownVersion, usize)> = BTreeMap::new();
    let mut logged = 0;
    for _ in 0..120 {
        let key = &keys[rng.random_range(0..keys.len())];
        let what = match rng.random_range(0..7) {
            0..4 => RecordChange::Add(content(key.kind(), rng.random_range(1..3))),
            4 | 5 => RecordChange::Deprecate(notice("old")),
            _ => RecordChange::Delete(TakedownKind::Legal, notice("court")),
        };
        if let RecordChange::Add(content) = &what {
            for package in &content.packages {
                let due_at = db.now() + TimeDelta::days(1);
                let announced = store.registry_package_announce(&package.digest, due_at);
                announced.await.unwrap();
            }
        }
        let (known, records) = model.entry(key.clone()).or_default();
        let expected = match known.apply(&what, &BaseLocation::Here) {
            RecordEffect::Changed(next) => {
                *known = next;
                *records += 1;
                logged += 1;
                id(logged)
            }
            RecordEffect::Known => LogOutcome::Known,
            RecordEffect::Conflict(content) => LogOutcome::Conflict(content),
            RecordEffect::Tombstoned => {
                LogOutcome::Tombstoned(version(store, key).await.notice.unwrap())
            }
        };
        assert_eq!(record(store, key, what).await, expected, "{key}");
        let there = store.registry_version(key).await.unwrap();
        let there = there.map_or(KnownVersion::Absent, |version| version.known);
        assert_eq!(there, *known, "{key}");
    }
    assert!(
        model.values().all(|(_, records)| *records <= 3),
        "{model:?}"
    );
    let deleted = model
        .values()
        .filter(|(known, _)| *known == KnownVersion::Deleted);
    assert!(deleted.count() > 1, "{model:?}");
    checked_log(store, signer().verifier()).await;
}

async fn a_deprecation_before_its_version_is_kept(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    let key = key("go example.com/m v1.0.0");
    assert_eq!(deprecate(store, &key, "never use it").await, id(1));
    let before = version(store, &key).await;
    assert_eq!(before.known, KnownVersion::Deprecated(None));
    assert_eq!(before.added_at, None);
    assert_eq!(store.registry_added_record(&key).await.unwrap(), None);
    assert_eq!(add(store, &key, 1).await, id(2));
    let after = version(store, &key).await;
    assert_eq!(after.known.state(), VersionState::Deprecated);
    assert!(after.known.content().is_some() && after.notice == before.notice);
    assert!(after.added_at.is_some());
    let added = store.registry_added_record(&key).await.unwrap();
    assert_eq!(added.unwrap().0.get(), 2);
}

/// R6: a name in other case does not pass for that of the owner.
async fn nobody_publishes_below_no_namespace_or_in_other_case(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    for foreign in [
        "module acme2/vpc/aws 1.0.0",
        "go example.org/m v1.0.0",
        "go example.comm/m v1.0.0",
    ] {
        assert_eq!(add(store, &key(foreign), 1).await, LogOutcome::NoNamespace);
    }
    assert_eq!(add(store, &key("go example.com v1.0.0"), 1).await, id(1));
    assert_eq!(
        add(store, &key("go example.com/a/Net v1.0.0"), 2).await,
        id(2)
    );
    let other = LogOutcome::CaseConflict(name("go example.com/a/Net"));
    assert_eq!(
        add(store, &key("go example.com/a/net v1.0.0"), 3).await,
        other
    );
    assert_eq!(
        add(store, &key("go example.com/A/net v1.0.0"), 3).await,
        other
    );
    assert_eq!(
        add(store, &key("go example.com/a/Net v1.0.1"), 3).await,
        id(3)
    );
    // The name of a module is the same in any case.
    assert_eq!(
        add(store, &key("module Acme/VPC/aws 1.0.0"), 4).await,
        id(4)
    );
    assert_eq!(
        add(store, &key("module acme/vpc/aws 1.0.0"), 4).await,
        LogOutcome::Known
    );
    assert_eq!(store.registry_log_size().await.unwrap(), 4);
}

/// R6: nobody else publishes in a namespace.
async fn a_namespace_belongs_to_one_owner(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    let dns: OwnerName = "dns".parse().unwrap();
    let prefix = |text: &str| text.parse::<NamePrefix>().unwrap();
    let add_to = async |text: &str, owner: &str| {
        let (prefix, owner) = (prefix(text), owner.parse().unwrap());
        let added = store.registry_namespace_add(
            &prefix,
            &owner,
            Visibility::Owner,
            ForeignVersions::Refuse,
            by(),
        );
        added.await.unwrap()
    };
    assert_eq!(add_to("module dns", "dns").await, AddNamespace::NoOwner);
    let _owner = store.owner_create(&dns, by()).await.unwrap();
    let AddNamespace::Added(added) = add_to("module dns", "dns").await else {
        panic!("it was not added")
    };
    assert_eq!(
        (added.owner.as_str(), added.visibility, added.created_at),
        ("dns", Visibility::Owner, db.now())
    );
    assert_eq!(
        add_to("module dns", "net").await,
        AddNamespace::AlreadyThere(added.clone())
    );
    for overlapping in [
        "go example.com/dns",
        "go Example.com".to_lowercase().as_str(),
    ] {
        let outcome = add_to(overlapping, "dns").await;
        let (AddNamespace::Overlaps(there) | AddNamespace::AlreadyThere(there)) = outcome else {
            panic!("{overlapping}: {outcome:?}");
        };
        assert_eq!(there.prefix, prefix("go example.com"));
    }
    assert!(matches!(
        add_to("go example.com.eu", "dns").await,
        AddNamespace::Added(_)
    ));
    assert!(matches!(
        add_to("go github.com/Acme", "dns").await,
        AddNamespace::Added(_)
    ));
    let in_other_case = add_to("go github.com/acme/x", "net").await;
    assert!(
        matches!(in_other_case, AddNamespace::Overlaps(_)),
        "{in_other_case:?}"
    );

    let all = store.registry_namespaces().await.unwrap();
    let all: Vec<String> = all
        .iter()
        .map(|one| format!("{} {} {}", one.prefix, one.owner, one.visibility))
        .collect();
    assert_eq!(
        all,
        [
            "go example.com net public",
            "go example.com.eu dns owner",
            "go github.com/Acme dns owner",
            "module acme net public",
            "module dns dns owner",
        ]
    );
    for (text, owner) in [
        ("go example.com", Some("net")),
        ("go example.com/a/b/c/v2", Some("net")),
        ("go example.com.eu/a", Some("dns")),
        ("go github.com/Acme/x", Some("dns")),
        ("go github.com/acme/x", None),
        ("go github.com/Acme2", None),
        ("module dns/zone/aws", Some("dns")),
        ("module net/zone/aws", None),
    ] {
        let of = store.registry_namespace_of(&name(text)).await.unwrap();
        assert_eq!(of.as_ref().map(|of| of.owner.as_str()), owner, "{text}");
    }

    // Owner and visibility change at any time.
    let change = async |text: &str, owner: Option<&OwnerName>, visibility| {
        let prefix = prefix(text);
        let changed = store.registry_namespace_change(&prefix, owner, visibility, by());
        match changed.await.unwrap() {
            ChangeNamespace::Changed(now) => {
                format!("{} {} {}", now.prefix, now.owner, now.visibility)
            }
            other @ (ChangeNamespace::NoOwner | ChangeNamespace::NotFound) => format!("{other:?}"),
        }
    };
    let unknown = "nobody".parse().unwrap();
    for (text, owner, visibility, expected) in [
        (
            "module acme",
            None,
            Some(Visibility::Owner),
            "module acme net owner",
        ),
        ("module acme", Some(&dns), None, "module acme dns owner"),
        ("module acme", Some(&dns), None, "module acme dns owner"),
        ("module acme", Some(&unknown), None, "NoOwner"),
        ("module ac", Some(&dns), None, "NotFound"),
    ] {
        assert_eq!(change(text, owner, visibility).await, expected);
    }
    seal_log(db).await;
    let events = store.lock_event_list(1).await.unwrap();
    let event = &events[0].event;
    assert_eq!(event.kind, LockEventKind::RegistryNamespaceChanged);
    assert_eq!(
        event.cause.reason,
        "module acme, owner, from net, owner (as the test wants it)"
    );

    // A namespace with a version of any state stays, and so does its owner.
    assert_eq!(
        add(store, &key("go example.com.eu/a v1.0.0"), 1).await,
        id(1)
    );
    assert_eq!(
        delete(store, &key("go example.com.eu/a v1.0.0"), "no").await,
        id(2)
    );
    let remove = async |text: &str| {
        let removed = store.registry_namespace_remove(&prefix(text), by()).await;
        removed.unwrap()
    };
    let in_use = RemoveNamespace::InUse(name("go example.com.eu/a"));
    assert_eq!(remove("go example.com.eu").await, in_use);
    assert_eq!(remove("module dns").await, RemoveNamespace::Removed(added));
    assert_eq!(remove("module dns").await, RemoveNamespace::NotFound);
    let stays = store.owner_delete(&dns, by()).await.unwrap();
    assert_eq!(
        stays,
        DeleteOwner::InUse {
            applications: 0,
            credentials: 0,
            namespaces: 3
        }
    );
    assert!(matches!(
        remove("go example.com").await,
        RemoveNamespace::Removed(_)
    ));
    seal_log(db).await;
    let events = store.lock_event_list(1).await.unwrap();
    let event = &events[0].event;
    assert_eq!(event.kind, LockEventKind::RegistryNamespaceRemoved);
    assert_eq!(event.cause.reason, "go example.com (as the test wants it)");
}

async fn names_and_versions_are_listed_in_pages(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    let names = [
        "go example.com",
        "go example.com/B",
        "go example.com/a",
        "go example.com/a-b",
        "go example.com/a/c",
        "module acme/net/aws",
        "module acme/vpc/aws",
        "module acme/vpc/azurerm",
    ];
    for (number, name) in (1..).zip(names.iter().rev()) {
        let version = if name.starts_with("go") {
            "v1.0.0"
        } else {
            "1.0.0"
        };
        assert_eq!(
            add(store, &key(&format!("{name} {version}")), 1).await,
            id(number)
        );
    }
    let list = async |prefix: Option<&str>, after: Option<&str>, limit| {
        let after = after.map(name);
        let names = store
            .registry_names(prefix, after.as_ref(), limit)
            .await
            .unwrap();
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 100).await, names);
    assert_eq!(list(None, None, 6).await, names[..6]);
    assert_eq!(list(None, Some(names[2]), 4).await, names[3..7]);
    assert_eq!(list(None, Some(names[5]), 4).await, names[6..]);
    assert_eq!(list(Some("example.com/a"), None, 9).await, names[2..5]);
    assert_eq!(list(Some("acme/vpc/"), None, 9).await, names[6..]);
    assert_eq!(list(Some("acme/vpc/"), Some(names[6]), 9).await, names[7..]);
    for none in ["%", "x\0y", "acme/vpc/\u{7f}", "\u{10ffff}"] {
        assert_eq!(list(Some(none), None, 9).await, [""; 0]);
    }
    assert_eq!(list(None, None, 0).await, [""; 0]);

    for version in ["1.10.0", "1.2.0", "1.2.0-rc.1"] {
        let key = key(&format!("module acme/vpc/aws {version}"));
        assert!(matches!(add(store, &key, 1).await, LogOutcome::Logged(_)));
    }
    let deleted = delete(store, &key("module acme/vpc/aws 1.2.0"), "no").await;
    assert!(matches!(deleted, LogOutcome::Logged(_)));
    let versions = store
        .registry_versions(&name("module acme/vpc/aws"))
        .await
        .unwrap();
    let states: BTreeSet<String> = versions
        .iter()
        .map(|version| format!("{} {}", version.key.version(), version.known.state()))
        .collect();
    assert_eq!(
        states.into_iter().collect::<Vec<_>>(),
        [
            "1.0.0 added",
            "1.10.0 added",
            "1.2.0 deleted",
            "1.2.0-rc.1 added"
        ]
    );
    let none = store
        .registry_versions(&name("module acme/vpc/google"))
        .await;
    assert_eq!(none.unwrap(), []);
}

async fn an_index_lists_each_version_at_a_time_of_its_own(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    // All at the same moment, as the clock of the test has it.
    for number in 0..5 {
        let go = key(&format!("go example.com/m v1.0.{number}"));
        assert!(matches!(add(store, &go, 1).await, LogOutcome::Logged(_)));
        let module = key(&format!("module acme/vpc/aws 1.0.{number}"));
        assert!(matches!(
            add(store, &module, 1).await,
            LogOutcome::Logged(_)
        ));
    }
    let gone = key("go example.com/m v1.0.3");
    assert!(matches!(
        deprecate(store, &key("go example.com/m v1.0.2"), "x").await,
        LogOutcome::Logged(_)
    ));
    assert!(matches!(
        delete(store, &gone, "no").await,
        LogOutcome::Logged(_)
    ));
    let mut since = None;
    let mut all = Vec::new();
    loop {
        let page = store.registry_go_index(since, 2).await.unwrap();
        let new: Vec<_> = page
            .into_iter()
            .filter(|(_, _, at)| Some(*at) != since)
            .collect();
        let Some((_, _, last)) = new.last() else {
            break;
        };
        since = Some(*last);
        let served = new
            .into_iter()
            .filter(|(_, state, _)| *state != VersionState::Deleted);
        all.extend(served.map(|(key, ..)| key.version()));
    }
    assert_eq!(all, ["v1.0.0", "v1.0.1", "v1.0.2", "v1.0.4"]);
    // A server whose clock is late.
    let clock = ManualClock::new(db.now() - TimeDelta::minutes(5));
    let slow = Store::open(&db.url, Arc::new(clock), db.ids.clone())
        .await
        .unwrap();
    let late = key("go example.com/n v1.0.0");
    assert!(matches!(add(&slow, &late, 1).await, LogOutcome::Logged(_)));
    let page = store.registry_go_index(since, 9).await.unwrap();
    assert_eq!(page[1].0, late);
    assert!(page[1].2 > page[0].2, "the index never goes back: {page:?}");
}

async fn a_package_stays_while_a_version_refers_to_it(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    let due = async || {
        let due = store.registry_packages_due(10).await.unwrap();
        due.into_iter().collect::<HashSet<_>>()
    };
    let set = |numbers: &[u8]| numbers.iter().copied().map(digest).collect::<HashSet<_>>();
    let [one, other] =
        ["1.0.0", "2.0.0"].map(|version| key(&format!("module acme/vpc/aws {version}")));
    // An announced package that nobody publishes is due after its time.
    let tomorrow = db.now() + TimeDelta::days(1);
    store
        .registry_package_announce(&digest(9), tomorrow)
        .await
        .unwrap();
    assert_eq!(due().await, set(&[]));
    db.clock.advance(Duration::from_hours(24));
    assert_eq!(due().await, set(&[9]));
    // Nobody can refer to a package that was not announced, or that was removed since.
    let unknown = RecordChange::Add(content(NameKind::Module, 8));
    assert_eq!(record(store, &one, unknown).await, LogOutcome::PackageGone);
    assert_eq!(store.registry_log_size().await.unwrap(), 0);

    // Two versions have the same package.
    assert_eq!(add(store, &one, 1).await, id(1));
    let same = RecordChange::Add(content(NameKind::Module, 1));
    assert_eq!(record(store, &other, same).await, id(2));
    assert_eq!(delete(store, &one, "no").await, id(3));
    assert_eq!(due().await, set(&[9]));
    assert_eq!(delete(store, &other, "no").await, id(4));
    assert_eq!(due().await, set(&[1, 9]));
    // Somebody is about to publish the package again, which keeps it.
    store
        .registry_package_announce(&digest(1), db.now() + TimeDelta::days(1))
        .await
        .unwrap();
    assert_eq!(due().await, set(&[9]));
}

async fn a_publication_waits_for_a_removal_of_its_package(db: &TestDb) {
    let test = TestRegistry::new(db, NAME).await;
    let registry = &test.registry;
    // Removed and published at once, many times: the new version always has its package.
    for round in 0..races(db.backend, 100) {
        let [old, new] = [1, 2].map(|major| key(&format!("module acme/vpc/aws {major}.0.{round}")));
        let content = format!("round {round}");
        let published = test.publish(&old, &content).await.unwrap();
        assert!(matches!(published, Published::New(_)), "{published:?}");
        let package = test.package(&new, &content).await;
        let digest = package.staged.digest.clone();
        let (down, published) = tokio::join!(
            registry.take_down(&old, TakedownKind::Mistake, notice("no"), by()),
            registry.publish(package, VersionOrigin::Upload, by()),
        );
        assert!(matches!(down.unwrap(), TakenDown::New(_)));
        let published = published.unwrap();
        assert!(
            matches!(published, Published::New(_)),
            "{round}: {published:?}"
        );
        assert!(
            registry.package(&digest).await.unwrap().is_some(),
            "{round}"
        );
    }
    assert_eq!(registry.remove_orphans().await.unwrap(), 0);
    registry.verify(true).await.unwrap().unwrap();
    assert_eq!(db.store().registry_packages_due(10).await.unwrap(), []);
}

async fn a_removal_that_was_given_up_keeps_its_package_from_being_published(db: &TestDb) {
    let store = db.store();
    namespaces(store).await;
    let [one, two] =
        ["1.0.0", "2.0.0"].map(|version| key(&format!("module acme/vpc/aws {version}")));
    let package = digest(1);
    let until = db.now() + TimeDelta::minutes(5);
    let claim = async || store.registry_package_claim(&package, until).await.unwrap();
    let announce = async || {
        let tomorrow = db.now() + TimeDelta::days(1);
        let announced = store.registry_package_announce(&package, tomorrow);
        announced.await.unwrap()
    };
    let add_two = RecordChange::Add(content(NameKind::Module, 1));
    assert_eq!(add(store, &one, 1).await, id(1));
    assert!(!claim().await, "a version has it");
    assert_eq!(delete(store, &one, "no").await, id(2));
    assert!(claim().await);
    assert!(!claim().await, "another server removes it");
    // The store of packages has not answered, so it may still remove the package.
    assert!(!announce().await);
    let refused = record(store, &two, add_two.clone()).await;
    assert_eq!(refused, LogOutcome::PackageGone);
    assert_eq!(store.registry_packages_due(10).await.unwrap(), []);
    db.clock.advance(Duration::from_mins(5));
    assert_eq!(
        store.registry_packages_due(10).await.unwrap(),
        std::slice::from_ref(&package)
    );
    assert!(announce().await);
    // An answer that comes too late takes nothing away.
    let late = store.registry_package_removed(&package, until);
    late.await.unwrap();
    assert_eq!(record(store, &two, add_two).await, id(3));
    assert_eq!(store.registry_packages_due(10).await.unwrap(), []);
}

async fn a_token_reads_what_its_scopes_name(db: &TestDb) {
    let store = db.store();
    let scopes = |texts: &[&str]| -> Vec<TokenScope> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let new = |texts: &[&str], end| NewToken::new("CI of net", &scopes(texts), end).unwrap();
    let create = async |new: &NewToken| store.registry_token_create(new, by()).await.unwrap();
    let wanted = [
        "read:*",
        "publish:module acme/*",
        "deprecate:go example.com/net/...",
    ];
    let (token, text) = create(&new(&wanted, None)).await.unwrap();
    assert!(text.expose().starts_with("lkr_") && text.expose().len() == 47);
    assert_eq!(
        (token.label.as_str(), token.created_at),
        ("CI of net", db.now())
    );

    let found = store
        .registry_token_by_text(text.expose())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found, token);
    for (action, text, is_allowed) in [
        (TokenAction::Read, "go example.org/x", true),
        (TokenAction::Read, "module other/vpc/aws", true),
        (TokenAction::Publish, "module acme/vpc/aws", true),
        (TokenAction::Publish, "module acme2/vpc/aws", false),
        (TokenAction::Publish, "go example.com/net", false),
        (TokenAction::Deprecate, "go example.com/net", true),
        (TokenAction::Deprecate, "go example.com/net/a/v2", true),
        (TokenAction::Deprecate, "go example.com/network", false),
        (TokenAction::Takedown, "module acme/vpc/aws", false),
    ] {
        assert_eq!(
            found.allows(action, &name(text)),
            is_allowed,
            "{action} {text}"
        );
    }
    assert!(found.allows_any(TokenAction::Deprecate) && !found.allows_any(TokenAction::Takedown));

    // The use is recorded, once a minute.
    let last_use = async || store.registry_tokens().await.unwrap()[0].last_used_at;
    let first = db.now();
    assert_eq!(last_use().await, Some(first));
    db.clock.advance(Duration::from_secs(59));
    store
        .registry_token_by_text(text.expose())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(last_use().await, Some(first));
    db.clock.advance(Duration::from_secs(1));
    store
        .registry_token_by_text(text.expose())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(last_use().await, Some(db.now()));

    // Nothing else is a token: other texts, hashes of tokens, and texts that are none.
    let hash = Sha256Digest::of(text.expose().as_bytes());
    let changed = format!("{}A", &text.expose()[..46]);
    let changed = if changed == text.expose() {
        changed.replace('A', "B")
    } else {
        changed
    };
    for other in [
        "",
        "lkr_",
        hash.as_str(),
        &changed,
        &text.expose()[1..],
        &"lkr_é".repeat(20),
    ] {
        assert_eq!(
            store.registry_token_by_text(other).await.unwrap(),
            None,
            "{other}"
        );
    }

    // A token ends at its time, and when somebody revokes it.
    let end = db.now() + TimeDelta::hours(1);
    let (short, short_text) = create(&new(&["read:*"], Some(end))).await.unwrap();
    assert_eq!(short.expires_at, Some(end));
    let is_found = async |text: &str| {
        let found = store.registry_token_by_text(text).await.unwrap();
        found.is_some()
    };
    db.clock
        .advance(Duration::from_hours(1) - Duration::from_micros(1));
    assert!(is_found(short_text.expose()).await);
    db.clock.advance(Duration::from_micros(1));
    assert!(!is_found(short_text.expose()).await);
    let past = create(&new(&["read:*"], Some(db.now()))).await;
    assert_eq!(past.unwrap_err(), InvalidToken::Expired);

    let revoked = store.registry_token_revoke(token.id, by()).await.unwrap();
    assert_eq!(revoked.and_then(|token| token.revoked_at), Some(db.now()));
    assert!(!is_found(text.expose()).await);
    let first = db.now();
    db.clock.advance(Duration::from_hours(1));
    let again = store.registry_token_revoke(token.id, by()).await.unwrap();
    assert_eq!(again.and_then(|token| token.revoked_at), Some(first));
    let unknown = "00000000-0000-7000-8000-999999999999".parse().unwrap();
    assert_eq!(
        store.registry_token_revoke(unknown, by()).await.unwrap(),
        None
    );

    let all: Vec<Token> = store.registry_tokens().await.unwrap();
    let ids: Vec<_> = all.iter().map(|token| token.id).collect();
    assert_eq!(ids, [short.id, token.id]);
    seal_log(db).await;
    let events = store.lock_event_list(9).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.event.kind).collect();
    let created = LockEventKind::RegistryTokenCreated;
    assert_eq!(
        kinds,
        [LockEventKind::RegistryTokenRevoked, created, created]
    );
    assert!(
        events
            .iter()
            .all(|event| !event.event.cause.reason.contains("lkr_")),
        "no event has the text of a token"
    );
}

fn keys(lines: &str) -> Arc<Keyring> {
    Arc::new(Keyring::parse(lines).unwrap())
}

/// Returns a line of a file with keys.
fn key_line(name: &str, byte: u8) -> String {
    let key: [u8; 32] =
        std::array::from_fn(|place| byte.wrapping_add(u8::try_from(place).unwrap()));
    let line = lockkeeper::seal::key_line(&name.parse().unwrap(), &key);
    format!("{}\n", line.expose())
}

fn deployment(name: &str) -> DeploymentName {
    name.parse().unwrap()
}

/// A registry with its packages in a folder of the test.
struct TestRegistry {
    registry: Registry,
    packages: PathBuf,
}

impl TestRegistry {
    async fn new(db: &TestDb, name: &str) -> Self {
        namespaces(db.store()).await;
        let packages = db.dir.path().join("packages");
        let keys = keys(&key_line("2026", 1));
        let opened = Registry::open(db.store().clone(), Some(keys), deployment(name), &packages);
        Self {
            registry: opened.await.unwrap(),
            packages,
        }
    }

    /// Makes the package of a version, whose file has this text.
    async fn package(&self, key: &VersionKey, text: &str) -> CheckedPackage {
        let mut bytes = Cursor::new(Vec::new());
        let go_mod = format!("module {}\n", key.name().as_str());
        let (checksums, go_mod, file) = if let Some((path, version)) = key.as_go() {
            let files = GoModuleFiles {
                files: vec![("go.mod", go_mod.as_bytes()), ("m.go", text.as_bytes())],
                omitted: Vec::new(),
            };
            let zip = write_go_zip(path, version, &files, &mut bytes).unwrap();
            let checksums = Checksums::Go {
                zip,
                go_mod: hash_go_mod(go_mod.as_bytes()),
            };
            (checksums, Some(go_mod.into_bytes()), "m.zip")
        } else {
            let file = TfFile {
                path: "main.tf".into(),
                content: text.as_bytes(),
                is_executable: false,
            };
            let files = write_tf_archive(&[file], &mut bytes).unwrap();
            (Checksums::Module { files }, None, "m.tar.gz")
        };
        let mut writer = self.registry.blobs().stage(1 << 20).await.unwrap();
        writer.write(bytes.get_ref()).await.unwrap();
        let staged: StagedBlob = writer.finish().await.unwrap();
        let package = PackageFile {
            name: file.parse().unwrap(),
            digest: staged.digest.clone(),
            size: staged.size,
        };
        CheckedPackage {
            key: key.clone(),
            content: VersionContent {
                checksums,
                packages: PackageFiles::new(vec![package]).unwrap(),
                commit: None,
            },
            go_mod,
            committed_at: None,
            token_in: None,
            staged,
        }
    }

    async fn publish(&self, key: &VersionKey, text: &str) -> Result<Published, RegistryError> {
        let package = self.package(key, text).await;
        self.registry
            .publish(package, VersionOrigin::Upload, by())
            .await
    }

    /// Returns the files of all kept packages.
    fn files(&self) -> Vec<PathBuf> {
        fn below(dir: &Path, files: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    below(&path, files);
                } else {
                    files.push(path);
                }
            }
        }
        let mut files = Vec::new();
        below(&self.packages.join("sha256"), &mut files);
        files.sort_unstable();
        files
    }
}

async fn open(db: &TestDb, lines: &str, name: &str, folder: &str) -> Result<Registry, String> {
    let keys = if lines.is_empty() {
        None
    } else {
        Some(keys(lines))
    };
    let packages = db.dir.path().join(folder);
    let opened = Registry::open(db.reopen().await, keys, deployment(name), &packages).await;
    opened.map_err(|error| error.to_string())
}

async fn a_deployment_has_one_name_one_key_and_one_store(db: &TestDb) {
    let (old, new) = (key_line("2026", 1), key_line("2027", 2));
    let refused = open(db, "", NAME, "packages").await.err().unwrap();
    assert!(refused.contains("--encryption-key-file"), "{refused}");
    // Several servers start at once and end with one key.
    let (one, other) = tokio::join!(
        open(db, &old, NAME, "packages"),
        open(db, &old, NAME, "packages"),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    let verifier = one.verifier().to_string();
    assert_eq!(verifier, other.verifier().to_string());
    assert!(verifier.starts_with("mods.example.com+"), "{verifier}");
    assert_eq!(one.link_key(), other.link_key());

    let refused = open(db, &old, "mods.example.org", "packages")
        .await
        .err()
        .unwrap();
    assert!(
        refused.contains("is called `mods.example.com`") && refused.contains("--registry-name"),
        "{refused}"
    );
    let refused = open(db, &old, NAME, "elsewhere").await.err().unwrap();
    assert!(refused.contains("is not a store of packages"), "{refused}");
    drop(Blobs::open(&db.dir.path().join("elsewhere"), None).await);
    let refused = open(db, &old, NAME, "elsewhere").await.err().unwrap();
    assert!(
        refused.contains("Several replicas need a shared one"),
        "{refused}"
    );
    let refused = open(db, &new, NAME, "packages").await.err().unwrap();
    assert!(
        refused.contains("the key `2026`, which is not in the file"),
        "{refused}"
    );

    // The first key of the file encrypts the signing key again, and then the old one is not needed.
    let both = format!("{new}{old}");
    let rotated = open(db, &both, NAME, "packages").await.unwrap();
    assert_eq!(rotated.verifier().to_string(), verifier);
    let rotated = open(db, &new, NAME, "packages").await.unwrap();
    assert_eq!(rotated.verifier().to_string(), verifier);
    let refused = open(db, &old, NAME, "packages").await.err().unwrap();
    assert!(refused.contains("the key `2027`"), "{refused}");
    // Nobody can put a key of another place there.
    let another = NoteSigner::from_seed(NAME, &[9; 32]).unwrap();
    let sql = format!(
        "UPDATE registry_deployment SET verifier = '{}'",
        another.verifier()
    );
    execute(db, &sql).await;
    let refused = open(db, &new, NAME, "packages").await.err().unwrap();
    assert!(refused.contains("cannot decrypt it"), "{refused}");
}

async fn a_registry_publishes_deprecates_and_takes_down(db: &TestDb) {
    let test = TestRegistry::new(db, NAME).await;
    let registry = &test.registry;
    let [go, module, foreign] = [
        "go example.com/m v1.0.0",
        "module acme/vpc/aws 1.0.0",
        "module other/vpc/aws 1.0.0",
    ]
    .map(key);
    let new = |number| Published::New(LogId::new(number).unwrap());
    assert_eq!(test.publish(&go, "one").await.unwrap(), new(1));
    assert_eq!(test.publish(&module, "one").await.unwrap(), new(2));
    // The same publication stores a package again that was lost.
    let files = test.files();
    for file in &files {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(test.publish(&go, "one").await.unwrap(), Published::Same);
    assert_eq!(test.publish(&module, "one").await.unwrap(), Published::Same);
    assert_eq!(test.files(), files);
    assert!(registry.verify(true).await.unwrap().is_ok());
    let there = registry.version(&go).await.unwrap().unwrap();
    let there = there.known.content().unwrap().content.clone();
    let conflict = test.publish(&go, "two").await.unwrap();
    assert_eq!(conflict, Published::Conflict(there));
    assert_eq!(
        test.publish(&foreign, "one").await.unwrap(),
        Published::NoNamespace
    );
    let other_case = test
        .publish(&key("go example.com/M v1.0.0"), "one")
        .await
        .unwrap();
    assert_eq!(
        other_case,
        Published::CaseConflict(name("go example.com/m"))
    );

    // Nothing is left of what was refused.
    assert_eq!(test.files(), files);
    db.clock.advance(Duration::from_hours(24));
    assert_eq!(registry.remove_orphans().await.unwrap(), 0);

    assert_eq!(
        registry
            .deprecate(&foreign, notice("old"), by())
            .await
            .unwrap(),
        Deprecated::NotFound
    );
    let newer = RecordNotice {
        replacement: Some(key("go example.com/m v1.1.0")),
        ..notice("old")
    };
    for replacement in [&go, &module] {
        let wrong = RecordNotice {
            replacement: Some(replacement.clone()),
            ..notice("old")
        };
        let refused = registry.deprecate(&go, wrong, by()).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the replacement is another version of the same kind"
        );
    }
    let deprecated = registry.deprecate(&go, newer.clone(), by()).await.unwrap();
    assert_eq!(deprecated, Deprecated::New(LogId::new(3).unwrap()));
    let before = registry
        .deprecate(&go, notice("older"), by())
        .await
        .unwrap();
    let Deprecated::Before(before) = before else {
        panic!("{before:?}")
    };
    assert_eq!(before.notice, newer);

    let kind = TakedownKind::Legal;
    let down = registry
        .take_down(&foreign, kind, notice("no"), by())
        .await
        .unwrap();
    assert_eq!(down, TakenDown::NotFound);
    let down = registry
        .take_down(&go, kind, notice("court"), by())
        .await
        .unwrap();
    assert_eq!(down, TakenDown::New(LogId::new(4).unwrap()));
    assert_eq!(test.files().len(), 1, "the bytes are gone at once");
    let TakenDown::Before(tombstone) = registry
        .take_down(&go, kind, notice("x"), by())
        .await
        .unwrap()
    else {
        panic!("it was taken down twice")
    };
    assert_eq!(tombstone.takedown, Some(kind));
    let after = registry.deprecate(&go, notice("x"), by()).await.unwrap();
    assert_eq!(after, Deprecated::Tombstoned(tombstone.clone()));
    let again = test.publish(&go, "one").await.unwrap();
    assert_eq!(again, Published::Tombstoned(tombstone));
    let report = registry.verify(true).await.unwrap().unwrap();
    assert_eq!(
        (report.head.size, report.versions, report.packages),
        (4, 2, 1)
    );
    assert_eq!(checked_log(db.store(), registry.verifier()).await.len(), 4);
}

async fn a_crash_leaves_nothing_behind_for_long(db: &TestDb) {
    let test = TestRegistry::new(db, NAME).await;
    let registry = &test.registry;
    // Stored and not recorded.
    let package = test.package(&key("go example.com/m v1.0.0"), "lost").await;
    let due_at = db.now() + TimeDelta::days(1);
    db.store()
        .registry_package_announce(&package.staged.digest, due_at)
        .await
        .unwrap();
    registry.blobs().keep(package.staged).await.unwrap();
    // Deleted, and the bytes still there.
    let key = key("go example.com/m v1.1.0");
    let published = test.publish(&key, "old").await.unwrap();
    assert!(matches!(published, Published::New(_)));
    let change = NewChange {
        key: key.clone(),
        change: RecordChange::Delete(TakedownKind::Mistake, notice("no")),
        base: BaseLocation::Here,
        go_mod: None,
        committed_at: None,
        origin: VersionOrigin::Upload,
    };
    let signer = signer();
    let _logged = db
        .store()
        .registry_log(&signer, &change, by())
        .await
        .unwrap();
    assert_eq!(test.files().len(), 2);
    assert_eq!(registry.remove_orphans().await.unwrap(), 1);
    assert_eq!(test.files().len(), 1);
    db.clock.advance(Duration::from_hours(24));
    assert_eq!(registry.remove_orphans().await.unwrap(), 1);
    assert_eq!(
        (test.files().len(), registry.remove_orphans().await.unwrap()),
        (0, 0)
    );
}

async fn clients_verify_the_log(db: &TestDb) {
    let test = TestRegistry::new(db, NAME).await;
    let registry = &test.registry;
    let head = async || -> TreeHead {
        let note = registry.head().await.unwrap();
        let known = [registry.verifier().clone()];
        open_note(note.as_bytes(), &known)
            .unwrap()
            .text
            .parse()
            .unwrap()
    };
    assert_eq!(
        head().await,
        TreeHead {
            size: 0,
            root: LogHash::EMPTY_TREE
        }
    );
    let mut heads = Vec::new();
    for number in 0..9_u64 {
        let key = key(&format!("go example.com/m v1.0.{number}"));
        assert_eq!(registry.lookup(&key).await.unwrap(), None);
        let _published = test.publish(&key, "one").await.unwrap();
        let head = head().await;
        assert_eq!(head.size, number + 1);
        heads.push(head);

        let answer = registry.lookup(&key).await.unwrap().unwrap();
        let (record, line, rest) = tlog::parse_record(answer.as_bytes()).unwrap();
        assert_eq!(record, number);
        assert!(line.contains("\nexample.com/m v1.0."), "{line}");
        let known = [registry.verifier().clone()];
        let note = open_note(rest, &known).unwrap();
        assert_eq!(note.text.parse(), Ok(head));
        // A client proves with tiles that the log has the record, and each of the earlier heads.
        let hash = tlog::record_hash(line.as_bytes());
        let proof = prove(
            registry,
            head.size,
            tlog::prove_record(head.size, record).unwrap(),
        )
        .await;
        tlog::check_record(&proof, head.size, &head.root, record, &hash).unwrap();
        for old in &heads {
            let proof = prove(
                registry,
                head.size,
                tlog::prove_tree(head.size, old.size).unwrap(),
            )
            .await;
            tlog::check_tree(&proof, head.size, &head.root, old.size, &old.root).unwrap();
        }
    }
    for none in [
        "tile/8/0/000.p/10",
        "tile/8/1/000.p/1",
        "tile/8/data/000.p/1",
        "tile/4/0/000.p/1",
        "tile/8/0/001.p/1",
    ] {
        assert_eq!(
            registry.tile(&none.parse().unwrap()).await.unwrap(),
            None,
            "{none}"
        );
    }
    // A deleted version leaves its record, and a version that is only deprecated has none with checksums.
    let gone = key("go example.com/m v1.0.0");
    let _down = registry
        .take_down(&gone, TakedownKind::Legal, notice("x"), by())
        .await
        .unwrap();
    assert!(registry.lookup(&gone).await.unwrap().is_some());
}

/// Computes a proof from tiles alone, as a client does.
async fn prove(
    registry: &Registry,
    size: u64,
    query: tlog::HashQuery<Vec<LogHash>>,
) -> Vec<LogHash> {
    let mut hashes = Vec::new();
    for index in query.indexes() {
        let narrowest = Tile::for_index(tlog::TILE_HEIGHT, *index);
        assert!(narrowest.entries(size).is_ok());
        let data = registry.tile(&narrowest).await.unwrap().unwrap();
        hashes.push(tlog::hash_from_tile(&narrowest, &data, *index).unwrap());
    }
    query.compute(&hashes).unwrap()
}

/// R4, R5: a change of what is stored is found.
async fn a_verification_names_the_first_fault(db: &TestDb) {
    let test = TestRegistry::new(db, NAME).await;
    let registry = &test.registry;
    for text in [
        "go example.com/m v1.0.0",
        "go example.com/m v1.1.0",
        "go example.com/m v1.2.0",
        "module acme/vpc/aws 1.0.0",
        "module acme/vpc/aws 1.1.0",
    ] {
        let published = test.publish(&key(text), text).await.unwrap();
        assert!(matches!(published, Published::New(_)), "{published:?}");
    }
    let _deprecated = registry
        .deprecate(&key("go example.com/m v1.1.0"), notice("old"), by())
        .await
        .unwrap();
    let _down = registry
        .take_down(
            &key("module acme/vpc/aws 1.0.0"),
            TakedownKind::Legal,
            notice("court"),
            by(),
        )
        .await
        .unwrap();
    let report = registry.verify(true).await.unwrap().unwrap();
    assert_eq!(
        (report.head.size, report.versions, report.packages),
        (7, 5, 4)
    );

    // Each change is made, found and undone. Those of tables are found without reading packages.
    let restore = "UPDATE registry_versions SET state = 'deprecated' WHERE version = 'v1.1.0'";
    let of = |name: &str| format!("WHERE name = '{name}' AND version");
    let (m, vpc) = (of("example.com/m"), of("acme/vpc/aws"));
    for (sql, undo, expected) in [
        (
            "UPDATE registry_log SET record = REPLACE(record, 'v1.0.0', 'v1.0.9') WHERE id = 1".to_owned(),
            "UPDATE registry_log SET record = REPLACE(record, 'v1.0.9', 'v1.0.0') WHERE id = 1",
            "record 1 is about another change than its row: add go example.com/m v1.0.0",
        ),
        (
            "UPDATE registry_log SET record = REPLACE(record, 'reason old', 'reason new') WHERE id = 6".to_owned(),
            "UPDATE registry_log SET record = REPLACE(record, 'reason new', 'reason old') WHERE id = 6",
            "the signature of record 6 is not valid",
        ),
        (
            "UPDATE registry_log SET record = 'x' || record WHERE id = 2".to_owned(),
            "UPDATE registry_log SET record = SUBSTR(record, 2) WHERE id = 2",
            "record 2 cannot be read: line 1: a record begins with `add`, `deprecate` or `delete`",
        ),
        (
            "UPDATE registry_log SET id = 8 WHERE id = 7".to_owned(),
            "UPDATE registry_log SET id = 7 WHERE id = 8",
            "record 7 is missing",
        ),
        (
            "UPDATE registry_log SET action = 'delete' WHERE id = 1".to_owned(),
            "UPDATE registry_log SET action = 'add' WHERE id = 1",
            "record 1 is about another change than its row: delete go example.com/m v1.0.0",
        ),
        (
            "UPDATE registry_log_hashes SET place = 100 WHERE place = 10".to_owned(),
            "UPDATE registry_log_hashes SET place = 10 WHERE place = 100",
            "the hash at place 10 of the tree, which belongs to record 7, is missing or wrong",
        ),
        (
            "INSERT INTO registry_log_hashes SELECT 100, hash FROM registry_log_hashes WHERE place = 0".to_owned(),
            "DELETE FROM registry_log_hashes WHERE place = 100",
            "the tree has 101 hashes, and a log of 7 records has 11",
        ),
        (
            restore.replace("deprecated", "added"),
            restore,
            "the row of go example.com/m v1.1.0 (added) is not what its records say, the last one is 6 (deprecated)",
        ),
        (
            restore.replace("deprecated", "withdrawn"),
            restore,
            "the row of go example.com/m v1.1.0 cannot be read",
        ),
        (
            format!("UPDATE registry_versions SET reason = 'fine' {vpc} = '1.0.0'"),
            "UPDATE registry_versions SET reason = 'court' WHERE version = '1.0.0'",
            "the row of module acme/vpc/aws 1.0.0 (deleted) is not what its records say, the last one is 7 (deleted)",
        ),
        (
            format!("UPDATE registry_packages SET digest = '{}' {m} = 'v1.2.0'", "a".repeat(64)),
            "",
            "the row of go example.com/m v1.2.0 (added) is not what its records say, the last one is 3 (added)",
        ),
        (
            format!("UPDATE registry_packages SET size = size + 1 {m} = 'v1.2.0'"),
            "UPDATE registry_packages SET size = size - 1 WHERE version = 'v1.2.0'",
            "the row of go example.com/m v1.2.0 (added) is not what its records say",
        ),
        (
            format!("DELETE FROM registry_packages {m} = 'v1.2.0'"),
            "",
            "the row of go example.com/m v1.2.0 cannot be read",
        ),
        (
            "UPDATE registry_packages SET version = '9.9.9' WHERE version = '1.1.0'".to_owned(),
            "UPDATE registry_packages SET version = '1.1.0' WHERE version = '9.9.9'",
            "the row of module acme/vpc/aws 1.1.0 cannot be read",
        ),
        (
            "INSERT INTO registry_packages SELECT kind, name, '9.9.9', file, digest, size FROM registry_packages \
             WHERE version = '1.1.0'"
                .to_owned(),
            "DELETE FROM registry_packages WHERE version = '9.9.9'",
            "a package belongs to a version that does not exist: module acme/vpc/aws 9.9.9",
        ),
        (
            format!("UPDATE registry_go_mods SET content = CAST('module x' AS BLOB) {m} = 'v1.0.0'"),
            "",
            "the go.mod file of go example.com/m v1.0.0 is not the recorded one",
        ),
        (
            format!("DELETE FROM registry_go_mods {m} = 'v1.0.0'"),
            "",
            "the go.mod file of go example.com/m v1.0.0 is not the recorded one",
        ),
        (
            "INSERT INTO registry_go_mods SELECT name, 'v9.0.0+incompatible', content FROM registry_go_mods \
             WHERE version = 'v1.2.0'"
                .to_owned(),
            "DELETE FROM registry_go_mods WHERE version = 'v9.0.0+incompatible'",
            "the go.mod file of go example.com/m v9.0.0+incompatible is not the recorded one",
        ),
        (
            format!("UPDATE registry_versions SET version = 'v1.3.0' {m} = 'v1.0.0'"),
            "UPDATE registry_versions SET version = 'v1.0.0' WHERE version = 'v1.3.0'",
            "the row of go example.com/m v1.3.0 cannot be read",
        ),
        (
            format!("UPDATE registry_versions SET version = '1.3.0' {vpc} = '1.0.0'"),
            "UPDATE registry_versions SET version = '1.0.0' WHERE version = '1.3.0'",
            "module acme/vpc/aws 1.3.0 has a row and no record",
        ),
        (
            format!("UPDATE registry_versions SET version = '1.1.0+b' {vpc} = '1.1.0'"),
            "UPDATE registry_versions SET version = '1.1.0' WHERE version = '1.1.0+b'",
            "the row of module acme/vpc/aws 1.1.0+b cannot be read",
        ),
        (
            "UPDATE registry_names SET name = 'acme/vpc/azurerm' WHERE name = 'acme/vpc/aws'".to_owned(),
            "UPDATE registry_names SET name = 'acme/vpc/aws' WHERE name = 'acme/vpc/azurerm'",
            "a name is missing in the list of names, that of module acme/vpc/aws",
        ),
    ] {
        let sql = match db.backend {
            Backend::Sqlite => sql,
            Backend::Postgres => sql.replace("AS BLOB", "AS BYTEA"),
        };
        // Rows that cannot be changed back come from a copy.
        for table in ["registry_packages", "registry_go_mods"] {
            execute(db, &format!("CREATE TABLE copy_of_{table} AS SELECT * FROM {table}")).await;
        }
        execute(db, &sql).await;
        let found = registry.verify(false).await.unwrap();
        let found = found.map(|report| report.head.size).map_err(|fault| fault.to_string());
        let fault = found.expect_err(&sql);
        assert!(fault.starts_with(expected), "{sql}\n{fault}");
        if !undo.is_empty() {
            execute(db, undo).await;
        }
        for table in ["registry_packages", "registry_go_mods"] {
            execute(db, &format!("DELETE FROM {table}")).await;
            execute(db, &format!("INSERT INTO {table} SELECT * FROM copy_of_{table}")).await;
            execute(db, &format!("DROP TABLE copy_of_{table}")).await;
        }
        registry.verify(false).await.unwrap().unwrap();
    }

    // A version that is gone altogether.
    execute(db, "CREATE TABLE copy AS SELECT * FROM registry_versions").await;
    execute(
        db,
        &format!("DELETE FROM registry_versions {vpc} = '1.0.0'"),
    )
    .await;
    let fault = registry.verify(false).await.unwrap().unwrap_err();
    assert_eq!(
        fault.to_string(),
        "module acme/vpc/aws 1.0.0 has record 7 and no row"
    );
    execute(
        db,
        "INSERT INTO registry_versions SELECT * FROM copy WHERE version = '1.0.0'",
    )
    .await;

    // Bytes of packages.
    let [small, changed] = ["go example.com/m v1.0.0", "module acme/vpc/aws 1.1.0"].map(key);
    for (key, damage, expected) in [
        (
            &small,
            Damage::Gone,
            "the package m.zip of go example.com/m v1.0.0 is missing",
        ),
        (
            &small,
            Damage::Longer,
            "the package m.zip of go example.com/m v1.0.0 has ",
        ),
        (
            &changed,
            Damage::Changed,
            "the package m.tar.gz of module acme/vpc/aws 1.1.0 has the SHA-256 ",
        ),
    ] {
        let version = registry.version(key).await.unwrap().unwrap();
        let package = version
            .known
            .content()
            .unwrap()
            .content
            .packages
            .iter()
            .next()
            .unwrap()
            .clone();
        let digest = package.digest.as_str();
        let file = test
            .packages
            .join("sha256")
            .join(&digest[..2])
            .join(&digest[2..]);
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut damaged = bytes.clone();
        match damage {
            Damage::Gone => {}
            Damage::Longer => {
                damaged.push(0);
                std::fs::write(&file, damaged).unwrap();
            }
            Damage::Changed => {
                damaged[20] ^= 1;
                std::fs::write(&file, damaged).unwrap();
            }
        }
        registry.verify(false).await.unwrap().unwrap();
        let fault = registry.verify(true).await.unwrap().unwrap_err();
        assert!(fault.to_string().starts_with(expected), "{fault}");
        std::fs::write(&file, bytes).unwrap();
        registry.verify(true).await.unwrap().unwrap();
    }

    // Checksums that fit the bytes and not the record: somebody with the key would have to write that.
    let lie = key("module acme/vpc/aws 2.0.0");
    let mut package = test.package(&lie, "one").await;
    package.content.checksums = Checksums::Module {
        files: DirHash::from_bytes([1; 32]),
    };
    let _published = registry
        .publish(package, VersionOrigin::Upload, by())
        .await
        .unwrap();
    registry.verify(false).await.unwrap().unwrap();
    let fault = registry
        .verify(true)
        .await
        .unwrap()
        .unwrap_err()
        .to_string();
    let expected = "the package m.tar.gz of module acme/vpc/aws 2.0.0 has the hash h1:";
    assert!(fault.starts_with(expected), "{fault}");
}

/// Change of the file of a package.
enum Damage {
    Gone,
    Longer,
    Changed,
}

async fn a_verification_reads_any_number_of_pages(db: &TestDb) {
    let test = TestRegistry::new(db, NAME).await;
    let (store, registry) = (db.store(), &test.registry);
    // More than a page of versions and two of records, beside a writer.
    let count = 220;
    let written = async {
        for number in 0..count {
            let key = key(&format!("go example.com/m v1.{number}.0"));
            let due_at = db.now() + TimeDelta::days(1);
            store
                .registry_package_announce(&digest(1), due_at)
                .await
                .unwrap();
            let add = change(&key, RecordChange::Add(content(NameKind::Go, 1)));
            let notice = change(&key, RecordChange::Deprecate(notice("old")));
            for change in [add, notice] {
                let logged = registry.record(&change, by()).await.unwrap();
                assert!(matches!(logged, LogOutcome::Logged(_)), "{logged:?}");
            }
        }
    };
    let verified = async {
        let mut sizes = Vec::new();
        while sizes.last().is_none_or(|size| *size < 2 * count) {
            let report = registry.verify(false).await.unwrap().unwrap();
            sizes.push(report.head.size);
        }
        sizes
    };
    let ((), sizes) = tokio::join!(written, verified);
    assert!(sizes.is_sorted() && sizes.len() > 2, "{sizes:?}");
    let report = registry.verify(false).await.unwrap().unwrap();
    assert_eq!((report.versions, report.head.size), (count, 2 * count));
    // The last page is verified as well as the first one.
    execute(
        db,
        "UPDATE registry_versions SET reason = 'new' WHERE version = 'v1.99.0'",
    )
    .await;
    let fault = registry
        .verify(false)
        .await
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(
        fault.starts_with("the row of go example.com/m v1.99.0 "),
        "{fault}"
    );
}

/// An append costs the same however long the log is: few statements, and few rows.
#[tokio::test]
async fn an_append_sends_few_statements() {
    let db = TestDb::new(Backend::Postgres).await;
    let store = db.store();
    namespaces(store).await;
    // The record number 32 completes the most subtrees.
    for number in 1..32 {
        let key = key(&format!("go example.com/m v1.0.{number}"));
        assert_eq!(add(store, &key, 1).await, id(number));
    }
    for (number, expected) in [(32, 13), (33, 12)] {
        let key = key(&format!("go example.com/m v1.0.{number}"));
        let due_at = db.now() + TimeDelta::days(1);
        store
            .registry_package_announce(&digest(2), due_at)
            .await
            .unwrap();
        let heard = log::listen();
        let add = RecordChange::Add(content(NameKind::Go, 2));
        assert_eq!(record(store, &key, add).await, id(number));
        let heard = heard.end();
        let statements: Vec<&str> = heard
            .lines()
            .filter(|line| line.contains("rows_affected="))
            // A new connection of the pool begins with a setting.
            .filter(|line| !line.contains("idle_in_transaction_session_timeout"))
            .collect();
        assert_eq!(statements.len(), expected, "{}", statements.join("\n"));
    }
}
