//! Reads public repositories of other people, each in a scratch repository that is removed afterwards.
//!
//! The need: the registry fetches modules from repositories that are no mirrors. Nobody here has chosen them: a client
//! names them. So git gets no credentials, speaks HTTPS alone, follows no redirect to another address, and is stopped
//! when it has written too much.
//!
//! Objects are checked on arrival, no program of the repository runs, and nothing is checked out. The files of a commit are
//! read as those of a mirror are ([`CommitSnapshot`]), which measures them first.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Datelike as _, Utc};
use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval};
use url::Url;

use super::commit_files::{CommitSnapshot, make};
use super::disk::run_blocking;
use super::environment::git_to_foreign;
use super::{GitError, GitSettings};
use crate::model::CommitSha;
use crate::process::{CallOutput, Captured, Cmd};

/// Interval at which the size of a scratch repository is looked at.
const SIZE_INTERVAL: Duration = Duration::from_millis(250);

/// Longest time for one exchange with a server.
const FETCH_TIME: Duration = Duration::from_mins(5);

/// Longest time for a list of refs.
const LIST_TIME: Duration = Duration::from_secs(30);

/// Ref that a fetch writes.
const FETCHED: &str = "refs/lockkeeper/fetched";

/// A branch or a tag of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRef {
    /// Full name, such as `refs/tags/v1.0.0`.
    pub name: String,
    /// Commit that it leads to, if it leads to one. An annotated tag is followed.
    pub commit: CommitSha,
}

/// A repository of somebody else, and the scratch repository for what is fetched from it.
#[derive(Debug)]
pub struct ForeignRepository {
    settings: GitSettings,
    url: Url,
    dir: TempDir,
    /// Maximum number of bytes of the scratch repository.
    most: u64,
}

impl ForeignRepository {
    /// Creates an empty scratch repository below `parent`, which can have `most` bytes. Waits for the disk.
    pub fn create(
        settings: &GitSettings,
        url: &Url,
        parent: &Path,
        most: u64,
    ) -> Result<Self, GitError> {
        let dir = make(parent, None).map_err(GitError::from_io("create a repository"))?;
        Ok(Self {
            settings: settings.clone(),
            url: url.clone(),
            dir,
            most,
        })
    }

    /// Returns the files of a commit that was fetched without its history.
    pub fn into_snapshot(self, commit: CommitSha) -> CommitSnapshot {
        // Nothing more comes from the network.
        let env = self.settings.env.into_iter();
        let settings = GitSettings {
            env: env.filter(|(name, _)| name.as_os_str() == "PATH").collect(),
            ..self.settings
        };
        CommitSnapshot::of_repository(settings, self.dir, commit)
    }

    /// Lists the branches and tags, as the server names them now.
    pub async fn refs(&self) -> Result<Vec<RemoteRef>, GitError> {
        let doing = format!("list the tags of {}", self.url);
        let cmd = self.git(&[]).deadline(LIST_TIME);
        let cmd = cmd.args(["ls-remote", "--heads", "--tags", "--quiet"]);
        let output = self.call(&doing, cmd.operands([self.url.as_str()])).await?;
        if output.stdout.truncated {
            return Err(GitError::TooLarge {
                path: format!("the list of tags of {}", self.url),
                size: Cmd::CAP as u64,
                limit: Cmd::CAP as u64,
            });
        }
        Ok(refs_of(&output.stdout))
    }

    /// Fetches one commit with its files and without its history, by the full name of a ref or by its own name. Returns
    /// the commit that arrived.
    pub async fn fetch(&self, wanted: &str) -> Result<CommitSha, GitError> {
        let doing = format!("fetch `{wanted}` from {}", self.url);
        let cmd = self.git(&[]).deadline(FETCH_TIME);
        let cmd = cmd.args(["fetch", "--quiet", "--no-tags", "--depth=1"]);
        let wanted = format!("+{wanted}:{FETCHED}");
        let cmd = cmd.operands([self.url.as_str(), &wanted]);
        self.call(&doing, cmd).await?;
        let commit = self.commit(FETCHED).await?;
        commit.ok_or_else(|| GitError::other(doing, "it is not a commit"))
    }

    /// Fetches all commits that branches and tags lead to, without their files where the server can leave them out.
    pub async fn fetch_history(&self) -> Result<(), GitError> {
        let doing = format!("fetch the history of {}", self.url);
        let remote = [
            ("remote.origin.url", self.url.as_str()),
            ("remote.origin.promisor", "true"),
            ("remote.origin.partialclonefilter", "tree:0"),
        ];
        let cmd = self.git(&remote).deadline(FETCH_TIME);
        let cmd = cmd.args(["fetch", "--quiet", "--no-tags", "--filter=tree:0"]);
        let cmd = cmd.operands([
            "origin",
            "+refs/heads/*:refs/heads/*",
            "+refs/tags/*:refs/tags/*",
        ]);
        self.call(&doing, cmd).await.map(drop)
    }

