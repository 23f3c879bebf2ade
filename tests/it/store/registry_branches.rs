//! Tests of what default branches use of the registry.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::features::registry::{BranchReading, BranchUse, BranchUseLimits};
use lockkeeper::model::{DataDirId, RepoId};
use lockkeeper::store::Store;
use lockkeeper_registry::versions::VersionKey;

use super::registry_tags::{repo, synced};
use crate::support::db::{TestDb, store_test};

store_test!(
    uses_are_those_of_the_last_reading,
    no_repository_hides_the_others,
    a_branch_is_read_after_each_sync_and_forgotten_with_the_mirror,
);

/// Returns a use of the module, such as `live ~> 1.0`, with a version if only one is allowed.
fn used(dir: &str, wanted: &str, version: Option<&str>) -> BranchUse {
    let key: VersionKey = "module acme/vpc/aws 1.0.0".parse().unwrap();
    let name = key.name();
    BranchUse {
        dir: dir.parse().unwrap(),
        version: version.map(|version| VersionKey::new(name.clone(), version).unwrap()),
        name,
        wanted: wanted.to_owned(),
    }
}

async fn record(db: &TestDb, uses: &[BranchUse]) {
    record_of(db, &repo(), uses).await;
}

async fn record_of(db: &TestDb, repo: &RepoId, uses: &[BranchUse]) {
    let head = "a".repeat(40).parse().unwrap();
    let uses: BTreeSet<BranchUse> = uses.iter().cloned().collect();
    let reading = BranchReading {
        head: Some(&head),
        basis: "x",
        uses: &uses,
        due_at: db.now() + TimeDelta::hours(1),
    };
    let recorded = db.store().registry_branch_record(repo, &reading);
    recorded.await.unwrap();
}

/// Returns `repository directory constraint` of each use of the module, or of one version.
async fn uses(store: &Store, version: Option<&str>) -> Vec<String> {
    let key: VersionKey = "module acme/vpc/aws 1.0.0".parse().unwrap();
    let name = key.name();
    let version = version.map(|version| VersionKey::new(name.clone(), version).unwrap());
    let uses = store.registry_branch_uses(&name, version.as_ref(), 100);
    let uses = uses.await.unwrap().into_iter().map(|listed| {
        let head = listed.head.unwrap();
        let (dir, wanted) = (listed.used.dir, listed.used.wanted);
        format!("{} {dir} [{wanted}] {}", listed.repo, head.short())
    });
    uses.collect()
}

async fn uses_are_those_of_the_last_reading(db: &TestDb) {
    let store = db.store();
    let all = [
        used("a", "1.0.0", Some("1.0.0")),
        used("b", "~> 1.0", None),
        used("c", "", None),
        used("d", "not a constraint", None),
    ];
    record(db, &all).await;
    let line = |use_: &str| format!("github.com/acme/net {use_} aaaaaaaa");
    let lines = |uses: &[&str]| uses.iter().map(|one| line(one)).collect::<Vec<_>>();
    assert_eq!(
        uses(store, None).await,
        lines(&["a [1.0.0]", "b [~> 1.0]", "c []", "d [not a constraint]"])
    );
    assert_eq!(
        uses(store, Some("1.0.0")).await,
        lines(&["a [1.0.0]", "b [~> 1.0]", "c []"])
    );
    assert_eq!(uses(store, Some("2.0.0")).await, lines(&["c []"]));
    record(db, &all[1..2]).await;
    assert_eq!(uses(store, None).await, lines(&["b [~> 1.0]"]));
    record(db, &[]).await;
    assert_eq!(uses(store, None).await, lines(&[]));
}

/// Returns `repository directory` of the uses of the module within limits.
async fn uses_of_each(db: &TestDb, limits: BranchUseLimits<'_>) -> Vec<String> {
    let name = used("a", "", None).name;
    let uses = db.store().registry_branch_uses_of_each(&name, limits);
    let uses = uses.await.unwrap().into_iter();
    uses.map(|listed| format!("{} {}", listed.repo, listed.used.dir))
        .collect()
}

async fn no_repository_hides_the_others(db: &TestDb) {
    let many = ["a", "b", "c", "d"].map(|dir| used(dir, "1.0.0", Some("1.0.0")));
    let last: RepoId = "github.com/acme/zoo".parse().unwrap();
    record(db, &many).await;
    record_of(db, &last, &many).await;
    let mut limits = BranchUseLimits {
        repos: None,
        of_repo: 2,
        total: 100,
    };
    let net = ["github.com/acme/net a", "github.com/acme/net b"];
    let zoo = ["github.com/acme/zoo a", "github.com/acme/zoo b"];
    assert_eq!(uses_of_each(db, limits).await, [net, zoo].concat());
    limits.total = 2;
    assert_eq!(uses_of_each(db, limits).await, net);
    // The limit does not count repositories that are not listed.
    let seen = [last];
    limits.repos = Some(&seen);
    assert_eq!(uses_of_each(db, limits).await, zoo);
    limits.repos = Some(&[]);
    assert_eq!(uses_of_each(db, limits).await, [""; 0]);
}

async fn a_branch_is_read_after_each_sync_and_forgotten_with_the_mirror(db: &TestDb) {
    let store = db.store();
    let data_dir_id: DataDirId = "home".parse().unwrap();
    let due = async || {
        let due = store.registry_branches_due(&data_dir_id).await.unwrap();
        let due = due.into_iter().map(|known| (known.repo, known.failures));
        due.collect::<Vec<_>>()
    };
    assert_eq!(due().await, []);
    synced(db, &data_dir_id).await;
    assert_eq!(due().await, [(repo(), 0)]);
    record(db, &[used("a", "1.0.0", Some("1.0.0"))]).await;
    assert_eq!(due().await, []);

    // Time passes without a sync.
    db.clock.advance(Duration::from_hours(1));
    assert_eq!(due().await, [(repo(), 0)]);
    let next = db.now() + TimeDelta::hours(1);
    store.registry_branch_same(&repo(), next).await.unwrap();
    assert_eq!(due().await, []);
    let next = db.now() + TimeDelta::minutes(1);
    store
        .registry_branch_failed(&repo(), 1, "The forge is away.", next)
        .await
        .unwrap();
    assert_eq!(due().await, []);
    db.clock.advance(Duration::from_mins(1));
    assert_eq!(due().await, [(repo(), 1)]);
    assert_eq!(uses(store, None).await.len(), 1, "known uses stay");

    assert_eq!(store.registry_branches_forget(10).await.unwrap(), 0);
    let row = store
        .mirror_get(&data_dir_id, &repo())
        .await
        .unwrap()
        .unwrap();
    assert!(store.mirror_forget(&row).await.unwrap());
    assert_eq!(store.registry_branches_forget(10).await.unwrap(), 1);
    assert_eq!(uses(store, None).await, [""; 0]);
    assert_eq!(store.registry_branches_forget(10).await.unwrap(), 0);
}
