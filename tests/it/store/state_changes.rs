//! Tests of the gate of `import` and `state rm` (P3, P6), and of their end.

use lockkeeper::model::{
    Actor, Cause, LockKey, PlanState, ProjectKey, ProjectOutcome, PullRef, PullState, RunId,
    RunKind,
};
use lockkeeper::store::{LockAttempt, RunState, StateChanged, StateGate, Store};

use super::samples::{URL, open_pull, plan_state, planned, project, run, steal, taken};
use crate::support::db::{TestDb, by, stop_applies, store_test};

store_test!(
    a_granted_change_is_on_record_before_it_starts_and_has_the_lock,
    a_refused_change_leaves_nothing_behind,
    a_lock_stays_as_long_as_a_state_is_changed_under_it,
    a_change_discards_the_plan_only_if_the_state_may_be_another_one,
    a_lock_that_was_taken_for_nothing_goes_back,
    a_change_that_ended_after_the_pull_closed_gives_the_lock_back,
    a_change_ends_once,
);

async fn ask(store: &Store, pull: &PullRef, project: &ProjectKey, run: RunId) -> StateGate {
    let (key, cause) = (
        LockKey::of(&pull.repo, project),
        Cause::new(Actor::commenter("ada"), "imported by comment"),
    );
    let attempt = LockAttempt {
        key: &key,
        project,
        pull,
        pull_url: URL,
        cause: &cause,
    };
    store
        .state_change_begin(pull, project, run, Some(&attempt))
        .await
        .unwrap()
}

/// Creates a pull request with a running import, which has taken the lock.
async fn importing(db: &TestDb) -> (PullRef, RunId) {
    let one = open_pull(db.store(), 1).await;
    let import = run(db.store(), RunKind::Import, &one, &project("a")).await;
    let gate = ask(db.store(), &one, &project("a"), import).await;
    assert!(
        matches!(gate, StateGate::Granted { fresh_lock: true }),
        "{gate:?}"
    );
    (one, import)
}

async fn end(store: &Store, pull: &PullRef, run: RunId, touched: bool, release_lock: bool) -> bool {
    let outcome = if touched {
        ProjectOutcome::Imported
    } else {
        ProjectOutcome::Failed
    };
    let end = StateChanged {
        outcome,
        message: Some("it ended"),
        touched,
        release_lock,
    };
    store
        .state_change_end(pull, &project("a"), run, &end, by())
        .await
        .unwrap()
}

async fn a_granted_change_is_on_record_before_it_starts_and_has_the_lock(db: &TestDb) {
    let (one, import) = importing(db).await;
    let other = db.reopen().await;
    let locks = other.lock_list_of_pull(&one).await.unwrap();
    assert_eq!(
        locks
            .iter()
            .map(|lock| lock.reason.as_str())
            .collect::<Vec<_>>(),
        ["imported by comment"]
    );
    let row = other.run_get(import).await.unwrap().unwrap();
    assert_eq!(
        (row.state, row.started_at),
        (RunState::Running, Some(db.now()))
    );
    // The next operation finds that the pull request already has the lock.
    assert!(end(&other, &one, import, true, false).await);
    let again = run(&other, RunKind::StateRm, &one, &project("a")).await;
    let gate = ask(&other, &one, &project("a"), again).await;
    assert!(
        matches!(gate, StateGate::Granted { fresh_lock: false }),
        "{gate:?}"
    );
}

async fn a_refused_change_leaves_nothing_behind(db: &TestDb) {
    let (store, one, two) = (
        db.store(),
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let held = taken(store, &two, &project("b")).await;
    let import = run(store, RunKind::Import, &one, &project("b")).await;
    assert!(
        matches!(ask(store, &one, &project("b"), import).await, StateGate::HeldBy(lock) if *lock == held)
    );
    let elsewhere = run(store, RunKind::Import, &one, &project("a")).await;
    store.pull_seen(&one, PullState::Closed, URL).await.unwrap();
    assert!(matches!(
        ask(store, &one, &project("a"), elsewhere).await,
        StateGate::PullClosed
    ));
    let gate = store
        .state_change_begin(&one, &project("a"), elsewhere, None)
        .await
        .unwrap();
    assert!(
        matches!(gate, StateGate::PullClosed),
        "also where locks are switched off: {gate:?}"
    );
    let lock = stop_applies(store, "bob", "incident").await;
    let gate = ask(store, &two, &project("b"), import).await;
    assert!(
        matches!(&gate, StateGate::ApplyLocked(locks) if *locks == [lock]),
        "{gate:?}"
    );
    for id in [import, elsewhere] {
        assert_eq!(
            store.run_get(id).await.unwrap().unwrap().state,
            RunState::Queued
        );
    }
    assert_eq!(store.lock_list().await.unwrap(), [held]);
}

async fn a_lock_stays_as_long_as_a_state_is_changed_under_it(db: &TestDb) {
    let (one, import) = importing(db).await;
    let store = db.store();
    let lock = store.lock_list_of_pull(&one).await.unwrap().remove(0);
    assert!(!store.lock_release(&one, &project("a"), by()).await.unwrap());
    assert_eq!(store.lock_release_all(&one, by()).await.unwrap(), []);
    assert_eq!(steal(store, lock.id).await, None);
    assert!(store.lock_use(&lock).await.unwrap().applying);
    assert!(end(store, &one, import, true, false).await);
    let lock_use = store.lock_use(&lock).await.unwrap();
    assert!(!lock_use.applying && lock_use.applied, "{lock_use:?}");
    assert!(store.lock_release(&one, &project("a"), by()).await.unwrap());
}

async fn a_change_discards_the_plan_only_if_the_state_may_be_another_one(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    for (touched, state) in [(false, PlanState::Planned), (true, PlanState::Discarded)] {
        let import = run(db.store(), RunKind::Import, &one, &project("a")).await;
        let gate = ask(db.store(), &one, &project("a"), import).await;
        assert!(
            matches!(gate, StateGate::Granted { fresh_lock: false }),
            "{gate:?}"
        );
        assert!(end(db.store(), &one, import, touched, false).await);
        assert_eq!(plan_state(db, &plan).await, state);
        assert_eq!(db.store().lock_list_of_pull(&one).await.unwrap().len(), 1);
    }
}

async fn a_lock_that_was_taken_for_nothing_goes_back(db: &TestDb) {
    let (one, import) = importing(db).await;
    assert!(end(db.store(), &one, import, false, true).await);
    assert_eq!(db.store().lock_list_of_pull(&one).await.unwrap(), []);
}

async fn a_change_that_ended_after_the_pull_closed_gives_the_lock_back(db: &TestDb) {
    let (one, import) = importing(db).await;
    assert_eq!(
        db.store()
            .pull_close(&one, PullState::Merged, URL, by(), |_| vec![])
            .await
            .unwrap(),
        []
    );
    assert_eq!(db.store().lock_list_of_pull(&one).await.unwrap().len(), 1);
    assert!(end(db.store(), &one, import, true, false).await);
    assert_eq!(db.store().lock_list_of_pull(&one).await.unwrap(), []);
}

async fn a_change_ends_once(db: &TestDb) {
    let (one, import) = importing(db).await;
    assert!(end(db.store(), &one, import, true, false).await);
    assert!(!end(db.store(), &one, import, false, true).await);
    assert_eq!(
        db.store().lock_list_of_pull(&one).await.unwrap().len(),
        1,
        "the second end changes nothing"
    );
    assert_eq!(
        db.store().run_get(import).await.unwrap().unwrap().outcome,
        Some(ProjectOutcome::Imported)
    );
}
