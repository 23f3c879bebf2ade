//! Stories about the source of the repository's configuration (`--repo-config-source`, `repo_config_source`), and
//! about reading the `--repo-config` file again while the server runs.

use std::path::PathBuf;

use lockkeeper::context::FileCheck;
use lockkeeper::queue::Tick;

use crate::stories::{APP, NETWORK};
use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    what_the_pull_says_about_projects_counts_by_itself,
    a_pull_cannot_change_what_is_read_from_the_base_branch,
    mistakes_on_the_base_branch_are_shown_with_the_branch_they_are_on,
    each_plan_is_applied_by_the_configuration_it_was_made_with,
    plans_that_are_checked_out_alike_are_applied_beside_each_other_and_others_in_turn,
    each_plan_is_applied_in_the_state_of_the_base_branch_it_was_made_of,
    what_hooks_wrote_holds_for_the_state_of_the_base_branch_that_they_ran_on,
    a_named_branch_is_read_as_it_is_now,
    a_named_branch_that_is_not_there_stops_plan_and_apply,
    an_entry_of_the_servers_file_wins_over_the_flag,
    the_merge_is_read_where_only_the_head_is_checked_out,
    another_file_than_the_usual_one_is_read_alone,
    a_changed_file_of_the_server_holds_from_the_next_command_on,
    a_file_that_is_refused_changes_nothing_until_it_is_mended,
    a_file_without_policy_sets_is_refused_while_policies_are_checked,
    a_link_that_is_turned_is_a_change_and_the_same_text_is_none,
);

const NAMED: (&str, &str) = (
    "atlantis.yaml",
    "version: 3\nprojects:\n- {name: net, dir: network}\n",
);
const OTHER: (&str, &str) = (
    "atlantis.yaml",
    "version: 3\nprojects:\n- {name: mine, dir: network}\n",
);
const BROKEN: (&str, &str) = ("atlantis.yaml", "version: 3\nprojcts: []\n");
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");

/// Plans, and returns the first line of the next comment.
async fn planned(bot: &mut Bot, pull: lockkeeper::model::PullNumber) -> String {
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper plan").await;
    bot.comment(pull)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

async fn what_the_pull_says_about_projects_counts_by_itself(backend: Backend) {
    for flags in [&[][..], &[("repo-config-source", "pull_head")]] {
        let mut bot = Bot::with(backend, &[NETWORK, NAMED], flags).await;
        let pull = bot.open_pull("own", &[WIDER, OTHER]).await;
        assert!(
            bot.comment(pull)
                .starts_with("Ran Plan for project: `mine` dir: `network`")
        );
        bot.end(&["acme/infra/network/default by #1"]).await;
    }
}

async fn a_pull_cannot_change_what_is_read_from_the_base_branch(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK, NAMED],
        &[("repo-config-source", "base")],
    )
    .await;
    let pull = bot.open_pull("own", &[WIDER, BROKEN]).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for project: `net` dir: `network`")
    );
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for project: `net` dir: `network`")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn mistakes_on_the_base_branch_are_shown_with_the_branch_they_are_on(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK, BROKEN],
        &[("repo-config-source", "base")],
    )
    .await;
    let pull = bot.open_pull("own", &[WIDER, NAMED]).await;
    let comment = bot.comment(pull);
    let commit = bot
        .github
        .pull("acme/infra", pull)
        .unwrap()
        .base
        .short()
        .to_owned();
    let note = format!(
        "The file is read from the base branch `main` at {commit}, not from this pull request"
    );
    assert!(
        comment.contains("`projcts` is not a key of the file") && comment.contains(&note),
        "{comment}"
    );
    bot.end(&[]).await;
}

