//! Tests of the job queue.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use lockkeeper::model::JobId;
use lockkeeper::store::{
    DatabaseUrl, JobClaim, JobFinish, JobLease, JobState, NewJob, Presence, Store,
};
use sqlx::Connection;

use super::replicas::replica;
use super::samples::{HOSTILE, job};
use crate::support::db::{TestDb, start_of_time, store_test};

store_test!(
    a_job_waits_until_somebody_claims_it,
    a_claimed_job_comes_with_everything_it_needs,
    jobs_of_a_lane_run_one_at_a_time_and_in_order,
    jobs_of_other_lanes_do_not_wait,
    the_most_urgent_lane_goes_first,
    urgency_does_not_overtake_within_a_lane,
    a_job_does_not_run_before_its_time,
    a_claim_may_ask_for_a_kind_or_for_all_but_one,
    a_finished_job_makes_way_for_the_next,
    the_end_of_a_job_and_the_claim_of_the_next_may_be_one_step,
    a_job_is_outdated_if_a_newer_one_of_its_kind_waits,
    a_failed_job_makes_way_and_keeps_its_error,
    a_retried_job_goes_to_the_head_of_its_lane,
    a_lost_lease_writes_nothing,
    a_renewed_lease_is_not_an_orphan,
    a_job_that_its_holder_knows_nothing_of_is_an_orphan_in_the_end,
    orphans_go_back_to_the_head_of_their_lane,
    every_running_job_is_an_orphan_to_a_server_that_is_alone,
    ended_jobs_are_forgotten_after_a_time,
    a_job_that_is_committed_late_still_goes_before_later_ones,
    eight_claimers_keep_every_lane_in_order,
    a_share_takes_only_so_many_workers_of_a_holder,
    the_newest_of_a_lane_is_repeated_unless_it_is_still_to_be_done,
);

const MINUTE: TimeDelta = TimeDelta::minutes(1);

async fn claim(store: &Store, holder: &str) -> Option<JobLease> {
    store
        .job_claim(&JobClaim::any(holder, start_of_time() + MINUTE))
        .await
        .unwrap()
}

async fn claimed(store: &Store, holder: &str) -> JobLease {
    claim(store, holder).await.expect("a job may run")
}

async fn push(store: &Store, lane: &str) -> JobId {
    store.job_push(&job(lane)).await.unwrap()
}

async fn open(store: &Store) -> Vec<(JobId, JobState, i64)> {
    store
        .job_list_open()
        .await
        .unwrap()
        .into_iter()
        .map(|job| (job.id, job.state, job.attempt))
        .collect()
}

async fn a_job_waits_until_somebody_claims_it(db: &TestDb) {
    assert!(claim(db.store(), "w").await.is_none());
    let id = push(db.store(), "lane").await;
    let other = db.reopen().await;
    let [waiting] = &other.job_list_open().await.unwrap()[..] else {
        panic!("one job was pushed")
    };
    assert_eq!(
        (waiting.id, waiting.kind.as_str(), waiting.lane.as_str()),
        (id, "work", "lane")
    );
    assert_eq!(
        (waiting.state, waiting.attempt, waiting.run_after),
        (JobState::Queued, 0, start_of_time())
    );
    assert_eq!(waiting.last_error, None);
    assert_eq!(claimed(&other, "w").await.id, id);
    assert_eq!(open(db.store()).await, [(id, JobState::Running, 1)]);
    assert!(claim(db.store(), "w").await.is_none());
}

async fn the_newest_of_a_lane_is_repeated_unless_it_is_still_to_be_done(db: &TestDb) {
    let numbered = |payload: &str| NewJob {
        payload: payload.to_owned(),
        ..job("lane")
    };
    let repeat = async |since| {
        db.store()
            .job_repeat_newest("work", 3, "lane", since)
            .await
            .unwrap()
    };
    let end = async || {
        let lease = claimed(db.store(), "w").await;
        assert_eq!(
            db.store().job_finish(&lease).await.unwrap(),
            JobFinish::Recorded
        );
        lease
    };
    let first = db.store().job_push(&numbered("1")).await.unwrap();
    assert_eq!(repeat(first).await, None, "it is still to be done");
    end().await;
    db.store().job_push(&numbered("2")).await.unwrap();
    push(db.store(), "other").await;
    end().await;
    end().await;
    let repeated = repeat(first).await.expect("it is done");
    let lease = end().await;
    assert_eq!(
        (lease.id, lease.payload.as_str(), lease.lane.as_str()),
        (repeated, "2", "lane")
    );
    assert_eq!(
        repeat(JobId::next(&*db.ids)).await,
        None,
        "nobody knows that job any more"
    );
}

