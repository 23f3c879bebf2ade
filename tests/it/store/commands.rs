//! Tests of commands on pull requests.

use std::time::Duration;

use chrono::TimeDelta;
use futures::future::join_all;
use lockkeeper::model::{
    Actor, CommandId, CommandKind, CommandOutcome, CommitSha, DeliveryId, Origin,
};
use lockkeeper::store::{
    CancelTarget, CommandState, CreateCommand, FinishedCommand, HeadUpdate, NewCommand, ResultPart,
    ResultTimes, StopKind, StopRequest, Store,
};

use super::samples::{HOSTILE, URL, command, job, new_command, open_pull, project, pull, taken};
use crate::support::db::{TestDb, by, start_of_time, store_test};

store_test!(
    a_command_is_kept_together_with_its_job,
    a_command_keeps_any_text_and_every_kind_and_origin,
    the_same_comment_is_one_command,
    the_same_comment_on_many_connections_at_once_is_one_command,
    commands_without_a_comment_are_all_different,
    a_delivery_that_is_read_again_leads_to_nothing_more,
    a_started_command_has_a_head_and_statuses_to_post,
    a_finished_command_has_an_end_and_its_outbox_in_order,
    finishing_posts_exactly_once,
    a_result_is_shown_once_its_last_comment_is_posted,
    a_command_that_has_ended_does_not_start_again,
    plans_are_asked_to_stop_and_applies_never,
    a_newer_plan_takes_the_place_of_every_older_one_and_of_no_apply,
    what_is_due_before_a_command_works_is_found_at_once,
    what_was_asked_is_asked_of_the_newest_plan,
    what_waits_is_dropped_and_what_runs_is_asked_to_stop,
    one_command_is_cancelled_and_no_other,
    commands_are_listed_newest_first,
    outboxes_of_crossing_lanes_do_not_block_each_other,
);

fn head() -> CommitSha {
    "0123456789abcdef0123456789abcdef01234567".parse().unwrap()
}

fn end(id: CommandId, lanes: &[&str]) -> FinishedCommand {
    let outbox = lanes.iter().map(|lane| job(lane)).collect();
    FinishedCommand {
        id,
        outcome: CommandOutcome::Refused,
        reason: Some("locked".to_owned()),
        result: None,
        outbox,
        comments: 0,
    }
}

async fn lanes(store: &Store) -> Vec<String> {
    store
        .job_list_open()
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.lane)
        .collect()
}

async fn a_command_is_kept_together_with_its_job(db: &TestDb) {
    let id = command(db.store(), CommandKind::Plan, &pull(1)).await;
    assert_eq!(lanes(&db.reopen().await).await, [format!("command {id}")]);
    let kept = db.reopen().await.command_get(id).await.unwrap().unwrap();
    assert_eq!(
        (kept.id, kept.kind, &kept.pull, kept.spec.as_str()),
        (id, CommandKind::Plan, &pull(1), "{}")
    );
    assert_eq!((kept.actor, kept.head), (Actor::commenter("ada"), None));
    assert_eq!(
        (kept.state, kept.outcome, kept.reason, kept.stop),
        (CommandState::Queued, None, None, None)
    );
    assert_eq!((kept.created_at, kept.finished_at), (start_of_time(), None));
    assert!(
        db.store()
            .command_get(CommandId::next(&*db.ids))
            .await
            .unwrap()
            .is_none()
    );
}

async fn a_command_keeps_any_text_and_every_kind_and_origin(db: &TestDb) {
    let spec = format!("{HOSTILE}{}", "x".repeat(1 << 20));
    for (&kind, &origin) in CommandKind::ALL.iter().cycle().zip(Origin::ALL) {
        let actor = Actor::new(HOSTILE, origin);
        let new = NewCommand {
            actor,
            spec: spec.clone(),
            ..new_command(kind, &pull(1))
        };
        let CreateCommand::Created(id) = db
            .store()
            .command_create(&new, |_| vec![job("lane")])
            .await
            .unwrap()
        else {
            panic!("a command without a comment is always new")
        };
        let kept = db.store().command_get(id).await.unwrap().unwrap();
        assert_eq!((kept.kind, kept.actor), (kind, new.actor));
        assert!(kept.spec == spec, "the specification came back changed");
    }
}

