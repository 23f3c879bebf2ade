//! Stories about the projects of a command: targets, the configuration of the repository, moved and removed files.

use insta::assert_snapshot;
use lockkeeper::emulator::Change;

use crate::stories::{APP, DB, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    one_directory_is_planned_and_the_plans_of_others_stay,
    a_workspace_that_is_missing_is_made,
    a_configured_project_is_planned_by_its_name,
    a_pattern_chooses_among_configured_directories,
    a_slip_in_a_target_suggests_what_was_meant,
    mistakes_in_the_configuration_are_shown_where_they_are,
    who_may_decide_about_locks_is_up_to_the_server,
    a_configuration_that_would_be_overlooked_is_pointed_out,
    a_project_without_autoplan_waits_to_be_asked,
    a_file_that_moves_concerns_both_projects,
    a_project_that_leaves_the_pull_request_loses_plan_and_lock,
    a_version_that_is_not_here_is_named,
);

const CONFIG: (&str, &str) = (
    "lockkeeper.yaml",
    "version: 3\nprojects:\n- name: net\n  dir: network\n- name: one\n  dir: apps/one\n- name: two\n  dir: apps/two\n\
     - name: database\n  dir: db\n  autoplan:\n    enabled: false\n",
);
const ONE: (&str, &str) = ("apps/one/main.tf", "# one\n");
const TWO: (&str, &str) = ("apps/two/main.tf", "# two\n");
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");

async fn one_directory_is_planned_and_the_plans_of_others_stay(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull("both", &[WIDER, ("app/main.tf", "# fake: no changes\n")])
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper plan -d app").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `app` workspace: `default`: no changes\n")
    );
    let plans = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(
        plans
            .iter()
            .map(|plan| plan.project.dir.as_str())
            .collect::<Vec<_>>(),
        ["app", "network"]
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 2/2 projects planned successfully.
    lockkeeper/plan: app/default: Success, No changes.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn a_workspace_that_is_missing_is_made(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper plan -d network -w staging").await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for dir: `network` workspace: `staging`: planned

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
      lockkeeper apply -d network -w staging
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network -w staging
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `c99a6621` · 0 s</sub>
    "#);
    let first = [
        "init network",
        "workspace select network",
        "workspace new network",
        "plan network",
    ];
    assert_eq!(bot.calls(), first);
    bot.say(pull, "lockkeeper plan -d network -w staging").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `staging`: planned\n")
    );
    assert_eq!(bot.calls()[4..], ["init network", "plan network"]);
    bot.say(pull, "lockkeeper apply -d network -w staging")
        .await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `staging`: applied\n")
    );
    bot.end(&["acme/infra/network/staging by #1"]).await;
}

