//! Tests of the gate of an apply (P3, P6), and of its end.

use lockkeeper::model::{PlanId, PlanRecord, PlanState, ProjectOutcome, PullState, RunId, RunKind};
use lockkeeper::store::{ApplyGate, PlanParts, RunState, Store, TakeLock};

use super::samples::{
    URL, begin_apply, begin_apply_in, named, new_plan, open_pull, plan_state, planned, project,
    run, steal, take, taken,
};
use crate::support::db::{TestDb, allow_applies, by, stop_applies, store_test};

store_test!(
    a_granted_apply_is_on_record_before_it_starts,
    an_apply_takes_the_lock_that_nobody_holds,
    the_apply_lock_stops_an_apply,
    the_lock_of_another_pull_stops_an_apply,
    a_closed_pull_stops_an_apply,
    only_a_plan_that_waits_is_applied,
    a_plan_whose_apply_failed_may_be_applied_again,
    a_run_that_has_ended_applies_nothing,
    of_many_that_apply_one_plan_at_once_one_is_granted,
    an_apply_that_ended_keeps_its_lock_while_the_pull_is_open,
    an_apply_that_ended_after_the_pull_closed_gives_the_lock_back,
    an_abandoned_apply_discards_its_plan,
    an_abandoned_apply_of_a_closed_pull_gives_the_lock_back,
    apply_begin_meets_close_and_runs_under_a_lock_or_not_at_all,
    apply_begin_meets_release_and_runs_under_a_lock_or_not_at_all,
    apply_end_meets_close_and_no_lock_is_left,
    apply_begin_meets_the_apply_lock_and_one_of_them_is_first,
);

/// Asserts that a refusal left nothing behind: no lock, no mark, no started run.
async fn assert_untouched(db: &TestDb, plan: &PlanRecord, apply: RunId) {
    assert_eq!(db.store().lock_list_of_pull(&plan.pull).await.unwrap(), []);
    assert_eq!(plan_state(db, plan).await, PlanState::Planned);
    assert_eq!(
        db.store().run_get(apply).await.unwrap().unwrap().state,
        RunState::Queued
    );
}

/// Creates a plan whose lock was released (`repo_locks.mode: on_apply`), and a run to apply it.
async fn plan_without_lock(db: &TestDb) -> (PlanRecord, RunId) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    assert!(
        db.store()
            .lock_release(&one, &project("a"), by())
            .await
            .unwrap()
    );
    (
        plan,
        run(db.store(), RunKind::Apply, &one, &project("a")).await,
    )
}

async fn ask(store: &Store, plan: &PlanRecord, run: RunId) -> ApplyGate {
    begin_apply_in(store, plan, run).await.unwrap()
}

async fn a_granted_apply_is_on_record_before_it_starts(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    let apply = run(db.store(), RunKind::Apply, &one, &project("a")).await;
    let ApplyGate::Granted(grant) = ask(db.store(), &plan, apply).await else {
        panic!("nothing stops this apply")
    };
    let other = db.reopen().await;
    assert_eq!(other.lock_list().await.unwrap(), [grant.lock.unwrap()]);
    assert_eq!(plan_state(db, &plan).await, PlanState::Applying);
    let run = other.run_get(apply).await.unwrap().unwrap();
    assert_eq!(
        (run.state, run.started_at),
        (RunState::Running, Some(db.now()))
    );
}

async fn an_apply_takes_the_lock_that_nobody_holds(db: &TestDb) {
    let (plan, apply) = plan_without_lock(db).await;
    let ApplyGate::Granted(grant) = ask(db.store(), &plan, apply).await else {
        panic!("nothing stops this apply")
    };
    assert_eq!(
        grant.lock.as_ref().unwrap().reason,
        "applied by `lockkeeper apply`"
    );
    assert_eq!(db.store().lock_list().await.unwrap(), [grant.lock.unwrap()]);
}

async fn the_apply_lock_stops_an_apply(db: &TestDb) {
    let (plan, apply) = plan_without_lock(db).await;
    let lock = stop_applies(db.store(), "bob", "incident").await;
    let ApplyGate::ApplyLocked(locks) = ask(db.store(), &plan, apply).await else {
        panic!("applies are stopped")
    };
    assert_eq!(locks, [lock]);
    assert_untouched(db, &plan, apply).await;
}

