//! Remembers what this process has verified of its checkouts, so that unchanged files are not written or hashed again.
//!
//! Runs write into checkouts, and without a sandbox also into mirrors, so nothing on the disk can vouch for a checkout.
//! The memory of the server can: it has the digest of each index as git left it, and of each file the identity that it
//! had when its content was compared with the commit.
//!
//! A file whose identity has not changed has the same content: a write changes its `ctime`, and only the kernel sets
//! that. A write in the same tick of the clock as the recorded one would go unnoticed, so files that changed just
//! before the comparison are not remembered (the same problem as that of git's index: *racily clean* entries).

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::plain_file;

/// Maximum number of remembered checkouts of a process.
const MAX_CHECKOUTS: usize = 256;
/// Maximum number of remembered files, which need 16 bytes each and some for the table.
const MAX_FILES: usize = 500_000;
/// Minimum age of a file's last change, in nanoseconds, on a file system with fine timestamps. The clock of the kernel
/// ticks every 10 ms or faster.
const SETTLED: i128 = 100_000_000;
/// The same on a file system that records whole seconds.
const SETTLED_COARSE: i128 = 2_000_000_000;
/// Maximum size of an index in bytes; a larger one is created again.
const MAX_INDEX: u64 = 256 << 20;
/// File in the directory of a worktree that shows the time of its file system.
const CLOCK: &str = "lockkeeper-clock";

/// Checkouts that this process has verified, by their directory.
#[derive(Debug, Default)]
pub(super) struct KnownCheckouts(Mutex<HashMap<PathBuf, KnownCheckout>>);

#[derive(Debug)]
struct KnownCheckout {
    index: Option<[u8; 32]>,
    files: Arc<VerifiedFiles>,
}

impl KnownCheckouts {
    /// Returns the files of a checkout that have been verified.
    pub(super) fn files(&self, dir: &Path) -> Arc<VerifiedFiles> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(dir)
            .map(|known| Arc::clone(&known.files))
            .unwrap_or_default()
    }

    /// Returns true if the index of a worktree is the one that git left when the checkout was verified.
    pub(super) fn has_index(&self, dir: &Path, admin: &Path) -> bool {
        let left = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(dir).and_then(|known| known.index)
        };
        left.is_some_and(|left| digest(&admin.join("index")).is_ok_and(|now| now == left))
    }

    /// Remembers the files and the index of a checkout that git has just written.
    pub(super) fn remember_written(&self, dir: &Path, admin: &Path, files: VerifiedFiles) {
        let index = digest(&admin.join("index")).ok();
        self.put(dir, index, files);
    }

    /// Remembers the files of a checkout that was left alone. A run may have changed its index since git wrote it.
    pub(super) fn remember_files(&self, dir: &Path, files: VerifiedFiles) {
        let index = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(dir).and_then(|known| known.index)
        };
        self.put(dir, index, files);
    }

    /// Moves what is known of a checkout, because its directory was renamed.
    pub(super) fn rename(&self, from: &Path, to: &Path) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(checkout) = known.remove(from) {
            known.insert(to.to_owned(), checkout);
        }
    }

    fn put(&self, dir: &Path, index: Option<[u8; 32]>, files: VerifiedFiles) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(dir);
        let others: usize = known.values().map(|known| known.files.0.len()).sum();
        if known.len() >= MAX_CHECKOUTS || others + files.0.len() > MAX_FILES {
            known.clear();
        }
        if files.0.len() <= MAX_FILES {
            let files = Arc::new(files);
            known.insert(dir.to_owned(), KnownCheckout { index, files });
        }
    }

    /// Forgets the index of a checkout, because git is about to change it. Until the files are verified again, another
    /// index is created.
    pub(super) fn forget_index(&self, dir: &Path) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(dir) {
            known.index = None;
        }
    }
}

/// Files whose content was compared with an object, each as a digest of path, object and identity.
#[derive(Debug, Default)]
pub(super) struct VerifiedFiles(HashSet<[u8; 16]>);

impl VerifiedFiles {
    /// Returns true if a file was verified against this object and has not changed since.
    pub(super) fn has(&self, path: &Path, object: &str, meta: &Metadata) -> bool {
        self.0.contains(&identity(path, object, meta))
    }

    /// Remembers a file, unless it changed so shortly before `clock` that another change could look the same. `meta`
    /// must have been read before the content.
    pub(super) fn insert(&mut self, path: &Path, object: &str, meta: &Metadata, clock: FileClock) {
        if clock.0 - changed_at(meta) >= clock.settled() {
            self.0.insert(identity(path, object, meta));
        }
    }
}

/// Time of a file system, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileClock(i128);

