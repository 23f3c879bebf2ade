//! Tests of the table of mirrors.

use chrono::TimeDelta;
use futures::future::join_all;
use lockkeeper::model::{
    AttemptLease, DataDirId, FailureKind, Jitter, LockEventKind, MirrorEvent, MirrorState,
    NotAllowed, RepoId, Sha256Digest, SyncFacts, SyncFailure, SyncRequest, SyncState,
};
use lockkeeper::store::{LeaseHold, MirrorChange, MirrorQuery, MirrorRow, MirrorsDue, NewLease};

use super::samples::HOSTILE;
use crate::support::db::{TestDb, by, store_test};

store_test!(
    a_mirror_is_known_once_and_waits_for_its_first_attempt,
    what_is_kept_of_a_mirror_is_what_was_written,
    of_many_that_begin_an_attempt_one_does,
    of_updates_and_attempts_at_once_none_is_lost,
    what_may_not_happen_is_refused_and_changes_nothing,
    an_attempt_without_a_live_lease_is_given_up,
    every_sort_that_is_due_is_listed_by_its_age,
    a_mirror_that_nobody_told_of_is_stale_in_the_end,
    somebody_asks_for_the_mirrors_of_all_homes,
    mirrors_are_listed_counted_and_forgotten,
    a_mirror_that_was_told_of_since_it_was_read_is_not_forgotten,
);

fn data_dir_id(name: &str) -> DataDirId {
    name.parse().unwrap()
}

fn repo(name: &str) -> RepoId {
    format!("github.com/acme/{name}").parse().unwrap()
}

fn lease(holder: &str) -> AttemptLease {
    AttemptLease {
        key: "repository_sync:a:github.com/acme/infra".to_owned(),
        holder: holder.to_owned(),
    }
}

impl TestDb {
    async fn change(&self, name: &str, event: &MirrorEvent) -> MirrorChange {
        self.store()
            .mirror_change(&data_dir_id("a"), &repo(name), event)
            .await
            .unwrap()
    }

    async fn changed(&self, name: &str, event: &MirrorEvent) -> MirrorState {
        match self.change(name, event).await {
            MirrorChange::Changed(row) => row.state,
            refused @ (MirrorChange::NotAllowed(_) | MirrorChange::Unknown) => {
                panic!("{}: {refused:?}", event.name())
            }
        }
    }

    async fn mirror(&self, name: &str) -> MirrorRow {
        self.reopen()
            .await
            .mirror_get(&data_dir_id("a"), &repo(name))
            .await
            .unwrap()
            .expect("the mirror is known")
    }

    async fn know(&self, name: &str) {
        assert!(
            self.store()
                .mirror_know(&data_dir_id("a"), &repo(name))
                .await
                .unwrap()
        );
    }

    fn begins(&self, holder: &str) -> MirrorEvent {
        MirrorEvent::Started {
            at: self.now(),
            lease: lease(holder),
        }
    }

    fn succeeds(&self, holder: &str) -> MirrorEvent {
        let checksum = Sha256Digest::of(b"refs");
        let facts = SyncFacts {
            checksum,
            refs: 3,
            refused: vec!["refs/heads/x: bad".to_owned()],
            bytes: Some(u64::MAX >> 1),
            connectivity: true,
            maintained: true,
        };
        MirrorEvent::Succeeded {
            at: self.now(),
            holder: holder.to_owned(),
            facts,
            jitter: Jitter(77),
        }
    }

    fn fails(&self, holder: &str, kind: FailureKind) -> MirrorEvent {
        let failure = SyncFailure {
            kind,
            message: HOSTILE.to_owned(),
        };
        MirrorEvent::Failed {
            at: self.now(),
            holder: holder.to_owned(),
            failure,
            jitter: Jitter(7),
        }
    }

    fn is_updated(&self) -> MirrorEvent {
        MirrorEvent::Updated { at: self.now() }
    }

    async fn due(&self) -> MirrorsDue {
        self.store()
            .mirror_list_due(&data_dir_id("a"), 10)
            .await
            .unwrap()
    }

    async fn synced(&self, name: &str) {
        self.know(name).await;
        self.changed(name, &self.begins("x")).await;
        self.changed(name, &self.succeeds("x")).await;
    }
}

