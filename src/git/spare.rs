//! Keeps one spare checkout of a large repository, so that the first plan of a pull need not write every file.
//!
//! The spare is a worktree at the base branch, inside the directory of the mirror: it is measured, replaced and removed
//! with the mirror. Lockkeeper alone has written it, and no run has ever used it. A pull that needs a checkout takes
//! the spare: the directory is renamed, and git writes only what differs from the commit of the pull. The server then
//! makes another spare in the background.
//!
//! A checkout of a closed pull would cost no extra disk space, but programs of that pull have run in it. What they left
//! behind, such as hard links to its files or open files, could reach another pull.
//!
//! Only the memory of this process vouches for a spare (`known.rs`), so one that an earlier process left behind is made
//! again. The mutex `spare` covers the directory of the spare. A pull never waits for it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkout::path_line;
use super::disk::{removed, run_blocking};
use super::{Checkout, Extent, GitError, Mirror, place};
use crate::model::CommitSha;

impl Mirror {
    /// Makes the spare checkout for the next pull, if the repository is large and has none. `like` is a checkout of the
    /// repository that was prepared just now. A kill at any time is harmless.
    pub async fn make_spare(&self, like: &Checkout) -> Result<(), GitError> {
        let doing = format!("make a spare checkout of {}", self.repo);
        // Files that a partial mirror lacks come only with the credential of a pull.
        if like.extent != Extent::Whole || self.is_partial() {
            return Ok(());
        }
        if !self
            .is_on_same_filesystem(&like.path)
            .map_err(GitError::from_io(&doing))?
        {
            return Ok(());
        }
        // Another task is making it, or the mirror is being replaced.
        let Ok(_spare) = self.locks.spare.try_lock() else {
            return Ok(());
        };
        let listing = self.commit_listing(&doing, &like.commit).await?;
        if listing.entries.len() < self.settings.spare_from || self.usable_spare().await?.is_some()
        {
            return Ok(());
        }
        let dir = self.spare_dir();
        let made = self.write_spare(&doing, &dir, &like.base).await;
        if made.is_err() {
            removed(&doing, dir).await?;
        }
        made
    }

    async fn write_spare(
        &self,
        doing: &str,
        dir: &Path,
        commit: &CommitSha,
    ) -> Result<(), GitError> {
        removed(doing, dir.to_owned()).await?;
        let admin = {
            // Writing the files takes long, so pulls must not wait for it.
            let _writer = self.locks.writer.lock().await;
            self.register(dir, commit)
                .map_err(GitError::from_io(doing))?
        };
        let (_, git) = self.worktree(doing, dir)?;
        self.run(doing, git.args(["reset", "--hard", "--quiet"]))
            .await?;
        let (_, git) = self.worktree(doing, dir)?;
        let known = self.known_files(dir, &admin);
        let verified = self
            .check_tree(doing, (git, dir), &known, commit, &Extent::Whole)
            .await?;
        self.remember_written(doing, dir, verified).await
    }

    /// Puts the spare in the place of a checkout that does not exist, and moves it to the commit. Returns false if
    /// there is no spare. Needs the mutex `writer`. After an error, the checkout has to be made from nothing.
    pub(super) async fn take_spare(
        &self,
        doing: &str,
        dir: &Path,
        commit: &CommitSha,
    ) -> Result<bool, GitError> {
        let Ok(_spare) = self.locks.spare.try_lock() else {
            return Ok(false);
        };
        let Some(admin) = self.usable_spare().await? else {
            return Ok(false);
        };
        let spare = self.spare_dir();
        rename_worktree(&admin, &spare, dir).map_err(GitError::from_io(doing))?;
        self.locks.known.rename(&spare, dir);
        if self.admin_dir(dir).as_deref() != Some(&*admin) {
            return Err(GitError::other(doing, "the spare checkout is not complete"));
        }
        let git = || {
            self.git()
                .env("GIT_DIR", &admin)
                .env("GIT_WORK_TREE", dir)
                .dir(dir)
        };
        self.locks.known.forget_index(dir);
        let checkout = git().args(["checkout", "--quiet", "--force", "--detach"]);
        self.run(doing, checkout.arg(commit.as_str())).await?;
        // Nothing else should be there. Without a sandbox, a run could have put it there.
        self.run(doing, git().args(["clean", "--quiet", "-ffdx"]))
            .await?;
        Ok(true)
    }

    /// Returns the directory in the mirror that belongs to the spare, if this process has made the spare and its index
    /// is as git left it.
    async fn usable_spare(&self) -> Result<Option<PathBuf>, GitError> {
        let dir = self.spare_dir();
        // Without a sandbox, a run could have put a link in its place, and files would be written where it leads.
        if !dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            return Ok(None);
        }
        let Some(admin) = self.admin_dir(&dir) else {
            return Ok(None);
        };
        let (locks, index_of) = (Arc::clone(&self.locks), admin.clone());
        let usable = run_blocking(move || locks.known.has_index(&dir, &index_of)).await;
        let usable = usable.map_err(GitError::from_io("read the spare checkout"))?;
        Ok(usable.then_some(admin))
    }

    /// Returns true if a checkout is on the same file system as the mirror. Otherwise no spare can be renamed to it.
    fn is_on_same_filesystem(&self, checkout: &Path) -> std::io::Result<bool> {
        Ok(fs::metadata(self.dir())?.dev() == fs::metadata(checkout)?.dev())
    }

    fn spare_dir(&self) -> PathBuf {
        self.dir().join(place::SPARE)
    }
}

/// Renames the directory of a worktree, which must be on the same file system, and tells its record.
fn rename_worktree(admin: &Path, from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::rename(from, to)?;
    let link = to.canonicalize()?.join(".git");
    fs::write(admin.join("gitdir"), path_line(&link))
}
