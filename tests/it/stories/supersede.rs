//! Stories about a push during a waiting or running command: the newest commit is planned, and no comment is about an
//! older.

use insta::assert_snapshot;
use lockkeeper::model::{CommitSha, PullNumber};
use lockkeeper::queue::Tick;
use tokio::task::JoinHandle;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};
use crate::support::rows::recent_runs;

story!(
    a_push_during_a_plan_takes_its_place,
    a_plan_of_a_command_that_is_superseded_is_discarded,
    a_push_while_a_plan_waits_takes_its_place_and_leaves_the_apply_alone,
    a_push_after_a_crash_takes_the_place_of_the_plan_that_was_cut_off,
    whoever_asked_for_the_plan_that_was_replaced_is_answered_by_the_newer_one,
    whoever_asked_is_answered_although_the_newer_plan_is_cancelled_before_it_begins,
    a_plan_of_one_project_is_made_again_on_the_newest_commit,
    a_plan_of_one_project_that_waits_sees_the_newest_commit,
    nothing_is_replaced_where_planning_by_itself_is_switched_off,
    a_plan_that_waits_while_the_pull_request_is_closed_and_opened_again_is_made,
);

const LOCK: &str = "acme/infra/network/default by #1";
const WAITS: (&str, &str) = ("network/main.tf", "# fake: wait plan\n");
const NEWER: (&str, &str) = ("network/main.tf", "# fake: add 0 change 0 destroy 4\n");

/// Opens a pull request whose plan has begun.
async fn planning(
    backend: Backend,
    main: &str,
    flags: &[(&str, &str)],
) -> (Bot, PullNumber, CommitSha) {
    let bot = Bot::with(backend, &[NETWORK, APP], flags).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", main)])
        .await;
    let head = bot.github.pull(REPO, pull).unwrap().head;
    (bot, pull, head)
}

/// Returns the statuses of any commit, one per line.
fn statuses_of(bot: &Bot, commit: &CommitSha) -> String {
    let statuses = bot.github.statuses(REPO, commit).unwrap().latest;
    let line = |status: &lockkeeper::emulator::ShaStatus| {
        format!(
            "{}: {:?}, {}\n",
            status.context,
            status.state,
            status.description.as_deref().unwrap_or_default()
        )
    };
    let mut lines: Vec<String> = statuses.iter().map(line).collect();
    lines.sort();
    lines.concat()
}

/// The first project is planned when the push arrives, and no comment shows that plan.
async fn a_plan_of_a_command_that_is_superseded_is_discarded(backend: Backend) {
    const ORDER: (&str, &str) = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- name: app\n  dir: app\n- name: net\n  dir: network\n  execution_order_group: 1\n",
    );
    let mut bot = Bot::new(backend, &[NETWORK, APP, ORDER]).await;
    let pull = bot
        .announce_pull("wider", &[WAITS, ("app/main.tf", "# wide\n")])
        .await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    let plans = async |bot: &Bot| bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(plans(&bot).await.len(), 1);
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    end_of(command).await;
    assert_eq!(plans(&bot).await, []);
    bot.settle().await;
    assert_eq!(plans(&bot).await.len(), 2);
    bot.answer(pull);
    bot.end(&["acme/infra/app/default by #1", LOCK]).await;
}

async fn end_of(command: JoinHandle<Tick>) {
    assert_eq!(command.await.unwrap(), Tick::Worked);
}

