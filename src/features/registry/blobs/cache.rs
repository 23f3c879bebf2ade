//! Copies of packages of an object store, in the directory `cached` of a server.
//!
//! A copy gets its name when its bytes are known to have this SHA-256, so it is served without a look at the store. The disk
//! may have changed since, so each process verifies a copy of another one before it opens it for the first time. Copies
//! that nobody has requested for the longest time are removed when there are too many. A takedown removes the copy
//! of its server at once, and [`PackageCache::kept`] lets the others find theirs.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use tracing::warn;

use super::{BlobError, StagedBlob, file_error, hash_file};
use crate::model::Sha256Digest;

/// Directory of the copies.
pub(super) const CACHED: &str = "cached";

/// Part of the limits that is free after copies were removed, so that not each new one removes another.
const FREED: u64 = 8;

/// Maximum size of all copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    pub bytes: u64,
    pub files: u64,
}

impl CacheLimits {
    pub const USUAL: Self = Self {
        bytes: 4 << 30,
        files: 20_000,
    };
}

/// Copies that this process has added since it last counted all of them.
#[derive(Debug, Default)]
struct UncountedCopies {
    bytes: u64,
    files: u64,
}

#[derive(Debug)]
pub(super) struct PackageCache {
    dir: PathBuf,
    limits: CacheLimits,
    /// `None` before the first count.
    uncounted: Mutex<Option<UncountedCopies>>,
    /// Copies that this process has verified.
    verified: Mutex<HashSet<Sha256Digest>>,
}

/// A copy with its place in the order of removal.
struct CachedFile {
    used: SystemTime,
    size: u64,
    path: PathBuf,
}

impl PackageCache {
    pub fn new(dir: PathBuf, limits: CacheLimits) -> Self {
        Self {
            dir,
            limits,
            uncounted: Mutex::default(),
            verified: Mutex::default(),
        }
    }

    /// Opens a copy, and marks it as used. One that is damaged is removed, also if it only has another size than it
    /// should have. Waits for the disk.
    pub fn open(
        &self,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<Option<File>, BlobError> {
        let path = self.path(digest);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(file_error(&path, source)),
        };
        let found = file.metadata().map(|meta| meta.len()).ok();
        let has_size = size.is_none() || size == found;
        if !has_size || !self.is_verified(digest) {
            let failed = |source| file_error(&path, source);
            let (found, _) = hash_file(&mut file).map_err(failed)?;
            if found != *digest {
                warn!(path = %path.display(), "Removes a copy of a package that is damaged");
                self.remove(digest)?;
                return Ok(None);
            }
            file.rewind().map_err(failed)?;
            self.set_verified(digest);
        }
        let now = || Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now(),
            last_modification: now(),
        };
        // A copy without a mark is only removed earlier.
        let _ = futimens(&file, &times);
        Ok(Some(file))
    }

    /// Adds a package, whose digest is that of its bytes. Waits for the disk.
    pub fn add(&self, package: StagedBlob) -> Result<(), BlobError> {
        let StagedBlob { digest, size, path } = package;
        let to = self.path(&digest);
        if let Some(dir) = to.parent() {
            std::fs::create_dir_all(dir).map_err(|source| file_error(dir, source))?;
        }
        path.persist(&to)
            .map_err(|error| file_error(&to, error.error))?;
        self.set_verified(&digest);
        let mut uncounted = self
            .uncounted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(uncounted) = uncounted.as_mut() {
            uncounted.bytes += size;
            uncounted.files += 1;
            let limits = self.limits;
            if uncounted.bytes < limits.bytes / FREED && uncounted.files < limits.files / FREED {
                return Ok(());
            }
        }
        // The copy is there, so readers need not fail.
        match self.trim() {
            Ok(()) => *uncounted = Some(UncountedCopies::default()),
            Err(error) => {
                warn!(dir = %self.dir.display(), %error, "Cannot remove old copies of packages");
            }
        }
        Ok(())
    }

    /// Returns true if this process has verified a copy, so that it is opened without reading it.
    pub fn is_verified(&self, digest: &Sha256Digest) -> bool {
        let verified = self.verified.lock();
        let verified = verified.unwrap_or_else(PoisonError::into_inner);
        verified.contains(digest)
    }

    fn set_verified(&self, digest: &Sha256Digest) {
        let verified = self.verified.lock();
        let mut verified = verified.unwrap_or_else(PoisonError::into_inner);
        // Most of them made room for others. Those that did not are verified once more.
        if verified.len() as u64 > 2 * self.limits.files {
            verified.clear();
        }
        verified.insert(digest.clone());
    }

    /// Removes a copy. Returns false if there was none.
    pub fn remove(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        let path = self.path(digest);
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(file_error(&path, source)),
        }
    }

    /// Returns the digests of all copies. Waits for the disk.
    pub fn kept(&self) -> Result<Vec<Sha256Digest>, BlobError> {
        let files = self.files();
        let files = files.map_err(|source| file_error(&self.dir, source))?;
        let digest_of = |file: CachedFile| {
            let name = file.path.file_name()?.to_str()?;
            let start = file.path.parent()?.file_name()?.to_str()?;
            format!("{start}{name}").parse().ok()
        };
        Ok(files.into_iter().filter_map(digest_of).collect())
    }

    /// Removes the copies that were not used for the longest time, if there are too many.
    fn trim(&self) -> io::Result<()> {
        let mut files = self.files()?;
        files.sort_unstable_by_key(|file| file.used);
        let mut bytes: u64 = files.iter().map(|file| file.size).sum();
        let mut count = files.len() as u64;
        let CacheLimits {
            bytes: most_bytes,
            files: most_files,
        } = self.limits;
        if bytes <= most_bytes && count <= most_files {
            return Ok(());
        }
        let (most_bytes, most_files) = (
            most_bytes - most_bytes / FREED,
            most_files - most_files / FREED,
        );
        for file in files {
            // The newest one is in use.
            if count <= 1 || (bytes <= most_bytes && count <= most_files) {
                break;
            }
            match std::fs::remove_file(&file.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            bytes -= file.size;
            count -= 1;
        }
        Ok(())
    }

    fn files(&self) -> io::Result<Vec<CachedFile>> {
        let mut files = Vec::new();
        for dir in entries(&self.dir)? {
            for path in entries(&dir)? {
                // Another process may have removed it at this moment.
                if let Ok(meta) = path.metadata() {
                    files.push(CachedFile {
                        used: meta.modified()?,
                        size: meta.len(),
                        path,
                    });
                }
            }
        }
        Ok(files)
    }

    fn path(&self, digest: &Sha256Digest) -> PathBuf {
        let (start, rest) = digest.as_str().split_at(2);
        self.dir.join(start).join(rest)
    }
}

