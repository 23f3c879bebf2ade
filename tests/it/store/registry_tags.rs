//! Tests of the tags that publish versions: new, moved and removed tags, and the outcomes of each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::features::registry::{
    ForeignVersions, SeenTags, TagChanges, TagOutcome, TagPlace, TagSettled, TagState, TagVersion,
    Visibility,
};
use lockkeeper::model::{
    AttemptLease, CommitSha, DataDirId, Jitter, MirrorEvent, RepoId, RepoUrl, Sha256Digest,
    SyncFacts,
};
use lockkeeper::store::{MirrorChange, NewJob, Store};

use super::samples::job;
use crate::support::db::{TestDb, by, store_test};

store_test!(
    repositories_of_owners_with_namespaces_publish,
    tags_are_new_moved_and_removed,
    a_tag_that_has_published_nothing_leaves_no_trace,
    many_tags_are_stored_in_parts_and_told_by_nobody,
    higher_versions_take_the_places_of_lower_ones,
    the_number_of_told_tags_is_limited_by_the_hour,
    an_attempt_counts_before_it_begins,
    tags_are_due_when_something_that_they_depend_on_has_changed,
    tags_wait_for_the_default_branch,
    an_outcome_and_its_status_are_one_transaction,
    failed_looks_wait_and_news_of_a_mirror_do_not,
    tags_are_forgotten_with_the_claim_and_what_they_published_is_not,
);

const REPO: &str = "github.com/acme/net";

pub(super) fn repo() -> RepoId {
    REPO.parse().unwrap()
}

fn commit(mark: char) -> CommitSha {
    mark.to_string().repeat(40).parse().unwrap()
}

fn place(tag: &str, mark: char) -> TagPlace {
    TagPlace {
        repo: repo(),
        tag: tag.parse().unwrap(),
        commit: commit(mark),
    }
}

async fn see_with(db: &TestDb, tags: &[(&str, char)], seen: (usize, usize, usize)) -> TagChanges {
    let tags: BTreeMap<_, _> = tags
        .iter()
        .map(|(tag, mark)| (tag.parse().unwrap(), commit(*mark)))
        .collect();
    let (most, most_new, most_told) = seen;
    let seen = SeenTags {
        tags: &tags,
        most,
        most_new,
        most_told,
    };
    let due_at = db.now() + TimeDelta::minutes(5);
    db.store()
        .registry_tags_record(&repo(), &seen, due_at)
        .await
        .unwrap()
}

async fn see(db: &TestDb, tags: &[(&str, char)]) -> TagChanges {
    see_with(db, tags, (100, 100, 100)).await
}

/// Returns `tag commit quiet` of each tag that needs a decision.
async fn due(store: &Store, head: char, basis: &str) -> Vec<String> {
    let (repo, head) = (repo(), commit(head));
    let off = store.registry_tags_off_branch(&repo, &head, basis).await;
    assert!(off.unwrap().is_empty());
    let due = store.registry_tags_due(&repo, basis, 100);
    let due = due.await.unwrap().into_iter().map(|tag| {
        let quiet = if tag.is_quiet { " quiet" } else { "" };
        format!("{} {}{quiet}", tag.tag, &tag.commit_sha.as_str()[..1])
    });
    due.collect()
}

fn published(key: &str) -> TagVersion {
    TagVersion {
        key: key.parse().unwrap(),
        outcome: TagOutcome::Published,
        reason: None,
    }
}

async fn record(store: &Store, place: &TagPlace, version: &TagVersion, status: Option<&NewJob>) {
    store
        .registry_tag_version_record(place, version, status)
        .await
        .unwrap();
}

async fn settle(db: &TestDb, place: &TagPlace, state: TagState, head: char, basis: &str) {
    let settled = TagSettled {
        state,
        reason: None,
        basis,
        head: &commit(head),
        failures: i64::from(state == TagState::Waiting),
        due_at: db.now() + TimeDelta::minutes(1),
        is_told: false,
    };
    db.store()
        .registry_tag_settle(place, &settled, None)
        .await
        .unwrap();
}