async fn a_push_during_a_plan_takes_its_place(backend: Backend) {
    let (mut bot, pull, old) = planning(backend, "# fake: hang plan\n", &[]).await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    end_of(command).await;
    assert_eq!(bot.locks().await, [LOCK], "nobody may come in between");
    bot.settle().await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: planned

    **Plan: 0 to add, 0 to change, 4 to destroy.**

    4 to destroy:

    * **destroy** `terraform_data.gone[1]`
    * **destroy** `terraform_data.gone[2]`
    * **destroy** `terraform_data.gone[3]`
    * **destroy** `terraform_data.gone[4]`

    <details><summary>Output (8 lines)</summary>

    ```diff
    Terraform will perform the following actions:

      # terraform_data.gone[1] will be destroyed
      # terraform_data.gone[2] will be destroyed
      # terraform_data.gone[3] will be destroyed
      # terraform_data.gone[4] will be destroyed

    Plan: 0 to add, 0 to change, 4 to destroy.
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

    <sub>Commit `7f1e0786` · 0 s</sub>
    ");
    assert_snapshot!(statuses_of(&bot, &old), @"
    lockkeeper/plan: Failure, Plan superseded: a newer commit was pushed.
    lockkeeper/plan: network/default: Failure, Plan superseded: a newer commit was pushed.
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 0 to add, 0 to change, 4 to destroy.
    ");
    let run = recent_runs(bot.store(), 10).await.pop().unwrap();
    assert_snapshot!(run.message.unwrap(), @"a newer commit was pushed, so `terraform plan` was interrupted.");
    let replaced = bot.store().command_get(run.command).await.unwrap().unwrap();
    assert_eq!(
        (
            replaced.outcome.unwrap().as_str(),
            replaced.reason.as_deref()
        ),
        ("refused", Some("superseded"))
    );
    assert!(
        bot.ask(pull, "lockkeeper apply")
            .await
            .contains(": applied\n")
    );
    bot.end(&[LOCK]).await;
}

async fn a_push_while_a_plan_waits_takes_its_place_and_leaves_the_apply_alone(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# fake: wait apply\n")])
        .await;
    bot.answer(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    let between = bot
        .push(
            "wider",
            &[("network/main.tf", "# fake: add 3 change 0 destroy 0\n")],
        )
        .await;
    bot.settle_short().await;
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    bot.go();
    end_of(command).await;
    bot.settle().await;
    let comments = bot.comments(pull);
    assert!(
        comments[0].starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n"),
        "{}",
        comments[0]
    );
    assert!(
        comments[1].contains("**Plan: 0 to add, 0 to change, 4 to destroy.**"),
        "{}",
        comments[1]
    );
    assert_eq!(comments.len(), 2);
    assert_eq!(
        statuses_of(&bot, &between),
        "",
        "nothing was ever said of it"
    );
    bot.end(&[LOCK]).await;
}

async fn a_push_after_a_crash_takes_the_place_of_the_plan_that_was_cut_off(backend: Backend) {
    let (mut bot, pull, old) = planning(backend, "# fake: hang plan\n", &[]).await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.settle_short().await;
    command.abort();
    command.await.unwrap_err();
    bot.crash_and_restart().await;
    bot.push("wider", &[NEWER]).await;
    bot.settle().await;
    assert!(
        bot.comment(pull)
            .contains("**Plan: 0 to add, 0 to change, 4 to destroy.**")
    );
    assert_snapshot!(statuses_of(&bot, &old), @"
    lockkeeper/plan: Failure, Plan superseded: a newer commit was pushed.
    lockkeeper/plan: network/default: Failure, Plan superseded: a newer commit was pushed.
    ");
    bot.end(&[LOCK]).await;
}

/// Finishes the first plan. A comment then requests another, which waits for a signal.
async fn asked_again(backend: Backend, text: &str) -> (Bot, PullNumber, JoinHandle<Tick>) {
    let (mut bot, pull, _) = planning(backend, WAITS.1, &[]).await;
    bot.go();
    bot.settle().await;
    bot.answer(pull);
    std::fs::remove_file(bot.tools.join("go")).unwrap();
    bot.github.comment(REPO, pull, "bob", text).await.unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.calls_of("plan network", 2).await;
    (bot, pull, command)
}

async fn whoever_asked_for_the_plan_that_was_replaced_is_answered_by_the_newer_one(
    backend: Backend,
) {
    let (mut bot, pull, command) = asked_again(backend, "lockkeeper plan").await;
    // The second push supersedes the first, and also the plan that the first had superseded.
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    bot.push("wider", &[NETWORK]).await;
    bot.settle_short().await;
    end_of(command).await;
    bot.settle().await;
    // Without bob's comment, a push that changes no project would get no comment.
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for 0 projects

    No file that this pull request changes belongs to a project, so there is nothing to do.

    To plan a project anyway, comment for example:

    ```shell
    lockkeeper plan -d path/of/the/project
    ```

    <sub>Commit `fc2ae27c` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn whoever_asked_is_answered_although_the_newer_plan_is_cancelled_before_it_begins(
    backend: Backend,
) {
    let (mut bot, pull, command) = asked_again(backend, "lockkeeper plan").await;
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    end_of(command).await;
    bot.github
        .comment(REPO, pull, "carol", "lockkeeper cancel")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.settle().await;
    assert_snapshot!(bot.comments(pull).join("\n=====\n"), @"
    **Plan cancelled**: `carol` cancelled it before its turn came. Nothing was run.

    <sub>0 s</sub>
    =====
    Ran Cancel for 1 command

    * the plan after a push by `alice`: it was queued and will not run.
    ");
    bot.end(&[LOCK]).await;
}

async fn a_plan_of_one_project_is_made_again_on_the_newest_commit(backend: Backend) {
    let (mut bot, pull, command) =
        asked_again(backend, "lockkeeper plan -d network -- -lock=false").await;
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    end_of(command).await;
    bot.settle().await;
    let comments = bot.comments(pull);
    assert!(
        comments[0].contains("**Plan: 0 to add, 0 to change, 4 to destroy.**"),
        "{}",
        comments[0]
    );
    assert!(
        comments[0].contains("lockkeeper plan -d network -- '-lock=false'"),
        "{}",
        comments[0]
    );
    assert!(
        comments[1].contains("**Plan: 0 to add, 0 to change, 4 to destroy.**"),
        "{}",
        comments[1]
    );
    assert_eq!(comments.len(), 2);
    // No status is pending.
    assert_eq!(bot.pending(pull), [""; 0]);
    bot.end(&[LOCK]).await;
}

async fn a_plan_of_one_project_that_waits_sees_the_newest_commit(backend: Backend) {
    let (mut bot, pull, _) = planning(backend, "# fake: hang plan\n", &[]).await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.github
        .comment(REPO, pull, "bob", "lockkeeper plan -d app")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    end_of(command).await;
    bot.settle().await;
    let comments = bot.comments(pull);
    assert!(
        comments[0].starts_with("Ran Plan for dir: `app` workspace: `default`: planned\n"),
        "{}",
        comments[0]
    );
    assert!(
        comments[1].starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"),
        "{}",
        comments[1]
    );
    assert_eq!(comments.len(), 2);
    bot.end(&[LOCK]).await;
}

async fn nothing_is_replaced_where_planning_by_itself_is_switched_off(backend: Backend) {
    let (mut bot, pull, _) = planning(backend, WAITS.1, &[("disable-autoplan", "true")]).await;
    bot.github
        .comment(REPO, pull, "bob", "lockkeeper plan")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.push("wider", &[NEWER]).await;
    bot.settle_short().await;
    bot.go();
    end_of(command).await;
    bot.settle().await;
    assert!(
        bot.comment(pull)
            .contains("**Plan: 1 to add, 0 to change, 0 to destroy.**")
    );
    bot.end(&[LOCK]).await;
}

async fn a_plan_that_waits_while_the_pull_request_is_closed_and_opened_again_is_made(
    backend: Backend,
) {
    let (mut bot, pull, _) = planning(
        backend,
        "# fake: wait apply\n",
        &[("disable-autoplan", "true")],
    )
    .await;
    assert!(
        bot.ask(pull, "lockkeeper plan")
            .await
            .contains(": planned\n")
    );
    bot.github
        .comment(REPO, pull, "bob", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.github
        .comment(REPO, pull, "bob", "lockkeeper plan")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.settle_short().await;
    bot.github.reopen(REPO, pull, "alice").await.unwrap();
    bot.settle_short().await;
    bot.go();
    end_of(command).await;
    bot.replica.tick("stops").await.unwrap();
    bot.settle().await;
    let comments = bot.comments(pull);
    assert!(comments[0].starts_with("Ran Apply for"), "{}", comments[0]);
    assert!(
        comments[1].starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"),
        "{}",
        comments[1]
    );
    assert_eq!(comments.len(), 2);
    assert!(
        bot.store()
            .command_list_stopping()
            .await
            .unwrap()
            .is_empty()
    );
    bot.end(&[LOCK]).await;
}
