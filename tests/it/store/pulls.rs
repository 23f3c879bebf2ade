//! Tests of stored pull requests. A closed one keeps no lock (P7).

use lockkeeper::model::{Lock, PlanState, PullHead, PullState};
use lockkeeper::store::{ApplyGate, HeadUpdate};

use super::samples::{
    HOSTILE, URL, begin_apply, job, open_pull, plan_state, planned, project, pull, taken,
};
use crate::support::db::{TestDb, by, store_test};

store_test!(
    a_pull_that_was_never_seen_has_no_state,
    the_last_word_of_the_forge_counts,
    closing_frees_the_locks_and_discards_the_plans,
    closing_a_pull_that_was_never_seen_leaves_a_tombstone,
    closing_twice_frees_nothing_more,
    what_is_said_about_a_close_is_said_once,
    a_pull_that_is_open_again_takes_locks_again,
    closing_spares_the_lock_of_a_running_apply,
    pulls_with_locks_are_listed_once_and_in_order,
    a_pull_that_a_complete_list_has_shown_is_not_asked_for,
);

async fn a_pull_that_was_never_seen_has_no_state(db: &TestDb) {
    assert_eq!(db.store().pull_state(&pull(1)).await.unwrap(), None);
}

async fn the_last_word_of_the_forge_counts(db: &TestDb) {
    for &state in PullState::ALL {
        db.store()
            .pull_seen(&pull(1), state, HOSTILE)
            .await
            .unwrap();
        assert_eq!(
            db.reopen().await.pull_state(&pull(1)).await.unwrap(),
            Some(state)
        );
    }
    assert_eq!(db.store().pull_state(&pull(2)).await.unwrap(), None);
}

async fn closing_frees_the_locks_and_discards_the_plans(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let (ours, theirs) = (
        planned(db, &one, &project("b")).await,
        planned(db, &two, &project("c")).await,
    );
    taken(db.store(), &one, &project("a")).await;
    let freed = db
        .store()
        .pull_close(&one, PullState::Merged, URL, by(), |_| vec![])
        .await
        .unwrap();
    assert_eq!(
        freed
            .into_iter()
            .map(|lock| lock.project)
            .collect::<Vec<_>>(),
        [project("a"), project("b")]
    );
    assert_eq!(
        db.store().pull_state(&one).await.unwrap(),
        Some(PullState::Merged)
    );
    assert_eq!(db.store().lock_list_of_pull(&one).await.unwrap(), []);
    assert_eq!(plan_state(db, &ours).await, PlanState::Discarded);
    assert_eq!(plan_state(db, &theirs).await, PlanState::Planned);
    assert_eq!(db.store().lock_list().await.unwrap().len(), 1);
}

async fn closing_a_pull_that_was_never_seen_leaves_a_tombstone(db: &TestDb) {
    assert_eq!(
        db.store()
            .pull_close(&pull(1), PullState::Closed, URL, by(), |_| vec![])
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        db.store().pull_state(&pull(1)).await.unwrap(),
        Some(PullState::Closed)
    );
}

async fn closing_twice_frees_nothing_more(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    taken(db.store(), &one, &project("a")).await;
    let other = db.reopen().await;
    let close = PullState::Closed;
    let (a, b) = tokio::join!(
        db.store().pull_close(&one, close, URL, by(), |_| vec![]),
        other.pull_close(&one, close, URL, by(), |_| vec![])
    );
    assert_eq!(a.unwrap().len() + b.unwrap().len(), 1);
}

async fn what_is_said_about_a_close_is_said_once(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    taken(db.store(), &one, &project("a")).await;
    let notice = |freed: &[Lock]| {
        freed
            .iter()
            .map(|lock| job(&format!("freed {}", lock.project.dir)))
            .collect()
    };
    for _ in 0..2 {
        db.store()
            .pull_close(&one, PullState::Closed, URL, by(), notice)
            .await
            .unwrap();
    }
    let lanes: Vec<_> = db
        .store()
        .job_list_open()
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.lane)
        .collect();
    assert_eq!(lanes, ["freed a"]);
}

async fn a_pull_that_is_open_again_takes_locks_again(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    assert_eq!(
        db.store()
            .pull_close(&one, PullState::Closed, URL, by(), |_| vec![])
            .await
            .unwrap(),
        []
    );
    taken(db.store(), &open_pull(db.store(), 1).await, &project("a")).await;
}

async fn closing_spares_the_lock_of_a_running_apply(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let (running, waiting) = (
        planned(db, &one, &project("a")).await,
        planned(db, &one, &project("b")).await,
    );
    assert!(matches!(
        begin_apply(db.store(), &running).await,
        ApplyGate::Granted(_)
    ));
    let freed = db
        .store()
        .pull_close(&one, PullState::Merged, URL, by(), |_| vec![])
        .await
        .unwrap();
    assert_eq!(
        freed
            .into_iter()
            .map(|lock| lock.project)
            .collect::<Vec<_>>(),
        [project("b")]
    );
    assert_eq!(plan_state(db, &running).await, PlanState::Applying);
    assert_eq!(plan_state(db, &waiting).await, PlanState::Discarded);
}

async fn pulls_with_locks_are_listed_once_and_in_order(db: &TestDb) {
    for (number, dir) in [(10, "a"), (9, "b"), (10, "c")] {
        taken(
            db.store(),
            &open_pull(db.store(), number).await,
            &project(dir),
        )
        .await;
    }
    open_pull(db.store(), 1).await;
    assert_eq!(
        db.store().pull_list_unseen(db.now()).await.unwrap(),
        [pull(9), pull(10)]
    );
}

async fn a_pull_that_a_complete_list_has_shown_is_not_asked_for(db: &TestDb) {
    let (store, start) = (db.store(), db.now());
    let [listed, gone] = [9, 10].map(pull);
    for (at, dir) in [(&listed, "a"), (&gone, "b")] {
        taken(
            store,
            &open_pull(store, at.subject.stored()).await,
            &project(dir),
        )
        .await;
    }
    let head = PullHead {
        head: "c".repeat(40).parse().unwrap(),
        base_branch: "main".parse().unwrap(),
        draft: false,
    };
    store
        .head_note(
            &listed,
            HeadUpdate::Forge {
                known: None,
                at: &head,
            },
        )
        .await
        .unwrap();
    store.watched_discover().await.unwrap();
    store.watched_seen(&listed.repo, false).await.unwrap();
    assert_eq!(
        store.pull_list_unseen(start).await.unwrap(),
        [listed.clone(), gone.clone()],
        "half a list says little"
    );
    store.watched_seen(&listed.repo, true).await.unwrap();
    assert_eq!(
        store.pull_list_unseen(start).await.unwrap(),
        std::slice::from_ref(&gone)
    );
    db.clock.advance(std::time::Duration::from_hours(1));
    assert_eq!(
        store.pull_list_unseen(db.now()).await.unwrap(),
        [listed, gone],
        "that was an hour ago"
    );
}
