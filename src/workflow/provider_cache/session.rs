//! Prepares the cache directory before an `init` and keeps its packages afterwards.

use std::fs;
use std::io::Result;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use tracing::warn;

use super::super::file_owner::{allow_search, copy_files, make_readable};
use super::super::inside::open_dir;
use super::super::lock_file::LockFile;
use super::super::running::ProgramObserver;
use super::CacheSession;
use super::store::PackagePath;

/// Mirror that the project directory brings itself. Both tools look there by default.
const OWN_MIRROR: &str = "terraform.d/plugins";

impl CacheSession {
    /// Links to the packages of the store that the `init` will use unchanged.
    pub(super) fn lay_out(&mut self) -> Result<()> {
        // Afterwards it may be gone.
        self.brings_its_own = self.place.dir.join(OWN_MIRROR).symlink_metadata().is_ok();
        let lock = self
            .place
            .lock_file_tracked
            .then(|| LockFile::read(&self.place.dir).unwrap_or_default());
        let mut uses = self.store.uses.lock();
        for (package, checksum) in self.store.list()? {
            if is_accepted(lock.as_ref(), &package, &checksum) {
                let link = package.below(self.overlay.path());
                fs::create_dir_all(link.parent().unwrap_or(&link))?;
                std::os::unix::fs::symlink(self.store.path_of(&package), link)?;
                self.open_up(&package)?;
                uses.hold(&package);
                self.held.packages.push(package);
            }
        }
        Ok(())
    }

    /// Keeps each package that the project uses, and changes its link to lead to the store.
    pub(super) fn keep(&mut self, now: DateTime<Utc>, programs: &ProgramObserver) -> Result<()> {
        for package in self.links.leading_to(self.overlay.path())? {
            let own = package.below(self.overlay.path());
            let Some(target) = self.target(&package, own, programs)? else {
                self.links.replace(&package, self.overlay.path())?;
                continue;
            };
            let mut uses = self.store.uses.lock();
            self.links.lead(&package, &target)?;
            if let Some(kept) = self.store.package_at(&target) {
                uses.lead_to(&kept);
                self.store.note_use(&kept, now)?;
            }
        }
        Ok(())
    }

    /// Returns the new target for the link of a package; `None` if the package is for this project alone.
    fn target(
        &mut self,
        package: &PackagePath,
        own: PathBuf,
        programs: &ProgramObserver,
    ) -> Result<Option<PathBuf>> {
        if own.is_symlink() {
            // The package is from the store, or from a mirror of the administrator or of the pull request.
            return fs::read_link(own).map(Some);
        }
        if self.brings_its_own || !programs.saw_none() {
            return Ok(None);
        }
        self.held.add(package);
        let is_kept = match self.user {
            None => self.store.take(package, &own),
            Some(_) => self.take_copy(package),
        };
        if let Err(error) = &is_kept {
            warn!(package = %own.display(), %error, "Could not keep a provider package for other projects");
        }
        Ok(is_kept
            .unwrap_or(false)
            .then(|| self.store.path_of(package)))
    }

    fn take_copy(&self, package: &PackagePath) -> Result<bool> {
        let copy =
            tempfile::tempdir_in(self.overlay.path().parent().unwrap_or(self.overlay.path()))?;
        let package_copy = copy.path().join("package");
        copy_files(
            &open_dir(self.overlay.path(), package.path())?,
            &package_copy,
        )?;
        let is_kept = self.store.take(package, &package_copy)?;
        if is_kept {
            self.open_up(package)?;
        }
        Ok(is_kept)
    }

    /// Lets the user of runs read a package of the store.
    fn open_up(&self, package: &PackagePath) -> Result<()> {
        let Some(user) = self.user else { return Ok(()) };
        let path = self.store.path_of(package);
        make_readable(&path)?;
        allow_search(
            self.store.dir().parent().unwrap_or(self.store.dir()),
            &path,
            user,
        )
    }
}

fn is_accepted(lock: Option<&LockFile>, package: &PackagePath, checksum: &str) -> bool {
    let Some(lock) = lock else { return true };
    package
        .provider()
        .is_some_and(|(provider, version)| lock.accepts(&provider, &version, checksum))
}
