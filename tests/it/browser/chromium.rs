//! Runs `tests/browser/browse.mjs` with a task, and reads its results.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

/// Limits the tests to one browser. A browser keeps a processor busy, so several at once would slow each other and
/// every other test down.
static BROWSERS: Semaphore = Semaphore::const_new(1);

/// A fault that no page may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Problem {
    /// Name or address of the page.
    pub page: String,
    pub kind: String,
    /// Message of the browser.
    pub what: String,
}

/// Panics with the list of problems if there are any.
#[track_caller]
pub fn assert_none(problems: &[Problem]) {
    let shown: Vec<String> = problems
        .iter()
        .map(|p| format!("{}: {}: {}", p.page, p.kind, p.what))
        .collect();
    assert!(
        shown.is_empty(),
        "{} problems:\n{}",
        shown.len(),
        shown.join("\n")
    );
}

/// Has the script perform `task`, a JSON object, in its own browser.
pub async fn browse<T: DeserializeOwned>(mut task: Value) -> T {
    let packages = root().join(".tools/npm/node_modules");
    for package in ["playwright-core", "axe-core"] {
        let folder = packages.join(package);
        assert!(
            folder.is_dir(),
            "no npm package in {}: run `make setup`",
            folder.display()
        );
    }
    task["chromium"] = find_chromium().display().to_string().into();
    task["pictures"] = pictures().display().to_string().into();
    let _place = BROWSERS.acquire().await.unwrap();
    let mut node = start_node();
    let mut input = node.stdin.take().unwrap();
    input.write_all(task.to_string().as_bytes()).await.unwrap();
    drop(input);
    let output = node.wait_with_output().await.unwrap();
    assert!(
        output.status.success(),
        "browse.mjs: {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's own helper program, not a child of the product"
)]
fn start_node() -> Child {
    Command::new("node")
        .arg(root().join("tests/browser/browse.mjs"))
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("`node` cannot be started ({error}): run `make setup`"))
}

/// Finds the browser under the names that distributions give it.
fn find_chromium() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut programs = names
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    programs
        .find(|program| program.is_file())
        .expect("no `chromium` was found: run `make setup`")
}

/// Returns the directory of the screenshots.
fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
