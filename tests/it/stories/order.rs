//! Stories about the order of projects, about failures that stop later ones, and about dependencies of an apply
//! (reference 3.9).

use insta::assert_snapshot;

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    a_project_comes_after_the_one_it_depends_on,
    a_dependency_without_changes_keeps_nobody_waiting,
    a_dependency_that_the_pull_request_does_not_concern_is_not_waited_for,
    a_failure_keeps_later_groups_from_running_in_both_modes,
    without_the_key_later_groups_run_after_a_failure,
    a_failed_apply_keeps_later_groups_and_dependents_from_running,
    units_of_terragrunt_run_after_those_they_need,
    what_is_not_known_of_units_is_said_in_the_comment_and_never_passed_over_in_silence,
);

/// Configuration with a dependency. By directory alone, `app` would come first.
const DEPENDENT: (&str, &str) = (
    "atlantis.yaml",
    "version: 3\nprojects:\n- name: app\n  dir: app\n  depends_on: [net]\n- name: net\n  dir: network\n",
);
const APP_CHANGE: (&str, &str) = ("app/main.tf", "# fake: add 1\n");
const NETWORK_CHANGE: (&str, &str) = ("network/main.tf", "# fake: add 2\n");

/// Returns a file with two groups, `net` before `app`, and these lines at its top.
fn grouped(top: &str) -> (&'static str, String) {
    let projects = "projects:\n- name: app\n  dir: app\n  execution_order_group: 1\n- name: net\n  dir: network\n";
    ("atlantis.yaml", format!("version: 3\n{top}{projects}"))
}

