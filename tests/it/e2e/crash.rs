//! Stories in which the server is killed (SIGKILL) and started again (P1, P3).

use chrono::TimeDelta;
use lockkeeper::clock::{Clock, SystemClock};
use lockkeeper::emulator::{Fault, SendAttempt, StatusState};
use lockkeeper::store::RunState;

use super::gates::{ApplyGate, PlanGate};
use super::world::{REPO, World};
use crate::support::db::Backend;
use crate::support::postgres::{self, Content};
use crate::support::rows::recent_runs;
use crate::support::server::Settings;

/// Runs each story on both databases, as the tests `name::sqlite` and `name::postgres`.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use crate::support::db::Backend;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(Backend::Sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name(Backend::Postgres).await;
            }
        })+
    };
}

on_both!(
    a_plan_cut_off_by_a_crash_is_made_again_by_itself,
    an_apply_cut_off_by_a_crash_is_reported_and_never_run_again,
    what_was_taken_before_a_crash_is_worked_on_after_it,
    a_pull_closed_while_the_server_was_down_is_not_planned_again,
    a_mirror_that_the_dead_server_was_at_is_free_for_the_next_one_of_its_data_directory,
);

async fn settings(backend: Backend) -> Settings {
    match backend {
        Backend::Sqlite => Settings::default(),
        Backend::Postgres => {
            Settings::default().database(postgres::new_database(Content::Migrated).await)
        }
    }
}

/// Kills the server and starts it again.
async fn crash(world: &mut World, backend: Backend) {
    world.server.kill9().await;
    let left = world.server.data_dir().join("tmp/ssh-of-the-dead/login");
    std::fs::create_dir_all(&left).expect("the directory is ours");
    std::fs::write(left.join("key"), "a key that was in use").expect("the directory is ours");
    start_again(world, backend).await;
    assert!(
        !left.join("key").exists(),
        "what the dead server had in use for a while is gone"
    );
}

/// Starts a server that was killed. On a shared database another replica may only take over after the leases of the
/// dead one expired; the database is changed as if that time had passed.
async fn start_again(world: &mut World, backend: Backend) {
    if backend == Backend::Postgres {
        let store = world.store().await;
        store
            .job_requeue_orphans(SystemClock.now() + TimeDelta::hours(1))
            .await
            .expect("the database");
        store.close().await;
    }
    world.server.restart().await;
}

async fn a_plan_cut_off_by_a_crash_is_made_again_by_itself(backend: Backend) {
    let mut world = World::start_with(settings(backend).await, |_| {
        vec![("main.tf", String::new())]
    })
    .await;
    let gate = PlanGate::start().await;
    let pull = world.open("feature", &[("main.tf", &gate.code())]).await;
    let first = gate.visit().await;
    let before = world.server.terraforms();
    assert_eq!(before.len(), 1);

    crash(&mut world, backend).await;
    world.server.interrupted(1).await;
    // The old Terraform still runs after a request to stop. The new one waits for it.
    assert_eq!(world.server.terraforms(), before);
    gate.assert_nobody_waits().await;
    first.let_in();

    let second = gate.visit().await;
    let after = world.server.terraforms();
    assert!(after.len() == 1 && after != before, "{before:?}, {after:?}");
    second.let_in();
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .status(pull, "lockkeeper/plan", StatusState::Success)
        .await;
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}