async fn a_claimed_job_comes_with_everything_it_needs(db: &TestDb) {
    let payload = format!("{HOSTILE}{}", "é".repeat(1 << 19));
    let new = NewJob {
        payload: payload.clone(),
        ..job(HOSTILE)
    };
    let id = db.store().job_push(&new).await.unwrap();
    let lease = claimed(db.store(), HOSTILE).await;
    assert_eq!(
        (lease.id, lease.kind.as_str(), lease.lane.as_str()),
        (id, "work", HOSTILE)
    );
    assert_eq!((lease.attempt, lease.holder.as_str()), (1, HOSTILE));
    assert!(lease.payload == payload, "the payload came back changed");
}

async fn jobs_of_a_lane_run_one_at_a_time_and_in_order(db: &TestDb) {
    let pushed = [
        push(db.store(), "lane").await,
        push(db.store(), "lane").await,
        push(db.store(), "lane").await,
    ];
    for id in pushed {
        let lease = claimed(db.store(), "w").await;
        assert_eq!(lease.id, id);
        assert!(claim(db.store(), "v").await.is_none(), "the lane is busy");
        assert_eq!(
            db.store().job_finish(&lease).await.unwrap(),
            JobFinish::Recorded
        );
    }
    assert_eq!(open(db.store()).await, []);
}

async fn jobs_of_other_lanes_do_not_wait(db: &TestDb) {
    let (a, _waits, b) = (
        push(db.store(), "a").await,
        push(db.store(), "a").await,
        push(db.store(), "b").await,
    );
    assert_eq!(
        [
            claimed(db.store(), "w").await.id,
            claimed(db.store(), "w").await.id
        ],
        [a, b]
    );
    assert!(claim(db.store(), "w").await.is_none());
}

async fn the_most_urgent_lane_goes_first(db: &TestDb) {
    let mut ids = Vec::new();
    for (lane, priority) in [("a", 0), ("b", -5), ("c", 5), ("d", 5), ("e", i64::MAX)] {
        ids.push(
            db.store()
                .job_push(&NewJob {
                    priority,
                    ..job(lane)
                })
                .await
                .unwrap(),
        );
    }
    for expected in [4, 2, 3, 0, 1] {
        assert_eq!(claimed(db.store(), "w").await.id, ids[expected]);
    }
}

async fn urgency_does_not_overtake_within_a_lane(db: &TestDb) {
    let first = push(db.store(), "lane").await;
    db.store()
        .job_push(&NewJob {
            priority: 9,
            ..job("lane")
        })
        .await
        .unwrap();
    assert_eq!(claimed(db.store(), "w").await.id, first);
}

async fn a_job_does_not_run_before_its_time(db: &TestDb) {
    let at = start_of_time() + TimeDelta::microseconds(1_500_001);
    let late = NewJob {
        run_after: Some(at + TimeDelta::nanoseconds(999)),
        ..job("lane")
    };
    let id = db.store().job_push(&late).await.unwrap();
    assert_eq!(db.store().job_list_open().await.unwrap()[0].run_after, at);
    push(db.store(), "lane").await;
    let other = push(db.store(), "other").await;
    assert_eq!(
        claimed(db.store(), "w").await.id,
        other,
        "a job that waits blocks its own lane only"
    );
    db.clock.advance_to(at - TimeDelta::microseconds(1));
    assert!(claim(db.store(), "w").await.is_none());
    db.clock.advance_to(at);
    assert_eq!(claimed(db.store(), "w").await.id, id);
}

async fn a_claim_may_ask_for_a_kind_or_for_all_but_one(db: &TestDb) {
    for (lane, kind) in [("a", "post"), ("b", "command"), ("c", "delivery")] {
        db.store()
            .job_push(&NewJob { kind, ..job(lane) })
            .await
            .unwrap();
    }
    let ask = async |only, except| {
        let claim = JobClaim {
            only,
            except,
            ..JobClaim::any("w", start_of_time() + MINUTE)
        };
        db.store().job_claim(&claim).await
    };
    assert!(ask("unknown", "").await.unwrap().is_none());
    assert!(ask("post", "post").await.unwrap().is_none());
    assert_eq!(ask("", "post").await.unwrap().unwrap().kind, "command");
    assert_eq!(ask("delivery", "").await.unwrap().unwrap().kind, "delivery");
    assert_eq!(ask("", "").await.unwrap().unwrap().kind, "post");
}

