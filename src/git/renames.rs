//! Moves the files of a repository on this disk when it gets another name.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::disk::run_blocking;
use super::mirror::{make_dir, remove_all};
use super::{Git, GitError, place};
use crate::model::RepoId;
use crate::process::{FileHold, HoldError};

impl Git {
    /// Returns true if this disk has a mirror or checkouts under the name of a repository.
    pub fn has(&self, repo: &RepoId) -> bool {
        let data_dir = &self.settings.data_dir;
        [place::mirror(data_dir, repo), place::pulls(data_dir, repo)]
            .iter()
            .any(|dir| dir.exists())
    }

    /// Moves the mirror and the checkouts of a repository to the directories of its new name. If the new name already
    /// has a mirror, that one stays and the old one is removed. An existing directory of checkouts stays, too, and
    /// the old one is left in place. Checkouts moved to another mirror are created again when they are next prepared,
    /// and their local states are kept.
    ///
    /// Returns true if something was moved or removed. While a run uses a checkout, nothing is. The caller must ensure that nothing begins to use
    /// either name.
    pub async fn rename(&self, old: &RepoId, new: &RepoId) -> Result<bool, GitError> {
        let doing = format!("move the mirror and the checkouts of {old} to {new}");
        let data_dir = self.settings.data_dir.clone();
        let (from, to) = (place::pulls(&data_dir, old), place::pulls(&data_dir, new));
        let mut holds = Vec::new();
        for pull in fs::read_dir(&from).into_iter().flatten().flatten() {
            for file in fs::read_dir(pull.path().join(place::HOLDS))
                .into_iter()
                .flatten()
                .flatten()
            {
                match FileHold::exclusive(&file.path(), Duration::ZERO).await {
                    Ok(hold) => holds.push(hold),
                    Err(HoldError::Busy { .. }) => return Ok(false),
                    Err(error @ HoldError::Io { .. }) => {
                        return Err(GitError::from_hold(&doing, error));
                    }
                }
            }
        }
        let (old, new) = (self.mirror(old), self.mirror(new));
        let _transfers = (
            old.locks.transfer.lock().await,
            new.locks.transfer.lock().await,
        );
        let _writers = (old.locks.writer.lock().await, new.locks.writer.lock().await);
        let (old_dir, new_dir) = (old.dir().to_owned(), new.dir().to_owned());
        let moved = run_blocking(move || {
            let mut is_changed = false;
            for entry in fs::read_dir(&from).into_iter().flatten().flatten() {
                is_changed |= put(&entry.path(), &to.join(entry.file_name()))?;
            }
            fs::remove_dir(&from).ok();
            for (old, new) in [
                (place::replacement_path(&old_dir), None),
                (place::replaced(&old_dir), None),
                (old_dir, Some(new_dir)),
            ] {
                is_changed |= old.exists();
                match new.filter(|new| !new.exists()) {
                    Some(new) => {
                        put(&old, &new)?;
                    }
                    None => remove_all(&old)?,
                }
            }
            Ok(is_changed)
        });
        moved.await.flatten().map_err(GitError::from_io(doing))
    }
}

/// Renames a directory if it exists and the new name is free. Returns true if it was renamed.
fn put(from: &Path, to: &Path) -> io::Result<bool> {
    if !from.exists() || to.exists() {
        return Ok(false);
    }
    make_dir(to.parent().unwrap_or(to))?;
    fs::rename(from, to).map(|()| true)
}
