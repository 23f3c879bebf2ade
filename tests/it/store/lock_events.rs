//! The audit log: what happened to locks, in a chain that shows every change to it.

use std::slice;
use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::locks::{Fault, Mark, Stretch, Verdict, verify, verify_on};
use lockkeeper::model::{ApplyScope, Concern, LockEvent, LockEventKind, NewLockEvent, PullState, Sha256Digest};
use lockkeeper::store::LockEventWalk;

use super::samples::{HOSTILE, URL, open_pull, planned, project, steal, take, taken};
use crate::support::db::{TestDb, applies_in, by, execute, store_test};

store_test!(
    every_change_of_a_lock_is_an_event_in_its_order,
    an_event_comes_back_as_it_was_kept,
    a_chain_that_nobody_touched_is_whole,
    a_changed_event_is_found,
    a_part_is_what_concerns_some_newest_first,
    an_event_that_was_given_to_another_owner_is_found,
    a_removed_event_is_found,
    an_event_that_was_changed_together_with_its_hash_is_found,
    a_tail_that_was_cut_off_is_found_by_whoever_noted_the_head,
    what_is_pruned_leaves_a_seal_that_the_chain_continues,
    events_of_many_at_once_make_one_chain,
    a_walk_goes_on_where_it_was_and_looks_at_what_is_new,
    a_walk_finds_what_was_cut_off_or_put_in_place_of_the_event_it_stands_at,
    a_walk_that_stands_at_a_pruned_event_begins_at_the_seal,
    how_far_a_walk_came_is_kept,
);

async fn kinds(db: &TestDb) -> Vec<LockEventKind> {
    let mut events = db.store().lock_event_list(100).await.unwrap();
    events.reverse();
    events.into_iter().map(|kept| kept.event.kind).collect()
}

async fn every_change_of_a_lock_is_an_event_in_its_order(db: &TestDb) {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let lock = taken(store, &one, &project("a")).await;
    let _again = take(store, &one, &project("a")).await;
    assert!(store.lock_release(&one, &project("a"), by()).await.unwrap());
    assert!(!store.lock_release(&one, &project("a"), by()).await.unwrap(), "nothing was released");
    let stolen = taken(store, &one, &project("a")).await;
    assert_eq!(steal(store, stolen.id).await, Some(stolen));
    taken(store, &one, &project("b")).await;
    db.clock.advance(Duration::from_hours(2));
    assert_eq!(store.lock_renew(&one, TimeDelta::hours(1), by()).await.unwrap().len(), 1);
    assert_eq!(store.lock_renew(&one, TimeDelta::hours(1), by()).await.unwrap(), [], "it was noted a moment ago");
    store.pull_close(&one, PullState::Merged, URL, by(), |_| vec![]).await.unwrap();
    let expected = ["taken", "released", "taken", "stolen", "taken", "renewed", "released"];
    assert_eq!(kinds(db).await.into_iter().map(LockEventKind::as_str).collect::<Vec<_>>(), expected);
    let of_lock = store.lock_event_list_of(&lock.key, 100).await.unwrap();
    assert_eq!(of_lock.len(), 4);
    assert_eq!(store.lock_event_list_of(&lock.key, 1).await.unwrap(), of_lock[..1]);
}

async fn an_event_comes_back_as_it_was_kept(db: &TestDb) {
    let lock = taken(db.store(), &open_pull(db.store(), 1).await, &project("a")).await;
    let mut cause = by().clone().from_address(Some("192.0.2.7".to_owned()));
    HOSTILE.clone_into(&mut cause.reason);
    let event = NewLockEvent {
        kind: LockEventKind::Denied,
        key: Some(lock.key.clone()),
        scope: None,
        pull: Some(lock.pull.clone()),
        concern: None,
        cause: cause.clone(),
    };
    let bare = |kind, scope| NewLockEvent { kind, key: None, scope, pull: None, concern: None, cause: cause.clone() };
    let about = |kind, text: &str| NewLockEvent { concern: Some(text.parse().unwrap()), ..bare(kind, None) };
    let events = [
        event,
        bare(LockEventKind::Denied, None),
        NewLockEvent { pull: Some(lock.pull.clone()), ..bare(LockEventKind::Denied, None) },
        bare(LockEventKind::ApplyLocked, Some(ApplyScope::Server)),
        bare(LockEventKind::ApplyUnlocked, Some(applies_in("github.com/acme/infra", "."))),
        bare(LockEventKind::Denied, Some(applies_in("github.com/acme/infra", "network"))),
        about(LockEventKind::Denied, "github.com/acme/infra"),
        about(LockEventKind::Registered, "net"),
    ];
    for event in &events {
        db.store().lock_event_append(event.clone()).await.unwrap();
    }
    let kept = db.reopen().await.lock_event_after(1, 10).await.unwrap();
    assert_eq!(kept.iter().map(|kept| kept.event.clone()).collect::<Vec<_>>(), events);
    assert!(kept.iter().all(LockEvent::is_intact));
    assert_eq!((kept[0].seq, kept[0].at, &kept[1].previous), (2, db.now(), &kept[0].hash));
}

