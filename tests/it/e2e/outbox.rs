//! Stories about the outbox: every comment of the bot arrives, and arrives once.

use chrono::TimeDelta;
use lockkeeper::clock::{Clock, SystemClock};
use lockkeeper::emulator::Fault;

use super::world::{World, resource};

const POST: &str = "POST /repos/*/*/issues/*/comments";
const STATUS: &str = "POST /repos/*/*/statuses/*";

async fn one_answer_in_spite_of(faults: &[(&str, u32, Fault)]) {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    for (route, times, fault) in faults {
        world.github.fault(route, *times, fault.clone());
    }
    let pull = world
        .open("feature", &[("main.tf", &resource("a", "1"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .status(
            pull,
            "lockkeeper/plan",
            lockkeeper::emulator::StatusState::Success,
        )
        .await;
    world.ask(pull, "lockkeeper help").await.is("help success");
    assert_eq!(world.github.faults_left(), 0);
    assert_eq!(world.server.calls("plan").len(), 1);
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comment_whose_answer_was_lost_is_not_posted_again() {
    one_answer_in_spite_of(&[(POST, 1, Fault::LoseAnswer)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comment_gets_through_after_bad_gateways_and_limits() {
    let limit = Fault::SecondaryLimit {
        status: 403,
        retry_after: 1,
    };
    one_answer_in_spite_of(&[
        (POST, 1, Fault::BadGateway),
        (POST, 1, limit),
        (POST, 1, Fault::DropConnection),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_get_through_after_bad_gateways_and_limits() {
    let reset = Fault::PrimaryLimit {
        reset: SystemClock.now() + TimeDelta::seconds(2),
    };
    one_answer_in_spite_of(&[(STATUS, 2, Fault::BadGateway), (STATUS, 1, reset)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_that_github_does_not_know_yet_is_planned_a_moment_later() {
    let world = World::start(|_| vec![("main.tf", String::new())]).await;
    world.github.hide_new_pulls(1);
    let pull = world
        .open("feature", &[("main.tf", &resource("a", "1"))])
        .await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.finish(&["#1 . default"]).await;
}
