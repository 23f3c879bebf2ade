//! Tests that a replica that lost its lease can write nothing.

use std::time::Duration;

use chrono::TimeDelta;
use lockkeeper::model::{
    CommandKind, CommandOutcome, LockKey, PlanRecord, PlanState, ProjectOutcome, PullState, RunId,
    RunKind,
};
use lockkeeper::store::{
    ApplyGate, DatabaseUrl, FinishedCommand, JobClaim, JobFinish, JobLease, LeaseLost, LockAttempt,
    NewRun, OutputPiece, PlanParts, RecordPlan, RunState, Store,
};
use sqlx::Connection;
use tokio_util::sync::CancellationToken;

use super::samples::{
    URL, begin_apply, begin_apply_in, command, job, new_command, new_plan, open_pull, plan_state,
    planned, project, run, taken,
};
use crate::support::db::{TestDb, by, store_test};
use crate::support::rows;

store_test!(
    under_a_lease_that_is_held_everything_is_written,
    under_a_lease_that_was_lost_nothing_is_written,
    an_apply_that_lost_its_lease_on_the_way_ends_nothing,
    an_apply_does_not_begin_on_a_lease_that_has_ended_by_time,
    the_first_refusal_tells_the_work_to_stop,
    the_last_change_of_a_job_ends_it,
    the_last_change_of_a_job_that_was_lost_is_not_made,
    a_replica_that_is_paused_in_the_middle_of_a_write_keeps_nobody_waiting,
);

const LEASE: TimeDelta = TimeDelta::seconds(45);

/// Claims a job. Returns a store that writes under the job's lease.
async fn under(db: &TestDb) -> (Store, JobLease, CancellationToken) {
    db.store().job_push(&job("the work")).await.unwrap();
    let lease = db
        .store()
        .job_claim(&JobClaim::any("a", db.now() + LEASE))
        .await
        .unwrap()
        .expect("a job may run");
    let lost = CancellationToken::new();
    (db.store().under(&lease, lost.clone()), lease, lost)
}

/// Pauses the holder for longer than its lease lasts, so that another replica takes the job.
async fn take_over(db: &TestDb) {
    db.clock.advance(Duration::from_secs(46));
    assert_eq!(db.store().job_requeue_orphans(db.now()).await.unwrap(), 1);
    db.store()
        .job_claim(&JobClaim {
            only: "work",
            ..JobClaim::any("b", db.now() + LEASE)
        })
        .await
        .unwrap()
        .expect("the job is free");
}

#[track_caller]
fn is_lost<T: std::fmt::Debug>(result: Result<T, sqlx::Error>) {
    let error = result.expect_err("the lease was lost");
    assert!(LeaseLost::is_cause_of(&error), "{error:?}");
}

fn piece() -> OutputPiece {
    OutputPiece {
        seq: 1,
        text: "late\n".to_owned(),
    }
}

fn end(id: lockkeeper::model::CommandId) -> FinishedCommand {
    FinishedCommand {
        id,
        outcome: CommandOutcome::Success,
        reason: None,
        result: None,
        outbox: vec![job("comments")],
        comments: 0,
    }
}

async fn under_a_lease_that_is_held_everything_is_written(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = new_plan(db, &one, &project("a")).await;
    let (store, _lease, lost) = under(db).await;
    store.lease_check().await.unwrap();
    let lock = taken(&store, &one, &project("a")).await;
    store.run_start(plan.run).await.unwrap();
    store.run_output_append(plan.run, &piece()).await.unwrap();
    assert_eq!(
        store
            .plan_record(&plan, Some(lock.id), Some(b"plan"), &PlanParts::default())
            .await
            .unwrap(),
        RecordPlan::Recorded
    );
    assert!(
        store
            .run_finish(plan.run, ProjectOutcome::Planned, None)
            .await
            .unwrap()
    );
    let ApplyGate::Granted(grant) = begin_apply(&store, &plan).await else {
        panic!("nothing stops this apply")
    };
    store
        .apply_end(grant, &one, PlanState::Applied, by())
        .await
        .unwrap();
    let command = command(&store, CommandKind::Plan, &one).await;
    store.command_start(command, None, &[]).await.unwrap();
    assert!(store.command_finish(&end(command)).await.unwrap());
    assert!(!lost.is_cancelled());
}

