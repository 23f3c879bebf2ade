//! Stories about comments while a run of the pull request is in progress: each is accepted, acknowledged, and
//! answered in turn.

use lockkeeper::emulator::{Fault, NewPull};
use lockkeeper::queue::Tick;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, LOGIN, REPO};
use crate::support::db::{Backend, story};

story!(
    comments_during_a_run_are_reacted_to_at_once_and_answered_in_order,
    a_reaction_that_fails_is_tried_again_and_holds_nothing_up,
    what_is_no_command_gets_no_reaction,
    an_unlock_is_answered_at_once_although_every_worker_is_taken_by_commands_that_wait,
);

const EYES: [(&str, &str); 1] = [("emoji-reaction", "eyes")];

fn eyes(bot: &Bot, comment: u64) -> bool {
    bot.github.reactions(REPO, comment).unwrap() == [(LOGIN.to_owned(), "eyes".to_owned())]
}

async fn comments_during_a_run_are_reacted_to_at_once_and_answered_in_order(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &EYES).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    let first = bot
        .github
        .comment(REPO, pull, "alice", "lockkeeper plan -d app")
        .await
        .unwrap();
    let second = bot
        .github
        .comment(REPO, pull, "bob", "lockkeeper unlock")
        .await
        .unwrap();
    bot.settle_short().await;
    assert!(eyes(&bot, first) && eyes(&bot, second));
    assert!(
        bot.read_comments(pull).is_empty(),
        "nobody is told to come back later"
    );
    bot.go();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.comments(pull);
    assert!(
        told[0].starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"),
        "{}",
        told[0]
    );
    assert!(
        told[1].starts_with("Ran Plan for dir: `app` workspace: `default`: planned\n"),
        "{}",
        told[1]
    );
    assert!(
        told[2].starts_with("Ran Unlock for 2 projects\n"),
        "{}",
        told[2]
    );
    assert_eq!(told.len(), 3);
    bot.end(&[]).await;
}

async fn a_reaction_that_fails_is_tried_again_and_holds_nothing_up(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &EYES).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.github.fault(
        "POST /repos/*/*/issues/comments/*/reactions",
        2,
        Fault::BadGateway,
    );
    let comment = bot
        .github
        .comment(REPO, pull, "alice", "lockkeeper unlock")
        .await
        .unwrap();
    bot.settle().await;
    assert!(eyes(&bot, comment));
    assert!(
        bot.comment(pull)
            .starts_with("Ran Unlock: this pull request holds no lock")
    );
    bot.end(&[]).await;
}

async fn what_is_no_command_gets_no_reaction(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &EYES).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    for text in ["Looks good.", "lockkeeper paln"] {
        let comment = bot.github.comment(REPO, pull, "alice", text).await.unwrap();
        bot.settle().await;
        assert!(!eyes(&bot, comment), "{text}");
    }
    assert!(bot.comment(pull).contains("`paln` is not a command"));
    bot.end(&[]).await;
}

/// The pool has one permit, and more commands wait than one repository may run at once. They occupy all workers that
/// it may use.
async fn an_unlock_is_answered_at_once_although_every_worker_is_taken_by_commands_that_wait(
    backend: Backend,
) {
    const WAITING: usize = 20;
    let mut bot = Bot::with(backend, &[NETWORK], &[("parallel-pool-size", "1")]).await;
    let first = bot
        .open_pull("first", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(first);
    for n in 0..WAITING {
        let (branch, file) = (format!("p{n}"), format!("d{n}/main.tf"));
        bot.push(&branch, &[(&file, "# fake: wait plan\n")]).await;
        bot.github
            .open_pull(REPO, NewPull::from_branch(&branch))
            .await
            .unwrap();
    }
    bot.settle_short().await;
    let begun: Vec<_> = (0..WAITING).map(|_| bot.begin_command()).collect();
    bot.printed("waiting").await;
    bot.github
        .comment(REPO, first, "alice", "lockkeeper unlock")
        .await
        .unwrap();
    bot.settle_short().await;
    let queued = bot.store().job_list_open().await.unwrap();
    assert!(
        queued
            .iter()
            .filter(|job| job.kind == "run_command")
            .count()
            > WAITING,
        "{queued:?}"
    );
    assert_eq!(bot.replica.tick_answer().await.unwrap(), Tick::Worked);
    bot.settle_short().await;
    let told = bot.answer(first);
    assert!(
        told.starts_with("Ran Unlock") && !told.contains("holds no lock"),
        "{told}"
    );
    assert_eq!(
        bot.replica.tick_answer().await.unwrap(),
        Tick::Idle,
        "a plan is nothing for this worker"
    );
    bot.go();
    for command in begun {
        let _worked_or_found_no_room = command.await.unwrap();
    }
    bot.settle().await;
    let held: Vec<_> = (0..WAITING)
        .map(|n| format!("acme/infra/d{n}/default by #{}", n + 2))
        .collect();
    let mut held: Vec<_> = held.iter().map(String::as_str).collect();
    held.sort_unstable();
    for n in 0..WAITING {
        let said = bot.read_comments(lockkeeper::model::PullNumber(i64::try_from(n).unwrap() + 2));
        assert!(
            matches!(&said[..], [plan] if plan.starts_with("Ran Plan") && plan.contains("Plan:")),
            "{said:?}"
        );
    }
    bot.end(&held).await;
}
