//! Tests of the results of reconcilers.

use std::time::Duration;

use lockkeeper::queue::LEASE;
use lockkeeper::store::{Presence, ReconcilerRow, ReconcilerRun, ReplicaId};

use super::samples::HOSTILE;
use crate::support::db::{TestDb, start_of_time, store_test};

store_test!(
    how_a_repair_went_is_kept_by_server_and_what_it_repaired_adds_up,
    failures_in_a_row_are_counted_until_one_goes_well,
    what_servers_did_that_nobody_remembers_is_forgotten,
);

async fn record(db: &TestDb, name: &str, replica: &str, repaired: u64, error: Option<&str>) {
    let run = ReconcilerRun {
        name,
        replica,
        started_at: db.now(),
        looked_at: 7,
        repaired,
        error,
    };
    db.clock.advance(Duration::from_secs(1));
    db.store().reconciler_record(&run).await.unwrap();
}

async fn rows(db: &TestDb) -> Vec<ReconcilerRow> {
    db.reopen().await.reconciler_list().await.unwrap()
}

async fn how_a_repair_went_is_kept_by_server_and_what_it_repaired_adds_up(db: &TestDb) {
    for (name, replica, repaired) in [
        ("orphans", "a", 2),
        ("orphans", "b", 1),
        ("stops", "a", 0),
        ("orphans", "a", 3),
    ] {
        record(db, name, replica, repaired, None).await;
    }
    let rows = rows(db).await;
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.replica.as_str(), row.repaired_total))
        .collect();
    assert_eq!(
        told,
        [("orphans", "a", 5), ("stops", "a", 0), ("orphans", "b", 1)],
        "the newest first"
    );
    let end = start_of_time() + Duration::from_secs(4);
    let newest = ReconcilerRow {
        name: "orphans".to_owned(),
        replica: "a".to_owned(),
        started_at: end - Duration::from_secs(1),
        finished_at: end,
        succeeded_at: Some(end),
        looked_at: 7,
        repaired: 3,
        repaired_total: 5,
        error: None,
        failures: 0,
    };
    assert_eq!(rows[0], newest);
}

async fn failures_in_a_row_are_counted_until_one_goes_well(db: &TestDb) {
    record(db, "orphans", "a", 1, None).await;
    let went_well = db.now();
    let hostile = format!("{HOSTILE}\0");
    for expected in 1..=3 {
        record(db, "orphans", "a", 0, Some(&hostile)).await;
        let row = rows(db).await.remove(0);
        assert_eq!(
            (row.failures, row.error),
            (expected, Some(format!("{HOSTILE}\u{fffd}")))
        );
        assert_eq!((row.succeeded_at, row.repaired_total), (Some(went_well), 1));
    }
    record(db, "orphans", "a", 0, None).await;
    let row = rows(db).await.remove(0);
    assert_eq!(
        (row.failures, row.error, row.succeeded_at),
        (0, None, Some(db.now()))
    );
    record(db, "audit", "a", 0, Some("broken")).await;
    let row = rows(db).await.remove(0);
    assert_eq!((row.failures, row.succeeded_at), (1, None));
}

async fn what_servers_did_that_nobody_remembers_is_forgotten(db: &TestDb) {
    let known = ReplicaId {
        name: "known".to_owned(),
        host: String::new(),
        address: String::new(),
        version: String::new(),
    };
    db.store()
        .replica_beat(&known, Presence::Serving, &[], db.now() + LEASE)
        .await
        .unwrap();
    record(db, "orphans", "known", 0, None).await;
    record(db, "orphans", "forgotten", 0, None).await;
    assert_eq!(db.store().reconciler_prune().await.unwrap(), 1);
    assert_eq!(
        rows(db)
            .await
            .into_iter()
            .map(|row| row.replica)
            .collect::<Vec<_>>(),
        ["known"]
    );
}
