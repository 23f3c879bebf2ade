//! Stories in which the server dies, stops, or misses an event: every command gets an answer (P1, P3, P7).

use std::time::Duration;

use insta::assert_snapshot;
use lockkeeper::clock::Clock as _;
use lockkeeper::emulator::{Delivering, NewPull, StatusState};
use lockkeeper::model::{CommitSha, PullNumber};

use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};
use crate::support::rows::recent_runs;

story!(
    a_plan_that_is_killed_anywhere_is_told_once,
    an_apply_that_is_killed_anywhere_is_told_once_and_done_at_most_once,
    an_apply_that_was_cut_off_is_told_with_its_last_words,
    a_lock_of_terraform_that_was_left_behind_is_told_with_the_command_that_clears_it,
    an_apply_that_was_cut_off_is_told_although_github_was_away,
    an_apply_of_several_projects_that_was_cut_off_tells_of_each,
    a_plan_that_was_cut_off_is_made_again,
    a_plan_of_an_attempt_that_was_cut_off_is_not_applied,
    a_plan_that_was_cut_off_leaves_nothing_pending_on_an_older_commit,
    a_plan_that_was_cut_off_leaves_nothing_pending_when_the_pull_moved_on_and_was_closed,
    a_plan_that_is_cut_off_again_and_again_is_given_up_and_told,
    an_interrupted_server_makes_its_plan_again_after_the_restart,
    an_interrupted_server_reports_how_far_its_apply_came,
    an_apply_that_comes_to_its_end_after_the_interrupt_was_done,
    a_plan_that_cannot_be_kept_is_given_up_and_leaves_nothing_behind,
    a_close_that_was_missed_is_made_up_for,
    a_command_on_a_pull_whose_close_was_missed_gives_its_locks_back,
    what_is_old_is_forgotten,
    a_plan_file_without_a_record_goes_when_no_run_could_have_written_it,
);

const LOCK: &str = "acme/infra/network/default by #1";
const NETWORK: (&str, &str) = ("network/main.tf", "# narrow\n");

/// Wake-ups after which the server is killed. They are dense where a command begins, and reach beyond its end.
const KILLS: [usize; 16] = [
    1, 2, 4, 7, 11, 16, 22, 30, 45, 70, 100, 140, 200, 300, 450, 800,
];

fn directories(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("p{n:02}/main.tf")).collect()
}

async fn many_projects(backend: Backend) -> (Bot, Vec<String>) {
    let files = directories(KILLS.len());
    let before: Vec<(&str, &str)> = files
        .iter()
        .map(|file| (file.as_str(), "# narrow\n"))
        .collect();
    (Bot::new(backend, &before).await, files)
}

fn held(count: usize) -> Vec<String> {
    (0..count)
        .map(|n| format!("acme/infra/p{n:02}/default by #{}", n + 1))
        .collect()
}

