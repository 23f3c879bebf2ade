//! Tests of runs, and of their output.

use std::time::Duration;

use lockkeeper::model::{CommandId, CommandKind, CommitSha, ProjectOutcome, RunId, RunKind};
use lockkeeper::store::{NewRun, OutputPiece, RunRow, RunState};

use super::samples::{HOSTILE, command, job, named, project, pull, run};
use crate::support::db::{TestDb, start_of_time, store_test};
use crate::support::rows::recent_runs;

store_test!(
    a_run_is_kept_as_it_was_asked_for,
    a_run_starts_and_ends,
    a_run_ends_once,
    the_statuses_of_a_run_are_queued_with_its_beginning_and_end,
    a_run_that_has_ended_does_not_start_again,
    runs_of_a_command_are_listed_in_the_order_in_which_they_were_made,
    runs_of_some_commands_are_listed_newest_first,
    runs_at_a_head_are_those_that_ended_oldest_first,
    output_comes_back_as_it_was_printed,
    output_is_read_on_from_any_place,
    a_place_in_the_output_is_written_once,
    a_run_of_an_unknown_command_is_an_error,
    a_hook_is_found_by_its_id_and_counts_nowhere,
    hooks_that_were_cut_off_end_and_runs_do_not,
    a_run_that_keeps_its_output_says_so,
);

fn piece(seq: i64, text: &str) -> OutputPiece {
    OutputPiece {
        seq,
        text: text.to_owned(),
    }
}

fn ids(runs: Vec<RunRow>) -> Vec<RunId> {
    runs.into_iter().map(|run| run.id).collect()
}

async fn a_run_is_kept_as_it_was_asked_for(db: &TestDb) {
    let command = command(db.store(), CommandKind::Plan, &pull(1)).await;
    for (kind, project) in [
        (RunKind::Plan, named("infra/é x", "net~1/a")),
        (RunKind::Apply, project(".")),
    ] {
        let new = NewRun {
            command,
            kind,
            pull: pull(1),
            project: project.clone(),
        };
        let id = db.store().run_create(&new).await.unwrap();
        let kept = db.reopen().await.run_get(id).await.unwrap().unwrap();
        assert!(kept.has_status);
        let silent = db.store().run_create_without_status(&new).await.unwrap();
        let silent = db.store().run_get(silent).await.unwrap().unwrap();
        assert!(!silent.has_status);
        assert_eq!(
            (kept.id, kept.command, kept.kind, kept.pull, kept.project),
            (id, command, kind, pull(1), project)
        );
        assert_eq!(
            (kept.state, kept.outcome, kept.message),
            (RunState::Queued, None, None)
        );
        assert_eq!(
            (kept.created_at, kept.started_at, kept.finished_at),
            (start_of_time(), None, None)
        );
    }
    assert!(
        db.store()
            .run_get(RunId::next(&*db.ids))
            .await
            .unwrap()
            .is_none()
    );
}

async fn a_run_starts_and_ends(db: &TestDb) {
    let id = run(db.store(), RunKind::Plan, &pull(1), &project("net")).await;
    db.clock.advance(Duration::from_micros(1));
    let started = db.now();
    db.store().run_start(id).await.unwrap();
    let kept = db.store().run_get(id).await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.started_at, kept.finished_at),
        (RunState::Running, Some(started), None)
    );
    db.clock.advance(Duration::from_micros(1));
    let message = format!("{HOSTILE}\0");
    assert!(
        db.store()
            .run_finish(id, ProjectOutcome::Planned, Some(&message))
            .await
            .unwrap()
    );
    let kept = db.store().run_get(id).await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.outcome),
        (RunState::Finished, Some(ProjectOutcome::Planned))
    );
    assert_eq!(
        (kept.started_at, kept.finished_at),
        (Some(started), Some(db.now()))
    );
    assert_eq!(kept.message, Some(format!("{HOSTILE}\u{fffd}")));
}

async fn the_statuses_of_a_run_are_queued_with_its_beginning_and_end(db: &TestDb) {
    let store = db.store();
    let lanes = async || {
        let jobs = store.job_list_open().await.unwrap();
        let lanes = jobs.into_iter().map(|job| job.lane);
        lanes
            .filter(|lane| !lane.starts_with("command "))
            .collect::<Vec<_>>()
    };
    let new = NewRun {
        command: command(store, CommandKind::Plan, &pull(1)).await,
        kind: RunKind::Plan,
        pull: pull(1),
        project: project("net"),
    };
    let id = store
        .run_create_with(&new, |id| Some(job(&format!("begins {id}"))))
        .await
        .unwrap();
    let begins = format!("begins {id}");
    assert_eq!(lanes().await, [&*begins]);
    let ended = async |lane: &str| {
        store
            .run_finish_with(id, ProjectOutcome::Planned, None, Some(&job(lane)))
            .await
            .unwrap()
    };
    assert!(ended("ends").await);
    // Another server has ended it before, and its status counts.
    assert!(!ended("ends again").await);
    assert_eq!(lanes().await, [&*begins, "ends"]);
}

