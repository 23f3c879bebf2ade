//! Which projects a command concerns: targets, the configuration of the repository, moved and removed files.

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
    let pull = bot.open_pull("both", &[WIDER, ("app/main.tf", "# fake: no changes\n")]).await;
    bot.heard(pull);
    bot.say(pull, "lockkeeper plan -d app").await;
    assert!(bot.comment(pull).starts_with("Ran Plan for dir: `app` workspace: `default`: no changes\n"));
    let plans = bot.store().plan_list(&bot.pull_ref(pull)).await.unwrap();
    assert_eq!(plans.iter().map(|plan| plan.project.dir.as_str()).collect::<Vec<_>>(), ["app", "network"]);
    assert_snapshot!(bot.statuses(pull), @"");
    bot.end(&["acme/infra/app/default by #1", "acme/infra/network/default by #1"]).await;
}

async fn a_workspace_that_is_missing_is_made(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper plan -d network -w staging").await;
    assert_snapshot!(bot.comment(pull), @"");
    let first = ["init network", "workspace select network", "workspace new network", "plan network"];
    assert_eq!(bot.calls(), first);
    bot.say(pull, "lockkeeper plan -d network -w staging").await;
    assert!(bot.comment(pull).starts_with("Ran Plan for dir: `network` workspace: `staging`: planned\n"));
    assert_eq!(bot.calls()[4..], ["init network", "plan network"]);
    bot.say(pull, "lockkeeper apply -d network -w staging").await;
    assert!(bot.comment(pull).starts_with("Ran Apply for dir: `network` workspace: `staging`: applied\n"));
    bot.end(&["acme/infra/network/staging by #1"]).await;
}

async fn a_configured_project_is_planned_by_its_name(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_snapshot!(bot.comment(pull), @"");
    bot.say(pull, "lockkeeper plan -p one").await;
    assert!(bot.comment(pull).starts_with("Ran Plan for project: `one` dir: `apps/one` workspace: `default`: planned\n"));
    bot.say(pull, "lockkeeper apply -p net").await;
    assert_snapshot!(bot.comment(pull), @"");
    assert_snapshot!(bot.statuses(pull), @"");
    bot.end(&["acme/infra/apps/one/default by #1", "acme/infra/network/default by #1"]).await;
}

async fn a_pattern_chooses_among_configured_directories(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot.open_pull("docs", &[("README.md", "Read me.\n")]).await;
    bot.say(pull, "lockkeeper plan -d apps/*").await;
    assert!(bot.comment(pull).starts_with("Ran Plan for 2 projects: 2 planned\n"));
    bot.say(pull, "lockkeeper apply -d apps/*").await;
    assert!(bot.comment(pull).starts_with("Ran Apply for 2 projects: 2 applied\n"));
    bot.say(pull, "lockkeeper plan -d nothing/*").await;
    assert_snapshot!(bot.comment(pull), @"");
    bot.end(&["acme/infra/apps/one/default by #1", "acme/infra/apps/two/default by #1"]).await;
}

async fn a_slip_in_a_target_suggests_what_was_meant(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.heard(pull);
    let statuses = bot.statuses(pull);
    bot.say(pull, "lockkeeper plan -p nett").await;
    assert_snapshot!(bot.comment(pull), @"");
    bot.say(pull, "lockkeeper plan -d netwrok").await;
    assert_snapshot!(bot.comment(pull), @"");
    bot.say(pull, "lockkeeper plan -d network -w staging").await;
    assert_snapshot!(bot.comment(pull), @"");
    // Nothing of this changes where the pull request stands.
    assert_eq!(bot.statuses(pull), statuses);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn mistakes_in_the_configuration_are_shown_where_they_are(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let wrong = ("lockkeeper.yaml", "version: 3\nprojects:\n- name: net\n  dri: network\n");
    let pull = bot.open_pull("configured", &[WIDER, wrong]).await;
    assert_snapshot!(bot.comment(pull), @"");
    assert_snapshot!(bot.statuses(pull), @"");
    assert!(bot.calls().is_empty());
    bot.update("configured", &[("lockkeeper.yaml", "version: 3\nprojects:\n- name: net\n  dir: network\n")]).await;
    assert!(bot.comment(pull).starts_with("Ran Plan for project: `net` dir: `network` workspace: `default`: planned\n"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_configuration_that_would_be_overlooked_is_pointed_out(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("configured", &[WIDER, ("atlantis.yml", "version: 3\n")]).await;
    assert_snapshot!(bot.comment(pull), @"");
    bot.change("configured", &[Change::rename("atlantis.yml", "atlantis.yaml")]).await;
    assert!(bot.comment(pull).starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"));
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_project_without_autoplan_waits_to_be_asked(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, DB, ONE, TWO, CONFIG]).await;
    let pull = bot.open_pull("data", &[("db/main.tf", "# fake: add 4 change 0 destroy 0\n")]).await;
    assert!(bot.heard(pull).is_empty());
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).starts_with("Ran Plan for project: `database` dir: `db` workspace: `default`: planned\n"));
    bot.end(&["acme/infra/db/default by #1"]).await;
}

async fn a_file_that_moves_concerns_both_projects(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, ("network/old.tf", "# moves\n"), APP]).await;
    bot.change("move", &[Change::rename("network/old.tf", "app/new.tf")]).await;
    let pull = bot.open(lockkeeper::emulator::NewPull::from_branch("move")).await;
    assert!(bot.comment(pull).starts_with("Ran Plan for 2 projects: 2 planned\n"));
    bot.end(&["acme/infra/app/default by #1", "acme/infra/network/default by #1"]).await;
}

async fn a_project_that_leaves_the_pull_request_loses_plan_and_lock(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let pull = bot.open_pull("both", &[WIDER, ("app/main.tf", "# fake: add 1 change 0 destroy 0\n")]).await;
    bot.heard(pull);
    bot.update("both", &[APP]).await;
    assert!(bot.comment(pull).starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n"));
    bot.say(pull, "lockkeeper apply -d app").await;
    assert_snapshot!(bot.comment(pull), @"");
    assert_snapshot!(bot.statuses(pull), @"");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_version_that_is_not_here_is_named(backend: Backend) {
    let config = ("lockkeeper.yaml", "version: 3\nprojects:\n- dir: network\n  terraform_version: 1.5.7\n");
    let mut bot = Bot::new(backend, &[NETWORK, config]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert_snapshot!(bot.comment(pull), @"");
    bot.end(&[]).await;
}