impl FileClock {
    /// Reads the time of the file system that has the directory of a worktree. Another machine may keep that time.
    pub(super) fn of(admin: &Path) -> io::Result<Self> {
        let path = admin.join(CLOCK);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self(changed_at(&File::create_new(&path)?.metadata()?)))
    }

    fn settled(self) -> i128 {
        if self.0 % 1_000_000_000 == 0 {
            SETTLED_COARSE
        } else {
            SETTLED
        }
    }
}

fn changed_at(meta: &Metadata) -> i128 {
    i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec())
}

fn identity(path: &Path, object: &str, meta: &Metadata) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(path.as_os_str().as_bytes());
    hash.update([0]);
    hash.update(object.as_bytes());
    for number in [meta.dev(), meta.ino(), meta.size(), u64::from(meta.mode())] {
        hash.update(number.to_le_bytes());
    }
    for number in [
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ] {
        hash.update(number.to_le_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

/// Hashes an index. A run may have put anything in its place, such as a pipe, which would never end.
fn digest(path: &Path) -> io::Result<[u8; 32]> {
    let file = plain_file::open(path)?.ok_or(io::ErrorKind::NotFound)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    let mut file = file.take(MAX_INDEX);
    loop {
        match file.read(&mut buffer)? {
            0 if file.limit() == 0 => return Err(io::Error::other("the index is too large")),
            0 => return Ok(hash.finalize().into()),
            many => hash.update(&buffer[..many]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = "5626abf0f72e58d7a153368ba57db4c673c0e171";

    #[test]
    fn a_file_is_known_until_anything_about_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("main.tf");
        fs::write(&path, "one").unwrap();
        let meta = fs::metadata(&path).unwrap();
        let late = FileClock(changed_at(&meta) + SETTLED_COARSE);
        let mut files = VerifiedFiles::default();
        files.insert(Path::new("main.tf"), OBJECT, &meta, late);
        assert!(files.has(Path::new("main.tf"), OBJECT, &meta));
        assert!(!files.has(Path::new("other.tf"), OBJECT, &meta));
        assert!(!files.has(Path::new("main.tf"), &OBJECT.replace('5', "6"), &meta));
        // The same size, and the old time of its last change: only `ctime` tells.
        fs::write(&path, "two").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(meta.modified().unwrap()).unwrap();
        let forged = fs::metadata(&path).unwrap();
        assert_eq!(forged.modified().unwrap(), meta.modified().unwrap());
        if changed_at(&forged) != changed_at(&meta) {
            assert!(!files.has(Path::new("main.tf"), OBJECT, &forged));
        }
    }

    #[test]
    fn a_file_that_changed_just_now_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("main.tf");
        fs::write(&path, "one").unwrap();
        let meta = fs::metadata(&path).unwrap();
        let at = changed_at(&meta);
        let remembered = |clock: i128| {
            let mut files = VerifiedFiles::default();
            files.insert(Path::new("main.tf"), OBJECT, &meta, FileClock(clock));
            files.has(Path::new("main.tf"), OBJECT, &meta)
        };
        // Neither time ends with a whole second.
        let fine = |time: i128| {
            if time % 1_000_000_000 == 0 {
                time + 1
            } else {
                time
            }
        };
        assert!(!remembered(fine(at + SETTLED - 2)));
        assert!(remembered(fine(at + SETTLED)));
        let whole = (at / 1_000_000_000 + 1) * 1_000_000_000;
        assert!(!remembered(whole));
        assert!(remembered(whole + SETTLED_COARSE));
    }

    #[test]
    fn an_index_is_ours_until_something_else_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let (checkout, admin) = (Path::new("/checkout"), dir.path());
        let known = KnownCheckouts::default();
        assert!(!known.has_index(checkout, admin));
        fs::write(admin.join("index"), "as git left it").unwrap();
        known.remember_written(checkout, admin, VerifiedFiles::default());
        assert!(known.has_index(checkout, admin));
        fs::write(admin.join("index"), "with flags").unwrap();
        assert!(!known.has_index(checkout, admin));
        known.remember_files(checkout, VerifiedFiles::default());
        assert!(
            !known.has_index(checkout, admin),
            "a foreign index is not adopted"
        );
        fs::remove_file(admin.join("index")).unwrap();
        nix::unistd::mkfifo(&admin.join("index"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(
            !known.has_index(checkout, admin),
            "a pipe is not waited for"
        );
        fs::remove_file(admin.join("index")).unwrap();
        fs::write(admin.join("index"), "as git left it").unwrap();
        assert!(known.has_index(checkout, admin));
        known.forget_index(checkout);
        assert!(!known.has_index(checkout, admin));
    }
}
