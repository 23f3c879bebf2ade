//! Places submodules in a checkout. They have no `.git` of their own there: programs see plain files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::run_blocking;
use super::kept::{self, Committed};
use super::mirror::{make_dir, remove_all};
use super::objects::{self, path_of};
use super::submodules::Submodule;
use super::tree_check::KnownFiles;
use super::{Checkout, Extent, GitError, Mirror, place};
use crate::model::{CommitSha, RepoPath};
use crate::process::Cmd;

/// Index of the submodule that is being written.
const INDEX: &str = "lockkeeper-submodule-index";

impl Mirror {
    /// Places fetched submodules in the checkout. Files that runs made beside their files stay while the commit
    /// stays.
    pub async fn place_submodules(
        &self,
        checkout: &Checkout,
        submodules: &[Submodule],
    ) -> Result<(), GitError> {
        let doing = format!("check out the submodules of {}", self.repo);
        let _hold = self.hold(&doing, &checkout.hold).await?;
        let Some(admin) = self.admin_dir(&checkout.path) else {
            return Err(GitError::other(doing, "the checkout is not complete"));
        };
        let io = || GitError::from_io(&doing);
        let noted = admin.join(place::SUBMODULES);
        let placed = read_note(&noted);
        // The note is removed first, so that a killed process leaves nothing that looks whole.
        remove_all(&noted).map_err(io())?;
        for submodule in submodules {
            let Submodule { path, commit, .. } = submodule;
            let dir = empty_way(&checkout.path, path).map_err(io())?;
            make_dir(&dir).map_err(io())?;
            let old = placed.get(path).map(String::as_str);
            if old != Some(commit.as_str()) {
                swept(dir.clone(), self.committed_there(submodule, old).await)
                    .await
                    .map_err(io())?;
            }
            self.write_files(&doing, &admin, &dir, submodule).await?;
        }
        let note = submodules
            .iter()
            .map(|one| format!("{} {}\n", one.commit, one.path))
            .collect::<Vec<_>>()
            .concat();
        fs::write(noted, note).map_err(io())
    }

    /// Removes the files that runs have left in the submodule directories of the index, because git ignores those
    /// directories. `git` is for the worktree in `dir`.
    pub(super) async fn sweep_submodules(
        &self,
        doing: &str,
        git: Cmd,
        dir: &Path,
    ) -> Result<(), GitError> {
        let output = self
            .run(
                doing,
                git.cap(objects::MAX_LIST)
                    .args(["ls-files", "--stage", "-z"]),
            )
            .await?;
        if output.stdout.truncated {
            return Err(GitError::other(
                doing,
                "there are too many files to list, so submodules may be missed",
            ));
        }
        let links = output
            .stdout
            .bytes
            .split(|byte| *byte == 0)
            .filter(|line| line.starts_with(b"160000 "));
        let name = |line: &[u8]| {
            line.iter()
                .position(|byte| *byte == b'\t')
                .and_then(|tab| path_of(&line[tab + 1..]))
        };
        for path in links.filter_map(name) {
            let dir = empty_way(dir, &path).map_err(GitError::from_io(doing))?;
            if dir.exists() {
                // The committed files of a submodule are known only when it is placed again.
                swept(dir, Committed::default())
                    .await
                    .map_err(GitError::from_io(doing))?;
            }
        }
        Ok(())
    }

    /// Returns the files of the previous commit of a submodule.
    async fn committed_there(&self, submodule: &Submodule, old: Option<&str>) -> Committed {
        let Some(old) = old.and_then(|old| CommitSha::new(old).ok()) else {
            return Committed::default();
        };
        let repository = self.at(submodule.dir.clone());
        repository
            .committed_in(repository.git(), old.as_str())
            .await
    }

    async fn write_files(
        &self,
        doing: &str,
        admin: &Path,
        dir: &Path,
        one: &Submodule,
    ) -> Result<(), GitError> {
        let (index, repository) = (admin.join(INDEX), self.at(one.dir.clone()));
        remove_all(&index).map_err(GitError::from_io(doing))?;
        let git = || -> Cmd {
            repository
                .git()
                .env("GIT_INDEX_FILE", &index)
                .env("GIT_WORK_TREE", dir)
                .dir(dir)
        };
        repository
            .run(doing, git().args(["read-tree", one.commit.as_str()]))
            .await?;
        repository
            .run(
                doing,
                git().args(["checkout-index", "--all", "--force", "--quiet"]),
            )
            .await?;
        repository
            .check_tree(
                doing,
                (git(), dir),
                &KnownFiles::none(),
                &one.commit,
                &Extent::Whole,
            )
            .await?;
        remove_all(&index).map_err(GitError::from_io(doing))
    }
}

/// Removes everything from a directory except the files that stay when a checkout moves to another commit.
async fn swept(dir: PathBuf, committed: Committed) -> io::Result<()> {
    run_blocking(move || kept::sweep(&dir, &committed))
        .await
        .flatten()
}

fn read_note(file: &Path) -> BTreeMap<RepoPath, String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(commit, path)| Some((path.parse().ok()?, commit.to_owned())))
        .collect()
}

/// Returns the path of a submodule. Removes links and files on the way to it: a link of a run could lead out of the
/// checkout.
fn empty_way(root: &Path, path: &RepoPath) -> io::Result<PathBuf> {
    let mut dir = root.to_owned();
    for part in path.as_str().split('/') {
        dir.push(part);
        match dir.symlink_metadata() {
            Ok(meta) if !meta.is_dir() => fs::remove_file(&dir)?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(dir)
}
