//! Stories about `import` and `state rm`: changes of a state without a plan, their permissions and conflicts, and the
//! effects on plans and locks.

use insta::assert_snapshot;
use lockkeeper::model::PullNumber;
use serde_json::json;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, stop_applies, story};
use crate::support::rows::recent_runs;

story!(
    an_import_is_told_and_the_plan_made_before_is_discarded,
    an_import_is_refused_where_another_pull_has_the_lock,
    what_stops_applies_stops_imports_and_removals,
    an_import_waits_for_what_is_demanded_of_it,
    changes_of_the_state_need_what_an_apply_needs,
    changes_of_the_state_can_need_less_than_an_apply,
    a_push_after_the_comment_refuses_a_change_of_the_state,
    an_import_has_to_mean_one_project,
    an_import_that_fails_changes_nothing_and_gives_its_own_lock_back,
    an_import_that_fails_keeps_the_plan,
    resources_leave_the_states_of_several_projects,
    the_operators_steps_and_hooks_are_for_imports_too,
    what_a_command_of_the_operator_did_before_it_failed_discards_the_plan,
    an_import_that_was_cut_off_is_told_and_not_done_again,
    an_import_that_is_killed_anywhere_is_told_once_and_done_at_most_once,
    closing_the_pull_leaves_the_lock_until_the_import_has_ended,
    a_running_import_is_cancelled_by_force_only,
    a_pull_without_projects_is_told_how_to_name_one,
    files_that_did_not_change_can_be_named,
    imports_are_switched_off_unless_the_operator_allows_them,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #1";
const ALL: (&str, &str) = ("allow-commands", "all");
const REMOVAL: &str = "lockkeeper state rm -d network terraform_data.old";
const IMPORT: &str = "lockkeeper import -d network terraform_data.it 'an id'";

/// Starts a bot with a planned pull request. The comment was read.
async fn planned(backend: Backend, flags: &[(&str, &str)], code: &str) -> (Bot, PullNumber) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[&[ALL], flags].concat()).await;
    let pull = bot.open_pull("wider", &[("network/main.tf", code)]).await;
    bot.comment(pull);
    (bot, pull)
}

/// Returns how often a call was made for a directory.
fn calls(bot: &Bot, call: &str) -> usize {
    bot.calls().iter().filter(|line| *line == call).count()
}

async fn an_import_is_told_and_the_plan_made_before_is_discarded(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], WIDER.1).await;
    let statuses = bot.statuses(pull);
    bot.say(pull, &format!("{IMPORT} -- -lock-timeout=5s"))
        .await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Import for dir: `network` workspace: `default`: imported

    The earlier plan is discarded, because it does not include this change.

    ```diff
    terraform_data.it: Importing from ID "an id"...

    Import successful!
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    "#);
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"import","id":"ID","pull":1,"head":"856845201b3cf6048a652acc870e30b35e0dfeed","outcome":"success","projects":[{"name":null,"dir":"network","workspace":"default","outcome":"imported","plan":null}]} -->"#);
    assert_eq!(
        bot.statuses(pull),
        "lockkeeper/plan: Failure, The plan was discarded: plan again.\n\
         lockkeeper/plan: network/default: Failure, The plan was discarded: plan again.\n"
    );
    let arguments = std::fs::read_to_string(bot.tools.join("arguments")).unwrap();
    assert_eq!(
        arguments.lines().last(),
        Some("import -lock-timeout=5s -- terraform_data.it an id")
    );
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("**Apply refused**: there is no plan to apply in this pull request.")
    );
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).contains(": planned\n"));
    assert_eq!(bot.statuses(pull), statuses);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains(": applied\n"));
    bot.end(&[LOCK]).await;
}

async fn an_import_is_refused_where_another_pull_has_the_lock(backend: Backend) {
    let (mut bot, _) = planned(backend, &[], WIDER.1).await;
    let second = bot
        .open_pull("other", &[("app/main.tf", "# fake: no changes\n")])
        .await;
    bot.comment(second);
    bot.say(second, IMPORT).await;
    assert_snapshot!(bot.comment(second), @"
    Ran Import for dir: `network` workspace: `default`: locked

    **Import refused**: pull request [#1](https://github.test/acme/infra/pull/1) holds the lock of this directory and workspace. `alice` has had it since 2026-03-02 09:00 UTC (planned when the pull request changed).

    The lock becomes free when that pull request is merged or closed, or when somebody comments `lockkeeper unlock` there or [releases it](https://locks.example.com/locks/ID).

    * To **try** this project again, comment:
      ```shell
      lockkeeper import -d network terraform_data.it 'an id'
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `41b2dfcd` · 0 s</sub>
    ");
    bot.say(second, "lockkeeper state rm -d network 'a[\"b\"]' c.d")
        .await;
    let comment = bot.comment(second);
    assert!(
        comment.contains("**State `rm` refused**: pull request [#1]"),
        "{comment}"
    );
    assert!(
        comment.contains("lockkeeper state rm -d network 'a[\"b\"]' c.d\n"),
        "{comment}"
    );
    assert_eq!(
        (
            calls(&bot, "import network"),
            calls(&bot, "state rm network")
        ),
        (0, 0)
    );
    bot.end(&["acme/infra/app/default by #2", LOCK]).await;
}

