//! Stories about the queue of a lock: people who wait need not come back to ask.

use insta::assert_snapshot;
use lockkeeper::emulator::Change;
use lockkeeper::kit::reconcile::TickResult;
use lockkeeper::model::PullNumber;
use lockkeeper::queue::Tick;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    the_next_in_the_queue_is_planned_automatically_when_the_lock_is_free,
    statuses_are_pending_until_the_turn_comes_or_is_given_up,
    whoever_waits_is_told_who_has_the_lock_now,
    a_new_commit_keeps_the_place_and_unlock_gives_it_up,
    arguments_of_the_one_who_waits_are_kept,
    two_pull_requests_that_want_each_others_lock_do_not_wait_for_ever,
    a_pull_request_that_needs_the_project_no_longer_passes_its_turn_on,
    a_turn_that_is_cancelled_passes_to_the_next_in_the_queue,
    a_push_takes_the_place_of_a_turn_and_keeps_its_lock,
    a_push_that_took_the_place_of_a_turn_and_is_cancelled_passes_it_on,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const OTHER: (&str, &str) = ("network/app.tf", "# fake: add 0 change 3 destroy 0\n");
const THIRD: (&str, &str) = ("network/aaa.tf", "# fake: add 7 change 0 destroy 0\n");

/// Opens three pull requests over `network`: the first has the lock, the others are queued.
async fn three(backend: Backend) -> (Bot, [PullNumber; 3]) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let first = bot.open_pull("first", &[WIDER]).await;
    bot.read_comments(first);
    let second = bot.open_pull("second", &[OTHER]).await;
    let third = bot.open_pull("third", &[THIRD]).await;
    (bot, [first, second, third])
}