async fn each_plan_is_applied_by_the_configuration_it_was_made_with(backend: Backend) {
    let json = r#"{"repos": [{"id": "/.*/", "allowed_overrides": ["apply_requirements", "workflow"],
        "allow_custom_workflows": true}]}"#;
    let file = |app: &str| {
        format!(
            "version: 3\nprojects:\n- {{name: net, dir: network}}\n- {{name: app, dir: app{app}}}\nworkflows:\n  own: {{}}\n"
        )
    };
    let flags = [("repo-config-source", "base"), ("repo-config-json", json)];
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP, ("atlantis.yaml", &file(""))],
        &flags,
    )
    .await;
    let pull = bot
        .open_pull("both", &[WIDER, ("app/main.tf", "# fake: add 1\n")])
        .await;
    bot.read_comments(pull);
    // New requirements apply to plans that are made from now on.
    bot.push(
        "main",
        &[(
            "atlantis.yaml",
            &file(", apply_requirements: [approved], workflow: own"),
        )],
    )
    .await;
    bot.say(pull, "lockkeeper plan -p app").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    let answer = bot.comment(pull);
    assert!(
        answer.contains("`approved` is required (line 4 of `atlantis.yaml`)"),
        "{answer}"
    );
    assert_eq!(
        bot.calls().last().map(String::as_str),
        Some("apply network"),
        "{answer}"
    );
    bot.approve(pull, "bob");
    bot.say(pull, "lockkeeper apply").await;
    bot.read_comments(pull);
    assert_eq!(bot.calls().last().map(String::as_str), Some("apply app"));
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn plans_that_are_checked_out_alike_are_applied_beside_each_other_and_others_in_turn(
    backend: Backend,
) {
    // With `merge`, every state of the base branch is another checkout at the same place.
    for (strategy, is_shared) in [("branch", true), ("merge", false)] {
        let flags = [("checkout-strategy", strategy), ("parallel-apply", "true")];
        let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
        let slow = [
            ("network/main.tf", "# fake: wait apply\n"),
            ("app/main.tf", "# fake: wait apply\n"),
        ];
        let pull = bot.open_pull("both", &slow).await;
        bot.push("main", &[("README.md", "# Merged meanwhile\n")])
            .await;
        bot.say(pull, "lockkeeper plan -d network").await;
        bot.read_comments(pull);
        bot.github
            .comment(REPO, pull, "alice", "lockkeeper apply")
            .await
            .unwrap();
        bot.settle_short().await;
        let command = bot.begin_command();
        bot.printed("waiting in app").await;
        if is_shared {
            bot.printed("waiting in network").await;
        }
        bot.settle_short().await;
        let statuses = bot.statuses(pull);
        assert!(
            statuses.contains("lockkeeper/apply: app/default: Pending, Apply in progress..."),
            "{statuses}"
        );
        assert_eq!(
            statuses.contains("lockkeeper/apply: network/default: Pending"),
            is_shared,
            "{statuses}"
        );
        bot.go();
        assert_eq!(command.await.unwrap(), Tick::Worked);
        bot.settle().await;
        assert!(bot.comment(pull).contains("2 applied"));
        bot.end(&[
            "acme/infra/app/default by #1",
            "acme/infra/network/default by #1",
        ])
        .await;
    }
}

async fn each_plan_is_applied_in_the_state_of_the_base_branch_it_was_made_of(backend: Backend) {
    let tell = r#"echo "$REPO_REL_DIR is built on $(cat ../ground)""#;
    let config = serde_json::json!({
        "repos": [{"id": "/.*/", "workflow": "telling"}],
        "workflows": {"telling": {"apply": {"steps": [{"run": tell}, "apply"]}}},
    });
    let config = config.to_string();
    let flags = [
        ("checkout-strategy", "merge"),
        ("repo-config-json", config.as_str()),
    ];
    let before = [
        NETWORK,
        APP,
        ("zone/main.tf", "# narrow\n"),
        ("ground", "sand"),
    ];
    let mut bot = Bot::with(backend, &before, &flags).await;
    let add = "# fake: add 1\n";
    let pull = bot
        .open_pull("all", &[WIDER, ("app/main.tf", add), ("zone/main.tf", add)])
        .await;
    bot.push("main", &[("ground", "rock")]).await;
    bot.say(pull, "lockkeeper plan -d network").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    let answer = bot.comment(pull);
    // The projects run one after the other. The last one has the checkout of the first, although another was there in
    // between.
    for told in [
        "app is built on sand",
        "network is built on rock",
        "zone is built on sand",
        "3 applied",
    ] {
        assert!(answer.contains(told), "{answer}");
    }
    bot.end(
        &["app", "network", "zone"]
            .map(|dir| format!("acme/infra/{dir}/default by #1"))
            .each_ref()
            .map(String::as_str),
    )
    .await;
}

