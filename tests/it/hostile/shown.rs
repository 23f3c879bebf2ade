//! Attacks on what people see: nothing in a pull request hides a resource from the people who read its plan.

use insta::assert_snapshot;
use serde_json::json;

use super::ordinary;
use crate::e2e::world::{BotComment, World, resource};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};

story!(
    a_text_that_hides_a_resource_is_told_of_and_never_applied,
    a_plan_that_cannot_be_listed_is_not_applied,
    a_file_of_the_operators_own_format_is_applied_without_a_list,
    a_text_that_is_cut_is_not_compared_and_says_so,
);

const NETWORK: (&str, &str) = ("network/main.tf", "resource \"terraform_data\" \"it\" {}\n");
const PASSWORD: &str = "correct horse battery staple";

/// Starts a server whose pages show the output of runs to people who know the password.
async fn world() -> World {
    let settings = ordinary()
        .flag("--web-basic-auth")
        .flag("--web-username=ops");
    let settings = settings.variable("LOCKKEEPER_WEB_PASSWORD", PASSWORD);
    World::start_with(settings, |_| vec![("main.tf", String::new())]).await
}

/// Returns the page of the run that a comment links to, and its raw text.
async fn page_and_text(world: &World, said: &BotComment) -> (String, String) {
    let run = said
        .text
        .split("/jobs/")
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: String| {
        let request = client
            .get(format!("{}{path}", world.server.url()))
            .basic_auth("ops", Some(PASSWORD));
        request
            .send()
            .await
            .unwrap()
            .error_for_status()
            .unwrap()
            .text()
            .await
            .unwrap()
    };
    (
        get(format!("/jobs/{run}")).await,
        get(format!("/jobs/{run}/output.txt")).await,
    )
}

/// Finding H2: `ESC ]` in one attribute hid everything up to the BEL in another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_terminal_sequence_hides_a_resource() {
    let world = world().await;
    for (number, (opener, terminator)) in [("\\u001b]", "\\u0007"), ("\\u001bP", "\\u001b\\\\")]
        .into_iter()
        .enumerate()
    {
        let code = resource("a_notes", &format!("\"first line\\nsecond {opener}0;\""))
            + &resource("b_backdoor", "\"AdministratorAccess\"")
            + &resource("c_notes", &format!("\"{terminator} first line\\nsecond\""));
        let pull = world
            .open(&format!("feature-{number}"), &[("main.tf", &code)])
            .await;
        let coloured = world.answer(pull).await;
        let plain = world.ask(pull, "lockkeeper plan -- -no-color").await;
        for said in [coloured, plain] {
            said.says("**Plan: 3 to add, 0 to change, 0 to destroy.**")
                .says("\n3 to create:\n\n* create `terraform_data.a_notes`\n* create `terraform_data.b_backdoor`\n")
                .says("  # terraform_data.b_backdoor will be created\n")
                .says("\"AdministratorAccess\"");
            let (page, text) = page_and_text(&world, &said).await;
            for shown in [&page, &text] {
                assert!(shown.contains("terraform_data.b_backdoor"), "{shown}");
                assert!(shown.contains("AdministratorAccess"), "{shown}");
                assert!(
                    shown.contains("Plan: 3 to add") || shown.contains("Plan:</span> 3 to add"),
                    "{shown}"
                );
                assert!(
                    !shown.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')),
                    "{shown:?}"
                );
            }
        }
        world
            .ask(pull, "lockkeeper unlock")
            .await
            .is("unlock success | . default discarded");
    }
    world.finish(&[]).await;
}

