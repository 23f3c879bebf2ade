//! Stories about hooks of the administrator around plans and applies.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::stories::{APP, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    a_hook_writes_the_configuration_that_is_planned_and_applied,
    what_a_hook_of_the_plan_wrote_holds_for_commands_without_it,
    what_a_hook_wrote_for_a_push_holds_for_a_plan_that_is_asked_for_and_its_apply,
    what_a_hook_wrote_is_known_without_a_plan_and_without_the_checkout,
    a_hook_that_fails_is_shown_and_the_plan_goes_on,
    where_the_operator_wants_it_a_hook_that_fails_refuses_the_command,
    hooks_after_a_command_hear_how_it_ended,
    a_hook_says_in_its_status_what_it_wants_to_be_read,
    hooks_run_for_the_commands_they_are_for,
    what_a_pull_request_chooses_is_no_source_for_hooks_either,
    a_configuration_that_links_elsewhere_is_not_read_after_hooks,
    what_a_hook_makes_of_the_code_counts_for_its_command_alone,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #1";
/// Hook that writes a configuration with one project.
const GENERATE: &str =
    "printf 'version: 3\\nprojects:\\n- name: generated\\n  dir: network\\n' >lockkeeper.yaml";

fn with_hooks(before: &Value, after: &Value) -> String {
    json!({"repos": [{"id": "/.*/", "pre_workflow_hooks": before, "post_workflow_hooks": after}]})
        .to_string()
}

async fn start(backend: Backend, before: &Value, after: &Value) -> Bot {
    let config = with_hooks(before, after);
    Bot::with(backend, &[NETWORK, APP], &[("repo-config-json", &config)]).await
}

async fn a_hook_writes_the_configuration_that_is_planned_and_applied(backend: Backend) {
    let mut bot = start(
        backend,
        &json!([{"run": GENERATE, "description": "Generate"}]),
        &json!([]),
    )
    .await;
    let pull = bot
        .open_pull("wider", &[WIDER, ("app/main.tf", "# wider\n")])
        .await;
    let said = bot.comment(pull);
    assert!(
        said.starts_with("Ran Plan for project: `generated` dir: `network`"),
        "{said}"
    );
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: generated: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    lockkeeper/pre_workflow_hook: Generate: Success, Succeeded.
    ");
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("Apply complete!"));
    assert_eq!(
        bot.calls(),
        ["init network", "plan network", "apply network"]
    );
    bot.end(&[LOCK]).await;
}

async fn what_a_hook_of_the_plan_wrote_holds_for_commands_without_it(backend: Backend) {
    let text = "version: 3\nprojects:\n- name: generated\n  dir: network\n  workflow: own\n  \
                apply_requirements: [approved]\nworkflows:\n  own: {}\n";
    let generate = format!("printf '{}' >lockkeeper.yaml", text.replace('\n', "\\n"));
    let config = json!({"repos": [{
        "id": "/.*/", "allowed_overrides": ["apply_requirements", "workflow"], "allow_custom_workflows": true,
        "pre_workflow_hooks": [{"run": generate, "commands": "plan"}, {"run": "exit 1", "commands": "apply"}],
    }]});
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP],
        &[("repo-config-json", &config.to_string())],
    )
    .await;
    let pull = bot
        .open_pull("wider", &[WIDER, ("app/main.tf", "# wider\n")])
        .await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for project: `generated` dir: `network`")
    );
    lose_checkouts(&bot);
    bot.say(pull, "lockkeeper apply").await;
    let refused = bot.comment(pull);
    assert!(
        refused.contains("`approved` is required (line 6 of `lockkeeper.yaml`)"),
        "{refused}"
    );
    bot.say(pull, "lockkeeper version -p generated").await;
    let version = bot.comment(pull);
    assert!(
        version.starts_with("Ran Version for project: `generated` dir: `network`"),
        "{version}"
    );
    bot.approve(pull, "bob");
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("Apply complete!"));
    bot.end(&[LOCK]).await;
}

/// Removes the checkouts, so that the server is like another replica, which never had the files of hooks.
fn lose_checkouts(bot: &Bot) {
    std::fs::remove_dir_all(bot.db.dir.path().join("data/checkouts")).unwrap();
}

