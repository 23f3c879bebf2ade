//! Tests of plan records (P5).

use std::time::Duration;

use lockkeeper::model::{
    Distribution, LockId, PlanCounts, PlanId, PlanRecord, PlanState, ProjectKey, ProjectOutcome,
    PullState,
};
use lockkeeper::store::{ApplyGate, PlanParts, RecordPlan, TakeLock};

use super::samples::{
    URL, begin_apply, named, new_plan, open_pull, plan_state, planned, project, pull, take, taken,
};
use crate::support::db::{TestDb, by, store_test};
use crate::support::rows;

store_test!(
    a_plan_comes_back_as_it_was_recorded,
    a_newer_plan_replaces_the_older,
    a_plan_recorded_after_the_lock_was_lost_is_not_kept,
    a_plan_is_not_kept_under_the_lock_of_something_else,
    a_plan_of_a_run_that_has_ended_is_not_kept,
    a_plan_does_not_replace_one_that_is_being_applied,
    recording_meets_closing_and_no_plan_is_left,
    plans_are_listed_by_project,
    a_dropped_plan_takes_its_lock_with_it,
    a_dropped_plan_leaves_the_lock_to_its_neighbour,
    dropping_spares_a_plan_that_is_being_applied,
    only_the_projects_of_the_newest_plan_keep_plans_and_locks,
    keeping_only_some_spares_a_plan_that_is_being_applied,
    keeping_only_some_spares_a_lock_that_is_shared,
    discarded_plans_are_forgotten_after_a_time,
);

async fn a_plan_comes_back_as_it_was_recorded(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let lock = taken(db.store(), &one, &named("infra/é", "net~1")).await;
    let full = new_plan(db, &one, &named("infra/é", "net~1")).await;
    let empty = PlanRecord {
        id: PlanId::next(&*db.ids),
        distribution: Distribution::Terraform,
        digest: None,
        counts: PlanCounts::default(),
        state: PlanState::NoChanges,
        ..full.clone()
    };
    let blocked = PlanRecord {
        id: PlanId::next(&*db.ids),
        blocked: Some("the text and the file disagree".to_owned()),
        ..full.clone()
    };
    for plan in [full, empty, blocked] {
        assert_eq!(
            db.store()
                .plan_record(&plan, Some(lock.id), None, &PlanParts::default())
                .await
                .unwrap(),
            RecordPlan::Recorded
        );
        assert_eq!(db.reopen().await.plan_list(&one).await.unwrap(), [plan]);
    }
}

async fn a_newer_plan_replaces_the_older(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let (old, neighbour) = (
        planned(db, &one, &project("a")).await,
        planned(db, &one, &named("a", "x")).await,
    );
    let elsewhere = planned(db, &two, &project("b")).await;
    let new = planned(db, &one, &project("a")).await;
    assert_eq!(plan_state(db, &old).await, PlanState::Discarded);
    assert_eq!(db.store().plan_list(&one).await.unwrap(), [new, neighbour]);
    assert_eq!(db.store().plan_list(&two).await.unwrap(), [elsewhere]);
}

async fn a_plan_recorded_after_the_lock_was_lost_is_not_kept(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let (lock, plan) = (
        taken(db.store(), &one, &project("a")).await,
        new_plan(db, &one, &project("a")).await,
    );
    assert!(
        db.store()
            .lock_release(&one, &project("a"), by())
            .await
            .unwrap()
    );
    assert_eq!(
        db.store()
            .plan_record(&plan, Some(lock.id), None, &PlanParts::default())
            .await
            .unwrap(),
        RecordPlan::LockLost
    );
    let theirs = taken(db.store(), &two, &project("a")).await;
    for id in [lock.id, theirs.id] {
        assert_eq!(
            db.store()
                .plan_record(&plan, Some(id), None, &PlanParts::default())
                .await
                .unwrap(),
            RecordPlan::LockLost
        );
    }
    assert!(
        db.store()
            .lock_release(&two, &project("a"), by())
            .await
            .unwrap()
    );
    taken(db.store(), &one, &project("a")).await;
    assert_eq!(
        db.store()
            .plan_record(&plan, Some(lock.id), None, &PlanParts::default())
            .await
            .unwrap(),
        RecordPlan::LockLost,
        "taken anew since"
    );
    assert_eq!(rows::plan_state(&db.url, plan.id).await, None);
}