async fn the_lock_of_another_pull_stops_an_apply(db: &TestDb) {
    let (plan, apply) = plan_without_lock(db).await;
    let theirs = taken(db.store(), &open_pull(db.store(), 2).await, &project("a")).await;
    let ApplyGate::HeldBy(lock) = ask(db.store(), &plan, apply).await else {
        panic!("another pull holds the lock")
    };
    assert_eq!(lock, theirs);
    assert_untouched(db, &plan, apply).await;
}

async fn a_closed_pull_stops_an_apply(db: &TestDb) {
    let (plan, apply) = plan_without_lock(db).await;
    db.store()
        .pull_seen(&plan.pull, PullState::Closed, URL)
        .await
        .unwrap();
    assert!(matches!(
        ask(db.store(), &plan, apply).await,
        ApplyGate::PullClosed
    ));
    assert_untouched(db, &plan, apply).await;
}

async fn only_a_plan_that_waits_is_applied(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    for (dir, state) in [
        ("a", PlanState::NoChanges),
        ("b", PlanState::Applied),
        ("c", PlanState::Discarded),
    ] {
        let lock = taken(db.store(), &one, &project(dir)).await;
        let plan = PlanRecord {
            state,
            ..new_plan(db, &one, &project(dir)).await
        };
        let _recorded = db
            .store()
            .plan_record(&plan, Some(lock.id), None, &PlanParts::default())
            .await
            .unwrap();
        assert!(
            db.store()
                .lock_release(&one, &project(dir), by())
                .await
                .unwrap()
        );
        let apply = run(db.store(), RunKind::Apply, &one, &project(dir)).await;
        assert!(
            matches!(ask(db.store(), &plan, apply).await, ApplyGate::PlanGone(now) if now == state),
            "{state}"
        );
        assert_eq!(
            db.store().run_get(apply).await.unwrap().unwrap().state,
            RunState::Queued
        );
    }
    let lock = taken(db.store(), &one, &project("e")).await;
    let blocked = PlanRecord {
        blocked: Some("no list".to_owned()),
        ..new_plan(db, &one, &project("e")).await
    };
    let _recorded = db
        .store()
        .plan_record(&blocked, Some(lock.id), None, &PlanParts::default())
        .await
        .unwrap();
    assert!(matches!(
        begin_apply(db.store(), &blocked).await,
        ApplyGate::PlanGone(PlanState::Planned)
    ));
    assert!(
        db.store()
            .lock_release(&one, &project("e"), by())
            .await
            .unwrap()
    );
    let unknown = PlanRecord {
        id: PlanId::next(&*db.ids),
        ..new_plan(db, &one, &project("d")).await
    };
    assert!(matches!(
        begin_apply(db.store(), &unknown).await,
        ApplyGate::PlanGone(PlanState::Discarded)
    ));
    assert_eq!(
        db.store().lock_list().await.unwrap(),
        [],
        "a refusal takes no lock"
    );
}

async fn a_plan_whose_apply_failed_may_be_applied_again(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    for state in [PlanState::ApplyFailed, PlanState::Applied] {
        let ApplyGate::Granted(grant) = begin_apply(db.store(), &plan).await else {
            panic!("nothing stops this apply")
        };
        db.store()
            .apply_end(grant, &one, state, by())
            .await
            .unwrap();
        assert_eq!(plan_state(db, &plan).await, state);
    }
    assert!(matches!(
        begin_apply(db.store(), &plan).await,
        ApplyGate::PlanGone(PlanState::Applied)
    ));
}

async fn a_run_that_has_ended_applies_nothing(db: &TestDb) {
    let (plan, apply) = plan_without_lock(db).await;
    assert!(
        db.store()
            .run_finish(apply, ProjectOutcome::Cancelled, None)
            .await
            .unwrap()
    );
    for run in [apply, RunId::next(&*db.ids)] {
        begin_apply_in(db.store(), &plan, run).await.unwrap_err();
    }
    assert_eq!(plan_state(db, &plan).await, PlanState::Planned);
    assert_eq!(db.store().lock_list().await.unwrap(), []);
}

async fn of_many_that_apply_one_plan_at_once_one_is_granted(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    for round in 0..10 {
        let plan = planned(db, &one, &project(&round.to_string())).await;
        let stores = [db.store(), &other].into_iter().cycle().take(16);
        let gates = futures::future::join_all(stores.map(|store| begin_apply(store, &plan))).await;
        let refused = |gate: &ApplyGate| matches!(gate, ApplyGate::PlanGone(PlanState::Applying));
        assert_eq!(
            gates.iter().filter(|gate| refused(gate)).count(),
            15,
            "{gates:?}"
        );
        assert_eq!(
            gates
                .iter()
                .filter(|gate| matches!(gate, ApplyGate::Granted(_)))
                .count(),
            1,
            "{gates:?}"
        );
    }
}

