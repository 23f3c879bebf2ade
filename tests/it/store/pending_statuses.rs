//! Tests of statuses that are pending on the forge, and of those among them that no job will end.

use chrono::TimeDelta;
use futures::future::join_all;
use lockkeeper::clock::CountingIds;
use lockkeeper::model::{CommandId, CommandKind, CommandOutcome, CommitSha};
use lockkeeper::store::{CreateCommand, FinishedCommand, JobClaim, NewJob, PendingStatus};

use super::samples::{job, new_command, pull};
use crate::support::db::{TestDb, store_test};

store_test!(
    a_status_is_left_when_its_command_is_over_and_no_job_will_set_it,
    a_status_that_was_ended_is_not_left,
    of_many_that_mend_a_status_one_does,
    a_status_that_a_newer_command_has_set_is_not_mended_for_the_older,
    old_statuses_are_forgotten,
    a_command_is_lost_when_no_job_names_it,
    the_newest_job_that_was_given_up_is_found,
);

const CONTEXT: &str = "lockkeeper/plan: net%_/default";

fn promise(command: CommandId) -> PendingStatus {
    let head = CommitSha::new(&"a".repeat(40)).unwrap();
    PendingStatus {
        repo: pull(1).repo,
        head,
        context: CONTEXT.to_owned(),
        command,
    }
}

fn lane() -> String {
    let PendingStatus {
        repo,
        head,
        context,
        ..
    } = promise(CommandId::next(&CountingIds::default()));
    format!("status:{repo}@{head}:{context}")
}

async fn command(db: &TestDb, job: Option<fn(CommandId) -> NewJob>) -> CommandId {
    let jobs = |id| job.map(|job| job(id)).into_iter().collect();
    match db
        .store()
        .command_create(&new_command(CommandKind::Plan, &pull(1)), jobs)
        .await
        .unwrap()
    {
        CreateCommand::Created(id) => id,
        CreateCommand::Known => panic!("the command is new"),
    }
}

async fn finish(db: &TestDb, id: CommandId) {
    let end = FinishedCommand {
        id,
        outcome: CommandOutcome::Failure,
        reason: None,
        result: None,
        outbox: Vec::new(),
        comments: 0,
    };
    assert!(db.store().command_finish(&end).await.unwrap());
}

async fn left(db: &TestDb) -> Vec<PendingStatus> {
    db.reopen().await.status_list_left(10).await.unwrap()
}

async fn a_status_is_left_when_its_command_is_over_and_no_job_will_set_it(db: &TestDb) {
    let id = command(db, None).await;
    let status = promise(id);
    db.store().status_promise(&status).await.unwrap();
    assert_eq!(left(db).await, [], "its command is under way");
    finish(db, id).await;
    db.store()
        .job_push(&NewJob {
            lane: lane(),
            ..job("set_status")
        })
        .await
        .unwrap();
    assert_eq!(left(db).await, [], "a job will set it");
    let lease = db
        .store()
        .job_claim(&JobClaim {
            most_of_a_share: 9,
            ..JobClaim::any("me", db.now() + TimeDelta::minutes(1))
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(left(db).await, [], "a job is setting it");
    let _ = db.store().job_fail(&lease, "no").await.unwrap();
    assert_eq!(left(db).await, [status]);
}

async fn a_status_that_was_ended_is_not_left(db: &TestDb) {
    let id = command(db, None).await;
    let status = promise(id);
    db.store().status_promise(&status).await.unwrap();
    db.store()
        .status_promise(&PendingStatus {
            context: "other".to_owned(),
            ..status.clone()
        })
        .await
        .unwrap();
    finish(db, id).await;
    db.store()
        .status_settle(&status.repo, &status.head, CONTEXT)
        .await
        .unwrap();
    assert_eq!(
        left(db)
            .await
            .into_iter()
            .map(|left| left.context)
            .collect::<Vec<_>>(),
        ["other"]
    );
}

async fn of_many_that_mend_a_status_one_does(db: &TestDb) {
    let id = command(db, None).await;
    let status = promise(id);
    db.store().status_promise(&status).await.unwrap();
    finish(db, id).await;
    let mend = async || {
        db.reopen()
            .await
            .status_end_abandoned(&status, &job("set_status"))
            .await
            .unwrap()
    };
    assert_eq!(
        join_all((0..8).map(|_| mend()))
            .await
            .into_iter()
            .filter(|mended| *mended)
            .count(),
        1
    );
    assert_eq!(db.store().job_list_open().await.unwrap().len(), 1);
    assert_eq!(left(db).await, []);
}

async fn a_status_that_a_newer_command_has_set_is_not_mended_for_the_older(db: &TestDb) {
    let (older, newer) = (command(db, None).await, command(db, None).await);
    db.store().status_promise(&promise(older)).await.unwrap();
    finish(db, older).await;
    db.store().status_promise(&promise(newer)).await.unwrap();
    assert!(
        !db.store()
            .status_end_abandoned(&promise(older), &job("set_status"))
            .await
            .unwrap()
    );
    assert_eq!(left(db).await, []);
    finish(db, newer).await;
    assert_eq!(left(db).await, [promise(newer)]);
}

async fn old_statuses_are_forgotten(db: &TestDb) {
    let id = command(db, None).await;
    db.store().status_promise(&promise(id)).await.unwrap();
    finish(db, id).await;
    assert_eq!(db.store().status_prune(db.now()).await.unwrap(), 0);
    assert_eq!(
        db.store()
            .status_prune(db.now() + TimeDelta::seconds(1))
            .await
            .unwrap(),
        1
    );
    assert_eq!(left(db).await, []);
}

async fn a_command_is_lost_when_no_job_names_it(db: &TestDb) {
    let named = |id: CommandId| NewJob {
        payload: format!("{{\"command\":\"{id}\"}}"),
        ..job("run_command")
    };
    let (kept, lost, over) = (
        command(db, Some(named)).await,
        command(db, None).await,
        command(db, None).await,
    );
    finish(db, over).await;
    assert_eq!(db.store().command_list_lost(10).await.unwrap(), [lost]);
    let lease = db
        .store()
        .job_claim(&JobClaim {
            most_of_a_share: 9,
            ..JobClaim::any("me", db.now() + TimeDelta::minutes(1))
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        db.store().command_list_lost(10).await.unwrap(),
        [lost],
        "it is being worked on"
    );
    let _ = db.store().job_finish(&lease).await.unwrap();
    assert_eq!(
        db.store().command_list_lost(10).await.unwrap(),
        [kept, lost]
    );
}

async fn the_newest_job_that_was_given_up_is_found(db: &TestDb) {
    for (payload, fails) in [("\"old\"", true), ("\"new\"", true), ("\"done\"", false)] {
        let new = NewJob {
            lane: lane(),
            payload: payload.to_owned(),
            ..job("set_status")
        };
        db.store().job_push(&new).await.unwrap();
        let lease = db
            .store()
            .job_claim(&JobClaim {
                most_of_a_share: 9,
                ..JobClaim::any("me", db.now() + TimeDelta::minutes(1))
            })
            .await
            .unwrap()
            .unwrap();
        let end = if fails {
            db.store().job_fail(&lease, "no").await
        } else {
            db.store().job_finish(&lease).await
        };
        let _ = end.unwrap();
    }
    assert_eq!(
        db.store()
            .job_given_up_in(&lane())
            .await
            .unwrap()
            .as_deref(),
        Some("\"new\"")
    );
    assert_eq!(db.store().job_given_up_in("other").await.unwrap(), None);
}
