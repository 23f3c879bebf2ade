//! Making room: what packages take on this disk, and the removal of those that nobody needs.
//!
//! A package is needed while a session has a link to it, and while a link in a checkout leads to it: an apply goes through
//! the links that the `init` of the plan has made, perhaps weeks later. So packages go after the checkouts that use them.

use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use chrono::{DateTime, Utc};

use super::store::{PackagePath, Store, packages};
use super::{ProviderCache, hash, on_disk};

/// A package that takes room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageUse {
    /// Which one.
    pub package: PackagePath,
    /// Bytes on disk.
    pub bytes: u64,
    /// When an `init` used it last.
    pub used_at: DateTime<Utc>,
}

/// The packages that links on this disk lead to.
#[derive(Debug)]
pub struct Linked {
    packages: HashSet<PackagePath>,
    /// Number of the look-around.
    look: u64,
}

impl ProviderCache {
    /// All packages, counted.
    pub async fn disk_use(&self) -> Result<Vec<PackageUse>> {
        let store = self.store.clone();
        on_disk(move || store.counted()).await
    }

    /// Looks at all links in checkouts, and in what sessions left behind that a dead server had begun.
    pub async fn look_around(&self) -> Result<Linked> {
        let cache = self.clone();
        on_disk(move || {
            let look = cache.store.uses.lock().look_around();
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

    /// Removes a package, unless it is needed: then nothing is done and `false` returned.
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

impl Store {
    fn counted(&self) -> Result<Vec<PackageUse>> {
        let count = |package: PackagePath| {
            let dir = self.path_of(&package);
            let size = |file: &Path| {
                file.symlink_metadata()
                    .map_or(0, |meta| meta.blocks() * 512)
            };
            // What vanishes meanwhile, or is no package, takes nothing.
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
        Ok(packages(self.dir())?.into_iter().map(count).collect())
    }

    /// Takes a package out of its place at once; it goes with `grave`. A package is not there any more as soon as its
    /// checksum is gone.
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

    /// Directories of versions, names and so on in which nothing is any more.
    fn remove_empty_above(&self, package: &PackagePath) {
        let path = self.path_of(package);
        let above = path
            .ancestors()
            .skip(1)
            .take_while(|dir| *dir != self.dir());
        // The first one with something in it stays, and so do those above it.
        above
            .map(fs::remove_dir)
            .take_while(Result::is_ok)
            .for_each(drop);
    }
}

/// Links are not followed; what cannot be read, or vanishes meanwhile, links to nothing.
fn links_below(top: &Path, store: &Store, found: &mut HashSet<PackagePath>) {
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