async fn the_end_of_a_job_and_the_claim_of_the_next_may_be_one_step(db: &TestDb) {
    let store = db.store();
    let (_first, second) = (push(store, "lane").await, push(store, "lane").await);
    let lease = claimed(store, "w").await;
    let claim = JobClaim::any("w", start_of_time() + MINUTE);
    let (finish, next) = store.job_finish_and_claim(&lease, &claim).await.unwrap();
    assert_eq!(finish, JobFinish::Recorded);
    let next = next.expect("the next of the lane was waiting for that end");
    assert_eq!((next.id, next.attempt), (second, 1));

    // Somebody else took the job over: the end is not written, and there is nothing to claim.
    db.clock.advance(std::time::Duration::from_mins(2));
    store.job_requeue_orphans(db.now()).await.unwrap();
    let theirs = claimed(store, "other").await;
    let outcome = store.job_finish_and_claim(&next, &claim).await.unwrap();
    assert_eq!(outcome.0, JobFinish::LeaseLost);
    assert!(outcome.1.is_none());
    let (finish, next) = store.job_finish_and_claim(&theirs, &claim).await.unwrap();
    assert_eq!(finish, JobFinish::Recorded);
    assert!(next.is_none());
    assert_eq!(open(store).await, []);
}

async fn a_finished_job_makes_way_for_the_next(db: &TestDb) {
    let (_first, second) = (
        push(db.store(), "lane").await,
        push(db.store(), "lane").await,
    );
    let lease = claimed(db.store(), "w").await;
    assert_eq!(
        db.store().job_finish(&lease).await.unwrap(),
        JobFinish::Recorded
    );
    assert_eq!(open(db.store()).await, [(second, JobState::Queued, 0)]);
    assert!(
        db.store()
            .job_list_failed_since(DateTime::UNIX_EPOCH, 10)
            .await
            .unwrap()
            .0
            .is_empty()
    );
    assert_eq!(claimed(db.store(), "w").await.id, second);
}

async fn a_job_is_outdated_if_a_newer_one_of_its_kind_waits(db: &TestDb) {
    let store = db.store();
    push(store, "lane").await;
    let first = claimed(store, "w").await;
    let other = NewJob {
        kind: "other work",
        ..job("lane")
    };
    store.job_push(&other).await.unwrap();
    assert!(!store.job_is_outdated(&first).await.unwrap());
    push(store, "lane").await;
    assert!(store.job_is_outdated(&first).await.unwrap());
    assert_eq!(store.job_finish(&first).await.unwrap(), JobFinish::Recorded);
    assert_eq!(
        open(store)
            .await
            .iter()
            .map(|(_, state, _)| *state)
            .collect::<Vec<_>>(),
        [JobState::Queued; 2],
        "the job has ended"
    );
}

async fn a_failed_job_makes_way_and_keeps_its_error(db: &TestDb) {
    for lane in ["a", "b", "a"] {
        push(db.store(), lane).await;
    }
    for lane in ["a", "b"] {
        let lease = claimed(db.store(), "w").await;
        let error = format!("{lane} {HOSTILE}\0");
        assert_eq!(
            db.store().job_fail(&lease, &error).await.unwrap(),
            JobFinish::Recorded
        );
    }
    let (failed, _) = db
        .store()
        .job_list_failed_since(DateTime::UNIX_EPOCH, 10)
        .await
        .unwrap();
    let told: Vec<_> = failed
        .into_iter()
        .map(|job| (job.lane, job.last_error.unwrap()))
        .collect();
    let of = |lane: &str| (lane.to_owned(), format!("{lane} {HOSTILE}\u{fffd}"));
    assert_eq!(told, [of("b"), of("a")]);
    assert_eq!(
        db.store()
            .job_list_failed_since(DateTime::UNIX_EPOCH, 1)
            .await
            .unwrap()
            .0
            .len(),
        1
    );
    assert_eq!(claimed(db.store(), "w").await.lane, "a");
}