async fn what_stops_applies_stops_imports_and_removals(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], WIDER.1).await;
    stop_applies(bot.store(), "olga", "the database moves").await;
    bot.say(pull, IMPORT).await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Import for dir: `network` workspace: `default`: refused

    **Import refused**: applies are stopped on this whole server, by `olga` since 2026-03-02 09:00 UTC, until somebody allows them again. Reason: the database moves

    * An apply lock also prevents import, because it changes the state as well.
    * If you can use the pages of this server, allow applies again on `https://locks.example.com/apply-locks`. An administrator can also run `lockkeeper apply-lock clear`.
    * The plans are kept until then; run the command again afterwards.

    * To **try** this project again, comment:
      ```shell
      lockkeeper import -d network terraform_data.it 'an id'
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper state rm terraform_data.it").await;
    let comment = bot.comment(pull);
    assert!(
        comment.contains("An apply lock also prevents `state rm`"),
        "{comment}"
    );
    assert_eq!(
        (
            calls(&bot, "import network"),
            calls(&bot, "state rm network")
        ),
        (0, 0)
    );
    bot.end(&[LOCK]).await;
}

async fn an_import_waits_for_what_is_demanded_of_it(backend: Backend) {
    let config =
        json!({"repos": [{"id": "/.*/", "import_requirements": ["approved"]}]}).to_string();
    let (mut bot, pull) = planned(backend, &[("repo-config-json", &config)], WIDER.1).await;
    bot.say(pull, IMPORT).await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Import for dir: `network` workspace: `default`: refused

    **Import refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and nobody has approved the pull request.
    Nothing was changed, and no lock was taken.

    * Somebody other than the author `alice` must approve the pull request; then run the command again.

    * To **try** this project again, comment:
      ```shell
      lockkeeper import -d network terraform_data.it 'an id'
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.approve(pull, "bob");
    bot.say(pull, IMPORT).await;
    assert!(bot.comment(pull).contains(": imported\n"));
    bot.end(&[LOCK]).await;
}

async fn changes_of_the_state_need_what_an_apply_needs(backend: Backend) {
    let config = json!({"repos": [{"id": "/.*/", "apply_requirements": ["approved"]}]}).to_string();
    let (mut bot, pull) = planned(backend, &[("repo-config-json", &config)], WIDER.1).await;
    for (comment, title) in [(IMPORT, "Import"), (REMOVAL, "State `rm`")] {
        bot.say(pull, comment).await;
        let refused = bot.comment(pull);
        let why = format!(
            "**{title} refused**: `approved` is required (line 1 of the server's `--repo-config-json`, for `/.*/`), and \
             nobody has approved the pull request.\nNothing was changed, and no lock was taken.\n"
        );
        assert!(refused.contains(&why), "{refused}");
    }
    let calls_of_both = |bot: &Bot| (calls(bot, "import network"), calls(bot, "state rm network"));
    assert_eq!(calls_of_both(&bot), (0, 0));
    bot.approve(pull, "bob");
    bot.say(pull, IMPORT).await;
    assert!(bot.comment(pull).contains(": imported\n"));
    bot.say(pull, REMOVAL).await;
    assert!(bot.comment(pull).contains(": removed from the state\n"));
    assert_eq!(calls_of_both(&bot), (1, 1));
    bot.end(&[LOCK]).await;
}