async fn an_apply_cut_off_by_a_crash_is_reported_and_never_run_again(backend: Backend) {
    let files = |files: &super::world::Files| vec![("main.tf", files.backend("root"))];
    let mut world = World::start_with(settings(backend).await, files).await;
    let gate = ApplyGate::new(world.dir.path());
    let pull = world.open("feature", &[("x.tf", &gate.code("slow"))]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.comment(pull, "lockkeeper apply").await;
    let applying = gate.reached().await;

    crash(&mut world, backend).await;
    let said = world.answer(pull).await;
    said.is("apply failure (interrupted) | . default failed")
        .says("interrupted")
        .says("lockkeeper plan");
    world.server.alone().await;
    drop(applying);
    assert_eq!(
        (gate.effects(), world.server.calls("apply").len()),
        (vec!["begun".to_owned()], 1)
    );
    assert!(world.plans(pull).await.is_empty(), "the plan is discarded");
    world
        .status(pull, "lockkeeper/apply", StatusState::Failure)
        .await;
    world
        .status(pull, "lockkeeper/apply: ./default", StatusState::Failure)
        .await;
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply refused (no_plan)");

    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default planned");
    world.comment(pull, "lockkeeper apply").await;
    gate.reached().await.let_through();
    world
        .answer(pull)
        .await
        .is("apply success | . default applied");
    assert_eq!(gate.effects(), ["begun", "begun", "ended"]);
    world.finish(&["#1 . default"]).await;
}

async fn what_was_taken_before_a_crash_is_worked_on_after_it(backend: Backend) {
    let files = vec![("a/main.tf", String::new()), ("b/main.tf", String::new())];
    let mut world = World::start_with(settings(backend).await, |_| files).await;
    let gate = PlanGate::start().await;
    let first = world.open("first", &[("a/main.tf", &gate.code())]).await;
    let visit = gate.visit().await;
    // A server that was told to stop accepts webhooks until the end, but begins nothing new.
    world.server.terminate();
    world
        .server
        .logged("Stopping: the server starts no new work")
        .await;
    let second = world.open("second", &[("b/main.tf", &gate.code())]).await;
    let deliveries = world.github.deliveries();
    let answered = SendAttempt::Answered(200);
    assert!(
        deliveries
            .iter()
            .all(|delivery| delivery.outcome() == Some(&answered)),
        "{deliveries:?}"
    );

    gate.open();
    crash(&mut world, backend).await;
    visit.let_in();
    world
        .answer(first)
        .await
        .is("autoplan success | a default planned");
    world
        .answer(second)
        .await
        .is("autoplan success | b default planned");
    world.finish(&["#1 a default", "#2 b default"]).await;
}

async fn a_pull_closed_while_the_server_was_down_is_not_planned_again(backend: Backend) {
    let mut world = World::start_with(settings(backend).await, |_| {
        vec![("main.tf", String::new())]
    })
    .await;
    let gate = PlanGate::start().await;
    let pull = world.open("feature", &[("main.tf", &gate.code())]).await;
    let visit = gate.visit().await;
    world.server.kill9().await;
    // No server is there to accept the webhook.
    world
        .github
        .close(REPO, pull, "alice")
        .await
        .expect("it is open");
    let lost = world.github.deliveries().pop().expect("a webhook");
    assert!(
        matches!(lost.outcome(), Some(SendAttempt::Failed(_))),
        "{lost:?}"
    );
    world.server.interrupted(1).await;
    visit.let_in();
    world.server.alone().await;

    start_again(&mut world, backend).await;
    world
        .answer(pull)
        .await
        .is("closed success | . default discarded");
    world.settled(pull).await;
    let store = world.store().await;
    let runs = recent_runs(&store, 10).await;
    assert!(
        runs.iter().all(|run| run.state == RunState::Finished),
        "{runs:?}"
    );
    store.close().await;
    assert_eq!(world.server.calls("plan").len(), 1);
    world.finish(&[]).await;
}

async fn a_mirror_that_the_dead_server_was_at_is_free_for_the_next_one_of_its_data_directory(
    backend: Backend,
) {
    let files = vec![("main.tf", String::new())];
    let mut world = World::start_with(settings(backend).await, |_| files).await;
    let pull = world.open("feature", &[("x.tf", "")]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default no_changes");
    world
        .github
        .fault("POST /acme/infra.git/git-upload-pack", 1, Fault::Hang);
    world.push("main", "notes.txt", "later").await;
    world.github.hanging(1).await;
    world.server.kill9().await;
    let orphans = world.server.children();
    assert!(
        orphans.iter().any(|(_, program)| program.contains("git")),
        "a fetch outlives its server: {orphans:?}"
    );
    world.server.restart().await;
    let alive = world.server.children();
    assert!(
        orphans.iter().all(|orphan| !alive.contains(orphan)),
        "{orphans:?} still write into a mirror: {alive:?}"
    );
    world.github.clear_faults();
    // The dead server has not been missed yet.
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default no_changes");
    world.finish(&["#1 . default"]).await;
}
