//! Frees disk space: measures packages and removes those that are not needed.
//!
//! A package is needed while a session has a link to it, and while a link in a checkout leads to it. An apply follows
//! the links that the `init` of the plan has made, perhaps weeks later. So packages are removed after the checkouts
//! that use them.

use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use chrono::{DateTime, Utc};

use super::store::{PackagePath, PackageStore};
use super::{ProviderCache, hash, on_disk};

/// A package with its disk use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageUse {
    pub package: PackagePath,
    /// Size of the package in bytes.
    pub bytes: u64,
    /// Time when an `init` last used the package.
    pub used_at: DateTime<Utc>,
}

/// Packages that links on this disk lead to.
#[derive(Debug)]
pub struct Linked {
    packages: HashSet<PackagePath>,
    /// Number of the search that found them.
    look: u64,
}

impl ProviderCache {
    /// Lists all packages with their sizes.
    pub async fn disk_use(&self) -> Result<Vec<PackageUse>> {
        let store = self.store.clone();
        on_disk(move || store.counted()).await
    }

    /// Searches for links in checkouts, and in the sessions that a dead server left behind.
    pub async fn scan_links(&self) -> Result<Linked> {
        let cache = self.clone();
        on_disk(move || {
            let look = cache.store.uses.lock().begin_scan();
            let mut found = HashSet::new();
            for top in [&cache.checkouts, &cache.scratch] {
                links_below(top, &cache.store, &mut found);
            }
            Ok(Linked {
                packages: found,
                look,
            })
        })
        .await
    }

    /// Removes a package. Returns `false` and does nothing if the package is needed.
    pub async fn evict(&self, package: &PackagePath, linked: &Linked) -> Result<bool> {
        if linked.packages.contains(package) {
            return Ok(false);
        }
        let (cache, package, look) = (self.clone(), package.clone(), linked.look);
        on_disk(move || {
            fs::create_dir_all(&cache.scratch)?;
            let grave = tempfile::Builder::new()
                .prefix("gone-")
                .tempdir_in(&cache.scratch)?;
            cache
                .store
                .remove(&package, look, &grave.path().join("package"))
        })
        .await
    }
}

impl PackageStore {
    fn counted(&self) -> Result<Vec<PackageUse>> {
        let count = |package: PackagePath| {
            let dir = self.path_of(&package);
            let size = |file: &Path| {
                file.symlink_metadata()
                    .map_or(0, |meta| meta.blocks() * 512)
            };
            // A directory that vanishes meanwhile, or that is no package, counts as 0 bytes.
            let bytes = hash::files(&dir)
                .unwrap_or_default()
                .iter()
                .map(|file| size(file))
                .sum();
            PackageUse {
                bytes,
                used_at: self.used_at(&package),
                package,
            }
        };
        Ok(self.packages()?.into_iter().map(count).collect())
    }

    /// Moves a package out of the store with one rename; the caller removes it with `grave`. The package counts as
    /// absent as soon as its checksum is removed.
    fn remove(&self, package: &PackagePath, look: u64, grave: &Path) -> Result<bool> {
        let uses = self.uses.lock();
        if uses.is_needed(package, look) {
            return Ok(false);
        }
        for file in [self.checksum_file(package), self.used_file(package)] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(self.path_of(package), grave)?;
        self.remove_empty_above(package);
        Ok(true)
    }

    /// Removes the directories of versions, types and so on that have become empty.
    fn remove_empty_above(&self, package: &PackagePath) {
        let path = self.path_of(package);
        let above = path
            .ancestors()
            .skip(1)
            .take_while(|dir| *dir != self.dir());
        // The first directory that is not empty stays, and so do those above it.
        above
            .map(fs::remove_dir)
            .take_while(Result::is_ok)
            .for_each(drop);
    }
}

/// Collects the packages that links below `top` lead to, without following links. Entries that cannot be read, or
/// that vanish meanwhile, are skipped.
fn links_below(top: &Path, store: &PackageStore, found: &mut HashSet<PackagePath>) {
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => todo.push(entry.path()),
                Ok(kind) if kind.is_symlink() => {
                    let target = fs::read_link(entry.path()).ok();
                    found.extend(target.and_then(|target| store.package_at(&target)));
                }
                _ => {}
            }
        }
    }
}
