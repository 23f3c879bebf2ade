//! Runs programs that tests use as second opinions.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns the directory where `make setup` installs npm packages.
pub fn npm() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/npm")
}

/// Runs a program with `input` and returns its output. A program that fails also fails the test.
pub fn run(program: &str, args: &[&str], folder: &Path, input: &[u8]) -> Vec<u8> {
    let Output {
        status,
        stdout,
        stderr,
    } = output(program, args, folder, input);
    assert!(
        status.success(),
        "{program} {args:?}: {status}: {}",
        String::from_utf8_lossy(&stderr)
    );
    stdout
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's own helper programs, not a child of the product"
)]
fn output(program: &str, args: &[&str], folder: &Path, input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} cannot be started ({error}): run `make setup`"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}