async fn the_same_comment_is_one_command(db: &TestDb) {
    let asked = NewCommand {
        comment: Some(u64::MAX.into()),
        ..new_command(CommandKind::Plan, &pull(1))
    };
    let again = NewCommand {
        kind: CommandKind::Apply,
        ..asked.clone()
    };
    assert!(matches!(
        db.store()
            .command_create(&asked, |_| vec![job("a")])
            .await
            .unwrap(),
        CreateCommand::Created(_)
    ));
    let outcome = db
        .store()
        .command_create(&again, |_| vec![job("no job for a known comment")])
        .await
        .unwrap();
    assert_eq!(outcome, CreateCommand::Known);
    assert_eq!(db.store().command_list(10).await.unwrap().len(), 1);
    let elsewhere = NewCommand {
        pull: pull(2),
        ..asked
    };
    assert!(matches!(
        db.store()
            .command_create(&elsewhere, |_| vec![job("b")])
            .await
            .unwrap(),
        CreateCommand::Created(_)
    ));
    assert_eq!(lanes(db.store()).await, ["a", "b"]);
}

async fn the_same_comment_on_many_connections_at_once_is_one_command(db: &TestDb) {
    let other = db.reopen().await;
    for comment in 1..=20 {
        let asked = NewCommand {
            comment: Some(comment.into()),
            ..new_command(CommandKind::Plan, &pull(1))
        };
        let stores = [db.store(), &other].into_iter().cycle().take(16);
        let outcomes =
            join_all(stores.map(|store| store.command_create(&asked, |_| vec![job("lane")]))).await;
        let known = outcomes
            .into_iter()
            .filter(|o| *o.as_ref().unwrap() == CreateCommand::Known)
            .count();
        assert_eq!((known, lanes(db.store()).await.len() as u64), (15, comment));
    }
}

async fn commands_without_a_comment_are_all_different(db: &TestDb) {
    let (a, b) = (
        command(db.store(), CommandKind::Autoplan, &pull(1)).await,
        command(db.store(), CommandKind::Autoplan, &pull(1)).await,
    );
    assert_ne!(a, b);
}

async fn a_delivery_that_is_read_again_leads_to_nothing_more(db: &TestDb) {
    let delivery = Some(DeliveryId::next(&*db.ids));
    let new = NewCommand {
        delivery,
        ..new_command(CommandKind::Autoplan, &pull(1))
    };
    let first = db
        .store()
        .command_create(&new, |_| vec![job("lane")])
        .await
        .unwrap();
    assert!(matches!(first, CreateCommand::Created(_)));
    assert_eq!(
        db.store()
            .command_create(&new, |_| vec![job("lane")])
            .await
            .unwrap(),
        CreateCommand::Known
    );
    assert_eq!(lanes(db.store()).await, ["lane"]);
}

async fn a_started_command_has_a_head_and_statuses_to_post(db: &TestDb) {
    let id = command(db.store(), CommandKind::Plan, &pull(1)).await;
    assert_eq!(db.store().command_count_running().await.unwrap(), 0);
    db.store()
        .command_start(id, Some(&head()), &[job("status 1"), job("status 2")])
        .await
        .unwrap();
    let kept = db.store().command_get(id).await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.head),
        (CommandState::Running, Some(head()))
    );
    assert_eq!(lanes(db.store()).await[1..], ["status 1", "status 2"]);
    assert_eq!(db.store().command_count_running().await.unwrap(), 1);
}

async fn a_finished_command_has_an_end_and_its_outbox_in_order(db: &TestDb) {
    let id = command(db.store(), CommandKind::Plan, &pull(1)).await;
    db.store().command_start(id, None, &[]).await.unwrap();
    db.clock.advance(Duration::from_micros(1));
    let reason = Some(format!("{HOSTILE}\0"));
    assert!(
        db.store()
            .command_finish(&FinishedCommand {
                reason,
                ..end(id, &["z", "a", "z"])
            })
            .await
            .unwrap()
    );
    let kept = db.store().command_get(id).await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.outcome),
        (CommandState::Finished, Some(CommandOutcome::Refused))
    );
    assert_eq!(
        (kept.reason, kept.finished_at),
        (Some(format!("{HOSTILE}\u{fffd}")), Some(db.now()))
    );
    assert_eq!(lanes(db.store()).await[1..], ["z", "a", "z"]);
    assert_eq!(db.store().command_count_running().await.unwrap(), 0);
}

