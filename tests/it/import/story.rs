//! Stories about the day of the migration: locks of Atlantis are held here, prevent other plans, and are released as
//! usual.

use super::{fixture, import, locks};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    a_lock_that_was_taken_over_is_respected_and_comes_free_when_its_pull_is_merged,
    importing_twice_takes_nothing_new,
    a_trial_leaves_the_database_as_it_was,
    a_lock_that_another_pull_holds_here_is_a_conflict_and_stays,
    a_closed_pull_gets_no_lock,
    a_pull_whose_close_was_missed_is_freed_by_the_reconciler,
);

const NETWORK: (&str, &str) = ("network/main.tf", "resource \"terraform_data\" \"it\" {}\n");
const OTHER: (&str, &str) = ("network/main.tf", "# fake: add 0 change 3 destroy 0\n");
const README: (&str, &str) = ("README.md", "Nothing to plan.\n");

fn file() -> String {
    fixture("story.db").display().to_string()
}

/// Starts a bot with a pull request #1 without locks. Atlantis' file says that it holds `network`.
async fn moved(backend: Backend) -> Bot {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[README]).await;
    assert_eq!(first.0, 1);
    bot.read_comments(first);
    bot
}

async fn a_lock_that_was_taken_over_is_respected_and_comes_free_when_its_pull_is_merged(
    backend: Backend,
) {
    let mut bot = moved(backend).await;
    let said = import(&bot.db.url, &["--boltdb", &file(), "--write"], &[]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(
        said.out
            .contains("Everything was written, and read back without a difference."),
        "{}",
        said.out
    );
    let second = bot.open_pull("second", &[OTHER]).await;
    let refusal = bot.comment(second);
    assert!(
        refusal
            .contains("`carol` has had it since 2026-02-27 13:03 UTC (taken over from Atlantis)."),
        "{refusal}"
    );
    assert!(
        refusal.contains("[#1](https://github.test/acme/infra/pull/1) holds the lock"),
        "{refusal}"
    );
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);

    bot.merge(lockkeeper::model::PullNumber(1)).await;
    bot.read_comments(lockkeeper::model::PullNumber(1));
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn importing_twice_takes_nothing_new(backend: Backend) {
    let bot = moved(backend).await;
    let args = ["--boltdb", &file(), "--write", "--json"];
    assert_eq!(
        locks(&import(&bot.db.url, &args, &[])),
        ["taken acme/infra/network/default/"]
    );
    let before = bot.store().lock_list().await.unwrap();
    let again = import(&bot.db.url, &args, &[]);
    assert_eq!(
        (again.code, locks(&again)),
        (
            0,
            vec!["already_there acme/infra/network/default/".to_owned()]
        )
    );
    assert_eq!(again.json()["verified"], true);
    assert_eq!(bot.store().lock_list().await.unwrap(), before);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_trial_leaves_the_database_as_it_was(backend: Backend) {
    let bot = moved(backend).await;
    let said = import(&bot.db.url, &["--boltdb", &file(), "--json"], &[]);
    assert_eq!(
        (said.code, locks(&said)),
        (0, vec!["taken acme/infra/network/default/".to_owned()])
    );
    assert_eq!(
        (
            said.json()["written"].clone(),
            said.json()["verified"].clone()
        ),
        (false.into(), ().into())
    );
    bot.end(&[]).await;
}

async fn a_lock_that_another_pull_holds_here_is_a_conflict_and_stays(backend: Backend) {
    let mut bot = moved(backend).await;
    let second = bot.open_pull("second", &[OTHER]).await;
    bot.read_comments(second);
    let said = import(&bot.db.url, &["--boltdb", &file(), "--write"], &[]);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(
        said.out.contains(
            "github.test/acme/infra#2 has held the lock since 2026-03-02 09:00 UTC, for alice"
        ),
        "{}",
        said.out
    );
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_closed_pull_gets_no_lock(backend: Backend) {
    let mut bot = moved(backend).await;
    let first = lockkeeper::model::PullNumber(1);
    bot.merge(first).await;
    bot.read_comments(first);
    let said = import(&bot.db.url, &["--boltdb", &file(), "--write"], &[]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(
        said.out.contains("the pull request was merged"),
        "{}",
        said.out
    );
    bot.end(&[]).await;
}

async fn a_pull_whose_close_was_missed_is_freed_by_the_reconciler(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.push("first", &[README]).await;
    bot.github
        .set_delivering(lockkeeper::emulator::Delivering::Held)
        .await;
    let first = bot
        .github
        .open_pull(
            "acme/infra",
            lockkeeper::emulator::NewPull::from_branch("first"),
        )
        .await
        .unwrap();
    bot.github
        .merge("acme/infra", first, "alice")
        .await
        .unwrap();
    let said = import(&bot.db.url, &["--boltdb", &file(), "--write"], &[]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);
    bot.replica.tick("closed_pulls").await.unwrap();
    assert!(bot.locks().await.is_empty());
    bot.settle().await;
    bot.read_comments(first);
    bot.end(&[]).await;
}