async fn what_a_hook_wrote_for_a_push_holds_for_a_plan_that_is_asked_for_and_its_apply(
    backend: Backend,
) {
    let text = "version: 3\nprojects:\n- name: generated\n  dir: network\n  apply_requirements: [approved]\n";
    let generate = format!("printf '{}' >lockkeeper.yaml", text.replace('\n', "\\n"));
    let config = json!({"repos": [{
        "id": "/.*/", "allowed_overrides": ["apply_requirements"],
        "pre_workflow_hooks": [{"run": generate, "commands": "autoplan"}],
    }]});
    let mut bot = Bot::with(
        backend,
        &[NETWORK, APP],
        &[("repo-config-json", &config.to_string())],
    )
    .await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    let planned = "Ran Plan for project: `generated` dir: `network`";
    assert!(bot.comment(pull).starts_with(planned));
    lose_checkouts(&bot);
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.comment(pull).starts_with(planned));
    lose_checkouts(&bot);
    bot.say(pull, "lockkeeper apply").await;
    let refused = bot.comment(pull);
    assert!(
        refused.contains("`approved` is required (line 5 of `lockkeeper.yaml`)"),
        "{refused}"
    );
    bot.end(&[LOCK]).await;
}

async fn what_a_hook_wrote_is_known_without_a_plan_and_without_the_checkout(backend: Backend) {
    // If hooks run for all commands, `explain` lists them and runs none.
    for (commands, asked, told) in [
        (
            "plan",
            "version -p generated",
            "Ran Version for project: `generated` dir: `network`",
        ),
        ("", "explain", "`generated`"),
    ] {
        let mut bot = start(
            backend,
            &json!([{"run": GENERATE, "commands": commands}]),
            &json!([]),
        )
        .await;
        let pull = bot
            .open_pull("wider", &[("network/main.tf", "# fake: fail plan\n")])
            .await;
        assert!(
            bot.comment(pull)
                .starts_with("Ran Plan for project: `generated` dir: `network`")
        );
        lose_checkouts(&bot);
        bot.say(pull, &format!("lockkeeper {asked}")).await;
        let answer = bot.comment(pull);
        assert!(answer.contains(told), "{answer}");
        bot.end(&[]).await;
    }
}

async fn a_hook_that_fails_is_shown_and_the_plan_goes_on(backend: Backend) {
    let hooks = json!([{"run": "echo oh no; exit 7"}, {"run": "echo never"}]);
    let mut bot = start(backend, &hooks, &json!([])).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert!(bot.comment(pull).contains(": planned\n"));
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    lockkeeper/pre_workflow_hook: Pre workflow hook #0: Failure, Failed: `echo oh no; exit 7` ended with exit code 7.
    ");
    bot.end(&[LOCK]).await;
}

