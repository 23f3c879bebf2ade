//! Manages partial mirrors, which leave the content of old files at the forge until it is needed.
//!
//! The need: plans use a few commits of a repository whose history has gigabytes of files. A partial mirror has every
//! commit and, with the usual filter, every directory. Of the files, it has only those of commits that Lockkeeper
//! worked on.
//!
//! Git would fetch missing objects automatically, at any time, with any credentials that it finds. That must not
//! happen here. Every call forbids it, and Lockkeeper fetches the objects of a commit on purpose, with the forge's
//! credentials, before it uses them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::fetch::FETCH;
use super::remote::Checked;
use super::{GitError, Mirror, Remote, objects, place};
use crate::config::MirrorFilter;
use crate::model::CommitSha;
use crate::process::CallOutput;

/// Maximum number of commits that a merge may need besides its two sides.
const MAX_BASES: usize = 100;

/// True once the warning was logged. One warning covers all mirrors, because the limitation is that of the forge.
static SAID: AtomicBool = AtomicBool::new(false);

impl Mirror {
    /// Returns the filter with which the mirror was made; `None` for a complete mirror.
    pub(super) fn filter(&self) -> Option<MirrorFilter> {
        fs::read_to_string(self.dir().join(place::FILTER))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Makes a new mirror partial if the settings contain a filter. An existing mirror keeps its form.
    pub(super) fn begin_partial(&self) -> io::Result<()> {
        match self.settings.filter {
            Some(filter) if !self.dir().join("HEAD").exists() => {
                fs::write(self.dir().join(place::FILTER), format!("{filter}\n"))
            }
            _ => Ok(()),
        }
    }

    /// Warns about `warning: filtering not recognized by server, ignoring`: the mirror then has everything, which
    /// works but is larger.
    pub(super) fn warn_ignored_filter(&self, output: &CallOutput) {
        let is_ignored = output
            .stderr
            .text()
            .contains("filtering not recognized by server");
        if is_ignored && !SAID.swap(true, Ordering::Relaxed) {
            warn!(repo = %self.repo, "The forge does not support partial clones (--mirror-filter); its mirrors are complete");
        }
    }

    /// Returns true if the mirror has everything that a checkout of a commit needs.
    pub async fn has_files(&self, commit: &CommitSha) -> Result<bool, GitError> {
        Ok(self.has_commit(commit).await? && self.missing(&[commit]).await?.is_empty())
    }

    /// Returns true if the mirror was made with a filter, so objects may be missing.
    pub fn is_partial(&self) -> bool {
        self.filter().is_some()
    }

    /// Fetches the objects that a partial mirror lacks of its commits and of their merge bases.
    pub async fn bring_files(
        &self,
        remote: &Remote<'_>,
        commits: &[&CommitSha],
    ) -> Result<(), GitError> {
        let remote = self.check(&format!("fetch the files of {}", self.repo), remote)?;
        let _transfer = self.locks.transfer.lock().await;
        self.complete(&remote, commits).await
    }

    /// Fetches the objects that a partial mirror lacks of these commits and of their merge bases. Needs the mutex
    /// `transfer`.
    pub(super) async fn complete(
        &self,
        remote: &Checked<'_>,
        commits: &[&CommitSha],
    ) -> Result<(), GitError> {
        if self.filter().is_none() || commits.is_empty() {
            return Ok(());
        }
        let doing = format!("fetch the files of {}", self.repo);
        let bases = self.all_bases(&doing, commits).await?;
        let all: Vec<&CommitSha> = commits.iter().copied().chain(&bases).collect();
        let missing = self.missing(&all).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let list = missing
            .into_iter()
            .map(|id| format!("{id}\n"))
            .collect::<Vec<_>>()
            .concat();
        // A server that learns of the present commits would assume that their files are present, too.
        let cmd = self
            .git_to(remote)
            .args(["-c", "fetch.negotiationAlgorithm=noop"])
            .args(FETCH)
            .arg("--stdin");
        let output = self
            .call(&doing, &cmd.operands([remote.name(self)]).input(list))
            .await?;
        if output.is_success() {
            Ok(())
        } else {
            Err(remote.failure(&doing, &output))
        }
    }

    /// Returns all merge bases of some commits. Several bases occur when branches were merged both ways. Git merges
    /// those first, with their own bases, and so on.
    async fn all_bases(
        &self,
        doing: &str,
        commits: &[&CommitSha],
    ) -> Result<BTreeSet<CommitSha>, GitError> {
        let mut all = BTreeSet::new();
        let mut newest: BTreeSet<CommitSha> = commits.iter().copied().cloned().collect();
        while newest.len() > 1 {
            let bases = self
                .merge_bases(doing, &newest.iter().collect::<Vec<_>>())
                .await?;
            newest = bases
                .into_iter()
                .filter(|base| all.insert(base.clone()))
                .collect();
            if all.len() > MAX_BASES {
                let message = format!(
                    "the branches were merged into each other too often (more than {MAX_BASES} merge bases). Rebase \
                     the pull request"
                );
                return Err(GitError::other(doing, message));
            }
        }
        Ok(all)
    }

    /// Returns the merge bases of any two of some commits.
    async fn merge_bases(
        &self,
        doing: &str,
        commits: &[&CommitSha],
    ) -> Result<Vec<CommitSha>, GitError> {
        let different: BTreeSet<&str> = commits.iter().map(|commit| commit.as_str()).collect();
        let mut bases = Vec::new();
        for one in &different {
            for other in different.range::<str, _>((Bound::Excluded(*one), Bound::Unbounded)) {
                let output = self
                    .call(doing, &self.git().args(["merge-base", "--all", one, other]))
                    .await?;
                match output.code {
                    Some(0 | 1) => bases.extend(
                        output
                            .stdout
                            .text()
                            .lines()
                            .filter_map(|id| CommitSha::new(id).ok()),
                    ),
                    _ => return Err(GitError::from_output(doing, &output, None)),
                }
            }
        }
        Ok(bases)
    }

    /// Returns the ids of files of some commits that the mirror lacks; none unless the mirror is partial.
    async fn missing(&self, commits: &[&CommitSha]) -> Result<Vec<String>, GitError> {
        if self.filter().is_none() {
            return Ok(Vec::new());
        }
        let doing = format!("find missing objects of {}", self.repo);
        let cmd = self.git().cap(objects::MAX_LIST).args([
            "rev-list",
            "--objects",
            "--missing=print",
            "--no-walk",
        ]);
        let output = self
            .run(
                &doing,
                cmd.args(commits.iter().map(|commit| commit.as_str())),
            )
            .await?;
        if output.stdout.truncated {
            return Err(GitError::other(
                doing,
                "the file names have more than 64 MiB in total",
            ));
        }
        Ok(output
            .stdout
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix('?'))
            .map(str::to_owned)
            .collect())
    }
}
