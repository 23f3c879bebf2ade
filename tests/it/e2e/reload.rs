//! The file of `--repo-config` is read again when the server is told to (SIGHUP), with its real signals and log.

use nix::sys::signal::Signal;

use super::world::World;
use crate::support::server::{LOOK, Settings, within};

const OFF: &str = "repos:\n- id: /.*/\n  repo_locks: {mode: disabled}\n";
const ON: &str = "repos:\n- id: /.*/\n  repo_locks: {mode: on_plan}\n";
const BROKEN: &str = "repos:\n- id: /.*/\n  repo_lcks: {}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_has_the_file_of_repositories_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("repos.yaml");
    std::fs::write(&file, OFF).unwrap();
    let settings = Settings::default().flag(&format!("--repo-config={}", file.display()));
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let pull = world.open("feature", &[("main.tf", "# changed\n")]).await;
    world.answer(pull).await.is("autoplan success | . default no_changes");
    assert_eq!(world.locks().await, [""; 0]);

    std::fs::write(&file, BROKEN).unwrap();
    world.server.signal(Signal::SIGHUP);
    world.server.logged("is refused, what it said before goes on to hold").await;
    world.server.logged("--> ").await;
    assert!(world.server.log().contains(&file.display().to_string()), "{}", world.server.log());
    world.ask(pull, "lockkeeper plan").await.is("plan success | . default no_changes");
    assert_eq!(world.locks().await, [""; 0], "the old one holds");

    std::fs::write(&file, ON).unwrap();
    world.server.signal(Signal::SIGHUP);
    world.server.logged("has changed, and holds for every command from now on").await;
    world.ask(pull, "lockkeeper plan").await.is("plan success | . default no_changes");

    // Without a signal the file is found to have changed, too.
    std::fs::write(&file, OFF).unwrap();
    let twice = || world.server.log().matches("has changed, and holds for every command from now on").count() == 2;
    within("a look at the file", async {
        while !twice() {
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
    world.finish(&["#1 . default"]).await;
}
