//! Stories about workflows of the administrator: steps of every kind, their output in comments and on pages, and the
//! link between an apply and its plan.

use insta::assert_snapshot;
use lockkeeper::model::PullNumber;
use serde_json::{Value, json};

use crate::stories::NETWORK;
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};
use crate::support::rows::recent_runs;

story!(
    steps_of_every_kind_plan_and_apply,
    a_step_that_fails_is_named_and_the_steps_before_it_are_shown,
    what_is_no_list_of_variables_fails_the_step,
    commands_alone_plan_and_apply_without_a_plan_file,
    commands_alone_are_refused_at_another_commit,
    a_plan_file_that_a_command_writes_is_applied,
    a_plan_without_a_file_cannot_be_applied_by_terraform,
    only_terraform_itself_is_believed_when_nothing_is_to_be_done,
    what_a_pull_request_chooses_is_never_source_code,
    a_plan_is_not_applied_by_another_workflow,
    what_is_kept_out_of_comments_is_not_in_the_log_of_a_comment,
    an_apply_prepares_a_checkout_that_is_new,
    a_targeted_apply_is_refused,
    a_repository_defines_its_own_workflow_where_that_is_allowed,
    programs_that_were_downloaded_are_found_by_name_beside_those_of_the_operator,
);

const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #1";

/// Returns the administrator's file with one workflow for everything.
fn with_workflow(plan: &Value, apply: &Value) -> String {
    let workflow = json!({"plan": {"steps": plan}, "apply": {"steps": apply}});
    json!({"repos": [{"id": "/.*/", "workflow": "custom"}], "workflows": {"custom": workflow}})
        .to_string()
}

