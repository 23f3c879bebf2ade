//! Tests of leases with an end time.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use lockkeeper::model::{LockEventKind, Origin, RepoId};
use lockkeeper::store::{
    FreeLease, Lease, LeaseHold, LeaseRow, NewLease, Presence, ReplicaId, ReplicaState, Store,
    TIME_TO_LET_GO, TakeLease,
};

use super::samples::HOSTILE;
use crate::support::db::{TestDb, by, store_test};
use crate::support::rows::live_lease;

store_test!(
    a_free_lease_is_taken_and_seen_by_everybody,
    a_lease_that_is_held_is_refused_by_naming_who_has_it,
    a_lease_ends_by_time,
    a_renewed_lease_lasts_longer,
    a_stranger_neither_renews_nor_releases,
    a_released_lease_is_free,
    of_64_that_take_a_lease_at_once_one_gets_it,
    a_lease_without_end_is_held,
    times_keep_microseconds_and_no_more,
    a_lease_of_a_replica_that_is_gone_is_taken_at_once,
    leases_are_listed_with_what_is_known_of_their_replica,
    the_first_by_key_are_listed_and_those_of_a_repository_are_not_cut_off_by_others,
    a_holder_at_work_is_told_to_stop_and_keeps_the_lease_until_it_has,
    a_lease_that_nobody_works_under_is_freed_by_hand_at_once,
    only_the_holder_that_was_named_is_freed,
    releases_by_hand_are_on_record_and_one_of_many_is_the_first,
    the_leases_of_one_data_directory_end_together,
);

const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// Returns a lease request for `mirror`.
pub fn hold(holder: &str) -> LeaseHold {
    LeaseHold {
        key: "mirror".to_owned(),
        holder: holder.to_owned(),
    }
}

async fn take(store: &Store, holder: &str, until: DateTime<Utc>) -> TakeLease {
    let hold = hold(holder);
    store
        .lease_take(NewLease {
            hold: &hold,
            purpose: "sync it",
            until,
        })
        .await
        .unwrap()
}

/// Takes the lease on `mirror`, which must be free.
pub async fn taken(store: &Store, holder: &str, until: DateTime<Utc>) -> Lease {
    match take(store, holder, until).await {
        TakeLease::Taken(lease) => lease,
        TakeLease::HeldBy(theirs) => panic!("it is not free: {theirs:?}"),
    }
}

async fn held(store: &Store) -> Option<Lease> {
    live_lease(store, "mirror").await
}

/// Sends a heartbeat of a server that is valid for a minute.
async fn beat(db: &TestDb, name: &str) {
    let replica = ReplicaId {
        name: name.to_owned(),
        host: "h".to_owned(),
        address: "a".to_owned(),
        version: "1".to_owned(),
    };
    db.store()
        .replica_beat(&replica, Presence::Serving, &[], db.now() + MINUTE)
        .await
        .unwrap();
}

async fn a_free_lease_is_taken_and_seen_by_everybody(db: &TestDb) {
    let (now, until) = (db.now(), db.now() + MINUTE);
    assert_eq!(held(db.store()).await, None);
    let lease = taken(db.store(), "a", until).await;
    let expected = Lease {
        key: "mirror".to_owned(),
        holder: "a".to_owned(),
        purpose: "sync it".to_owned(),
        taken_at: now,
        renewed_at: now,
        until,
        revoked_at: None,
    };
    assert_eq!(lease, expected);
    assert_eq!(held(&db.reopen().await).await, Some(expected));
    assert_eq!(live_lease(db.store(), "other").await, None);
    let hostile = LeaseHold {
        key: HOSTILE.to_owned(),
        holder: HOSTILE.to_owned(),
    };
    let new = NewLease {
        hold: &hostile,
        purpose: "NUL \0",
        until,
    };
    let TakeLease::Taken(lease) = db.store().lease_take(new).await.unwrap() else {
        panic!("it is free")
    };
    assert_eq!(lease.purpose, "NUL \u{fffd}");
    assert_eq!(live_lease(db.store(), HOSTILE).await, Some(lease));
}

async fn a_lease_that_is_held_is_refused_by_naming_who_has_it(db: &TestDb) {
    let ours = taken(db.store(), "a", db.now() + MINUTE).await;
    for holder in ["b", "a"] {
        let refused = take(db.store(), holder, db.now() + MINUTE * 2).await;
        assert_eq!(refused, TakeLease::HeldBy(ours.clone()), "{holder}");
    }
    assert_eq!(held(db.store()).await, Some(ours));
}

