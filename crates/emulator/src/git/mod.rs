//! Reads and writes the repositories of the emulated forge, which are real bare repositories.
//!
//! All access goes through the `git` program and its plumbing commands, so that clients fetch what git made. The
//! caller provides names, addresses and dates of commits: the same story has the same commit ids.

mod compare;
mod import;
mod read;
mod serve;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use chrono::{DateTime, Utc};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::model::CommitSha;

pub use compare::{Comparison, FileChange, FileChangeKind};
pub use import::Change;
pub(super) use import::Import;
pub(super) use read::{Blob, CommitInfo, Content};
pub(super) use serve::{CgiAnswer, CgiRequest};

/// Reason that a git command failed.
#[derive(Debug, thiserror::Error)]
pub enum EmulatedGitError {
    /// The program could not be started, or communication with it failed.
    #[error("cannot run git: {0}; the emulator needs git 2.38 or newer on the PATH")]
    Start(#[from] std::io::Error),
    /// The program ended with an error.
    #[error("git {command} failed: {stderr}")]
    Failed {
        /// Name of the subcommand.
        command: String,
        /// Output on standard error.
        stderr: String,
    },
    /// The output of the program cannot be parsed.
    #[error("git {command} returned unexpected output: {what}")]
    Unreadable {
        /// Name of the subcommand.
        command: &'static str,
        /// Description of the unexpected output.
        what: String,
    },
}

/// Author and date of a commit.
#[derive(Clone, Debug)]
pub(super) struct CommitSignature {
    pub(super) login: String,
    pub(super) email: String,
    pub(super) at: DateTime<Utc>,
}

/// A bare repository on disk.
#[derive(Clone, Debug)]
pub(super) struct EmulatedGit {
    directory: PathBuf,
}

/// Variables with which a surrounding git (for example a hook that runs the tests) would redirect child processes.
const INHERITED: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
];

/// Configuration with the permissions that forges give their clients, and without automatic repacking.
const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\thooksPath = /dev/null
[uploadpack]
\tallowAnySHA1InWant = true
\tallowFilter = true
[http]
\treceivepack = true
[gc]
\tauto = 0
";

impl EmulatedGit {
    /// Creates an empty bare repository whose default branch is `main`. Clients cannot push the refs below
    /// `protected_refs`.
    pub(super) async fn init(
        directory: PathBuf,
        protected_refs: &str,
    ) -> Result<Self, EmulatedGitError> {
        // These entries are all that git needs (gitrepository-layout). A process would take most of the time to
        // create a world.
        for folder in ["objects", "refs/heads"] {
            tokio::fs::create_dir_all(directory.join(folder)).await?;
        }
        tokio::fs::write(directory.join("HEAD"), "ref: refs/heads/main\n").await?;
        let config = format!("{CONFIG}[receive]\n\thideRefs = {protected_refs}\n");
        tokio::fs::write(directory.join("config"), config).await?;
        Ok(Self { directory })
    }

    /// Opens an existing repository.
    pub(super) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the directory of the repository.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sets a ref to a commit.
    pub(super) async fn update_ref(
        &self,
        name: &str,
        to: &CommitSha,
    ) -> Result<(), EmulatedGitError> {
        if name.starts_with("refs/pull/") && !self.has_packed_refs().await? {
            return self.write_pull_ref(name, to).await;
        }
        self.run(&["update-ref", name, to.as_str()], &[])
            .await
            .map(drop)
    }

    /// Sets a ref of a pull request, which no client can change, without a process.
    async fn write_pull_ref(&self, name: &str, to: &CommitSha) -> Result<(), EmulatedGitError> {
        let file = self.directory.join(name);
        if let Some(folder) = file.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        // Readers see the old commit or the new one.
        let new = file.with_extension("lock");
        tokio::fs::write(&new, format!("{to}\n")).await?;
        Ok(tokio::fs::rename(new, file).await?)
    }

    /// Returns true if refs may be in the common file. Nothing here packs them; a repository that was copied may have it.
    async fn has_packed_refs(&self) -> io::Result<bool> {
        tokio::fs::try_exists(self.directory.join("packed-refs")).await
    }

    /// Removes a ref. The ref need not exist.
    pub(super) async fn delete_ref(&self, name: &str) -> Result<(), EmulatedGitError> {
        self.run(&["update-ref", "-d", name], &[]).await.map(drop)
    }