async fn changes_of_the_state_can_need_less_than_an_apply(backend: Backend) {
    let rules =
        json!({"id": "/.*/", "apply_requirements": ["approved"], "import_requirements": []});
    let config = json!({"repos": [rules]}).to_string();
    let (mut bot, pull) = planned(backend, &[("repo-config-json", &config)], WIDER.1).await;
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("`approved` is required"));
    bot.say(pull, IMPORT).await;
    assert!(bot.comment(pull).contains(": imported\n"));
    bot.say(pull, REMOVAL).await;
    assert!(bot.comment(pull).contains(": removed from the state\n"));
    bot.end(&[LOCK]).await;
}

/// The comment waits, and somebody pushes in the meantime.
async fn a_push_after_the_comment_refuses_a_change_of_the_state(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], WIDER.1).await;
    for (comment, call, done) in [
        (IMPORT, "import network", ": imported\n"),
        (REMOVAL, "state rm network", ": removed from the state\n"),
    ] {
        let old = bot.github.pull(REPO, pull).unwrap().head;
        bot.github
            .comment(REPO, pull, "alice", comment)
            .await
            .unwrap();
        bot.settle_short().await;
        let code = format!("# fake: add 2 change 1 destroy 0\n# pushed before {call}\n");
        let new = bot.push("wider", &[("network/main.tf", &code)]).await;
        bot.settle().await;
        let told = bot.read_comments(pull).join("\n");
        let why = format!(
            "refused**: the pull request is at commit `{}` now, and was at `{}` when Lockkeeper read the comment",
            new.short(),
            old.short()
        );
        assert!(told.contains(&why), "{told}");
        assert_eq!(calls(&bot, call), 0);
        bot.say(pull, comment).await;
        let repeated = bot.comment(pull);
        assert!(repeated.contains(done), "{repeated}");
        assert_eq!(calls(&bot, call), 1);
    }
    bot.end(&[LOCK]).await;
}

