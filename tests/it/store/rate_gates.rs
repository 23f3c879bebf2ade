//! Tests of the rate limits of forges, which all servers share.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper::model::{RateScope, Traffic};

use crate::support::db::{TestDb, store_test};

store_test!(
    a_gate_is_closed_for_everybody_until_its_time,
    the_longer_of_two_waits_counts,
    each_credential_has_gates_of_its_own_for_reads_and_writes,
    servers_take_turns,
    of_many_that_ask_for_a_turn_at_once_each_gets_its_own,
    a_turn_far_ahead_is_a_mistake_of_a_clock,
    gates_that_nobody_uses_are_forgotten,
);

const SECOND: Duration = Duration::from_secs(1);

fn scope(credential: &str) -> RateScope {
    RateScope {
        host: "github.com".parse().unwrap(),
        credential: credential.to_owned(),
    }
}

async fn closed(db: &TestDb, traffic: Traffic) -> Option<DateTime<Utc>> {
    db.store()
        .rate_gate_closed(&scope("installation 7"), traffic)
        .await
        .unwrap()
}

async fn close(db: &TestDb, traffic: Traffic, seconds: i64) {
    let until = db.now() + TimeDelta::seconds(seconds);
    db.reopen()
        .await
        .rate_gate_close(&scope("installation 7"), traffic, until)
        .await
        .unwrap();
}

async fn a_gate_is_closed_for_everybody_until_its_time(db: &TestDb) {
    assert_eq!(closed(db, Traffic::Write).await, None);
    close(db, Traffic::Write, 90).await;
    assert_eq!(
        closed(db, Traffic::Write).await,
        Some(db.now() + TimeDelta::seconds(90))
    );
    db.clock.advance(Duration::from_secs(89));
    assert_eq!(
        closed(db, Traffic::Write).await,
        Some(db.now() + TimeDelta::seconds(1))
    );
    db.clock.advance(SECOND);
    assert_eq!(closed(db, Traffic::Write).await, None);
}

async fn the_longer_of_two_waits_counts(db: &TestDb) {
    for seconds in [60, 20, 90] {
        close(db, Traffic::Read, seconds).await;
    }
    close(db, Traffic::Read, 5).await;
    assert_eq!(
        closed(db, Traffic::Read).await,
        Some(db.now() + TimeDelta::seconds(90))
    );
}

async fn each_credential_has_gates_of_its_own_for_reads_and_writes(db: &TestDb) {
    close(db, Traffic::Write, 60).await;
    assert_eq!(closed(db, Traffic::Read).await, None);
    assert_eq!(
        db.store()
            .rate_gate_closed(&scope("installation 8"), Traffic::Write)
            .await
            .unwrap(),
        None
    );
    let elsewhere = RateScope {
        host: "git.acme.example".parse().unwrap(),
        ..scope("installation 7")
    };
    assert_eq!(
        db.store()
            .rate_gate_closed(&elsewhere, Traffic::Write)
            .await
            .unwrap(),
        None
    );
}

async fn servers_take_turns(db: &TestDb) {
    let (start, other) = (db.now(), db.reopen().await);
    let mut turns = Vec::new();
    for store in [db.store(), &other, db.store()] {
        turns.push(
            (store.rate_gate_turn(&scope("app 1"), SECOND).await.unwrap() - start).num_seconds(),
        );
    }
    assert_eq!(turns, [0, 1, 2]);
    db.clock.advance(Duration::from_secs(10));
    let turn = other.rate_gate_turn(&scope("app 1"), SECOND).await.unwrap();
    assert_eq!(turn, db.now(), "whoever comes later does not wait");
    // A closed gate keeps its turns.
    close(db, Traffic::Write, 60).await;
    assert_eq!(
        db.store()
            .rate_gate_turn(&scope("app 1"), SECOND)
            .await
            .unwrap(),
        db.now() + SECOND
    );
}

async fn of_many_that_ask_for_a_turn_at_once_each_gets_its_own(db: &TestDb) {
    let asked = (0..16).map(|_| {
        let store = db.store().clone();
        tokio::spawn(async move { store.rate_gate_turn(&scope("app 1"), SECOND).await.unwrap() })
    });
    let mut turns: Vec<i64> = Vec::new();
    for turn in asked.collect::<Vec<_>>() {
        turns.push((turn.await.unwrap() - db.now()).num_seconds());
    }
    turns.sort_unstable();
    assert_eq!(turns, (0..16).collect::<Vec<_>>());
}

async fn a_turn_far_ahead_is_a_mistake_of_a_clock(db: &TestDb) {
    db.store()
        .rate_gate_turn(&scope("app 1"), Duration::from_hours(24))
        .await
        .unwrap();
    let turn = db
        .store()
        .rate_gate_turn(&scope("app 1"), SECOND)
        .await
        .unwrap();
    assert_eq!(turn - db.now(), TimeDelta::minutes(1));
}

async fn gates_that_nobody_uses_are_forgotten(db: &TestDb) {
    close(db, Traffic::Read, 60).await;
    close(db, Traffic::Write, 60).await;
    db.store()
        .rate_gate_turn(&scope("app 1"), SECOND)
        .await
        .unwrap();
    assert_eq!(db.store().rate_gate_prune(db.now()).await.unwrap(), 0);
    assert_eq!(
        db.store()
            .rate_gate_prune(db.now() + TimeDelta::seconds(1))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        db.store()
            .rate_gate_prune(db.now() + TimeDelta::seconds(60))
            .await
            .unwrap(),
        2
    );
    assert_eq!(closed(db, Traffic::Write).await, None);
}