/// The test tries every write of a command.
async fn under_a_lease_that_was_lost_nothing_is_written(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let (kept, late) = (
        planned(db, &one, &project("a")).await,
        new_plan(db, &one, &project("b")).await,
    );
    let lock = taken(db.store(), &one, &project("b")).await;
    let apply = run(db.store(), RunKind::Apply, &one, &project("a")).await;
    let asked = command(db.store(), CommandKind::Plan, &one).await;
    let (store, _lease, _lost) = under(db).await;
    take_over(db).await;
    let before = db.store().job_list_open().await.unwrap().len();

    is_lost(store.lease_check().await);
    is_lost(store.command_start(asked, None, &[job("status")]).await);
    let wanted = project("c");
    let key = LockKey::of(&one.repo, &wanted);
    let attempt = LockAttempt {
        key: &key,
        project: &wanted,
        pull: &one,
        pull_url: URL,
        cause: by(),
    };
    is_lost(store.lock_take(&attempt).await);
    let new = NewRun {
        command: asked,
        kind: RunKind::Plan,
        pull: one.clone(),
        project: project("b"),
    };
    is_lost(store.run_create(&new).await);
    is_lost(store.run_start(late.run).await);
    is_lost(store.run_output_append(late.run, &piece()).await);
    is_lost(
        store
            .plan_record(&late, Some(lock.id), Some(b"plan"), &PlanParts::default())
            .await,
    );
    is_lost(
        store
            .run_finish(late.run, ProjectOutcome::Planned, None)
            .await,
    );
    is_lost(store.plan_drop(&one, &project("a"), by()).await);
    is_lost(store.plan_keep_only(&one, &[], by()).await);
    is_lost(begin_apply_in(&store, &kept, apply).await);
    is_lost(store.apply_abandon(&one, apply, by()).await);
    is_lost(store.lock_release_all(&one, by()).await);
    is_lost(store.pull_seen(&one, PullState::Closed, URL).await);
    is_lost(store.job_push(&job("status")).await);
    is_lost(store.command_finish(&end(asked)).await);
    is_lost(
        store
            .command_create(&new_command(CommandKind::Plan, &one), |_| {
                vec![job("command")]
            })
            .await,
    );

    assert_untouched(db, &kept, &late, apply).await;
    assert_eq!(db.store().job_list_open().await.unwrap().len(), before);
    assert_eq!(
        db.store()
            .command_list(10)
            .await
            .unwrap()
            .iter()
            .filter(|row| row.id == asked)
            .count(),
        1
    );
    assert_eq!(
        db.store()
            .command_get(asked)
            .await
            .unwrap()
            .unwrap()
            .state
            .to_string(),
        "queued"
    );
}

async fn assert_untouched(db: &TestDb, kept: &PlanRecord, late: &PlanRecord, apply: RunId) {
    assert_eq!(plan_state(db, kept).await, PlanState::Planned);
    assert!(rows::plan_state(&db.url, late.id).await.is_none());
    assert_eq!(db.store().plan_file_get(late.id).await.unwrap(), None);
    assert_eq!(db.store().run_output(late.run).await.unwrap(), "");
    for run in [late.run, apply] {
        assert_eq!(
            db.store().run_get(run).await.unwrap().unwrap().state,
            RunState::Queued
        );
    }
    assert_eq!(db.store().lock_list().await.unwrap().len(), 2);
    assert_eq!(
        db.store().pull_state(&kept.pull).await.unwrap(),
        Some(PullState::Open)
    );
}

async fn an_apply_that_lost_its_lease_on_the_way_ends_nothing(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    let apply = run(db.store(), RunKind::Apply, &one, &project("a")).await;
    let (store, ..) = under(db).await;
    let gate = begin_apply_in(&store, &plan, apply).await.unwrap();
    let ApplyGate::Granted(grant) = gate else {
        panic!("nothing stops this apply")
    };
    take_over(db).await;
    db.store().apply_abandon(&one, apply, by()).await.unwrap();
    is_lost(store.apply_end(grant, &one, PlanState::Applied, by()).await);
    is_lost(store.run_finish(apply, ProjectOutcome::Applied, None).await);
    assert_eq!(
        plan_state(db, &plan).await,
        PlanState::Discarded,
        "as the other replica has told the pull"
    );
}

