//! Tests exclusive work step by step: who may do it, for how long, and that nobody else does it at the same time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use lockkeeper::leases::{HeldLease, LeaseAttempt, LeaseKey, LeaseOutcome, Leases};
use lockkeeper::process::LeaseHeartbeat;
use lockkeeper::queue::{LEASE, RENEW_EVERY};
use lockkeeper::store::{FreeLease, Lease, Presence, ReplicaId, TIME_TO_LET_GO};
use lockkeeper::telemetry::Metrics;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::db::{TestDb, by, execute, store_test};
use crate::support::log;
use crate::support::rows::live_lease;

store_test!(
    a_lease_is_renewed_while_its_work_goes_on_and_given_back_at_its_end,
    a_lease_is_given_back_after_a_panic_and_when_its_work_is_dropped,
    what_cannot_be_obtained_is_logged_and_counted,
    work_stops_when_its_lease_was_given_back_by_hand,
    work_stops_before_a_lease_that_could_not_be_renewed_ends,
    work_stops_when_its_server_is_not_heard_of,
    a_process_that_works_does_not_begin_the_same_again_whatever_the_database_says,
    the_lease_of_a_killed_holder_ends_by_time_or_with_its_server,
    a_turn_lasts_to_its_end_after_a_success_and_no_longer_after_a_failure,
    a_lease_that_nobody_waits_for_any_more_is_given_back,
    of_64_workers_on_three_servers_one_works_at_a_time,
);

const HOURS: Duration = Duration::from_hours(3);

async fn server(db: &TestDb, name: &str) -> (Leases, Metrics) {
    let metrics = Metrics::default();
    let (store, clock, ids) = (db.reopen().await, db.clock.clone(), db.ids.clone());
    (
        Leases::new(store, clock, ids, name.to_owned(), metrics.clone()),
        metrics,
    )
}

fn key() -> LeaseKey {
    LeaseKey::repository_sync("home", &"github.com/acme/infra".parse().unwrap())
}

async fn obtained(leases: &Leases) -> LeaseAttempt {
    leases.obtain(&key(), "sync it", HOURS).await.unwrap()
}

async fn held(leases: &Leases) -> HeldLease {
    match obtained(leases).await {
        LeaseAttempt::Held(held) => held,
        LeaseAttempt::Busy { key, holder, until } => panic!("{holder} has {key} until {until}"),
    }
}

async fn is_busy(leases: &Leases) -> bool {
    matches!(obtained(leases).await, LeaseAttempt::Busy { .. })
}

/// Starts work that goes on until it gets a message.
fn working(
    held: HeldLease,
) -> (
    JoinHandle<LeaseOutcome<&'static str>>,
    oneshot::Sender<&'static str>,
) {
    let (end, ended) = oneshot::channel();
    (
        tokio::spawn(held.run(async { ended.await.expect("the test tells it to end") })),
        end,
    )
}

async fn seen(db: &TestDb) -> Option<Lease> {
    live_lease(db.store(), key().as_str()).await
}

/// Waits until the background task of the lease has released it.
async fn until_free(db: &TestDb) {
    let free = async {
        while seen(db).await.is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free)
        .await
        .expect("the lease is given back");
}

