//! The switch that stops every apply.

use lockkeeper::model::ApplyLock;
use lockkeeper::store::SetApplyLock;

use super::samples::HOSTILE;
use crate::support::db::{TestDb, start_of_time, store_test};

store_test!(
    applies_are_allowed_at_first,
    a_set_apply_lock_is_seen_by_every_replica,
    the_first_apply_lock_stays,
    a_cleared_apply_lock_is_gone,
    of_two_that_set_it_at_once_one_did,
);

async fn applies_are_allowed_at_first(db: &TestDb) {
    assert_eq!(db.store().apply_lock_get().await.unwrap(), None);
    assert!(!db.store().apply_lock_clear().await.unwrap());
}

async fn a_set_apply_lock_is_seen_by_every_replica(db: &TestDb) {
    assert_eq!(db.store().apply_lock_set(HOSTILE, HOSTILE).await.unwrap(), SetApplyLock::Set);
    let lock = ApplyLock { holder: HOSTILE.to_owned(), reason: HOSTILE.to_owned(), taken_at: start_of_time() };
    assert_eq!(db.reopen().await.apply_lock_get().await.unwrap(), Some(lock));
}

async fn the_first_apply_lock_stays(db: &TestDb) {
    assert_eq!(db.store().apply_lock_set("ada", "incident").await.unwrap(), SetApplyLock::Set);
    assert_eq!(db.store().apply_lock_set("bob", "holiday").await.unwrap(), SetApplyLock::AlreadySet);
    assert_eq!(db.store().apply_lock_get().await.unwrap().unwrap().holder, "ada");
}

async fn a_cleared_apply_lock_is_gone(db: &TestDb) {
    assert_eq!(db.store().apply_lock_set("ada", "incident").await.unwrap(), SetApplyLock::Set);
    assert!(db.store().apply_lock_clear().await.unwrap());
    assert_eq!(db.store().apply_lock_get().await.unwrap(), None);
    assert_eq!(db.store().apply_lock_set("bob", "holiday").await.unwrap(), SetApplyLock::Set);
}

async fn of_two_that_set_it_at_once_one_did(db: &TestDb) {
    let other = db.reopen().await;
    for _ in 0..20 {
        let (a, b) = tokio::join!(db.store().apply_lock_set("a", ""), other.apply_lock_set("b", ""));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_ne!(a, b);
        let winner = if a == SetApplyLock::Set { "a" } else { "b" };
        assert_eq!(db.store().apply_lock_get().await.unwrap().unwrap().holder, winner);
        assert!(db.store().apply_lock_clear().await.unwrap());
    }
}
