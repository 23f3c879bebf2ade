//! Stories about the mode and the scope of locks. Their results differ if the mode or the scope has no effect.

use crate::stories::NETWORK;
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    with_on_apply_a_plan_takes_no_lock_and_the_first_to_apply_takes_it,
    with_on_apply_the_second_applies_after_the_first_was_merged_and_planned_again,
    with_scope_project_two_projects_of_a_directory_have_locks_of_their_own,
    with_scope_workspace_two_projects_of_a_directory_share_a_lock,
);

const ON_APPLY: (&str, &str) = (
    "repo-config-json",
    r#"{"repos": [{"id": "/.*/", "repo_locks": {"mode": "on_apply"}}]}"#,
);
const BY_PROJECT: (&str, &str) = (
    "repo-config-json",
    r#"{"repos": [{"id": "/.*/", "repo_locks": {"scope": "project"}}]}"#,
);
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/app.tf", "# fake: add 0 change 3 destroy 0\n");
/// Two projects of one directory and workspace, each with its own files.
const TWO: (&str, &str) = (
    "atlantis.yaml",
    "version: 3\nprojects:\n\
     - {name: core, dir: network, autoplan: {when_modified: [core.tf]}}\n\
     - {name: edge, dir: network, autoplan: {when_modified: [edge.tf]}}\n",
);

fn first_line(comment: &str) -> &str {
    comment.lines().next().unwrap()
}

async fn with_on_apply_a_plan_takes_no_lock_and_the_first_to_apply_takes_it(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[ON_APPLY]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[OTHER]).await;
    for pull in [first, second] {
        assert_eq!(
            first_line(&bot.comment(pull)),
            "Ran Plan for dir: `network` workspace: `default`: planned"
        );
    }
    assert_eq!(bot.locks().await, [""; 0]);
    bot.say(first, "lockkeeper apply").await;
    assert_eq!(
        first_line(&bot.comment(first)),
        "Ran Apply for dir: `network` workspace: `default`: applied"
    );
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);
    bot.say(second, "lockkeeper apply").await;
    let comment = bot.comment(second);
    assert_eq!(
        first_line(&comment),
        "Ran Apply for dir: `network` workspace: `default`: locked"
    );
    let why = "**Apply refused**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and \
               workspace. `alice` has had it since 2026-03-02 09:00 UTC";
    assert!(
        comment.lines().nth(2).unwrap().starts_with(why),
        "{comment}"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn with_on_apply_the_second_applies_after_the_first_was_merged_and_planned_again(
    backend: Backend,
) {
    let mut bot = Bot::with(backend, &[NETWORK], &[ON_APPLY]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[OTHER]).await;
    bot.say(first, "lockkeeper apply").await;
    bot.merge(first).await;
    assert_eq!(bot.locks().await, [""; 0]);
    bot.read_comments(first);
    bot.read_comments(second);
    bot.say(second, "lockkeeper plan").await;
    bot.read_comments(second);
    bot.say(second, "lockkeeper apply").await;
    assert_eq!(
        first_line(&bot.comment(second)),
        "Ran Apply for dir: `network` workspace: `default`: applied"
    );
    bot.end(&["acme/infra/network/default by #2"]).await;
}

/// Opens two pull requests. Each changes another project of one directory.
async fn two_projects(backend: Backend, flags: &[(&str, &str)]) -> (Bot, [String; 2]) {
    let mut bot = Bot::with(backend, &[NETWORK, TWO], flags).await;
    let core = bot
        .open_pull("core", &[("network/core.tf", "# core\n")])
        .await;
    let edge = bot
        .open_pull("edge", &[("network/edge.tf", "# edge\n")])
        .await;
    let said = [core, edge].map(|pull| first_line(&bot.comment(pull)).to_owned());
    (bot, said)
}

async fn with_scope_project_two_projects_of_a_directory_have_locks_of_their_own(backend: Backend) {
    let (bot, said) = two_projects(backend, &[BY_PROJECT]).await;
    assert_eq!(
        said,
        [
            "Ran Plan for project: `core` dir: `network` workspace: `default`: planned",
            "Ran Plan for project: `edge` dir: `network` workspace: `default`: planned"
        ]
    );
    let locks = bot.locks().await;
    assert_eq!(locks.len(), 2, "{locks:?}");
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    bot.end(&locks).await;
}

async fn with_scope_workspace_two_projects_of_a_directory_share_a_lock(backend: Backend) {
    let (bot, said) = two_projects(backend, &[]).await;
    assert_eq!(
        said,
        [
            "Ran Plan for project: `core` dir: `network` workspace: `default`: planned",
            "Ran Plan for project: `edge` dir: `network` workspace: `default`: waiting"
        ]
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}
