//! Tests of retention: the rows that are removed when they are old, and those that never are.

use std::time::Duration;

use lockkeeper::features::planning::WrittenConfig;
use lockkeeper::model::{
    CommandId, CommandKind, CommandOutcome, CommitSha, ProjectOutcome, PullRef, PullState, RunId,
    RunKind,
};
use lockkeeper::store::{FinishedCommand, NewRun, OutputPiece};

use super::samples::{URL, begin_apply, command, open_pull, planned, project, pull};
use crate::support::db::{TestDb, by, store_test};
use crate::support::rows::deliveries;

store_test!(
    a_command_goes_with_its_runs_and_what_they_printed,
    output_is_removed_in_pieces,
    what_has_not_ended_or_is_young_stays,
    the_run_of_a_plan_stays_as_long_as_the_plan_is_on_record,
    what_the_plans_of_a_pull_need_stays_until_the_pull_is_closed,
    old_rows_go_a_batch_at_a_time,
);

async fn finish(db: &TestDb, id: CommandId) {
    let end = FinishedCommand {
        id,
        outcome: CommandOutcome::Success,
        reason: None,
        result: None,
        outbox: Vec::new(),
        comments: 0,
    };
    assert!(db.store().command_finish(&end).await.unwrap());
}

/// Creates a finished command, with a run that printed this many pieces.
async fn ended(
    db: &TestDb,
    kind: CommandKind,
    at: &PullRef,
    head: Option<&CommitSha>,
    pieces: i64,
) -> (CommandId, RunId) {
    let id = command(db.store(), kind, at).await;
    db.store().command_start(id, head, &[]).await.unwrap();
    let new = NewRun {
        command: id,
        kind: RunKind::Plan,
        pull: at.clone(),
        project: project("a"),
    };
    let run = db.store().run_create(&new).await.unwrap();
    for seq in 1..=pieces {
        db.store()
            .run_output_append(
                run,
                &OutputPiece {
                    seq,
                    text: format!("{seq}\n"),
                },
            )
            .await
            .unwrap();
    }
    assert!(
        db.store()
            .run_finish(run, ProjectOutcome::Planned, None)
            .await
            .unwrap()
    );
    finish(db, id).await;
    (id, run)
}

async fn over(db: &TestDb) -> Vec<CommandId> {
    db.store().command_list_over(db.now(), 100).await.unwrap()
}

fn later(db: &TestDb) {
    db.clock.advance(Duration::from_secs(1));
}

async fn a_command_goes_with_its_runs_and_what_they_printed(db: &TestDb) {
    let (gone, run) = ended(db, CommandKind::Plan, &pull(1), None, 2).await;
    later(db);
    let (stays, other) = ended(db, CommandKind::Plan, &pull(1), None, 2).await;
    assert_eq!(
        over(db).await,
        [gone],
        "one that ends now is not older than now"
    );
    db.store()
        .command_config_keep(gone, &WrittenConfig(None))
        .await
        .unwrap();
    assert_eq!(
        db.store()
            .command_remove(gone, db.now(), 100)
            .await
            .unwrap(),
        4,
        "two pieces, a run, a command"
    );
    assert_eq!(db.store().command_config(gone).await.unwrap(), None);
    assert!(db.store().command_get(gone).await.unwrap().is_none());
    assert!(db.store().run_get(run).await.unwrap().is_none());
    assert_eq!(db.store().run_output(run).await.unwrap(), "");
    assert!(db.store().command_get(stays).await.unwrap().is_some());
    assert_eq!(db.store().run_output(other).await.unwrap(), "1\n2\n");
    assert_eq!(
        db.store()
            .command_remove(gone, db.now(), 100)
            .await
            .unwrap(),
        0
    );
}

async fn output_is_removed_in_pieces(db: &TestDb) {
    for (pieces, batch) in [(5, 2), (4, 2), (0, 2)] {
        let (id, _) = ended(db, CommandKind::Plan, &pull(1), None, pieces).await;
        later(db);
        let removed = db
            .store()
            .command_remove(id, db.now(), batch)
            .await
            .unwrap();
        assert_eq!(removed, pieces.cast_unsigned() + 2);
    }
}

