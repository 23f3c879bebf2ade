//! Stories about releasing locks: by comment, by the end of the pull request, and during a run.

use insta::assert_snapshot;
use lockkeeper::model::PullNumber;
use lockkeeper::queue::Tick;
use tokio::task::JoinHandle;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    unlock_gives_everything_back,
    unlock_with_nothing_to_give_back_says_so,
    unlock_works_on_a_closed_pull_request,
    a_pull_request_closed_during_its_plan_stops_it,
    a_pull_request_closed_during_its_apply_lets_it_end,
    unlock_waits_for_the_plan_that_runs,
    a_plan_that_still_waits_when_the_pull_request_closes_is_dropped,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");

/// Starts a bot with a pull request whose command is running and has printed the word.
async fn under_way(
    backend: Backend,
    main: &str,
    word: &str,
) -> (Bot, PullNumber, JoinHandle<Tick>) {
    let bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", main)])
        .await;
    let command = bot.begin_command();
    bot.printed(word).await;
    (bot, pull, command)
}

async fn unlock_gives_everything_back(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull(
            "both",
            &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply -d app").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper unlock").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Unlock for 2 projects

    * dir: `app` workspace: `default`: lock released
    * dir: `network` workspace: `default`: lock released, plan discarded

    > [!WARNING]
    > Changes of this pull request were applied but are not in the base branch. The next plan of another pull request would undo them. Merge this one soon, or plan and apply the base branch.

    To **plan** again, comment:

    ```shell
    lockkeeper plan
    ```
    ");
    let line = bot.machine_line(pull);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"unlock","id":"ID","pull":1,"head":"5b5fb7838251c7fdfddc73242e383ad52c7df2a0","outcome":"success","projects":[{"name":null,"dir":"app","workspace":"default","outcome":"discarded","plan":null},{"name":null,"dir":"network","workspace":"default","outcome":"discarded","plan":null}]} -->"#);
    assert!(
        bot.store()
            .plan_list(&Bot::pull_ref(pull))
            .await
            .unwrap()
            .is_empty()
    );
    bot.end(&[]).await;
}

async fn unlock_with_nothing_to_give_back_says_so(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper unlock").await;
    assert_snapshot!(bot.comment(pull), @"Ran Unlock: this pull request holds no lock and has no plan, so there was nothing to release.");
    bot.end(&[]).await;
}

async fn unlock_works_on_a_closed_pull_request(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.close(pull).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper unlock").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Unlock: this pull request holds no lock and has no plan")
    );
    bot.end(&[]).await;
}

async fn a_pull_request_closed_during_its_plan_stops_it(backend: Backend) {
    let (mut bot, pull, command) = under_way(backend, "# fake: hang plan\n", "hanging").await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.settle_short().await;
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let comments = bot.comments(pull);
    assert_snapshot!(comments[0], @"
    This pull request was closed: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    ");
    assert_snapshot!(comments[1], @"
    Ran Plan for dir: `network` workspace: `default`: cancelled

    **Plan cancelled**: the pull request was closed, so `terraform plan` was interrupted.

    ```diff
    hanging
    Interrupt received.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `89a66d7a` · 0 s</sub>
    ");
    assert_eq!(comments.len(), 2);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/1 projects failed to plan.
    lockkeeper/plan: network/default: Failure, Plan failed: it was cancelled.
    ");
    bot.end(&[]).await;
}

async fn a_pull_request_closed_during_its_apply_lets_it_end(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# fake: wait apply\n")])
        .await;
    bot.read_comments(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.github.merge(REPO, pull, "alice").await.unwrap();
    bot.settle_short().await;
    assert_eq!(bot.locks().await, ["acme/infra/network/default by #1"]);
    bot.go();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: applied

    The pull request was merged while this ran; its lock is free now.

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    waiting in network
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `c40a4dbf` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn unlock_waits_for_the_plan_that_runs(backend: Backend) {
    let (mut bot, pull, command) = under_way(backend, "# fake: wait plan\n", "waiting").await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper unlock")
        .await
        .unwrap();
    bot.settle_short().await;
    assert!(bot.read_comments(pull).is_empty());
    bot.go();
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let comments = bot.comments(pull);
    assert!(comments[0].starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"));
    assert!(comments[1].starts_with("Ran Unlock for 1 project\n"));
    assert_eq!(comments.len(), 2);
    bot.end(&[]).await;
}

/// A command waits behind the running one. Plans that are no longer needed get no comment.
async fn a_plan_that_still_waits_when_the_pull_request_closes_is_dropped(backend: Backend) {
    let (mut bot, pull, command) = under_way(backend, "# fake: hang plan\n", "hanging").await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper plan")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.settle_short().await;
    assert_eq!(command.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let comments = bot.comments(pull);
    assert_snapshot!(comments[2..].join("\n----\n"), @"
    **Plan refused**: this pull request is closed, and commands run on open pull requests only.

    * Reopen it, then run the command again.

    <sub>Commit `89a66d7a` · 0 s</sub>
    ");
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&[]).await;
}
