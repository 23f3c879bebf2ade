//! Tests of locks whose pull requests are not active.

use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::model::{
    CommandKind, CommandOutcome, LockEventKind, PlanState, ProjectOutcome, PullRef, RunKind,
};
use lockkeeper::store::FinishedCommand;

use super::samples::{command, job, open_pull, plan_state, planned, project, run, taken};
use crate::support::db::{TestDb, by, store_test};

store_test!(
    idle_locks_are_listed_page_by_page,
    a_lock_is_warned_of_once_and_a_renewal_takes_the_warning_back,
    a_lock_expires_only_after_a_warning_and_with_its_plans,
    nothing_is_done_while_a_command_is_unfinished,
    whoever_was_active_meanwhile_keeps_the_lock,
    an_expired_lock_goes_back_once,
    only_of_a_pull_something_applied_waits_to_be_merged,
);

const HOUR: Duration = Duration::from_hours(1);

async fn idle_locks_are_listed_page_by_page(db: &TestDb) {
    let pull = open_pull(db.store(), 1).await;
    for n in 0..1203 {
        if n % 400 == 0 {
            db.clock.advance(HOUR);
        }
        taken(db.store(), &pull, &project(&format!("dir{n}"))).await;
    }
    let last = db.now();
    db.clock.advance(HOUR);
    taken(db.store(), &pull, &project("young")).await;
    let (mut seen, mut page) = (
        Vec::new(),
        db.store().lock_list_idle(last, None).await.unwrap(),
    );
    while let Some(after) = page.last().map(|idle| idle.lock.clone()) {
        assert!(page.len() <= 500);
        seen.extend(
            page.into_iter()
                .map(|idle| (idle.lock.active_at, idle.lock.id)),
        );
        page = db.store().lock_list_idle(last, Some(&after)).await.unwrap();
    }
    assert_eq!(seen.len(), 1203);
    assert!(seen.is_sorted(), "the longest idle come first");
}

async fn a_lock_is_warned_of_once_and_a_renewal_takes_the_warning_back(db: &TestDb) {
    let (store, pull) = (db.store(), open_pull(db.store(), 1).await);
    let lock = taken(store, &pull, &project("a")).await;
    db.clock.advance(HOUR);
    let seen = [lock.clone()];
    assert_eq!(
        store
            .lock_warn(&pull, &seen, by(), |_| vec![job("warning")])
            .await
            .unwrap(),
        seen
    );
    assert_eq!(
        store
            .lock_warn(&pull, &seen, by(), |_| panic!("twice"))
            .await
            .unwrap(),
        []
    );
    let idle = store.lock_list_idle(db.now(), None).await.unwrap();
    assert_eq!(idle[0].warned_at, Some(db.now()));
    assert_eq!(
        store
            .lock_renew(&pull, TimeDelta::hours(2), by())
            .await
            .unwrap()
            .len(),
        1,
        "however short ago"
    );
    let idle = store.lock_list_idle(db.now(), None).await.unwrap();
    assert_eq!(
        (idle[0].warned_at, idle[0].lock.active_at),
        (None, db.now())
    );
    assert_eq!(store.job_list_open().await.unwrap().len(), 1);
}

async fn a_lock_expires_only_after_a_warning_and_with_its_plans(db: &TestDb) {
    let (store, pull) = (db.store(), open_pull(db.store(), 1).await);
    let plan = planned(db, &pull, &project("a")).await;
    finish_all(db, &pull).await;
    let lock = store.lock_list_of_pull(&pull).await.unwrap().remove(0);
    db.clock.advance(HOUR);
    let seen = [lock.clone()];
    assert_eq!(
        store
            .lock_expire(&pull, &seen, by(), |_| panic!("without a warning"))
            .await
            .unwrap(),
        []
    );
    store
        .lock_warn(&pull, &seen, by(), |_| vec![])
        .await
        .unwrap();
    let expired = store
        .lock_expire(&pull, &seen, by(), |_| vec![job("told")])
        .await
        .unwrap();
    assert_eq!(
        expired
            .iter()
            .map(|one| (&one.lock, one.applied))
            .collect::<Vec<_>>(),
        [(&lock, false)]
    );
    assert_eq!(
        store
            .lock_expire(&pull, &seen, by(), |_| panic!("twice"))
            .await
            .unwrap(),
        []
    );
    assert_eq!(plan_state(db, &plan).await, PlanState::Discarded);
    assert_eq!(
        store.lock_event_list(1).await.unwrap()[0].event.kind,
        LockEventKind::Expired
    );
}

