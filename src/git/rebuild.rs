//! Replacing a mirror by a fresh clone.
//!
//! The need: a mirror whose objects are damaged or missing cannot be mended by fetching, because git tells the server
//! that it has them. The clone is made in a directory beside, looked at as a whole, and takes the place of the old one in
//! one step; until then the old one serves whatever it still can. Checkouts belong to the mirror they were made from: they
//! are noticed not to be whole, and made anew, when they are next prepared. So nothing changes places while a run is under
//! way. If one takes too long, the clone is thrown away and made again with the next attempt.

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
use crate::process::{Hold, HoldError};

/// How often a fresh mirror looks whether runs still use the old one.
const EVERY: Duration = Duration::from_millis(50);

impl Mirror {
    /// Makes the mirror anew beside the old one and puts it in its place when everything in it is there.
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
        format!("make the mirror of {} anew", self.repo)
    }

    /// Puts what is fetched into an empty mirror in the place of this one, if all of it came and is whole. Needs the mutex
    /// `transfer`.
    pub(super) async fn replace<T>(
        &self,
        fetch: impl AsyncFnOnce(&Self) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        self.clear_leftovers()?;
        let beside = place::beside(self.dir());
        let fresh = self.at(beside.clone());
        let made = async {
            let fetched = fetch(&fresh).await?;
            fresh.connected().await?;
            self.switch(&beside).await.map(|()| fetched)
        };
        let made = made.await;
        // After the switch that is the old mirror, otherwise the clone that is of no use.
        remove_all(&beside).map_err(GitError::from_io(self.rebuilding()))?;
        made
    }

    async fn switch(&self, beside: &Path) -> Result<(), GitError> {
        let _alone = self.without_runs().await?;
        let _writer = self.locks.writer.lock().await;
        // The time of the last use goes along: being made anew is no use.
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

    /// Waits until no run is under way in a checkout of the mirror, and keeps others from beginning.
    async fn without_runs(&self) -> Result<(RwLockWriteGuard<'_, ()>, Vec<Hold>), GitError> {
        let (end, mut has_told) = (Instant::now() + self.settings.hold_wait, false);
        loop {
            if let Ok(alone) = self.locks.runs.try_write()
                && let Some(holds) = self.holds_of_all().await?
            {
                return Ok((alone, holds));
            }
            if Instant::now() >= end {
                let message = format!(
                    "runs still use the old copy (waited {} seconds); it is replaced when they have ended",
                    self.settings.hold_wait.as_secs()
                );
                return Err(GitError::Busy {
                    doing: self.rebuilding(),
                    message,
                });
            }
            if !has_told {
                info!(repo = %self.repo, "A fresh mirror waits for runs that use the old one");
                has_told = true;
            }
            sleep(EVERY).await;
        }
    }

    /// The holds of all checkouts; `None`: a run has one. It may be of a server that is gone.
    async fn holds_of_all(&self) -> Result<Option<Vec<Hold>>, GitError> {
        let mut all = Vec::new();
        let pulls = fs::read_dir(place::pulls(&self.settings.data_dir, &self.repo));
        for pull in pulls.into_iter().flatten().flatten() {
            for file in fs::read_dir(pull.path().join(place::HOLDS))
                .into_iter()
                .flatten()
                .flatten()
            {
                match Hold::exclusive(&file.path(), Duration::ZERO).await {
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

    /// Removes what killed processes left beside the mirror and in its packs. Needs the mutex `transfer`.
    pub(super) fn clear_leftovers(&self) -> Result<(), GitError> {
        let (beside, replaced) = (place::beside(self.dir()), place::replaced(self.dir()));
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

/// Puts the new directory where the old one is; where the file system can, both change places in one step. Otherwise the
/// old one steps aside first, and `clear_leftovers` brings it back when we are killed in between.
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