async fn a_retried_job_goes_to_the_head_of_its_lane(db: &TestDb) {
    let (first, _second) = (
        push(db.store(), "lane").await,
        push(db.store(), "lane").await,
    );
    let at = start_of_time() + MINUTE;
    let lease = claimed(db.store(), "w").await;
    assert_eq!(
        db.store().job_retry(&lease, at, "502\0").await.unwrap(),
        JobFinish::Recorded
    );
    assert!(
        claim(db.store(), "w").await.is_none(),
        "the lane waits for its head"
    );
    let waiting = db.store().job_list_open().await.unwrap().remove(0);
    assert_eq!(
        (
            waiting.id,
            waiting.state,
            waiting.attempt,
            waiting.run_after
        ),
        (first, JobState::Queued, 1, at)
    );
    assert_eq!(waiting.last_error.as_deref(), Some("502\u{fffd}"));
    db.clock.advance_to(at);
    let again = claimed(db.store(), "w").await;
    assert_eq!((again.id, again.attempt), (first, 2));
    assert_eq!(
        db.store().job_finish(&lease).await.unwrap(),
        JobFinish::LeaseLost,
        "that was the first attempt"
    );
    assert_eq!(
        db.store().job_finish(&again).await.unwrap(),
        JobFinish::Recorded
    );
}

async fn a_lost_lease_writes_nothing(db: &TestDb) {
    let id = push(db.store(), "lane").await;
    let lost = claimed(db.store(), "w").await;
    assert_eq!(
        db.store()
            .job_requeue_orphans(start_of_time() + MINUTE * 2)
            .await
            .unwrap(),
        1
    );
    for attempt in [1, 2] {
        let before = (
            open(db.store()).await,
            db.store()
                .job_list_open()
                .await
                .unwrap()
                .remove(0)
                .last_error,
        );
        assert_eq!(before.0[0].2, attempt);
        assert_eq!(
            db.store().job_finish(&lost).await.unwrap(),
            JobFinish::LeaseLost
        );
        assert_eq!(
            db.store().job_fail(&lost, "late").await.unwrap(),
            JobFinish::LeaseLost
        );
        assert_eq!(
            db.store()
                .job_retry(&lost, start_of_time(), "late")
                .await
                .unwrap(),
            JobFinish::LeaseLost
        );
        let after = (
            open(db.store()).await,
            db.store()
                .job_list_open()
                .await
                .unwrap()
                .remove(0)
                .last_error,
        );
        assert_eq!(after, before);
        if attempt == 1 {
            assert_eq!(
                claimed(db.store(), "w").await.id,
                id,
                "the same holder, another attempt"
            );
        }
    }
}

/// Sends a heartbeat of a holder that works on these jobs.
async fn renew(db: &TestDb, holder: &str, working: &[JobId], until: DateTime<Utc>) -> Vec<JobId> {
    db.store()
        .replica_beat(&replica(holder), Presence::Serving, working, until)
        .await
        .unwrap()
}

async fn a_renewed_lease_is_not_an_orphan(db: &TestDb) {
    let (a, b) = (push(db.store(), "a").await, push(db.store(), "b").await);
    let (ours, _theirs) = (
        claimed(db.store(), "w").await,
        claimed(db.store(), "v").await,
    );
    let until = start_of_time() + MINUTE * 5;
    assert_eq!(renew(db, "w", &[a, b], until).await, [a]);
    assert_eq!(renew(db, "nobody", &[a], until).await, []);
    assert_eq!(
        db.store()
            .job_requeue_orphans(start_of_time() + MINUTE)
            .await
            .unwrap(),
        0,
        "ends then, not before"
    );
    assert_eq!(
        db.store()
            .job_requeue_orphans(start_of_time() + MINUTE * 2)
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        open(db.store()).await,
        [(a, JobState::Running, 1), (b, JobState::Queued, 1)]
    );
    assert_eq!(
        renew(db, "v", &[b], until).await,
        [],
        "what was lost stays lost"
    );
    assert_eq!(
        db.store().job_finish(&ours).await.unwrap(),
        JobFinish::Recorded
    );
    assert_eq!(renew(db, "w", &[a], until).await, []);
}

async fn a_job_that_its_holder_knows_nothing_of_is_an_orphan_in_the_end(db: &TestDb) {
    let (a, b) = (push(db.store(), "a").await, push(db.store(), "b").await);
    claimed(db.store(), "w").await;
    // The answer to this claim was lost on its way.
    claimed(db.store(), "w").await;
    let until = start_of_time() + MINUTE * 5;
    assert_eq!(renew(db, "w", &[], until).await, []);
    assert_eq!(renew(db, "w", &[a], until).await, [a]);
    assert_eq!(
        db.store()
            .job_requeue_orphans(start_of_time() + MINUTE * 2)
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        open(db.store()).await,
        [(a, JobState::Running, 1), (b, JobState::Queued, 1)]
    );
}

