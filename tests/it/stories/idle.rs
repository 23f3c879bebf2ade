//! Stories about idle locks: the pull request is warned, and in the end they are released (`repo_locks.ttl`).

use chrono::TimeDelta;
use insta::assert_snapshot;
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::PullNumber;
use lockkeeper::queue::Tick;

use crate::stories::NETWORK;
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    a_lock_that_nobody_uses_goes_back_after_a_warning,
    whoever_waits_for_an_idle_lock_gets_it,
    whatever_people_do_at_a_pull_request_keeps_its_locks,
    a_lock_is_kept_while_its_pull_request_is_worked_on,
    what_was_applied_and_not_merged_is_warned_of,
    without_a_limit_locks_are_kept,
);

const LIMIT: &str = r#"{"repos": [{"id": "/.*/", "repo_locks": {"ttl": "100h"}}]}"#;
const LOCK: &str = "acme/infra/network/default by #1";
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/main.tf", "# fake: add 0 change 3 destroy 0\n");

/// Opens a pull request with a plan and a lock that has a time limit of a hundred hours.
async fn planned(backend: Backend) -> (Bot, PullNumber) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("repo-config-json", LIMIT)]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert!(bot.answer(pull).contains(": planned\n"));
    (bot, pull)
}

impl Bot {
    /// Advances the clock by idle time, and checks the locks.
    async fn nothing_happens_for(&self, hours: i64) {
        self.db
            .clock
            .advance_to(self.db.now() + TimeDelta::hours(hours));
        self.replica.tick("idle_locks").await.unwrap();
        self.settle().await;
    }
}

async fn a_lock_that_nobody_uses_goes_back_after_a_warning(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.nothing_happens_for(79).await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    bot.nothing_happens_for(1).await;
    assert_snapshot!(bot.comment(pull), @"
    **A lock expires on 2026-03-06 13:00 UTC** unless this pull request has activity before then. A pull request without activity keeps its locks for 100 hours only, so that others need not wait (`repo_locks.ttl`).

    * dir: `network` workspace: `default`

    To **keep** it, push a commit or post a comment. This restarts the time limit. To **release** all locks now, comment:

    ```shell
    lockkeeper unlock
    ```
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"event":"lock_idle","id":"ID","pull":1,"head":null,"outcome":"success","projects":[]} -->"#);
    bot.nothing_happens_for(19).await;
    assert_eq!(bot.read_comments(pull), [""; 0], "it was warned once");
    bot.nothing_happens_for(1).await;
    assert_snapshot!(bot.comment(pull), @"
    **The lock of this pull request expired**, and plans that were not applied are discarded: this pull request had no activity for 100 hours (`repo_locks.ttl`).

    * dir: `network` workspace: `default`

    To **plan** again, comment:

    ```shell
    lockkeeper plan
    ```
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"event":"lock_expired","id":"ID","pull":1,"head":null,"outcome":"success","projects":[{"name":null,"dir":"network","workspace":"default","outcome":"discarded","plan":null}]} -->"#);
    bot.nothing_happens_for(1000).await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: there is no plan to apply in this pull request.

    * Comment `lockkeeper plan` first, look at the plan, then apply it.

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn whoever_waits_for_an_idle_lock_gets_it(backend: Backend) {
    let (mut bot, first) = planned(backend).await;
    let second = bot.open_pull("other", &[OTHER]).await;
    assert!(bot.answer(second).contains("next in the queue"));
    bot.nothing_happens_for(80).await;
    bot.nothing_happens_for(20).await;
    assert_eq!(bot.read_comments(first).len(), 2);
    assert!(bot.answer(second).contains(": planned\n"));
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn whatever_people_do_at_a_pull_request_keeps_its_locks(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.nothing_happens_for(80).await;
    assert_eq!(
        bot.read_comments(pull).len(),
        1,
        "the warning, which is no activity"
    );
    bot.say(pull, "I am on it, wait please.").await;
    bot.nothing_happens_for(79).await;
    assert_eq!(bot.read_comments(pull), [""; 0], "the time started anew");
    bot.update("wider", &[OTHER]).await;
    assert!(bot.answer(pull).contains(": planned\n"));
    bot.nothing_happens_for(79).await;
    assert_eq!(bot.read_comments(pull), [""; 0], "and again");
    bot.end(&[LOCK]).await;
}

async fn a_lock_is_kept_while_its_pull_request_is_worked_on(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.push("wider", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    for _ in 0..3 {
        bot.db
            .clock
            .advance_to(bot.db.now() + TimeDelta::hours(100));
        bot.replica.tick_leases().await.unwrap();
        assert_eq!(
            bot.replica.tick("idle_locks").await.unwrap(),
            TickResult {
                looked_at: 1,
                repaired: 0
            }
        );
    }
    bot.go();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.nothing_happens_for(79).await;
    assert!(
        bot.answer(pull).contains(": planned\n"),
        "no warning: the time began with the end of the plan"
    );
    bot.end(&[LOCK]).await;
}

async fn what_was_applied_and_not_merged_is_warned_of(backend: Backend) {
    let (mut bot, pull) = planned(backend).await;
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.answer(pull).contains(": applied\n"));
    bot.nothing_happens_for(80).await;
    bot.nothing_happens_for(20).await;
    let heard = bot.read_comments(pull);
    assert!(
        heard[1].contains("Changes of this pull request were applied"),
        "{heard:#?}"
    );
    bot.end(&[]).await;
}

async fn without_a_limit_locks_are_kept(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.answer(pull);
    bot.nothing_happens_for(24 * 365).await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    assert_eq!(bot.github.comments(REPO, pull).unwrap().len(), 1);
    bot.end(&[LOCK]).await;
}
