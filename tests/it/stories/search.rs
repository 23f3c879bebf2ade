//! Stories about the search for projects, by the flags about it: modules, links, allowed targets, idle statuses
//! (reference 3.5 to 3.12).

use insta::assert_snapshot;
use lockkeeper::emulator::Change;

use crate::stories::{APP, DB, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    a_change_in_a_module_plans_its_users,
    code_that_is_a_link_counts_where_the_link_is,
    a_project_whose_directory_is_a_link_is_refused_aloud,
    a_pull_request_that_changes_more_files_than_github_lists_is_planned,
    only_what_changed_may_be_planned_by_name,
    more_projects_than_the_operator_allows_are_refused,
    an_expression_chooses_several_projects,
    an_ignored_directory_is_refused_with_its_rule,
    a_project_for_another_branch_is_left_out_and_named,
    a_push_without_projects_may_set_no_statuses,
);

const USER: (&str, &str) = (
    "app/main.tf",
    "module \"vpc\" {\n  source = \"../shared/vpc\"\n}\n",
);
const MODULE: (&str, &str) = (
    "shared/vpc/main.tf",
    "resource \"terraform_data\" \"vpc\" {}\n",
);
const NAMED: (&str, &str) = (
    "atlantis.yaml",
    "version: 3\nallowed_regexp_prefixes: [all-]\nprojects:\n- {name: all-app, dir: app}\n- {name: all-db, dir: db}\n\
     - {name: net, dir: network}\n",
);

async fn a_change_in_a_module_plans_its_users(backend: Backend) {
    let config = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- {name: app, dir: app}\n- {name: db, dir: db}\n",
    );
    let flags = [("autoplan-modules", "true")];
    let mut bot = Bot::with(backend, &[USER, MODULE, DB, config], &flags).await;
    let pull = bot
        .open_pull("module", &[("shared/vpc/main.tf", "# changed\n")])
        .await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for project: `app` dir: `app` workspace: `default`: planned\n")
    );
    // The commit is the same, so the users of the module are known by now.
    bot.say(pull, "lockkeeper plan").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for project: `app` dir: `app` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn code_that_is_a_link_counts_where_the_link_is(backend: Backend) {
    let config = ("atlantis.yaml", "version: 3\nprojects:\n- dir: live/prod\n");
    let main = (
        "base/main.tf",
        "module \"vpc\" {\n  source = \"../../shared/vpc\"\n}\n",
    );
    let demand = |text: &str| format!("terraform {{\n  required_version = \"{text}\"\n}}\n");
    let (fits, other) = (demand("~> 1.11.0"), demand("~> 1.9.0"));
    // One database uses whole checkouts, the other one sparse checkouts.
    let sparse = if backend == Backend::Postgres {
        "true"
    } else {
        "false"
    };
    let flags = [("autoplan-modules", "true"), ("sparse-checkout", sparse)];
    let mut bot = Bot::with(
        backend,
        &[config, main, MODULE, ("base/versions.tf", &fits)],
        &flags,
    )
    .await;
    let link = |name: &str, target: &str| Change::symlink(&format!("live/prod/{name}"), target);
    let links = [
        link("main.tf", "../../base/main.tf"),
        link("versions.tf", "../../base/versions.tf"),
        link("circle.tf", "circle.tf"),
    ];
    bot.change("main", &links).await;

    let pull = bot
        .open_pull("versions", &[("base/versions.tf", &other)])
        .await;
    let said = bot.answer(pull);
    assert!(
        said.contains("line 2 of `live/prod/versions.tf` says `~> 1.9.0`"),
        "{said}"
    );
    bot.update(
        "versions",
        &[
            ("base/versions.tf", &fits),
            ("shared/vpc/main.tf", "# changed\n"),
        ],
    )
    .await;
    let said = bot.answer(pull);
    assert!(
        said.starts_with("Ran Plan for dir: `live/prod` workspace: `default`: planned\n"),
        "{said}"
    );
    bot.end(&["acme/infra/live/prod/default by #1"]).await;
}

async fn a_project_whose_directory_is_a_link_is_refused_aloud(backend: Backend) {
    let config = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- dir: live\n- {dir: app, autoplan: {enabled: false}}\n",
    );
    let mut bot = Bot::new(backend, &[config, NETWORK, DB]).await;
    bot.change(
        "main",
        &[
            Change::symlink("live", "network"),
            Change::symlink("app", "db"),
        ],
    )
    .await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# wider\n")])
        .await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: `live` is a symbolic link to `network`: two projects with the same files would disturb each other. Name that directory with `-d`, or as `dir` in the configuration file.

    <sub>Commit `de32ba02` · 0 s</sub>
    ");
    assert_snapshot!(bot.statuses(pull), @"lockkeeper/plan: Failure, Plan failed.");
    // No push plans the project at `app`, so only a comment finds the error.
    let other = bot.open_pull("other", &[("db/main.tf", "# wider\n")]).await;
    assert_eq!(bot.read_comments(other), [""; 0]);
    bot.say(other, "lockkeeper plan").await;
    let said = bot.answer(other);
    assert!(said.contains("`app` is a symbolic link to `db`"), "{said}");
    bot.end(&[]).await;
}

