//! Stories about applying: exactly the plans that people saw, each at most once.

use std::time::Duration;

use insta::assert_snapshot;
use lockkeeper::emulator::{Delivering, Fault, NewPull};
use lockkeeper::model::PullNumber;
use lockkeeper::queue::Tick;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, allow_applies, by, execute, stop_applies, story};

story!(
    a_plan_is_applied,
    without_a_plan_nothing_is_applied,
    a_plan_without_changes_is_up_to_date,
    one_of_two_plans_is_applied,
    an_apply_that_fails_keeps_its_plan_and_can_be_tried_again,
    a_plan_for_another_commit_is_refused,
    up_to_date_is_only_said_of_the_newest_commit,
    a_plan_against_another_base_branch_is_refused,
    a_plan_that_nobody_can_have_seen_is_refused,
    a_plan_is_not_applied_before_a_comment_shows_it,
    a_plan_is_not_applied_while_its_comment_is_on_its_way,
    a_plan_whose_comment_was_refused_is_planned_again,
    a_plan_that_a_server_of_the_last_version_has_shown_is_applied,
    an_apply_that_arrives_late_is_not_for_a_newer_plan,
    a_plan_file_that_was_changed_is_refused,
    a_plan_of_another_terraform_is_refused,
    while_applies_are_switched_off_every_one_is_refused,
    applies_that_are_switched_off_at_the_last_moment_are_refused,
    a_plan_is_applied_once_however_often_it_is_asked_for,
    what_was_discarded_cannot_be_applied,
    an_apply_takes_the_lock_that_was_given_back,
    an_apply_is_refused_while_another_pull_request_has_the_lock,
    a_closed_pull_request_applies_nothing,
    a_pull_request_into_a_branch_that_is_gone_applies_nothing,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const WORSE: (&str, &str) = ("network/main.tf", "# fake: add 0 change 0 destroy 9\n");
const COMMENTS: &str = "POST /repos/*/*/issues/*/comments";
const NET_LOCK: &str = "acme/infra/network/default by #1";
const UNSEEN: &str = "**Apply refused**: it is not certain that a comment showed the plan when its apply was requested";

/// Starts a bot with a pull request whose plan of `network` waits for its apply. The comment was read.
async fn planned(backend: Backend, main: &str) -> (Bot, PullNumber) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot.open_pull("wider", &[("network/main.tf", main)]).await;
    bot.read_comments(pull);
    (bot, pull)
}

fn applies(bot: &Bot) -> usize {
    bot.calls()
        .iter()
        .filter(|call| call.starts_with("apply "))
        .count()
}

async fn a_plan_is_applied(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: applied

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Success, 1/1 projects applied successfully.
    lockkeeper/apply: network/default: Success, Apply succeeded.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    let line = bot.machine_line(pull);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"apply","id":"ID","pull":1,"head":"856845201b3cf6048a652acc870e30b35e0dfeed","outcome":"success","projects":[{"name":null,"dir":"network","workspace":"default","outcome":"applied","plan":null}]} -->"#);
    assert_eq!(
        bot.calls(),
        ["init network", "plan network", "apply network"]
    );
    bot.merge(pull).await;
    assert_snapshot!(bot.comment(pull), @"
    This pull request was merged: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    ");
    bot.end(&[]).await;
}

async fn without_a_plan_nothing_is_applied(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("disable-autoplan", "true")]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: there is no plan to apply in this pull request.

    * Comment `lockkeeper plan` first, look at the plan, then apply it.

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper apply -d network").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: there is no plan of that project in this pull request.

    * Comment `lockkeeper plan` first, look at the plan, then apply it.

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    assert_eq!(bot.statuses(pull), "");
    bot.end(&[]).await;
}

async fn a_plan_without_changes_is_up_to_date(backend: Backend) {
    let (mut bot, pull) = planned(backend, "# fake: no changes\n").await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: nothing to apply

    The plan has no changes.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `267f4d38` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Success, 1/1 projects up to date.
    lockkeeper/apply: network/default: Success, Up to date.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, No changes.
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&[NET_LOCK]).await;
}