async fn a_lease_ends_by_time(db: &TestDb) {
    let until = db.now() + MINUTE;
    let first = taken(db.store(), "a", until).await;
    db.clock.advance_to(until - TimeDelta::microseconds(1));
    assert_eq!(
        take(db.store(), "b", until + MINUTE).await,
        TakeLease::HeldBy(first)
    );
    db.clock.advance_to(until);
    assert_eq!(held(db.store()).await, None);
    let second = taken(db.store(), "b", until + MINUTE).await;
    assert_eq!((second.holder.as_str(), second.taken_at), ("b", until));
}

async fn a_renewed_lease_lasts_longer(db: &TestDb) {
    let until = db.now() + MINUTE;
    let ours = taken(db.store(), "a", until).await;
    db.clock.advance_to(until - TimeDelta::seconds(1));
    assert!(
        db.store()
            .lease_renew(&ours.hold(), until + MINUTE)
            .await
            .unwrap()
    );
    let renewed = Lease {
        renewed_at: db.now(),
        until: until + MINUTE,
        ..ours
    };
    db.clock.advance_to(until);
    assert_eq!(held(db.store()).await, Some(renewed));
}

async fn a_stranger_neither_renews_nor_releases(db: &TestDb) {
    let until = db.now() + MINUTE;
    let first = taken(db.store(), "a", until).await;
    db.clock.advance_to(until);
    let second = taken(db.store(), "b", until + MINUTE).await;
    assert!(
        !db.store()
            .lease_renew(&first.hold(), until + MINUTE)
            .await
            .unwrap()
    );
    assert!(!db.store().lease_release(&first.hold()).await.unwrap());
    assert_eq!(held(db.store()).await, Some(second));
}

async fn a_released_lease_is_free(db: &TestDb) {
    let until = db.now() + MINUTE;
    let ours = taken(db.store(), "a", until).await;
    assert!(db.store().lease_release(&ours.hold()).await.unwrap());
    assert_eq!(held(db.store()).await, None);
    assert!(!db.store().lease_release(&ours.hold()).await.unwrap());
    assert!(!db.store().lease_renew(&ours.hold(), until).await.unwrap());
    taken(db.store(), "b", until).await;
}

async fn of_64_that_take_a_lease_at_once_one_gets_it(db: &TestDb) {
    let other = db.reopen().await;
    for end in 1..=5 {
        let until = db.now() + MINUTE * end;
        let holders: Vec<String> = (0..64).map(|n| format!("{end}/{n}")).collect();
        let stores = [db.store(), &other].into_iter().cycle();
        let outcomes = join_all(
            holders
                .iter()
                .zip(stores)
                .map(|(holder, store)| take(store, holder, until)),
        )
        .await;
        let got = outcomes.iter().filter_map(|outcome| match outcome {
            TakeLease::Taken(lease) => Some(lease),
            TakeLease::HeldBy(_) => None,
        });
        let got: Vec<&Lease> = got.collect();
        let [winner] = got[..] else { panic!("{got:?}") };
        assert_eq!(held(db.store()).await.as_ref(), Some(winner));
        let losers = outcomes
            .iter()
            .filter(|outcome| **outcome == TakeLease::HeldBy(winner.clone()));
        assert_eq!(losers.count(), 63, "each is told who has it");
        db.clock.advance_to(until);
    }
}

async fn a_lease_without_end_is_held(db: &TestDb) {
    let ours = taken(db.store(), "a", DateTime::<Utc>::MAX_UTC).await;
    assert_eq!(held(db.store()).await, Some(ours.clone()));
    assert_eq!(
        take(db.store(), "b", db.now() + MINUTE).await,
        TakeLease::HeldBy(ours)
    );
}

/// The caller's value and the stored value are the same on both databases.
async fn times_keep_microseconds_and_no_more(db: &TestDb) {
    db.clock.advance(Duration::from_micros(100_001));
    let until = db.now() + MINUTE;
    let ours = taken(db.store(), "a", until + TimeDelta::nanoseconds(999)).await;
    assert_eq!((ours.until, ours.taken_at), (until, db.now()));
    assert_eq!(held(db.store()).await, Some(ours));
}

