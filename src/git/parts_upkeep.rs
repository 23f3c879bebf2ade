//! Removes unused submodules and LFS files from a mirror.
//!
//! The need: while a pull is open, each of its commits may bring other submodules and LFS files. A checkout has
//! copies of them, so the mirror keeps them only to copy them again. They are removed when no checkout has them any
//! more and nothing has used them for a day. A checkout that is being made counts as a recent use. A later command
//! fetches them again when it needs them.
//!
//! Killed at any point: for a submodule, the note that a commit is whole is removed first, then its ref, then its
//! objects. So a half-removed commit is fetched as if the mirror had never had it.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::disk::{removed, run_blocking};
use super::mirror::{make_dir, remove_all};
use super::upkeep::DEADLINE;
use super::{GitError, Mirror, objects, place};
use crate::model::CommitSha;

/// Grace period: parts used within this time stay.
const GRACE: Duration = Duration::from_hours(24);

/// Returns the time by the clock of the disk, which can be compared with the times of files.
pub(super) fn now_on(dir: &Path) -> io::Result<SystemTime> {
    tempfile::tempfile_in(dir)?.metadata()?.modified()
}

impl Mirror {
    /// Notes in the repository of a submodule that a commit is whole and was used now.
    pub(super) fn note_commit(&self, commit: &CommitSha) -> io::Result<()> {
        let notes = self.dir().join(place::COMMITS);
        make_dir(&notes)?;
        fs::write(notes.join(commit.as_str()), "whole\n")
    }

    /// Returns true if a commit of a submodule is present with all of its files.
    pub(super) async fn has_commit_with_files(&self, commit: &CommitSha) -> Result<bool, GitError> {
        Ok(self
            .dir()
            .join(place::COMMITS)
            .join(commit.as_str())
            .exists()
            && self.has_commit(commit).await?)
    }

    /// Removes parts that no checkout has and nothing has used for a day. The caller must ensure that nothing brings
    /// submodules or LFS files at the same time.
    pub(super) async fn tidy_parts(&self, doing: &str) -> Result<(), GitError> {
        let now = now_on(self.dir()).map_err(GitError::from_io(doing))?;
        let before = now.checked_sub(GRACE).unwrap_or(SystemTime::UNIX_EPOCH);
        self.tidy_lfs(doing, before).await?;
        let commits = self.noted(place::SUBMODULES);
        for dir in paths_in(&self.dir().join("modules")) {
            if dir.extension().is_none_or(|extension| extension != "git") {
                // A killed process left this directory while it was being removed.
                removed(doing, dir).await?;
                continue;
            }
            let module = self.at(dir);
            match module.tidy_submodule(doing, &commits, before).await {
                Err(GitError::Corrupt { .. } | GitError::Altered { .. }) => {
                    module.discard(doing).await?;
                }
                tidied => tidied?,
            }
        }
        Ok(())
    }