async fn a_mirror_is_known_once_and_waits_for_its_first_attempt(db: &TestDb) {
    let store = db.store();
    assert_eq!(
        store
            .mirror_get(&data_dir_id("a"), &repo("infra"))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        db.change("infra", &db.is_updated()).await,
        MirrorChange::Unknown
    );
    assert!(
        store
            .mirror_know(&data_dir_id("a"), &repo("infra"))
            .await
            .unwrap()
    );
    assert!(
        !store
            .mirror_know(&data_dir_id("a"), &repo("infra"))
            .await
            .unwrap()
    );
    assert!(
        store
            .mirror_know(&data_dir_id("b"), &repo("infra"))
            .await
            .unwrap(),
        "each home has its own"
    );
    let row = db.mirror("infra").await;
    assert_eq!(row.created_at, db.now());
    assert_eq!(row.state, MirrorState::new(db.now()));
}

async fn what_is_kept_of_a_mirror_is_what_was_written(db: &TestDb) {
    db.know("infra").await;
    db.clock
        .advance(std::time::Duration::from_micros(1_234_567));
    let asked = SyncRequest {
        at: db.now(),
        by: "ada".to_owned(),
        reason: Some("she wants to".to_owned()),
    };
    let holder = "replica/1";
    let fails = |kind| {
        let failure = SyncFailure {
            kind,
            message: "it is away".to_owned(),
        };
        MirrorEvent::Failed {
            at: db.now(),
            holder: holder.to_owned(),
            failure,
            jitter: Jitter(7),
        }
    };
    let events = [
        db.is_updated(),
        MirrorEvent::Asked(asked.clone()),
        db.begins(holder),
        db.is_updated(),
        fails(FailureKind::Verification),
        db.is_updated(),
        MirrorEvent::Used { at: db.now() },
        MirrorEvent::Asked(asked),
        db.begins(holder),
        db.succeeds(holder),
        MirrorEvent::Evicted { at: db.now() },
    ];
    let mut state = db.mirror("infra").await.state;
    for event in &events {
        state = state.next(event).unwrap();
        assert_eq!(db.changed("infra", event).await, state, "{}", event.name());
        assert_eq!(db.mirror("infra").await.state, state, "{}", event.name());
    }
    db.know("hostile").await;
    db.changed("hostile", &db.begins(holder)).await;
    db.changed("hostile", &db.fails(holder, FailureKind::Other))
        .await;
    let kept = db.mirror("hostile").await.state.failure.unwrap().message;
    assert_eq!(kept, HOSTILE.replace('\0', "\u{fffd}"));
}

async fn of_many_that_begin_an_attempt_one_does(db: &TestDb) {
    db.know("infra").await;
    let other = db.reopen().await;
    let (a, infra) = (data_dir_id("a"), repo("infra"));
    let begins: Vec<MirrorEvent> = (0..16)
        .map(|n| db.begins(&format!("replica/{n}")))
        .collect();
    let stores = [db.store(), &other].into_iter().cycle();
    let tries = begins
        .iter()
        .zip(stores)
        .map(|(begin, store)| store.mirror_change(&a, &infra, begin));
    let came: Vec<MirrorChange> = join_all(tries)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let begun = came
        .iter()
        .filter(|change| matches!(change, MirrorChange::Changed(_)))
        .count();
    let refused = came
        .iter()
        .filter(|change| **change == MirrorChange::NotAllowed(NotAllowed::UnderWay))
        .count();
    assert_eq!((begun, refused), (1, 15), "{came:?}");
}

/// In every interleaving, an update leads to an attempt that begins after it.
async fn of_updates_and_attempts_at_once_none_is_lost(db: &TestDb) {
    db.know("infra").await;
    let other = db.reopen().await;
    let (a, infra) = (data_dir_id("a"), repo("infra"));
    for round in 0..20 {
        let holder = format!("replica/{round}");
        db.changed("infra", &db.begins(&holder)).await;
        let (updated, ended) = (db.is_updated(), db.succeeds(&holder));
        let changes = (0..4).map(|_| other.mirror_change(&a, &infra, &updated));
        let (told, end) = tokio::join!(
            join_all(changes),
            db.store().mirror_change(&a, &infra, &ended)
        );
        assert!(
            told.into_iter()
                .all(|told| matches!(told.unwrap(), MirrorChange::Changed(_)))
        );
        assert!(matches!(end.unwrap(), MirrorChange::Changed(_)));
        assert_eq!(
            db.mirror("infra").await.state.state,
            SyncState::Pending,
            "round {round}"
        );
    }
}