async fn a_lease_of_a_replica_that_is_gone_is_taken_at_once(db: &TestDb) {
    let hours = TimeDelta::hours(3);
    beat(db, "one").await;
    let ours = taken(db.store(), "one/1", db.now() + hours).await;
    // The name of the ended server is only a prefix of the living one's name.
    beat(db, "on").await;
    db.store().replica_end("on").await.unwrap();
    db.clock.advance(Duration::from_mins(1));
    assert_eq!(
        take(db.store(), "two/1", db.now() + hours).await,
        TakeLease::HeldBy(ours)
    );
    db.clock.advance(Duration::from_micros(1));
    assert_eq!(held(db.store()).await, None, "it was not heard of in time");
    let theirs = taken(db.store(), "two/1", db.now() + hours).await;
    assert_eq!(held(db.store()).await, Some(theirs.clone()));
    assert!(
        !db.store()
            .lease_renew(&hold("one/1"), db.now() + hours)
            .await
            .unwrap()
    );
    beat(db, "two").await;
    assert_eq!(
        take(db.store(), "one/2", db.now() + hours).await,
        TakeLease::HeldBy(theirs)
    );
    db.store().replica_end("two").await.unwrap();
    taken(db.store(), "one/2", db.now() + hours).await;
}

async fn leases_are_listed_with_what_is_known_of_their_replica(db: &TestDb) {
    beat(db, "gone").await;
    db.clock.advance(Duration::from_secs(61));
    beat(db, "alive").await;
    let mut expected = Vec::new();
    let holders = [
        ("z", "nobody", None),
        ("B", "alive", Some(ReplicaState::Alive)),
        ("a", "gone", Some(ReplicaState::Gone)),
    ];
    for (key, replica, state) in holders {
        let hold = LeaseHold {
            key: key.to_owned(),
            holder: format!("{replica}/1"),
        };
        let new = NewLease {
            hold: &hold,
            purpose: "p",
            until: db.now() + MINUTE,
        };
        let TakeLease::Taken(lease) = db.store().lease_take(new).await.unwrap() else {
            panic!("it is free")
        };
        expected.push(LeaseRow {
            lease,
            replica: state.map(|state| (replica.to_owned(), state)),
        });
    }
    taken(db.store(), "over/1", db.now()).await;
    expected.sort_by(|a, b| a.lease.key.cmp(&b.lease.key));
    assert_eq!(db.store().lease_list().await.unwrap(), expected);
}

async fn the_first_by_key_are_listed_and_those_of_a_repository_are_not_cut_off_by_others(
    db: &TestDb,
) {
    let repo: RepoId = "github.com/acme/infra".parse().unwrap();
    let ours = [
        "repository_sync:disk-1:github.com/acme/infra",
        "repository_sync:disk-2:github.com/acme/infra",
    ];
    let others = [
        "repository_sync:disk-1:github.com/acme/infra-2",
        "repository_sync:github.com/acme/infra",
        "reconciler_syncs:disk-1:github.com/acme/infra",
        "reconciler:github.com/acme/infra",
    ];
    // The leases are taken in another order than that of their keys, and so are their rows.
    let many = (0..1001).rev().map(|n| format!("reconciler:{n:04}"));
    for key in ours
        .into_iter()
        .chain(others)
        .map(str::to_owned)
        .chain(many)
    {
        let new = NewLease {
            hold: &LeaseHold {
                key,
                holder: "one/1".to_owned(),
            },
            purpose: "p",
            until: db.now() + MINUTE,
        };
        assert!(matches!(
            db.store().lease_take(new).await.unwrap(),
            TakeLease::Taken(_)
        ));
    }
    let keys = |rows: Vec<LeaseRow>| {
        rows.into_iter()
            .map(|row| row.lease.key)
            .collect::<Vec<_>>()
    };
    let first: Vec<_> = (0..1000).map(|n| format!("reconciler:{n:04}")).collect();
    assert_eq!(keys(db.store().lease_list().await.unwrap()), first);
    assert_eq!(
        keys(db.store().lease_list_of_repos(&[repo]).await.unwrap()),
        ours
    );
    assert_eq!(db.store().lease_list_of_repos(&[]).await.unwrap(), []);
}

async fn a_holder_at_work_is_told_to_stop_and_keeps_the_lease_until_it_has(db: &TestDb) {
    beat(db, "one").await;
    let ours = taken(db.store(), "one/1", db.now() + TimeDelta::hours(3)).await;
    let end = db.now() + TIME_TO_LET_GO;
    let told = Lease {
        until: end,
        revoked_at: Some(db.now()),
        ..ours
    };
    assert_eq!(
        db.store()
            .lease_free("mirror", None, None, by())
            .await
            .unwrap(),
        FreeLease::Told(told.clone())
    );
    assert_eq!(
        db.store()
            .lease_free("mirror", None, None, by())
            .await
            .unwrap(),
        FreeLease::AlreadyTold(told.clone())
    );
    assert!(
        !db.store().lease_renew(&told.hold(), end).await.unwrap(),
        "so it hears of it"
    );
    assert_eq!(
        take(db.store(), "two/1", end + MINUTE).await,
        TakeLease::HeldBy(told.clone())
    );
    db.store().lease_release(&told.hold()).await.unwrap();
    let next = taken(db.store(), "two/1", end + MINUTE).await;
    assert_eq!(next.revoked_at, None);
    // A holder that ignores the revocation loses the lease at the new end. A lease that ends sooner is not prolonged.
    let told = Lease {
        until: end,
        revoked_at: Some(db.now()),
        ..next
    };
    assert_eq!(
        db.store()
            .lease_free("mirror", None, None, by())
            .await
            .unwrap(),
        FreeLease::Told(told)
    );
    db.clock.advance_to(end);
    let short = taken(db.store(), "one/2", end + TimeDelta::seconds(5)).await;
    assert!(short.revoked_at.is_none());
    let FreeLease::Told(told) = db
        .store()
        .lease_free("mirror", None, None, by())
        .await
        .unwrap()
    else {
        panic!("it works")
    };
    assert_eq!(told.until, short.until);
}