async fn an_import_has_to_mean_one_project(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[ALL]).await;
    let pull = bot
        .open_pull("both", &[WIDER, ("app/main.tf", "# fake: no changes\n")])
        .await;
    bot.comment(pull);
    bot.say(pull, "lockkeeper import terraform_data.it x").await;
    assert_snapshot!(bot.comment(pull), @"
    **Import refused**: a resource can be imported into one project only, and 2 projects match. Nothing was changed.

    * Run the command again with the flags of one of them: `-d app`, `-d network`.

    <sub>Commit `dbb95be4` · 0 s</sub>
    ");
    assert!(
        bot.machine_line(pull)
            .contains(r#""reason":"several_projects""#)
    );
    bot.say(pull, IMPORT).await;
    assert!(bot.comment(pull).contains(": imported\n"));
    assert_eq!(
        (calls(&bot, "import network"), calls(&bot, "import app")),
        (1, 0)
    );
    bot.end(&["acme/infra/app/default by #1", LOCK]).await;
}

async fn an_import_that_fails_changes_nothing_and_gives_its_own_lock_back(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP],
        &[ALL, ("disable-autoplan", "true")],
    )
    .await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# fake: fail import\n")])
        .await;
    bot.say(pull, IMPORT).await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Import for dir: `network` workspace: `default`: failed

    **Import failed**: `terraform import` ended with exit code 1.

    ```text
    Error: The import went wrong

      on main.tf line 1:

    This is what the story asked for.
    ```

    * To **try** this project again, comment:
      ```shell
      lockkeeper import -d network terraform_data.it 'an id'
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `6a6fdbba` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn an_import_that_fails_keeps_the_plan(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], "# fake: fail import\n").await;
    bot.say(pull, IMPORT).await;
    assert!(bot.comment(pull).contains(": failed\n"));
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains(": applied\n"));
    bot.end(&[LOCK]).await;
}

async fn resources_leave_the_states_of_several_projects(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP],
        &[ALL, ("disable-autoplan", "true")],
    )
    .await;
    let pull = bot
        .open_pull("both", &[WIDER, ("app/main.tf", "# fake: fail state rm\n")])
        .await;
    bot.say(
        pull,
        "lockkeeper state rm terraform_data.old --verbose -- -lock=false",
    )
    .await;
    assert_snapshot!(bot.comment(pull), @"
    Ran State `rm` for 2 projects: 1 failed, 1 removed from the state

    | | Project | Outcome |
    |:-:|:--|:--|
    | ❌ | `app` | [failed](https://locks.example.com/jobs/ID) |
    | ✅ | `network` | [removed from the state](https://locks.example.com/jobs/ID) |

    ---

    ### ❌ dir: `app` workspace: `default`

    **State `rm` failed**: `terraform state rm` ended with exit code 1.

    ```text
    Error: The state rm went wrong

      on main.tf line 1:

    This is what the story asked for.
    ```

    <details><summary>Log (11 lines)</summary>

    ```text
    $ terraform init -input=false -upgrade
    Initializing the backend...
    $ terraform state rm -lock=false -- terraform_data.old
    ╷
    │ Error: The state rm went wrong
    │ 
    │   on main.tf line 1:
    │ 
    │ This is what the story asked for.
    ╵
    `terraform state rm` ended with exit code 1
    ```

    </details>

    * To **try** this project again, comment:
      ```shell
      lockkeeper state rm -d app terraform_data.old -- '-lock=false'
      ```

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### ✅ dir: `network` workspace: `default`

    ```diff
    Removed terraform_data.old
    Successfully removed 1 resource instance(s).
    ```

    <details><summary>Log (5 lines)</summary>

    ```text
    $ terraform init -input=false -upgrade
    Initializing the backend...
    $ terraform state rm -lock=false -- terraform_data.old
    Removed terraform_data.old
    Successfully removed 1 resource instance(s).
    ```

    </details>

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output of this project](https://locks.example.com/jobs/ID)

    <sub>Commit `812b2760` · 0 s</sub>
    ");
    assert_snapshot!(bot.machine_line(pull), @r#"<!-- lockkeeper {"v":1,"command":"state_rm","id":"ID","pull":1,"head":"812b2760efa2a1a33667df33a3af9b0bbd262484","outcome":"partial","projects":[{"name":null,"dir":"app","workspace":"default","outcome":"failed","plan":null},{"name":null,"dir":"network","workspace":"default","outcome":"state_removed","plan":null}]} -->"#);
    bot.end(&[LOCK]).await;
}

async fn the_operators_steps_and_hooks_are_for_imports_too(backend: Backend) {
    let steps = json!([
        {"env": {"name": "WHO", "command": "echo $USER_NAME"}},
        "init",
        {"import": {"extra_args": ["-lock=false"]}},
        {"run": "printf '%s\\n' \"$WHO: $COMMENT_ARGS in $REPO_REL_DIR, workspace $WORKSPACE, for #$PULL_NUM\""},
    ]);
    let hook = json!({"run": "printf '%s %s' $COMMAND_NAME \"$COMMENT_ARGS\" >$OUTPUT_STATUS_FILE", "commands": "import, state"});
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "w", "pre_workflow_hooks": [hook]}],
        "workflows": {"w": {"import": {"steps": steps}}},
    });
    let (mut bot, pull) = planned(
        backend,
        &[("repo-config-json", &config.to_string())],
        WIDER.1,
    )
    .await;
    bot.say(pull, "lockkeeper import terraform_data.it x").await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Import for dir: `network` workspace: `default`: imported

    The earlier plan is discarded, because it does not include this change.

    ```diff
    terraform_data.it: Importing from ID "x"...

    Import successful!
    alice: \t\e\r\r\a\f\o\r\m\_\d\a\t\a\.\i\t,\x in network, workspace default, for #1
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    "#);
    bot.say(pull, "lockkeeper state rm a.b").await;
    bot.comment(pull);
    let runs = recent_runs(bot.store(), 50).await;
    assert_eq!(
        runs.iter().map(|run| run.kind.as_str()).collect::<Vec<_>>(),
        ["state_rm", "import", "plan"]
    );
    let statuses = bot.statuses(pull);
    assert!(
        statuses
            .contains(r"lockkeeper/pre_workflow_hook: Pre workflow hook #0: Success, state \a\.\b"),
        "{statuses}"
    );
    bot.end(&[LOCK]).await;
}

