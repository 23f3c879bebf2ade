//! Stories about two pull requests and one project: who has the lock, since when, why, and how the other one gets it.

use insta::assert_snapshot;
use lockkeeper::model::PullNumber;

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    the_second_pull_request_is_told_who_holds_the_lock,
    other_projects_of_the_second_pull_request_are_planned,
    after_unlock_the_other_pull_request_can_plan,
    after_a_merge_the_other_pull_request_can_plan,
    another_workspace_of_the_directory_is_no_conflict,
    the_same_pull_request_has_its_lock_as_often_as_it_likes,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/app.tf", "# fake: add 0 change 3 destroy 0\n");

/// Starts a bot with two pull requests over `network`. The first has the lock.
async fn two(backend: Backend) -> (Bot, PullNumber, PullNumber) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[OTHER]).await;
    bot.read_comments(first);
    (bot, first, second)
}

async fn the_second_pull_request_is_told_who_holds_the_lock(backend: Backend) {
    let (mut bot, _, second) = two(backend).await;
    assert_snapshot!(bot.comment(second), @"
    Ran Plan for dir: `network` workspace: `default`: waiting

    **Plan waits**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (planned when the pull request changed).

    This pull request is **next in the queue**. It is planned automatically when its turn comes. To leave the queue, comment `lockkeeper unlock` here.

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `d8765de0` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(second), @"
    lockkeeper/plan: Pending, Waiting for #1 (alice), next in the queue.
    lockkeeper/plan: network/default: Pending, Waiting for #1 (alice), next in the queue.
    ");
    let line = bot.machine_line(second);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"autoplan","id":"ID","pull":2,"head":"d8765de0d494951c5c1071f34484f324b3ba4c25","outcome":"waiting","projects":[{"name":null,"dir":"network","workspace":"default","outcome":"waiting","plan":null}]} -->"#);
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn other_projects_of_the_second_pull_request_are_planned(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    bot.read_comments(first);
    let second = bot
        .open_pull(
            "second",
            &[OTHER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    assert_snapshot!(bot.comment(second), @r#"
    Ran Plan for 2 projects: 1 waiting, 1 planned

    | | Project | Outcome | + | ~ | - |
    |:-:|:--|:--|--:|--:|--:|
    | ⏳ | `network` | [waiting](https://locks.example.com/jobs/ID) | | | |
    | 📝 | `app` | [planned](https://locks.example.com/jobs/ID) | 1 | 0 | 0 |

    ---

    ### ⏳ dir: `network` workspace: `default`

    **Plan waits**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (planned when the pull request changed).

    This pull request is **next in the queue**. It is planned automatically when its turn comes. To leave the queue, comment `lockkeeper unlock` here.

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### 📝 dir: `app` workspace: `default`

    **Plan: 1 to add, 0 to change, 0 to destroy.**

    1 to create:

    * create `terraform_data.it`

    <details><summary>Output (8 lines)</summary>

    ```diff
    Terraform will perform the following actions:

      # terraform_data.it will be created
    + resource "terraform_data" "it" {
          + id = (known after apply)
        }

    Plan: 1 to add, 0 to change, 0 to destroy.
    ```

    </details>

    * To **apply** this plan, comment:
      ```shell
      lockkeeper apply -d app
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d app
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID)

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    * To **apply** all plans of this pull request, comment:
      ```shell
      lockkeeper apply
      ```
    * To **discard** all its plans and release its locks, comment:
      ```shell
      lockkeeper unlock
      ```

    <sub>Commit `034f9036` · 0 s</sub>
    "#);
    bot.end(&[
        "acme/infra/app/default by #2",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn after_unlock_the_other_pull_request_can_plan(backend: Backend) {
    let (mut bot, first, second) = two(backend).await;
    bot.read_comments(second);
    bot.say(first, "lockkeeper unlock").await;
    bot.read_comments(first);
    bot.read_comments(second);
    bot.say(second, "lockkeeper plan -d network").await;
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    assert_snapshot!(bot.statuses(second), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 0 to add, 3 to change, 0 to destroy.
    ");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn after_a_merge_the_other_pull_request_can_plan(backend: Backend) {
    let (mut bot, first, second) = two(backend).await;
    bot.read_comments(second);
    bot.merge(first).await;
    assert_snapshot!(bot.comment(first), @"
    This pull request was merged: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    ");
    bot.read_comments(second);
    bot.say(second, "lockkeeper plan").await;
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn another_workspace_of_the_directory_is_no_conflict(backend: Backend) {
    let (mut bot, _, second) = two(backend).await;
    bot.read_comments(second);
    bot.say(second, "lockkeeper plan -d network -w staging")
        .await;
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for dir: `network` workspace: `staging`: planned\n")
    );
    bot.end(&[
        "acme/infra/network/default by #1",
        "acme/infra/network/staging by #2",
    ])
    .await;
}

async fn the_same_pull_request_has_its_lock_as_often_as_it_likes(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("first", &[WIDER]).await;
    let lock = bot.store().lock_list().await.unwrap().remove(0);
    bot.say(pull, "lockkeeper plan").await;
    bot.say(pull, "lockkeeper plan -d network").await;
    let comments = bot.comments(pull);
    assert!(
        comments
            .iter()
            .all(|c| c.starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"))
    );
    assert_eq!(bot.store().lock_list().await.unwrap(), [lock]);
    bot.end(&["acme/infra/network/default by #1"]).await;
}