async fn nothing_is_done_while_a_command_is_unfinished(db: &TestDb) {
    let (store, pull) = (db.store(), open_pull(db.store(), 1).await);
    let seen = [taken(store, &pull, &project("a")).await];
    let under_way = command(store, CommandKind::Plan, &pull).await;
    assert_eq!(
        store
            .lock_warn(&pull, &seen, by(), |_| panic!("it is worked on"))
            .await
            .unwrap(),
        []
    );
    finish(db, under_way).await;
    assert_eq!(
        store
            .lock_warn(&pull, &seen, by(), |_| vec![])
            .await
            .unwrap()
            .len(),
        1
    );
    command(store, CommandKind::Apply, &pull).await;
    assert_eq!(
        store
            .lock_expire(&pull, &seen, by(), |_| panic!("it is worked on"))
            .await
            .unwrap(),
        []
    );
}

async fn whoever_was_active_meanwhile_keeps_the_lock(db: &TestDb) {
    let (store, pull) = (db.store(), open_pull(db.store(), 1).await);
    let seen = [taken(store, &pull, &project("a")).await];
    store
        .lock_warn(&pull, &seen, by(), |_| vec![])
        .await
        .unwrap();
    db.clock.advance(HOUR);
    assert_eq!(
        store
            .lock_renew(&pull, TimeDelta::hours(1), by())
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        store
            .lock_warn(&pull, &seen, by(), |_| panic!("seen too early"))
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        store
            .lock_expire(&pull, &seen, by(), |_| panic!("seen too early"))
            .await
            .unwrap(),
        []
    );
}

async fn an_expired_lock_goes_back_once(db: &TestDb) {
    let (store, pull) = (db.store(), open_pull(db.store(), 1).await);
    let seen = [taken(store, &pull, &project("a")).await];
    store
        .lock_warn(&pull, &seen, by(), |_| vec![])
        .await
        .unwrap();
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (store, pull, seen) = (store.clone(), pull.clone(), seen.clone());
        tries.spawn(async move {
            store
                .lock_expire(&pull, &seen, by(), |_| vec![job("told")])
                .await
                .unwrap()
                .len()
        });
    }
    assert_eq!(tries.join_all().await.into_iter().sum::<usize>(), 1);
    assert_eq!(store.job_list_open().await.unwrap().len(), 1);
}

/// Two queries report it, one for a person who looks at the lock and one for its release. Both agree.
async fn only_of_a_pull_something_applied_waits_to_be_merged(db: &TestDb) {
    let store = db.store();
    for (number, applied) in [(1, true), (-1, false)] {
        let (pull, dir) = (open_pull(store, number).await, format!("dir{number}"));
        let apply = run(store, RunKind::Apply, &pull, &project(&dir)).await;
        store.run_start(apply).await.unwrap();
        assert!(
            store
                .run_finish(apply, ProjectOutcome::Applied, None)
                .await
                .unwrap()
        );
        finish_all(db, &pull).await;
        let seen = [taken(store, &pull, &project(&dir)).await];
        assert_eq!(
            store.lock_use(&seen[0]).await.unwrap().applied,
            applied,
            "{pull}"
        );
        db.clock.advance(HOUR);
        assert_eq!(
            store
                .lock_warn(&pull, &seen, by(), |_| vec![])
                .await
                .unwrap()
                .len(),
            1,
            "{pull}"
        );
        let expired = store
            .lock_expire(&pull, &seen, by(), |_| vec![])
            .await
            .unwrap();
        assert_eq!(
            expired.iter().map(|one| one.applied).collect::<Vec<_>>(),
            [applied],
            "{pull}"
        );
    }
}

async fn finish(db: &TestDb, id: lockkeeper::model::CommandId) {
    let end = FinishedCommand {
        id,
        outcome: CommandOutcome::Success,
        reason: None,
        result: None,
        outbox: Vec::new(),
        comments: 0,
    };
    db.store().command_finish(&end).await.unwrap();
}

async fn finish_all(db: &TestDb, pull: &PullRef) {
    for row in db
        .store()
        .command_list(100)
        .await
        .unwrap()
        .into_iter()
        .filter(|row| row.pull == *pull)
    {
        finish(db, row.id).await;
    }
}
