//! Stories in which the server gets SIGTERM: the first time it waits for runs, the second time it interrupts them.

use super::gates::{ApplyGate, PlanGate};
use super::world::World;
use crate::support::server::Settings;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_sigterm_waits_for_the_run_and_says_how_it_ended() {
    let mut world = World::start(|_| vec![("main.tf", String::new())]).await;
    let gate = PlanGate::start().await;
    let pull = world.open("feature", &[("main.tf", &gate.code())]).await;
    let visit = gate.visit().await;
    world.server.terminate();
    world
        .server
        .logged("Stopping: the server starts no new work")
        .await;
    assert_eq!(world.server.terraforms().len(), 1, "the plan goes on");
    visit.let_in();
    assert!(world.server.exit().await.success());
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_sigterm_interrupts_a_plan_which_is_made_again_after_the_restart() {
    let mut world = World::start(|_| vec![("main.tf", String::new())]).await;
    let gate = PlanGate::start().await;
    let pull = world.open("feature", &[("main.tf", &gate.code())]).await;
    let visit = gate.visit().await;
    world.server.terminate();
    world
        .server
        .logged("Stopping: the server starts no new work")
        .await;
    world.server.terminate();
    world.server.interrupted(1).await;
    visit.let_in();
    assert!(world.server.exit().await.success());
    assert_eq!(world.said(pull), [], "nothing has ended yet");

    world.server.restart().await;
    gate.visit().await.let_in();
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_sigterm_interrupts_an_apply_which_says_how_far_it_came() {
    let mut world = World::start(|files| vec![("main.tf", files.backend("root"))]).await;
    let gate = ApplyGate::new(world.dir.path());
    let pull = world.open("feature", &[("x.tf", &gate.code("slow"))]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.comment(pull, "lockkeeper apply").await;
    let applying = gate.reached().await;
    world.server.terminate();
    world
        .server
        .logged("Stopping: the server starts no new work")
        .await;
    world.server.terminate();
    assert!(world.server.exit().await.success());
    drop(applying);
    world
        .answer(pull)
        .await
        .is("apply failure | . default cancelled")
        .says("Plan again to see what is left");

    world.server.restart().await;
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    assert_eq!(
        (gate.effects(), world.server.calls("apply").len()),
        (vec!["begun".to_owned()], 1)
    );
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_outlasts_the_grace_of_the_shutdown_is_interrupted() {
    let settings = Settings::default().flag("--shutdown-grace=1s");
    let mut world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let gate = PlanGate::start().await;
    let pull = world.open("feature", &[("main.tf", &gate.code())]).await;
    let visit = gate.visit().await;
    world.server.terminate();
    world.server.interrupted(1).await;
    visit.let_in();
    assert!(world.server.exit().await.success());
    gate.open();
    world.server.restart().await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.finish(&["#1 . default"]).await;
}