async fn finishing_posts_exactly_once(db: &TestDb) {
    let other = db.reopen().await;
    let id = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let finish = end(id, &["comment"]);
    let stores = [db.store(), &other].into_iter().cycle().take(16);
    let finished = join_all(stores.map(|store| store.command_finish(&finish))).await;
    assert_eq!(
        finished
            .into_iter()
            .filter(|first| *first.as_ref().unwrap())
            .count(),
        1
    );
    assert_eq!(lanes(db.store()).await[1..], ["comment"]);
    assert!(
        !db.store()
            .command_finish(&end(CommandId::next(&*db.ids), &["comment"]))
            .await
            .unwrap()
    );
    assert_eq!(lanes(db.store()).await.len(), 2);
}

async fn a_result_is_shown_once_its_last_comment_is_posted(db: &TestDb) {
    let store = db.store();
    let id = command(store, CommandKind::Plan, &pull(1)).await;
    let times = async || store.command_result_times(id).await.unwrap().unwrap();
    assert_eq!(times().await.finished_at, None);
    let end = FinishedCommand {
        comments: 2,
        ..end(id, &[])
    };
    assert!(store.command_finish(&end).await.unwrap());
    let parts: Vec<ResultPart> = ResultPart::all(id, 2).collect();
    let at = |seconds| start_of_time() + TimeDelta::seconds(seconds);
    let show = async |part: usize, seconds| {
        let shown = store.command_shown(&parts[part], at(seconds)).await;
        shown.unwrap()
    };
    assert!(!show(1, 5).await, "the first part is missing");
    assert!(show(0, 6).await && !show(0, 7).await);
    assert_eq!(times().await.comments_left, 1);
    assert!(show(1, 8).await && !show(1, 9).await);
    let shown = ResultTimes {
        finished_at: Some(db.now()),
        comments_left: 0,
        shown_at: Some(at(8)),
    };
    assert_eq!(times().await, shown);
}

async fn a_command_that_has_ended_does_not_start_again(db: &TestDb) {
    let id = command(db.store(), CommandKind::Plan, &pull(1)).await;
    assert!(db.store().command_finish(&end(id, &[])).await.unwrap());
    db.store()
        .command_start(id, Some(&head()), &[job("status")])
        .await
        .unwrap();
    let kept = db.store().command_get(id).await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.head, lanes(db.store()).await.len()),
        (CommandState::Finished, None, 1)
    );
}

async fn plans_are_asked_to_stop_and_applies_never(db: &TestDb) {
    let mut ids = Vec::new();
    for &kind in CommandKind::ALL {
        ids.push(command(db.store(), kind, &pull(1)).await);
    }
    let over = command(db.store(), CommandKind::Plan, &pull(1)).await;
    assert!(db.store().command_finish(&end(over, &[])).await.unwrap());
    command(db.store(), CommandKind::Plan, &pull(2)).await;
    db.store().command_start(ids[1], None, &[]).await.unwrap();
    assert_eq!(
        CommandKind::ALL[..2],
        [CommandKind::Plan, CommandKind::Autoplan]
    );
    assert_eq!(
        db.store()
            .command_stop_plans(&pull(1), "newer commit\0")
            .await
            .unwrap(),
        ids[..2]
    );
    assert_eq!(
        db.store()
            .command_stop_plans(&pull(1), "second reason")
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        db.reopen().await.command_list_stopping().await.unwrap(),
        ids[..2]
    );
    let kept = db.store().command_get(ids[0]).await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.stop),
        (
            CommandState::Queued,
            Some(StopRequest::new(StopKind::Closed, "newer commit\u{fffd}"))
        )
    );
    assert!(db.store().command_finish(&end(ids[0], &[])).await.unwrap());
    assert_eq!(db.store().command_list_stopping().await.unwrap(), ids[1..2]);
}