async fn what_has_not_ended_or_is_young_stays(db: &TestDb) {
    let waiting = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let running = command(db.store(), CommandKind::Apply, &pull(1)).await;
    db.store().command_start(running, None, &[]).await.unwrap();
    let late = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let (old, _) = ended(db, CommandKind::Plan, &pull(1), None, 0).await;
    later(db);
    finish(db, late).await;
    assert_eq!(
        over(db).await,
        [old],
        "what was asked for long ago may have ended a moment ago"
    );
    for id in [waiting, running, late] {
        assert_eq!(
            db.store().command_remove(id, db.now(), 10).await.unwrap(),
            0
        );
        assert!(db.store().command_get(id).await.unwrap().is_some());
    }
}

async fn the_run_of_a_plan_stays_as_long_as_the_plan_is_on_record(db: &TestDb) {
    let one = open_pull(db.store(), 1).await;
    let plan = planned(db, &one, &project("a")).await;
    let made = db.store().run_get(plan.run).await.unwrap().unwrap().command;
    finish(db, made).await;
    later(db);
    assert_eq!(over(db).await, []);
    db.store()
        .pull_close(&one, PullState::Merged, URL, by(), |_| vec![])
        .await
        .unwrap();
    assert_eq!(over(db).await, [], "the record names the run");
    assert_eq!(
        db.store().plan_prune(db.now(), 10).await.unwrap(),
        [plan.id]
    );
    assert_eq!(over(db).await, [made]);
    assert_eq!(
        db.store().command_remove(made, db.now(), 10).await.unwrap(),
        2
    );
}

async fn what_the_plans_of_a_pull_need_stays_until_the_pull_is_closed(db: &TestDb) {
    let (one, two) = (
        open_pull(db.store(), 1).await,
        open_pull(db.store(), 2).await,
    );
    let plan = planned(db, &one, &project("a")).await;
    let _gate = begin_apply(db.store(), &plan).await;
    let elsewhere: CommitSha = "c3".repeat(20).parse().unwrap();
    let (apply, _) = ended(db, CommandKind::Apply, &one, Some(&elsewhere), 0).await;
    let (same_head, _) = ended(db, CommandKind::Plan, &one, Some(&plan.head), 0).await;
    let (old_head, _) = ended(db, CommandKind::Plan, &one, Some(&elsewhere), 0).await;
    let (other_pull, _) = ended(db, CommandKind::Apply, &two, Some(&plan.head), 0).await;
    later(db);
    assert_eq!(over(db).await, [old_head, other_pull]);
    db.store().plan_discard(&one, &project("a")).await.unwrap();
    assert_eq!(
        over(db).await.len(),
        2,
        "a plan that is being applied is not discarded"
    );
    for id in [apply, same_head] {
        assert_eq!(
            db.store().command_remove(id, db.now(), 10).await.unwrap(),
            0
        );
    }
}

async fn old_rows_go_a_batch_at_a_time(db: &TestDb) {
    for n in 0..5 {
        let new = lockkeeper::store::NewDelivery {
            host: "github.com".parse().unwrap(),
            forge_delivery: n.to_string(),
            event: "push".to_owned(),
            content_type: "application/json".to_owned(),
            body: Vec::new(),
        };
        let _new = db.store().delivery_ignore(&new, "a push").await.unwrap();
        later(db);
    }
    assert_eq!(db.store().delivery_prune(db.now(), 2).await.unwrap(), 2);
    let left = deliveries(&db.url).await;
    assert_eq!(
        left.iter()
            .map(|d| d.forge_delivery.as_str())
            .collect::<Vec<_>>(),
        ["4", "3", "2"],
        "the oldest first"
    );
    assert_eq!(db.store().delivery_prune(db.now(), 2).await.unwrap(), 2);
    assert_eq!(db.store().delivery_prune(db.now(), 2).await.unwrap(), 1);
}