/// No replica has taken the job over yet, but one may at any moment.
async fn an_apply_does_not_begin_on_a_lease_that_has_ended_by_time(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    let apply = run(db.store(), RunKind::Apply, &one, &project("a")).await;
    let (store, ..) = under(db).await;
    db.clock.advance(Duration::from_secs(45));
    store.run_output_append(apply, &piece()).await.unwrap();
    is_lost(begin_apply_in(&store, &plan, apply).await);
    assert_eq!(plan_state(db, &plan).await, PlanState::Planned);
    assert_eq!(
        db.store().run_get(apply).await.unwrap().unwrap().started_at,
        None
    );
}

async fn the_first_refusal_tells_the_work_to_stop(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let run = run(db.store(), RunKind::Plan, &one, &project("a")).await;
    let (store, _lease, lost) = under(db).await;
    taken(&store, &one, &project("a")).await;
    take_over(db).await;
    assert!(!lost.is_cancelled());
    is_lost(store.run_output_append(run, &piece()).await);
    assert!(lost.is_cancelled());
}

/// Returns true if the job has not ended.
async fn is_open(db: &TestDb, lease: &JobLease) -> bool {
    let open = db.store().job_list_open().await.unwrap();
    open.iter().any(|job| job.id == lease.id)
}

async fn the_last_change_of_a_job_ends_it(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let run = run(db.store(), RunKind::Plan, &one, &project("a")).await;
    let (store, lease, _lost) = under(db).await;
    assert_eq!(
        (is_open(db, &lease).await, lease.has_ended()),
        (true, false)
    );
    let last = store.last_of_job();
    last.run_output_append(run, &piece()).await.unwrap();
    assert_eq!(
        (is_open(db, &lease).await, lease.has_ended()),
        (false, true)
    );
    assert_eq!(db.store().run_output(run).await.unwrap(), "late\n");
    assert_eq!(
        db.store().job_finish(&lease).await.unwrap(),
        JobFinish::Recorded
    );
    is_lost(store.run_start(run).await);
}

async fn the_last_change_of_a_job_that_was_lost_is_not_made(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let run = run(db.store(), RunKind::Plan, &one, &project("a")).await;
    let (store, lease, _lost) = under(db).await;
    take_over(db).await;
    is_lost(store.last_of_job().run_output_append(run, &piece()).await);
    assert_eq!(
        (is_open(db, &lease).await, lease.has_ended()),
        (true, false)
    );
    assert_eq!(db.store().run_output(run).await.unwrap(), "");
}

/// The transaction of the paused replica locks the row of the job. The others go on, and take that job as soon as the
/// database has rolled the transaction back.
async fn a_replica_that_is_paused_in_the_middle_of_a_write_keeps_nobody_waiting(db: &TestDb) {
    let DatabaseUrl::Postgres(options) = &db.url else {
        return take_over_on_sqlite(db).await;
    };
    let (_store, lease, _lost) = under(db).await;
    db.store().job_push(&job("other")).await.unwrap();
    db.store()
        .job_claim(&JobClaim::any("a", db.now() + LEASE))
        .await
        .unwrap()
        .expect("a job may run");
    let mut paused = sqlx_postgres::PgConnection::connect_with(options)
        .await
        .unwrap();
    let mut tx = paused.begin().await.unwrap();
    let hold = sqlx::query("SELECT 1 FROM jobs WHERE id = $1 FOR SHARE").bind(lease.id.to_string());
    hold.execute(&mut *tx).await.unwrap();
    db.clock.advance(Duration::from_secs(46));
    assert_eq!(
        db.store().job_requeue_orphans(db.now()).await.unwrap(),
        1,
        "the other one"
    );
    tx.rollback().await.unwrap();
    assert_eq!(db.store().job_requeue_orphans(db.now()).await.unwrap(), 1);
}

/// Covers SQLite, which has one server, so that no other server has to wait.
async fn take_over_on_sqlite(db: &TestDb) {
    let (store, ..) = under(db).await;
    take_over(db).await;
    is_lost(store.lease_check().await);
}