async fn the_next_in_the_queue_is_planned_automatically_when_the_lock_is_free(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    assert_snapshot!(bot.comment(second), @"
    Ran Plan for dir: `network` workspace: `default`: waiting

    **Plan waits**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (planned when the pull request changed).

    This pull request is **next in the queue**. It is planned automatically when its turn comes. To leave the queue, comment `lockkeeper unlock` here.

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `d8765de0` · 0 s</sub>
    ");
    assert_snapshot!(bot.comment(third), @"
    Ran Plan for dir: `network` workspace: `default`: waiting

    **Plan waits**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (planned when the pull request changed).

    This pull request is **number 2 in the queue**. It is planned automatically when its turn comes. To leave the queue, comment `lockkeeper unlock` here.

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `0aac10a7` · 0 s</sub>
    ");
    bot.merge(first).await;
    bot.read_comments(first);
    assert_snapshot!(bot.comment(second), @"
    Ran Plan for dir: `network` workspace: `default`: planned

    The lock became free: this pull request was next in the queue after pull request 1.

    **Plan: 0 to add, 3 to change, 0 to destroy.**

    3 to update:

    * update `terraform_data.other[1]`
    * update `terraform_data.other[2]`
    * update `terraform_data.other[3]`

    <details><summary>Output (7 lines)</summary>

    ```diff
    Terraform will perform the following actions:

      # terraform_data.other[1] will be updated in-place
      # terraform_data.other[2] will be updated in-place
      # terraform_data.other[3] will be updated in-place

    Plan: 0 to add, 3 to change, 0 to destroy.
    ```

    </details>

    * To **apply** this plan, comment:
      ```shell
      lockkeeper apply -d network
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `d8765de0` · 0 s</sub>
    ");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn statuses_are_pending_until_the_turn_comes_or_is_given_up(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    assert_snapshot!(bot.statuses(second), @"
    lockkeeper/plan: Pending, Waiting for #1 (alice), next in the queue.
    lockkeeper/plan: network/default: Pending, Waiting for #1 (alice), next in the queue.
    ");
    assert_snapshot!(bot.statuses(third), @"
    lockkeeper/plan: Pending, Waiting for #1 (alice), number 2 in the queue.
    lockkeeper/plan: network/default: Pending, Waiting for #1 (alice), number 2 in the queue.
    ");
    assert!(
        bot.machine_line(second)
            .contains(r#""outcome":"waiting","projects":[{"#),
        "{}",
        bot.machine_line(second)
    );
    // The reconciler keeps statuses that must stay pending.
    assert_eq!(
        bot.replica.tick("pending_statuses").await.unwrap(),
        TickResult::default()
    );
    bot.read_comments(second);
    bot.read_comments(third);

    bot.say(second, "lockkeeper unlock").await;
    bot.answer(second);
    assert_snapshot!(bot.statuses(second), @"
    lockkeeper/plan: Failure, 1/1 projects failed to plan.
    lockkeeper/plan: network/default: Failure, No longer queued for the lock: plan again.
    ");
    assert_snapshot!(bot.statuses(third), @"
    lockkeeper/plan: Pending, Waiting for #1 (alice), next in the queue.
    lockkeeper/plan: network/default: Pending, Waiting for #1 (alice), next in the queue.
    ");
    bot.merge(first).await;
    bot.read_comments(first);
    bot.answer(third);
    assert!(
        bot.statuses(third)
            .contains("lockkeeper/plan: Success, 1/1 projects planned successfully.\n")
    );
    bot.end(&["acme/infra/network/default by #3"]).await;
}

async fn whoever_waits_is_told_who_has_the_lock_now(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.read_comments(second);
    bot.read_comments(third);
    bot.merge(first).await;
    bot.read_comments(first);
    bot.answer(second);
    assert_snapshot!(bot.statuses(third), @"
    lockkeeper/plan: Pending, Waiting for #2 (alice), next in the queue.
    lockkeeper/plan: network/default: Pending, Waiting for #2 (alice), next in the queue.
    ");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_new_commit_keeps_the_place_and_unlock_gives_it_up(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.read_comments(second);
    bot.read_comments(third);
    bot.push(
        "second",
        &[("network/app.tf", "# fake: add 0 change 4 destroy 0\n")],
    )
    .await;
    bot.settle_short().await;
    bot.settle().await;
    assert!(bot.comment(second).contains("**next in the queue**"));
    bot.say(second, "lockkeeper unlock").await;
    assert_snapshot!(bot.comment(second), @"
    Ran Unlock for 1 project

    * dir: `network` workspace: `default`: no longer queued for the lock

    To **plan** again, comment:

    ```shell
    lockkeeper plan
    ```
    ");
    bot.say(first, "lockkeeper unlock").await;
    bot.read_comments(first);
    assert!(
        bot.comment(third)
            .contains("next in the queue after pull request 1")
    );
    bot.end(&["acme/infra/network/default by #3"]).await;
}

async fn arguments_of_the_one_who_waits_are_kept(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.read_comments(second);
    bot.read_comments(third);
    bot.say(second, "lockkeeper plan -d network -- -refresh=false")
        .await;
    bot.read_comments(second);
    let before = bot.calls().len();
    bot.say(first, "lockkeeper unlock").await;
    bot.read_comments(first);
    let planned = bot.comment(second);
    assert!(
        planned.contains("lockkeeper plan -d network -- '-refresh=false'"),
        "{planned}"
    );
    assert_eq!(bot.calls()[before..], ["init network", "plan network"]);
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn two_pull_requests_that_want_each_others_lock_do_not_wait_for_ever(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let app = ("app/main.tf", "# fake: add 1 change 0 destroy 0\n");
    let first = bot.open_pull("first", &[WIDER]).await;
    let second = bot.open_pull("second", &[app]).await;
    bot.read_comments(first);
    bot.read_comments(second);
    bot.push(
        "first",
        &[("app/more.tf", "# fake: add 2 change 0 destroy 0\n")],
    )
    .await;
    bot.settle().await;
    bot.read_comments(first);
    bot.push("second", &[OTHER]).await;
    bot.settle().await;
    assert_snapshot!(bot.comment(second), @"
    Ran Plan for 2 projects: 2 waiting

    The lock of dir: `app` workspace: `default` was handed over to another pull request, because the two would have waited for each other forever. This pull request is queued for the lock now. A plan under the lock was discarded.

    | | Project | Outcome |
    |:-:|:--|:--|
    | ⏳ | `app` | [waiting](https://locks.example.com/jobs/ID) |
    | ⏳ | `network` | [waiting](https://locks.example.com/jobs/ID) |

    ---

    ### ⏳ dir: `app` workspace: `default`

    **Plan waits**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (next in the queue after pull request 2).

    This pull request is **next in the queue**. It is planned automatically when its turn comes. To leave the queue, comment `lockkeeper unlock` here.

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### ⏳ dir: `network` workspace: `default`

    **Plan waits**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (planned when the pull request changed).

    This pull request is **next in the queue**. It is planned automatically when its turn comes. To leave the queue, comment `lockkeeper unlock` here.

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    [Output of this project](https://locks.example.com/jobs/ID)

    <sub>Commit `53d617ee` · 0 s</sub>
    ");
    let planned = bot.comment(first);
    assert!(
        planned.contains("this pull request was next in the queue after pull request 2."),
        "{planned}"
    );
    bot.merge(first).await;
    bot.read_comments(first);
    assert!(
        bot.comment(second)
            .starts_with("Ran Plan for 2 projects: 2 planned\n")
    );
    bot.end(&[
        "acme/infra/app/default by #2",
        "acme/infra/network/default by #2",
    ])
    .await;
}

async fn a_pull_request_that_needs_the_project_no_longer_passes_its_turn_on(backend: Backend) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.read_comments(second);
    bot.read_comments(third);
    let elsewhere = Change::write("app/main.tf", "# fake: add 1 change 0 destroy 0\n");
    bot.github
        .push(REPO, "second", &[Change::delete(OTHER.0), elsewhere])
        .await
        .unwrap();
    bot.settle().await;
    bot.read_comments(second);
    bot.say(first, "lockkeeper unlock").await;
    bot.read_comments(first);
    assert!(
        bot.comment(third)
            .contains("next in the queue after pull request 1")
    );
    bot.end(&[
        "acme/infra/app/default by #2",
        "acme/infra/network/default by #3",
    ])
    .await;
}

/// Merges the first pull request. The second gets its lock; the plan that follows has not begun.
async fn at_the_turn_of_the_second(backend: Backend) -> (Bot, [PullNumber; 3]) {
    let (mut bot, [first, second, third]) = three(backend).await;
    bot.read_comments(second);
    bot.read_comments(third);
    bot.github.merge(REPO, first, "alice").await.unwrap();
    bot.settle_short().await;
    bot.read_comments(first);
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #2"]);
    (bot, [first, second, third])
}

async fn a_turn_that_is_cancelled_passes_to_the_next_in_the_queue(backend: Backend) {
    let (mut bot, [_, second, third]) = at_the_turn_of_the_second(backend).await;
    bot.github
        .comment(REPO, second, "alice", "lockkeeper cancel")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.settle().await;
    let told = bot.read_comments(second);
    assert!(
        told.iter()
            .any(|text| text.contains("Ran Cancel for 1 command")),
        "{told:#?}"
    );
    assert!(
        told.iter()
            .any(|text| text.contains("before its turn came. Nothing was run.")),
        "{told:#?}"
    );
    assert_eq!(bot.pending(second), [""; 0]);
    assert!(bot.comment(third).contains(": planned\n"));
    bot.end(&["acme/infra/network/default by #3"]).await;
}

async fn a_push_that_took_the_place_of_a_turn_and_is_cancelled_passes_it_on(backend: Backend) {
    let (mut bot, [_, second, third]) = at_the_turn_of_the_second(backend).await;
    bot.push(
        "second",
        &[("network/app.tf", "# fake: add 0 change 4 destroy 0\n")],
    )
    .await;
    bot.settle_short().await;
    // The turn ends without a comment, because the push is planned next.
    assert_eq!(bot.replica.tick_command().await.unwrap(), Tick::Worked);
    assert_eq!(bot.read_comments(second), [""; 0]);
    bot.github
        .comment(REPO, second, "alice", "lockkeeper cancel")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.settle().await;
    assert_eq!(
        bot.read_comments(second).len(),
        2,
        "the answer to `cancel`, and the end of the plan"
    );
    assert_eq!(bot.pending(second), [""; 0]);
    assert!(bot.comment(third).contains(": planned\n"));
    bot.end(&["acme/infra/network/default by #3"]).await;
}

async fn a_push_takes_the_place_of_a_turn_and_keeps_its_lock(backend: Backend) {
    let (mut bot, [_, second, third]) = at_the_turn_of_the_second(backend).await;
    bot.push(
        "second",
        &[("network/app.tf", "# fake: add 0 change 4 destroy 0\n")],
    )
    .await;
    bot.settle_short().await;
    bot.settle().await;
    let told = bot.read_comments(second);
    assert!(
        told.len() == 1 && told[0].contains("4 to change"),
        "{told:#?}"
    );
    assert_eq!(bot.read_comments(third), [""; 0], "it still waits");
    bot.end(&["acme/infra/network/default by #2"]).await;
}