    /// Returns the commit that a name leads to, such as the first digits of a commit. `None`: there is none, or more than
    /// one.
    pub async fn commit(&self, name: &str) -> Result<Option<CommitSha>, GitError> {
        let cmd = self
            .git(&[])
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let output = self.output("find a commit", cmd.arg(format!("{name}^{{commit}}")));
        let output = output.await?;
        let commit = CommitSha::new(output.stdout.text().trim()).ok();
        Ok(commit.filter(|_| output.is_success()))
    }

    /// Returns the time of a commit.
    pub async fn time(&self, commit: &CommitSha) -> Result<DateTime<Utc>, GitError> {
        let doing = "read the time of a commit";
        let cmd = self
            .git(&[])
            .args(["log", "-1", "--no-show-signature", "--format=%ct"]);
        let output = self.call(doing, cmd.arg(commit.as_str())).await?;
        time_of(&output.stdout.text())
            .ok_or_else(|| GitError::other(doing, "the commit has no valid time"))
    }

    /// Returns true if a commit has another one among its ancestors, or is that one.
    pub async fn descends(
        &self,
        commit: &CommitSha,
        ancestor: &CommitSha,
    ) -> Result<bool, GitError> {
        let cmd = self
            .git(&[])
            .args(["merge-base", "--is-ancestor"])
            .args([ancestor.as_str(), commit.as_str()]);
        let doing = "compare two commits";
        let output = self.output(doing, cmd).await?;
        match output.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(GitError::from_output(doing, &output, None)),
        }
    }

    fn git(&self, more: &[(&str, &str)]) -> Cmd {
        git_to_foreign(&self.settings, self.dir.path(), more)
    }

    async fn call(&self, doing: &str, cmd: Cmd) -> Result<CallOutput, GitError> {
        let output = self.output(doing, cmd).await?;
        if output.is_success() {
            return Ok(output);
        }
        Err(GitError::from_output(doing, &output, None))
    }

    /// Runs git, and stops it when the scratch repository has become too large.
    async fn output(&self, doing: &str, cmd: Cmd) -> Result<CallOutput, GitError> {
        let mut looks = interval(SIZE_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let call = cmd.output();
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                output = &mut call => {
                    self.check_size().await?;
                    return output.map_err(|error| GitError::from_process(doing, error));
                }
                _ = looks.tick() => self.check_size().await?,
            }
        }
    }

    async fn check_size(&self) -> Result<(), GitError> {
        let dir = self.dir.path().to_owned();
        let size = run_blocking(move || size_of(&dir)).await.unwrap_or(0);
        if size <= self.most {
            return Ok(());
        }
        Err(GitError::TooLarge {
            path: self.url.to_string(),
            size,
            limit: self.most,
        })
    }
}

/// Returns the number of bytes that all files below a directory take on the disk.
fn size_of(dir: &Path) -> u64 {
    let mut todo = vec![dir.to_owned()];
    let mut size = 0;
    while let Some(dir) = todo.pop() {
        // Files come and go while git works.
        let Ok(entries) = std::fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => todo.push(entry.path()),
                // A block has 512 bytes on any file system.
                Ok(metadata) => size += metadata.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    size
}

fn time_of(text: &str) -> Option<DateTime<Utc>> {
    valid_time(text.trim().parse().ok()?)
}

/// Returns the time of a commit. Others than `go` writes, with a year of more than four digits, are not valid.
pub(super) fn valid_time(seconds: i64) -> Option<DateTime<Utc>> {
    let time = DateTime::from_timestamp(seconds, 0)?;
    (1970..=9999).contains(&time.year()).then_some(time)
}

/// Reads the output of `git ls-remote`. The line of an annotated tag is followed by one with `^{}` and its commit.
fn refs_of(output: &Captured) -> Vec<RemoteRef> {
    let mut refs: Vec<RemoteRef> = Vec::new();
    for line in output.text().lines() {
        let Some((id, name)) = line.split_once('\t') else {
            continue;
        };
        let Ok(commit) = CommitSha::new(id) else {
            continue;
        };
        match (name.strip_suffix("^{}"), refs.last_mut()) {
            (Some(name), Some(last)) if last.name == name => last.commit = commit,
            _ => refs.push(RemoteRef {
                name: name.to_owned(),
                commit,
            }),
        }
    }
    refs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_commit_has_a_year_of_four_digits() {
        for (text, expected) in [
            ("1767323045\n", Some("2026-01-02T03:04:05+00:00")),
            ("253402300799", Some("9999-12-31T23:59:59+00:00")),
            ("253402300800", None),
            ("-1", None),
            ("", None),
        ] {
            let time = time_of(text).map(|time| time.to_rfc3339());
            assert_eq!(time.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_annotated_tag_leads_to_its_commit() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let text = format!(
            "{one}\trefs/heads/main\n{two}\trefs/tags/v1.0.0\n{one}\trefs/tags/v1.0.0^{{}}\nx\ty\n"
        );
        let output = Captured {
            bytes: text.into_bytes(),
            truncated: false,
        };
        let refs = refs_of(&output);
        let refs: Vec<(&str, &str)> = refs
            .iter()
            .map(|found| (found.name.as_str(), found.commit.as_str()))
            .collect();
        assert_eq!(
            refs,
            [
                ("refs/heads/main", one.as_str()),
                ("refs/tags/v1.0.0", one.as_str())
            ]
        );
    }
}