/// Six events.
async fn six(db: &TestDb) -> Vec<LockEvent> {
    let one = open_pull(db.store(), 1).await;
    for _ in 0..3 {
        planned(db, &one, &project("a")).await;
        assert!(db.store().lock_release(&one, &project("a"), by()).await.unwrap());
        db.clock.advance(Duration::from_hours(24));
    }
    db.store().lock_event_after(0, 10).await.unwrap()
}

fn broken(seq: i64, fault: Fault) -> Verdict {
    Verdict::Broken { seq, fault }
}

async fn a_chain_that_nobody_touched_is_whole(db: &TestDb) {
    let (genesis, unknown) = (LockEvent::genesis(), Sha256Digest::of(b"somewhere else"));
    let empty = Verdict::Whole { events: 0, removed: 0, head: genesis, known: true };
    assert_eq!(verify(db.store(), None).await.unwrap(), empty);
    let events = six(db).await;
    let whole = |known| Verdict::Whole { events: 6, removed: 0, head: events[5].hash.clone(), known };
    assert_eq!(verify(db.store(), None).await.unwrap(), whole(true));
    assert_eq!(verify(db.store(), Some(&events[2].hash)).await.unwrap(), whole(true));
    assert_eq!(verify(db.store(), Some(&unknown)).await.unwrap(), whole(false));
}

async fn a_changed_event_is_found(db: &TestDb) {
    six(db).await;
    execute(db, "UPDATE lock_events SET actor = 'nobody' WHERE seq = 3").await;
    assert_eq!(verify(db.store(), None).await.unwrap(), broken(3, Fault::Changed));
}

/// Events that concern two owners, two repositories by lock and by name, and the whole server.
async fn events_of_many(db: &TestDb) -> Vec<i64> {
    let (store, one) = (db.store(), open_pull(db.store(), 1).await);
    let event = |concern: Option<&str>, scope| NewLockEvent {
        kind: LockEventKind::Denied,
        key: None,
        scope,
        pull: None,
        concern: concern.map(|text| text.parse().unwrap()),
        cause: by().clone(),
    };
    taken(store, &one, &project("a")).await;
    store.lock_event_append(event(Some("net"), None)).await.unwrap();
    store.lock_event_append(event(Some("dns"), None)).await.unwrap();
    store.lock_event_append(event(Some("github.com/acme/infra"), None)).await.unwrap();
    store.lock_event_append(event(Some("github.com/acme/other"), None)).await.unwrap();
    store.lock_event_append(event(None, Some(ApplyScope::Server))).await.unwrap();
    store.lock_event_append(event(None, Some(applies_in("github.com/acme/infra", ".")))).await.unwrap();
    store.lock_event_append(event(None, Some(applies_in("github.com/acme/other", ".")))).await.unwrap();
    numbers(&store.lock_event_after(0, 100).await.unwrap())
}

fn numbers(events: &[LockEvent]) -> Vec<i64> {
    events.iter().map(|event| event.seq).collect()
}