async fn what_hooks_wrote_holds_for_the_state_of_the_base_branch_that_they_ran_on(
    backend: Backend,
) {
    // On the present base branch, `app` has to be approved.
    let generate = "printf 'version: 3\nprojects:\n- {name: net, dir: network}\n- {name: app, dir: app%s}\n' \
                    \"$(cat demands 2>/dev/null)\" >atlantis.yaml";
    let config = serde_json::json!({"repos": [{
        "id": "/.*/", "allowed_overrides": ["apply_requirements"], "pre_workflow_hooks": [{"run": generate}],
    }]});
    let config = config.to_string();
    let flags = [
        ("checkout-strategy", "merge"),
        ("repo-config-json", config.as_str()),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, APP], &flags).await;
    let pull = bot
        .open_pull("both", &[WIDER, ("app/main.tf", "# fake: add 1\n")])
        .await;
    bot.read_comments(pull);
    bot.push("main", &[("demands", ", apply_requirements: [approved]")])
        .await;
    bot.say(pull, "lockkeeper plan -p app").await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper apply").await;
    let answer = bot.comment(pull);
    assert!(
        answer.contains("`approved` is required (line 4 of `atlantis.yaml`)"),
        "{answer}"
    );
    // The hooks have run for `app`. Other files that they may have made do not exist for `net`.
    let why = "the hooks before this apply ran on another commit of the base branch than this plan, so the files that \
               they make would be missing. Nothing was applied.";
    assert!(
        answer.contains(why) && answer.contains("2 refused"),
        "{answer}"
    );
    bot.say(pull, "lockkeeper apply -p net").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for project: `net`")
    );
    assert_eq!(
        bot.calls().last().map(String::as_str),
        Some("apply network")
    );
    bot.approve(pull, "bob");
    bot.say(pull, "lockkeeper apply").await;
    bot.read_comments(pull);
    assert_eq!(bot.calls().last().map(String::as_str), Some("apply app"));
    bot.end(&[
        "acme/infra/app/default by #1",
        "acme/infra/network/default by #1",
    ])
    .await;
}