async fn a_plan_is_not_kept_under_the_lock_of_something_else(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let staging = ProjectKey {
        workspace: "staging".parse().unwrap(),
        ..project("a")
    };
    let plan = new_plan(db, &one, &project("a")).await;
    for other in [project("b"), staging] {
        let lock = taken(db.store(), &one, &other).await;
        assert_eq!(
            db.store()
                .plan_record(&plan, Some(lock.id), None, &PlanParts::default())
                .await
                .unwrap(),
            RecordPlan::LockLost,
            "{other}"
        );
    }
    assert_eq!(
        db.store()
            .plan_record(
                &plan,
                Some(LockId::next(&*db.ids)),
                None,
                &PlanParts::default()
            )
            .await
            .unwrap(),
        RecordPlan::LockLost
    );
}

/// Another replica took the command over and ended the runs of the first. Later results of the first are not stored,
/// even under the lock that both may use.
async fn a_plan_of_a_run_that_has_ended_is_not_kept(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let lock = taken(db.store(), &one, &project("a")).await;
    let (late, newer) = (
        new_plan(db, &one, &project("a")).await,
        new_plan(db, &one, &project("a")).await,
    );
    assert!(
        db.store()
            .run_finish(late.run, ProjectOutcome::Cancelled, None)
            .await
            .unwrap()
    );
    assert_eq!(
        db.store()
            .plan_record(&newer, Some(lock.id), None, &PlanParts::default())
            .await
            .unwrap(),
        RecordPlan::Recorded
    );
    assert_eq!(
        db.store()
            .plan_record(&late, Some(lock.id), None, &PlanParts::default())
            .await
            .unwrap(),
        RecordPlan::Overtaken
    );
    assert_eq!(db.store().plan_list(&one).await.unwrap(), [newer]);
}

/// The lane of the pull request prevents this. If it happens nevertheless, it is an error and not a second plan.
async fn a_plan_does_not_replace_one_that_is_being_applied(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let running = planned(db, &one, &project("a")).await;
    let ApplyGate::Granted(grant) = begin_apply(db.store(), &running).await else {
        panic!("nothing stops this apply")
    };
    let newer = new_plan(db, &one, &project("a")).await;
    let error = db
        .store()
        .plan_record(
            &newer,
            grant.lock.as_ref().map(|lock| lock.id),
            None,
            &PlanParts::default(),
        )
        .await
        .unwrap_err();
    assert!(
        error.as_database_error().unwrap().is_unique_violation(),
        "{error}"
    );
    assert_eq!(plan_state(db, &running).await, PlanState::Applying);
    assert_eq!(rows::plan_state(&db.url, newer.id).await, None);
}

async fn recording_meets_closing_and_no_plan_is_left(db: &TestDb) {
    let other = db.reopen().await;
    for number in 1..=100 {
        let pull = open_pull(db.store(), number).await;
        let (lock, plan) = (
            taken(db.store(), &pull, &project("a")).await,
            new_plan(db, &pull, &project("a")).await,
        );
        let closing = other.pull_close(&pull, PullState::Closed, URL, by(), |_| vec![]);
        let parts = PlanParts::default();
        let recording = db.store().plan_record(&plan, Some(lock.id), None, &parts);
        let (recorded, closed) = tokio::join!(recording, closing);
        assert_eq!(closed.unwrap(), [lock]);
        let kept = rows::plan_state(&db.url, plan.id).await;
        match recorded.unwrap() {
            RecordPlan::Recorded => assert_eq!(kept, Some(PlanState::Discarded)),
            RecordPlan::LockLost => assert_eq!(kept, None),
            RecordPlan::Overtaken => panic!("nobody ended the run"),
        }
    }
}

/// The order is that of bytes, regardless of the locale of the database.
async fn plans_are_listed_by_project(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let staging = ProjectKey {
        workspace: "staging".parse().unwrap(),
        ..project("a")
    };
    let sorted = [
        project("B"),
        project("a"),
        named("a", "X"),
        named("a", "x"),
        staging,
        project("a-b"),
        project("a/b"),
    ];
    for project in sorted.iter().rev() {
        planned(db, &one, project).await;
    }
    let listed: Vec<_> = db
        .store()
        .plan_list(&one)
        .await
        .unwrap()
        .into_iter()
        .map(|plan| plan.project)
        .collect();
    assert_eq!(listed, sorted);
    assert_eq!(db.store().plan_list(&pull(2)).await.unwrap(), []);
}

async fn a_dropped_plan_takes_its_lock_with_it(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let (plan, other) = (
        planned(db, &one, &project("a")).await,
        planned(db, &one, &project("b")).await,
    );
    db.store()
        .plan_drop(&two, &project("a"), by())
        .await
        .unwrap();
    assert_eq!(
        db.store().lock_list().await.unwrap().len(),
        2,
        "only of its own pull"
    );
    db.store()
        .plan_drop(&one, &project("a"), by())
        .await
        .unwrap();
    assert_eq!(plan_state(db, &plan).await, PlanState::Discarded);
    assert_eq!(plan_state(db, &other).await, PlanState::Planned);
    let left: Vec<_> = db
        .store()
        .lock_list()
        .await
        .unwrap()
        .into_iter()
        .map(|lock| lock.project)
        .collect();
    assert_eq!(left, [project("b")]);
}