async fn a_run_ends_once(db: &TestDb) {
    let id = run(db.store(), RunKind::Plan, &pull(1), &project("net")).await;
    for &outcome in ProjectOutcome::ALL {
        let first = outcome == ProjectOutcome::ALL[0];
        assert_eq!(
            db.store().run_finish(id, outcome, None).await.unwrap(),
            first
        );
    }
    assert_eq!(
        db.store().run_get(id).await.unwrap().unwrap().outcome,
        Some(ProjectOutcome::ALL[0])
    );
    assert!(
        !db.store()
            .run_finish(RunId::next(&*db.ids), ProjectOutcome::Failed, None)
            .await
            .unwrap()
    );
}

async fn a_run_that_has_ended_does_not_start_again(db: &TestDb) {
    let id = run(db.store(), RunKind::Plan, &pull(1), &project("net")).await;
    assert!(
        db.store()
            .run_finish(id, ProjectOutcome::Cancelled, None)
            .await
            .unwrap()
    );
    db.store().run_start(id).await.unwrap();
    let kept = db.store().run_get(id).await.unwrap().unwrap();
    assert_eq!((kept.state, kept.started_at), (RunState::Finished, None));
}

async fn runs_of_a_command_are_listed_in_the_order_in_which_they_were_made(db: &TestDb) {
    let ours = command(db.store(), CommandKind::Plan, &pull(1)).await;
    let mut made = Vec::new();
    for dir in ["b", "a", "c"] {
        let new = NewRun {
            command: ours,
            kind: RunKind::Plan,
            pull: pull(1),
            project: project(dir),
        };
        made.push(db.store().run_create(&new).await.unwrap());
        run(db.store(), RunKind::Plan, &pull(1), &project(dir)).await;
    }
    assert_eq!(ids(db.store().run_list(ours).await.unwrap()), made);
}

async fn runs_of_some_commands_are_listed_newest_first(db: &TestDb) {
    let store = db.store();
    let (mut made, mut commands) = (Vec::new(), Vec::new());
    for dir in ["b", "a", "c"] {
        let id = run(store, RunKind::Plan, &pull(1), &project(dir)).await;
        let row = store.run_get(id).await.unwrap().unwrap();
        made.insert(0, id);
        commands.insert(0, row.command);
        db.clock.advance(Duration::from_micros(1));
    }
    let of = |commands: &[CommandId], limit| {
        let commands = commands.to_vec();
        async move { ids(store.run_list_of_commands(&commands, limit).await.unwrap()) }
    };
    assert_eq!(of(&commands, 10).await, made);
    assert_eq!(of(&commands, 2).await, made[..2]);
    assert_eq!(of(&commands[1..], 10).await, made[1..]);
    assert_eq!(of(&[], 10).await, []);
}

async fn runs_at_a_head_are_those_that_ended_oldest_first(db: &TestDb) {
    let head = |digit: &str| CommitSha::new(&digit.repeat(40)).unwrap();
    let mut ended = Vec::new();
    for (digit, ends) in [("a", true), ("b", true), ("a", false), ("a", true)] {
        let command = command(db.store(), CommandKind::Plan, &pull(1)).await;
        db.store()
            .command_start(command, Some(&head(digit)), &[])
            .await
            .unwrap();
        let new = NewRun {
            command,
            kind: RunKind::Plan,
            pull: pull(1),
            project: project("a"),
        };
        let run = db.store().run_create(&new).await.unwrap();
        if ends {
            db.store()
                .run_finish(run, ProjectOutcome::Planned, None)
                .await
                .unwrap();
            ended.push((digit, run));
        }
    }
    let at_a: Vec<_> = ended
        .iter()
        .filter(|(digit, _)| *digit == "a")
        .map(|(_, run)| *run)
        .collect();
    assert_eq!(
        ids(db
            .store()
            .run_list_of_head(&pull(1), &head("a"))
            .await
            .unwrap()),
        at_a
    );
    assert!(
        db.store()
            .run_list_of_head(&pull(2), &head("a"))
            .await
            .unwrap()
            .is_empty()
    );
}

async fn output_comes_back_as_it_was_printed(db: &TestDb) {
    let id = run(db.store(), RunKind::Plan, &pull(1), &project("net")).await;
    let long = "0123456789abcde\n".repeat(1 << 16);
    for (seq, text) in (1..).zip([HOSTILE, "", "nul \0 here", &long]) {
        db.store()
            .run_output_append(id, &piece(seq, text))
            .await
            .unwrap();
    }
    let printed = db.reopen().await.run_output(id).await.unwrap();
    assert!(
        printed == format!("{HOSTILE}nul \u{fffd} here{long}"),
        "{} bytes came back",
        printed.len()
    );
    assert_eq!(
        db.store().run_output(RunId::next(&*db.ids)).await.unwrap(),
        ""
    );
}

