//! Attacks on old kernels that cannot separate runs from the server: this one answers as if it had no Landlock.

use std::sync::Arc;

use lockkeeper::clock::SystemClock;
use lockkeeper::emulator::{Emulator, Options};
use lockkeeper::secret::Secret;

use super::ordinary;
use crate::e2e::world::World;
use crate::support::server::{Server, Settings, WEBHOOK_SECRET};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_requires_a_sandbox_does_not_start_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(
        dir.path(),
        Arc::new(SystemClock),
        Secret::new(WEBHOOK_SECRET),
    );
    let github = Emulator::start(options).await.unwrap();
    let said = Server::refuses(
        &github,
        ordinary().without_landlock().flag("--sandbox=require"),
    )
    .await;
    assert!(
        said.contains("--sandbox require: this kernel has no Landlock, or it is not enabled"),
        "{said}"
    );
    assert!(
        said.contains("Use Linux 5.19 or newer with `landlock` in the list of `lsm=`"),
        "{said}"
    );
    // The same server starts on a kernel with Landlock.
    let server = Server::start(&github, ordinary().flag("--sandbox=require")).await;
    assert!(
        server
            .log()
            .contains("Landlock isolates runs from the server"),
        "{}",
        server.log()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_runs_go_on_without_one_and_the_log_says_so() {
    without_a_sandbox(
        ordinary(),
        "Runs are not isolated from the server: this kernel has no Landlock",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_where_nobody_wants_one() {
    let settings = ordinary().flag("--sandbox=none");
    without_a_sandbox(
        settings,
        "Runs are not isolated from the server (--sandbox none)",
    )
    .await;
}

async fn without_a_sandbox(settings: Settings, warning: &str) {
    let world = World::start_with(settings.without_landlock(), |_| {
        vec![("main.tf", String::new())]
    })
    .await;
    let log = world.server.log();
    assert!(log.contains("WARN") && log.contains(warning), "{log}");
    let code = world.files().backend("root") + "resource \"terraform_data\" \"it\" {}\n";
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.finish(&["#1 . default"]).await;
}
