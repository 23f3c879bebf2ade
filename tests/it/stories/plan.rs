//! Stories about planning, automatically and by comment.

use insta::assert_snapshot;
use lockkeeper::emulator::NewPull;

use crate::stories::{APP, DB, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    a_pull_request_is_planned_when_it_is_opened,
    a_push_is_planned_and_its_plan_replaces_the_one_before,
    a_closed_pull_request_gives_back_and_plans_again_when_it_is_reopened,
    another_base_branch_makes_other_projects,
    a_draft_is_left_alone_until_it_is_ready,
    drafts_are_planned_where_the_server_allows_it,
    a_plan_by_comment_is_made_even_without_autoplan,
    a_plan_without_changes_leaves_nothing_to_apply,
    one_project_fails_and_the_others_keep_their_plans,
    an_init_that_fails_shows_why,
    when_every_project_fails_nothing_stays_locked,
    a_change_outside_of_projects_is_silent_until_somebody_asks,
    extra_arguments_reach_terraform_and_the_hint_to_plan_again,
    arguments_that_lead_elsewhere_are_refused,
    a_variables_file_outside_of_the_project_is_refused,
    a_very_long_plan_is_told_in_several_comments,
    very_many_projects_fit_into_several_comments,
    with_a_pool_of_one_projects_run_one_after_the_other,
    the_merge_of_base_and_head_is_planned_and_a_conflict_refused,
    a_plan_that_takes_too_long_is_stopped,
    a_missing_terraform_says_who_can_help,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");

async fn a_pull_request_is_planned_when_it_is_opened(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for dir: `network` workspace: `default`: planned

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
      lockkeeper apply -d network
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    "#);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    let line = bot.machine_line(pull);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"autoplan","id":"ID","pull":1,"head":"72b1e463a5b39c126b1192760f8c9bec3c700fee","outcome":"success","projects":[{"name":null,"dir":"network","workspace":"default","outcome":"planned","plan":{"add":2,"change":1,"destroy":0,"import":0,"forget":0}}]} -->"#);
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_push_is_planned_and_its_plan_replaces_the_one_before(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.update(
        "wider",
        &[("network/main.tf", "# fake: add 0 change 0 destroy 7\n")],
    )
    .await;
    assert!(
        bot.comment(pull)
            .contains("**Plan: 0 to add, 0 to change, 7 to destroy.**")
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 0 to add, 0 to change, 7 to destroy.
    ");
    let plans = bot.store().plan_list(&Bot::pull_ref(pull)).await.unwrap();
    assert_eq!(
        plans
            .iter()
            .map(|plan| plan.counts.destroy)
            .collect::<Vec<_>>(),
        [7]
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_closed_pull_request_gives_back_and_plans_again_when_it_is_reopened(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.close(pull).await;
    assert_snapshot!(bot.comment(pull), @"
    This pull request was closed: its lock is free, and plans that were not applied are discarded.

    * dir: `network` workspace: `default`
    ");
    assert!(bot.locks().await.is_empty());
    bot.reopen(pull).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// The head stays the same, so projects that only the old base affected must disappear from the statuses.
async fn another_base_branch_makes_other_projects(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    bot.push("release", &[("NEWS", "a release\n")]).await;
    bot.push("both", &[("app/main.tf", "# fake: fail plan\n")])
        .await;
    let first = bot
        .open(NewPull::from_branch("both").into_base("release"))
        .await;
    bot.merge(first).await;
    bot.read_comments(first);
    let pull = bot.open_pull("both", &[WIDER]).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for 2 projects: 1 failed, 1 planned\n")
    );
    bot.github
        .change_base(REPO, pull, "alice", "release")
        .await
        .unwrap();
    bot.settle().await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: app/default: Success, Not part of the newest plan.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    bot.end(&["acme/infra/network/default by #2"]).await;
}

async fn a_draft_is_left_alone_until_it_is_ready(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    bot.push("wider", &[WIDER]).await;
    let pull = bot.open(NewPull::from_branch("wider").draft()).await;
    bot.update(
        "wider",
        &[("network/main.tf", "# fake: add 3 change 0 destroy 0\n")],
    )
    .await;
    assert!(bot.read_comments(pull).is_empty());
    assert_eq!(bot.statuses(pull), "");
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .contains("**Plan: 3 to add, 0 to change, 0 to destroy.**")
    );
    bot.say(pull, "lockkeeper unlock").await;
    bot.read_comments(pull);
    bot.github
        .ready_for_review(REPO, pull, "alice")
        .await
        .unwrap();
    bot.settle().await;
    assert!(
        bot.comment(pull)
            .contains("**Plan: 3 to add, 0 to change, 0 to destroy.**")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn drafts_are_planned_where_the_server_allows_it(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("allow-draft-prs", "true")]).await;
    bot.push("wider", &[WIDER]).await;
    let pull = bot.open(NewPull::from_branch("wider").draft()).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_plan_by_comment_is_made_even_without_autoplan(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("disable-autoplan", "true")]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert!(bot.read_comments(pull).is_empty());
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    assert!(bot.machine_line(pull).contains(r#""command":"plan""#));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_plan_without_changes_leaves_nothing_to_apply(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("tidy", &[("network/main.tf", "# fake: no changes\n")])
        .await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: no changes

    ```diff
    No changes. Your infrastructure matches the configuration.
    ```

    Nothing has to be applied; you can [release the lock](https://locks.example.com/locks/ID).

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `1a39e071` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Success, 1/1 projects up to date.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, No changes.
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn one_project_fails_and_the_others_keep_their_plans(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP, DB]).await;
    let files = [
        WIDER,
        ("app/main.tf", "# fake: no changes\n"),
        ("db/main.tf", "# fake: fail plan\n"),
    ];
    let pull = bot.open_pull("all", &files).await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for 3 projects: 1 failed, 1 planned, 1 without changes

    | | Project | Outcome | + | ~ | - |
    |:-:|:--|:--|--:|--:|--:|
    | ❌ | `db` | [failed](https://locks.example.com/jobs/ID) | | | |
    | 📝 | `network` | [planned](https://locks.example.com/jobs/ID) | 2 | 1 | 0 |
    | ➖ | `app` | [no changes](https://locks.example.com/jobs/ID) | | | |

    ---

    ### ❌ dir: `db` workspace: `default`

    **Plan failed**: `terraform plan` ended with exit code 1.

    ```text
    Error: The plan went wrong

      on main.tf line 1:

    This is what the story asked for.
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d db
      ```

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### 📝 dir: `network` workspace: `default`

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
      lockkeeper apply -d network
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID)

    [Output of this project](https://locks.example.com/jobs/ID)

    ---

    ### ➖ dir: `app` workspace: `default`

    ```diff
    No changes. Your infrastructure matches the configuration.
    ```

    Nothing has to be applied; you can [release the lock](https://locks.example.com/locks/ID).

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d app
      ```

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

    <sub>Commit `99b62b32` · 0 s</sub>
    "#);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/3 projects failed to plan.
    lockkeeper/plan: app/default: Success, No changes.
    lockkeeper/plan: db/default: Failure, Plan failed.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    ");
    let line = bot.machine_line(pull);
    assert_snapshot!(line, @r#"<!-- lockkeeper {"v":1,"command":"autoplan","id":"ID","pull":1,"head":"99b62b322b7bc564a5c0d5bf843534acdcf54eaa","outcome":"partial","projects":[{"name":null,"dir":"app","workspace":"default","outcome":"no_changes","plan":{"add":0,"change":0,"destroy":0,"import":0,"forget":0}},{"name":null,"dir":"db","workspace":"default","outcome":"failed","plan":null},{"name":null,"dir":"network","workspace":"default","outcome":"planned","plan":{"add":2,"change":1,"destroy":0,"import":0,"forget":0}}]} -->"#);
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn an_init_that_fails_shows_why(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("broken", &[("network/main.tf", "# fake: fail init\n")])
        .await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: failed

    **Plan failed**: `terraform init` ended with exit code 1.

    ```text
    Error: The init went wrong

      on main.tf line 1:

    This is what the story asked for.
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `4e2d29d8` · 0 s</sub>
    ");
    assert_eq!(bot.calls(), ["init network"]);
    bot.end(&[]).await;
}

async fn when_every_project_fails_nothing_stays_locked(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let files = [
        ("network/main.tf", "# fake: fail plan\n"),
        ("app/main.tf", "# fake: fail init\n"),
    ];
    let pull = bot.open_pull("broken", &files).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for 2 projects: 2 failed\n")
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 2/2 projects failed to plan.
    lockkeeper/plan: app/default: Failure, Plan failed.
    lockkeeper/plan: network/default: Failure, Plan failed.
    ");
    bot.end(&[]).await;
}

async fn a_change_outside_of_projects_is_silent_until_somebody_asks(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    assert!(bot.read_comments(pull).is_empty());
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Success, 0/0 projects applied successfully.
    lockkeeper/plan: Success, 0/0 projects planned successfully.
    ");
    bot.say(pull, "lockkeeper plan").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for 0 projects

    No file that this pull request changes belongs to a project, so there is nothing to do.

    To plan a project anyway, comment for example:

    ```shell
    lockkeeper plan -d path/of/the/project
    ```

    <sub>Commit `c99a6621` · 0 s</sub>
    ");
    // Somebody plans a project nevertheless. The commit must not keep the status that nothing is left to apply.
    bot.say(pull, "lockkeeper plan -d network").await;
    bot.read_comments(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/apply: Pending, 0/1 projects applied.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 1 to add, 0 to change, 0 to destroy.
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn extra_arguments_reach_terraform_and_the_hint_to_plan_again(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    bot.say(
        pull,
        "lockkeeper plan -d network -- -target='module.a[\"b c\"]' -var-file=big.tfvars",
    )
    .await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for dir: `network` workspace: `default`: planned

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
      lockkeeper apply -d network
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network -- '-target=module.a["b c"]' '-var-file=big.tfvars'
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    "#);
    let arguments = bot.arguments();
    let last = arguments.lines().next_back().unwrap();
    assert!(
        last.ends_with(r#"/plan.tfplan -target=module.a["b c"] -var-file=big.tfvars"#),
        "{last}"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn arguments_that_lead_elsewhere_are_refused(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    let calls = bot.calls();
    bot.say(pull, "lockkeeper plan -d network -- -chdir=/etc")
        .await;
    assert_snapshot!(bot.comment(pull), @"
    **Nothing was run**: `-chdir=/etc` may not be passed to Terraform. The administrator of this server forbids `chdir` (`--blocked-extra-args`).

    ```text
    lockkeeper plan -d network -- -chdir=/etc
                                  ^^^^^^^^^^^
    ```

    ```text
    Usage: lockkeeper plan [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [-- TERRAFORM ARGUMENTS]

    Show what would change.

    Flags:
      -d, --dir DIR                    Only this directory; a pattern such as 'modules/*' takes several.
      -w, --workspace WORKSPACE        Only in this Terraform workspace.
      -p, --project PROJECT            Only the project of this name; not together with -d or -w.
          --verbose                    Add the full output to the reply, including init.
      -h, --help                       Show this text.

    Without -d, -w and -p it plans every project that this pull request changes.
    ```
    ");
    assert_eq!(bot.calls(), calls);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_variables_file_outside_of_the_project_is_refused(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.read_comments(pull);
    let (calls, statuses) = (bot.calls(), bot.statuses(pull));
    bot.say(
        pull,
        "lockkeeper plan -d network -- -var-file=../../secrets.tfvars",
    )
    .await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan refused**: the variables file `../../secrets.tfvars` lies outside of the project's directory.

    * Name a file below the project's directory, without `..` at its beginning.
    * Or an administrator can allow its directory with `--var-file-allowlist`.

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    assert_eq!((bot.calls(), bot.statuses(pull)), (calls, statuses));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_very_long_plan_is_told_in_several_comments(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("huge", &[("network/main.tf", "# fake: big 3400\n")])
        .await;
    let comments = bot.read_comments(pull);
    assert!(comments.iter().all(|comment| comment.len() < 65_536));
    let lines: usize = comments
        .iter()
        .map(|comment| comment.matches(" of a very large plan").count())
        .sum();
    assert_eq!((comments.len(), lines), (4, 3400), "no line is lost");
    let last = &comments[3];
    assert!(
        last.contains("Plan: 1 to add, 0 to change, 0 to destroy.")
            && last.contains("lockkeeper apply -d network")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn very_many_projects_fit_into_several_comments(backend: Backend) {
    let names: Vec<String> = (0..120).map(|n| format!("team/p{n:03}/main.tf")).collect();
    let files: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "# fake: big 20\n"))
        .collect();
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("all", &files).await;
    let comments = bot.comments(pull);
    assert!(comments.iter().all(|comment| comment.len() <= 65_536));
    let ends: Vec<(&str, &str)> = comments
        .iter()
        .map(|c| (first_line(c), last_line(c)))
        .collect();
    insta::assert_debug_snapshot!(ends, @r#"
    [
        (
            "Ran Plan for 120 projects: 120 planned",
            "**Continues in the next comment.**",
        ),
        (
            "*Continued from the previous comment.*",
            "**Continues in the next comment.**",
        ),
        (
            "*Continued from the previous comment.*",
            "**Continues in the next comment.**",
        ),
        (
            "*Continued from the previous comment.*",
            "**Continues in the next comment.**",
        ),
        (
            "*Continued from the previous comment.*",
            "**Continues in the next comment.**",
        ),
        (
            "*Continued from the previous comment.*",
            "<sub>Commit `853f75b6` · 0 s</sub>",
        ),
    ]
    "#);
    let statuses = bot.statuses(pull);
    assert_eq!(
        statuses,
        "lockkeeper/plan: Success, 120/120 projects planned successfully.\n"
    );
    bot.say(pull, "lockkeeper unlock").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Unlock for 120 projects\n")
    );
    bot.end(&[]).await;
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn last_line(text: &str) -> &str {
    text.lines().next_back().unwrap_or_default()
}

async fn with_a_pool_of_one_projects_run_one_after_the_other(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP, DB], &[("parallel-pool-size", "1")]).await;
    let files = [
        WIDER,
        ("app/main.tf", "# fake: no changes\n"),
        ("db/main.tf", "# fake: no changes\n"),
    ];
    let pull = bot.open_pull("all", &files).await;
    bot.read_comments(pull);
    let calls = bot.calls();
    for pair in calls.chunks(2) {
        assert_eq!(
            pair[0].strip_prefix("init "),
            pair[1].strip_prefix("plan "),
            "{calls:?}"
        );
    }
    assert_eq!(calls.len(), 6);
    let names = ["app", "db", "network"].map(|dir| format!("acme/infra/{dir}/default by #1"));
    bot.end(&names.each_ref().map(String::as_str)).await;
}

async fn the_merge_of_base_and_head_is_planned_and_a_conflict_refused(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("checkout-strategy", "merge")]).await;
    bot.push("wider", &[("network/variables.tf", "# nothing yet\n")])
        .await;
    bot.push(
        "main",
        &[("network/main.tf", "# fake: add 5 change 0 destroy 0\n")],
    )
    .await;
    let pull = bot.open(NewPull::from_branch("wider")).await;
    assert!(
        bot.comment(pull)
            .contains("**Plan: 5 to add, 0 to change, 0 to destroy.**")
    );
    bot.push("main", &[("network/variables.tf", "# something else\n")])
        .await;
    bot.say(pull, "lockkeeper plan").await;
    assert_snapshot!(bot.comment(pull), @"
    **Plan refused**: this pull request cannot be merged into `main` without conflicts in `network/variables.tf`.

    * Resolve the conflicts and push. The plan then runs automatically.

    <sub>Commit `7bd22bc2` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, Plan failed.
    lockkeeper/plan: network/default: Success, Plan: 5 to add, 0 to change, 0 to destroy.
    ");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_plan_that_takes_too_long_is_stopped(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("run-timeout", "1s")]).await;
    let pull = bot
        .open_pull("endless", &[("network/main.tf", "# fake: hang plan\n")])
        .await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: failed

    **Plan failed**: `terraform plan` was stopped because the run took longer than 1 s (`--run-timeout`).

    * If the run needs more time, an administrator can raise `--run-timeout`.

    ```text
    hanging
    Interrupt received.
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `8b03f0ef` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/1 projects failed to plan.
    lockkeeper/plan: network/default: Failure, Plan failed.
    ");
    bot.end(&[]).await;
}

async fn a_missing_terraform_says_who_can_help(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("default-tf-version", "1.9.8")]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: failed

    **Plan failed**: Terraform 1.9.8 is required, but this server has 1.11.4.

    * Use a version that this server has, or ask an administrator to install 1.9.8 in `--tf-bin-dir` under its name and version.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    std::fs::remove_file(bot.tools.join("terraform")).unwrap();
    bot.say(pull, "lockkeeper plan").await;
    let comment = bot.comment(pull);
    assert!(
        comment.contains("no `terraform` was found in ") || comment.contains("1.9.8 is required"),
        "{comment}"
    );
    bot.end(&[]).await;
}