/// Obtains the lease after its row is gone. The server that held it forgets it a moment later.
async fn held_again(leases: &Leases) -> HeldLease {
    let again = async {
        loop {
            match obtained(leases).await {
                LeaseAttempt::Held(held) => return held,
                LeaseAttempt::Busy { .. } => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again)
        .await
        .expect("the lease is forgotten")
}

async fn a_lease_is_renewed_while_its_work_goes_on_and_given_back_at_its_end(db: &TestDb) {
    let (leases, _) = server(db, "one").await;
    let (work, end) = working(held(&leases).await);
    let first = seen(db).await.unwrap();
    assert!(
        first.holder.starts_with("one/")
            && first.purpose == "sync it"
            && first.until == db.now() + HOURS
    );
    db.clock.advance(Duration::from_secs(9));
    leases.tick().await;
    assert_eq!(
        seen(db).await.unwrap(),
        first,
        "it was renewed a moment ago"
    );
    for _ in 0..5 {
        db.clock.advance(HOURS / 3);
        leases.tick().await;
        let renewed = Lease {
            renewed_at: db.now(),
            until: db.now() + HOURS,
            ..first.clone()
        };
        assert_eq!(seen(db).await.unwrap(), renewed);
    }
    end.send("done").unwrap();
    assert_eq!(work.await.unwrap(), LeaseOutcome::Done("done"));
    assert_eq!(seen(db).await, None);
    held(&leases).await.release().await;
    assert_eq!(
        held(&leases).await.run(async { Err::<(), _>("no") }).await,
        LeaseOutcome::Done(Err("no"))
    );
    assert_eq!(seen(db).await, None, "an error is an end like another");
}

async fn a_lease_is_given_back_after_a_panic_and_when_its_work_is_dropped(db: &TestDb) {
    let (leases, _) = server(db, "one").await;
    let work = AssertUnwindSafe(held(&leases).await.run(async { panic!("on purpose") }));
    assert!(work.catch_unwind().await.is_err());
    until_free(db).await;
    let (work, _end) = working(held_again(&leases).await);
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    until_free(db).await;
    drop(held_again(&leases).await);
    until_free(db).await;
    // A lease that is dropped outside of the runtime is released with the next tick.
    let held = held_again(&leases).await;
    std::thread::spawn(move || drop(held)).join().unwrap();
    assert!(seen(db).await.is_some());
    leases.tick().await;
    assert_eq!(seen(db).await, None);
}

async fn what_cannot_be_obtained_is_logged_and_counted(db: &TestDb) {
    let ((one, _), (two, metrics)) = (server(db, "one").await, server(db, "two").await);
    let held = held(&one).await;
    let heard = log::listen();
    let LeaseAttempt::Busy {
        key: refused,
        holder,
        until,
    } = obtained(&two).await
    else {
        panic!("one has it")
    };
    assert_eq!(
        (refused, &holder, until),
        (key(), &held.hold().holder, db.now() + HOURS)
    );
    let heard = heard.end();
    let line = heard
        .lines()
        .find(|line| line.contains("Cannot obtain an exclusive lease"))
        .expect(&heard);
    assert!(
        line.contains("WARN") && line.contains(key().as_str()) && line.contains(&holder),
        "{line}"
    );
    let series = "lockkeeper_lease_refusals_total{kind=\"repository_sync\"} 1\n";
    assert!(metrics.render().contains(series), "{}", metrics.render());
}

async fn work_stops_when_its_lease_was_given_back_by_hand(db: &TestDb) {
    let ((one, metrics), (two, _)) = (server(db, "one").await, server(db, "two").await);
    let (work, end) = working(held(&one).await);
    let freed = db
        .store()
        .lease_free(key().as_str(), None, None, by())
        .await
        .unwrap();
    assert!(matches!(freed, FreeLease::Told(_)), "{freed:?}");
    assert!(
        is_busy(&two).await && !work.is_finished(),
        "it has not heard of it"
    );
    db.clock.advance(Duration::from_secs(10));
    one.tick().await;
    assert_eq!(work.await.unwrap(), LeaseOutcome::Lost);
    assert!(end.is_closed(), "the work is gone");
    assert!(
        metrics
            .render()
            .contains("lockkeeper_leases_lost_total{kind=\"repository_sync\"} 1\n")
    );
    drop(held(&two).await);
    assert!(db.now() < freed_at(&freed));
}

fn freed_at(freed: &FreeLease) -> chrono::DateTime<chrono::Utc> {
    match freed {
        FreeLease::Told(lease) | FreeLease::Freed(lease) | FreeLease::AlreadyTold(lease) => {
            lease.until
        }
        FreeLease::NotHeld => panic!("it was held"),
    }
}

async fn work_stops_before_a_lease_that_could_not_be_renewed_ends(db: &TestDb) {
    let ((one, _), (two, _)) = (server(db, "one").await, server(db, "two").await);
    let (work, end) = working(held(&one).await);
    db.clock
        .advance((HOURS / 10 * 9).saturating_sub(Duration::from_secs(1)));
    one.cancel_expiring();
    assert!(!end.is_closed());
    db.clock.advance(Duration::from_secs(1));
    assert!(is_busy(&two).await);
    one.cancel_expiring();
    assert_eq!(work.await.unwrap(), LeaseOutcome::Lost);
    assert!(end.is_closed());
    held(&two).await.release().await;
}

async fn work_stops_when_its_server_is_not_heard_of(db: &TestDb) {
    let (one, _) = server(db, "one").await;
    let (work, _end) = working(held(&one).await);
    let heartbeat = LeaseHeartbeat::every(Duration::from_micros(1));
    heartbeat.beat(heartbeat.prepare());
    tokio::select! {
        () = one.watch(&heartbeat) => unreachable!("it never returns"),
        outcome = work => assert_eq!(outcome.unwrap(), LeaseOutcome::Lost),
    }
    assert_eq!(seen(db).await, None);
}

/// After a pause of the machine, the row may be free before the work is stopped.
async fn a_process_that_works_does_not_begin_the_same_again_whatever_the_database_says(
    db: &TestDb,
) {
    let (one, _) = server(db, "one").await;
    let (work, _end) = working(held(&one).await);
    execute(db, "DELETE FROM leases").await;
    assert!(is_busy(&one).await);
    db.clock.advance(Duration::from_secs(10));
    one.tick().await;
    assert_eq!(work.await.unwrap(), LeaseOutcome::Lost);
    held(&one).await.release().await;
}

async fn the_lease_of_a_killed_holder_ends_by_time_or_with_its_server(db: &TestDb) {
    let (one, _) = server(db, "one").await;
    let (two, _) = server(db, "two").await;
    std::mem::forget(held(&one).await);
    db.clock
        .advance(HOURS.saturating_sub(Duration::from_micros(1)));
    assert!(is_busy(&two).await);
    db.clock.advance(Duration::from_micros(1));
    held(&two).await.release().await;

    let three = ReplicaId {
        name: "three".to_owned(),
        host: "h".to_owned(),
        address: "a".to_owned(),
        version: "1".to_owned(),
    };
    let last_word = db.now() + Duration::from_secs(45);
    db.store()
        .replica_beat(&three, Presence::Serving, &[], last_word)
        .await
        .unwrap();
    std::mem::forget(held(&server(db, "three").await.0).await);
    db.clock.advance_to(last_word);
    assert!(is_busy(&two).await);
    db.clock.advance(Duration::from_micros(1));
    held(&two).await.release().await;
}

async fn a_turn_lasts_to_its_end_after_a_success_and_no_longer_after_a_failure(db: &TestDb) {
    let ((one, _), (two, metrics)) = (server(db, "one").await, server(db, "two").await);
    let (key, period) = (LeaseKey::reconciler("disk"), Duration::from_mins(5));
    let turn = async |leases: &Leases| leases.turn(&key, "looks", period).await.unwrap();
    let held = turn(&one).await.unwrap();
    assert_eq!(
        held.run_turn(async { Err::<(), _>("no") }).await,
        LeaseOutcome::Done(Err("no"))
    );
    let held = turn(&two).await.unwrap();
    assert_eq!(
        held.run_turn(async { Ok::<_, ()>(1) }).await,
        LeaseOutcome::Done(Ok(1))
    );
    let heard = log::listen();
    db.clock
        .advance(period.saturating_sub(Duration::from_micros(1)));
    assert!(turn(&one).await.is_none() && turn(&two).await.is_none());
    assert!(
        !heard.end().contains("Cannot obtain")
            && metrics.render().contains("{kind=\"reconciler\"} 0\n")
    );
    db.clock.advance(Duration::from_micros(1));
    assert!(turn(&one).await.is_some());
}

async fn a_lease_that_nobody_waits_for_any_more_is_given_back(db: &TestDb) {
    let (one, _) = server(db, "one").await;
    for polls in 0..20 {
        let mut asking = Box::pin(obtained(&one));
        for _ in 0..polls {
            if futures::poll!(asking.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(asking);
        let free = async {
            while is_busy(&one).await {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), free)
            .await
            .expect("it is given back");
        until_free(db).await;
    }
}

#[test]
fn a_holder_that_is_told_to_stop_has_longer_than_a_server_that_is_cut_off_works_on() {
    assert!(TIME_TO_LET_GO.to_std().unwrap() > LEASE + RENEW_EVERY);
}

/// Counters of the workers at this moment.
#[derive(Default)]
struct Floor {
    now: AtomicUsize,
    most: AtomicUsize,
    times: AtomicUsize,
}

struct Worker<'a>(&'a Floor);

impl<'a> Worker<'a> {
    fn begin(floor: &'a Floor) -> Self {
        let others = floor.now.fetch_add(1, Ordering::SeqCst);
        floor.most.fetch_max(others + 1, Ordering::SeqCst);
        floor.times.fetch_add(1, Ordering::SeqCst);
        Self(floor)
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Works under the lease. Some workers succeed, some panic, some are dropped half-way.
async fn work_somehow(number: usize, leases: &Leases, floor: Arc<Floor>) -> bool {
    let LeaseAttempt::Held(held) = obtained(leases).await else {
        return false;
    };
    let work = async move {
        let _worker = Worker::begin(&floor);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(number % 3 != 1, "on purpose");
        if number % 3 == 2 {
            std::future::pending::<()>().await;
        }
    };
    let work = tokio::spawn(held.run(work));
    if number % 3 == 2 {
        tokio::task::yield_now().await;
        work.abort();
    }
    drop(work.await);
    true
}

async fn of_64_workers_on_three_servers_one_works_at_a_time(db: &TestDb) {
    let servers = [
        server(db, "one").await.0,
        server(db, "two").await.0,
        server(db, "three").await.0,
    ];
    let floor = Arc::new(Floor::default());
    let mut waiting: Vec<usize> = (0..64).collect();
    while !waiting.is_empty() {
        let tries = waiting
            .iter()
            .map(|number| work_somehow(*number, &servers[number % 3], Arc::clone(&floor)));
        let worked = join_all(tries).await;
        waiting = waiting
            .into_iter()
            .zip(worked)
            .filter(|(_, worked)| !worked)
            .map(|(number, _)| number)
            .collect();
    }
    until_free(db).await;
    assert_eq!(
        (
            floor.now.load(Ordering::SeqCst),
            floor.most.load(Ordering::SeqCst)
        ),
        (0, 1)
    );
    assert!(
        floor.times.load(Ordering::SeqCst) >= 43,
        "those that were not dropped before they began"
    );
}