async fn one_of_two_plans_is_applied(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull(
            "both",
            &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply -d app").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `app` workspace: `default`: applied\n")
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Pending, 1/2 projects applied.
    lockkeeper/apply: app/default: Success, Apply succeeded.
    lockkeeper/plan: Success, 2/2 projects planned successfully.
    lockkeeper/plan: app/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for 2 projects: 1 applied, 1 nothing to apply

    | | Project | Outcome |
    |:-:|:--|:--|
    | ✅ | `network` | [applied](https://locks.example.com/jobs/ID) |
    | ➖ | `app` | [nothing to apply](https://locks.example.com/jobs/ID) |

    ---

    ### ✅ dir: `network` workspace: `default`

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### ➖ dir: `app` workspace: `default`

    This plan was already applied. Plan again to see whether anything is left to do.

    [Output of this project](https://locks.example.com/jobs/ID)

    <sub>Commit `5b5fb783` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Success, 2/2 projects applied successfully.
    lockkeeper/apply: app/default: Success, Apply succeeded.
    lockkeeper/apply: network/default: Success, Apply succeeded.
    lockkeeper/plan: Success, 2/2 projects planned successfully.
    lockkeeper/plan: app/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    assert_eq!(applies(&bot), 2);
    bot.end(&["acme/infra/app/default by #1", NET_LOCK]).await;
}

async fn an_apply_that_fails_keeps_its_plan_and_can_be_tried_again(backend: Backend) {
    let (mut bot, pull) = planned(backend, "# fake: fail apply once\n").await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: failed

    **Apply failed**: `terraform apply` ended with exit code 1.

    ```text
    Error: The apply went wrong

      on main.tf line 1:

    This is what the story asked for.
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `aed42da9` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/1 projects failed to apply.
    lockkeeper/apply: network/default: Failure, Apply failed.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    assert_eq!(applies(&bot), 2);
    bot.end(&[NET_LOCK]).await;
}

/// The webhook of the push is lost, so only the forge knows the new head.
async fn a_plan_for_another_commit_is_refused(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.push(
        "wider",
        &[("network/main.tf", "# fake: add 0 change 0 destroy 9\n")],
    )
    .await;
    while bot.github.lose_next().is_some() {}
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the plan was made for commit `85684520`, and the pull request is at `3fa31770` now. Nothing was applied.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `3fa31770` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/1 projects failed to apply.
    lockkeeper/apply: network/default: Failure, Apply failed: refused, see the comment.
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&[NET_LOCK]).await;
}

/// The new commit cannot be planned at all, so the plan of the commit before is the newest.
async fn up_to_date_is_only_said_of_the_newest_commit(backend: Backend) {
    let (mut bot, pull) = planned(backend, "# fake: no changes\n").await;
    bot.update("wider", &[("lockkeeper.yaml", "version: 99\n")])
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .contains("**Apply refused**: the plan was made for commit ")
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/1 projects failed to apply.
    lockkeeper/apply: network/default: Failure, Apply failed: refused, see the comment.
    lockkeeper/plan: Failure, Plan failed.
    ");
    bot.end(&[NET_LOCK]).await;
}

async fn a_plan_against_another_base_branch_is_refused(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.push("release", &[("NEWS", "a release\n")]).await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.github
        .change_base(REPO, pull, "alice", "release")
        .await
        .unwrap();
    while bot.github.lose_next().is_some() {}
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the plan was made against the base branch `main`, and the base branch of the pull request is `release` now. Nothing was applied.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&[NET_LOCK]).await;
}

/// A push arrives between reading the plan and requesting its apply.
async fn a_plan_that_nobody_can_have_seen_is_refused(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.push(
        "wider",
        &[(
            "network/main.tf",
            "# fake: add 0 change 0 destroy 9\n# fake: wait plan\n",
        )],
    )
    .await;
    bot.settle_short().await;
    let planning = bot.begin_command();
    bot.printed("waiting").await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.db.clock.advance(Duration::from_secs(30));
    bot.go();
    assert_eq!(planning.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let comments = bot.comments(pull);
    assert!(comments[0].contains("**Plan: 0 to add, 0 to change, 9 to destroy.**"));
    assert_snapshot!(comments[1], @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: it is not certain that a comment showed the plan when its apply was requested. Nothing was applied.

    * Look at the plan, then run the command again. If that is refused as well, plan again first.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `7e343a63` · 30 s</sub>
    ");
    assert_eq!((comments.len(), applies(&bot)), (2, 0));
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&[NET_LOCK]).await;
}

/// The first project is planned, and the second one is slow. Somebody requests the apply between the two.
async fn a_plan_is_not_applied_before_a_comment_shows_it(backend: Backend) {
    const ORDER: (&str, &str) = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- name: app\n  dir: app\n  execution_order_group: 1\n- name: net\n  dir: network\n",
    );
    let mut bot = Bot::new(backend, &[NETWORK, APP, ORDER]).await;
    let slow = ("app/main.tf", "# fake: wait plan\n");
    let pull = bot.announce_pull("wider", &[WIDER, slow]).await;
    let planning = bot.begin_command();
    bot.printed("waiting").await;
    let stored = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(stored.len(), 1, "{stored:?}");
    bot.db.clock.advance(Duration::from_secs(5));
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply -p net")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.db.clock.advance(Duration::from_secs(5));
    bot.go();
    assert_eq!(planning.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.read_comments(pull);
    assert!(
        told.len() == 2 && told[1].contains(UNSEEN),
        "the plan of `net` is older than the comment, but nobody could read it: {told:#?}"
    );
    assert_eq!(applies(&bot), 0);
    bot.say(pull, "lockkeeper apply -p net").await;
    let applied = bot.comment(pull);
    assert!(applied.contains(": applied\n"), "{applied}");
    assert_eq!(applies(&bot), 1);
    bot.end(&["acme/infra/app/default by #1", NET_LOCK]).await;
}

/// The forge does not take the comment with the newer plan at once, and somebody who has read the older one requests an apply.
async fn a_plan_is_not_applied_while_its_comment_is_on_its_way(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.push("wider", &[WORSE]).await;
    bot.settle_short().await;
    bot.github.fault(COMMENTS, 1, Fault::BadGateway);
    assert_eq!(bot.replica.tick_command().await.unwrap(), Tick::Worked);
    bot.settle_short().await;
    assert_eq!(bot.github.faults_left(), 0, "the comment was refused");
    bot.say(pull, "lockkeeper apply").await;
    let told = bot.read_comments(pull);
    assert!(told[0].contains("9 to destroy"), "{told:#?}");
    assert!(told.len() == 2 && told[1].contains(UNSEEN), "{told:#?}");
    assert_eq!(applies(&bot), 0);
    bot.say(pull, "lockkeeper apply").await;
    let applied = bot.comment(pull);
    assert!(applied.contains(": applied\n"), "{applied}");
    bot.end(&[NET_LOCK]).await;
}

async fn a_plan_whose_comment_was_refused_is_planned_again(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.push("wider", &[WORSE]).await;
    bot.settle_short().await;
    bot.github.fault(COMMENTS, u32::MAX, Fault::Forbidden);
    bot.settle().await;
    bot.github.clear_faults();
    bot.say(pull, "lockkeeper apply").await;
    let refused = bot.comment(pull);
    assert!(refused.contains(UNSEEN), "{refused}");
    assert_eq!(applies(&bot), 0);
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).contains("9 to destroy"));
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains(": applied\n"));
    bot.end_given_up(&[NET_LOCK], &["post_comment"]).await;
}

/// A server of version 0.2.0 ends the job that posts the comment, and does not record what people can read since.
async fn a_plan_that_a_server_of_the_last_version_has_shown_is_applied(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    let unrecorded = "UPDATE commands SET comments_left = 1, shown_at = NULL";
    execute(&bot.db, unrecorded).await;
    bot.say(pull, "lockkeeper apply").await;
    let applied = bot.comment(pull);
    assert!(applied.contains(": applied\n"), "{applied}");
    bot.end(&[NET_LOCK]).await;
}

/// The delivery of the comment is lost, and the project is planned again before somebody delivers it.
async fn an_apply_that_arrives_late_is_not_for_a_newer_plan(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.github.set_delivering(Delivering::Held).await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    let late = bot.github.lose_next().expect("it was held");
    assert_eq!(late.event, "issue_comment");
    bot.db.clock.advance(Duration::from_mins(5));
    bot.say(pull, "lockkeeper plan").await;
    let plan = bot.comment(pull);
    assert!(plan.contains(": planned\n"), "{plan}");
    bot.github.redeliver(late.id).await.unwrap();
    bot.settle().await;
    let refused = bot.comment(pull);
    assert!(refused.contains(UNSEEN), "{refused}");
    assert_eq!(applies(&bot), 0);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains(": applied\n"));
    assert_eq!(applies(&bot), 1);
    bot.end(&[NET_LOCK]).await;
}

async fn a_plan_file_that_was_changed_is_refused(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    let plan = bot
        .store()
        .plan_list(&Bot::pull_ref(pull))
        .await
        .unwrap()
        .remove(0);
    let file = bot
        .db
        .dir
        .path()
        .join(format!("plans/plans/{}.tfplan", plan.id));
    std::fs::write(&file, "a plan of somebody else").unwrap();
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the plan file `ID` was changed after the plan: its SHA-256 is `f655399de9467eae87026f87e9d009528a5b918297a3f0d0c61fb8c2786e3cea`, not `1ff55418c554be7a5f4eb4b2b54f1c2dc839c5b61e5f100077c5e22c867c3198` as recorded. Nothing was applied.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    std::fs::remove_file(&file).unwrap();
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the plan file `ID` does not exist in the store of plan files any more. Nothing was applied.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&[NET_LOCK]).await;
}

async fn a_plan_of_another_terraform_is_refused(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    std::fs::write(bot.tools.join("version"), "1.12.0\n").unwrap();
    // An upgrade replaces the program file.
    std::fs::copy(bot.tools.join("terraform"), bot.tools.join("new")).unwrap();
    std::fs::rename(bot.tools.join("new"), bot.tools.join("terraform")).unwrap();
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the plan was made by Terraform 1.11.4, and this server has 1.12.0 now. Nothing was applied.

    * Or an administrator can install `terraform1.11.4` in `--tf-bin-dir`. Then apply again.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 0);
    bot.say(pull, "lockkeeper plan").await;
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comments(pull)[1]
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&[NET_LOCK]).await;
}

async fn while_applies_are_switched_off_every_one_is_refused(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    stop_applies(bot.store(), "olga", "the database moves until noon").await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: applies are stopped on this whole server, by `olga` since 2026-03-02 09:00 UTC, until somebody allows them again. Reason: the database moves until noon

    * If you can use the pages of this server, allow applies again on `https://locks.example.com/apply-locks`. An administrator can also run `lockkeeper apply-lock clear`.
    * The plans are kept until then; run the command again afterwards.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Pending, Applies are stopped on this server by olga.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    assert!(allow_applies(bot.store()).await);
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&[NET_LOCK]).await;
}

/// Two projects share a pool of one. Applies are stopped while the second waits for its permit.
async fn applies_that_are_switched_off_at_the_last_moment_are_refused(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[("parallel-pool-size", "1")]).await;
    let slow = "# fake: wait apply\n";
    let pull = bot
        .open_pull("both", &[("network/main.tf", slow), ("app/main.tf", slow)])
        .await;
    bot.read_comments(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let applying = bot.begin_command();
    bot.printed("waiting").await;
    stop_applies(bot.store(), "olga", "").await;
    bot.go();
    assert_eq!(applying.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let comment = bot.comment(pull);
    assert!(
        comment.starts_with("Ran Apply for 2 projects: 1 refused, 1 applied\n"),
        "{comment}"
    );
    assert!(
        comment.contains(
            "**Apply refused**: applies are stopped on this whole server, by `olga` since 2026-03-02 09:00 UTC, until \
             somebody allows them again. No reason was given."
        ),
        "{comment}"
    );
    assert_eq!(applies(&bot), 1);
    let statuses = bot.statuses(pull);
    assert!(
        statuses.contains("/default: Failure, Applies are stopped on this server by olga."),
        "{statuses}"
    );
    bot.end(&["acme/infra/app/default by #1", NET_LOCK]).await;
}

async fn a_plan_is_applied_once_however_often_it_is_asked_for(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    for _ in 0..2 {
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper apply")
            .await
            .unwrap();
    }
    bot.settle().await;
    let comments = bot.comments(pull);
    assert!(
        comments[0].starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    assert_snapshot!(comments[1], @"
    Ran Apply for dir: `network` workspace: `default`: nothing to apply

    This plan was already applied. Plan again to see whether anything is left to do.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Success, 1/1 projects applied successfully.
    lockkeeper/apply: network/default: Success, Apply succeeded.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    assert_eq!(applies(&bot), 1);
    bot.end(&[NET_LOCK]).await;
}

async fn what_was_discarded_cannot_be_applied(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.say(pull, "lockkeeper unlock").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("**Apply refused**: there is no plan to apply in this pull request.\n")
    );
    assert_eq!(applies(&bot), 0);
    bot.end(&[]).await;
}

async fn an_apply_takes_the_lock_that_was_given_back(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    let plan = bot
        .store()
        .plan_list(&Bot::pull_ref(pull))
        .await
        .unwrap()
        .remove(0);
    assert!(
        bot.store()
            .lock_release(&plan.pull, &plan.project, by())
            .await
            .unwrap()
    );
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&[NET_LOCK]).await;
}

async fn an_apply_is_refused_while_another_pull_request_has_the_lock(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    let plan = bot
        .store()
        .plan_list(&Bot::pull_ref(pull))
        .await
        .unwrap()
        .remove(0);
    assert!(
        bot.store()
            .lock_release(&plan.pull, &plan.project, by())
            .await
            .unwrap()
    );
    let other = bot
        .open_pull("other", &[("network/main.tf", "# fake: no changes\n")])
        .await;
    bot.read_comments(other);
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: locked

    **Apply refused**: pull request [#2](https://github.test/acme/infra/pull/2) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (planned when the pull request changed).

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_closed_pull_request_applies_nothing(backend: Backend) {
    let (mut bot, pull) = planned(backend, WIDER.1).await;
    bot.close(pull).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: this pull request is closed, and commands run on open pull requests only.

    * Reopen it, then run the command again.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.reopen(pull).await;
    bot.merge(pull).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: this pull request is merged, and commands run on open pull requests only.

    * Open a new pull request for further changes.

    <sub>Commit `85684520` · 0 s</sub>
    ");
    assert_eq!(applies(&bot), 0);
    bot.end(&[]).await;
}

async fn a_pull_request_into_a_branch_that_is_gone_applies_nothing(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.push("release", &[("notes", "1.0\n")]).await;
    bot.push("wider", &[WIDER]).await;
    let pull = bot
        .open(NewPull::from_branch("wider").into_base("release"))
        .await;
    bot.read_comments(pull);
    bot.github.delete_branch(REPO, "release").await.unwrap();
    for (command, refused) in [("apply", "**Apply refused**"), ("plan", "**Plan refused**")] {
        bot.say(pull, &format!("lockkeeper {command}")).await;
        let comment = bot.comment(pull);
        let first = comment.lines().next().unwrap();
        assert_eq!(
            first,
            format!("{refused}: the branch `release` does not exist in the repository any more.")
        );
    }
    assert_eq!(applies(&bot), 0);
    bot.end(&[NET_LOCK]).await;
}