async fn where_the_operator_wants_it_a_hook_that_fails_refuses_the_command(backend: Backend) {
    let config = with_hooks(
        &json!([{"run": "test \"$COMMAND_NAME\" != apply", "description": "Ask"}]),
        &json!([]),
    );
    let flags = [
        ("repo-config-json", config.as_str()),
        ("fail-on-pre-workflow-hook-error", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    assert!(bot.comment(pull).contains(": planned\n"));
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @r#"
    **Apply refused**: the hook `Ask` before the command failed: `test "$COMMAND_NAME" != apply` ended with exit code 1.

    * Its output is at `https://locks.example.com/jobs/ID`. Hooks are configured by an administrator of Lockkeeper.
    * Run the command again when the hook is fixed.

    <sub>Commit `72b1e463` · 0 s</sub>
    "#);
    assert_snapshot!(bot.statuses(pull), @r#"
    lockkeeper/apply: Pending, 0/1 projects applied.
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    lockkeeper/pre_workflow_hook: Ask: Failure, Failed: `test "$COMMAND_NAME" != apply` ended with exit code 1.
    "#);
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&[LOCK]).await;
}

async fn hooks_after_a_command_hear_how_it_ended(backend: Backend) {
    let tell = "echo $COMMAND_NAME $COMMAND_HAS_ERRORS >$OUTPUT_STATUS_FILE";
    let mut bot = start(backend, &json!([]), &json!([{"run": tell}])).await;
    let pull = bot
        .open_pull("wider", &[("network/main.tf", "# fake: fail plan\n")])
        .await;
    bot.answer(pull);
    assert!(
        bot.statuses(pull)
            .contains("post_workflow_hook: Post workflow hook #0: Success, autoplan true\n")
    );
    bot.update("wider", &[WIDER]).await;
    bot.answer(pull);
    assert!(
        bot.statuses(pull)
            .contains("post_workflow_hook: Post workflow hook #0: Success, autoplan false\n")
    );
    bot.say(pull, "lockkeeper apply").await;
    bot.answer(pull);
    assert!(
        bot.statuses(pull)
            .contains("post_workflow_hook: Post workflow hook #0: Success, apply false\n")
    );
    bot.end(&[LOCK]).await;
}

async fn a_hook_says_in_its_status_what_it_wants_to_be_read(backend: Backend) {
    let hooks = json!([
        {"run": "printf '3 things\\nare fine\\n' >$OUTPUT_STATUS_FILE", "description": "Look"},
        {"run": "test ! -e $OUTPUT_STATUS_FILE", "description": "Say nothing"},
    ]);
    let mut bot = start(backend, &hooks, &json!([])).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.answer(pull);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    lockkeeper/pre_workflow_hook: Look: Success, 3 things are fine
    lockkeeper/pre_workflow_hook: Say nothing: Success, Succeeded.
    ");
    bot.end(&[LOCK]).await;
}

async fn hooks_run_for_the_commands_they_are_for(backend: Backend) {
    let note = |word: &str, commands: &str| {
        let run = format!("echo {word} >>\"$(dirname \"$(command -v terraform)\")/noted\"");
        json!({"run": run, "commands": commands})
    };
    let mut bot = start(
        backend,
        &json!([note("plan", "plan"), note("apply", "apply")]),
        &json!([note("any", "")]),
    )
    .await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    for command in [
        "help",
        "plan -p network",
        "plan -d network",
        "apply",
        "unlock",
    ] {
        bot.say(pull, &format!("lockkeeper {command}")).await;
    }
    bot.read_comments(pull);
    let noted = std::fs::read_to_string(bot.tools.join("noted")).unwrap();
    assert_eq!(
        noted.split_whitespace().collect::<Vec<_>>(),
        ["plan", "any", "plan", "any", "plan", "any", "apply", "any"]
    );
    bot.end(&[]).await;
}

async fn what_a_pull_request_chooses_is_no_source_for_hooks_either(backend: Backend) {
    let show = r#"printf '<%s>' "$HEAD_BRANCH_NAME" "$COMMENT_ARGS" "$PROJECT_NAME" >$OUTPUT_STATUS_FILE; test ! -e pwned"#;
    let mut bot = start(
        backend,
        &json!([{"run": show, "description": "Show"}]),
        &json!([]),
    )
    .await;
    let pull = bot
        .open_pull("x$(touch${IFS}pwned)';`id`\"", &[WIDER])
        .await;
    bot.answer(pull);
    bot.say(
        pull,
        "lockkeeper plan -d network -- '-var=a=$(touch pwned)'",
    )
    .await;
    bot.answer(pull);
    assert_snapshot!(bot.statuses(pull), @r#"
    lockkeeper/plan: Success, 1/1 projects planned successfully.
    lockkeeper/plan: network/default: Success, Plan: 2 to add, 1 to change, 0 to destroy.
    lockkeeper/pre_workflow_hook: Show: Success, <x$(touch${IFS}pwned)';`id`"><\-\v\a\r\=\a\=\$\(\t\o\u\c\h\ \p\w\n\e\d\)><>
    "#);
    bot.end(&[LOCK]).await;
}

async fn a_configuration_that_links_elsewhere_is_not_read_after_hooks(backend: Backend) {
    let mut bot = start(
        backend,
        &json!([{"run": "ln -s /etc/passwd lockkeeper.yaml"}]),
        &json!([]),
    )
    .await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    let said = bot.comment(pull);
    assert!(
        said.contains("it is not a regular file") && !said.contains("root:"),
        "{said}"
    );
    bot.end(&[]).await;
}

async fn what_a_hook_makes_of_the_code_counts_for_its_command_alone(backend: Backend) {
    let call = r#"printf 'module "vpc" {\n  source = "../shared/vpc"\n}\n' >>app/main.tf"#;
    let hooks = with_hooks(&json!([{"run": call, "commands": "plan"}]), &json!([]));
    let config = (
        "atlantis.yaml",
        "version: 3\nprojects:\n- dir: app\n- dir: network\n",
    );
    let module = (
        "shared/vpc/main.tf",
        "resource \"terraform_data\" \"vpc\" {}\n",
    );
    let flags = [
        ("repo-config-json", hooks.as_str()),
        ("autoplan-modules", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK, APP, config, module], &flags).await;
    let pull = bot
        .open_pull("module", &[("shared/vpc/main.tf", "# changed\n")])
        .await;
    let planned = "Ran Plan for dir: `app` workspace: `default`: planned\n";
    assert!(
        bot.answer(pull).starts_with(planned),
        "the hook has made it a user of the module"
    );
    // The commit is the same. A result with the hook's changes is not reused without them, nor the other way round.
    bot.say(pull, "lockkeeper explain").await;
    let said = bot.answer(pull);
    assert!(
        said.starts_with("Ran Explain: ") && !said.contains("in a module that it uses"),
        "{said}"
    );
    bot.say(pull, "lockkeeper plan").await;
    assert!(bot.answer(pull).starts_with(planned));
    bot.end(&["acme/infra/app/default by #1"]).await;
}