    /// Returns the first words of the lines of a note that checkouts have beside their indexes.
    fn noted(&self, note: &str) -> HashSet<String> {
        let notes = paths_in(&self.dir().join("worktrees"))
            .into_iter()
            .map(|checkout| checkout.join(note));
        let texts: Vec<String> = notes
            .filter_map(|note| fs::read_to_string(note).ok())
            .collect();
        let words = texts
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| line.split(' ').next());
        words.map(str::to_owned).collect()
    }

    /// Removes unused LFS objects and the remains of interrupted transfers of `git-lfs`.
    async fn tidy_lfs(&self, doing: &str, before: SystemTime) -> Result<(), GitError> {
        let (root, used) = (self.dir().join("lfs"), self.noted(place::LFS_FILES));
        let is_used = move |file: &PathBuf| {
            file.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|id| used.contains(id))
        };
        let unused = run_blocking(move || {
            files_below(root)
                .into_iter()
                .filter(|file| !is_used(file))
                .collect::<Vec<_>>()
        })
        .await;
        for file in unused.map_err(GitError::from_io(doing))? {
            // No await point separates the check from the removal, so a cancelled caller cannot delay the removal
            // after the check.
            if is_older(&file, before) {
                remove_all(&file).map_err(GitError::from_io(doing))?;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Keeps the commits of a submodule that checkouts have or that were used recently, and removes the others.
    async fn tidy_submodule(
        &self,
        doing: &str,
        used: &HashSet<String>,
        before: SystemTime,
    ) -> Result<(), GitError> {
        let name_of = |note: &Path| {
            note.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let notes = paths_in(&self.dir().join(place::COMMITS));
        let (kept, old): (Vec<PathBuf>, Vec<PathBuf>) = notes
            .into_iter()
            .partition(|note| used.contains(&name_of(note)) || !is_older(note, before));
        if kept.is_empty() {
            return self.discard(doing).await;
        }
        let forgotten = old.iter().try_for_each(|note| remove_all(note));
        forgotten
            .and_then(|()| self.clear_unfinished_packs())
            .map_err(GitError::from_io(doing))?;
        self.drop_commits(doing, &kept.iter().map(|note| name_of(note)).collect())
            .await
    }

    /// Removes the refs of all other commits, and then all unreachable objects.
    async fn drop_commits(&self, doing: &str, kept: &BTreeSet<String>) -> Result<(), GitError> {
        let untidy = self.dir().join(place::UNTIDY);
        let cmd = self.git().cap(objects::MAX_LIST).args([
            "for-each-ref",
            "--format=%(refname)",
            "refs/lockkeeper/",
        ]);
        let listed = self.run(doing, cmd).await?;
        let text = listed.stdout.text();
        let gone = text.lines().filter(|name| {
            name.rsplit('/')
                .next()
                .is_none_or(|commit| !kept.contains(commit))
        });
        let gone = gone
            .map(|name| format!("delete {name}\n"))
            .collect::<Vec<_>>()
            .concat();
        if !gone.is_empty() {
            // A process killed before the end leaves the rest to the next one.
            fs::write(&untidy, "").map_err(GitError::from_io(doing))?;
            self.run(
                doing,
                self.git()
                    .args(["update-ref", "--no-deref", "--stdin"])
                    .input(gone),
            )
            .await?;
        }
        if !untidy.exists() {
            return Ok(());
        }
        self.run(
            doing,
            self.git()
                .deadline(DEADLINE)
                .args(["repack", "-a", "-d", "-q"]),
        )
        .await?;
        self.run(
            doing,
            self.git()
                .deadline(DEADLINE)
                .args(["prune", "--expire=now"]),
        )
        .await?;
        remove_all(&untidy).map_err(GitError::from_io(doing))
    }

    /// Removes the repository of a submodule. A rename moves it aside in one step, so that no reader finds a part of
    /// it.
    async fn discard(&self, doing: &str) -> Result<(), GitError> {
        let aside = place::replaced(self.dir());
        let moved = remove_all(&aside).and_then(|()| fs::rename(self.dir(), &aside));
        moved.map_err(GitError::from_io(doing))?;
        removed(doing, aside).await
    }
}

fn is_older(file: &Path, than: SystemTime) -> bool {
    file.symlink_metadata()
        .and_then(|meta| meta.modified())
        .is_ok_and(|time| time < than)
}

/// Returns the paths in a directory, or none where it cannot be read.
fn paths_in(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Returns every path that is not a directory, at any depth.
fn files_below(dir: PathBuf) -> Vec<PathBuf> {
    let (mut todo, mut files) = (vec![dir], Vec::new());
    while let Some(dir) = todo.pop() {
        let (dirs, others): (Vec<PathBuf>, Vec<PathBuf>) = paths_in(&dir)
            .into_iter()
            .partition(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir()));
        todo.extend(dirs);
        files.extend(others);
    }
    files
}