async fn a_part_is_what_concerns_some_newest_first(db: &TestDb) {
    assert_eq!(events_of_many(db).await, (1..=8).collect::<Vec<_>>());
    let part = async |of: Option<&[&str]>, before, limit| {
        let of = of.map(|of| of.iter().map(|text| text.parse().unwrap()).collect::<Vec<Concern>>());
        numbers(&db.store().lock_event_part(of.as_deref(), before, limit).await.unwrap())
    };
    assert_eq!(part(None, None, 3).await, [8, 7, 6]);
    assert_eq!(part(None, Some(6), 3).await, [5, 4, 3]);
    let net = ["net", "github.com/acme/infra"];
    assert_eq!(part(Some(&net), None, 100).await, [7, 4, 2, 1]);
    assert_eq!(part(Some(&net), None, 3).await, [7, 4, 2], "from all of them, the newest");
    assert_eq!(part(Some(&net), Some(4), 3).await, [2, 1]);
    assert_eq!(part(Some(&["dns"]), None, 100).await, [3]);
    assert_eq!(part(Some(&["github.com/acme/other", "dns"]), None, 100).await, [8, 5, 3]);
    assert_eq!(part(Some(&["nobody", "github.com/acme/none"]), None, 100).await, [0; 0]);
    assert_eq!(part(Some(&[]), None, 100).await, [0; 0], "nobody's is nothing");
}

async fn an_event_that_was_given_to_another_owner_is_found(db: &TestDb) {
    events_of_many(db).await;
    assert!(matches!(verify(db.store(), None).await.unwrap(), Verdict::Whole { events: 8, .. }));
    execute(db, "UPDATE lock_events SET concern = NULL WHERE seq = 3").await;
    assert_eq!(verify(db.store(), None).await.unwrap(), broken(3, Fault::Changed));
    execute(db, "UPDATE lock_events SET concern = 'net' WHERE seq = 1").await;
    assert_eq!(verify(db.store(), None).await.unwrap(), broken(1, Fault::Changed));
}

async fn a_removed_event_is_found(db: &TestDb) {
    six(db).await;
    execute(db, "DELETE FROM lock_events WHERE seq = 4").await;
    assert_eq!(verify(db.store(), None).await.unwrap(), broken(4, Fault::Missing));
    execute(db, "DELETE FROM lock_events WHERE seq = 1").await;
    assert_eq!(verify(db.store(), None).await.unwrap(), broken(1, Fault::Missing));
}

async fn an_event_that_was_changed_together_with_its_hash_is_found(db: &TestDb) {
    let mut event = six(db).await.remove(1);
    "nobody".clone_into(&mut event.event.cause.actor.login);
    let hash = LockEvent::hash_of(event.seq, event.at, &event.event, &event.previous);
    execute(db, &format!("UPDATE lock_events SET actor = 'nobody', hash = '{hash}' WHERE seq = 2")).await;
    assert_eq!(verify(db.store(), None).await.unwrap(), broken(3, Fault::Unlinked));
}

async fn a_tail_that_was_cut_off_is_found_by_whoever_noted_the_head(db: &TestDb) {
    let head = six(db).await.remove(5).hash;
    execute(db, "DELETE FROM lock_events WHERE seq = 6").await;
    let Verdict::Whole { events, known, .. } = verify(db.store(), Some(&head)).await.unwrap() else {
        panic!("the rest is whole")
    };
    assert_eq!((events, known), (5, false));
}

async fn what_is_pruned_leaves_a_seal_that_the_chain_continues(db: &TestDb) {
    let events = six(db).await;
    let store = db.store();
    assert_eq!(store.lock_event_prune(events[0].at, "ada").await.unwrap(), None, "nothing is older");
    let seal = store.lock_event_prune(events[2].at, "ada").await.unwrap().expect("two events are older");
    assert_eq!((seal.last_seq, seal.events, &seal.last_hash), (2, 2, &events[1].hash));
    assert_eq!((seal.last_at, seal.actor.as_str(), seal.sealed_at), (events[1].at, "ada", db.now()));
    assert_eq!(store.lock_event_seals().await.unwrap(), slice::from_ref(&seal));
    taken(store, &open_pull(store, 2).await, &project("b")).await;
    let Verdict::Whole { events: left, removed, known, .. } = verify(store, Some(&seal.last_hash)).await.unwrap()
    else {
        panic!("the chain continues the seal")
    };
    assert_eq!((left, removed, known), (5, 2, true));
    // However late, the newest stays.
    let all = store.lock_event_prune(db.now() + TimeDelta::days(100), "ada").await.unwrap().unwrap();
    assert_eq!(all.last_seq, 6);
    assert!(matches!(verify(store, None).await.unwrap(), Verdict::Whole { events: 1, removed: 6, .. }));
    execute(db, "UPDATE lock_event_seals SET last_hash = previous FROM lock_events WHERE last_seq = 6").await;
    assert!(matches!(verify(store, None).await.unwrap(), Verdict::Whole { .. }), "the newest continues this hash");
    execute(db, &format!("UPDATE lock_event_seals SET last_hash = '{}' WHERE last_seq = 6", LockEvent::genesis()))
        .await;
    assert_eq!(verify(store, None).await.unwrap(), broken(7, Fault::Unlinked));
}

