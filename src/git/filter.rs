//! Partial mirrors: what old files contained stays at the forge until somebody needs it.
//!
//! The need: plans look at a few commits of a repository whose history has gigabytes of files. A partial mirror has every
//! commit and, with the usual filter, every directory; of files only what commits had that were worked on.
//!
//! Git would fetch what is missing by itself, whenever, with whatever credentials it finds. Here it must not: every call
//! forbids that, and what a commit needs is fetched on purpose, with the forge's credentials, before it is used.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::fetch::FETCH;
use super::remote::Checked;
use super::{GitError, Mirror, objects, place};
use crate::model::CommitSha;
use crate::process::Output;

/// What a new mirror leaves at the forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorFilter {
    /// The content of all files (`blob:none`).
    Files,
    /// The content of files of so many bytes or more (`blob:limit=1m`).
    LargeFiles(u64),
}

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a filter for mirrors; `blob:none` leaves the content of all files at the forge until it is needed, \
     `blob:limit=1m` that of files of 1 MiB or more (k, m and g are units)"
)]
pub struct InvalidFilter(String);

impl FromStr for MirrorFilter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidFilter(text.chars().take(80).collect());
        if text == "blob:none" {
            return Ok(Self::Files);
        }
        let size = text.strip_prefix("blob:limit=").and_then(bytes).ok_or_else(invalid)?;
        Ok(Self::LargeFiles(size))
    }
}

/// `500`, `10k`, `1m`, `2g`.
fn bytes(text: &str) -> Option<u64> {
    let unit = text.bytes().last()?.to_ascii_lowercase();
    let shift = match unit {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<u64>().ok()?.checked_mul(1 << shift)).flatten()
}

impl fmt::Display for MirrorFilter {
    /// As git wants it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files => f.write_str("blob:none"),
            Self::LargeFiles(bytes) => write!(f, "blob:limit={bytes}"),
        }
    }
}

/// Said once for all mirrors: it is the forge that cannot do it, or will not.
static SAID: AtomicBool = AtomicBool::new(false);

impl Mirror {
    /// The filter it was made with; `None` for a mirror that has everything.
    pub(super) fn filter(&self) -> Option<MirrorFilter> {
        fs::read_to_string(self.dir().join(place::FILTER)).ok()?.trim().parse().ok()
    }

    /// A mirror that is made now is partial if that is wanted. One that is there stays as it is.
    pub(super) fn begin_partial(&self) -> io::Result<()> {
        match self.settings.filter {
            Some(filter) if !self.dir().join("HEAD").exists() => {
                fs::write(self.dir().join(place::FILTER), format!("{filter}\n"))
            }
            _ => Ok(()),
        }
    }

    /// `warning: filtering not recognized by server, ignoring`: then everything came, which is as good, but larger.
    pub(super) fn tell_ignored_filter(&self, output: &Output) {
        let is_ignored = output.stderr.text().contains("filtering not recognized by server");
        if is_ignored && !SAID.swap(true, Ordering::Relaxed) {
            warn!(repo = %self.repo, "The forge knows no partial clones (--mirror-filter): its mirrors get everything");
        }
    }

    /// Whether everything is here that a checkout of a commit needs.
    pub async fn has_files(&self, commit: &CommitSha) -> Result<bool, GitError> {
        Ok(self.has_commit(commit).await? && self.missing(&[commit]).await?.is_empty())
    }

    /// Fetches what a partial mirror lacks of these commits, and of those that they are merged by. Needs the mutex
    /// `transfer`.
    pub(super) async fn complete(&self, remote: &Checked<'_>, commits: &[&CommitSha]) -> Result<(), GitError> {
        if self.filter().is_none() || commits.is_empty() {
            return Ok(());
        }
        let doing = format!("fetch the files of {}", self.repo);
        let bases = self.merge_bases(&doing, commits).await?;
        let all: Vec<&CommitSha> = commits.iter().copied().chain(&bases).collect();
        let missing = self.missing(&all).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let list: String = missing.into_iter().map(|id| format!("{id}\n")).collect();
        // A server that is told of commits that are here would think that their files are here, too.
        let cmd = self.git_to(remote).args(["-c", "fetch.negotiationAlgorithm=noop"]).args(FETCH).arg("--stdin");
        let output = self.call(&doing, &cmd.operands([remote.name(self)]).input(list)).await?;
        if output.is_success() { Ok(()) } else { Err(remote.failure(&doing, &output)) }
    }

    async fn merge_bases(&self, doing: &str, commits: &[&CommitSha]) -> Result<Vec<CommitSha>, GitError> {
        let different: BTreeSet<&str> = commits.iter().map(|commit| commit.as_str()).collect();
        if different.len() < 2 {
            return Ok(Vec::new());
        }
        let output = self.call(doing, &self.git().args(["merge-base", "--octopus", "--all"]).args(different)).await?;
        match output.code {
            Some(0 | 1) => Ok(output.stdout.text().lines().filter_map(|id| CommitSha::new(id).ok()).collect()),
            _ => Err(GitError::from_output(doing, &output, None)),
        }
    }

    /// Ids of the files of some commits that are not here; none unless the mirror is partial.
    async fn missing(&self, commits: &[&CommitSha]) -> Result<Vec<String>, GitError> {
        if self.filter().is_none() {
            return Ok(Vec::new());
        }
        let doing = format!("look what is missing of {}", self.repo);
        let cmd = self.git().cap(objects::MAX_LIST).args(["rev-list", "--objects", "--missing=print", "--no-walk"]);
        let output = self.run(&doing, cmd.args(commits.iter().map(|commit| commit.as_str()))).await?;
        if output.stdout.truncated {
            return Err(GitError::other(doing, "there are more than 64 MiB of file names"));
        }
        Ok(output.stdout.text().lines().filter_map(|line| line.strip_prefix('?')).map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_that_leave_files_out() {
        for (text, git) in [
            ("blob:none", "blob:none"),
            ("blob:limit=0", "blob:limit=0"),
            ("blob:limit=500", "blob:limit=500"),
            ("blob:limit=10k", "blob:limit=10240"),
            ("blob:limit=1M", "blob:limit=1048576"),
        ] {
            let filter: MirrorFilter = text.parse().unwrap();
            assert_eq!(filter.to_string(), git);
            assert_eq!(git.parse(), Ok(filter));
        }
        for text in [
            "",
            "none",
            "tree:0",
            "blob:limit=",
            "blob:limit=k",
            "blob:limit=-1",
            "blob:limit=99999999999g",
            "sparse:oid=1",
            "blob:limit=1µ",
            "blob:limit=+1",
        ] {
            assert_eq!(text.parse::<MirrorFilter>(), Err(InvalidFilter(text.to_owned())));
        }
    }
}