async fn a_pull_request_that_changes_more_files_than_github_lists_is_planned(backend: Backend) {
    let mut bot = Bot::new(backend, &[APP, DB]).await;
    let many: Vec<(String, &str)> = (0..3_010)
        .map(|n| (format!("docs/{n:04}.md"), "x\n"))
        .collect();
    let mut files: Vec<(&str, &str)> = many
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    files.push(("zoo/main.tf", "resource \"terraform_data\" \"zoo\" {}\n"));
    let pull = bot.open_pull("huge", &files).await;
    let said = bot.answer(pull);
    assert!(
        said.starts_with("Ran Plan for dir: `zoo` workspace: `default`: planned\n"),
        "{said}"
    );
    bot.end(&["acme/infra/zoo/default by #1"]).await;
}

async fn only_what_changed_may_be_planned_by_name(backend: Backend) {
    let flags = [("restrict-file-list", "true")];
    let mut bot = Bot::with(backend, &[APP, DB, NETWORK, NAMED], &flags).await;
    let pull = bot
        .open_pull("both", &[("app/main.tf", "# 1\n"), ("db/main.tf", "# 1\n")])
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper plan -d network").await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: no file changed in `network`, and this server plans only directories that the pull request changes (`--restrict-file-list`): files changed in `app`, `db`.

    <sub>Commit `8a0b3b50` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan -p all-app").await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: the pull request also changes `db`, which `all-app` does not have, and this server plans projects by name only when nothing else changes (`--restrict-file-list`): comment `plan` without `-p`, or choose with `-d`.

    <sub>Commit `8a0b3b50` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan -d db").await;
    assert!(
        bot.answer(pull).starts_with(
            "Ran Plan for project: `all-db` dir: `db` workspace: `default`: planned\n"
        )
    );
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/db/default by #1",
    ])
    .await;
}

async fn more_projects_than_the_operator_allows_are_refused(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP, DB, NETWORK], &[("max-projects", "1")]).await;
    let pull = bot
        .open_pull("both", &[("app/main.tf", "# 1\n"), ("db/main.tf", "# 1\n")])
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper plan").await;
    let refusal = bot.answer(pull);
    assert!(
        refusal.contains("concerns 2 projects, and 1 are allowed at once"),
        "{refusal}"
    );
    assert!(
        refusal.contains("can allow more with `--max-projects`"),
        "{refusal}"
    );
    bot.say(pull, "lockkeeper plan -d db").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `db` workspace: `default`: planned\n")
    );
    bot.end(&["acme/infra/db/default by #1"]).await;
}

async fn an_expression_chooses_several_projects(backend: Backend) {
    let flags = [("enable-regexp-cmd", "true")];
    let mut bot = Bot::with(backend, &[APP, DB, NETWORK, NAMED], &flags).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper plan -p 'all-.*'").await;
    assert!(bot.answer(pull).starts_with("Ran Plan for 2 projects:"));
    bot.say(pull, "lockkeeper plan -p '.*'").await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: `.*` matches 3 projects, and an expression for several projects must begin with `all-` in this repository (`allowed_regexp_prefixes` of the configuration file).

    <sub>Commit `d6869ae6` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper apply -p '.*'").await;
    assert!(bot.answer(pull).contains("must begin with `all-`"));
    bot.say(pull, "lockkeeper apply -p 'all-(app|db)'").await;
    assert!(bot.answer(pull).starts_with("Ran Apply for 2 projects:"));
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/db/default by #1",
    ])
    .await;
}

async fn an_ignored_directory_is_refused_with_its_rule(backend: Backend) {
    let config = (
        "atlantis.yaml",
        "version: 3\nautodiscover:\n  mode: enabled\n  ignore_paths: ['d*']\n",
    );
    let mut bot = Bot::new(backend, &[APP, DB, config]).await;
    let pull = bot
        .open_pull("both", &[("app/main.tf", "# 1\n"), ("db/main.tf", "# 1\n")])
        .await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Plan for dir: `app` workspace: `default`: planned\n")
    );
    bot.say(pull, "lockkeeper plan -d db").await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: the directory `db` is not a project: it matches `d*` of `ignore_paths` (line 3 of `atlantis.yaml`). Give it an entry in `projects` if it is one.

    <sub>Commit `a698dc60` · 0 s</sub>
    ");
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_project_for_another_branch_is_left_out_and_named(backend: Backend) {
    let config = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- {name: app, dir: app, branch: /^release/}\n",
    );
    let mut bot = Bot::new(backend, &[APP, config]).await;
    let pull = bot.open_pull("app", &[("app/main.tf", "# 1\n")]).await;
    assert_eq!(bot.read_comments(pull), [""; 0]);
    bot.say(pull, "lockkeeper plan -d app").await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: the directory `app` is configured for other base branches only: `branch` (`/^release/`, line 3 of the configuration file) does not match `main`, the base branch of this pull request.

    <sub>Commit `63785846` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn a_push_without_projects_may_set_no_statuses(backend: Backend) {
    for (flag, asked) in [
        ("silence-vcs-status-no-plans", true),
        ("silence-vcs-status-no-projects", false),
    ] {
        let mut bot = Bot::with(backend, &[APP], &[(flag, "true")]).await;
        let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
        assert_eq!(bot.statuses(pull), "", "{flag}");
        bot.say(pull, "lockkeeper plan").await;
        bot.read_comments(pull);
        assert_eq!(
            bot.statuses(pull).contains("lockkeeper/plan: Success"),
            asked,
            "{flag}"
        );
        let other = bot.open_pull("app", &[("app/main.tf", "# 1\n")]).await;
        bot.read_comments(other);
        assert!(
            bot.statuses(other).contains("lockkeeper/plan: Success"),
            "{flag}"
        );
        bot.end(&["acme/infra/app/default by #2"]).await;
    }
}