async fn a_named_branch_is_read_as_it_is_now(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK, OTHER],
        &[("repo-config-source", "branch:config")],
    )
    .await;
    bot.push("config", &[NAMED]).await;
    let pull = bot.open_pull("own", &[WIDER]).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for project: `net` dir: `network`")
    );
    bot.push(
        "config",
        &[(
            "atlantis.yaml",
            "version: 3\nprojects:\n- {name: late, dir: network}\n",
        )],
    )
    .await;
    assert_eq!(
        planned(&mut bot, pull).await,
        "Ran Plan for project: `late` dir: `network` workspace: `default`: planned"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_named_branch_that_is_not_there_stops_plan_and_apply(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, NAMED], &[]).await;
    let pull = bot.open_pull("own", &[WIDER]).await;
    bot.read_comments(pull);
    bot.restart_with(&[("repo-config-source", &["branch:config"])])
        .await;
    bot.say(pull, "lockkeeper apply").await;
    let apply = bot.comment(pull);
    let why = "the configuration cannot be read from the branch `config` (`repo_config_source`)";
    assert!(
        apply.starts_with("**Apply refused**") && apply.contains(why),
        "{apply}"
    );
    bot.say(pull, "lockkeeper plan").await;
    let plan = bot.comment(pull);
    assert!(plan.contains("but there is no such branch"), "{plan}");
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn an_entry_of_the_servers_file_wins_over_the_flag(backend: Backend) {
    let json = r#"{"repos": [{"id": "/.*/", "repo_config_source": "base"}]}"#;
    let flags = [
        ("repo-config-source", "pull_head"),
        ("repo-config-json", json),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, NAMED], &flags).await;
    let pull = bot.open_pull("own", &[WIDER, OTHER]).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for project: `net` dir: `network`")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn the_merge_is_read_where_only_the_head_is_checked_out(backend: Backend) {
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP],
        &[("repo-config-source", "merge_result")],
    )
    .await;
    let pull = bot.open_pull("own", &[WIDER]).await;
    assert!(bot.comment(pull).starts_with("Ran Plan for dir: `network`"));
    bot.push("main", &[NAMED]).await;
    assert_eq!(
        planned(&mut bot, pull).await,
        "Ran Plan for project: `net` dir: `network` workspace: `default`: planned"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn another_file_than_the_usual_one_is_read_alone(backend: Backend) {
    let json = r#"{"repos": [{"id": "/.*/", "repo_config_file": "ci/keeper.yaml"}]}"#;
    let mut bot = Bot::with(backend, &[NETWORK, BROKEN], &[("repo-config-json", json)]).await;
    let pull = bot
        .open_pull("own", &[WIDER, ("ci/keeper.yaml", NAMED.1)])
        .await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for project: `net` dir: `network`")
    );
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Apply for project: `net` dir: `network`")
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// Starts a bot whose server has a `--repo-config` file. Also returns the path of the file.
async fn with_file(backend: Backend, text: &str) -> (Bot, PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repos.yaml");
    std::fs::write(&path, text).unwrap();
    let json = r#"{"repos": [{"id": "/.*/", "repo_config_source": "base"}]}"#;
    let mut bot = Bot::with(backend, &[NETWORK, NAMED], &[("repo-config-json", json)]).await;
    let name = path.display().to_string();
    bot.restart_with(&[("repo-config-json", &[]), ("repo-config", &[&name])])
        .await;
    (bot, path, dir)
}

const FROM_PULL: &str = "repos:\n- id: /.*/\n  repo_config_source: pull_head\n";
const FROM_BASE: &str = "repos:\n- id: /.*/\n  repo_config_source: base\n";

async fn a_changed_file_of_the_server_holds_from_the_next_command_on(backend: Backend) {
    let (mut bot, path, _dir) = with_file(backend, FROM_PULL).await;
    let pull = bot.open_pull("own", &[WIDER, OTHER]).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for project: `mine`")
    );
    std::fs::write(&path, FROM_BASE).unwrap();
    assert!(
        planned(&mut bot, pull)
            .await
            .starts_with("Ran Plan for project: `mine`"),
        "nobody has looked yet"
    );
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Taken(vec![])
    );
    assert!(
        planned(&mut bot, pull)
            .await
            .starts_with("Ran Plan for project: `net`")
    );
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Same
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_file_that_is_refused_changes_nothing_until_it_is_mended(backend: Backend) {
    let (mut bot, path, _dir) = with_file(backend, FROM_PULL).await;
    let pull = bot.open_pull("own", &[WIDER, OTHER]).await;
    bot.read_comments(pull);
    let before = bot.replica.ctx.live.file().unwrap();
    std::fs::write(&path, "repos:\n- id: /.*/\n  repo_config_sorce: base\n").unwrap();
    let FileCheck::Refused(error) = bot.replica.tick_repo_config().await.unwrap() else {
        panic!("there is no such key")
    };
    assert!(
        error.contains("`repo_config_sorce` is not a key") && error.contains("repos.yaml:3:3"),
        "{error}"
    );
    assert!(
        error.contains("did you mean `repo_config_source`?"),
        "{error}"
    );
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Same,
        "it is told once"
    );
    let during = bot.replica.ctx.live.file().unwrap();
    assert_eq!(
        (during.digest(), during.since),
        (before.digest(), before.since)
    );
    assert_eq!(during.refused.map(|refused| refused.error), Some(error));
    assert!(
        planned(&mut bot, pull)
            .await
            .starts_with("Ran Plan for project: `mine`")
    );
    std::fs::write(
        &path,
        format!("{FROM_PULL}environment_profiles: {{prod: {{plan: [TOKEN]}}}}\n"),
    )
    .unwrap();
    let FileCheck::Refused(error) = bot.replica.tick_repo_config().await.unwrap() else {
        panic!("nobody has its variables")
    };
    assert!(
        error.starts_with("`environment_profiles` has changed")
            && error.ends_with("Restart the server"),
        "{error}"
    );
    std::fs::remove_file(&path).unwrap();
    let FileCheck::Refused(error) = bot.replica.tick_repo_config().await.unwrap() else {
        panic!("the file is gone")
    };
    assert!(
        error.starts_with("cannot read `")
            && error.ends_with("repos.yaml`: No such file or directory (os error 2)"),
        "{error}"
    );
    std::fs::write(&path, FROM_PULL).unwrap();
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Back
    );
    assert_eq!(bot.replica.ctx.live.file().unwrap(), before);
    std::fs::write(&path, FROM_BASE).unwrap();
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Taken(vec![])
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_file_without_policy_sets_is_refused_while_policies_are_checked(backend: Backend) {
    let sets =
        format!("{FROM_PULL}policies: {{policy_sets: [{{name: a, path: /etc/policies}}]}}\n");
    let (mut bot, path, _dir) = with_file(backend, &sets).await;
    bot.restart_with(&[("enable-policy-checks", &["true"])])
        .await;
    std::fs::write(&path, FROM_PULL).unwrap();
    let FileCheck::Refused(error) = bot.replica.tick_repo_config().await.unwrap() else {
        panic!("every plan would pass")
    };
    assert!(error.contains("have no policy sets"), "{error}");
    let other = sets.replace("name: a", "name: b");
    std::fs::write(&path, other).unwrap();
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Taken(vec![])
    );
    bot.end(&[]).await;
}

async fn a_link_that_is_turned_is_a_change_and_the_same_text_is_none(backend: Backend) {
    let (bot, path, dir) = with_file(backend, FROM_PULL).await;
    let turn = |to: &str, text: &str| {
        std::fs::write(dir.path().join(to), text).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join(to), &link).unwrap();
        std::fs::rename(link, &path).unwrap();
    };
    turn("1", FROM_PULL);
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Same
    );
    turn("2", FROM_BASE);
    assert_eq!(
        bot.replica.tick_repo_config().await.unwrap(),
        FileCheck::Taken(vec![])
    );
    bot.end(&[]).await;
}