    /// Copies a commit with its history from another repository of the emulator, and sets a ref to it.
    pub(super) async fn fetch(
        &self,
        from: &Self,
        commit: &CommitSha,
        into: &str,
    ) -> Result<(), EmulatedGitError> {
        if from.directory == self.directory {
            return self.update_ref(into, commit).await;
        }
        let refspec = format!("+{commit}:{into}");
        let source = from.directory.to_string_lossy();
        self.run(
            &[
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                &source,
                &refspec,
            ],
            &[],
        )
        .await
        .map(drop)
    }

    /// Merges two commits without a working tree. `None` if they conflict.
    pub(super) async fn merge(
        &self,
        ours: &CommitSha,
        theirs: &CommitSha,
        by: &CommitSignature,
        message: &str,
    ) -> Result<Option<CommitSha>, EmulatedGitError> {
        self.join(
            ours,
            theirs,
            &["-p", ours.as_str(), "-p", theirs.as_str()],
            by,
            message,
        )
        .await
    }

    /// Makes one commit on top of `ours` with all changes of `theirs`. `None` if they conflict.
    pub(super) async fn squash(
        &self,
        ours: &CommitSha,
        theirs: &CommitSha,
        by: &CommitSignature,
        message: &str,
    ) -> Result<Option<CommitSha>, EmulatedGitError> {
        self.join(ours, theirs, &["-p", ours.as_str()], by, message)
            .await
    }

    async fn join(
        &self,
        ours: &CommitSha,
        theirs: &CommitSha,
        parents: &[&str],
        by: &CommitSignature,
        message: &str,
    ) -> Result<Option<CommitSha>, EmulatedGitError> {
        let out = self
            .output(
                self.command(&["merge-tree", "--write-tree", ours.as_str(), theirs.as_str()]),
                &[],
            )
            .await?;
        match out.status.code() {
            Some(0) => {}
            Some(1) => return Ok(None),
            _ => return Err(failure("merge-tree", &out.stderr)),
        }
        let tree = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        let mut command = self.command(&[&["commit-tree", &tree], parents, &["-F", "-"]].concat());
        sign(&mut command, by);
        let out = self.output(command, message.as_bytes()).await?;
        if !out.status.success() {
            return Err(failure("commit-tree", &out.stderr));
        }
        sha("commit-tree", &out.stdout).map(Some)
    }

    /// Runs git in the repository and returns its standard output.
    async fn run(&self, args: &[&str], stdin: &[u8]) -> Result<Vec<u8>, EmulatedGitError> {
        let out = self.output(self.command(args), stdin).await?;
        if out.status.success() {
            Ok(out.stdout)
        } else {
            Err(failure(args[0], &out.stderr))
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        self.program("git", args)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the emulator may not import `process`: it is the other side of the wire, and the one place here that starts a child"
    )]
    fn program(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        for name in INHERITED {
            command.env_remove(name);
        }
        command
            .args(args)
            .current_dir(&self.directory)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Writes and reads at the same time, so that no side fills a pipe and blocks the other.
    async fn output(
        &self,
        mut command: Command,
        stdin: &[u8],
    ) -> Result<std::process::Output, EmulatedGitError> {
        let mut child = command.spawn()?;
        let mut pipe = child.stdin.take().expect("stdin is a pipe");
        let write = async move {
            // A child process that needs no more input closes its end; its exit status tells the rest.
            let _closed_early = pipe.write_all(stdin).await;
            drop(pipe);
        };
        let ((), out) = tokio::join!(write, child.wait_with_output());
        Ok(out?)
    }
}

fn sign(command: &mut Command, by: &CommitSignature) {
    let date = format!("{} +0000", by.at.timestamp());
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), &by.login)
            .env(format!("GIT_{role}_EMAIL"), &by.email)
            .env(format!("GIT_{role}_DATE"), &date);
    }
}

fn failure(command: &str, stderr: &[u8]) -> EmulatedGitError {
    let stderr = String::from_utf8_lossy(stderr)
        .trim()
        .chars()
        .take(2000)
        .collect();
    EmulatedGitError::Failed {
        command: command.to_owned(),
        stderr,
    }
}

fn sha(command: &'static str, out: &[u8]) -> Result<CommitSha, EmulatedGitError> {
    let text = String::from_utf8_lossy(out);
    CommitSha::new(text.trim()).map_err(|error| EmulatedGitError::Unreadable {
        command,
        what: error.to_string(),
    })
}
