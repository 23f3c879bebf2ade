//! Stories in which pull requests are closed at any moment and leave no lock behind (P7).

use super::gates::{ApplyGate, PlanGate};
use super::world::{REPO, World, resource};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_during_a_plan_interrupts_terraform_politely_and_leaves_no_lock() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    let gate = PlanGate::start().await;
    let pull = world.open("feature", &[("main.tf", &gate.code())]).await;
    let visit = gate.visit().await;
    assert_eq!(world.locks().await, ["#1 . default"]);

    world
        .github
        .close(REPO, pull, "alice")
        .await
        .expect("it is open");
    world
        .answer(pull)
        .await
        .is("closed success | . default discarded")
        .says("This pull request was closed");
    assert_eq!(world.locks().await, [""; 0]);
    world.server.interrupted(1).await;
    visit.let_in();
    world
        .answer(pull)
        .await
        .is("autoplan failure | . default cancelled");
    world.server.alone().await;
    world.cleaned().await;
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_during_an_apply_lets_it_end_and_gives_the_lock_back_then() {
    let world = World::start(|files| vec![("main.tf", files.backend("root"))]).await;
    let gate = ApplyGate::new(world.dir.path());
    let pull = world.open("feature", &[("x.tf", &gate.code("slow"))]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.comment(pull, "lockkeeper apply").await;
    let applying = gate.reached().await;

    world
        .github
        .close(REPO, pull, "alice")
        .await
        .expect("it is open");
    world.server.logged("The pull request is closed").await;
    assert_eq!(
        world.locks().await,
        ["#1 . default"],
        "the apply still needs it"
    );
    applying.let_through();
    world
        .answer(pull)
        .await
        .is("apply success | . default applied");
    assert_eq!(gate.effects(), ["begun", "ended"]);
    assert_eq!(world.locks().await, [""; 0]);
    world.cleaned().await;
    world.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_nobody_told_is_found_at_the_next_start() {
    let mut world = World::start(|_| vec![("main.tf", String::new())]).await;
    let pull = world
        .open("feature", &[("main.tf", &resource("a", "1"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.server.kill9().await;
    world.lose_webhooks().await;
    world
        .github
        .close(REPO, pull, "alice")
        .await
        .expect("it is open");
    world.keep_webhooks().await;
    world.server.restart().await;
    world
        .answer(pull)
        .await
        .is("closed success | . default discarded");
    world.finish(&[]).await;
}
