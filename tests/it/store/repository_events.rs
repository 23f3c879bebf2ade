//! Tests of the events of repositories, and of the cursor of each data directory.

use chrono::TimeDelta;
use futures::future::join_all;
use lockkeeper::model::{
    DataDirId, MirrorEvent, MirrorState, RepoId, RepositoryChange, RepositoryEventKind, SyncState,
};
use lockkeeper::store::{
    Accepted, EventWalk, HeadUpdate, MirrorQuery, MirrorsDue, NewDelivery, Store,
};

use super::samples::{job, pull};
use crate::support::db::{TestDb, by, store_test};
use crate::support::rows::deliveries;

store_test!(
    an_event_moves_the_mirrors_of_every_home_once,
    an_event_comes_with_its_delivery_and_only_once,
    a_cursor_never_passes_an_event_that_commits_late,
    of_two_that_walk_for_one_home_each_event_is_walked_once,
    a_home_that_begins_looks_at_every_repository_that_is_known,
    a_home_that_begins_looks_at_what_only_another_home_has,
    a_repository_that_was_only_given_to_the_app_is_not_urgent,
    events_that_all_have_walked_are_removed_and_no_others,
    who_was_not_heard_of_for_long_is_dropped_and_begins_anew,
);

fn data_dir_id(name: &str) -> DataDirId {
    name.parse().unwrap()
}

fn repo(name: &str) -> RepoId {
    format!("github.com/acme/{name}").parse().unwrap()
}

fn push(name: &str) -> RepositoryChange {
    RepositoryChange {
        repo: repo(name),
        kind: RepositoryEventKind::Push,
    }
}

fn delivery(id: &str) -> NewDelivery {
    NewDelivery {
        host: "github.com".parse().unwrap(),
        forge_delivery: id.to_owned(),
        event: "push".to_owned(),
        content_type: "application/json".to_owned(),
        body: b"{}".to_vec(),
    }
}

/// Returns the names of the mirrors of a data directory that wait for a sync.
async fn pending(store: &Store, name: &str) -> Vec<String> {
    let query = MirrorQuery {
        data_dir_id: Some(data_dir_id(name)),
        state: Some(SyncState::Pending),
        repo: None,
    };
    let rows = store.mirror_list(&query, 1000).await.unwrap();
    rows.iter().map(|row| row.repo.name().to_owned()).collect()
}

async fn walk(store: &Store, name: &str) -> EventWalk {
    store
        .repository_event_walk(&data_dir_id(name), 10)
        .await
        .unwrap()
}

async fn an_event_moves_the_mirrors_of_every_home_once(db: &TestDb) {
    let store = db.store();
    assert_eq!(walk(store, "a").await, EventWalk::NoCursor);
    for name in ["a", "b"] {
        assert_eq!(
            store
                .repository_event_begin(&data_dir_id(name))
                .await
                .unwrap(),
            0
        );
        assert_eq!(walk(store, name).await, EventWalk::Walked(0));
    }
    for name in ["infra", "labs", "infra"] {
        store.repository_event_append(&push(name)).await.unwrap();
    }
    for name in ["a", "b"] {
        assert_eq!(walk(store, name).await, EventWalk::Walked(3));
        assert_eq!(walk(store, name).await, EventWalk::Walked(0));
        assert_eq!(pending(store, name).await, ["infra", "labs"]);
    }
    let events = db
        .reopen()
        .await
        .repository_event_list(0, 10)
        .await
        .unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|event| (event.event.clone(), event.at))
        .collect();
    assert_eq!(
        told,
        ["infra", "labs", "infra"].map(|name| (push(name), db.now()))
    );
    assert!(events.is_sorted_by(|a, b| a.seq < b.seq));
}

async fn an_event_comes_with_its_delivery_and_only_once(db: &TestDb) {
    let store = db.store();
    for _ in 0..2 {
        let _first_only = store
            .delivery_note(&delivery("d1"), &[push("infra"), push("old")], &[])
            .await
            .unwrap();
        let _first_only = store
            .delivery_accept(&delivery("d2"), &[push("labs")], |_| job("x"))
            .await
            .unwrap();
    }
    assert_eq!(
        store
            .delivery_note(&delivery("d1"), &[push("infra")], &[])
            .await
            .unwrap(),
        Accepted::Duplicate
    );
    let events = store.repository_event_list(0, 10).await.unwrap();
    let names: Vec<&str> = events.iter().map(|event| event.event.repo.name()).collect();
    assert_eq!(names, ["infra", "old", "labs"]);
    let states: Vec<_> = deliveries(&db.url)
        .await
        .iter()
        .map(|row| row.state.as_str())
        .collect();
    assert!(
        states.contains(&"handled") && states.contains(&"received"),
        "{states:?}"
    );
}