async fn end_holding_all(bot: Bot) {
    let locks = held(KILLS.len());
    bot.end(&locks.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
}

async fn a_plan_that_is_killed_anywhere_is_told_once(backend: Backend) {
    let (mut bot, files) = many_projects(backend).await;
    let mut cut = 0;
    for (file, wakes) in files.iter().zip(KILLS) {
        bot.push(file, &[(file, "# fake: add 1 change 0 destroy 0\n")])
            .await;
        let pull = bot
            .github
            .open_pull(REPO, NewPull::from_branch(file))
            .await
            .unwrap();
        cut += usize::from(bot.work_until_killed(wakes).await);
        bot.crash_and_restart().await;
        bot.settle().await;
        let told = bot.read_comments(pull);
        assert_eq!(told.len(), 1, "killed after {wakes}: {told:#?}");
        assert!(
            told[0].contains(": planned\n"),
            "killed after {wakes}: {}",
            told[0]
        );
        assert_eq!(bot.pending(pull), [""; 0], "killed after {wakes}");
    }
    assert!(cut > KILLS.len() / 2, "only {cut} plans were cut off");
    end_holding_all(bot).await;
}

async fn an_apply_that_is_killed_anywhere_is_told_once_and_done_at_most_once(backend: Backend) {
    let (mut bot, files) = many_projects(backend).await;
    let mut cut = 0;
    for (file, wakes) in files.iter().zip(KILLS) {
        let pull = bot
            .open_pull(file, &[(file, "# fake: add 1 change 0 destroy 0\n")])
            .await;
        assert_eq!(bot.read_comments(pull).len(), 1);
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper apply")
            .await
            .unwrap();
        cut += usize::from(bot.work_until_killed(wakes).await);
        bot.crash_and_restart().await;
        bot.settle().await;
        let told = bot.read_comments(pull);
        assert_eq!(told.len(), 1, "killed after {wakes}: {told:#?}");
        let applied = told[0].contains(": applied\n");
        let stopped = told[0].contains("The server stopped during this apply");
        assert!(applied || stopped, "killed after {wakes}: {}", told[0]);
        let calls = format!("apply {}", file.trim_end_matches("/main.tf"));
        let calls = bot.calls().iter().filter(|call| **call == calls).count();
        assert!(
            calls == 1 || (calls == 0 && stopped),
            "killed after {wakes}: applied {calls} times"
        );
        assert_eq!(bot.pending(pull), [""; 0], "killed after {wakes}");
    }
    assert!(cut > KILLS.len() / 2, "only {cut} applies were cut off");
    end_holding_all(bot).await;
}

/// Creates a pull request whose apply hangs, and kills the server during the apply.
async fn dead_in_apply(backend: Backend, files: &[(&str, &str)]) -> (Bot, PullNumber) {
    let before: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, _)| (*path, "# narrow\n"))
        .collect();
    let mut bot = Bot::new(backend, &before).await;
    let pull = bot.open_pull("wider", files).await;
    bot.answer(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.settle_short().await;
    command.abort();
    command.await.unwrap_err();
    (bot, pull)
}