async fn repositories_of_owners_with_namespaces_publish(db: &TestDb) {
    let store = db.store();
    for name in ["net", "other"] {
        let name = name.parse().unwrap();
        drop(store.owner_create(&name, by()).await.unwrap());
        let owner = store.owner_get(&name).await.unwrap().unwrap();
        let url: RepoUrl = format!("https://github.com/acme/{name}").parse().unwrap();
        drop(store.claim_acquire(owner.id, &url, by()).await.unwrap());
    }
    assert_eq!(store.registry_tag_places().await.unwrap(), []);
    let (prefix, owner) = ("module acme".parse().unwrap(), "net".parse().unwrap());
    let added = store.registry_namespace_add(
        &prefix,
        &owner,
        Visibility::Public,
        ForeignVersions::Refuse,
        by(),
    );
    drop(added.await.unwrap());
    assert_eq!(store.registry_tag_places().await.unwrap(), [repo()]);
}

async fn tags_are_new_moved_and_removed(db: &TestDb) {
    let store = db.store();
    let two = TagChanges {
        new: 2,
        ..TagChanges::default()
    };
    assert_eq!(see(db, &[("v1.0.0", 'a'), ("v1.1.0", 'a')]).await, two);
    assert_eq!(
        see(db, &[("v1.0.0", 'a'), ("v1.1.0", 'a')]).await,
        TagChanges::default()
    );
    for (tag, key) in [
        ("v1.0.0", "module acme/vpc/aws 1.0.0"),
        ("v1.1.0", "module acme/vpc/aws 1.1.0"),
    ] {
        let place = place(tag, 'a');
        record(store, &place, &published(key), None).await;
        settle(db, &place, TagState::Done, 'a', "x").await;
        let found = store.registry_tag_versions(&place).await.unwrap();
        assert_eq!(found, [published(key)]);
    }
    assert_eq!(due(store, 'b', "y").await, [""; 0]);

    let changes = TagChanges {
        new: 1,
        moved: 1,
        removed: 1,
        left_out: 0,
    };
    assert_eq!(see(db, &[("v1.0.0", 'b')]).await, changes);
    assert_eq!(due(store, 'b', "y").await, ["v1.0.0 b"]);
    // The versions keep the commits that they came from.
    for tag in ["v1.0.0", "v1.1.0"] {
        let found = store.registry_tag_versions(&place(tag, 'a')).await.unwrap();
        assert_eq!(found.len(), 1, "{tag}");
    }
    // The removed tag comes back as it was, and is decided already.
    let back = see(db, &[("v1.0.0", 'b'), ("v1.1.0", 'a')]).await;
    assert_eq!(
        back,
        TagChanges {
            new: 1,
            ..TagChanges::default()
        }
    );
    assert_eq!(due(store, 'b', "y").await, ["v1.0.0 b"]);
}

async fn a_tag_that_has_published_nothing_leaves_no_trace(db: &TestDb) {
    let store = db.store();
    see(db, &[("v1.0.0", 'a')]).await;
    let refused = TagVersion {
        outcome: TagOutcome::Refused,
        reason: Some("It has no code.".to_owned()),
        ..published("module acme/vpc/aws 1.0.0")
    };
    record(store, &place("v1.0.0", 'a'), &refused, None).await;
    let moved = see(db, &[("v1.0.0", 'b')]).await;
    assert_eq!(
        moved,
        TagChanges {
            new: 1,
            ..TagChanges::default()
        }
    );
    let found = store.registry_tag_versions(&place("v1.0.0", 'a')).await;
    assert_eq!(found.unwrap(), []);
    assert_eq!(see(db, &[]).await, TagChanges::default());
    assert_eq!(due(store, 'b', "y").await, [""; 0]);
}