async fn a_dropped_plan_leaves_the_lock_to_its_neighbour(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let (x, y) = (
        planned(db, &one, &named("a", "x")).await,
        planned(db, &one, &named("a", "y")).await,
    );
    db.store().plan_drop(&one, &x.project, by()).await.unwrap();
    assert_eq!(
        db.store().plan_list(&one).await.unwrap(),
        std::slice::from_ref(&y)
    );
    assert_eq!(db.store().lock_list().await.unwrap().len(), 1);
    db.store().plan_drop(&one, &y.project, by()).await.unwrap();
    assert_eq!(db.store().lock_list().await.unwrap(), []);
}

async fn dropping_spares_a_plan_that_is_being_applied(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let running = planned(db, &one, &project("a")).await;
    let ApplyGate::Granted(grant) = begin_apply(db.store(), &running).await else {
        panic!("nothing stops this apply")
    };
    db.store()
        .plan_drop(&one, &project("a"), by())
        .await
        .unwrap();
    assert_eq!(plan_state(db, &running).await, PlanState::Applying);
    assert_eq!(db.store().lock_list().await.unwrap(), [grant.lock.unwrap()]);
}

async fn only_the_projects_of_the_newest_plan_keep_plans_and_locks(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    for dir in ["d", "c", "a"] {
        planned(db, &one, &project(dir)).await;
    }
    taken(db.store(), &one, &project("b")).await;
    planned(db, &two, &project("e")).await;
    let gone = db
        .store()
        .plan_keep_only(&one, &[project("c"), project("new")], by())
        .await
        .unwrap();
    assert_eq!(gone, [project("a"), project("b"), project("d")]);
    let (plans, locks) = (
        db.store().plan_list(&one).await.unwrap(),
        db.store().lock_list_of_pull(&one).await.unwrap(),
    );
    assert_eq!(
        plans
            .into_iter()
            .map(|plan| plan.project)
            .collect::<Vec<_>>(),
        [project("c")]
    );
    assert_eq!(
        locks
            .into_iter()
            .map(|lock| lock.project)
            .collect::<Vec<_>>(),
        [project("c")]
    );
    assert_eq!(db.store().lock_list_of_pull(&two).await.unwrap().len(), 1);
    assert_eq!(
        db.store()
            .plan_keep_only(&one, &[project("c")], by())
            .await
            .unwrap(),
        []
    );
}

async fn keeping_only_some_spares_a_plan_that_is_being_applied(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let running = planned(db, &one, &project("a")).await;
    assert!(matches!(
        begin_apply(db.store(), &running).await,
        ApplyGate::Granted(_)
    ));
    db.store().plan_keep_only(&one, &[], by()).await.unwrap();
    assert_eq!(plan_state(db, &running).await, PlanState::Applying);
    assert_eq!(db.store().lock_list().await.unwrap().len(), 1);
}

async fn keeping_only_some_spares_a_lock_that_is_shared(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let old = planned(db, &one, &named("a", "x")).await;
    let gone = db
        .store()
        .plan_keep_only(&one, &[named("a", "y")], by())
        .await
        .unwrap();
    assert_eq!(
        (gone, plan_state(db, &old).await),
        (vec![named("a", "x")], PlanState::Discarded)
    );
    assert!(matches!(
        take(db.store(), &one, &named("a", "y")).await,
        TakeLock::AlreadyOurs(_)
    ));
}

async fn discarded_plans_are_forgotten_after_a_time(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let (old, waiting) = (
        planned(db, &one, &project("a")).await,
        planned(db, &one, &project("b")).await,
    );
    db.clock.advance(Duration::from_micros(1));
    let young = planned(db, &one, &project("c")).await;
    for dir in ["a", "c"] {
        db.store()
            .plan_drop(&one, &project(dir), by())
            .await
            .unwrap();
    }
    assert_eq!(
        db.store().plan_prune(old.created_at, 500).await.unwrap(),
        []
    );
    assert_eq!(
        db.store().plan_prune(young.created_at, 500).await.unwrap(),
        [old.id]
    );
    assert_eq!(rows::plan_state(&db.url, old.id).await, None);
    assert_eq!(plan_state(db, &waiting).await, PlanState::Planned);
    assert_eq!(plan_state(db, &young).await, PlanState::Discarded);
}