async fn an_apply_that_ended_keeps_its_lock_while_the_pull_is_open(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    let ApplyGate::Granted(grant) = begin_apply(db.store(), &plan).await else {
        panic!("nothing stops this apply")
    };
    let lock = grant.lock.clone().unwrap();
    db.store()
        .apply_end(grant, &one, PlanState::Applied, by())
        .await
        .unwrap();
    assert_eq!(db.store().lock_list().await.unwrap(), [lock]);
}

/// A neighbour that was planned under the same lock after the close is discarded as well.
async fn an_apply_that_ended_after_the_pull_closed_gives_the_lock_back(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let (x, y) = (
        planned(db, &one, &named("a", "x")).await,
        new_plan(db, &one, &named("a", "y")).await,
    );
    let ApplyGate::Granted(grant) = begin_apply(db.store(), &x).await else {
        panic!("nothing stops this apply")
    };
    assert_eq!(
        db.store()
            .pull_close(&one, PullState::Merged, URL, by(), |_| vec![])
            .await
            .unwrap(),
        []
    );
    let _recorded = db
        .store()
        .plan_record(
            &y,
            grant.lock.as_ref().map(|lock| lock.id),
            None,
            &PlanParts::default(),
        )
        .await
        .unwrap();
    db.store()
        .apply_end(grant, &one, PlanState::Applied, by())
        .await
        .unwrap();
    assert_eq!(db.store().lock_list().await.unwrap(), []);
    assert_eq!(db.store().plan_list(&one).await.unwrap(), []);
}

async fn an_abandoned_apply_discards_its_plan(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let (cut_off, waiting) = (
        planned(db, &one, &project("a")).await,
        planned(db, &one, &project("b")).await,
    );
    let apply = run(db.store(), RunKind::Apply, &one, &project("a")).await;
    let other = run(db.store(), RunKind::Apply, &one, &project("b")).await;
    assert!(matches!(
        ask(db.store(), &cut_off, apply).await,
        ApplyGate::Granted(_)
    ));
    db.store().apply_abandon(&one, other, by()).await.unwrap();
    assert_eq!(plan_state(db, &cut_off).await, PlanState::Applying);
    db.reopen()
        .await
        .apply_abandon(&one, apply, by())
        .await
        .unwrap();
    assert_eq!(plan_state(db, &cut_off).await, PlanState::Discarded);
    assert_eq!(plan_state(db, &waiting).await, PlanState::Planned);
    assert_eq!(db.store().lock_list().await.unwrap().len(), 2);
    assert!(matches!(
        begin_apply(db.store(), &cut_off).await,
        ApplyGate::PlanGone(PlanState::Discarded)
    ));
}

async fn an_abandoned_apply_of_a_closed_pull_gives_the_lock_back(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    let apply = run(db.store(), RunKind::Apply, &one, &project("a")).await;
    assert!(matches!(
        ask(db.store(), &plan, apply).await,
        ApplyGate::Granted(_)
    ));
    assert_eq!(
        db.store()
            .pull_close(&one, PullState::Closed, URL, by(), |_| vec![])
            .await
            .unwrap(),
        []
    );
    db.store().apply_abandon(&one, apply, by()).await.unwrap();
    assert_eq!(db.store().lock_list().await.unwrap(), []);
    assert_eq!(plan_state(db, &plan).await, PlanState::Discarded);
}

const MEETINGS: i64 = 100;

async fn apply_begin_meets_close_and_runs_under_a_lock_or_not_at_all(db: &TestDb) {
    let other = db.reopen().await;
    for number in 1..=MEETINGS {
        let pull = open_pull(db.store(), number).await;
        let plan = planned(db, &pull, &project(&number.to_string())).await;
        let apply = run(db.store(), RunKind::Apply, &pull, &plan.project).await;
        let closing = other.pull_close(&pull, PullState::Merged, URL, by(), |_| vec![]);
        let (gate, closed) = tokio::join!(ask(db.store(), &plan, apply), closing);
        closed.unwrap();
        let (locks, state) = (
            db.store().lock_list_of_pull(&pull).await.unwrap(),
            plan_state(db, &plan).await,
        );
        match gate {
            ApplyGate::Granted(grant) => {
                assert_eq!(
                    (locks.as_slice(), state),
                    (
                        [grant.lock.clone().unwrap()].as_slice(),
                        PlanState::Applying
                    )
                );
                db.store()
                    .apply_end(grant, &pull, PlanState::Applied, by())
                    .await
                    .unwrap();
                assert_eq!(db.store().lock_list_of_pull(&pull).await.unwrap(), []);
            }
            ApplyGate::PullClosed => assert_eq!((locks, state), (vec![], PlanState::Discarded)),
            other @ (ApplyGate::ApplyLocked(_)
            | ApplyGate::HeldBy(_)
            | ApplyGate::PlanGone(_)
            | ApplyGate::ModuleTakenDown
            | ApplyGate::PoliciesUnmet(_)) => {
                panic!("{other:?}")
            }
        }
    }
}