async fn orphans_go_back_to_the_head_of_their_lane(db: &TestDb) {
    let (first, _second) = (
        push(db.store(), "lane").await,
        push(db.store(), "lane").await,
    );
    claimed(db.store(), "crashed").await;
    assert_eq!(
        db.store()
            .job_requeue_orphans(start_of_time() + MINUTE * 2)
            .await
            .unwrap(),
        1
    );
    let waiting = db.store().job_list_open().await.unwrap().remove(0);
    assert_eq!(
        waiting.last_error.as_deref(),
        Some("the lease ran out before the job was finished")
    );
    let lease = claimed(db.store(), "w").await;
    assert_eq!(
        (lease.id, lease.attempt, lease.cut_offs, lease.tries()),
        (first, 2, 1, 1)
    );
}

async fn every_running_job_is_an_orphan_to_a_server_that_is_alone(db: &TestDb) {
    let id = push(db.store(), "lane").await;
    claimed(db.store(), "crashed").await;
    assert_eq!(
        db.store()
            .job_requeue_orphans(DateTime::<Utc>::MAX_UTC)
            .await
            .unwrap(),
        1
    );
    assert_eq!(open(db.store()).await, [(id, JobState::Queued, 1)]);
    assert_eq!(
        db.store()
            .job_requeue_orphans(DateTime::<Utc>::MAX_UTC)
            .await
            .unwrap(),
        0
    );
}

async fn ended_jobs_are_forgotten_after_a_time(db: &TestDb) {
    for lane in ["done", "failed", "young", "queued", "running"] {
        push(db.store(), lane).await;
    }
    let (done, failed) = (
        claimed(db.store(), "w").await,
        claimed(db.store(), "w").await,
    );
    assert_eq!(
        db.store().job_finish(&done).await.unwrap(),
        JobFinish::Recorded
    );
    assert_eq!(
        db.store().job_fail(&failed, "gone").await.unwrap(),
        JobFinish::Recorded
    );
    db.clock.advance(Duration::from_micros(1));
    let young = claimed(db.store(), "w").await;
    assert_eq!(
        db.store().job_fail(&young, "still here").await.unwrap(),
        JobFinish::Recorded
    );
    claimed(db.store(), "w").await;
    assert_eq!(db.store().job_prune(start_of_time(), 500).await.unwrap(), 0);
    assert_eq!(db.store().job_prune(db.now(), 500).await.unwrap(), 2);
    assert_eq!(
        db.store()
            .job_list_failed_since(DateTime::UNIX_EPOCH, 10)
            .await
            .unwrap()
            .0
            .len(),
        1
    );
    assert_eq!(open(db.store()).await.len(), 2);
}

/// PostgreSQL numbers rows before they are committed. While a transaction that will add to the lane is open, no other
/// one gets a later number.
async fn a_job_that_is_committed_late_still_goes_before_later_ones(db: &TestDb) {
    let DatabaseUrl::Postgres(options) = &db.url else {
        return two_pushers_keep_the_order_of_their_commits(db).await;
    };
    let mut slow = sqlx_postgres::PgConnection::connect_with(options)
        .await
        .unwrap();
    let mut tx = slow.begin().await.unwrap();
    for sql in [
        "SELECT pg_advisory_xact_lock(hashtextextended('lane', 0))",
        "INSERT INTO jobs (id, kind, payload, lane, priority, state, run_after, attempt, created_at) \
         VALUES ('00000000-0000-7000-8000-00000000ffff', 'work', '{}', 'lane', 0, 'queued', 'epoch', 0, 'epoch')",
    ] {
        sqlx::query(sql).execute(&mut *tx).await.unwrap();
    }
    let new = job("lane");
    let (pushed, claimed_meanwhile) = tokio::join!(db.store().job_push(&new), async {
        push(db.store(), "other").await;
        let other = claimed(db.store(), "w").await;
        let nothing = claim(db.store(), "w").await;
        tx.commit().await.unwrap();
        (other.lane, nothing.is_none())
    });
    assert_eq!(claimed_meanwhile, ("other".to_owned(), true));
    assert_ne!(claimed(db.store(), "w").await.id, pushed.unwrap());
    assert!(claim(db.store(), "v").await.is_none(), "the lane is busy");
}

