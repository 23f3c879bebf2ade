//! Tests of values that the server creates once.

use futures::future::join_all;

use super::samples::HOSTILE;
use crate::support::db::{TestDb, store_test};

store_test!(
    the_first_value_of_a_setting_stays,
    replicas_that_start_together_share_one_value,
    a_setting_keeps_any_text
);

async fn the_first_value_of_a_setting_stays(db: &TestDb) {
    assert_eq!(
        db.store()
            .setting_get_or_insert("key", "first")
            .await
            .unwrap(),
        "first"
    );
    assert_eq!(
        db.store()
            .setting_get_or_insert("key", "second")
            .await
            .unwrap(),
        "first"
    );
    assert_eq!(
        db.reopen()
            .await
            .setting_get_or_insert("key", "third")
            .await
            .unwrap(),
        "first"
    );
    assert_eq!(
        db.store()
            .setting_get_or_insert("other", "other")
            .await
            .unwrap(),
        "other"
    );
}

async fn replicas_that_start_together_share_one_value(db: &TestDb) {
    let other = db.reopen().await;
    let fresh: Vec<String> = (0..16).map(|n| n.to_string()).collect();
    let stores = [db.store(), &other].into_iter().cycle();
    let seen = join_all(
        fresh
            .iter()
            .zip(stores)
            .map(|(value, store)| store.setting_get_or_insert("key", value)),
    )
    .await;
    let first = seen[0].as_ref().unwrap();
    assert!(
        seen.iter().all(|value| value.as_ref().unwrap() == first),
        "{seen:?}"
    );
}

async fn a_setting_keeps_any_text(db: &TestDb) {
    let long = "é'\u{10ffff}".repeat(1 << 17);
    assert_eq!(
        db.store()
            .setting_get_or_insert(HOSTILE, &long)
            .await
            .unwrap(),
        long
    );
    assert_eq!(
        db.store().setting_get_or_insert(HOSTILE, "").await.unwrap(),
        long
    );
    assert_eq!(db.store().setting_get_or_insert("", "").await.unwrap(), "");
}