async fn many_tags_are_stored_in_parts_and_told_by_nobody(db: &TestDb) {
    let store = db.store();
    let tags = [
        ("v1.0.0", 'a'),
        ("v1.2.0", 'a'),
        ("v1.10.0", 'a'),
        ("v0.1.0", 'a'),
    ];
    // Three are the most, and two at once.
    let limits = (3, 2, 100);
    let first = see_with(db, &tags, limits).await;
    assert_eq!((first.new, first.left_out), (2, 1));
    let rows = store.registry_tag_repos().await.unwrap();
    assert!(!rows[0].is_listed && rows[0].due_at <= db.now(), "{rows:?}");
    let second = see_with(db, &tags, limits).await;
    assert_eq!((second.new, second.left_out), (1, 1));
    let rows = store.registry_tag_repos().await.unwrap();
    assert!(rows[0].is_listed && rows[0].due_at > db.now(), "{rows:?}");
    // The highest versions, and all from before the first whole look.
    let mut quiet = due(store, 'a', "x").await;
    quiet.sort();
    assert_eq!(
        quiet,
        ["v1.0.0 a quiet", "v1.10.0 a quiet", "v1.2.0 a quiet"]
    );

    // One more becomes a status, and many at once do not.
    let more = [&tags[..3], &[("v2.0.0", 'a')]].concat();
    see_with(db, &more, (100, 100, 1)).await;
    let many = [&more[..], &[("v3.0.0", 'a'), ("v3.1.0", 'a')]].concat();
    see_with(db, &many, (100, 100, 1)).await;
    let told = due(store, 'a', "x").await;
    let told: Vec<&String> = told.iter().filter(|tag| !tag.contains("quiet")).collect();
    assert_eq!(told, ["v2.0.0 a"]);
}

async fn higher_versions_take_the_places_of_lower_ones(db: &TestDb) {
    let store = db.store();
    let limits = (2, 100, 100);
    let tags = [("v1.0.0", 'a'), ("v1.1.0", 'a')];
    see_with(db, &tags, limits).await;
    let kept = published("module acme/vpc/aws 1.0.0");
    record(store, &place("v1.0.0", 'a'), &kept, None).await;
    settle(db, &place("v1.0.0", 'a'), TagState::Done, 'd', "x").await;
    settle(db, &place("v1.1.0", 'a'), TagState::OffBranch, 'd', "x").await;

    // Both lower ones have to go, and one of them has published a version.
    let more = [&tags[..], &[("v2.0.0", 'a'), ("v2.1.0", 'a')]].concat();
    let changes = see_with(db, &more, limits).await;
    let expected = TagChanges {
        new: 2,
        left_out: 2,
        ..TagChanges::default()
    };
    assert_eq!(changes, expected);
    let mut found = due(store, 'e', "x").await;
    found.sort();
    assert_eq!(found, ["v2.0.0 a", "v2.1.0 a"]);
    let found = store.registry_tag_versions(&place("v1.0.0", 'a')).await;
    assert_eq!(found.unwrap(), [kept]);
    let again = see_with(db, &more, limits).await;
    assert_eq!((again.new, again.moved, again.removed), (0, 0, 0));
}

async fn the_number_of_told_tags_is_limited_by_the_hour(db: &TestDb) {
    let store = db.store();
    let limits = (100, 100, 2);
    see_with(db, &[], limits).await;
    let all = ["v1.0.0", "v2.0.0", "v3.0.0", "v4.0.0"].map(|tag| (tag, 'a'));
    for number in 1..=3 {
        see_with(db, &all[..number], limits).await;
    }
    db.clock.advance(Duration::from_hours(1));
    see_with(db, &all, limits).await;
    let mut found = due(store, 'e', "x").await;
    found.sort();
    assert_eq!(
        found,
        ["v1.0.0 a", "v2.0.0 a", "v3.0.0 a quiet", "v4.0.0 a"]
    );
}

async fn an_attempt_counts_before_it_begins(db: &TestDb) {
    let store = db.store();
    see(db, &[("v1.0.0", 'a')]).await;
    let place = place("v1.0.0", 'a');
    let due_at = db.now() + TimeDelta::minutes(1);
    store.registry_tag_attempt(&place, 1, due_at).await.unwrap();
    assert_eq!(due(store, 'e', "x").await, [""; 0]);
    db.clock.advance(Duration::from_mins(1));
    let found = store.registry_tags_due(&repo(), "x", 9).await;
    let found = found.unwrap().remove(0);
    assert_eq!((found.state, found.failures), (TagState::Waiting, 1));
    let reason = "The server stopped while it made the package.";
    assert_eq!(found.reason.as_deref(), Some(reason));
}