async fn commands_are_listed_newest_first(db: &TestDb) {
    let a = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let b = command(db.store(), CommandKind::Plan, &pull(2)).await;
    db.clock.advance(Duration::from_micros(1));
    let c = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let ids = |list: Vec<lockkeeper::store::CommandRow>| {
        list.into_iter().map(|c| c.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(db.store().command_list(10).await.unwrap()), [c, b, a]);
    assert_eq!(ids(db.store().command_list(1).await.unwrap()), [c]);
}

/// Two commands post to the same lanes in opposite order.
async fn outboxes_of_crossing_lanes_do_not_block_each_other(db: &TestDb) {
    let other = db.reopen().await;
    for number in 1..=50 {
        let one = command(db.store(), CommandKind::Plan, &pull(number)).await;
        let two = command(db.store(), CommandKind::Plan, &pull(number)).await;
        let (one, two) = (end(one, &["a", "b", "c"]), end(two, &["c", "b", "a"]));
        let (one, two) = tokio::join!(db.store().command_finish(&one), other.command_finish(&two));
        assert!(one.unwrap() && two.unwrap());
    }
}

fn no_jobs(_: CommandId) -> Vec<lockkeeper::store::NewJob> {
    Vec::new()
}

async fn newer(store: &Store) -> (CommandId, Vec<CommandId>) {
    let new = new_command(CommandKind::Autoplan, &pull(1));
    match store
        .command_create_instead(
            &new,
            no_jobs,
            "a newer commit was pushed",
            HeadUpdate::Event(None),
        )
        .await
        .unwrap()
    {
        (CreateCommand::Created(id), replaced) => (id, replaced),
        (CreateCommand::Known, _) => panic!("the command is new"),
    }
}

async fn stop_of(store: &Store, id: CommandId) -> Option<StopKind> {
    store
        .command_get(id)
        .await
        .unwrap()
        .unwrap()
        .stop
        .map(|stop| stop.kind)
}

async fn a_newer_plan_takes_the_place_of_every_older_one_and_of_no_apply(db: &TestDb) {
    let mut ids = Vec::new();
    for &kind in CommandKind::ALL {
        ids.push(command(db.store(), kind, &pull(1)).await);
    }
    let elsewhere = command(db.store(), CommandKind::Plan, &pull(2)).await;
    assert!(db.store().command_start(ids[0], None, &[]).await.unwrap());
    // A close is a weaker reason, because the pull request may be reopened.
    assert_eq!(
        db.store()
            .command_stop_plans(&pull(1), "closed")
            .await
            .unwrap(),
        ids[..2]
    );
    let (by, replaced) = newer(db.store()).await;
    assert_eq!(replaced, ids[..2]);
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(
            stop_of(db.store(), *id).await,
            (n < 2).then_some(StopKind::Superseded),
            "{:?}",
            CommandKind::ALL[n]
        );
    }
    assert_eq!(
        (
            stop_of(db.store(), by).await,
            stop_of(db.store(), elsewhere).await
        ),
        (None, None)
    );
    db.store()
        .command_go_on(ids[0], StopKind::Closed)
        .await
        .unwrap();
    assert_eq!(
        stop_of(db.store(), ids[0]).await,
        Some(StopKind::Superseded),
        "for another reason"
    );
    db.store()
        .command_go_on(ids[0], StopKind::Superseded)
        .await
        .unwrap();
    assert_eq!(stop_of(db.store(), ids[0]).await, None);
}

async fn what_is_due_before_a_command_works_is_found_at_once(db: &TestDb) {
    let store = db.store();
    let id = command(store, CommandKind::Plan, &pull(1)).await;
    let due = async |url: &str| {
        let hour = TimeDelta::hours(1);
        let due = store.command_due(id, &pull(1), url, hour).await.unwrap();
        (due.pull, due.stop, due.locks)
    };
    assert_eq!(due(URL).await, (true, false, false), "the pull is unknown");
    open_pull(store, 1).await;
    taken(store, &pull(1), &project("a")).await;
    assert_eq!(due(URL).await, (false, false, false));
    assert_eq!(due("https://moved").await, (true, false, false));
    db.clock.advance(Duration::from_hours(2));
    assert_eq!(due(URL).await, (false, false, true));
    let renewed = store.lock_renew(&pull(1), TimeDelta::hours(1), by()).await;
    assert_eq!(renewed.unwrap().len(), 1);
    store.command_stop_plans(&pull(1), "closed").await.unwrap();
    assert_eq!(due(URL).await, (false, true, false));
    store.command_go_on(id, StopKind::Closed).await.unwrap();
    assert_eq!(due(URL).await, (false, false, false));
}

