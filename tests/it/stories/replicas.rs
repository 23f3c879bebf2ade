//! Stories about several servers on one PostgreSQL database.

use std::sync::Arc;

use chrono::TimeDelta;
use lockkeeper::emulator::{Delivering, NewPull};
use lockkeeper::model::PullNumber;
use lockkeeper::queue::{LEASE, Tick};
use lockkeeper::store::ReplicaState;

use crate::support::bot::{Bot, REPO, work_together};
use crate::support::db::{Backend, tell};

const LOCK: &str = "acme/infra/network/default by #1";
const NETWORK: (&str, &str) = ("network/main.tf", "# narrow\n");
const WAITING: (&str, &str) = ("network/main.tf", "# fake: wait plan\n");

/// Runs each story on PostgreSQL, because SQLite has only one server.
macro_rules! shared_story {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            #[test]
            fn postgres() {
                super::tell(super::$name());
            }
        })+
    };
}

shared_story!(
    the_commands_of_thirty_pulls_are_each_done_once_and_in_order,
    plans_and_applies_work_whichever_server_takes_them,
    the_work_of_a_dead_server_is_taken_over_when_its_lease_has_ended,
    a_server_that_comes_back_after_losing_its_lease_writes_nothing,
    a_plan_that_ends_after_its_lease_was_lost_is_not_kept,
    a_server_never_takes_work_over_from_itself,
    a_plan_is_stopped_by_the_server_that_learns_of_the_close,
    a_server_that_stops_hands_over_what_it_had_not_begun,
    a_plan_is_applied_by_a_server_that_shares_nothing_but_the_database,
    what_a_run_prints_is_seen_on_another_server_while_it_runs,
    work_that_cannot_renew_its_lease_in_time_is_done_again,
);

async fn the_commands_of_thirty_pulls_are_each_done_once_and_in_order() {
    let (mut bot, _) = Bot::talking(Backend::Postgres, &[]).await;
    let mut pulls = Vec::new();
    for n in 0..30 {
        pulls.push(
            bot.open_pull(
                &format!("talk-{n}"),
                &[("README.md", &format!("Networks of {n}.\n"))],
            )
            .await,
        );
    }
    for pull in &pulls {
        for text in [
            "lockkeeper help",
            "lockkeeper unlock",
            "lockkeeper approve_policies",
        ] {
            bot.github
                .comment(REPO, *pull, "alice", text)
                .await
                .unwrap();
        }
    }
    let other = bot.replica_beside().await;
    work_together(&[&bot.replica, &other]).await;
    for pull in pulls {
        let told = bot.read_comments(pull);
        assert_eq!(told.len(), 3, "{pull}: {told:#?}");
        assert!(told[0].contains("lockkeeper plan"), "{pull}: {told:#?}");
        assert!(told[1].contains("nothing"), "{pull}: {told:#?}");
        assert!(
            told[2].contains("not checked against policies"),
            "{pull}: {told:#?}"
        );
    }
    bot.end(&[]).await;
}

