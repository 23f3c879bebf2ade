//! Stories about outdated plans: exactly the plan that was shown is applied, or nothing (P5).

use std::path::PathBuf;

use super::world::{BotComment, REPO, World, resource};

/// Opens a planned pull request whose next webhooks are lost, as when GitHub has trouble.
async fn planned() -> (World, lockkeeper::model::PullNumber) {
    let world = World::start(|files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("a", "\"seen\"");
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    (world, pull)
}

/// Asserts that nothing was applied, that no status stays pending until somebody ends it, and that planning again
/// helps.
async fn plan_again_helps(world: World, pull: lockkeeper::model::PullNumber, refused: &BotComment) {
    refused.says("Nothing was applied");
    assert_eq!(world.server.calls("apply").len(), 0);
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
async fn a_push_after_the_plan_refuses_the_apply_and_names_both_commits() {
    let (world, pull) = planned().await;
    let planned = world.head(pull);
    world.lose_webhooks().await;
    let pushed = world.push("feature", "more.tf", &resource("b", "2")).await;
    world.keep_webhooks().await;

    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused | . default refused")
        .says(planned.short())
        .says(pushed.short());
    plan_again_helps(world, pull, &said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_base_branch_refuses_the_apply_and_names_both() {
    let (world, pull) = planned().await;
    world.lose_webhooks().await;
    world
        .push("release", "other.txt", "a branch of its own\n")
        .await;
    world
        .github
        .change_base(REPO, pull, "alice", "release")
        .await
        .expect("the branch exists");
    world.keep_webhooks().await;

    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused | . default refused")
        .says("`main`")
        .says("`release`");
    plan_again_helps(world, pull, &said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_file_that_was_changed_on_disk_is_not_applied() {
    let (world, pull) = planned().await;
    let plan = world.plans(pull).await.pop().expect("a plan");
    let file: PathBuf = world
        .server
        .data_dir()
        .join(format!("plans/plans/{}.tfplan", plan.id));
    std::fs::write(&file, "another plan").expect("the plan file is where plans are kept");

    let said = world.ask(pull, "lockkeeper apply").await;
    let recorded = plan.digest.expect("a plan with changes has a file");
    let found = lockkeeper::model::Sha256Digest::of(b"another plan");
    said.is("apply refused | . default refused")
        .says(recorded.as_str())
        .says(found.as_str());
    plan_again_helps(world, pull, &said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_file_that_is_gone_is_not_applied() {
    let (world, pull) = planned().await;
    std::fs::remove_dir_all(world.server.data_dir().join("plans/plans")).expect("the plan files");
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused | . default refused")
        .says("does not exist in the store");
    plan_again_helps(world, pull, &said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_moved_on_is_explained() {
    // Two directories with one state, which our locks cannot know. If they were planned at once, one would meet
    // Terraform's lock.
    let world = World::start(|files| {
        let config = "version: 3\nparallel_plan: false\n".to_owned();
        vec![
            ("a/main.tf", files.backend("one")),
            ("b/main.tf", files.backend("one")),
            ("atlantis.yaml", config),
        ]
    })
    .await;
    let code = |name: &str| world.files().backend("one") + &resource(name, "1");
    let pull = world
        .open("feature", &[("a/main.tf", &code("first"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | a default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | a default applied");

    let files = [("a/main.tf", code("second")), ("b/main.tf", code("third"))];
    let changes = files.map(|(path, text)| lockkeeper::emulator::Change::write(path, &text));
    world
        .github
        .push(REPO, "feature", &changes)
        .await
        .expect("a push");
    world
        .answer(pull)
        .await
        .is("autoplan success | a default planned | b default planned");
    world
        .ask(pull, "lockkeeper apply -d a")
        .await
        .is("apply success | a default applied");
    let said = world.ask(pull, "lockkeeper apply -d b").await;
    said.is("apply failure | b default failed")
        .says("Saved plan is stale")
        .says("A new plan takes the change into account");
    world.finish(&["#1 a default", "#1 b default"]).await;
}
