//! Tests of replicas whose clocks differ: the database's clock decides. They need PostgreSQL, because SQLite has one
//! server.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper::clock::{Clock, CountingIds, ManualClock};
use lockkeeper::features::apply_locks::SetApplyLock;
use lockkeeper::model::{ApplyScope, CommandKind};
use lockkeeper::store::{JobClaim, LeaseHold, NewJob, NewLease, Presence, Store, TakeLease};

use super::replicas::replica;
use super::samples::{command, job, open_pull};
use crate::support::db::{Backend, TestDb, by, start_of_time};
use crate::support::rows::live_lease;

const LEASE: TimeDelta = TimeDelta::seconds(45);
const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// A replica with its own clock.
struct Replica {
    store: Store,
    clock: Arc<ManualClock>,
}

impl Replica {
    async fn new(db: &TestDb, ids: &Arc<CountingIds>, time: DateTime<Utc>) -> Self {
        let clock = Arc::new(ManualClock::new(time));
        Self {
            store: Store::open(&db.url, clock.clone(), ids.clone())
                .await
                .unwrap(),
            clock,
        }
    }

    /// Returns the time after a wait, by the replica's clock.
    fn after(&self, wait: TimeDelta) -> DateTime<Utc> {
        self.clock.now() + wait
    }

    async fn claim(&self, lasts: TimeDelta) -> bool {
        self.store
            .job_claim(&JobClaim::any("it", self.after(lasts)))
            .await
            .unwrap()
            .is_some()
    }

    async fn requeue(&self) -> u64 {
        self.store
            .job_requeue_orphans(self.clock.now())
            .await
            .unwrap()
    }
}

/// Creates two replicas, the first a minute ahead of the second.
async fn two() -> (TestDb, [Replica; 2]) {
    let db = TestDb::new(Backend::Postgres).await;
    let ids = Arc::new(CountingIds::default());
    let ahead = Replica::new(&db, &ids, start_of_time() + MINUTE).await;
    let behind = Replica::new(&db, &ids, start_of_time()).await;
    (db, [ahead, behind])
}