/// Each of many writers appends events of its own repository, while a reader follows. Without the order that
/// appending guarantees, the reader passes numbers that are not committed yet and never sees their events.
async fn a_cursor_never_passes_an_event_that_commits_late(db: &TestDb) {
    let stores = [db.reopen().await, db.reopen().await, db.reopen().await];
    db.store()
        .repository_event_begin(&data_dir_id("a"))
        .await
        .unwrap();
    let names: Vec<String> = (0..96).map(|n| format!("r{n:03}")).collect();
    let append = |(n, name): (usize, &String)| {
        // Each writer has its own lane, so that nothing else orders the events.
        let (store, news, delivery, lane) = (
            stores[n % 3].clone(),
            push(name),
            delivery(name),
            name.clone(),
        );
        tokio::spawn(async move {
            let _new = store
                .delivery_accept(&delivery, &[news], |_| job(&lane))
                .await
                .unwrap();
        })
    };
    let writers = join_all(names.iter().enumerate().map(append));
    let walker = async {
        let mut walked = 0;
        while walked < names.len() {
            match walk(db.store(), "a").await {
                EventWalk::Walked(more) => walked += more,
                EventWalk::NoCursor => panic!("the cursor is there"),
            }
            tokio::task::yield_now().await;
        }
    };
    let (all, in_time) = tokio::join!(
        writers,
        tokio::time::timeout(std::time::Duration::from_mins(1), walker)
    );
    for writer in all {
        writer.unwrap();
    }
    in_time.expect("every event is walked");
    assert_eq!(pending(db.store(), "a").await, names);
}

async fn of_two_that_walk_for_one_home_each_event_is_walked_once(db: &TestDb) {
    let (store, other) = (db.store(), db.reopen().await);
    store
        .repository_event_begin(&data_dir_id("a"))
        .await
        .unwrap();
    for n in 0..40 {
        store
            .repository_event_append(&push(&format!("r{n}")))
            .await
            .unwrap();
    }
    let walks = (0..16).map(|n| walk(if n % 2 == 0 { store } else { &other }, "a"));
    let mut walked: usize = 0;
    for came in join_all(walks).await {
        walked += if let EventWalk::Walked(many) = came {
            many
        } else {
            0
        };
    }
    while let EventWalk::Walked(many @ 1..) = walk(store, "a").await {
        walked += many;
    }
    assert_eq!((walked, pending(store, "a").await.len()), (40, 40));
}

async fn a_home_that_begins_looks_at_every_repository_that_is_known(db: &TestDb) {
    let store = db.store();
    let told = HeadUpdate::Event(None);
    store.head_note(&pull(1), told).await.unwrap();
    store.repository_event_append(&push("past")).await.unwrap();
    assert_eq!(
        store
            .repository_event_begin(&data_dir_id("a"))
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        store
            .repository_event_begin(&data_dir_id("a"))
            .await
            .unwrap(),
        0,
        "it has begun"
    );
    assert_eq!(
        walk(store, "a").await,
        EventWalk::Walked(0),
        "what was before is not walked"
    );
    assert_eq!(pending(store, "a").await, [pull(1).repo.name(), "past"]);
    let row = store
        .mirror_get(&data_dir_id("a"), &pull(1).repo)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.state, MirrorState::new(db.now()));
}