async fn what_a_command_of_the_operator_did_before_it_failed_discards_the_plan(backend: Backend) {
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "w"}],
        "workflows": {"w": {"state_rm": {"steps": [{"run": "echo removed it; exit 3"}]}}},
    });
    let (mut bot, pull) = planned(
        backend,
        &[("repo-config-json", &config.to_string())],
        WIDER.1,
    )
    .await;
    bot.say(pull, "lockkeeper state rm a.b").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran State `rm` for dir: `network` workspace: `default`: failed

    **State `rm` failed**: `run: echo removed it; exit 3` (step 1 of the workflow `w`) ended with exit code 3.

    * Its effect on the state is unknown, so the earlier plan is discarded.

    ```text
    removed it
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `85684520` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("there is no plan to apply"));
    bot.end(&[LOCK]).await;
}

async fn an_import_that_was_cut_off_is_told_and_not_done_again(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], "# fake: hang import\n").await;
    bot.github
        .comment(REPO, pull, "alice", IMPORT)
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.settle_short().await;
    command.abort();
    command.await.unwrap_err();
    bot.crash_and_restart().await;
    bot.settle().await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Import for dir: `network` workspace: `default`: failed

    > [!CAUTION]
    > **The server stopped during this import.** Its changes may be incomplete. Lockkeeper
    > never repeats an import automatically. Check the results below, then plan again to see what is left to do.

    **Import failed**: the import was interrupted, because Lockkeeper stopped while it was running. It is not repeated automatically.

    * The state shows whether the resource was imported, as far as Terraform could still write it.
    * Plan again to see whether it was imported; an earlier plan is discarded. If Terraform could not release its own lock of the state, the plan shows that, and the command that clears the lock.

    ```text
    $ terraform init -input=false -upgrade
    Initializing the backend...
    $ terraform import -- terraform_data.it an id
    hanging
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `dc36c1f0` · 1 min 30 s</sub>
    ");
    assert_eq!(calls(&bot, "import network"), 1);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("there is no plan to apply"));
    bot.end(&[LOCK]).await;
}

/// Wake-ups after which the server is killed.
const KILLS: [usize; 10] = [1, 4, 11, 22, 45, 70, 100, 140, 200, 450];

async fn an_import_that_is_killed_anywhere_is_told_once_and_done_at_most_once(backend: Backend) {
    let files: Vec<String> = (0..KILLS.len())
        .map(|n| format!("p{n:02}/main.tf"))
        .collect();
    let before: Vec<(&str, &str)> = files
        .iter()
        .map(|file| (file.as_str(), "# narrow\n"))
        .collect();
    let mut bot = Bot::with(backend, &before, &[ALL, ("disable-autoplan", "true")]).await;
    let (mut cut, mut locks) = (0, Vec::new());
    for (file, wakes) in files.iter().zip(KILLS) {
        let pull = bot.open_pull(file, &[(file, "# wider\n")]).await;
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper import a.b c")
            .await
            .unwrap();
        cut += usize::from(bot.work_until_killed(wakes).await);
        bot.crash_and_restart().await;
        bot.settle().await;
        let told = bot.read_comments(pull);
        assert_eq!(told.len(), 1, "killed after {wakes}: {told:#?}");
        let imported = told[0].contains(": imported\n");
        let stopped = told[0].contains("The server stopped during this import");
        assert!(imported || stopped, "killed after {wakes}: {}", told[0]);
        let dir = file.trim_end_matches("/main.tf");
        let calls = calls(&bot, &format!("import {dir}"));
        assert!(
            calls == 1 || (calls == 0 && stopped),
            "killed after {wakes}: imported {calls} times"
        );
        locks.push(format!("acme/infra/{dir}/default by #{pull}"));
    }
    assert!(cut > KILLS.len() / 2, "only {cut} imports were cut off");
    bot.end(&locks.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
}

async fn closing_the_pull_leaves_the_lock_until_the_import_has_ended(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], "# fake: wait import\n").await;
    bot.github
        .comment(REPO, pull, "alice", IMPORT)
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("waiting").await;
    bot.github.close(REPO, pull, "alice").await.unwrap();
    bot.settle_short().await;
    assert_eq!(bot.locks().await, [LOCK], "it is running");
    std::fs::write(bot.tools.join("go"), "").unwrap();
    let _ = command.await.unwrap();
    assert_eq!(bot.locks().await, [""; 0]);
    bot.settle().await;
    let told = bot.read_comments(pull).join("\n");
    assert!(
        told.contains("The pull request was closed while this ran; its lock is free now."),
        "{told}"
    );
    bot.end(&[]).await;
}