/// Every way to release a lock races with an apply on another replica, while a pull request is queued for the lock.
async fn apply_begin_meets_release_and_runs_under_a_lock_or_not_at_all(db: &TestDb) {
    let other = db.reopen().await;
    for number in 1..=MEETINGS {
        let (ours, waiting) = (
            open_pull(db.store(), number).await,
            open_pull(db.store(), MEETINGS + number).await,
        );
        let plan = planned(db, &ours, &project(&number.to_string())).await;
        let lock = db.store().lock_list_of_pull(&ours).await.unwrap().remove(0);
        let apply = run(db.store(), RunKind::Apply, &ours, &plan.project).await;
        let release = async {
            match number % 4 {
                0 => drop(
                    other
                        .lock_release(&ours, &plan.project, by())
                        .await
                        .unwrap(),
                ),
                1 => drop(other.lock_release_all(&ours, by()).await.unwrap()),
                2 => drop(steal(&other, lock.id).await),
                _ => other.plan_drop(&ours, &plan.project, by()).await.unwrap(),
            }
            take(&other, &waiting, &plan.project).await
        };
        let (gate, took) = tokio::join!(ask(db.store(), &plan, apply), release);
        let holder = db.store().lock_list_of_pull(&ours).await.unwrap();
        match gate {
            ApplyGate::Granted(grant) => {
                assert_eq!(
                    (holder, took),
                    (
                        vec![grant.lock.clone().unwrap()],
                        TakeLock::HeldBy(grant.lock.unwrap())
                    )
                );
            }
            ApplyGate::HeldBy(_) | ApplyGate::PlanGone(_) => {
                assert!(matches!(took, TakeLock::Taken(_)) && holder.is_empty());
            }
            other @ (ApplyGate::ApplyLocked(_)
            | ApplyGate::PullClosed
            | ApplyGate::ModuleTakenDown
            | ApplyGate::PoliciesUnmet(_)) => panic!("{other:?}"),
        }
    }
}

async fn apply_end_meets_close_and_no_lock_is_left(db: &TestDb) {
    let other = db.reopen().await;
    for number in 1..=MEETINGS {
        let pull = open_pull(db.store(), number).await;
        let plan = planned(db, &pull, &project(&number.to_string())).await;
        let ApplyGate::Granted(grant) = begin_apply(db.store(), &plan).await else {
            panic!("nothing stops this apply")
        };
        let closing = other.pull_close(&pull, PullState::Merged, URL, by(), |_| vec![]);
        let (ended, closed) = tokio::join!(
            db.store().apply_end(grant, &pull, PlanState::Applied, by()),
            closing
        );
        ended.unwrap();
        closed.unwrap();
        assert_eq!(db.store().lock_list().await.unwrap(), []);
        assert_eq!(plan_state(db, &plan).await, PlanState::Discarded);
    }
}

async fn apply_begin_meets_the_apply_lock_and_one_of_them_is_first(db: &TestDb) {
    let (one, other) = (open_pull(db.store(), 1).await, db.reopen().await);
    for number in 1..=20 {
        let plan = planned(db, &one, &project(&number.to_string())).await;
        let (gate, set) = tokio::join!(
            begin_apply(db.store(), &plan),
            stop_applies(&other, "bob", "incident")
        );
        assert_eq!(set.holder.login, "bob");
        let expected = match gate {
            ApplyGate::Granted(_) => PlanState::Applying,
            ApplyGate::ApplyLocked(_) => PlanState::Planned,
            other @ (ApplyGate::HeldBy(_)
            | ApplyGate::PullClosed
            | ApplyGate::PlanGone(_)
            | ApplyGate::ModuleTakenDown
            | ApplyGate::PoliciesUnmet(_)) => {
                panic!("{other:?}")
            }
        };
        assert_eq!(plan_state(db, &plan).await, expected);
        assert!(allow_applies(db.store()).await);
    }
}
