//! Stories about deleted repositories and pull requests: their locks are released, with the reason, and nobody waits
//! for them.

use std::time::Duration;

use insta::assert_snapshot;
use lockkeeper::emulator::{Change, Delivering, Fault, NewPull};
use lockkeeper::model::{LockEventKind, PullNumber};

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    a_deleted_repository_gives_its_locks_back_after_a_second_look,
    a_repository_that_is_found_again_keeps_its_locks,
    a_pull_that_is_gone_gives_its_locks_back,
    a_pull_that_is_not_found_although_it_is_listed_gives_its_locks_back,
    a_pull_that_is_not_found_twice_and_found_between_keeps_its_locks,
    a_pull_that_is_not_found_twice_within_days_keeps_its_locks,
    an_archived_repository_gives_its_locks_back,
    a_repository_that_refuses_us_keeps_no_other_waiting_and_fails_no_repair,
    a_repository_whose_app_was_removed_gives_its_locks_back,
    a_deleted_repository_whose_name_another_one_takes_leaves_it_nothing,
);

const LOCK: &str = "acme/infra/network/default by #1";
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/main.tf", "# fake: add 0 change 3 destroy 0\n");

impl Bot {
    /// Runs both reconcilers after some time, and everything that follows from it.
    async fn look_after(&self, wait: Duration) {
        self.db.clock.advance(wait);
        for repair in ["missed_events", "closed_pulls"] {
            self.replica.tick(repair).await.unwrap();
        }
        self.settle().await;
    }

    /// Returns the reasons of released locks, newest first.
    async fn why_released(&self) -> Vec<String> {
        let events = self.store().lock_event_list(20).await.unwrap().into_iter();
        let released = events.filter(|event| event.event.kind == LockEventKind::Released);
        released.map(|event| event.event.cause.reason).collect()
    }

    /// Returns the number of plans that were made.
    fn plans_made(&self) -> usize {
        self.calls()
            .iter()
            .filter(|call| call.starts_with("plan "))
            .count()
    }
}

/// Opens a pull request that has the lock, and one that is queued for it. The lists of pull requests were read.
async fn two(backend: Backend) -> Bot {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[OTHER]).await;
    assert_eq!(
        (
            bot.read_comments(first).len(),
            bot.read_comments(second).len()
        ),
        (1, 1)
    );
    bot.look_after(Duration::from_mins(5)).await;
    assert_eq!(bot.locks().await, [LOCK]);
    bot
}

async fn a_deleted_repository_gives_its_locks_back_after_a_second_look(backend: Backend) {
    let bot = two(backend).await;
    bot.github.delete_repo(REPO, "alice").await.unwrap();
    bot.settle().await;
    bot.look_after(Duration::from_mins(5)).await;
    assert_eq!(bot.locks().await, [LOCK], "one look decides nothing");
    bot.look_after(Duration::from_secs(20)).await;
    assert_eq!(bot.locks().await, [LOCK], "nor do two within a moment");
    bot.look_after(Duration::from_mins(5)).await;
    assert_eq!(bot.locks().await, [""; 0]);
    assert_snapshot!(bot.why_released().await.join("\n"), @"the repository is gone, or Lockkeeper may not see it any more: the forge did not find it at 2026-03-02T09:10:00Z and at 2026-03-02T09:15:20Z");
    assert_eq!(bot.plans_made(), 1, "nothing was handed to whoever waited");
    bot.look_after(Duration::from_mins(5)).await;
    bot.end(&[]).await;
}

async fn a_repository_that_is_found_again_keeps_its_locks(backend: Backend) {
    let bot = two(backend).await;
    for _ in 0..2 {
        bot.github.fault("GET /repos/*/*/pulls", 1, Fault::NotFound);
        bot.github.fault("GET /repos/*/*", 1, Fault::NotFound);
        bot.look_after(Duration::from_mins(5)).await;
        assert_eq!(bot.github.faults_left(), 0);
        bot.look_after(Duration::from_mins(10)).await;
        assert_eq!(bot.locks().await, [LOCK]);
    }
    bot.end(&[LOCK]).await;
}

async fn a_pull_that_is_gone_gives_its_locks_back(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot
        .open_pull("second", &[("app/main.tf", "# wider\n")])
        .await;
    assert_eq!(
        (
            bot.read_comments(first).len(),
            bot.read_comments(second).len()
        ),
        (1, 1)
    );
    bot.github
        .fault("GET /repos/*/*/pulls/1", 2, Fault::NotFound);
    for _ in 0..2 {
        assert_eq!(bot.locks().await, ["acme/infra/app/default by #2", LOCK]);
        bot.db.clock.advance(Duration::from_mins(5));
        bot.replica.tick("closed_pulls").await.unwrap();
    }
    bot.settle().await;
    assert_snapshot!(bot.why_released().await.join("\n"), @"the pull request is gone: the forge did not find it at 2026-03-02T09:05:00Z and at 2026-03-02T09:10:00Z");
    bot.end(&["acme/infra/app/default by #2"]).await;
}

async fn a_pull_that_is_not_found_although_it_is_listed_gives_its_locks_back(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    assert_eq!(bot.read_comments(first).len(), 1);
    bot.github.set_delivering(Delivering::Held).await;
    bot.github
        .push(
            REPO,
            "first",
            &[Change::write("network/main.tf", "# wider\n")],
        )
        .await
        .unwrap();
    while bot.github.lose_next().is_some() {}
    bot.github
        .fault("GET /repos/*/*/pulls/1", 2, Fault::NotFound);
    for _ in 0..2 {
        assert_eq!(bot.locks().await, [LOCK]);
        bot.db.clock.advance(Duration::from_mins(5));
        bot.replica.tick("missed_events").await.unwrap();
    }
    assert_eq!(bot.locks().await, [""; 0]);
    assert!(
        bot.why_released().await[0].starts_with("the pull request is gone"),
        "{:?}",
        bot.why_released().await
    );
    bot.settle().await;
    bot.end(&[]).await;
}