async fn a_configured_project_is_planned_by_its_name(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for project: `net` dir: `network` workspace: `default`: planned

    **Plan: 2 to add, 1 to change, 0 to destroy.**

    1 to update, 2 to create:

    * update `terraform_data.other[1]`
    * create `terraform_data.it`
    * create `terraform_data.it[2]`

    <details><summary>Output (10 lines)</summary>

    ```diff
    Terraform will perform the following actions:

      # terraform_data.other[1] will be updated in-place
      # terraform_data.it will be created
    + resource "terraform_data" "it" {
          + id = (known after apply)
        }
      # terraform_data.it[2] will be created

    Plan: 2 to add, 1 to change, 0 to destroy.
    ```

    </details>

    * To **apply** this plan, comment:
      ```shell
      lockkeeper apply -p net
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -p net
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `20399fa0` · 0 s</sub>
    "#);
    bot.say(pull, "lockkeeper plan -p one").await;
    assert!(bot.comment(pull).starts_with(
        "Ran Plan for project: `one` dir: `apps/one` workspace: `default`: planned\n"
    ));
    bot.say(pull, "lockkeeper apply -p net").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for project: `net` dir: `network` workspace: `default`: applied

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `20399fa0` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Pending, 1/2 projects applied.
    lockkeeper/apply: net: Success, Apply succeeded.
    lockkeeper/plan: Success, 2/2 projects planned successfully.
    lockkeeper/plan: net: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    lockkeeper/plan: one: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    bot.end(&[
        "acme/infra/apps/one/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn a_pattern_chooses_among_configured_directories(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper plan -d apps/*").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for 2 projects: 2 planned\n")
    );
    bot.say(pull, "lockkeeper apply -d apps/*").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for 2 projects: 2 applied\n")
    );
    bot.say(pull, "lockkeeper plan -d nothing/*").await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan refused**: no configured project matches the directory pattern `nothing/*` and the workspace `default`. Patterns match configured projects only: change the pattern, or name one directory.

    <sub>Commit `e2f1b0ce` · 0 s</sub>
    ");
    bot.end(&[
        "acme/infra/apps/one/default by #1",
        "acme/infra/apps/two/default by #1",
    ])
    .await;
}

async fn a_slip_in_a_target_suggests_what_was_meant(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    let statuses = bot.statuses(pull);
    bot.say(pull, "lockkeeper plan -p nett").await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan refused**: there is no project `nett` in the configuration file. Did you mean `net`?

    <sub>Commit `20399fa0` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan -d netwrok").await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan refused**: the directory `netwrok` does not exist in this pull request. Did you mean `network`?

    <sub>Commit `20399fa0` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan -d network -w staging").await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan refused**: workspace `staging` is not configured for the directory `network`: choose one of these with `-w`: `default`.

    <sub>Commit `20399fa0` · 0 s</sub>
    ");
    // These refusals change no status of the pull request.
    assert_eq!(bot.statuses(pull), statuses);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn mistakes_in_the_configuration_are_shown_where_they_are(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let wrong = (
        "lockkeeper.yaml",
        "version: 3\nprojects:\n- name: net\n  dri: network\n",
    );
    let pull = bot.open_pull("configured", &[WIDER, wrong]).await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan failed**: the configuration of this repository has errors.

    ```text
    error: a project has no `dir`
     --> lockkeeper.yaml:3:3
      |
    3 | - name: net
      |   ^
      = help: write the path from the root of the repository, such as `infra/network`, or `.` for the root

    error: `dri` is not a key of a project
     --> lockkeeper.yaml:4:3
      |
    4 |   dri: network
      |   ^^^
      = help: did you mean `dir`?
    ```

    Correct the file and push it. The plan then runs automatically.

    <sub>Commit `3addbcaf` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"lockkeeper/plan: Failure, Plan failed.");
    assert!(bot.calls().is_empty());
    bot.update(
        "configured",
        &[(
            "lockkeeper.yaml",
            "version: 3\nprojects:\n- name: net\n  dir: network\n",
        )],
    )
    .await;
    assert!(
        bot.comment(pull).starts_with(
            "Ran Plan for project: `net` dir: `network` workspace: `default`: planned\n"
        )
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// Configuration in which an apply takes the lock of `network`.
const LATE_LOCKS: (&str, &str) = (
    "atlantis.yaml",
    "version: 3\nprojects:\n- dir: network\n  repo_locks: {mode: on_apply}\n",
);

async fn who_may_decide_about_locks_is_up_to_the_server(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, LATE_LOCKS]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan failed**: the configuration of this repository has errors.

    ```text
    error: `repo_locks` may not be set here: the server does not allow it for this repository
     --> atlantis.yaml:4:3
      |
    4 |   repo_locks: {mode: on_apply}
      |   ^^^^^^^^^^
      = help: remove it, or ask an administrator of Lockkeeper to add `repo_locks` to `allowed_overrides` of this repository in the server's configuration (`--repo-config`)
    ```

    Correct the file and push it. The plan then runs automatically.

    <sub>Commit `d68aa2e1` · 0 s</sub>
    ");
    bot.end(&[]).await;

    let allowed =
        r#"{"repos": [{"id": "/github.test/acme/.*/", "allowed_overrides": ["repo_locks"]}]}"#;
    let mut bot = Bot::with(
        backend,
        &[NETWORK, LATE_LOCKS],
        &[("repo-config-json", allowed)],
    )
    .await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Apply for dir: `network` workspace: `default`: applied\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_configuration_that_would_be_overlooked_is_pointed_out(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("configured", &[WIDER, ("atlantis.yml", "version: 3\n")])
        .await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan failed**: the configuration of this repository has errors.

    ```text
    `atlantis.yml` is not read because of its name; rename it to `atlantis.yaml`
    ```

    Correct the file and push it. The plan then runs automatically.

    <sub>Commit `5f808ddf` · 0 s</sub>
    ");
    bot.change(
        "configured",
        &[Change::rename("atlantis.yml", "atlantis.yaml")],
    )
    .await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_project_without_autoplan_waits_to_be_asked(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot
        .open_pull(
            "data",
            &[("db/main.tf", "# fake: add 4 change 0 destroy 0\n")],
        )
        .await;
    assert!(bot.read_comments(pull).is_empty());
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull).starts_with(
            "Ran Plan for project: `database` dir: `db` workspace: `default`: planned\n"
        )
    );
    bot.end(&["acme/infra/db/default by #1"]).await;
}

async fn a_file_that_moves_concerns_both_projects(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, ("network/old.tf", "# moves\n"), APP]).await;
    bot.change("move", &[Change::rename("network/old.tf", "app/new.tf")])
        .await;
    let pull = bot
        .open(lockkeeper::emulator::NewPull::from_branch("move"))
        .await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for 2 projects: 2 planned\n")
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn a_project_that_leaves_the_pull_request_loses_plan_and_lock(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot
        .open_pull(
            "both",
            &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.update("both", &[APP]).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.say(pull, "lockkeeper apply -d app").await;
    assert_snapshot!(bot.comment(pull), @"
    **Apply refused**: there is no plan of that project in this pull request.

    * Comment `lockkeeper plan` first, look at the plan, then apply it.

    <sub>Commit `409db73a` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_version_that_is_not_here_is_named(backend: Backend) {
    let config = (
        "lockkeeper.yaml",
        "version: 3\nprojects:\n- dir: network\n  terraform_version: 1.5.7\n",
    );
    let mut bot = Bot::new(backend, &[NETWORK, config]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: failed

    **Plan failed**: Terraform 1.5.7 is required, but this server has 1.11.4.

    * Use a version that this server has, or ask an administrator to install 1.5.7 in `--tf-bin-dir` under its name and version.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `b07aaf7e` · 0 s</sub>
    ");
    bot.end(&[]).await;
}