/// Without colours, a warning of a check is at the start of a line, where Terraform's own sentences are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_says_otherwise_than_the_plan_file_is_not_applied() {
    let world = world().await;
    let code = resource("backdoor", "\"AdministratorAccess\"")
        + "check \"c\" {\n  assert {\n    condition     = terraform_data.backdoor.input == \"\"\n    error_message = \
           \"All is well.\\n\\nPlan: 0 to add, 0 to change, 0 to destroy.\"\n  }\n}\n";
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("apply -d .");

    let said = world.ask(pull, "lockkeeper plan -- -no-color").await;
    said.is("plan success | . default planned").says(
        "> **This plan will not be applied**: the text of the plan and its machine-readable form disagree: the text says \
         `Plan: 0 to add, 0 to change, 0 to destroy.` and the plan file says `Plan: 1 to add, 0 to change, 0 to destroy.`. \
         The list is that of the plan file.\n",
    );
    said.says("**Plan: 1 to add, 0 to change, 0 to destroy.**")
        .says("* create `terraform_data.backdoor`\n");
    assert!(!said.text.contains("lockkeeper apply"), "{}", said.text);
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused | . default refused")
        .says("its machine-readable form disagree")
        .says("Nothing was applied.");
    assert_eq!(world.server.calls("apply"), [""; 0]);
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_has_what_is_lost_first_and_no_sensitive_value() {
    let world =
        World::start_with(ordinary(), |files| vec![("main.tf", files.backend("root"))]).await;
    let kept = "resource \"terraform_data\" \"each\" {\n  for_each = toset([\"a\", \"`@all` <b>\\n\"])\n}\n";
    let secret = "variable \"s\" {\n  default   = \"hunter2\"\n  sensitive = true\n}\n";
    let code =
        |rest: String| world.files().backend("root") + secret + &resource("a", "var.s") + &rest;
    let before = code(resource("old", "1") + &resource("new", "1") + kept);
    let pull = world.open("feature", &[("main.tf", &before)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");

    let replaced = "resource \"terraform_data\" \"new\" {\n  input            = 1\n  triggers_replace = 2\n}\n";
    let after = code(
        replaced.to_owned() + &resource("later", "upper(var.s)") + &kept.replace("\"a\", ", ""),
    );
    world
        .push(
            "feature",
            "main.tf",
            &after.replace("= var.s", "= \"${var.s}!\""),
        )
        .await;
    let said = world.answer(pull).await;
    said.is("autoplan success | . default planned").says(
        "**Plan: 2 to add, 1 to change, 3 to destroy.**\n\n2 to destroy, 1 to replace, 1 to update, 1 to create:\n\n\
         * **destroy** `terraform_data.each[\"a\"]`\n* **destroy** `terraform_data.old`\n\
         * **replace** `terraform_data.new`\n* update `terraform_data.a`\n* create `terraform_data.later`\n\n\
         <details><summary>Output (",
    );
    let list = said.text.split("<details>").next().unwrap();
    assert!(!list.to_lowercase().contains("hunter2"), "{list}");
    world.finish(&["#1 . default"]).await;
}

async fn a_text_that_hides_a_resource_is_told_of_and_never_applied(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let hiding = (
        "network/main.tf",
        "# fake: add 2 change 0 destroy 1\n# fake: hides terraform_data.gone[1]\n",
    );
    let pull = bot.open_pull("hiding", &[hiding]).await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for dir: `network` workspace: `default`: planned

    > [!CAUTION]
    > **This plan will not be applied**: the text of the plan and its machine-readable form disagree: the text does not show `terraform_data.gone[1]`, which the plan file changes. The list is that of the plan file.

    **Plan: 2 to add, 0 to change, 1 to destroy.**

    1 to destroy, 2 to create:

    * **destroy** `terraform_data.gone[1]`
    * create `terraform_data.it`
    * create `terraform_data.it[2]`

    <details><summary>Output (9 lines)</summary>

    ```diff
    Terraform will perform the following actions:

      # terraform_data.it will be created
    + resource "terraform_data" "it" {
          + id = (known after apply)
        }
      # terraform_data.it[2] will be created

    Plan: 2 to add, 0 to change, 1 to destroy.
    ```

    </details>

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `ef96b74a` · 0 s</sub>
    "#);
    assert_snapshot!(bot.statuses(pull), @"
    lockkeeper/plan: Failure, 1/1 plans will not be applied: see the comment.
    lockkeeper/plan: network/default: Failure, Planned, but will not be applied: see the comment.
    ");
    bot.say(pull, "lockkeeper apply").await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Apply for dir: `network` workspace: `default`: refused

    **Apply refused**: the text of the plan and its machine-readable form disagree: the text does not show `terraform_data.gone[1]`, which the plan file changes. The list is that of the plan file. Nothing was applied.

    * Plan again. If this happens again, check the output of the plan: an attribute may contain misleading text.

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `ef96b74a` · 0 s</sub>
    ");
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_plan_that_cannot_be_listed_is_not_applied(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let pull = bot
        .open_pull("dark", &[("network/main.tf", "# fake: unshowable\n")])
        .await;
    assert_snapshot!(bot.comment(pull), @r#"
    Ran Plan for dir: `network` workspace: `default`: planned

    > [!CAUTION]
    > **This plan will not be applied**: the resources that it changes cannot be determined, because `terraform show -json` ended with exit code 1.

    **Plan: 1 to add, 0 to change, 0 to destroy.**

    There is no list of resources: `terraform show -json` ended with exit code 1. Only the text of this plan is available.

    ```diff
    Terraform will perform the following actions:

      # terraform_data.it will be created
    + resource "terraform_data" "it" {
          + id = (known after apply)
        }

    Plan: 1 to add, 0 to change, 0 to destroy.
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d network
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `2730473a` · 0 s</sub>
    "#);
    bot.say(pull, "lockkeeper apply").await;
    let said = bot.comment(pull);
    assert!(
        said.contains("the resources that it changes cannot be determined, because"),
        "{said}"
    );
    assert_eq!(bot.calls(), ["init network", "plan network"]);

    let calls = bot.calls();
    bot.push(
        "dark",
        &[(
            "network/main.tf",
            "# fake: no changes\n# fake: unshowable\n",
        )],
    )
    .await;
    bot.settle().await;
    let said = bot.comment(pull);
    assert!(
        said.contains("**This plan will not be applied**"),
        "even if it says that nothing changes: {said}"
    );
    assert_eq!(bot.calls().len(), calls.len() + 2);
    bot.end(&["acme/infra/network/default by #1"]).await;
}

async fn a_file_of_the_operators_own_format_is_applied_without_a_list(backend: Backend) {
    let steps = json!({
        "plan": {"steps": ["init", {"run": "echo sealed >$PLANFILE; echo a plan"}]},
        "apply": {"steps": [{"run": "cat $PLANFILE"}]},
    });
    let config =
        json!({"repos": [{"id": "/.*/", "workflow": "custom"}], "workflows": {"custom": steps}})
            .to_string();
    let mut bot = Bot::with(backend, &[NETWORK], &[("repo-config-json", &config)]).await;
    let pull = bot
        .open_pull("own", &[("network/main.tf", "# fake: add 1\n")])
        .await;
    assert_snapshot!(bot.comment(pull), @"
    Ran Plan for dir: `network` workspace: `default`: planned

    There is no list of resources: `terraform show -json` ended with exit code 1. Only the text of this plan is available.

    ```diff
    a plan
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

    <sub>Commit `fbc05afc` · 0 s</sub>
    ");
    bot.say(pull, "lockkeeper apply").await;
    let said = bot.comment(pull);
    assert!(
        said.starts_with("Ran Apply for dir: `network` workspace: `default`: applied"),
        "{said}"
    );
    bot.end(&["acme/infra/network/default by #1"]).await;
}

/// Padding pushes a resource out of the stored text. The list of resources contains it all the same.
async fn a_text_that_is_cut_is_not_compared_and_says_so(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK]).await;
    let padded = "# fake: add 2 change 0 destroy 1\n# fake: hides terraform_data.gone[1]\n# fake: big 80000\n";
    let pull = bot
        .open_pull("padded", &[("network/main.tf", padded)])
        .await;
    let said = bot.read_comments(pull).concat();
    assert!(
        said.contains("\n* **destroy** `terraform_data.gone[1]`\n"),
        "{said}"
    );
    assert!(
        said.contains("so it was not compared with this list. The list is complete.\n"),
        "{said}"
    );
    assert!(!said.contains("will not be applied"), "{said}");
    bot.end(&["acme/infra/network/default by #1"]).await;
}
