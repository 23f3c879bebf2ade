//! Stories about pull requests that were made before others were merged: the plan includes their changes, or says
//! that it lacks them.

use insta::assert_snapshot;

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    what_was_merged_is_part_of_the_plan,
    a_plan_of_the_branch_says_what_it_lacks,
    the_plan_of_a_turn_says_what_it_lacks,
    what_concerns_no_project_of_the_pull_request_is_not_mentioned,
);

const BRANCH: (&str, &str) = ("checkout-strategy", "branch");
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
/// A file that the first pull request does not change, so that both can be merged.
const BESIDE: (&str, &str) = ("network/outputs.tf", "# nothing yet\n");

async fn what_was_merged_is_part_of_the_plan(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[BESIDE]).await;
    bot.read_comments(second);
    bot.say(first, "lockkeeper apply").await;
    bot.merge(first).await;
    let comment = bot.comment(second);
    assert!(
        comment.starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"),
        "{comment}"
    );
    assert!(
        comment.contains("**Plan: 2 to add, 1 to change, 0 to destroy.**"),
        "{comment}"
    );
    bot.read_comments(first);
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_plan_of_the_branch_says_what_it_lacks(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[BRANCH]).await;
    let second = bot
        .open_pull("second", &[BESIDE, ("app/outputs.tf", "# nothing yet\n")])
        .await;
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for 2 projects: 2 planned\n")
    );
    bot.push("main", &[WIDER]).await;
    bot.say(second, "lockkeeper plan").await;
    let comment = bot.comment(second);
    assert_snapshot!(comment.lines().take(3).collect::<Vec<_>>().join("\n"), @"
    Ran Plan for 2 projects, behind `main`: 2 planned

    This branch does not include changes to `network` that were merged into `main` since it branched off: `85684520` Update network/main.tf. Applying a plan without them may undo them. Merge `main` into this branch or rebase it; the push is planned automatically.
    ");
    bot.say(second, "lockkeeper plan -d app").await;
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for dir: `app` workspace: `default`: planned\n")
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn the_plan_of_a_turn_says_what_it_lacks(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[BRANCH]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[BESIDE]).await;
    bot.read_comments(second);
    bot.say(first, "lockkeeper apply").await;
    bot.merge(first).await;
    bot.read_comments(first);
    let comment = bot.comment(second);
    assert_snapshot!(comment.lines().take(5).collect::<Vec<_>>().join("\n"), @"
    Ran Plan for dir: `network` workspace: `default`, behind `main`: planned

    The lock became free: this pull request was next in the queue after pull request 1.

    This branch does not include changes to this project that were merged into `main` since it branched off: `091c30d5` Merge pull request #&#8203;1 from acme/first. Applying a plan without them may undo them. Merge `main` into this branch or rebase it; the push is planned automatically.
    ");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn what_concerns_no_project_of_the_pull_request_is_not_mentioned(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[BRANCH]).await;
    let pull = bot.open_pull("second", &[BESIDE]).await;
    bot.read_comments(pull);
    bot.push(
        "main",
        &[
            ("app/main.tf", "# fake: add 1 change 0 destroy 0\n"),
            ("network/README.md", "text\n"),
        ],
    )
    .await;
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}
