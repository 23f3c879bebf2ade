//! Replaces a mirror by a fresh clone.
//!
//! The need: fetching cannot fix a mirror with damaged or missing objects, because git tells the server that it has
//! them. The clone is made in a directory beside the mirror and checked as a whole. It then replaces the old mirror
//! in one step; until then the old mirror stays readable. A checkout belongs to the mirror it was made from. The next
//! preparation finds that it is not whole and creates it again. So the mirrors are not switched while a run is under
//! way. If a run takes too long, the clone is removed and the next attempt makes another one.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::RwLockWriteGuard;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::mirror::remove_all;
use super::{GitError, Mirror, RefSelection, Remote, Synced, place};
use crate::process::{FileHold, HoldError};

/// Interval at which a fresh mirror checks for runs that use the old one.
const EVERY: Duration = Duration::from_millis(50);

impl Mirror {
    /// Clones the mirror again beside the old one and replaces the old one when the clone is complete.
    pub async fn rebuild(
        &self,
        remote: &Remote<'_>,
        wanted: &RefSelection,
    ) -> Result<Synced, GitError> {
        let remote = self.check(&self.rebuilding(), remote)?;
        let _transfer = self.locks.transfer.lock().await;
        self.replace(async |fresh| fresh.sync_once(&remote, wanted).await)
            .await
    }

    fn rebuilding(&self) -> String {
        format!("create the mirror of {} again", self.repo)
    }

    /// Fetches into an empty mirror and replaces this one by it, if everything came and is whole. Needs the mutex
    /// `transfer`.
    pub(super) async fn replace<T>(
        &self,
        fetch: impl AsyncFnOnce(&Self) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        self.clear_leftovers()?;
        let beside = place::replacement_path(self.dir());
        let fresh = self.at(beside.clone());
        let made = async {
            let fetched = fetch(&fresh).await?;
            fresh.connected().await?;
            self.switch(&beside).await.map(|()| fetched)
        };
        let made = made.await;
        // After the switch, this path is the old mirror; otherwise it is the unusable clone.
        remove_all(&beside).map_err(GitError::from_io(self.rebuilding()))?;
        made
    }

    async fn switch(&self, beside: &Path) -> Result<(), GitError> {
        // Before the runs are kept out: writing a spare checkout takes seconds.
        let _spare = self.locks.spare.lock().await;
        let _alone = self.without_runs().await?;
        let _writer = self.locks.writer.lock().await;
        // The time of the last use is copied, because a rebuild is no use.
        if let Ok(used) =
            fs::metadata(self.dir().join(place::USED)).and_then(|meta| meta.modified())
        {
            let file =
                fs::File::create(beside.join(place::USED)).and_then(|file| file.set_modified(used));
            file.map_err(GitError::from_io(self.rebuilding()))?;
        }
        put_in_place(beside, self.dir()).map_err(GitError::from_io(self.rebuilding()))?;
        self.locks.replaced.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Waits until no run is under way in a checkout of the mirror, and prevents new runs from beginning.
    async fn without_runs(&self) -> Result<(RwLockWriteGuard<'_, ()>, Vec<FileHold>), GitError> {
        let (end, mut has_told) = (Instant::now() + self.settings.hold_wait, false);
        loop {
            if let Ok(alone) = self.locks.runs.try_write()
                && let Some(holds) = self.holds_of_all().await?
            {
                return Ok((alone, holds));
            }
            if Instant::now() >= end {
                let message = format!(
                    "runs still use the old mirror (waited {} seconds); it is replaced when they have ended",
                    self.settings.hold_wait.as_secs()
                );
                return Err(GitError::Busy {
                    doing: self.rebuilding(),
                    message,
                });
            }
            if !has_told {
                info!(repo = %self.repo, "A new mirror waits for runs that use the old one");
                has_told = true;
            }
            sleep(EVERY).await;
        }
    }

    /// Returns the holds of all checkouts, or `None` if a run has one. The run may be of a server that has ended.
    async fn holds_of_all(&self) -> Result<Option<Vec<FileHold>>, GitError> {
        let mut all = Vec::new();
        let pulls = fs::read_dir(place::pulls(&self.settings.data_dir, &self.repo));
        for pull in pulls.into_iter().flatten().flatten() {
            for file in fs::read_dir(pull.path().join(place::HOLDS))
                .into_iter()
                .flatten()
                .flatten()
            {
                match FileHold::exclusive(&file.path(), Duration::ZERO).await {
                    Ok(hold) => all.push(hold),
                    Err(HoldError::Busy { .. }) => return Ok(None),
                    Err(error @ HoldError::Io { .. }) => {
                        return Err(GitError::from_hold(self.rebuilding(), error));
                    }
                }
            }
        }
        Ok(Some(all))
    }

    /// Removes the remains of killed processes beside the mirror and in its packs. Needs the mutex `transfer`.
    pub(super) fn clear_leftovers(&self) -> Result<(), GitError> {
        let (beside, replaced) = (
            place::replacement_path(self.dir()),
            place::replaced(self.dir()),
        );
        let cleared = if self.dir().exists() || !replaced.exists() {
            remove_all(&replaced)
        } else {
            fs::rename(&replaced, self.dir())
        };
        let cleared = cleared
            .and_then(|()| remove_all(&beside))
            .and_then(|()| self.clear_unfinished_packs());
        cleared.map_err(GitError::from_io(self.rebuilding()))
    }
}

/// Puts the new directory in place of the old one. Where the file system can, it exchanges both in one step.
/// Otherwise it first moves the old one aside; after a kill in between, `clear_leftovers` restores it.
fn put_in_place(new: &Path, old: &Path) -> io::Result<()> {
    if !old.exists() {
        return fs::rename(new, old);
    }
    if exchange(new, old).is_ok() {
        return Ok(());
    }
    let aside = place::replaced(old);
    fs::rename(old, &aside)?;
    fs::rename(new, old)?;
    remove_all(&aside)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).map_err(io::Error::from)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_one_takes_the_place_of_the_old_one() {
        for exists in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let (new, old) = (dir.path().join("x.git.new~"), dir.path().join("x.git"));
            fs::create_dir(&new).unwrap();
            fs::write(new.join("new"), "").unwrap();
            if exists {
                fs::create_dir(&old).unwrap();
            }
            put_in_place(&new, &old).unwrap();
            assert!(old.join("new").exists() && !new.join("new").exists());
            assert!(!place::replaced(&old).exists());
        }
    }
}
