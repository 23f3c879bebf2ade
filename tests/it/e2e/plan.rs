//! Stories about planning, from the push to the answer.

use lockkeeper::emulator::StatusState;

use super::world::{REPO, World, resource};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_planned_by_itself_applied_on_request_and_unlocked_by_the_merge() {
    let world = World::start(|files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("greeting", "\"hello\"");
    let pull = world.open("feature", &[("main.tf", &code)]).await;

    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("Plan: 1 to add, 0 to change, 0 to destroy");
    assert_eq!(
        world
            .status(pull, "lockkeeper/plan", StatusState::Success)
            .await,
        "1/1 projects planned successfully."
    );
    world
        .status(pull, "lockkeeper/plan: ./default", StatusState::Success)
        .await;
    assert_eq!(world.locks().await, ["#1 . default"]);

    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied")
        .says("1 added");
    assert!(world.files().state("root", None).contains("hello"));
    assert_eq!(
        world
            .status(pull, "lockkeeper/apply", StatusState::Success)
            .await,
        "1/1 projects applied successfully."
    );

    let said = world.ask(pull, "lockkeeper plan").await;
    said.is("plan success | . default no_changes")
        .says("Nothing has to be applied");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default up_to_date");
    world.settled(pull).await;

    world
        .github
        .merge(REPO, pull, "alice")
        .await
        .expect("a merge");
    world
        .answer(pull)
        .await
        .is("closed success | . default discarded")
        .says("This pull request was merged");
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_with_an_error_is_shown_first_and_gives_its_lock_back() {
    let world = World::start(|files| {
        vec![
            ("net/main.tf", files.backend("net")),
            ("zone/main.tf", String::new()),
        ]
    })
    .await;
    let net = world.files().backend("net") + &resource("a", "1");
    let pull = world
        .open(
            "feature",
            &[
                ("net/main.tf", &net),
                ("zone/main.tf", &resource("b", "var.absent")),
            ],
        )
        .await;

    let said = world.answer(pull).await;
    said.is("autoplan partial | net default planned | zone default failed")
        .says("Reference to undeclared input variable");
    let place = |heading: &str| {
        said.text
            .find(heading)
            .unwrap_or_else(|| panic!("{heading}:\n{}", said.text))
    };
    assert!(
        place("### ❌ dir: `zone`") < place("### 📝 dir: `net`"),
        "{}",
        said.text
    );
    assert_eq!(
        world
            .status(pull, "lockkeeper/plan", StatusState::Failure)
            .await,
        "1/2 projects failed to plan."
    );
    world
        .status(pull, "lockkeeper/plan: zone/default", StatusState::Failure)
        .await;
    world.finish(&["#1 net default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_is_made_and_planned_with_its_variables() {
    let world = World::start(|files| vec![("app/main.tf", files.backend("app"))]).await;
    let code = world.files().backend("app")
        + "variable \"size\" { default = \"small\" }\n"
        + &resource("a", "var.size");
    let pull = world
        .open(
            "feature",
            &[
                ("app/main.tf", &code),
                ("app/env/staging.tfvars", "size = \"large\"\n"),
            ],
        )
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | app default planned");

    world
        .ask(pull, "lockkeeper plan -d app -w staging")
        .await
        .is("plan success | app staging planned");
    assert!(
        world
            .server
            .calls("workspace")
            .iter()
            .any(|call| call.contains(r#""new", "--", "staging""#))
    );
    assert!(
        world
            .server
            .calls("plan")
            .last()
            .is_some_and(|call| call.contains("env/staging.tfvars"))
    );
    assert_eq!(world.locks().await, ["#1 app default", "#1 app staging"]);

    world
        .ask(pull, "lockkeeper apply -d app -w staging")
        .await
        .is("apply success | app staging applied");
    assert!(
        world
            .files()
            .state("app", Some("staging"))
            .contains("large")
    );
    assert_eq!(world.files().state("app", None), "");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | app default applied | app staging up_to_date");
    assert!(world.files().state("app", None).contains("small"));
    world.finish(&["#1 app default", "#1 app staging"]).await;
}

const TWO_PROJECTS: &str = "version: 3
projects:
- {name: blue, dir: app, workspace: blue}
- {name: green, dir: app, workspace: green}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projects_that_share_a_directory_are_told_apart_by_name() {
    let world = World::start(|files| vec![("app/main.tf", files.backend("app"))]).await;
    let code = world.files().backend("app") + &resource("a", "terraform.workspace");
    let pull = world
        .open(
            "feature",
            &[("lockkeeper.yaml", TWO_PROJECTS), ("app/main.tf", &code)],
        )
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | app blue planned | app green planned");

    world
        .ask(pull, "lockkeeper apply -p green")
        .await
        .is("apply success | app green applied");
    assert!(world.files().state("app", Some("green")).contains("green"));
    assert_eq!(world.files().state("app", Some("blue")), "");
    world
        .ask(pull, "lockkeeper plan -p blue")
        .await
        .is("plan success | app blue planned")
        .says("-p blue");
    let said = world.ask(pull, "lockkeeper plan -p gren").await;
    said.is("plan refused (target)")
        .says("Did you mean `green`?");
    let said = world.ask(pull, "lockkeeper plan -d apps").await;
    said.is("plan refused (target)").says("`app`");
    world.finish(&["#1 app blue", "#1 app green"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_module_plans_the_project_that_uses_it() {
    let module = |value: &str| {
        format!(
            "{}\noutput \"it\" {{ value = 1 }}\n",
            resource("inner", value)
        )
    };
    let main = |files: &super::world::Files| {
        files.backend("root") + "module \"thing\" { source = \"./modules/thing\" }\n"
    };
    let world = World::start(|files| {
        vec![
            ("main.tf", main(files)),
            ("modules/thing/main.tf", module("1")),
        ]
    })
    .await;
    let pull = world
        .open("feature", &[("modules/thing/main.tf", &module("2"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("module.thing.terraform_data.inner");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_webhook_twice_is_one_command() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    let pull = world
        .open("feature", &[("main.tf", &resource("a", "1"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    for delivery in world.github.deliveries() {
        world
            .github
            .redeliver(delivery.id)
            .await
            .expect("it is known");
    }
    // The queue keeps the order: the command after the repetitions is answered after them.
    world.ask(pull, "lockkeeper help").await.is("help success");
    assert_eq!(world.server.calls("plan").len(), 2);
    world.finish(&["#1 . default"]).await;
}