async fn a_lease_that_nobody_works_under_is_freed_by_hand_at_once(db: &TestDb) {
    assert_eq!(
        db.store()
            .lease_free("mirror", None, None, by())
            .await
            .unwrap(),
        FreeLease::NotHeld
    );
    beat(db, "one").await;
    let ours = taken(db.store(), "one/1", db.now() + TimeDelta::hours(3)).await;
    db.clock.advance(Duration::from_secs(61));
    assert_eq!(
        db.store()
            .lease_free("mirror", None, None, by())
            .await
            .unwrap(),
        FreeLease::Freed(ours)
    );
    assert_eq!(db.store().lease_list().await.unwrap(), []);
    taken(db.store(), "two/1", db.now()).await;
    assert_eq!(
        db.store()
            .lease_free("mirror", None, None, by())
            .await
            .unwrap(),
        FreeLease::NotHeld,
        "its time was over"
    );
    assert_eq!(db.store().lock_event_list(9).await.unwrap().len(), 1);
}

async fn only_the_holder_that_was_named_is_freed(db: &TestDb) {
    taken(db.store(), "one/1", db.now() + MINUTE).await;
    let free = async |holder| {
        db.store()
            .lease_free("mirror", Some(holder), None, by())
            .await
            .unwrap()
    };
    assert_eq!(free("one/0").await, FreeLease::NotHeld);
    assert!(matches!(free("one/1").await, FreeLease::Told(_)));
    assert_eq!(free("one/0").await, FreeLease::NotHeld);
    assert!(matches!(free("one/1").await, FreeLease::AlreadyTold(_)));
}

async fn releases_by_hand_are_on_record_and_one_of_many_is_the_first(db: &TestDb) {
    taken(db.store(), "one/1", db.now() + MINUTE * 5).await;
    let other = db.reopen().await;
    let stores = [db.store(), &other].into_iter().cycle().take(16);
    let freed = join_all(stores.map(|store| store.lease_free("mirror", None, None, by()))).await;
    assert_eq!(
        freed
            .iter()
            .filter(|freed| matches!(freed, Ok(FreeLease::Told(_))))
            .count(),
        1
    );
    let [event] = &db.store().lock_event_list(9).await.unwrap()[..] else {
        panic!("one event")
    };
    let cause = &event.event.cause;
    assert_eq!(
        (event.event.kind, cause.actor.origin),
        (LockEventKind::LeaseReleased, Origin::Comment)
    );
    assert_eq!(
        (&event.event.key, &event.event.scope, &event.event.pull),
        (&None, &None, &None)
    );
    assert_eq!(
        cause.reason,
        "as the test wants it; lease mirror, held by one/1 since 2026-03-02 09:00 UTC: sync it"
    );
}

async fn the_leases_of_one_data_directory_end_together(db: &TestDb) {
    beat(db, "a").await;
    let keys = [
        "repository_sync:0198:h/a/b",
        "repository_sync:0198:h/a/c",
        "repository_sync:0198-2:h/a/b",
        "reconciler:x",
    ];
    for key in keys {
        let hold = LeaseHold {
            key: key.to_owned(),
            holder: "a/1".to_owned(),
        };
        let new = NewLease {
            hold: &hold,
            purpose: "sync it",
            until: db.now() + MINUTE,
        };
        assert!(matches!(
            db.store().lease_take(new).await.unwrap(),
            TakeLease::Taken(_)
        ));
    }
    assert_eq!(
        db.store()
            .lease_end_all_of("repository_sync:0198:")
            .await
            .unwrap(),
        2
    );
    for (key, is_held) in keys.into_iter().zip([false, false, true, true]) {
        assert_eq!(
            live_lease(db.store(), key).await.is_some(),
            is_held,
            "{key}"
        );
    }
}
