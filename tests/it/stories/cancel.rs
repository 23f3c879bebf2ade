//! Stories about `cancel`: waiting runs are dropped, running ones are interrupted, an apply only with `--force`.

use insta::assert_snapshot;
use lockkeeper::emulator::NewPull;
use lockkeeper::features::planning;
use lockkeeper::model::{Actor, Origin, PullNumber};
use lockkeeper::queue::Tick;
use tokio::task::JoinHandle;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};
use crate::support::rows::recent_runs;

story!(
    cancel_interrupts_the_plan_that_runs_and_drops_what_waits,
    cancel_with_nothing_to_cancel_says_so,
    cancel_names_a_running_apply_and_leaves_it_alone,
    cancel_by_force_interrupts_an_apply_which_tells_how_far_it_came,
    an_apply_that_does_not_listen_is_killed,
    a_cancelled_apply_leaves_the_plans_it_had_not_begun,
    a_plan_that_waits_for_a_place_is_cancelled,
    an_apply_is_cancelled_on_the_dashboard,
    a_cancel_that_is_killed_anywhere_is_told_once,
    a_plan_that_was_cut_off_and_cancelled_is_not_made_again,
    cancel_is_answered_while_the_forge_does_not_tell_of_the_pull,
);

const LOCK: &str = "acme/infra/network/default by #1";

/// Comments on a pull request. The server reads the comment at once.
async fn comments(bot: &Bot, pull: PullNumber, who: &str, text: &str) {
    bot.github.comment(REPO, pull, who, text).await.unwrap();
    bot.settle_short().await;
}

async fn planning(backend: Backend) -> (Bot, PullNumber, JoinHandle<Tick>) {
    let bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", "# fake: hang plan\n")])
        .await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    (bot, pull, command)
}

async fn applying(backend: Backend, main: &str, word: &str) -> (Bot, PullNumber, JoinHandle<Tick>) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot.open_pull("wider", &[("network/main.tf", main)]).await;
    bot.answer(pull);
    comments(&bot, pull, "alice", "lockkeeper apply").await;
    let command = bot.begin_command();
    bot.printed(word).await;
    (bot, pull, command)
}

async fn end_of(bot: &Bot, command: JoinHandle<Tick>) {
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
}