async fn output_is_read_on_from_any_place(db: &TestDb) {
    let id = run(db.store(), RunKind::Plan, &pull(1), &project("net")).await;
    let other = run(db.store(), RunKind::Plan, &pull(1), &project("other")).await;
    for seq in [1, 2, 10, 3] {
        db.store()
            .run_output_append(id, &piece(seq, &seq.to_string()))
            .await
            .unwrap();
        db.store()
            .run_output_append(other, &piece(seq, "other"))
            .await
            .unwrap();
    }
    let after = |seq, limit| db.store().run_output_after(id, seq, limit);
    assert_eq!(after(0, 2).await.unwrap(), [piece(1, "1"), piece(2, "2")]);
    assert_eq!(
        after(2, i64::MAX).await.unwrap(),
        [piece(3, "3"), piece(10, "10")]
    );
    assert_eq!(after(10, 2).await.unwrap(), []);
    assert_eq!(db.store().run_output(id).await.unwrap(), "12310");
}

async fn a_place_in_the_output_is_written_once(db: &TestDb) {
    let id = run(db.store(), RunKind::Plan, &pull(1), &project("net")).await;
    db.store()
        .run_output_append(id, &piece(1, "first"))
        .await
        .unwrap();
    let error = db
        .store()
        .run_output_append(id, &piece(1, "second"))
        .await
        .unwrap_err();
    assert!(
        error.as_database_error().unwrap().is_unique_violation(),
        "{error}"
    );
    assert_eq!(db.store().run_output(id).await.unwrap(), "first");
}

async fn a_run_of_an_unknown_command_is_an_error(db: &TestDb) {
    let command = lockkeeper::model::CommandId::next(&*db.ids);
    let new = NewRun {
        command,
        kind: RunKind::Plan,
        pull: pull(1),
        project: project("net"),
    };
    let error = db.store().run_create(&new).await.unwrap_err();
    assert!(
        error
            .as_database_error()
            .unwrap()
            .is_foreign_key_violation(),
        "{error}"
    );
}

async fn a_hook_is_found_by_its_id_and_counts_nowhere(db: &TestDb) {
    let store = db.store();
    let (id, head) = (
        command(store, CommandKind::Apply, &pull(1)).await,
        CommitSha::new(&"a1".repeat(20)).unwrap(),
    );
    store.command_start(id, Some(&head), &[]).await.unwrap();
    let new = NewRun {
        command: id,
        kind: RunKind::Apply,
        pull: pull(1),
        project: project("."),
    };
    let hook = store
        .hook_create(&new, &format!("{HOSTILE}\0"))
        .await
        .unwrap();
    store.run_start(hook).await.unwrap();
    let kept = store.run_get(hook).await.unwrap().unwrap();
    assert_eq!(
        (kept.hook, kept.state),
        (Some(format!("{HOSTILE}\u{fffd}")), RunState::Running)
    );
    assert!(
        store
            .run_finish(hook, ProjectOutcome::UpToDate, None)
            .await
            .unwrap()
    );
    assert_eq!(ids(store.run_list(id).await.unwrap()), []);
    assert_eq!(
        ids(store.run_list_of_head(&pull(1), &head).await.unwrap()),
        []
    );
    assert_eq!(recent_runs(store, 10).await.len(), 0);
    let run = store.run_create(&new).await.unwrap();
    assert_eq!(ids(store.run_list(id).await.unwrap()), [run]);
}

async fn hooks_that_were_cut_off_end_and_runs_do_not(db: &TestDb) {
    let store = db.store();
    let id = command(store, CommandKind::Plan, &pull(1)).await;
    let new = NewRun {
        command: id,
        kind: RunKind::Plan,
        pull: pull(1),
        project: project("."),
    };
    let (ended, cut_off) = (
        store.hook_create(&new, "a").await.unwrap(),
        store.hook_create(&new, "b").await.unwrap(),
    );
    let run = store.run_create(&new).await.unwrap();
    assert!(
        store
            .run_finish(ended, ProjectOutcome::Failed, None)
            .await
            .unwrap()
    );
    store.hooks_cut_off(id).await.unwrap();
    for (id, state, outcome) in [
        (ended, RunState::Finished, Some(ProjectOutcome::Failed)),
        (cut_off, RunState::Finished, Some(ProjectOutcome::Cancelled)),
        (run, RunState::Queued, None),
    ] {
        let kept = store.run_get(id).await.unwrap().unwrap();
        assert_eq!((kept.state, kept.outcome), (state, outcome));
    }
}

async fn a_run_that_keeps_its_output_says_so(db: &TestDb) {
    let id = run(db.store(), RunKind::Plan, &pull(1), &project("net")).await;
    assert!(!db.store().run_get(id).await.unwrap().unwrap().private);
    db.store().run_keep_private(id).await.unwrap();
    assert!(db.store().run_get(id).await.unwrap().unwrap().private);
}
