//! Stories about applying plans.

use lockkeeper::emulator::StatusState;

use super::world::{World, resource};
use crate::support::db::{allow_applies, stop_applies};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_that_fails_is_explained_and_can_be_planned_again() {
    let world = World::start(|files| vec![("main.tf", files.backend("root"))]).await;
    let failing = "resource \"terraform_data\" \"bad\" {\n  provisioner \"local-exec\" {\n    command = \"exit 3\"\n  }\n}\n";
    let code = world.files().backend("root") + &resource("good", "\"kept\"") + failing;
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");

    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply failure | . default failed")
        .says("local-exec provisioner error")
        .says("lockkeeper plan -d .");
    assert_eq!(
        world
            .status(pull, "lockkeeper/apply", StatusState::Failure)
            .await,
        "1/1 projects failed to apply."
    );
    assert!(
        world.files().state("root", None).contains("kept"),
        "what was done before the error is in the state"
    );

    let fixed = world.files().backend("root") + &resource("good", "\"kept\"");
    world.push("feature", "main.tf", &fixed).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("1 to destroy");
    world
        .ask(pull, "lockkeeper apply -d .")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_plan_there_is_nothing_to_apply() {
    let world = World::start(|_| {
        vec![
            ("README.md", "nothing here\n".to_owned()),
            ("main.tf", String::new()),
        ]
    })
    .await;
    let pull = world
        .open("feature", &[("README.md", "still nothing\n")])
        .await;
    assert_eq!(
        world
            .status(pull, "lockkeeper/plan", StatusState::Success)
            .await,
        "0/0 projects planned successfully."
    );
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused (no_plan)")
        .says("there is no plan to apply")
        .says("lockkeeper plan");
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success")
        .says("Ran Plan for 0 projects");
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_applied_while_applies_are_switched_off() {
    let world = World::start(|files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("a", "1");
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");

    let store = world.store().await;
    stop_applies(&store, "carol", "we move the state").await;
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused (apply_locked)")
        .says("`carol`")
        .says("we move the state");
    assert_eq!(world.server.calls("apply").len(), 0);

    assert!(allow_applies(&store).await);
    store.close().await;
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}
