//! Tests of the data for administrators and monitors.

use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::features::operations::{JobStage, StoredCounts};
use lockkeeper::store::{DeliveryState, JobClaim, JobFinish, JobState, NewDelivery, NewJob};

use super::samples::{job, open_pull, project, taken};
use crate::support::db::{TestDb, start_of_time, stop_applies, store_test};

store_test!(
    jobs_are_counted_by_kind_and_by_what_they_do,
    lanes_that_wait_longest_come_first_with_their_first_job,
    jobs_given_up_lately_are_listed_newest_first_and_counted,
    deliveries_are_counted_by_what_became_of_them,
    locks_lines_and_switches_are_counted,
);

fn of_kind(kind: &'static str, lane: &str) -> NewJob {
    NewJob { kind, ..job(lane) }
}

async fn jobs_are_counted_by_kind_and_by_what_they_do(db: &TestDb) {
    let (store, lease) = (db.store(), db.now() + TimeDelta::minutes(1));
    assert_eq!(store.queue_lines().await.unwrap(), []);
    for (kind, lane) in [("b", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("a", "5")] {
        store.job_push(&of_kind(kind, lane)).await.unwrap();
        db.clock.advance(Duration::from_secs(1));
    }
    let first = store
        .job_claim(&JobClaim {
            only: "a",
            ..JobClaim::any("w", lease)
        })
        .await
        .unwrap()
        .unwrap();
    let second = store
        .job_claim(&JobClaim {
            only: "a",
            ..JobClaim::any("w", lease)
        })
        .await
        .unwrap()
        .unwrap();
    let done = store
        .job_claim(&JobClaim {
            only: "a",
            ..JobClaim::any("w", lease)
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        store
            .job_retry(&first, db.now() + TimeDelta::hours(1), "away")
            .await
            .unwrap(),
        JobFinish::Recorded
    );
    assert_eq!(store.job_finish(&done).await.unwrap(), JobFinish::Recorded);
    let lines = store.queue_lines().await.unwrap();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line.kind.as_str(),
                line.stage,
                line.jobs,
                (line.oldest_at - start_of_time()).num_seconds(),
            )
        })
        .collect();
    let expected = [
        ("a", JobStage::Delayed, 1, 1),
        ("a", JobStage::Running, 1, 2),
        ("a", JobStage::Waiting, 1, 4),
        ("b", JobStage::Waiting, 1, 0),
    ];
    assert_eq!(told, expected, "{second:?}");
}

async fn lanes_that_wait_longest_come_first_with_their_first_job(db: &TestDb) {
    let store = db.store();
    for lane in ["b", "a", "b", "b"] {
        store.job_push(&job(lane)).await.unwrap();
    }
    let lease = store
        .job_claim(&JobClaim::any("w", db.now() + TimeDelta::minutes(1)))
        .await
        .unwrap()
        .unwrap();
    let next = db.now() + TimeDelta::minutes(5);
    assert_eq!(
        store.job_retry(&lease, next, "away").await.unwrap(),
        JobFinish::Recorded
    );
    let lanes = store.lane_list(10).await.unwrap();
    let told: Vec<_> = lanes
        .iter()
        .map(|lane| (lane.lane.as_str(), lane.jobs, lane.state, lane.attempt))
        .collect();
    assert_eq!(
        told,
        [("b", 3, JobState::Queued, 1), ("a", 1, JobState::Queued, 0)]
    );
    assert_eq!(
        (
            lanes[0].id,
            lanes[0].run_after,
            lanes[0].last_error.as_deref()
        ),
        (lease.id, next, Some("away"))
    );
    assert_eq!(store.lane_list(1).await.unwrap(), lanes[..1]);
}

async fn jobs_given_up_lately_are_listed_newest_first_and_counted(db: &TestDb) {
    let store = db.store();
    for (lane, given_up) in [("a", true), ("b", true), ("c", false), ("d", true)] {
        db.clock.advance(Duration::from_secs(1));
        store.job_push(&job(lane)).await.unwrap();
        let lease = store
            .job_claim(&JobClaim::any("w", db.now() + TimeDelta::minutes(1)))
            .await
            .unwrap()
            .unwrap();
        let end = if given_up {
            store.job_fail(&lease, lane).await
        } else {
            store.job_finish(&lease).await
        };
        assert_eq!(end.unwrap(), JobFinish::Recorded);
    }
    let since = start_of_time() + TimeDelta::seconds(2);
    let (newest, count) = store.job_list_failed_since(since, 10).await.unwrap();
    assert_eq!(
        newest
            .iter()
            .map(|job| job.lane.as_str())
            .collect::<Vec<_>>(),
        ["d", "b"]
    );
    assert_eq!(
        (
            count,
            newest[0].last_error.as_deref(),
            newest[0].finished_at
        ),
        (2, Some("d"), db.now())
    );
    let (newest, count) = store
        .job_list_failed_since(start_of_time(), 1)
        .await
        .unwrap();
    assert_eq!((newest.len(), count), (1, 3));
}

async fn deliveries_are_counted_by_what_became_of_them(db: &TestDb) {
    let new = |id: &str| NewDelivery {
        host: "github.com".parse().unwrap(),
        forge_delivery: id.to_owned(),
        event: "push".to_owned(),
        content_type: String::new(),
        body: Vec::new(),
    };
    for id in ["old", "a", "b"] {
        let _new = db.store().delivery_ignore(&new(id), "why").await.unwrap();
        db.clock.advance(Duration::from_secs(1));
    }
    let _new = db
        .store()
        .delivery_accept(&new("c"), &[], |_| job("c"))
        .await
        .unwrap();
    let counts = db
        .store()
        .delivery_count_since(start_of_time() + TimeDelta::seconds(1))
        .await
        .unwrap();
    assert_eq!(
        counts,
        [(DeliveryState::Ignored, 2), (DeliveryState::Received, 1)]
    );
}

async fn locks_lines_and_switches_are_counted(db: &TestDb) {
    assert_eq!(db.store().held().await.unwrap(), StoredCounts::default());
    taken(db.store(), &open_pull(db.store(), 1).await, &project("a")).await;
    taken(db.store(), &open_pull(db.store(), 2).await, &project("b")).await;
    stop_applies(db.store(), "ops", "night").await;
    assert_eq!(
        db.store().held().await.unwrap(),
        StoredCounts {
            locks: 2,
            waiters: 0,
            apply_locks: 1
        }
    );
}
