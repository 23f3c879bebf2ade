//! Stories about the commit that is planned: the head of the pull request, or its merge into the base.

use super::world::{World, resource};
use crate::support::server::Settings;

/// Opens a pull request that changes `main.tf`. `main` gets a new file after the branch was made.
async fn diverged(
    settings: Settings,
    on_main: (&str, &str),
) -> (World, lockkeeper::model::PullNumber) {
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    world
        .push("feature", "main.tf", &resource("mine", "1"))
        .await;
    world.push("main", on_main.0, on_main.1).await;
    let pull = world.open("feature", &[("note.txt", "ready\n")]).await;
    (world, pull)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_branch_strategy_the_head_is_planned_and_what_it_lacks_is_said() {
    let branch = Settings::default().flag("--checkout-strategy=branch");
    let (world, pull) = diverged(branch, ("theirs.tf", &resource("theirs", "1"))).await;
    let said = world.answer(pull).await;
    said.is("autoplan success | . default planned")
        .says("Plan: 1 to add");
    assert!(
        said.text
            .starts_with("Ran Plan for dir: `.` workspace: `default`, behind `main`: planned\n"),
        "{}",
        said.text
    );
    said.says(
        "This branch does not include changes to this project that were merged into `main` since it branched off",
    );
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_what_would_be_merged_is_planned_and_applied() {
    let (world, pull) =
        diverged(Settings::default(), ("theirs.tf", &resource("theirs", "1"))).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("Plan: 2 to add");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied")
        .says("2 added");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_with_the_base_is_explained_and_gone_after_a_push() {
    let (world, pull) = diverged(Settings::default(), ("main.tf", &resource("theirs", "1"))).await;
    let said = world.answer(pull).await;
    said.is("autoplan refused (merge_conflict)")
        .says("`main`")
        .says("`main.tf`")
        .says("Resolve the conflicts");
    let said = world.ask(pull, "lockkeeper plan").await;
    said.is("plan refused (merge_conflict)");
    world.settled(pull).await;

    let changes = [lockkeeper::emulator::Change::write(
        "mine.tf",
        &resource("mine", "1"),
    )];
    world
        .github
        .force_push(super::world::REPO, "feature", &changes)
        .await
        .expect("a push");
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned")
        .says("Plan: 2 to add");
    world.finish(&["#1 . default"]).await;
}
