//! Attacks of a run on the resources of the machine. The run ends, and the comment names the limit that it reached.

use serde_json::json;

use super::ordinary;
use crate::e2e::world::World;

/// Returns the comment about a plan with a script of the repository in the administrator's workflow, as many run
/// linters.
async fn said_of(script: &str, limit: &str) -> String {
    let config = json!({
        "repos": [{"id": "/.*/", "workflow": "checked"}],
        "workflows": {"checked": {"plan": {"steps": [{"run": "sh ./check.sh"}, "init", "plan"]}}},
    });
    let settings = ordinary()
        .flag(&format!("--repo-config-json={config}"))
        .flag(limit);
    let world = World::start_with(settings, |_| vec![("check.sh", "# nothing\n".to_owned())]).await;
    let code = world.files().backend("root");
    let pull = world
        .open("greedy", &[("main.tf", &code), ("check.sh", script)])
        .await;
    let answer = world.answer(pull).await;
    answer.is("autoplan failure | . default failed");
    let text = answer.text.clone();
    world.finish(&[]).await;
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_starts_too_many_processes_ends_and_says_so() {
    let said = said_of(
        "for i in $(seq 400); do sleep 1000 >/dev/null 2>&1 & done\n",
        "--run-processes=150",
    )
    .await;
    assert!(
        said.contains("may each have 150 processes and threads (`--run-processes`)"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_takes_too_much_memory_ends_and_says_so() {
    let said = said_of(
        "set -e\nx=$(head -c 2000000000 /dev/zero | tail -n 1 | wc -c)\ntest $x -gt 0\n",
        "--run-memory=500MiB",
    )
    .await;
    assert!(
        said.contains("a run may have 500 MiB of memory (`--run-memory`)"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_grows_too_long_ends_the_run_which_says_so() {
    let said = said_of(
        "exec head -c 3000000 /dev/zero >big\n",
        "--run-file-size=1MiB",
    )
    .await;
    assert!(
        said.contains("a file may be 1 MiB long (`--run-file-size`)"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_writes_too_many_files_ends_and_says_so() {
    let said = said_of(
        "i=0; while [ $i -lt 9000 ]; do : >file$i; i=$((i+1)); done; exec sleep 600\n",
        "--run-disk=20MiB",
    )
    .await;
    assert!(
        said.contains(
            "the checkout and the temporary files of a run may take 20 MiB of disk space (`--run-disk`)"
        ),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_uses_too_much_processor_time_ends_and_says_so() {
    let said = said_of("exec sh -c 'while :; do :; done'\n", "--run-cpu-time=5s").await;
    assert!(
        said.contains("a run may use 5 s of processor time (`--run-cpu-time`)"),
        "{said}"
    );
}