async fn a_pull_that_is_not_found_twice_and_found_between_keeps_its_locks(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    assert_eq!(bot.read_comments(first).len(), 1);
    for content in ["# wider\n", "# wider still\n"] {
        bot.github.set_delivering(Delivering::Held).await;
        bot.github
            .push(REPO, "first", &[Change::write("network/main.tf", content)])
            .await
            .unwrap();
        while bot.github.lose_next().is_some() {}
        bot.github.set_delivering(Delivering::Immediately).await;
        bot.github
            .fault("GET /repos/*/*/pulls/1", 1, Fault::NotFound);
        for _ in 0..2 {
            bot.db.clock.advance(Duration::from_mins(5));
            bot.replica.tick("missed_events").await.unwrap();
            assert_eq!(bot.locks().await, [LOCK]);
        }
        assert_eq!(bot.github.faults_left(), 0);
        bot.settle().await;
    }
    bot.read_comments(first);
    bot.end(&[LOCK]).await;
}

async fn a_pull_that_is_not_found_twice_within_days_keeps_its_locks(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    assert_eq!(bot.read_comments(first).len(), 1);
    for wait in [Duration::from_mins(5), Duration::from_hours(72)] {
        bot.db.clock.advance(wait);
        bot.github
            .fault("GET /repos/*/*/pulls/1", 1, Fault::NotFound);
        bot.replica.tick("closed_pulls").await.unwrap();
        assert_eq!(
            (bot.github.faults_left(), bot.locks().await),
            (0, vec![LOCK.to_owned()])
        );
    }
    bot.settle().await;
    bot.end(&[LOCK]).await;
}

async fn an_archived_repository_gives_its_locks_back(backend: Backend) {
    let bot = two(backend).await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.github.archive_repo(REPO, "alice").await.unwrap();
    while bot.github.lose_next().is_some() {}
    bot.look_after(Duration::from_mins(5)).await;
    assert_eq!(bot.locks().await, [""; 0]);
    assert_snapshot!(bot.why_released().await.join("\n"), @"the repository is archived: nothing in it can be merged or closed");
    bot.look_after(Duration::from_mins(5)).await;
    bot.look_after(Duration::from_mins(5)).await;
    assert_eq!(
        bot.plans_made(),
        1,
        "its open pull requests are not planned anew"
    );
    bot.end(&[]).await;
}

async fn a_repository_that_refuses_us_keeps_no_other_waiting_and_fails_no_repair(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    bot.read_comments(first);
    bot.github
        .create_repo("acme/other", &[NETWORK])
        .await
        .unwrap();
    bot.github
        .push(
            "acme/other",
            "wider",
            &[Change::write("network/main.tf", "# wider\n")],
        )
        .await
        .unwrap();
    let other = bot
        .github
        .open_pull("acme/other", NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle().await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.github
        .close("acme/other", other, "alice")
        .await
        .unwrap();
    bot.github.lose_next().unwrap();
    bot.github
        .fault("GET /repos/acme/infra/pulls/1", 1, Fault::Unauthorized);
    let found = bot.replica.tick("closed_pulls").await.unwrap();
    assert_eq!((found.looked_at, found.repaired), (2, 1));
    bot.settle().await;
    bot.end(&[LOCK]).await;
}

async fn a_repository_whose_app_was_removed_gives_its_locks_back(backend: Backend) {
    let mut bot = Bot::as_app(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    bot.read_comments(first);
    bot.github.fault("GET /repos/*/*", 100, Fault::NotFound);
    bot.github
        .fault("GET /repos/*/*/pulls", 100, Fault::NotFound);
    bot.github
        .fault("GET /repos/*/*/pulls/*", 100, Fault::NotFound);
    bot.github
        .fault("GET /repos/*/*/installation", 100, Fault::NotFound);
    for _ in 0..2 {
        assert_eq!(bot.locks().await, [LOCK]);
        bot.look_after(Duration::from_mins(5)).await;
    }
    assert!(
        bot.why_released().await[0]
            .starts_with("the repository is gone, or Lockkeeper may not see it any more: ")
    );
    bot.github.clear_faults();
    bot.say(PullNumber(1), "lockkeeper plan").await;
    assert!(
        bot.comment(PullNumber(1)).contains("**Plan: 2 to add"),
        "when it is back it goes on"
    );
    bot.end(&[LOCK]).await;
}

async fn a_deleted_repository_whose_name_another_one_takes_leaves_it_nothing(backend: Backend) {
    let mut bot = two(backend).await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.github.delete_repo(REPO, "alice").await.unwrap();
    bot.github.create_repo(REPO, &[NETWORK]).await.unwrap();
    while bot.github.lose_next().is_some() {}
    bot.github.set_delivering(Delivering::Immediately).await;
    let pull = bot.open_pull("anew", &[WIDER]).await;
    assert_eq!(pull, PullNumber(1), "it counts from 1 again");
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned")
    );
    let locks = bot.locks().await;
    assert!(
        locks.len() == 2 && locks[0] == LOCK && locks[1].starts_with("acme/infra~"),
        "{locks:?}"
    );
    for _ in 0..2 {
        bot.look_after(Duration::from_mins(5)).await;
    }
    assert!(bot.why_released().await[0].starts_with("the repository is gone"));
    bot.end(&[LOCK]).await;
}