async fn plans_and_applies_work_whichever_server_takes_them() {
    let files: Vec<String> = (0..4).map(|n| format!("p{n}/main.tf")).collect();
    let before: Vec<(&str, &str)> = files
        .iter()
        .map(|file| (file.as_str(), "# narrow\n"))
        .collect();
    let mut bot = Bot::new(Backend::Postgres, &before).await;
    let other = bot.replica_beside().await;
    let mut pulls = Vec::new();
    for file in &files {
        bot.push(file, &[(file, "# wider\n")]).await;
        let pull = bot
            .github
            .open_pull(REPO, NewPull::from_branch(file))
            .await
            .unwrap();
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper apply")
            .await
            .unwrap();
        pulls.push(pull);
    }
    work_together(&[&bot.replica, &other]).await;
    for pull in pulls {
        let told = bot.read_comments(pull);
        assert!(
            told.len() == 2 && told[0].contains(": planned\n") && told[1].contains(": applied\n"),
            "{told:#?}"
        );
    }
    let mut calls = bot.calls();
    calls.retain(|call| call.starts_with("apply "));
    calls.sort();
    assert_eq!(calls, ["apply p0", "apply p1", "apply p2", "apply p3"]);
    let locks: Vec<String> = (0..4)
        .map(|n| format!("acme/infra/p{n}/default by #{}", n + 1))
        .collect();
    bot.end(&locks.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
}

/// Starts a bot whose plan is running and waits for a signal to go on.
async fn in_the_middle_of_a_plan() -> (Bot, PullNumber, tokio::task::JoinHandle<Tick>) {
    let bot = Bot::new(Backend::Postgres, &[NETWORK]).await;
    let pull = bot.announce_pull("wider", &[WAITING]).await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.settle_short().await;
    (bot, pull, command)
}

fn go(bot: &Bot) {
    std::fs::write(bot.tools.join("go"), "").unwrap();
}

async fn the_work_of_a_dead_server_is_taken_over_when_its_lease_has_ended() {
    let (mut bot, pull, command) = in_the_middle_of_a_plan().await;
    command.abort();
    command.await.unwrap_err();
    let other = bot.replica_beside().await;
    bot.db.clock.advance(LEASE);
    assert_eq!(
        other.tick("orphans").await.unwrap().repaired,
        0,
        "the lease lasts until now"
    );
    assert_eq!(other.tick_command().await.unwrap(), Tick::Idle);
    bot.db.clock.advance(std::time::Duration::from_millis(1));
    assert_eq!(other.tick("orphans").await.unwrap().repaired, 1);
    go(&bot);
    bot.replica = other;
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(bot.pending(pull), [""; 0]);
    bot.end(&[LOCK]).await;
}

async fn a_server_that_comes_back_after_losing_its_lease_writes_nothing() {
    let (mut bot, pull, command) = in_the_middle_of_a_plan().await;
    let late = Arc::clone(&bot.replica);
    bot.db.clock.advance(LEASE * 2);
    bot.replica = bot.replica_beside().await;
    assert_eq!(bot.replica.tick("orphans").await.unwrap().repaired, 1);
    let taken_over = bot.begin_command();
    bot.calls_of("plan network", 2).await;
    late.tick_leases().await.unwrap();
    assert_eq!(
        command.await.unwrap(),
        Tick::Worked,
        "its child was stopped, although it was not told to go on"
    );
    bot.settle_short().await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    assert_eq!(bot.locks().await, [LOCK], "the other server plans under it");
    go(&bot);
    assert_eq!(taken_over.await.unwrap(), Tick::Worked);
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(bot.pending(pull), [""; 0]);
    bot.end(&[LOCK]).await;
}

async fn a_plan_that_ends_after_its_lease_was_lost_is_not_kept() {
    let (mut bot, pull, late) = in_the_middle_of_a_plan().await;
    bot.db.clock.advance(LEASE * 2);
    bot.replica = bot.replica_beside().await;
    assert_eq!(bot.replica.tick("orphans").await.unwrap().repaired, 1);
    // The pull request changed meanwhile, so that the two servers plan different code.
    bot.push(
        "wider",
        &[("network/main.tf", "# fake: add 7 change 0 destroy 0\n")],
    )
    .await;
    let head = bot.github.pull(REPO, pull).unwrap().head;
    assert_eq!(bot.replica.tick_command().await.unwrap(), Tick::Worked);
    go(&bot);
    assert_eq!(
        late.await.unwrap(),
        Tick::Worked,
        "nobody has told the first server that it lost the lease"
    );
    let at = lockkeeper::model::PullRef {
        repo: "github.test/acme/infra".parse().unwrap(),
        subject: pull.into(),
    };
    let plans = bot.store().plan_list(&at).await.unwrap();
    let heads: Vec<_> = plans.iter().map(|plan| plan.head.clone()).collect();
    assert_eq!(
        heads,
        [head],
        "what the pull request was shown is what is on record (P5)"
    );
    bot.settle().await;
    let told = bot.read_comments(pull);
    assert!(
        told.iter()
            .all(|text| text.contains("Plan: 7 to add") || text.contains("7 to add")),
        "{told:#?}"
    );
    bot.end(&[LOCK]).await;
}

async fn a_server_never_takes_work_over_from_itself() {
    let (mut bot, pull, command) = in_the_middle_of_a_plan().await;
    // The whole machine slept.
    bot.db.clock.advance_to(bot.db.now() + TimeDelta::hours(8));
    assert_eq!(bot.replica.tick("orphans").await.unwrap().repaired, 0);
    assert_eq!(bot.replica.tick_command().await.unwrap(), Tick::Idle);
    go(&bot);
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(
        bot.calls()
            .iter()
            .filter(|call| *call == "plan network")
            .count(),
        1
    );
    bot.end(&[LOCK]).await;
}

async fn a_plan_is_stopped_by_the_server_that_learns_of_the_close() {
    let (mut bot, pull, command) = in_the_middle_of_a_plan().await;
    let planning = Arc::clone(&bot.replica);
    bot.replica = bot.replica_beside().await;
    bot.github.set_delivering(Delivering::Immediately).await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.settle_short().await;
    planning.tick("stops").await.unwrap();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.read_comments(pull);
    insta::assert_snapshot!(told.join("\n=====\n"), @"
    This pull request was closed: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    =====
    Ran Plan for dir: `network` workspace: `default`: cancelled

    **Plan cancelled**: the pull request was closed, so `terraform plan` was interrupted.

    ```diff
    waiting in network
    Interrupt received.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `eae14713` · 0 s</sub>
    ");
    assert_eq!(bot.pending(pull), [""; 0]);
    bot.end(&[]).await;
}

async fn a_server_that_stops_hands_over_what_it_had_not_begun() {
    let before = [NETWORK, ("compute/main.tf", "# narrow\n")];
    let mut bot = Bot::with(Backend::Postgres, &before, &[("parallel-pool-size", "1")]).await;
    bot.push("wider", &[WAITING]).await;
    let begun = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle_short().await;
    let (stopping, under_way) = (Arc::clone(&bot.replica), bot.begin_command());
    bot.printed("waiting").await;
    bot.push("more", &[("compute/main.tf", "# wider\n")]).await;
    let waits = bot
        .github
        .open_pull(REPO, NewPull::from_branch("more"))
        .await
        .unwrap();
    bot.settle_short().await;
    let waiting = bot.begin_command();
    stopping.ctx.closing.cancel();
    stopping.tick_leases().await.unwrap();
    assert_eq!(
        waiting.await.unwrap(),
        Tick::Worked,
        "it does not wait for its turn here"
    );
    let states: Vec<_> = bot
        .store()
        .replica_list()
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.state)
        .collect();
    assert_eq!(states, [ReplicaState::Stopping]);

    bot.replica = bot.replica_beside().await;
    bot.settle().await;
    assert!(
        bot.answer(waits).contains(": planned\n"),
        "the other server goes on at once"
    );
    assert_eq!(bot.read_comments(begun), [""; 0]);
    go(&bot);
    assert_eq!(under_way.await.unwrap(), Tick::Worked);
    stopping.end().await.unwrap();
    bot.settle().await;
    assert!(
        bot.answer(begun).contains(": planned\n"),
        "what had begun has come to its end"
    );
    bot.end(&["acme/infra/compute/default by #2", LOCK]).await;
}

async fn a_plan_is_applied_by_a_server_that_shares_nothing_but_the_database() {
    let alone = [
        ("share-plan-dir", ""),
        ("database-url", "postgres://the-one-that-is-open/"),
    ];
    let mut bot = Bot::with(Backend::Postgres, &[NETWORK], &alone).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    assert!(bot.answer(pull).contains(": planned\n"));
    std::fs::remove_dir_all(bot.db.dir.path().join("data")).unwrap();
    bot.replica = bot.replica_beside().await;
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.answer(pull).contains(": applied\n"));
    bot.end(&[LOCK]).await;
}

async fn what_a_run_prints_is_seen_on_another_server_while_it_runs() {
    let mut bot = Bot::new(Backend::Postgres, &[NETWORK]).await;
    let other = bot.replica_beside().await;
    let (mut news, mut wake_ups) = (other.ctx.runs.hub.subscribe(), other.ctx.wake_up.listen());
    let listening = Arc::clone(&other);
    let listening = tokio::spawn(async move { listening.listen().await });
    within(wake_ups.wait()).await;
    bot.push("wider", &[WAITING]).await;
    let pull = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    within(wake_ups.wait()).await;
    bot.settle_short().await;
    let command = bot.begin_command();
    // Only the database informs the other server of the run.
    let mut run = within(news.recv()).await.unwrap();
    while !other
        .ctx
        .store
        .run_output(run)
        .await
        .unwrap()
        .contains("waiting")
    {
        run = within(news.recv()).await.unwrap();
    }
    let page = bot.pages_of(&other).await;
    let request = axum::http::Request::get(format!("/jobs/{run}/events"))
        .body(axum::body::Body::empty())
        .unwrap();
    let stream = tower::ServiceExt::oneshot(page, request).await.unwrap();
    let mut stream = stream.into_body().into_data_stream();
    let mut seen = String::new();
    while !seen.contains("waiting") {
        let chunk = within(futures::StreamExt::next(&mut stream))
            .await
            .expect("the run goes on")
            .unwrap();
        seen.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(!command.is_finished());
    go(&bot);
    assert_eq!(command.await.unwrap(), Tick::Worked);
    while !seen.contains("event: end") {
        let chunk = within(futures::StreamExt::next(&mut stream))
            .await
            .expect("its end is told")
            .unwrap();
        seen.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    listening.abort();
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    bot.end(&[LOCK]).await;
}

/// Only this server lost its database connection, and no other has taken its work over yet.
async fn work_that_cannot_renew_its_lease_in_time_is_done_again() {
    let (mut bot, pull, command) = in_the_middle_of_a_plan().await;
    bot.replica.running.cancel_all();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle_short().await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    go(&bot);
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(
        bot.calls()
            .iter()
            .filter(|call| *call == "plan network")
            .count(),
        2
    );
    bot.end(&[LOCK]).await;
}

async fn within<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_mins(1), wait)
        .await
        .expect("it happens in time")
}
