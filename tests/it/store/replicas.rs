//! Tests of the list of replicas.

use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::model::JobId;
use lockkeeper::store::{
    JobClaim, LeaseHold, NewLease, Presence, ReplicaId, ReplicaState, Store, TakeLease,
};

use super::samples::job;
use crate::support::db::{TestDb, store_test};
use crate::support::rows::live_lease;

store_test!(
    a_replica_that_beats_is_alive_and_one_that_does_not_is_gone,
    a_beat_renews_the_jobs_of_the_replica,
    the_work_of_a_replica_that_is_gone_is_free_at_once,
    a_replica_that_ends_leaves_its_work_at_once,
    of_servers_that_were_alone_none_is_left,
    replicas_that_went_long_ago_are_forgotten,
);

const LEASE: TimeDelta = TimeDelta::seconds(45);

pub fn replica(name: &str) -> ReplicaId {
    let (host, address, version) = (
        "node-1".to_owned(),
        "node-1:4141".to_owned(),
        "0.1.0".to_owned(),
    );
    ReplicaId {
        name: name.to_owned(),
        host,
        address,
        version,
    }
}

async fn beat(db: &TestDb, name: &str, presence: Presence) {
    let held = beat_working_on(db, name, presence, &[]).await;
    assert_eq!(held, [], "nothing is renewed that nobody works on");
}

async fn beat_working_on(
    db: &TestDb,
    name: &str,
    presence: Presence,
    jobs: &[JobId],
) -> Vec<JobId> {
    db.store()
        .replica_beat(&replica(name), presence, jobs, db.now() + LEASE)
        .await
        .unwrap()
}

async fn states(store: &Store) -> Vec<(String, ReplicaState)> {
    let mut states: Vec<_> = store
        .replica_list()
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.id.name, row.state))
        .collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    states
}

async fn state(store: &Store) -> ReplicaState {
    states(store).await.remove(0).1
}

/// Pushes a job that `a` has claimed for this time.
async fn claimed(db: &TestDb, until: TimeDelta) -> JobId {
    db.store().job_push(&job("lane")).await.unwrap();
    db.store()
        .job_claim(&JobClaim::any("a", db.now() + until))
        .await
        .unwrap()
        .expect("a job may run")
        .id
}

async fn a_replica_that_beats_is_alive_and_one_that_does_not_is_gone(db: &TestDb) {
    beat(db, "a", Presence::Serving).await;
    let [row] = &db.store().replica_list().await.unwrap()[..] else {
        panic!("one replica is there")
    };
    assert_eq!((&row.id, row.state), (&replica("a"), ReplicaState::Alive));
    assert_eq!((row.started_at, row.beat_at), (db.now(), db.now()));
    let started = db.now();
    db.clock.advance(Duration::from_secs(45));
    assert_eq!(
        state(db.store()).await,
        ReplicaState::Alive,
        "the lease lasts until now"
    );
    db.clock.advance(Duration::from_micros(1));
    assert_eq!(state(db.store()).await, ReplicaState::Gone);
    beat(db, "a", Presence::Stopping).await;
    let [row] = &db.store().replica_list().await.unwrap()[..] else {
        panic!("it is the same one")
    };
    assert_eq!(
        (row.state, row.started_at, row.beat_at),
        (ReplicaState::Stopping, started, db.now())
    );
}

async fn a_beat_renews_the_jobs_of_the_replica(db: &TestDb) {
    let id = claimed(db, LEASE).await;
    db.clock.advance(Duration::from_secs(40));
    assert_eq!(beat_working_on(db, "b", Presence::Serving, &[id]).await, []);
    assert_eq!(
        beat_working_on(db, "a", Presence::Serving, &[id]).await,
        [id]
    );
    db.clock.advance(Duration::from_secs(40));
    assert_eq!(db.store().job_requeue_orphans(db.now()).await.unwrap(), 0);
}

fn lease(key: &str, holder: &str) -> LeaseHold {
    LeaseHold {
        key: key.to_owned(),
        holder: holder.to_owned(),
    }
}

async fn the_work_of_a_replica_that_is_gone_is_free_at_once(db: &TestDb) {
    beat(db, "a", Presence::Serving).await;
    claimed(db, LEASE * 10).await;
    let (held, other) = (lease("mirror", "a/1"), lease("other", "ab/1"));
    for hold in [&held, &other] {
        let new = NewLease {
            hold,
            purpose: "sync it",
            until: db.now() + LEASE * 80,
        };
        assert!(matches!(
            db.store().lease_take(new).await.unwrap(),
            TakeLease::Taken(_)
        ));
    }
    db.clock.advance(Duration::from_secs(45));
    assert_eq!(db.store().job_requeue_orphans(db.now()).await.unwrap(), 0);
    assert_eq!(db.store().replica_end_leases().await.unwrap(), 0);
    db.clock.advance(Duration::from_micros(1));
    assert_eq!(db.store().job_requeue_orphans(db.now()).await.unwrap(), 1);
    assert_eq!(db.store().replica_end_leases().await.unwrap(), 1);
    assert_eq!(live_lease(db.store(), &held.key).await, None);
    assert_eq!(
        live_lease(db.store(), &other.key)
            .await
            .map(|lease| lease.hold()),
        Some(other),
        "the name of its holder only begins alike"
    );
}

async fn a_replica_that_ends_leaves_its_work_at_once(db: &TestDb) {
    beat(db, "a", Presence::Stopping).await;
    let id = claimed(db, LEASE).await;
    super::leases::taken(db.store(), "a/1", db.now() + LEASE).await;
    assert_eq!(db.store().replica_end("a").await.unwrap(), 1);
    assert_eq!(state(db.store()).await, ReplicaState::Ended);
    assert_eq!(live_lease(db.store(), "mirror").await, None);
    let next = db
        .store()
        .job_claim(&JobClaim::any("b", db.now() + LEASE))
        .await
        .unwrap()
        .expect("the job is free");
    assert_eq!((next.id, next.attempt), (id, 2));
    db.clock.advance(Duration::from_hours(1));
    assert_eq!(
        state(db.store()).await,
        ReplicaState::Ended,
        "it is not missed"
    );
}

async fn of_servers_that_were_alone_none_is_left(db: &TestDb) {
    beat(db, "a", Presence::Serving).await;
    beat(db, "b", Presence::Stopping).await;
    db.store().replica_end_all().await.unwrap();
    let ended = |name: &str| (name.to_owned(), ReplicaState::Ended);
    assert_eq!(states(db.store()).await, [ended("a"), ended("b")]);
}

async fn replicas_that_went_long_ago_are_forgotten(db: &TestDb) {
    beat(db, "a", Presence::Serving).await;
    db.clock.advance(Duration::from_hours(24));
    beat(db, "b", Presence::Serving).await;
    assert_eq!(
        db.store()
            .replica_prune(db.now() - TimeDelta::days(1))
            .await
            .unwrap(),
        0
    );
    assert_eq!(db.store().replica_prune(db.now()).await.unwrap(), 1);
    assert_eq!(
        states(db.store()).await,
        [("b".to_owned(), ReplicaState::Alive)]
    );
}