async fn tags_are_due_when_something_that_they_depend_on_has_changed(db: &TestDb) {
    let store = db.store();
    let tags = ["v1.0.0", "v2.0.0", "v3.0.0", "v4.0.0", "v5.0.0"];
    let all: Vec<(&str, char)> = tags.iter().map(|tag| (*tag, 'a')).collect();
    see(db, &all).await;
    let states = [
        TagState::Done,
        TagState::OffBranch,
        TagState::Refused,
        TagState::Ignored,
        TagState::Waiting,
    ];
    for (tag, state) in tags.iter().zip(states) {
        settle(db, &place(tag, 'a'), state, 'd', "x").await;
    }
    let due = async |head, basis| {
        let mut due = due(store, head, basis).await;
        due.sort();
        due.iter()
            .map(|tag| tag[..2].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(due('d', "x").await, [""; 0]);
    assert_eq!(due('d', "y").await, ["v2", "v3", "v4"]);
    db.clock.advance(Duration::from_mins(2));
    assert_eq!(due('d', "x").await, ["v5"]);
    let limited = store.registry_tags_due(&repo(), "y", 2).await;
    assert_eq!(limited.unwrap().len(), 2);
}

async fn tags_wait_for_the_default_branch(db: &TestDb) {
    let store = db.store();
    see(db, &[]).await;
    let tags = [("v1.0.0", 'a'), ("v1.0.1", 'a'), ("v2.0.0", 'b')];
    see(db, &tags).await;
    for (tag, mark) in tags {
        settle(db, &place(tag, mark), TagState::OffBranch, 'd', "x").await;
    }
    let off = async |head| {
        let (repo, head) = (repo(), commit(head));
        let off = store.registry_tags_off_branch(&repo, &head, "x").await;
        off.unwrap()
    };
    assert_eq!(off('d').await, BTreeSet::new());
    assert_eq!(off('e').await, BTreeSet::from([commit('a'), commit('b')]));
    let merged = BTreeSet::from([commit('a')]);
    store
        .registry_tags_merged(&repo(), &commit('e'), "x", &merged)
        .await
        .unwrap();
    assert_eq!(off('e').await, BTreeSet::new());
    assert_eq!(due(store, 'e', "x").await, ["v1.0.0 a", "v1.0.1 a"]);
    assert_eq!(off('f').await, BTreeSet::from([commit('b')]));
}

async fn an_outcome_and_its_status_are_one_transaction(db: &TestDb) {
    let store = db.store();
    see(db, &[("v1.0.0", 'a')]).await;
    let place = place("v1.0.0", 'a');
    let version = published("module acme/vpc/aws 1.0.0");
    record(store, &place, &version, Some(&job("one"))).await;
    let settled = TagSettled {
        state: TagState::OffBranch,
        reason: Some("The commit is not on the default branch."),
        basis: "x",
        head: &commit('d'),
        failures: 0,
        due_at: db.now(),
        is_told: true,
    };
    let two = job("two");
    store
        .registry_tag_settle(&place, &settled, Some(&two))
        .await
        .unwrap();
    let jobs = store.job_list_open().await.unwrap();
    assert_eq!(jobs.len(), 2);
    let due = store.registry_tags_due(&repo(), "y", 9).await;
    let due = due.unwrap().remove(0);
    assert!(due.is_told && due.state == TagState::OffBranch, "{due:?}");
    assert_eq!(due.reason.as_deref(), settled.reason);
}

/// Syncs the mirror of the repository.
pub(super) async fn synced(db: &TestDb, data_dir_id: &DataDirId) {
    let (store, repo, at) = (db.store(), repo(), db.now());
    assert!(store.mirror_know(data_dir_id, &repo).await.unwrap());
    let lease = AttemptLease {
        key: "sync".to_owned(),
        holder: "one".to_owned(),
    };
    let facts = SyncFacts {
        checksum: Sha256Digest::of(b"refs"),
        refs: 1,
        refused: Vec::new(),
        bytes: None,
        connectivity: true,
        maintained: true,
    };
    let succeeded = MirrorEvent::Succeeded {
        at,
        holder: lease.holder.clone(),
        facts,
        jitter: Jitter(0),
    };
    for event in [MirrorEvent::Started { at, lease }, succeeded] {
        let changed = store
            .mirror_change(data_dir_id, &repo, &event)
            .await
            .unwrap();
        assert!(matches!(changed, MirrorChange::Changed(_)), "{changed:?}");
    }
}

async fn failed_looks_wait_and_news_of_a_mirror_do_not(db: &TestDb) {
    let store = db.store();
    let due_at = db.now() + TimeDelta::minutes(1);
    store
        .registry_tag_repo_failed(&repo(), 3, "The forge is away.", due_at)
        .await
        .unwrap();
    let row = store.registry_tag_repos().await.unwrap().remove(0);
    assert_eq!((row.failures, row.due_at, row.looked_at), (3, due_at, None));
    see(db, &[("v1.0.0", 'a')]).await;
    let row = store.registry_tag_repos().await.unwrap().remove(0);
    assert_eq!((row.failures, row.looked_at), (0, Some(db.now())));
    assert!(row.is_listed);

    let data_dir_id = "home".parse().unwrap();
    assert_eq!(
        store.registry_tag_repos_synced(&data_dir_id).await.unwrap(),
        []
    );
    db.clock.advance(Duration::from_mins(1));
    synced(db, &data_dir_id).await;
    assert_eq!(
        store.registry_tag_repos_synced(&data_dir_id).await.unwrap(),
        [repo()]
    );
    see(db, &[("v1.0.0", 'a')]).await;
    assert_eq!(
        store.registry_tag_repos_synced(&data_dir_id).await.unwrap(),
        []
    );
    store.registry_tag_repo_due(&repo(), due_at).await.unwrap();
    let row = store.registry_tag_repos().await.unwrap().remove(0);
    assert_eq!(row.due_at, due_at);
}

async fn tags_are_forgotten_with_the_claim_and_what_they_published_is_not(db: &TestDb) {
    let store = db.store();
    let key = "module acme/vpc/aws 1.0.0";
    see(db, &[("v1.0.0", 'a'), ("v1.1.0", 'a')]).await;
    let (one, two) = (place("v1.0.0", 'a'), place("v1.1.0", 'a'));
    record(store, &one, &published(key), None).await;
    let refused = TagVersion {
        outcome: TagOutcome::Refused,
        reason: Some("No.".to_owned()),
        ..published("module acme/vpc/aws 1.1.0")
    };
    record(store, &two, &refused, None).await;
    let (name, url) = ("net".parse().unwrap(), RepoUrl::of(&repo()).unwrap());
    drop(store.owner_create(&name, by()).await.unwrap());
    let owner = store.owner_get(&name).await.unwrap().unwrap();
    drop(store.claim_acquire(owner.id, &url, by()).await.unwrap());
    assert_eq!(store.registry_tags_forget(10).await.unwrap(), 0);
    assert_eq!(due(store, 'b', "x").await.len(), 2);

    // No application uses the claim, so it ends.
    for claim in store.claim_list_unused(10).await.unwrap() {
        let _collected = store.claim_collect(claim).await.unwrap();
    }
    assert_eq!(store.registry_tags_forget(0).await.unwrap(), 0);
    assert_eq!(store.registry_tags_forget(10).await.unwrap(), 1);
    assert_eq!(store.registry_tag_repos().await.unwrap(), []);
    assert_eq!(due(store, 'b', "x").await, [""; 0]);
    assert_eq!(
        store.registry_tag_versions(&one).await.unwrap(),
        [published(key)]
    );
    assert_eq!(store.registry_tag_versions(&two).await.unwrap(), []);
    assert_eq!(store.registry_tags_forget(10).await.unwrap(), 0);
}