/// A server is in sync with repositories for which only old pushes are stored. Another one joins.
async fn a_home_that_begins_looks_at_what_only_another_home_has(db: &TestDb) {
    let store = db.store();
    store
        .repository_event_begin(&data_dir_id("a"))
        .await
        .unwrap();
    for name in ["evicted", "forgotten", "pushed"] {
        store.repository_event_append(&push(name)).await.unwrap();
    }
    assert_eq!(walk(store, "a").await, EventWalk::Walked(3));
    let evicted = MirrorEvent::Evicted { at: db.now() };
    let _changed = store
        .mirror_change(&data_dir_id("a"), &repo("evicted"), &evicted)
        .await
        .unwrap();
    let row = store
        .mirror_get(&data_dir_id("a"), &repo("forgotten"))
        .await
        .unwrap()
        .unwrap();
    assert!(store.mirror_forget(&row).await.unwrap());
    db.clock.advance(std::time::Duration::from_hours(25));
    assert_eq!(
        store
            .repository_event_prune(db.now() - TimeDelta::days(1), 10)
            .await
            .unwrap(),
        3
    );
    assert_eq!(
        store
            .repository_event_begin(&data_dir_id("b"))
            .await
            .unwrap(),
        2
    );
    assert_eq!(pending(store, "b").await, ["evicted", "pushed"]);
    let row = store
        .mirror_get(&data_dir_id("b"), &repo("pushed"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.state, MirrorState::new(db.now()));
    let due = store.mirror_list_due(&data_dir_id("b"), 10).await.unwrap();
    assert_eq!(
        due.backfill,
        [repo("pushed")],
        "what nobody has any more waits until somebody uses it"
    );
    assert_eq!(
        store
            .mirror_request_sync(&repo("evicted"), by())
            .await
            .unwrap(),
        2,
        "or asks for it"
    );
}

async fn a_repository_that_was_only_given_to_the_app_is_not_urgent(db: &TestDb) {
    let store = db.store();
    store
        .repository_event_begin(&data_dir_id("a"))
        .await
        .unwrap();
    let told = |name: &str, kind| RepositoryChange { kind, ..push(name) };
    for news in [
        told("given", RepositoryEventKind::Changed),
        told("given-and-pushed", RepositoryEventKind::Changed),
        push("given-and-pushed"),
        told("taken", RepositoryEventKind::Deleted),
    ] {
        store.repository_event_append(&news).await.unwrap();
    }
    assert_eq!(walk(store, "a").await, EventWalk::Walked(4));
    let due = || async { store.mirror_list_due(&data_dir_id("a"), 10).await.unwrap() };
    let MirrorsDue {
        never, backfill, ..
    } = due().await;
    assert_eq!(
        (never, backfill),
        (vec![repo("given-and-pushed")], vec![repo("given")]),
        "one that is gone gets none"
    );
    store
        .repository_event_append(&told("given", RepositoryEventKind::Changed))
        .await
        .unwrap();
    assert_eq!(walk(store, "a").await, EventWalk::Walked(1));
    assert_eq!(
        due().await.never.len(),
        2,
        "more news of it are as urgent as any"
    );
}

async fn events_that_all_have_walked_are_removed_and_no_others(db: &TestDb) {
    let store = db.store();
    for name in ["a", "b"] {
        store
            .repository_event_begin(&data_dir_id(name))
            .await
            .unwrap();
    }
    for n in 0..5 {
        store
            .repository_event_append(&push(&format!("r{n}")))
            .await
            .unwrap();
    }
    let prune = || async {
        let before = db.now() - TimeDelta::days(1);
        store.repository_event_prune(before, 2).await.unwrap()
    };
    assert_eq!(walk(store, "a").await, EventWalk::Walked(5));
    db.clock.advance(std::time::Duration::from_hours(25));
    assert_eq!(prune().await, 0, "the other has not walked yet");
    assert_eq!(
        store
            .repository_event_walk(&data_dir_id("b"), 3)
            .await
            .unwrap(),
        EventWalk::Walked(3)
    );
    assert_eq!((prune().await, prune().await, prune().await), (2, 1, 0));
    assert_eq!(walk(store, "b").await, EventWalk::Walked(2));
    store.repository_event_append(&push("new")).await.unwrap();
    assert_eq!(
        (walk(store, "a").await, walk(store, "b").await),
        (EventWalk::Walked(1), EventWalk::Walked(1))
    );
    assert_eq!((prune().await, prune().await), (2, 0), "what is new stays");
    assert_eq!(pending(store, "b").await.len(), 6);
}

async fn who_was_not_heard_of_for_long_is_dropped_and_begins_anew(db: &TestDb) {
    let store = db.store();
    for name in ["alive", "away"] {
        store
            .repository_event_begin(&data_dir_id(name))
            .await
            .unwrap();
        store
            .mirror_know(&data_dir_id(name), &repo("infra"))
            .await
            .unwrap();
    }
    db.clock.advance(std::time::Duration::from_hours(24 * 8));
    assert_eq!(
        walk(store, "alive").await,
        EventWalk::Walked(0),
        "which is a sign of life"
    );
    let dropped = store
        .repository_event_drop_cursors(db.now() - TimeDelta::days(7))
        .await
        .unwrap();
    assert_eq!(dropped, [data_dir_id("away")]);
    assert_eq!(walk(store, "away").await, EventWalk::NoCursor);
    assert_eq!(
        (
            pending(store, "away").await.len(),
            pending(store, "alive").await.len()
        ),
        (0, 1)
    );
    store
        .head_note(&pull(1), HeadUpdate::Event(None))
        .await
        .unwrap();
    assert_eq!(
        store
            .repository_event_begin(&data_dir_id("away"))
            .await
            .unwrap(),
        1
    );
    assert_eq!(pending(store, "away").await, [pull(1).repo.name()]);
}
