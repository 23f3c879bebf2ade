//! The repositories of the emulated forge are real bare repositories; this is how they are read and written.
//!
//! Everything goes through the `git` program and its plumbing, so that what a client fetches is what git made.
//! Names, addresses and dates of commits are given by the caller: the same story has the same commit ids.

mod compare;
mod import;
mod read;
mod serve;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use chrono::{DateTime, Utc};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::model::CommitSha;

pub use compare::{Comparison, FileChange, MAX_FILES};
pub use import::Change;
pub(super) use import::Import;
pub(super) use read::{Blob, CommitInfo, Content};
pub(super) use serve::{CgiAnswer, CgiRequest};

/// Why git did not do what the world asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program could not be started or spoken to.
    #[error("cannot run git: {0}; the emulated GitHub needs git 2.38 or newer on the PATH")]
    Start(#[from] std::io::Error),
    /// It said no.
    #[error("git {command} failed: {stderr}")]
    Failed {
        /// Subcommand.
        command: String,
        /// Its words.
        stderr: String,
    },
    /// It answered what we cannot read.
    #[error("git {command} answered something unexpected: {what}")]
    Unreadable {
        /// Subcommand.
        command: &'static str,
        /// What was seen.
        what: String,
    },
}

/// Who made a commit, and when.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) login: String,
    pub(super) email: String,
    pub(super) at: DateTime<Utc>,
}

/// One bare repository.
#[derive(Clone, Debug)]
pub(super) struct Git {
    directory: PathBuf,
}

/// Variables by which a surrounding git (a hook that runs our tests, say) would redirect our children.
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

/// What GitHub allows its clients, and no repacking behind our back.
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
[receive]
\thideRefs = refs/pull
[gc]
\tauto = 0
";

impl Git {
    /// Makes an empty bare repository whose default branch is `main`.
    pub(super) async fn init(directory: PathBuf) -> Result<Self, GitError> {
        // All that git needs (gitrepository-layout); a process for it would be the most of making a world.
        for folder in ["objects", "refs/heads"] {
            tokio::fs::create_dir_all(directory.join(folder)).await?;
        }
        tokio::fs::write(directory.join("HEAD"), "ref: refs/heads/main\n").await?;
        tokio::fs::write(directory.join("config"), CONFIG).await?;
        Ok(Self { directory })
    }

    /// An existing repository.
    pub(super) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where it lies.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Points a ref at a commit.
    pub(super) async fn update_ref(&self, name: &str, to: &CommitSha) -> Result<(), GitError> {
        self.run(&["update-ref", name, to.as_str()], &[])
            .await
            .map(drop)
    }

    /// Removes a ref; it need not exist.
    pub(super) async fn delete_ref(&self, name: &str) -> Result<(), GitError> {
        self.run(&["update-ref", "-d", name], &[]).await.map(drop)
    }

    /// Copies a commit with its history from one of our repositories, and points a ref at it.
    pub(super) async fn fetch(
        &self,
        from: &Self,
        commit: &CommitSha,
        into: &str,
    ) -> Result<(), GitError> {
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

    /// Merges two commits without a working tree. `None` when they conflict.
    pub(super) async fn merge(
        &self,
        ours: &CommitSha,
        theirs: &CommitSha,
        by: &Signature,
        message: &str,
    ) -> Result<Option<CommitSha>, GitError> {
        self.join(
            ours,
            theirs,
            &["-p", ours.as_str(), "-p", theirs.as_str()],
            by,
            message,
        )
        .await
    }

    /// Makes one commit on top of `ours` of everything that `theirs` changes. `None` when they conflict.
    pub(super) async fn squash(
        &self,
        ours: &CommitSha,
        theirs: &CommitSha,
        by: &Signature,
        message: &str,
    ) -> Result<Option<CommitSha>, GitError> {
        self.join(ours, theirs, &["-p", ours.as_str()], by, message)
            .await
    }

    async fn join(
        &self,
        ours: &CommitSha,
        theirs: &CommitSha,
        parents: &[&str],
        by: &Signature,
        message: &str,
    ) -> Result<Option<CommitSha>, GitError> {
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

    /// Runs git in the repository and gives back what it printed.
    async fn run(&self, args: &[&str], stdin: &[u8]) -> Result<Vec<u8>, GitError> {
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

    /// Writes and reads at the same time: neither side can fill a pipe and wait for ever.
    async fn output(
        &self,
        mut command: Command,
        stdin: &[u8],
    ) -> Result<std::process::Output, GitError> {
        let mut child = command.spawn()?;
        let mut pipe = child.stdin.take().expect("stdin was asked to be a pipe");
        let write = async move {
            // A child that has seen enough closes its end; its exit status tells the rest.
            let _closed_early = pipe.write_all(stdin).await;
            drop(pipe);
        };
        let ((), out) = tokio::join!(write, child.wait_with_output());
        Ok(out?)
    }
}

fn sign(command: &mut Command, by: &Signature) {
    let date = format!("{} +0000", by.at.timestamp());
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), &by.login)
            .env(format!("GIT_{role}_EMAIL"), &by.email)
            .env(format!("GIT_{role}_DATE"), &date);
    }
}

fn failure(command: &str, stderr: &[u8]) -> GitError {
    let stderr = String::from_utf8_lossy(stderr)
        .trim()
        .chars()
        .take(2000)
        .collect();
    GitError::Failed {
        command: command.to_owned(),
        stderr,
    }
}

fn sha(command: &'static str, out: &[u8]) -> Result<CommitSha, GitError> {
    let text = String::from_utf8_lossy(out);
    CommitSha::new(text.trim()).map_err(|error| GitError::Unreadable {
        command,
        what: error.to_string(),
    })
}