async fn what_may_not_happen_is_refused_and_changes_nothing(db: &TestDb) {
    db.synced("infra").await;
    let before = db.mirror("infra").await;
    let refused = [
        (db.begins("y"), NotAllowed::NotDue),
        (db.succeeds("x"), NotAllowed::NotUnderWay),
        (db.fails("x", FailureKind::Other), NotAllowed::NotUnderWay),
        (MirrorEvent::Due { at: db.now() }, NotAllowed::NotDue),
        (
            MirrorEvent::Orphaned {
                at: db.now(),
                jitter: Jitter(0),
            },
            NotAllowed::NotUnderWay,
        ),
    ];
    for (event, why) in refused {
        assert_eq!(
            db.change("infra", &event).await,
            MirrorChange::NotAllowed(why),
            "{}",
            event.name()
        );
    }
    assert_eq!(db.mirror("infra").await, before);
    db.changed("infra", &db.is_updated()).await;
    db.changed("infra", &db.begins("y")).await;
    assert_eq!(
        db.change("infra", &db.succeeds("x")).await,
        MirrorChange::NotAllowed(NotAllowed::NotYours)
    );
}

async fn an_attempt_without_a_live_lease_is_given_up(db: &TestDb) {
    let store = db.store();
    let hold = LeaseHold {
        key: lease("").key,
        holder: "replica/1".to_owned(),
    };
    let until = db.now() + TimeDelta::minutes(1);
    let _taken = store
        .lease_take(NewLease {
            hold: &hold,
            purpose: "sync",
            until,
        })
        .await
        .unwrap();
    db.know("infra").await;
    db.changed("infra", &db.begins("replica/1")).await;
    let orphaned = || MirrorEvent::Orphaned {
        at: db.now(),
        jitter: Jitter(0),
    };
    assert!(store.mirror_list_orphaned(10).await.unwrap().is_empty());
    assert_eq!(
        db.change("infra", &orphaned()).await,
        MirrorChange::NotAllowed(NotAllowed::UnderWay)
    );
    db.clock.advance_to(until);
    assert_eq!(
        store.mirror_list_orphaned(10).await.unwrap(),
        [(data_dir_id("a"), repo("infra"))]
    );
    let state = db.changed("infra", &orphaned()).await;
    assert_eq!(
        (state.state, state.retry_count, state.lease),
        (SyncState::Failed, 1, None)
    );
    assert_eq!(state.failure.unwrap().kind, FailureKind::Interrupted);
    assert!(store.mirror_list_orphaned(10).await.unwrap().is_empty());
    let late = db.change("infra", &db.succeeds("replica/1")).await;
    assert_eq!(
        late,
        MirrorChange::NotAllowed(NotAllowed::NotUnderWay),
        "who comes back late changes nothing"
    );
}

async fn every_sort_that_is_due_is_listed_by_its_age(db: &TestDb) {
    let tick = || db.clock.advance(std::time::Duration::from_secs(1));
    for name in ["told-b", "idle-b", "used-a", "idle-a"] {
        db.know(name).await;
        tick();
    }
    db.changed("told-b", &db.is_updated()).await;
    db.changed("used-a", &MirrorEvent::Used { at: db.now() })
        .await;
    for name in ["updated-b", "updated-a", "calm"] {
        db.synced(name).await;
    }
    for name in ["updated-b", "updated-a"] {
        db.changed(name, &db.is_updated()).await;
        tick();
    }
    for name in ["failed-b", "failed-a"] {
        db.know(name).await;
        db.changed(name, &db.begins("x")).await;
        db.changed(name, &db.fails("x", FailureKind::Unreachable))
            .await;
        tick();
    }
    db.synced("asked").await;
    db.changed(
        "asked",
        &MirrorEvent::Asked(SyncRequest {
            at: db.now(),
            by: "ada".to_owned(),
            reason: None,
        }),
    )
    .await;
    db.synced("gone").await;
    db.changed("gone", &MirrorEvent::Evicted { at: db.now() })
        .await;
    db.changed("gone", &db.is_updated()).await;
    let names = |names: &[&str]| names.iter().map(|name| repo(name)).collect::<Vec<_>>();
    let due = MirrorsDue {
        asked: names(&["asked"]),
        updated: names(&["updated-b", "updated-a"]),
        retries: Vec::new(),
        never: names(&["told-b", "used-a"]),
        backfill: names(&["idle-b", "idle-a"]),
    };
    assert_eq!(db.due().await, due);
    db.clock.advance(std::time::Duration::from_secs(40));
    assert_eq!(
        db.due().await,
        MirrorsDue {
            retries: names(&["failed-b", "failed-a"]),
            ..due
        }
    );
    let one = db
        .store()
        .mirror_list_due(&data_dir_id("a"), 1)
        .await
        .unwrap();
    assert_eq!(
        (one.never, one.retries),
        (names(&["told-b"]), names(&["failed-b"]))
    );
    assert_eq!(one.backfill, names(&["idle-b"]));
    assert_eq!(
        db.store()
            .mirror_list_due(&data_dir_id("b"), 10)
            .await
            .unwrap(),
        MirrorsDue::default()
    );
    db.changed("gone", &MirrorEvent::Used { at: db.now() })
        .await;
    assert_eq!(db.due().await.never, names(&["told-b", "used-a"]));
    assert_eq!(
        db.due().await.updated,
        names(&["updated-b", "updated-a", "gone"])
    );
}

