//! Claims with an end time.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use lockkeeper::store::Lease;

use super::samples::HOSTILE;
use crate::support::db::{TestDb, store_test};

store_test!(
    a_free_lease_is_taken_and_seen_by_everybody,
    a_lease_that_is_held_is_refused,
    a_lease_ends_by_time,
    a_renewed_lease_lasts_longer,
    a_stranger_neither_renews_nor_releases,
    a_released_lease_is_free,
    of_many_that_take_a_lease_at_once_one_gets_it,
    a_lease_without_end_is_held,
    ends_keep_microseconds_and_no_more,
);

const MINUTE: TimeDelta = TimeDelta::minutes(1);

fn lease(holder: &str, until: DateTime<Utc>) -> Lease {
    Lease { key: "mirror".to_owned(), holder: holder.to_owned(), until }
}

async fn a_free_lease_is_taken_and_seen_by_everybody(db: &TestDb) {
    let until = db.now() + MINUTE;
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), None);
    assert_eq!(db.store().lease_take("mirror", "a", until).await.unwrap(), Some(lease("a", until)));
    assert_eq!(db.reopen().await.lease_get("mirror").await.unwrap(), Some(lease("a", until)));
    assert_eq!(db.store().lease_get("other").await.unwrap(), None);
    let hostile = db.store().lease_take(HOSTILE, HOSTILE, until).await.unwrap().unwrap();
    assert_eq!(db.store().lease_get(HOSTILE).await.unwrap(), Some(hostile));
}

async fn a_lease_that_is_held_is_refused(db: &TestDb) {
    let until = db.now() + MINUTE;
    db.store().lease_take("mirror", "a", until).await.unwrap().unwrap();
    for holder in ["b", "a"] {
        assert_eq!(db.store().lease_take("mirror", holder, until + MINUTE).await.unwrap(), None, "{holder}");
    }
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), Some(lease("a", until)));
}

async fn a_lease_ends_by_time(db: &TestDb) {
    let until = db.now() + MINUTE;
    db.store().lease_take("mirror", "a", until).await.unwrap().unwrap();
    db.clock.advance_to(until - TimeDelta::microseconds(1));
    assert_eq!(db.store().lease_take("mirror", "b", until + MINUTE).await.unwrap(), None);
    db.clock.advance_to(until);
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), None);
    assert_eq!(db.store().lease_take("mirror", "b", until + MINUTE).await.unwrap(), Some(lease("b", until + MINUTE)));
}

async fn a_renewed_lease_lasts_longer(db: &TestDb) {
    let until = db.now() + MINUTE;
    let ours = db.store().lease_take("mirror", "a", until).await.unwrap().unwrap();
    assert!(db.store().lease_renew(&ours, until + MINUTE).await.unwrap());
    db.clock.advance_to(until);
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), Some(lease("a", until + MINUTE)));
}

async fn a_stranger_neither_renews_nor_releases(db: &TestDb) {
    let until = db.now() + MINUTE;
    let first = db.store().lease_take("mirror", "a", until).await.unwrap().unwrap();
    db.clock.advance_to(until);
    let second = db.store().lease_take("mirror", "b", until + MINUTE).await.unwrap().unwrap();
    assert!(!db.store().lease_renew(&first, until + MINUTE).await.unwrap());
    db.store().lease_release(&first).await.unwrap();
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), Some(second));
}

async fn a_released_lease_is_free(db: &TestDb) {
    let until = db.now() + MINUTE;
    let ours = db.store().lease_take("mirror", "a", until).await.unwrap().unwrap();
    db.store().lease_release(&ours).await.unwrap();
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), None);
    assert!(!db.store().lease_renew(&ours, until).await.unwrap());
    assert_eq!(db.store().lease_take("mirror", "b", until).await.unwrap(), Some(lease("b", until)));
}

async fn of_many_that_take_a_lease_at_once_one_gets_it(db: &TestDb) {
    let other = db.reopen().await;
    for end in 1..=10 {
        let until = db.now() + MINUTE * end;
        let holders: Vec<String> = (0..16).map(|n| n.to_string()).collect();
        let stores = [db.store(), &other].into_iter().cycle();
        let tries = holders.iter().zip(stores).map(|(holder, store)| store.lease_take("mirror", holder, until));
        let got: Vec<Lease> = join_all(tries).await.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(got.len(), 1, "{got:?}");
        assert_eq!(db.store().lease_get("mirror").await.unwrap().as_ref(), got.first());
        db.clock.advance_to(until);
    }
}

async fn a_lease_without_end_is_held(db: &TestDb) {
    let ours = db.store().lease_take("mirror", "a", DateTime::<Utc>::MAX_UTC).await.unwrap().unwrap();
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), Some(ours));
    assert_eq!(db.store().lease_take("mirror", "b", db.now() + MINUTE).await.unwrap(), None);
}

/// What a caller is given and what is read later are the same on both databases.
async fn ends_keep_microseconds_and_no_more(db: &TestDb) {
    db.clock.advance(Duration::from_micros(100_001));
    let until = db.now() + MINUTE;
    let ours = db.store().lease_take("mirror", "a", until + TimeDelta::nanoseconds(999)).await.unwrap();
    assert_eq!(ours, Some(lease("a", until)));
    assert_eq!(db.store().lease_get("mirror").await.unwrap(), ours);
}
