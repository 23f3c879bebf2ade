//! Runs the program itself, as people run it with the database of a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper::store::DatabaseUrl;
use serde_json::Value;

use super::installed::on_path;

/// Exit code and output of the program.
pub struct ProgramOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl ProgramOutput {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Returns the problems that a check or an import prints with `--json`, as lines of text.
pub fn problem_lines(told: &Value) -> Vec<String> {
    let problems = told["problems"].as_array().unwrap().iter();
    let line = |problem: &Value| {
        ["ref", "severity", "text"]
            .map(|field| problem[field].as_str().unwrap())
            .join(": ")
    };
    problems.map(line).collect()
}

/// Runs `lockkeeper COMMAND… --database-url … ARGS…` with only these variables, and with an empty data directory.
pub fn lockkeeper(
    command: &[&str],
    on: &DatabaseUrl,
    args: &[&str],
    variables: &[(&str, &str)],
) -> ProgramOutput {
    let data = tempfile::tempdir().unwrap();
    lockkeeper_in(data.path(), command, on, args, variables)
}

/// Runs `lockkeeper COMMAND… --database-url … --data-dir … ARGS…` with only these variables.
#[expect(
    clippy::disallowed_methods,
    reason = "the program under test is run as people run it"
)]
pub fn lockkeeper_in(
    data_dir: &Path,
    command: &[&str],
    on: &DatabaseUrl,
    args: &[&str],
    variables: &[(&str, &str)],
) -> ProgramOutput {
    let url = match on {
        DatabaseUrl::Sqlite(_) => on.to_string(),
        DatabaseUrl::Postgres(_) => on.to_string().replace("://", "://postgres@"),
    };
    let mut program = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    program
        .args(command)
        .args(["--database-url", &url, "--data-dir"])
        .arg(data_dir)
        .args(args);
    let output = program
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Returns the programs of `make interop` whose names begin with a text, such as `tofu-1.12.6`, by name.
pub fn interop_programs(start: &str) -> Vec<(String, PathBuf)> {
    let folder = std::env::var_os("LOCKKEEPER_INTEROP").expect("run `make interop`");
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let mut found: Vec<_> = named.filter(|(name, _)| name.starts_with(start)).collect();
    found.sort();
    assert!(!found.is_empty(), "there is no {start}*");
    found
}

/// Returns the OpenTofu that `make interop` builds.
pub fn opentofu() -> PathBuf {
    let (_, program) = interop_programs("tofu-").pop().expect("there is one");
    program
}

/// Returns the conftest that `make interop` builds.
pub fn real_conftest() -> PathBuf {
    let (_, program) = interop_programs("conftest-").pop().expect("there is one");
    program
}

/// Returns the path of bubblewrap.
pub fn bwrap() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|dir| dir.join("bwrap"));
    candidates
        .find(|program| program.is_file())
        .expect("no `bwrap` was found: run `make setup`")
}

/// A git repository in a temporary directory, like one on a person's machine.
pub struct WorkingTree(tempfile::TempDir);

impl WorkingTree {
    /// Creates a repository with these files committed on `main`, and the branch `change` checked out.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(tree.path()).unwrap();
        tree.git(&["init", "-q", "-b", "main"]);
        tree.write(files);
        tree.commit();
        tree.git(&["checkout", "-q", "-b", "change"]);
        tree
    }

    /// Returns the path of the repository, which is called `infra`.
    pub fn path(&self) -> std::path::PathBuf {
        self.0.path().join("infra")
    }

    pub fn write(&self, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = self.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    pub fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "change"]);
    }

    pub fn git(&self, args: &[&str]) {
        let person = [
            "-c",
            "user.name=kim",
            "-c",
            "user.email=kim@example.com",
            "-c",
            "commit.gpgsign=false",
        ];
        let said = run(
            "git",
            &self.path(),
            &[&person, args].concat(),
            &[("HOME", "/dev/null")],
        );
        assert_eq!(said.code, 0, "git {args:?}: {}", said.err);
    }

    /// Runs `lockkeeper check ARGS…` in the repository.
    pub fn check(&self, args: &[&str]) -> ProgramOutput {
        self.check_with(args, &[])
    }

    /// Runs `lockkeeper check ARGS…` in the repository, with variables.
    pub fn check_with(&self, args: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
        run(
            env!("CARGO_BIN_EXE_lockkeeper"),
            &self.path(),
            &[&["check"], args].concat(),
            variables,
        )
    }
}

/// Runs a program with only `PATH` and these variables.
#[expect(
    clippy::disallowed_methods,
    reason = "the program under test is run as people run it, and so is git"
)]
pub fn run(
    program: &str,
    dir: &std::path::Path,
    args: &[&str],
    variables: &[(&str, &str)],
) -> ProgramOutput {
    let mut command = Command::new(on_path(program));
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