/// SQLite has only one writing transaction at a time, which gives the same guarantee.
async fn two_pushers_keep_the_order_of_their_commits(db: &TestDb) {
    let other = db.reopen().await;
    let (one, two) = tokio::join!(push(db.store(), "lane"), push(&other, "lane"));
    let order: Vec<_> = open(db.store())
        .await
        .into_iter()
        .map(|(id, ..)| id)
        .collect();
    assert!(order == [one, two] || order == [two, one]);
    assert_eq!(claimed(&other, "w").await.id, order[0]);
    assert!(claim(db.store(), "v").await.is_none(), "the lane is busy");
}

const LANES: usize = 6;
const JOBS_OF_A_LANE: usize = 12;

/// Jobs are pushed while claimers work, retry and finish. Every lane must see its jobs in order, each done once.
async fn eight_claimers_keep_every_lane_in_order(db: &TestDb) {
    let other = db.reopen().await;
    let (busy, done) = (
        Mutex::new(HashMap::new()),
        Mutex::new(HashMap::<String, Vec<JobId>>::new()),
    );
    let pushers = (0..LANES).map(|lane| {
        let store = if lane % 2 == 0 { db.store() } else { &other };
        async move {
            let mut pushed = Vec::new();
            for _ in 0..JOBS_OF_A_LANE {
                pushed.push(push(store, &lane.to_string()).await);
            }
            (lane.to_string(), pushed)
        }
    });
    let claimers = (0..8).map(|n| {
        let (store, busy, done) = (if n % 2 == 0 { db.store() } else { &other }, &busy, &done);
        work(store, format!("worker {n}"), busy, done)
    });
    let (pushed, _) = tokio::join!(join_all(pushers), join_all(claimers));
    let done = done.into_inner().unwrap();
    for (lane, expected) in pushed {
        assert_eq!(done[&lane], expected, "lane {lane}");
    }
}

/// Works until everything is done. Each job is tried twice.
async fn work(
    store: &Store,
    name: String,
    busy: &Mutex<HashMap<String, JobId>>,
    done: &Mutex<HashMap<String, Vec<JobId>>>,
) {
    while done.lock().unwrap().values().map(Vec::len).sum::<usize>() < LANES * JOBS_OF_A_LANE {
        let Some(lease) = claim(store, &name).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let before = busy.lock().unwrap().insert(lease.lane.clone(), lease.id);
        assert_eq!(before, None, "two jobs of lane {} run at once", lease.lane);
        tokio::task::yield_now().await;
        if lease.attempt == 2 {
            done.lock()
                .unwrap()
                .entry(lease.lane.clone())
                .or_default()
                .push(lease.id);
        }
        busy.lock().unwrap().remove(&lease.lane);
        let ended = match lease.attempt {
            1 => store.job_retry(&lease, start_of_time(), "once more").await,
            _ => store.job_finish(&lease).await,
        };
        assert_eq!(ended.unwrap(), JobFinish::Recorded);
    }
}

async fn a_share_takes_only_so_many_workers_of_a_holder(db: &TestDb) {
    let busy = |lane: &str| NewJob {
        share: "busy".to_owned(),
        priority: 9,
        ..job(lane)
    };
    for n in 0..64 {
        db.store()
            .job_push(&busy(&format!("busy {n}")))
            .await
            .unwrap();
    }
    for lane in ["a", "b"] {
        db.store()
            .job_push(&NewJob {
                share: "calm".to_owned(),
                ..job(lane)
            })
            .await
            .unwrap();
    }
    push(db.store(), "nobody's").await;
    let next = async |holder: &str| {
        let lease = db
            .store()
            .job_claim(&JobClaim {
                most_of_a_share: 2,
                ..JobClaim::any(holder, start_of_time() + MINUTE)
            })
            .await
            .unwrap();
        lease.map(|lease| (lease.lane.clone(), lease))
    };
    let mut lanes = Vec::new();
    let mut first = None;
    while let Some((lane, lease)) = next("w").await {
        lanes.push(lane);
        first.get_or_insert(lease);
    }
    assert_eq!(lanes, ["busy 0", "busy 1", "a", "b", "nobody's"]);
    assert_eq!(
        next("v").await.unwrap().0,
        "busy 2",
        "another holder has workers of its own"
    );
    assert_eq!(
        db.store().job_finish(&first.unwrap()).await.unwrap(),
        JobFinish::Recorded
    );
    assert_eq!(next("w").await.unwrap().0, "busy 3");
    assert!(next("w").await.is_none());
}