async fn what_was_asked_is_asked_of_the_newest_plan(db: &TestDb) {
    let (first, _) = newer(db.store()).await;
    assert!(!db.store().command_stands_in(first).await.unwrap());
    let asked = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let (second, replaced) = newer(db.store()).await;
    assert_eq!(replaced, [first, asked]);
    assert!(db.store().command_stands_in(second).await.unwrap());
    assert!(db.store().command_finish(&end(asked, &[])).await.unwrap());
    let (third, replaced) = newer(db.store()).await;
    assert_eq!(replaced, [second]);
    assert!(db.store().command_stands_in(third).await.unwrap());
    assert!(!db.store().command_stands_in(second).await.unwrap());
    assert!(db.store().command_finish(&end(third, &[])).await.unwrap());
    let (fourth, _) = newer(db.store()).await;
    assert!(
        !db.store().command_stands_in(fourth).await.unwrap(),
        "the third has answered"
    );
}

async fn what_waits_is_dropped_and_what_runs_is_asked_to_stop(db: &TestDb) {
    let plan = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let apply = command(db.store(), CommandKind::Apply, &pull(1)).await;
    let waiting = command(db.store(), CommandKind::Apply, &pull(1)).await;
    let asking = command(db.store(), CommandKind::Cancel, &pull(1)).await;
    let elsewhere = command(db.store(), CommandKind::Plan, &pull(2)).await;
    for id in [plan, apply] {
        assert!(db.store().command_start(id, None, &[]).await.unwrap());
    }
    let (at, what) = (pull(1), |rows: &[lockkeeper::store::CommandRow]| {
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    });
    let ends =
        |_: &lockkeeper::store::Cancelled| vec![end(waiting, &["told"]), end(asking, &["answer"])];
    let done = db
        .store()
        .command_cancel(CancelTarget::OfPull(&at), "bob\0", false, ends)
        .await
        .unwrap();
    assert_eq!(
        (
            what(&done.interrupted),
            what(&done.dropped),
            what(&done.spared)
        ),
        (vec![plan], vec![waiting], vec![apply])
    );
    for (id, state) in [
        (waiting, CommandState::Finished),
        (asking, CommandState::Finished),
        (apply, CommandState::Running),
    ] {
        assert_eq!(
            db.store().command_get(id).await.unwrap().unwrap().state,
            state
        );
    }
    let kept = db.store().command_get(plan).await.unwrap().unwrap();
    assert_eq!(
        kept.stop,
        Some(StopRequest::new(StopKind::Cancelled, "bob\u{fffd}"))
    );
    assert_eq!(db.store().command_list_stopping().await.unwrap(), [plan]);
    let by_force = db
        .store()
        .command_cancel(CancelTarget::OfPull(&at), "eve", true, |_| Vec::new())
        .await
        .unwrap();
    assert_eq!(
        (what(&by_force.interrupted), by_force.spared.len()),
        (vec![plan, apply], 0)
    );
    let kept = db.store().command_get(plan).await.unwrap().unwrap();
    assert_eq!(kept.stop.unwrap().why, "bob\u{fffd}", "the first who asked");
    assert_eq!(stop_of(db.store(), elsewhere).await, None);
}

async fn one_command_is_cancelled_and_no_other(db: &TestDb) {
    let one = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let other = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let ends = |_: &lockkeeper::store::Cancelled| vec![end(one, &[])];
    let done = db
        .store()
        .command_cancel(CancelTarget::One(one), "ops", false, ends)
        .await
        .unwrap();
    assert_eq!((done.dropped.len(), done.interrupted.len()), (1, 0));
    assert_eq!(
        db.store().command_get(other).await.unwrap().unwrap().state,
        CommandState::Queued
    );
    let over = db
        .store()
        .command_cancel(CancelTarget::One(one), "ops", true, |_| Vec::new())
        .await
        .unwrap();
    assert!(over.dropped.is_empty() && over.interrupted.is_empty() && over.spared.is_empty());
}
