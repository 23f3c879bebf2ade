//! Stories about the lock: one pull request at a time (P4).

use super::world::{REPO, World, resource};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_pull_is_told_who_holds_the_lock_and_is_planned_after_the_unlock() {
    let world = World::start(|files| vec![("main.tf", files.backend("root"))]).await;
    let first = world.open("first", &[("a.tf", &resource("a", "1"))]).await;
    world
        .answer(first)
        .await
        .is("autoplan success | . default planned");

    let second = world.open("second", &[("b.tf", &resource("b", "1"))]).await;
    let said = world.answer(second).await;
    let link = format!("[#1]({})", world.github.pull_url(REPO, first));
    said.is("autoplan waiting | . default waiting")
        .says(&link)
        .says("`alice`")
        .says("**next in the queue**");
    world
        .ask(second, "lockkeeper plan")
        .await
        .is("plan waiting | . default waiting");
    world
        .ask(second, "lockkeeper apply")
        .await
        .is("apply refused (waiting)")
        .says("next in the queue");
    assert_eq!(world.locks().await, ["#1 . default"]);

    let said = world.ask(first, "lockkeeper unlock").await;
    said.is("unlock success | . default discarded")
        .says("lock released, plan discarded");
    world
        .answer(second)
        .await
        .is("autoplan success | . default planned")
        .says("next in the queue after pull request 1");
    world
        .ask(first, "lockkeeper apply")
        .await
        .is("apply refused (no_plan)");
    world
        .ask(second, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#2 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_on_other_directories_do_not_meet() {
    let world = World::start(|files| {
        vec![
            ("a/main.tf", files.backend("a")),
            ("b/main.tf", files.backend("b")),
        ]
    })
    .await;
    let first = world
        .open("first", &[("a/x.tf", &resource("x", "1"))])
        .await;
    let second = world
        .open("second", &[("b/x.tf", &resource("x", "1"))])
        .await;
    world
        .answer(first)
        .await
        .is("autoplan success | a default planned");
    world
        .answer(second)
        .await
        .is("autoplan success | b default planned");
    world
        .github
        .close(REPO, first, "alice")
        .await
        .expect("it is open");
    world
        .answer(first)
        .await
        .is("closed success | a default discarded")
        .says("This pull request was closed");
    world.finish(&["#2 b default"]).await;
}