async fn an_apply_that_was_cut_off_is_told_with_its_last_words(backend: Backend) {
    let (mut bot, pull) =
        dead_in_apply(backend, &[("network/main.tf", "# fake: hang apply\n")]).await;
    assert!(!bot.pending(pull).is_empty(), "the apply was under way");
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_snapshot!(bot.answer(pull), @"
    Ran Apply for dir: `network` workspace: `default`: failed

    > [!CAUTION]
    > **The server stopped during this apply.** Its changes may be incomplete. Lockkeeper
    > never repeats an apply automatically. Check the results below, then plan again to see what is left to do.

    **Apply failed**: the apply was interrupted, because Lockkeeper stopped while it was running. It is not repeated automatically.

    * The state shows what was applied until then, as far as Terraform could still write it.
    * Plan again to see what is left. If Terraform could not release its own lock of the state, the plan shows that, and the command that clears the lock.

    ```text
    $ terraform apply -input=false -- plan.tfplan
    hanging
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `cce89f48` · 1 min 30 s</sub>
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"apply","id":"ID","pull":1,"head":"cce89f481180e1d2b27838062d0f856e9e7e5d0e","outcome":"failure","reason":"interrupted","projects":[{"name":null,"dir":"network","workspace":"default","outcome":"failed","plan":null}]} -->"#);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/1 projects failed to apply.
    lockkeeper/apply: network/default: Failure, Apply failed.
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
    let again = bot.ask(pull, "lockkeeper apply").await;
    assert_snapshot!(again, @"
    **Apply refused**: there is no plan to apply in this pull request.

    * Comment `lockkeeper plan` first, look at the plan, then apply it.

    <sub>Commit `cce89f48` · 0 s</sub>
    ");
    bot.end(&[LOCK]).await;
}

async fn a_lock_of_terraform_that_was_left_behind_is_told_with_the_command_that_clears_it(
    backend: Backend,
) {
    let files = [(
        "network/main.tf",
        "# fake: hang apply\n# fake: leaves lock\n",
    )];
    let (mut bot, pull) = dead_in_apply(backend, &files).await;
    bot.crash_and_restart().await;
    bot.settle().await;
    let told = bot.answer(pull);
    let (_, told) = told.split_once("> [!IMPORTANT]").expect("the lock is told");
    assert_snapshot!(told, @"

    > **The state is locked** by `root@keeper-0` since `2026-03-02T09:00:00Z` for `OperationTypeApply`. This is Terraform's own lock, not one of Lockkeeper's.
    > Try again when that run has ended. If you are sure that the run died and you have access to the state, clear the lock in this directory:

    ```shell
    terraform force-unlock 9db590f1-b6fe
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `1c0fdebf` · 1 min 30 s</sub>
    ");
    bot.end(&[LOCK]).await;
}

async fn an_apply_that_was_cut_off_is_told_although_github_was_away(backend: Backend) {
    let (mut bot, pull) =
        dead_in_apply(backend, &[("network/main.tf", "# fake: hang apply\n")]).await;
    for route in [
        "GET /repos/*/*/pulls/*",
        "POST /repos/*/*/issues/*/comments",
    ] {
        bot.github
            .fault(route, 1000, lockkeeper::emulator::Fault::BadGateway);
    }
    bot.crash_and_restart().await;
    bot.settle_until(bot.db.now() + chrono::TimeDelta::minutes(10))
        .await;
    bot.github.clear_faults();
    bot.settle().await;
    assert!(
        bot.answer(pull)
            .contains("The server stopped during this apply")
    );
    assert_eq!(bot.pending(pull), [""; 0]);
    bot.end(&[LOCK]).await;
}

async fn an_apply_of_several_projects_that_was_cut_off_tells_of_each(backend: Backend) {
    let files = [
        ("a/main.tf", "# fake: add 1 change 0 destroy 0\n"),
        ("b/main.tf", "# fake: hang apply\n"),
        ("c/main.tf", "# fake: add 3 change 0 destroy 0\n"),
    ];
    let (mut bot, pull) = dead_in_apply_one_by_one(backend, &files).await;
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_snapshot!(bot.answer(pull), @"
    Ran Apply for 3 projects: 1 failed, 1 skipped, 1 applied

    > [!CAUTION]
    > **The server stopped during this apply.** Its changes may be incomplete. Lockkeeper
    > never repeats an apply automatically. Check the results below, then plan again to see what is left to do.

    | | Project | Outcome |
    |:-:|:--|:--|
    | ❌ | `b` | [failed](https://locks.example.com/jobs/ID) |
    | ⏭️ | `c` | [skipped](https://locks.example.com/jobs/ID) |
    | ✅ | `a` | [applied](https://locks.example.com/jobs/ID) |

    ---

    ### ❌ dir: `b` workspace: `default`

    **Apply failed**: the apply was interrupted, because Lockkeeper stopped while it was running. It is not repeated automatically.

    * The state shows what was applied until then, as far as Terraform could still write it.
    * Plan again to see what is left. If Terraform could not release its own lock of the state, the plan shows that, and the command that clears the lock.

    ```text
    $ terraform apply -input=false -- plan.tfplan
    hanging
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d b
      ```

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### ⏭️ dir: `c` workspace: `default`

    **Apply skipped**: Lockkeeper stopped before its turn came. Its plan is kept.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d c
      ```

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### ✅ dir: `a` workspace: `default`

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    $ terraform apply -input=false -- plan.tfplan
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output of this project](https://locks.example.com/jobs/ID)

    <sub>Commit `75264c49` · 1 min 30 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 2/3 projects failed to apply.
    lockkeeper/apply: a/default: Success, Apply succeeded.
    lockkeeper/apply: b/default: Failure, Apply failed.
    lockkeeper/apply: c/default: Failure, Apply failed: a previous project failed.
    lockkeeper/plan: Success, 3/3 projects planned successfully.
    lockkeeper/plan: a/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    lockkeeper/plan: b/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    lockkeeper/plan: c/default: Success, Plan: 3 to add, 0 to change, 0 to destroy.
    ");
    // Plans whose apply had not begun can still be applied.
    let rest = bot.ask(pull, "lockkeeper apply -d c").await;
    assert!(rest.contains(": applied\n"), "{rest}");
    let locks = ["a", "b", "c"].map(|dir| format!("acme/infra/{dir}/default by #1"));
    bot.end(&locks.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
}

/// Does the same with a single permit for runs, so that a project waits.
async fn dead_in_apply_one_by_one(backend: Backend, files: &[(&str, &str)]) -> (Bot, PullNumber) {
    let mut before: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, _)| (*path, "# narrow\n"))
        .collect();
    before.push(("atlantis.yaml", "version: 3\nparallel_apply: false\n"));
    let mut bot = Bot::new(backend, &before).await;
    let pull = bot.open_pull("wider", files).await;
    bot.answer(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    command.abort();
    command.await.unwrap_err();
    (bot, pull)
}

/// The first project is planned when the server dies, and the second attempt comes to no plan.
async fn a_plan_of_an_attempt_that_was_cut_off_is_not_applied(backend: Backend) {
    const ORDER: (&str, &str) = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- name: app\n  dir: app\n  execution_order_group: 1\n- name: net\n  dir: network\n",
    );
    let app = ("app/main.tf", "# narrow\n");
    let mut bot = Bot::new(backend, &[NETWORK, app, ORDER]).await;
    let wide = ("network/main.tf", "# wide\n");
    let slow = ("app/main.tf", "# fake: wait plan\n");
    let pull = bot.announce_pull("wider", &[wide, slow]).await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    command.abort();
    command.await.unwrap_err();
    let stored = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(stored.len(), 1, "{stored:?}");
    let hooks = r#"{"repos": [{"id": "/.*/", "pre_workflow_hooks": [{"run": "exit 1", "commands": "autoplan"}]}]}"#;
    bot.configure("repo-config-json", hooks);
    bot.configure("fail-on-pre-workflow-hook-error", "true");
    bot.crash_and_restart().await;
    bot.settle().await;
    let told = bot.answer(pull);
    assert!(!told.contains("planned"), "{told}");
    bot.say(pull, "lockkeeper apply -p net").await;
    let told = bot.answer(pull);
    let refused = "**Apply refused**: there is no plan of that project in this pull request.";
    assert!(told.starts_with(refused), "{told}");
    bot.end(&["acme/infra/app/default by #1", LOCK]).await;
}

async fn a_plan_that_was_cut_off_is_made_again(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    command.abort();
    command.await.unwrap_err();
    bot.crash_and_restart().await;
    std::fs::write(bot.tools.join("go"), "").unwrap();
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(bot.pending(pull), [""; 0]);
    assert_snapshot!(runs(&bot).await, @"
    plan dir: `network` workspace: `default`: finished cancelled (Interrupted when the server stopped. It is repeated.)
    plan dir: `network` workspace: `default`: finished planned (Plan: 1 to add, 0 to change, 0 to destroy.)
    ");
    bot.end(&[LOCK]).await;
}

/// Interrupts a plan. Before the server is back, a push changes the head of the pull request.
async fn cut_off_and_moved_on(backend: Backend) -> (Bot, PullNumber, CommitSha) {
    let bot = Bot::new(backend, &[NETWORK]).await;
    let old = bot
        .push("wider", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    let pull = bot
        .github
        .open_pull(REPO, NewPull::from_branch("wider"))
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    command.abort();
    command.await.unwrap_err();
    bot.settle_short().await;
    assert!(!pending_on(&bot, &old).is_empty());
    bot.push("wider", &[("network/main.tf", "# fake: no changes\n")])
        .await;
    (bot, pull, old)
}

fn pending_on(bot: &Bot, commit: &CommitSha) -> Vec<String> {
    let statuses = bot.github.statuses(REPO, commit).unwrap().latest;
    let pending = statuses
        .into_iter()
        .filter(|status| status.state == StatusState::Pending);
    pending.map(|status| status.context).collect()
}

async fn a_plan_that_was_cut_off_leaves_nothing_pending_on_an_older_commit(backend: Backend) {
    let (mut bot, pull, old) = cut_off_and_moved_on(backend).await;
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_eq!(pending_on(&bot, &old), [""; 0]);
    assert_eq!(bot.pending(pull), [""; 0]);
    assert_eq!(
        bot.read_comments(pull).len(),
        1,
        "the plan of the push takes the place of the one that was cut off"
    );
    bot.end(&[LOCK]).await;
}

async fn a_plan_that_was_cut_off_leaves_nothing_pending_when_the_pull_moved_on_and_was_closed(
    backend: Backend,
) {
    let (mut bot, pull, old) = cut_off_and_moved_on(backend).await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_eq!(pending_on(&bot, &old), [""; 0]);
    bot.read_comments(pull);
    bot.end(&[]).await;
}

/// Returns state, outcome and headline of every run, oldest first.
async fn runs(bot: &Bot) -> String {
    let mut runs = recent_runs(bot.store(), 100).await;
    runs.sort_by_key(|run| run.id);
    let line = |run: &lockkeeper::store::RunRow| {
        let outcome = run
            .outcome
            .map(|outcome| outcome.to_string())
            .unwrap_or_default();
        format!(
            "{} {}: {} {outcome} ({})",
            run.kind,
            run.project,
            run.state,
            run.message.as_deref().unwrap_or("-")
        )
    };
    runs.iter().map(line).collect::<Vec<_>>().join("\n")
}

async fn an_interrupted_server_makes_its_plan_again_after_the_restart(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", "# fake: wait plan\n")])
        .await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.replica.ctx.runs.interrupt.cancel();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle_short().await;
    assert_eq!(
        bot.read_comments(pull),
        [""; 0],
        "nothing is told of a plan that is made again"
    );
    assert_eq!(bot.locks().await, [LOCK], "nobody else may come in between");
    std::fs::write(bot.tools.join("go"), "").unwrap();
    bot.crash_and_restart().await;
    bot.settle().await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert_eq!(bot.pending(pull), [""; 0]);
    bot.end(&[LOCK]).await;
}

async fn an_interrupted_server_reports_how_far_its_apply_came(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# fake: hang apply\n")])
        .await;
    bot.answer(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.replica.ctx.runs.interrupt.cancel();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle_short().await;
    assert_snapshot!(bot.answer(pull), @"
    Ran Apply for dir: `network` workspace: `default`: cancelled

    **Apply cancelled**: Lockkeeper was shut down during this apply, so `terraform apply` was stopped.

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

    <sub>Commit `cce89f48` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Failure, 1/1 projects failed to apply.
    lockkeeper/apply: network/default: Failure, Apply failed: it was cancelled.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_eq!(bot.read_comments(pull), [""; 0], "it is told once");
    assert_eq!(
        bot.calls()
            .iter()
            .filter(|call| *call == "apply network")
            .count(),
        1
    );
    bot.end(&[LOCK]).await;
}

async fn a_plan_that_cannot_be_kept_is_given_up_and_leaves_nothing_behind(backend: Backend) {
    let files = [
        ("a/main.tf", "# fake: no changes\n"),
        ("b/main.tf", "# fake: add 1 change 0 destroy 0\n"),
    ];
    let mut bot = Bot::new(backend, &files.map(|(path, _)| (path, "# narrow\n"))).await;
    let plans = bot.db.dir.path().join("plans");
    std::fs::remove_dir_all(&plans).unwrap();
    std::fs::write(&plans, "a file where the directory was").unwrap();
    let pull = bot.open_pull("wider", &files).await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan failed**: this command could not be run: an internal error occurred.

    * Run the command again to retry.
    * If it fails again, an administrator can find the cause in the log under `ID`.

    <sub>Commit `61a7dcad` · 31 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, Plan failed.
    lockkeeper/plan: a/default: Failure, Plan failed.
    lockkeeper/plan: b/default: Failure, Plan failed.
    ");
    assert!(
        bot.ask(pull, "lockkeeper apply")
            .await
            .contains("there is no plan to apply")
    );
    bot.end_given_up(&[], &["run_command"]).await;
}

async fn a_close_that_was_missed_is_made_up_for(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, ("dns/main.tf", "# narrow\n")]).await;
    let closed = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    let open = bot
        .open_pull("names", &[("dns/main.tf", "# wider\n")])
        .await;
    bot.answer(closed);
    bot.answer(open);
    bot.github.set_delivering(Delivering::Held).await;
    bot.github.close(REPO, closed, "alice").await.unwrap();
    assert_eq!(
        bot.github.lose_next().unwrap().action.as_deref(),
        Some("closed")
    );
    bot.settle().await;
    assert_eq!(bot.locks().await.len(), 2, "nobody knows of it");
    bot.replica.tick("closed_pulls").await.unwrap();
    bot.settle().await;
    assert_snapshot!(bot.answer(closed), @"
    This pull request was closed: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    ");
    bot.replica.tick("closed_pulls").await.unwrap();
    bot.end(&["acme/infra/dns/default by #2"]).await;
}

async fn a_command_on_a_pull_whose_close_was_missed_gives_its_locks_back(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    bot.github.set_delivering(Delivering::Held).await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    assert_eq!(
        bot.github.lose_next().unwrap().action.as_deref(),
        Some("closed")
    );
    bot.github.set_delivering(Delivering::Immediately).await;
    bot.say(pull, "lockkeeper plan").await;
    let told = bot.read_comments(pull);
    assert_snapshot!(told.join("\n=====\n"), @"
    This pull request was closed: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    =====
    **Plan refused**: this pull request is closed, and commands run on open pull requests only.

    * Reopen it, then run the command again.

    <sub>Commit `fcff6ae6` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn what_is_old_is_forgotten(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, ("dns/main.tf", "# narrow\n")]).await;
    let closed = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    let open = bot
        .open_pull("names", &[("dns/main.tf", "# wider\n")])
        .await;
    bot.answer(closed);
    bot.answer(open);
    bot.github.close(REPO, closed, "alice").await.unwrap();
    bot.settle().await;
    bot.answer(closed);
    assert_eq!(plan_files(&bot), 2);
    bot.db
        .clock
        .advance(std::time::Duration::from_hours(24 * 6));
    bot.replica.tick("retention").await.unwrap();
    assert_eq!(
        (plan_files(&bot), bot.deliveries().await.is_empty()),
        (2, false),
        "it is not old yet"
    );
    bot.db
        .clock
        .advance(std::time::Duration::from_hours(24 * 2));
    bot.replica.tick("retention").await.unwrap();
    assert_eq!(
        (plan_files(&bot), bot.deliveries().await.is_empty()),
        (1, false),
        "the discarded plan is gone"
    );
    bot.db
        .clock
        .advance(std::time::Duration::from_hours(24 * 23));
    bot.replica.tick("retention").await.unwrap();
    assert_eq!(
        (plan_files(&bot), bot.deliveries().await.is_empty()),
        (1, true)
    );
    let applied = bot.ask(open, "lockkeeper apply").await;
    assert!(
        applied.contains(": applied\n"),
        "a plan that is still wanted is kept: {applied}"
    );
    bot.end(&["acme/infra/dns/default by #2"]).await;
}

fn plan_files(bot: &Bot) -> usize {
    plan_file_names(bot).len()
}

fn plan_file_names(bot: &Bot) -> Vec<String> {
    let entries = std::fs::read_dir(bot.db.dir.path().join("plans/plans")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Creates a file among the plan files, or opens the existing one, and dates it by the clock of the story.
fn written_now(bot: &Bot, name: &str) {
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(bot.db.dir.path().join("plans/plans").join(name));
    file.unwrap()
        .set_modified(bot.db.clock.now().into())
        .unwrap();
}

async fn a_plan_file_without_a_record_goes_when_no_run_could_have_written_it(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, ("dns/main.tf", "# narrow\n")]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    bot.answer(pull);
    let [recorded] = plan_file_names(&bot).try_into().unwrap();
    let left = |n: u32, ending: &str| format!("00000000-0000-7000-9000-{n:012}{ending}");
    let (whole, cut_off, of_others) = (
        left(1, ".tfplan"),
        left(2, ".tfplan#1"),
        "notes.txt".to_owned(),
    );
    for name in [&recorded, &whole, &cut_off, &of_others] {
        written_now(&bot, name);
    }
    bot.db.clock.advance(Duration::from_mins(50));
    bot.replica.tick("retention").await.unwrap();
    assert_eq!(
        plan_files(&bot),
        4,
        "the record of a young file may be on its way"
    );

    bot.db.clock.advance(Duration::from_mins(50));
    bot.push("names", &[("dns/main.tf", "# fake: wait plan\n")])
        .await;
    let busy = bot
        .github
        .open_pull(REPO, NewPull::from_branch("names"))
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    let of_the_run = left(3, ".tfplan");
    written_now(&bot, &of_the_run);
    bot.db.clock.advance(Duration::from_hours(5));
    bot.replica.tick("retention").await.unwrap();
    let mut stay = [recorded.clone(), of_the_run, of_others.clone()];
    stay.sort();
    assert_eq!(
        plan_file_names(&bot),
        stay,
        "a run that is under way began before the file was written"
    );

    bot.go();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle().await;
    assert!(bot.answer(busy).contains(": planned\n"));
    bot.replica.tick("retention").await.unwrap();
    let names = plan_file_names(&bot);
    assert!(
        names.len() == 3 && names.contains(&recorded) && names.contains(&of_others),
        "{names:?}"
    );
    assert!(
        bot.ask(pull, "lockkeeper apply")
            .await
            .contains(": applied\n")
    );
    bot.end(&[
        "acme/infra/dns/default by #2",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn an_apply_that_comes_to_its_end_after_the_interrupt_was_done(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# fake: late apply\n")])
        .await;
    bot.answer(pull);
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.replica.ctx.runs.interrupt.cancel();
    assert_eq!(command.await.unwrap(), lockkeeper::queue::Tick::Worked);
    bot.settle_short().await;
    let told = bot.answer(pull);
    assert!(
        told.contains(": applied\n") && told.contains("Interrupt received."),
        "{told}"
    );
    bot.end(&[LOCK]).await;
}

async fn a_plan_that_is_cut_off_again_and_again_is_given_up_and_told(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .announce_pull("wider", &[("network/main.tf", "# fake: hang plan\n")])
        .await;
    for times in 1..=4 {
        let command = bot.begin_command();
        bot.calls_of("plan network", times).await;
        command.abort();
        command.await.unwrap_err();
        bot.crash_and_restart().await;
    }
    bot.settle().await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan failed**: Lockkeeper stopped 4 times during this command, and does not retry it automatically. Nothing was applied.

    * Ask an administrator to find out why Lockkeeper stopped before you retry the command. A common cause is too little memory for a run.
    * Then run the command again. Its id in the log is `ID`.

    <sub>Commit `c7a48f8e` · 6 min 0 s</sub>
    ");
    assert_eq!(bot.pending(pull), [""; 0]);
    bot.end_given_up(&[], &["run_command"]).await;
}