#[tokio::test]
async fn nobody_takes_a_job_from_a_live_holder_whose_clock_differs() {
    let (_db, replicas) = two().await;
    for (holder, other) in [(&replicas[0], &replicas[1]), (&replicas[1], &replicas[0])] {
        holder.store.job_push(&job("lane")).await.unwrap();
        let lease = holder
            .store
            .job_claim(&JobClaim::any("it", holder.after(LEASE)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(other.requeue().await, 0);
        assert_eq!(
            holder
                .store
                .replica_beat(
                    &replica("it"),
                    Presence::Serving,
                    &[lease.id],
                    holder.after(LEASE)
                )
                .await
                .unwrap(),
            [lease.id]
        );
        assert_eq!(other.requeue().await, 0);
        assert!(!other.claim(LEASE).await);
        let _end = holder.store.job_finish(&lease).await.unwrap();
    }
}

#[tokio::test]
async fn no_job_outlives_a_dead_holder_whose_clock_differs() {
    let (_db, replicas) = two().await;
    for (holder, other) in [(&replicas[0], &replicas[1]), (&replicas[1], &replicas[0])] {
        holder.store.job_push(&job("lane")).await.unwrap();
        assert!(
            holder.claim(TimeDelta::zero()).await,
            "it may run at once, whoever's clock"
        );
        assert_eq!(other.requeue().await, 1, "the lease is over by now");
        let lease = other
            .store
            .job_claim(&JobClaim::any("it", other.after(LEASE)))
            .await
            .unwrap()
            .unwrap();
        let _end = other.store.job_finish(&lease).await.unwrap();
    }
}

#[tokio::test]
async fn a_wait_is_as_long_for_a_replica_whose_clock_differs() {
    let (_db, replicas) = two().await;
    for (n, (pusher, other)) in [(&replicas[0], &replicas[1]), (&replicas[1], &replicas[0])]
        .into_iter()
        .enumerate()
    {
        let later = NewJob {
            run_after: Some(pusher.after(TimeDelta::seconds(30))),
            ..job(&format!("later {n}"))
        };
        pusher.store.job_push(&later).await.unwrap();
        assert!(!other.claim(LEASE).await);
        let now = NewJob {
            run_after: Some(pusher.after(TimeDelta::zero())),
            ..job(&format!("now {n}"))
        };
        pusher.store.job_push(&now).await.unwrap();
        let lease = other
            .store
            .job_claim(&JobClaim::any("it", other.after(LEASE)))
            .await
            .unwrap()
            .unwrap();
        let _end = other
            .store
            .job_retry(&lease, other.after(TimeDelta::seconds(30)), "later")
            .await
            .unwrap();
        assert!(!pusher.claim(LEASE).await);
    }
}

#[tokio::test]
async fn a_lease_is_held_and_ends_whoever_looks() {
    let (_db, replicas) = two().await;
    for (n, (holder, other)) in [(&replicas[0], &replicas[1]), (&replicas[1], &replicas[0])]
        .into_iter()
        .enumerate()
    {
        let [ours, theirs] = ["a", "b"].map(|holder| LeaseHold {
            key: format!("mirror {n}"),
            holder: holder.to_owned(),
        });
        let new = |hold, until| NewLease {
            hold,
            purpose: "sync it",
            until,
        };
        let taken = holder
            .store
            .lease_take(new(&ours, holder.after(LEASE)))
            .await
            .unwrap();
        let TakeLease::Taken(lease) = taken else {
            panic!("it is free")
        };
        let refused = other
            .store
            .lease_take(new(&theirs, other.after(LEASE)))
            .await
            .unwrap();
        assert_eq!(refused, TakeLease::HeldBy(lease.clone()));
        assert_eq!(live_lease(&other.store, &ours.key).await, Some(lease));
        assert!(
            holder
                .store
                .lease_renew(&ours, holder.after(TimeDelta::zero()))
                .await
                .unwrap()
        );
        assert_eq!(live_lease(&other.store, &ours.key).await, None);
        let taken = other
            .store
            .lease_take(new(&theirs, other.after(LEASE)))
            .await
            .unwrap();
        assert!(matches!(taken, TakeLease::Taken(_)));
    }
}

#[tokio::test]
async fn what_was_asked_for_first_is_older_whoever_took_it() {
    let (_db, [ahead, behind]) = two().await;
    let pull = open_pull(&ahead.store, 1).await;
    let first = command(&ahead.store, CommandKind::Plan, &pull).await;
    let second = command(&behind.store, CommandKind::Apply, &pull).await;
    let created = |row: Option<lockkeeper::store::CommandRow>| row.unwrap().created_at;
    let first = created(behind.store.command_get(first).await.unwrap());
    assert!(first < created(behind.store.command_get(second).await.unwrap()));
}

#[tokio::test]
async fn the_clock_of_the_database_says_when_an_apply_lock_ends() {
    let (db, ids) = (
        TestDb::new(Backend::Postgres).await,
        Arc::new(CountingIds::default()),
    );
    let year = |year: &str| {
        format!("{year}-01-01T00:00:00Z")
            .parse::<DateTime<Utc>>()
            .unwrap()
    };
    let set = async |clock: &str, end: &str| {
        let replica = Replica::new(&db, &ids, year(clock)).await;
        let outcome = replica
            .store
            .apply_lock_set(&ApplyScope::Server, Some(year(end)), by())
            .await
            .unwrap();
        (
            outcome,
            replica.store.apply_lock_list().await.unwrap(),
            replica.store.apply_lock_expire().await.unwrap(),
        )
    };
    // The end is in the future by the server's clock, and in the past by that of the database.
    let (outcome, listed, expired) = set("2000", "2020").await;
    assert!(
        matches!(outcome, SetApplyLock::Over(now) if now > year("2020")),
        "{outcome:?}"
    );
    assert_eq!((listed, expired), (vec![], vec![]));
    // The end is in the past by the server's clock, and in the future by that of the database.
    let (outcome, listed, expired) = set("9500", "9000").await;
    assert!(matches!(outcome, SetApplyLock::Set(_)), "{outcome:?}");
    assert_eq!((listed.len(), expired), (1, vec![]));
}
