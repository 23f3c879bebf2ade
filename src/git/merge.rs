//! Merges base and head without a checkout.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::{GitError, Mirror};
use crate::model::CommitSha;
use crate::process::CallOutput;

/// Maximum number of bytes read of the list of conflicting files.
const MAX_CONFLICTS: usize = 256 * 1024;

/// Maximum number of remembered merge commits of a mirror.
const MAX_REMEMBERED: usize = 256;

/// Merge commits made by this process, by base and head. The same pair gives the same commit, and a command requests
/// it several times.
#[derive(Debug, Default)]
pub(super) struct Merges(Mutex<HashMap<(CommitSha, CommitSha), CommitSha>>);

impl Merges {
    fn find(&self, base: &CommitSha, head: &CommitSha) -> Option<CommitSha> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.get(&(base.clone(), head.clone())).cloned()
    }

    fn remember(&self, base: &CommitSha, head: &CommitSha, merge: &CommitSha) {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= MAX_REMEMBERED {
            made.clear();
        }
        made.insert((base.clone(), head.clone()), merge.clone());
    }
}

/// Result of a merge.
pub(super) enum Merge {
    /// Id of the merge commit.
    Done(CommitSha),
    /// Files that both sides changed.
    Conflict(Vec<String>),
}

impl Mirror {
    /// Returns the merge commit of two fetched commits, or the conflicting files.
    pub async fn merged(
        &self,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<Result<CommitSha, Vec<String>>, GitError> {
        let _writer = self.locks.writer.lock().await;
        Ok(match self.merge(base, head).await? {
            Merge::Done(commit) => Ok(commit),
            Merge::Conflict(files) => Err(files),
        })
    }

    /// Creates the merge commit of base and head. Author, message and date are fixed (the date is that of the head),
    /// so the same pair gives the same commit on every replica. The result is a merge commit even when the head
    /// already contains the base, so that `HEAD^1` and `HEAD^2` always are base and head.
    pub(super) async fn merge(
        &self,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<Merge, GitError> {
        if base == head {
            // Git would leave out the second parent when it merges a commit with itself.
            return Ok(Merge::Done(head.clone()));
        }
        if let Some(made) = self.merged_before(base, head).await? {
            return Ok(Merge::Done(made));
        }
        let doing = format!("merge {} into {}", head.short(), base.short());
        let cmd = self.git().cap(MAX_CONFLICTS).args([
            "merge-tree",
            "--write-tree",
            "--name-only",
            "--no-messages",
            "-z",
        ]);
        let output = self
            .call(&doing, &cmd.args([base.as_str(), head.as_str()]))
            .await?;
        match output.code {
            Some(0) => {
                let made = self.commit(&doing, &output, base, head).await?;
                self.locks.merges.remember(base, head, &made);
                Ok(Merge::Done(made))
            }
            Some(1) => Ok(Merge::Conflict(conflicts(&output))),
            _ => Err(GitError::from_output(doing, &output, None)),
        }
    }

    /// Returns the merge commit of base and head if this process has made it and the mirror still has it. No ref
    /// leads to it, so git removes it eventually.
    pub(super) async fn merged_before(
        &self,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<Option<CommitSha>, GitError> {
        match self.locks.merges.find(base, head) {
            Some(made) => Ok(self.has_commit(&made).await?.then_some(made)),
            None => Ok(None),
        }
    }

    async fn commit(
        &self,
        doing: &str,
        merged: &CallOutput,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<CommitSha, GitError> {
        let tree = merged.stdout.text().trim_end_matches('\0').to_owned();
        let date = format!("@{} +0000", self.date_of(doing, head).await?);
        let mut cmd = self
            .git()
            .args(["commit-tree", "-p", base.as_str(), "-p", head.as_str()]);
        cmd = cmd
            .arg("-m")
            .arg(format!("Merge {head} into {base}"))
            .arg(tree);
        for role in ["AUTHOR", "COMMITTER"] {
            cmd = cmd
                .env(format!("GIT_{role}_NAME"), "Lockkeeper")
                .env(format!("GIT_{role}_EMAIL"), "lockkeeper@localhost")
                .env(format!("GIT_{role}_DATE"), &date);
        }
        let output = self.run(doing, cmd).await?;
        CommitSha::new(output.stdout.text().trim()).map_err(|error| GitError::other(doing, error))
    }

    /// Returns the date of a commit in seconds since 1970. A date that git cannot write counts as 0; anybody can make
    /// such commits.
    async fn date_of(&self, doing: &str, commit: &CommitSha) -> Result<u32, GitError> {
        let cmd = self
            .git()
            .args(["show", "--no-patch", "--format=%ct", commit.as_str()]);
        Ok(self
            .run(doing, cmd)
            .await?
            .stdout
            .text()
            .trim()
            .parse()
            .unwrap_or(0))
    }
}

/// Parses `<tree>\0<file>\0<file>\0`. The names are for people, so bytes that are not UTF-8 and control characters
/// are replaced.
fn conflicts(output: &CallOutput) -> Vec<String> {
    let text = output
        .stdout
        .text()
        .replace(|c: char| c.is_control() && c != '\0', "\u{FFFD}");
    let mut files: Vec<String> = text
        .split('\0')
        .skip(1)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if output.stdout.truncated {
        files.pop();
        files.push("…".to_owned());
    }
    files
}