async fn events_of_many_at_once_make_one_chain(db: &TestDb) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=8 {
        let store = db.reopen().await;
        tasks.spawn(async move {
            let (pull, own) = (open_pull(&store, number).await, project(&format!("p{number}")));
            for _ in 0..10 {
                taken(&store, &pull, &own).await;
                assert!(store.lock_release(&pull, &own, by()).await.unwrap());
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(matches!(verify(db.store(), None).await.unwrap(), Verdict::Whole { events: 160, .. }));
}

fn mark(event: &LockEvent) -> Mark {
    Mark { seq: event.seq, hash: event.hash.clone() }
}

async fn a_walk_goes_on_where_it_was_and_looks_at_what_is_new(db: &TestDb) {
    let store = db.store();
    let nothing = Mark { seq: 0, hash: LockEvent::genesis() };
    let empty = Stretch::Whole { mark: nothing.clone(), events: 0, at_end: true };
    assert_eq!(verify_on(store, None, 5).await.unwrap(), empty);
    let events = six(db).await;
    let whole = |count, at_end| Stretch::Whole { mark: mark(&events[5]), events: count, at_end };
    assert_eq!(verify_on(store, Some(&nothing), 5).await.unwrap(), whole(6, true));
    assert_eq!(verify_on(store, Some(&mark(&events[3])), 5).await.unwrap(), whole(2, true));
    assert_eq!(verify_on(store, Some(&mark(&events[3])), 1).await.unwrap(), whole(2, false), "one piece was read");
    execute(db, "UPDATE lock_events SET actor = 'nobody' WHERE seq = 3").await;
    assert_eq!(verify_on(store, Some(&mark(&events[3])), 5).await.unwrap(), whole(2, true), "that was verified before");
    let found = Stretch::Broken { seq: 3, fault: Fault::Changed };
    assert_eq!(verify_on(store, Some(&mark(&events[1])), 5).await.unwrap(), found);
}

async fn a_walk_finds_what_was_cut_off_or_put_in_place_of_the_event_it_stands_at(db: &TestDb) {
    let events = six(db).await;
    let stands = mark(&events[5]);
    execute(db, "DELETE FROM lock_events WHERE seq = 6").await;
    let missing = Stretch::Broken { seq: 6, fault: Fault::Missing };
    assert_eq!(verify_on(db.store(), Some(&stands), 5).await.unwrap(), missing);
    taken(db.store(), &open_pull(db.store(), 2).await, &project("b")).await;
    let changed = Stretch::Broken { seq: 6, fault: Fault::Changed };
    assert_eq!(verify_on(db.store(), Some(&stands), 5).await.unwrap(), changed, "the chain itself is whole again");
}

async fn a_walk_that_stands_at_a_pruned_event_begins_at_the_seal(db: &TestDb) {
    let events = six(db).await;
    db.store().lock_event_prune(events[4].at, "ada").await.unwrap().expect("four events are older");
    for from in [1, 3] {
        let stretch = verify_on(db.store(), Some(&mark(&events[from])), 5).await.unwrap();
        assert_eq!(stretch, Stretch::Whole { mark: mark(&events[5]), events: 2, at_end: true });
    }
}

async fn how_far_a_walk_came_is_kept(db: &TestDb) {
    assert_eq!(db.store().lock_event_walks().await.unwrap(), []);
    let walk = |name: &str, seq, broken: Option<i64>| LockEventWalk {
        name: name.to_owned(),
        seq,
        hash: Sha256Digest::of(name.as_bytes()),
        broken_seq: broken,
        fault: broken.map(|_| "is missing".to_owned()),
        walked_at: db.now(),
    };
    for (name, seq, broken) in [("new", 5, None), ("again", 2, None), ("new", 5, Some(6))] {
        db.store().lock_event_walk_set(&walk(name, seq, broken)).await.unwrap();
    }
    assert_eq!(db.reopen().await.lock_event_walks().await.unwrap(), [walk("again", 2, None), walk("new", 5, Some(6))]);
}