async fn cancel_interrupts_the_plan_that_runs_and_drops_what_waits(backend: Backend) {
    let (mut bot, pull, command) = planning(backend).await;
    comments(&bot, pull, "carol", "lockkeeper plan -d app").await;
    comments(&bot, pull, "dave", "lockkeeper apply").await;
    comments(&bot, pull, "bob", "lockkeeper cancel").await;
    end_of(&bot, command).await;
    let told = bot.comments(pull);
    assert_snapshot!(told.join("\n----\n"), @"
    **Plan cancelled**: `bob` cancelled it before its turn came. Nothing was run.

    <sub>0 s</sub>
    ----
    **Apply cancelled**: `bob` cancelled it before its turn came. Nothing was run.

    <sub>0 s</sub>
    ----
    Ran Cancel for 3 commands

    * the plan after a push by `alice`: it was running and is being interrupted. Its own comment shows how far it got.
    * `plan -d app` by `carol`: it was queued and will not run.
    * `apply` by `dave`: it was queued and will not run.
    ----
    Ran Plan for dir: `network` workspace: `default`: cancelled

    **Plan cancelled**: `bob` cancelled it, so `terraform plan` was interrupted.

    ```diff
    hanging
    Interrupt received.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `89a66d7a` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/1 projects failed to plan.
    lockkeeper/plan: network/default: Failure, Plan failed: it was cancelled.
    ");
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&[]).await;
}

async fn cancel_with_nothing_to_cancel_says_so(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper cancel").await;
    assert_snapshot!(bot.comment(pull), @"Ran Cancel: this pull request has no queued or running commands, so there is nothing to cancel.");
    let line = bot.machine_line(pull);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"cancel","id":"ID","pull":1,"head":null,"outcome":"success","projects":[]} -->"#);
    bot.end(&[]).await;
}

async fn cancel_names_a_running_apply_and_leaves_it_alone(backend: Backend) {
    let (mut bot, pull, command) = applying(backend, "# fake: wait apply\n", "waiting").await;
    comments(&bot, pull, "bob", "lockkeeper cancel").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Cancel for 1 command

    * `apply` by `alice`: it is running and was not interrupted.

    An interrupted command can leave its changes incomplete. To **interrupt** it anyway, comment:

    ```shell
    lockkeeper cancel --force
    ```
    ");
    let line = bot.machine_line(pull);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"cancel","id":"ID","pull":1,"head":null,"outcome":"refused","reason":"apply_running","projects":[]} -->"#);
    bot.go();
    end_of(&bot, command).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&[LOCK]).await;
}

async fn cancel_by_force_interrupts_an_apply_which_tells_how_far_it_came(backend: Backend) {
    let (mut bot, pull, command) = applying(backend, "# fake: hang apply\n", "hanging").await;
    comments(&bot, pull, "carol", "lockkeeper plan").await;
    comments(&bot, pull, "bob", "lockkeeper cancel --force").await;
    end_of(&bot, command).await;
    let told = bot.comments(pull);
    assert_snapshot!(told.join("\n----\n"), @"
    **Plan cancelled**: `bob` cancelled it before its turn came. Nothing was run.

    <sub>0 s</sub>
    ----
    Ran Cancel for 2 commands

    * `apply` by `alice`: it was running and is being interrupted. Its own comment shows how far it got.
    * `plan` by `carol`: it was queued and will not run.
    ----
    Ran Apply for dir: `network` workspace: `default`: cancelled

    **Apply cancelled**: `bob` cancelled it, so `terraform apply` was stopped.

    * The state has the changes that were applied until then. Plan again to see what is left.

    ```diff
    hanging
    Interrupt received.
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `f56e3c04` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/1 projects failed to apply.
    lockkeeper/apply: network/default: Failure, Apply failed: it was cancelled.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    assert_eq!(
        bot.calls()
            .iter()
            .filter(|call| *call == "apply network")
            .count(),
        1
    );
    bot.end(&[LOCK]).await;
}

async fn an_apply_that_does_not_listen_is_killed(backend: Backend) {
    let (mut bot, pull, command) = applying(backend, "# fake: deaf apply\n", "hanging").await;
    comments(&bot, pull, "bob", "lockkeeper cancel --force").await;
    end_of(&bot, command).await;
    let told = bot.comments(pull);
    assert_snapshot!(told[1], @"
    Ran Apply for dir: `network` workspace: `default`: cancelled

    **Apply cancelled**: `bob` cancelled it, so `terraform apply` was interrupted, did not end in time, and was killed.

    * The infrastructure may have changes that the state does not have. Compare both, then plan again to see what is left.

    ```diff
    hanging
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `e7ec7df7` · 0 s</sub>
    ");
    bot.end(&[LOCK]).await;
}

async fn a_cancelled_apply_leaves_the_plans_it_had_not_begun(backend: Backend) {
    let files = [
        ("a/main.tf", "# fake: hang apply\n"),
        ("b/main.tf", "# fake: add 3 change 0 destroy 0\n"),
    ];
    let mut before: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, _)| (*path, "# narrow\n"))
        .collect();
    before.push(("atlantis.yaml", "version: 3\nparallel_apply: false\n"));
    let mut bot = Bot::new(backend, &before).await;
    let pull = bot.open_pull("wider", &files).await;
    bot.answer(pull);
    comments(&bot, pull, "alice", "lockkeeper apply").await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    comments(&bot, pull, "bob", "lockkeeper cancel --force").await;
    end_of(&bot, command).await;
    let told = bot.comments(pull).remove(1);
    assert!(
        told.contains("**Apply refused**: `bob` cancelled it before anything was applied."),
        "{told}"
    );
    assert!(
        bot.ask(pull, "lockkeeper apply -d b")
            .await
            .contains(": applied\n")
    );
    bot.end(&["acme/infra/a/default by #1", "acme/infra/b/default by #1"])
        .await;
}

async fn a_plan_that_waits_for_a_place_is_cancelled(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[("parallel-pool-size", "1")]).await;
    let files = [
        ("network/main.tf", "# fake: hang plan\n"),
        ("app/main.tf", "# fake: hang plan\n"),
    ];
    bot.push("wider", &files).await;
    let pull = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    comments(&bot, pull, "bob", "lockkeeper cancel").await;
    end_of(&bot, command).await;
    let told = bot.comments(pull).remove(1);
    assert!(
        told.contains(
            "**Plan cancelled**: `bob` cancelled it, so `terraform plan` was interrupted."
        ),
        "{told}"
    );
    assert!(
        told.contains("**Plan cancelled**: `bob` cancelled it before its turn came."),
        "{told}"
    );
    bot.end(&[]).await;
}

async fn an_apply_is_cancelled_on_the_dashboard(backend: Backend) {
    let (mut bot, pull, command) = applying(backend, "# fake: hang apply\n", "hanging").await;
    let run = recent_runs(bot.store(), 1).await.remove(0);
    let ops = Actor::new("ops", Origin::Page);
    let spared = planning::cancel_command(&bot.replica.ctx, run.command, &ops, false)
        .await
        .unwrap();
    assert_eq!((spared.spared.len(), spared.interrupted.len()), (1, 0));
    let cut = planning::cancel_command(&bot.replica.ctx, run.command, &ops, true)
        .await
        .unwrap();
    assert_eq!(cut.interrupted.len(), 1);
    end_of(&bot, command).await;
    let told = bot.comment(pull);
    let why = "**Apply cancelled**: `ops` cancelled it on the dashboard, so `terraform apply` was stopped.";
    assert!(told.contains(why), "{told}");
    bot.end(&[LOCK]).await;
}

/// Wake-ups after which the server is killed. They are dense where the command is carried out, and reach beyond its
/// end.
const KILLS: [usize; 10] = [1, 2, 3, 5, 8, 12, 17, 24, 40, 80];

async fn a_cancel_that_is_killed_anywhere_is_told_once(backend: Backend) {
    let files: Vec<String> = (0..KILLS.len())
        .map(|n| format!("p{n:02}/main.tf"))
        .collect();
    let before: Vec<(&str, &str)> = files
        .iter()
        .map(|file| (file.as_str(), "# narrow\n"))
        .collect();
    let mut bot = Bot::new(backend, &before).await;
    for (file, wakes) in files.iter().zip(KILLS) {
        bot.push(file, &[(file, "# fake: add 1 change 0 destroy 0\n")])
            .await;
        let pull = bot
            .github
            .open_pull(REPO, NewPull::from_branch(file))
            .await
            .unwrap();
        bot.settle_short().await;
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper plan -d .")
            .await
            .unwrap();
        bot.github
            .comment(REPO, pull, "bob", "lockkeeper cancel")
            .await
            .unwrap();
        bot.work_until_killed(wakes).await;
        bot.crash_and_restart().await;
        bot.settle().await;
        let told = bot.read_comments(pull);
        let cancels = told
            .iter()
            .filter(|comment| comment.starts_with("Ran Cancel"))
            .count();
        let plans = told
            .iter()
            .filter(|comment| comment.contains("an Plan for") || comment.contains("**Plan "))
            .count();
        // The plan of the push gets an answer if it had begun. Otherwise it is dropped without a comment.
        assert_eq!(cancels, 1, "killed after {wakes}: {told:#?}");
        assert!(plans == 1 || plans == 2, "killed after {wakes}: {told:#?}");
        // A finished plan may wait for its apply. No plan may still be running.
        let plans = bot
            .pending(pull)
            .into_iter()
            .filter(|line| line.starts_with("lockkeeper/plan"));
        assert_eq!(plans.collect::<Vec<_>>(), [""; 0], "killed after {wakes}");
        bot.say(pull, "lockkeeper unlock").await;
        bot.read_comments(pull);
    }
    bot.end(&[]).await;
}

async fn a_plan_that_was_cut_off_and_cancelled_is_not_made_again(backend: Backend) {
    let (mut bot, pull, command) = planning(backend).await;
    bot.settle_short().await;
    command.abort();
    command.await.unwrap_err();
    bot.crash_and_restart().await;
    comments(&bot, pull, "bob", "lockkeeper cancel").await;
    bot.settle().await;
    let told = bot.comments(pull);
    assert_snapshot!(told.join("\n----\n"), @"
    Ran Cancel for 1 command

    * the plan after a push by `alice`: it was running and is being interrupted. Its own comment shows how far it got.
    ----
    **Plan cancelled**: `bob` cancelled it before it was started again.

    <sub>Commit `89a66d7a` · 1 min 30 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, Plan failed.
    lockkeeper/plan: network/default: Failure, Plan failed.
    ");
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&[]).await;
}

async fn cancel_is_answered_while_the_forge_does_not_tell_of_the_pull(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull(
            "wider",
            &[("network/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.answer(pull);
    bot.github.fault(
        "GET /repos/*/*/pulls/*",
        1,
        lockkeeper::emulator::Fault::BadGateway,
    );
    comments(&bot, pull, "bob", "lockkeeper cancel").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Cancel: this pull request has no queued or running commands")
    );
    bot.github.clear_faults();
    bot.end(&[LOCK]).await;
}
