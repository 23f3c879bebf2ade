//! Partial mirrors: what old files contained stays at the forge until somebody needs it.
//!
//! The need: plans look at a few commits of a repository whose history has gigabytes of files. A partial mirror has every
//! commit and, with the usual filter, every directory; of files only what commits had that were worked on.
//!
//! Git would fetch what is missing by itself, whenever, with whatever credentials it finds. Here it must not: every call
//! forbids that, and what a commit needs is fetched on purpose, with the forge's credentials, before it is used.

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
use crate::process::Output;

/// Commits that a merge may need besides its two sides.
const MAX_BASES: usize = 100;

/// Said once for all mirrors: it is the forge that cannot do it, or will not.
static SAID: AtomicBool = AtomicBool::new(false);

impl Mirror {
    /// The filter it was made with; `None` for a mirror that has everything.
    pub(super) fn filter(&self) -> Option<MirrorFilter> {
        fs::read_to_string(self.dir().join(place::FILTER))
            .ok()?
            .trim()
            .parse()
            .ok()
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
        let is_ignored = output
            .stderr
            .text()
            .contains("filtering not recognized by server");
        if is_ignored && !SAID.swap(true, Ordering::Relaxed) {
            warn!(repo = %self.repo, "The forge knows no partial clones (--mirror-filter): its mirrors get everything");
        }
    }

    /// Whether everything is here that a checkout of a commit needs.
    pub async fn has_files(&self, commit: &CommitSha) -> Result<bool, GitError> {
        Ok(self.has_commit(commit).await? && self.missing(&[commit]).await?.is_empty())
    }

    /// Whether it has not everything.
    pub fn is_partial(&self) -> bool {
        self.filter().is_some()
    }

    /// Brings what a partial mirror lacks of commits that it has, and of what they are merged by.
    pub async fn bring_files(
        &self,
        remote: &Remote<'_>,
        commits: &[&CommitSha],
    ) -> Result<(), GitError> {
        let remote = self.check(&format!("fetch the files of {}", self.repo), remote)?;
        let _transfer = self.locks.transfer.lock().await;
        self.complete(&remote, commits).await
    }

    /// Fetches what a partial mirror lacks of these commits, and of those that they are merged by. Needs the mutex
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
        // A server that is told of commits that are here would think that their files are here, too.
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

    /// What some commits would be merged by. Where that are several commits (branches were merged both ways), git merges
    /// those first, by what they in turn come from, and so on.
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
                    "the branches were merged both ways too often (more than {MAX_BASES} merge bases); rebase the pull"
                );
                return Err(GitError::other(doing, message));
            }
        }
        Ok(all)
    }

    /// What any two of some commits would be merged by.
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

    /// Ids of the files of some commits that are not here; none unless the mirror is partial.
    async fn missing(&self, commits: &[&CommitSha]) -> Result<Vec<String>, GitError> {
        if self.filter().is_none() {
            return Ok(Vec::new());
        }
        let doing = format!("look what is missing of {}", self.repo);
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
                "there are more than 64 MiB of file names",
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