async fn a_running_import_is_cancelled_by_force_only(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], "# fake: hang import\n").await;
    bot.github
        .comment(REPO, pull, "alice", IMPORT)
        .await
        .unwrap();
    bot.settle_short().await;
    let command = bot.begin_command();
    bot.printed("hanging").await;
    bot.github
        .comment(REPO, pull, "bob", "lockkeeper cancel")
        .await
        .unwrap();
    bot.settle_short().await;
    let spared = bot.comment(pull);
    assert!(
        spared.contains("it is running and was not interrupted"),
        "{spared}"
    );
    bot.github
        .comment(REPO, pull, "bob", "lockkeeper cancel --force")
        .await
        .unwrap();
    bot.settle_short().await;
    let _ = command.await.unwrap();
    bot.settle().await;
    let told = bot.read_comments(pull).join("\n");
    assert!(
        told.contains(
            "**Import cancelled**: `bob` cancelled it, so `terraform import` was stopped."
        ),
        "{told}"
    );
    assert!(told.contains("so the earlier plan is discarded"), "{told}");
    bot.end(&[LOCK]).await;
}

async fn a_pull_without_projects_is_told_how_to_name_one(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[ALL]).await;
    let pull = bot.open_pull("docs", &[("README.md", "words\n")]).await;
    bot.say(pull, "lockkeeper import a.b 'c d' -- -lock=false")
        .await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Import for 0 projects

    No file that this pull request changes belongs to a project, so there is nothing to do.

    To change the state of a project anyway, comment for example:

    ```shell
    lockkeeper import -d path/of/the/project a.b 'c d' -- '-lock=false'
    ```

    <sub>Commit `1aaf68bf` · 0 s</sub>
    ");
    bot.end(&[]).await;
    let mut bot = Bot::with(backend, &[NETWORK], &[ALL, ("silence-no-projects", "true")]).await;
    let pull = bot.open_pull("docs", &[("README.md", "words\n")]).await;
    bot.say(pull, "lockkeeper import a.b c").await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    bot.end(&[]).await;
}

async fn files_that_did_not_change_can_be_named(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP],
        &[ALL, ("restrict-file-list", "true")],
    )
    .await;
    let pull = bot
        .open_pull("app", &[("app/main.tf", "# fake: no changes\n")])
        .await;
    bot.comment(pull);
    bot.say(pull, IMPORT).await;
    assert!(bot.comment(pull).contains(": imported\n"));
    bot.end(&["acme/infra/app/default by #1", LOCK]).await;
}

async fn imports_are_switched_off_unless_the_operator_allows_them(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("docs", &[("README.md", "words\n")]).await;
    for (comment, word) in [(IMPORT, "import"), ("lockkeeper state rm a.b", "state")] {
        bot.say(pull, comment).await;
        let refused = bot.comment(pull);
        let why = format!(
            "`{word}` is disabled on this server; an administrator can allow it with `--allow-commands`"
        );
        assert!(refused.contains(&why), "{refused}");
    }
    bot.end(&[]).await;
}