/// Removes all copies. Returns their number.
pub(super) fn remove_all(dir: &Path) -> Result<u64, BlobError> {
    let failed = |source| file_error(dir, source);
    let mut count = 0;
    for dir in entries(dir).map_err(failed)? {
        count += entries(&dir).map_err(failed)?.len() as u64;
    }
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
        Ok(()) | Err(_) => Ok(count),
    }
}

/// Lists a directory, which may be missing.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    use super::*;

    fn add(cache: &PackageCache, content: &[u8]) -> Sha256Digest {
        let write = |file: &mut File| {
            let written = file.write_all(content);
            written.map_err(|source| file_error(Path::new("x"), source))
        };
        let parent = cache.dir.parent().unwrap();
        let ((), staged) = StagedBlob::write_in(parent, write).unwrap();
        let digest = staged.digest.clone();
        cache.add(staged).unwrap();
        digest
    }

    /// Lets a copy be one that nobody has requested for some time.
    fn age(cache: &PackageCache, digest: &Sha256Digest, hours: u64) {
        let path = cache.path(digest);
        let used = path.metadata().unwrap().modified().unwrap();
        let file = File::open(&path).unwrap();
        file.set_modified(used - Duration::from_hours(hours))
            .unwrap();
    }

    #[test]
    fn copies_that_nobody_requests_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let limits = CacheLimits {
            bytes: 30,
            files: 100,
        };
        let cache = PackageCache::new(dir.path().join(CACHED), limits);
        let [one, two, three] = [b"one-123456", b"two-123456", b"three-3456"].map(|content| {
            let digest = add(&cache, content);
            assert!(cache.open(&digest, None).unwrap().is_some());
            digest
        });
        for (digest, hours) in [(&one, 3), (&two, 2), (&three, 1)] {
            age(&cache, digest, hours);
        }
        // Requested again, so another one is the oldest.
        let open = cache.open(&one, None).unwrap().unwrap();
        let four = add(&cache, b"four-23456");
        let mut kept = cache.kept().unwrap();
        kept.sort_by_key(ToString::to_string);
        let mut expected = vec![one.clone(), four.clone()];
        expected.sort_by_key(ToString::to_string);
        assert_eq!(kept, expected);
        for (digest, hours) in [(&one, 2), (&four, 1)] {
            age(&cache, digest, hours);
        }
        // A package larger than all is kept as long as it is the newest one.
        let large = add(&cache, &[7; 100]);
        assert_eq!(cache.kept().unwrap(), std::slice::from_ref(&large));
        assert_eq!(open.metadata().unwrap().len(), 10);
        assert!(cache.remove(&large).unwrap());
        assert!(!cache.remove(&large).unwrap());
        assert!(cache.open(&large, None).unwrap().is_none());
    }

    #[test]
    fn a_copy_that_changes_on_the_disk_is_removed_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PackageCache::new(dir.path().join(CACHED), CacheLimits::USUAL);
        let cache = open();
        let [one, two] = [b"package-1", b"package-2"].map(|content| add(&cache, content));
        std::fs::write(cache.path(&one), "package-x").unwrap();
        let next = open();
        assert!(next.open(&one, None).unwrap().is_none());
        let mut content = String::new();
        let mut file = next.open(&two, None).unwrap().unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "package-2");
        // Cut off while the process runs.
        assert!(next.open(&two, Some(9)).unwrap().is_some());
        std::fs::write(next.path(&two), "pack").unwrap();
        assert!(next.open(&two, Some(9)).unwrap().is_none());
        let two = add(&next, b"package-2");
        assert_eq!(next.kept().unwrap(), [two]);
        assert_eq!(remove_all(&dir.path().join(CACHED)).unwrap(), 1);
        assert_eq!(remove_all(&dir.path().join(CACHED)).unwrap(), 0);
    }

    #[test]
    fn small_copies_are_limited_in_number() {
        let dir = tempfile::tempdir().unwrap();
        let limits = CacheLimits {
            bytes: 1 << 20,
            files: 8,
        };
        let cache = PackageCache::new(dir.path().join(CACHED), limits);
        for number in 0..40_u64 {
            let digest = add(&cache, number.to_string().as_bytes());
            age(&cache, &digest, 100 - number);
            assert!(cache.kept().unwrap().len() <= 9, "{number}");
        }
    }
}