async fn a_mirror_that_nobody_told_of_is_stale_in_the_end(db: &TestDb) {
    db.synced("infra").await;
    let stale = || async {
        db.store()
            .mirror_list_stale(&data_dir_id("a"), 10)
            .await
            .unwrap()
    };
    assert!(stale().await.is_empty());
    db.clock
        .advance_to(db.mirror("infra").await.state.refresh_at.unwrap());
    assert_eq!(stale().await, [repo("infra")]);
    db.changed("infra", &MirrorEvent::Due { at: db.now() })
        .await;
    assert!(stale().await.is_empty());
    assert_eq!(db.due().await.updated, [repo("infra")]);
}

async fn somebody_asks_for_the_mirrors_of_all_homes(db: &TestDb) {
    for name in ["a", "b"] {
        db.store()
            .mirror_know(&data_dir_id(name), &repo("infra"))
            .await
            .unwrap();
    }
    db.know("other").await;
    assert_eq!(
        db.store()
            .mirror_request_sync(&repo("infra"), by())
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        db.store()
            .mirror_request_sync(&repo("nowhere"), by())
            .await
            .unwrap(),
        0
    );
    let events = db.store().lock_event_list(10).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|kept| (kept.event.kind, kept.event.cause.actor.login.as_str()))
        .collect();
    assert_eq!(
        told,
        [(LockEventKind::SyncAsked, "ada")],
        "once, whatever the number of mirrors"
    );
    assert!(
        events[0]
            .event
            .cause
            .reason
            .ends_with("infra: as the test wants it"),
        "{:?}",
        events[0]
    );
    let asked = SyncRequest {
        at: db.now(),
        by: "ada".to_owned(),
        reason: Some("as the test wants it".to_owned()),
    };
    for name in ["a", "b"] {
        let row = db
            .store()
            .mirror_get(&data_dir_id(name), &repo("infra"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(row.state.asked.as_ref(), Some(&asked));
    }
    assert_eq!(db.mirror("other").await.state.asked, None);
}

async fn mirrors_are_listed_counted_and_forgotten(db: &TestDb) {
    let store = db.store();
    for name in ["b", "a"] {
        db.synced(name).await;
    }
    db.know("c").await;
    store
        .mirror_know(&data_dir_id("z"), &repo("a"))
        .await
        .unwrap();
    let list = |query: MirrorQuery| async move {
        let rows = store.mirror_list(&query, 10).await.unwrap();
        rows.iter()
            .map(|row| format!("{} {}", row.data_dir_id, row.repo.name()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        list(MirrorQuery::default()).await,
        ["a a", "a b", "a c", "z a"]
    );
    let query = MirrorQuery {
        data_dir_id: Some(data_dir_id("a")),
        state: Some(SyncState::Synced),
        repo: None,
    };
    assert_eq!(list(query).await, ["a a", "a b"]);
    assert_eq!(
        list(MirrorQuery {
            repo: Some(repo("a")),
            ..MirrorQuery::default()
        })
        .await,
        ["a a", "z a"]
    );
    assert_eq!(
        store.mirror_count(&data_dir_id("a")).await.unwrap(),
        [(SyncState::Pending, 1), (SyncState::Synced, 2)]
    );
    let row = db.mirror("a").await;
    assert!(store.mirror_forget(&row).await.unwrap());
    assert!(!store.mirror_forget(&row).await.unwrap(), "it is gone");
    assert_eq!(list(MirrorQuery::default()).await, ["a b", "a c", "z a"]);
}

/// The worker read that nobody has claimed the repository. Then somebody claims it and pushes.
async fn a_mirror_that_was_told_of_since_it_was_read_is_not_forgotten(db: &TestDb) {
    let store = db.store();
    db.know("infra").await;
    let before = db.mirror("infra").await;
    db.changed("infra", &db.is_updated()).await;
    assert!(!store.mirror_forget(&before).await.unwrap());
    let (after, other) = (db.mirror("infra").await, db.reopen().await);
    let updated = db.is_updated();
    let (told, forgotten) = tokio::join!(db.change("infra", &updated), other.mirror_forget(&after));
    let was_told_first = matches!(told, MirrorChange::Changed(_));
    assert_ne!(
        was_told_first,
        forgotten.unwrap(),
        "one of them was first: {told:?}"
    );
    assert_eq!(
        store
            .mirror_get(&data_dir_id("a"), &repo("infra"))
            .await
            .unwrap()
            .is_some(),
        was_told_first
    );
}