async fn a_project_comes_after_the_one_it_depends_on(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP, DEPENDENT]).await;
    let pull = bot.open_pull("both", &[APP_CHANGE, NETWORK_CHANGE]).await;
    assert!(bot.answer(pull).starts_with("Ran Plan for 2 projects:"));
    assert_eq!(
        bot.calls(),
        ["init network", "plan network", "init app", "plan app"]
    );

    bot.say(pull, "lockkeeper apply -p app").await;
    assert_snapshot!(bot.answer(pull), @"
    Ran Apply for project: `app` dir: `app` workspace: `default`: refused

    **Apply refused**: this project depends on another one, and `net` is not applied yet. Nothing was applied.

    * Apply its dependencies first (`lockkeeper apply -p net`), or apply everything in order: `lockkeeper apply`.

    * To **apply** this project again, comment:
      ```shell
      lockkeeper apply -p app
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `20dfd674` · 0 s</sub>
    ");
    assert!(bot.machine_line(pull).contains(r#""outcome":"refused""#));

    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.answer(pull).starts_with("Ran Apply for 2 projects:"));
    assert_eq!(bot.calls()[4..], ["apply network", "apply app"]);
    assert!(
        bot.statuses(pull)
            .contains("lockkeeper/apply: Success, 2/2 projects applied successfully.")
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn a_dependency_without_changes_keeps_nobody_waiting(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP, DEPENDENT]).await;
    let pull = bot
        .open_pull(
            "both",
            &[APP_CHANGE, ("network/main.tf", "# fake: no changes\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply -p app").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Apply for project: `app` dir: `app` workspace: `default`: applied\n")
    );

    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn a_dependency_that_the_pull_request_does_not_concern_is_not_waited_for(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP, DEPENDENT]).await;
    let pull = bot.open_pull("app", &[APP_CHANGE]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Apply for project: `app` dir: `app` workspace: `default`: applied\n")
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_failure_keeps_later_groups_from_running_in_both_modes(backend: Backend) {
    for parallel in ["true", "false"] {
        let (file, text) = grouped(&format!(
            "abort_on_execution_order_fail: true\nparallel_plan: {parallel}\n"
        ));
        let mut bot = Bot::new(backend, &[NETWORK, APP, (file, &text)]).await;
        let pull = bot
            .open_pull(
                "both",
                &[APP_CHANGE, ("network/main.tf", "# fake: fail plan\n")],
            )
            .await;
        let answer = bot.answer(pull);
        let why = "Skipped, because `net` in group 0 of the execution order did not succeed. This project is in group \
                   1, and the configuration file sets `abort_on_execution_order_fail: true`.";
        assert!(answer.contains(why), "parallel_plan: {parallel}\n{answer}");
        assert_eq!(
            bot.calls(),
            ["init network", "plan network"],
            "parallel_plan: {parallel}"
        );
        assert!(bot.machine_line(pull).contains(r#""outcome":"skipped""#));
        assert!(
            bot.statuses(pull)
                .contains("lockkeeper/plan: Failure, 2/2 projects failed to plan.")
        );
        // Neither the failed project nor the one that was not tried keeps its lock.
        bot.end(&[]).await;
    }
}

async fn without_the_key_later_groups_run_after_a_failure(backend: Backend) {
    let (file, text) = grouped("");
    let mut bot = Bot::new(backend, &[NETWORK, APP, (file, &text)]).await;
    let pull = bot
        .open_pull(
            "both",
            &[APP_CHANGE, ("network/main.tf", "# fake: fail plan\n")],
        )
        .await;
    bot.read_comments(pull);
    assert_eq!(
        bot.calls(),
        ["init network", "plan network", "init app", "plan app"]
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_failed_apply_keeps_later_groups_and_dependents_from_running(backend: Backend) {
    let (file, text) = grouped("abort_on_execution_order_fail: true\n");
    let mut bot = Bot::new(backend, &[NETWORK, APP, (file, &text)]).await;
    let pull = bot
        .open_pull(
            "both",
            &[APP_CHANGE, ("network/main.tf", "# fake: fail apply once\n")],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.answer(pull).contains("Skipped, because"));
    assert!(!bot.calls().contains(&"apply app".to_owned()));
    // The plan of `app` is still valid.
    bot.say(pull, "lockkeeper apply -p app").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Apply for project: `app` dir: `app` workspace: `default`: applied\n")
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn what_is_not_known_of_units_is_said_in_the_comment_and_never_passed_over_in_silence(
    backend: Backend,
) {
    let app = "dependency \"net\" {\n  config_path = \"../${get_env(\"NET\")}\"\n}\n";
    let files = [
        ("live/app/main.tf", "# narrow\n"),
        ("live/app/terragrunt.hcl", app),
        ("live/vpc/main.tf", "# narrow\n"),
        ("live/vpc/terragrunt.hcl", ""),
        ("live/vpc.yaml", "a: 1\n"),
        ("README.md", "Networks.\n"),
    ];
    let mut bot = Bot::new(backend, &files).await;
    let planned = bot
        .open_pull("vpc", &[("live/vpc/main.tf", "# fake: add 2\n")])
        .await;
    let told = bot.answer(planned);
    assert!(told.starts_with("Ran Plan for dir: `live/vpc`"), "{told}");
    assert!(
        told.contains(
            "The change may concern more Terragrunt units than were planned, because some of their inputs cannot be \
             determined without running Terragrunt: `live/app/terragrunt.hcl:2`: the `config_path` of a dependency is \
             not known"
        ),
        "{told}"
    );
    let none = bot.open_pull("yaml", &[("live/vpc.yaml", "a: 2\n")]).await;
    assert_snapshot!(bot.answer(none), @"
    Ran Plan for 0 projects

    No file that this pull request changes is known to belong to a project. The change may still concern Terragrunt units, because some of their inputs cannot be determined without running Terragrunt:

    * `live/app/terragrunt.hcl:2`: the `config_path` of a dependency is not known: `get_env()` depends on the environment (live/app/terragrunt.hcl:2)
    * Plan the affected directories by hand: `lockkeeper plan -d DIR`. `lockkeeper explain` lists all such places.

    <sub>Commit `1d6437b5` · 0 s</sub>
    ");
    let both = bot
        .open_pull(
            "both",
            &[
                ("live/vpc.yaml", "a: 3\n"),
                ("live/app/main.tf", "# fake: add 1\n"),
            ],
        )
        .await;
    assert!(
        !bot.answer(both).contains("may concern more"),
        "the unit of which something is not known is planned"
    );
    let prose = bot.open_pull("prose", &[("README.md", "Nets.\n")]).await;
    assert_eq!(
        bot.read_comments(prose),
        [""; 0],
        "no unit goes by such a file"
    );
    bot.end(&[
        "acme/infra/live/app/default by #3",
        "acme/infra/live/vpc/default by #1",
    ])
    .await;
}

async fn units_of_terragrunt_run_after_those_they_need(backend: Backend) {
    let app = "dependency \"vpc\" {\n  config_path = \"../vpc\"\n}\nterraform {\n  source = run_cmd(\"pwd\")\n}\n";
    let files = [
        ("live/app/main.tf", "# narrow\n"),
        ("live/app/terragrunt.hcl", app),
        ("live/vpc/main.tf", "# narrow\n"),
        ("live/vpc/terragrunt.hcl", ""),
    ];
    let mut bot = Bot::new(backend, &files).await;
    let changes = [
        ("live/app/main.tf", "# fake: add 1\n"),
        ("live/vpc/main.tf", "# fake: add 2\n"),
    ];
    let pull = bot.open_pull("both", &changes).await;
    assert!(bot.answer(pull).starts_with("Ran Plan for 2 projects:"));
    assert_eq!(
        bot.calls(),
        ["init vpc", "plan vpc", "init app", "plan app"]
    );

    bot.say(pull, "lockkeeper explain").await;
    let explained = bot.answer(pull);
    assert!(
        explained.contains("* **order**: in group 1, after its dependencies\n"),
        "{explained}"
    );
    assert!(
        explained.contains(
            "* `live/app/terragrunt.hcl:5`: the `source` is not known: `run_cmd()` runs a program \
             (live/app/terragrunt.hcl:5); changes of files that only this expression names are not noticed: write a \
             plain path, or name the files with `mark_as_read`\n"
        ),
        "{explained}"
    );
    // A project that was planned again separately keeps its position.
    bot.say(pull, "lockkeeper plan -d live/app").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.answer(pull).starts_with("Ran Apply for 2 projects:"));
    assert_eq!(bot.calls()[6..], ["apply vpc", "apply app"]);
    bot.end(&[
        "acme/infra/live/app/default by #1",
        "acme/infra/live/vpc/default by #1",
    ])
    .await;
}