async fn planned_by(backend: Backend, plan: &Value, apply: &Value) -> (Bot, PullNumber) {
    let config = with_workflow(plan, apply);
    let mut bot = Bot::with(backend, &[NETWORK], &[("repo-config-json", &config)]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    (bot, pull)
}

/// Returns everything that the newest run printed, as its page shows it.
async fn page(bot: &Bot) -> String {
    let runs = recent_runs(bot.store(), 1).await;
    let output = bot.store().run_output(runs[0].id).await.unwrap();
    bot.plain(&output)
}

async fn steps_of_every_kind_plan_and_apply(backend: Backend) {
    let plan = json!([
        {"env": {"name": "GREETING", "command": "echo hello; echo from the page >&2"}},
        {"env": {"name": "PLACE", "value": "world"}},
        {"multienv": {"command": "echo 'ONE=1,TWO=\"2,2\"'", "output": "show"}},
        {"init": {"extra_args": ["-upgrade=false", "-backend-config=key=${WORKSPACE}-$MISSING$PLACE"]}},
        {"run": "echo $GREETING $PLACE $ONE $TWO for $USER_NAME in $REPO_REL_DIR of $BASE_REPO_NAME"},
        {"plan": {"extra_args": ["-lock-timeout=$ONE"]}},
        "show",
        {"run": {"command": "cat $SHOWFILE", "output": "hide"}},
        {"run": {"command": "echo token: hunter2 rest", "output": [{"filter_regex": "(token: )\\S+"}]}},
        {"run": {"command": "echo ${BASH_VERSION:+bash}", "shell": "bash", "shellArgs": ["-e", "-c"]}},
    ]);
    let apply = json!([{"run": "echo applying, greeting: ${GREETING:-none}"}, "apply", {"run": "echo done"}]);
    let (mut bot, pull) = planned_by(backend, &plan, &apply).await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for dir: `network` workspace: `default`: planned

    **Plan: 2 to add, 1 to change, 0 to destroy.**

    1 to update, 2 to create:

    * update `terraform_data.other[1]`
    * create `terraform_data.it`
    * create `terraform_data.it[2]`

    <details><summary>Output (15 lines)</summary>

    ```diff
    Variables were set: `ONE`, `TWO`.
    hello world 1 2,2 for alice in network of infra

    Terraform will perform the following actions:

      # terraform_data.other[1] will be updated in-place
      # terraform_data.it will be created
    + resource "terraform_data" "it" {
          + id = (known after apply)
        }
      # terraform_data.it[2] will be created

    Plan: 2 to add, 1 to change, 0 to destroy.
    token: <redacted> rest
    bash
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
    assert_snapshot!(page(&bot).await, @r#"
    $ echo hello; echo from the page >&2
    from the page
    $ echo 'ONE=1,TWO="2,2"'
    $ terraform init -input=false -upgrade=false -backend-config=key=default-world -backend=false
    Initializing the backend...
    $ terraform init -input=false -backend-config=key=default-world
    Initializing the backend...
    $ echo $GREETING $PLACE $ONE $TWO for $USER_NAME in $REPO_REL_DIR of $BASE_REPO_NAME
    hello world 1 2,2 for alice in network of infra
    $ terraform plan -input=false -refresh -out=plan.tfplan -lock-timeout=1

    Terraform will perform the following actions:

      # terraform_data.other[1] will be updated in-place
      # terraform_data.it will be created
      + resource "terraform_data" "it" {
          + id = (known after apply)
        }
      # terraform_data.it[2] will be created

    Plan: 2 to add, 1 to change, 0 to destroy.
    $ terraform show -json -- plan.tfplan
    $ cat $SHOWFILE
    {"format_version":"1.2","shown":"a plan of network","resource_changes":[{"address":"terraform_data.other[1]","mode":"managed","type":"terraform_data","change":{"actions":["update"]}},{"address":"terraform_data.it","mode":"managed","type":"terraform_data","change":{"actions":["create"]}},{"address":"terraform_data.it[2]","mode":"managed","type":"terraform_data","change":{"actions":["create"]}}]}
    $ echo token: hunter2 rest
    token: hunter2 rest
    $ echo ${BASH_VERSION:+bash}
    bash
    $ terraform show -json plan.tfplan
    "#);
    let scratch = regex::Regex::new("run-[A-Za-z0-9]+").unwrap();
    assert_snapshot!(scratch.replace_all(&bot.plain(&bot.arguments()), "run"), @"
    init -input=false -upgrade=false -backend-config=key=default-world -backend=false
    init -input=false -backend-config=key=default-world
    plan -input=false -refresh -out=/srv/data/tmp/run/plan.tfplan -lock-timeout=1
    ");
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: applied

    **1 added, 0 changed, 0 destroyed.**

    ```diff
    applying, greeting: none
    terraform_data.it: Creating...
    terraform_data.it: Creation complete after 0s

    Apply complete! Resources: 1 added, 0 changed, 0 destroyed.
    done
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    bot.end(&[LOCK]).await;
}

async fn a_step_that_fails_is_named_and_the_steps_before_it_are_shown(backend: Backend) {
    let plan = json!([
        {"run": "echo first"},
        {"run": {"command": "echo second; exit 3", "output": "hide"}},
        {"run": "echo never"},
    ]);
    let (mut bot, pull) = planned_by(backend, &plan, &json!(["apply"])).await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: failed

    **Plan failed**: `run: echo second; exit 3` (step 2 of the workflow `custom`) ended with exit code 3.

    ```text
    first
    second
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn what_is_no_list_of_variables_fails_the_step(backend: Backend) {
    let plan = json!([{"multienv": "echo hunter2"}, "init", "plan"]);
    let (mut bot, pull) = planned_by(backend, &plan, &json!(["apply"])).await;
    let said = bot.comment(pull);
    assert!(
        said.contains(
            "`multienv: echo hunter2` (step 1 of the workflow `custom`) printed output that cannot be parsed as variables"
        ),
        "{said}"
    );
    assert!(bot.calls().is_empty(), "no step follows it");
    bot.end(&[]).await;
}

async fn commands_alone_plan_and_apply_without_a_plan_file(backend: Backend) {
    let plan = json!([{"run": "echo would deploy"}]);
    let (mut bot, pull) = planned_by(backend, &plan, &json!([{"run": "echo deployed"}])).await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: planned

    ```diff
    would deploy
    ```

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
    ");
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: applied

    ```diff
    deployed
    ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper apply").await;
    let again = bot.comment(pull);
    assert!(again.contains("This plan was already applied."), "{again}");
    assert!(bot.calls().is_empty(), "Terraform has no part in it");
    bot.end(&[LOCK]).await;
}

async fn commands_alone_are_refused_at_another_commit(backend: Backend) {
    let config = with_workflow(
        &json!([{"run": "echo would deploy"}]),
        &json!([{"run": "echo deployed"}]),
    );
    let flags = [
        ("repo-config-json", config.as_str()),
        ("disable-autoplan", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.say(pull, "lockkeeper plan").await;
    bot.answer(pull);
    bot.update("wider", &[("network/more.tf", "# more\n")])
        .await;
    bot.say(pull, "lockkeeper apply").await;
    let said = bot.comment(pull);
    assert!(said.contains("and the pull request is at"), "{said}");
    assert!(!said.contains("deployed"), "{said}");
    bot.end(&[LOCK]).await;
}

async fn a_plan_file_that_a_command_writes_is_applied(backend: Backend) {
    let plan = json!(["init", {"run": "terraform plan -out $PLANFILE"}]);
    let (mut bot, pull) = planned_by(backend, &plan, &json!(["apply"])).await;
    let said = bot.comment(pull);
    assert!(
        said.contains("**Plan: 2 to add, 1 to change, 0 to destroy.**"),
        "{said}"
    );
    bot.say(pull, "lockkeeper apply").await;
    let said = bot.comment(pull);
    assert!(said.contains("Apply complete!"), "{said}");
    assert_eq!(
        bot.calls(),
        ["init network", "plan network", "apply network"]
    );
    bot.end(&[LOCK]).await;
}

async fn a_plan_without_a_file_cannot_be_applied_by_terraform(backend: Backend) {
    let (mut bot, pull) = planned_by(
        backend,
        &json!([{"run": "echo nothing"}]),
        &json!(["apply"]),
    )
    .await;
    bot.answer(pull);
    bot.say(pull, "lockkeeper apply").await;
    let said = bot.comment(pull);
    assert!(
        said.contains(
            "the plan has no file, because no step has written `$PLANFILE`. Nothing was applied."
        ),
        "{said}"
    );
    bot.end(&[LOCK]).await;
}

async fn only_terraform_itself_is_believed_when_nothing_is_to_be_done(backend: Backend) {
    let nothing = "No changes. Your infrastructure matches the configuration.";
    let plan = json!([{"run": format!("echo '{nothing}'")}]);
    let (mut bot, pull) = planned_by(backend, &plan, &json!([{"run": "echo deployed"}])).await;
    assert!(
        bot.comment(pull)
            .starts_with("Ran Plan for dir: `network` workspace: `default`: planned\n")
    );
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("deployed"));
    bot.end(&[LOCK]).await;
}

async fn what_a_pull_request_chooses_is_never_source_code(backend: Backend) {
    let show = r#"printf '<%s>\n' "$HEAD_BRANCH_NAME" "$COMMENT_ARGS" "$PULL_AUTHOR"; ls"#;
    let config = with_workflow(&json!([{"run": show}]), &json!([{"run": "echo deployed"}]));
    let flags = [
        ("repo-config-json", config.as_str()),
        ("disable-autoplan", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let pull = bot
        .open_pull("x$(touch${IFS}pwned)';touch${IFS}pwned;`id`\"", &[WIDER])
        .await;
    bot.say(
        pull,
        "lockkeeper plan -- '-var=a=$(touch pwned) \"; ${id} é,b'",
    )
    .await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for dir: `network` workspace: `default`: planned

    ```diff
    <x$(touch${IFS}pwned)';touch${IFS}pwned;`id`">
    <\-\v\a\r\=\a\=\$\(\t\o\u\c\h\ \p\w\n\e\d\)\ \"\;\ \$\{\i\d\}\ \�\�\,\b>
    <alice>
    main.tf
    ```

    * To **apply** this plan, comment:
      ```shell
      lockkeeper apply -d network
      ```
    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network -- '-var=a=$(touch pwned) "; ${id} é,b'
      ```
    * To **discard** this plan and release its lock, [open the lock](https://locks.example.com/locks/ID). `lockkeeper unlock` releases all locks of this pull request.

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    "#);
    bot.end(&[LOCK]).await;
}

async fn a_plan_is_not_applied_by_another_workflow(backend: Backend) {
    let plan = json!([{"run": "echo would deploy"}]);
    let (mut bot, pull) = planned_by(backend, &plan, &json!([{"run": "echo deployed"}])).await;
    bot.answer(pull);
    bot.configure(
        "repo-config-json",
        &with_workflow(&plan, &json!([{"run": "echo deployed elsewhere"}])),
    );
    bot.crash_and_restart().await;
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the plan was made with other steps than the workflow `custom` has now. Nothing was applied.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `72b1e463` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper plan").await;
    bot.answer(pull);
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("deployed elsewhere"));
    bot.end(&[LOCK]).await;
}

async fn what_is_kept_out_of_comments_is_not_in_the_log_of_a_comment(backend: Backend) {
    let plan = json!([{"run": {"command": "echo hunter2", "output": "hide"}}, "init", "plan"]);
    let (mut bot, pull) = planned_by(backend, &plan, &json!(["apply"])).await;
    bot.answer(pull);
    bot.say(pull, "lockkeeper plan --verbose").await;
    let said = bot.comment(pull);
    assert!(
        said.contains("The page of the run has the full output."),
        "{said}"
    );
    assert!(
        !said.replace("echo hunter2", "").contains("hunter2"),
        "{said}"
    );
    assert!(page(&bot).await.contains("\nhunter2\n"));
    bot.end(&[LOCK]).await;
}

async fn an_apply_prepares_a_checkout_that_is_new(backend: Backend) {
    let plan = json!([
        {"env": {"name": "KEY", "value": "of-the-plan"}},
        {"run": "echo generated >generated.txt"},
        {"init": {"extra_args": ["-backend-config=key=$KEY"]}},
        "plan",
        {"run": "echo planned"},
    ]);
    let (mut bot, pull) = planned_by(
        backend,
        &plan,
        &json!([{"run": "cat generated.txt"}, "apply"]),
    )
    .await;
    bot.answer(pull);
    std::fs::remove_dir_all(bot.db.dir.path().join("data")).unwrap();
    bot.crash_and_restart().await;
    bot.say(pull, "lockkeeper apply").await;
    let said = bot.comment(pull);
    assert!(
        said.contains("generated\n") && said.contains("Apply complete!"),
        "{said}"
    );
    assert!(
        !said.contains("planned\n"),
        "what comes after the plan is no part of it: {said}"
    );
    // Once for the plan, once for the apply: the part that fetches has `-backend=false`.
    let arguments = bot.arguments();
    let inits = arguments
        .lines()
        .filter(|line| {
            line.contains("-backend-config=key=of-the-plan") && !line.contains("-backend=false")
        })
        .count();
    assert_eq!(inits, 2, "{arguments}");
    bot.end(&[LOCK]).await;
}

async fn a_targeted_apply_is_refused(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot.open_pull("wider", &[WIDER]).await;
    bot.answer(pull);
    for argument in ["-target=a.b", "--target a.b", "-destroy"] {
        bot.say(pull, &format!("lockkeeper apply -- {argument}"))
            .await;
        let said = bot.comment(pull);
        assert!(said.contains("a plan is applied as a whole"), "{said}");
    }
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&[LOCK]).await;
}

async fn a_repository_defines_its_own_workflow_where_that_is_allowed(backend: Backend) {
    const OWN: &str = "version: 3\nprojects:\n- dir: network\n  workflow: own\nworkflows:\n  own:\n    plan:\n      \
                       steps:\n      - run: echo of the pull request\n      - init\n      - plan\n";
    let config = json!({"repos": [
        {"id": "/.*/", "allowed_overrides": ["workflow"], "allow_custom_workflows": true},
    ]});
    let mut bot = Bot::with(
        backend,
        &[NETWORK],
        &[("repo-config-json", &config.to_string())],
    )
    .await;
    let pull = bot
        .open_pull("wider", &[WIDER, ("lockkeeper.yaml", OWN)])
        .await;
    assert!(bot.comment(pull).contains("of the pull request\n"));
    bot.say(pull, "lockkeeper apply").await;
    assert!(bot.comment(pull).contains("Apply complete!"));
    bot.end(&[LOCK]).await;
}

async fn programs_that_were_downloaded_are_found_by_name_beside_those_of_the_operator(
    backend: Backend,
) {
    let hooks = json!([{"run": "terraform1.5.7"}]);
    let plan = json!([{"run": "terraform1.5.7; terraform version"}, "init", "plan"]);
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "custom", "pre_workflow_hooks": hooks}],
        "workflows": {"custom": {"plan": {"steps": plan}}},
    });
    let flags = [
        ("repo-config-json", &*config.to_string()),
        ("fail-on-pre-workflow-hook-error", "true"),
    ];
    let mut bot = Bot::with(backend, &[NETWORK], &flags).await;
    let program = bot.db.dir.path().join("data/bin/terraform1.5.7");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::write(&program, "#!/bin/sh\necho an old program\n").unwrap();
    std::fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let pull = bot.open_pull("wider", &[WIDER]).await;
    let said = bot.answer(pull);
    assert!(
        said.contains("an old program\nTerraform v1.11.4\n"),
        "{said}"
    );
    bot.end(&[LOCK]).await;
}
