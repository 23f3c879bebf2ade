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
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

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

/// Checkouts that this process has verified. Those used least recently make room for others.
#[derive(Debug, Default)]
pub(super) struct KnownCheckouts(Mutex<RecentCheckouts>);

#[derive(Debug, Default)]
struct RecentCheckouts {
    by_dir: HashMap<PathBuf, KnownCheckout>,
    uses: u64,
}

#[derive(Debug)]
struct KnownCheckout {
    index: Option<[u8; 32]>,
    files: Arc<VerifiedFiles>,
    /// Number of the last use among those of all checkouts.
    last_use: u64,
}

impl RecentCheckouts {
    fn make_room(&mut self, max_checkouts: usize, max_files: usize) {
        let mut files: usize = self
            .by_dir
            .values()
            .map(|checkout| checkout.files.0.len())
            .sum();
        while self.by_dir.len() > max_checkouts || files > max_files {
            let oldest = self
                .by_dir
                .iter()
                .min_by_key(|(_, checkout)| checkout.last_use)
                .map(|(dir, _)| dir.clone());
            let Some(forgotten) = oldest.and_then(|dir| self.by_dir.remove(&dir)) else {
                return;
            };
            files -= forgotten.files.0.len();
        }
    }
}

impl KnownCheckouts {
    /// Returns the files of a checkout that have been verified.
    pub(super) fn files(&self, dir: &Path) -> Arc<VerifiedFiles> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.uses += 1;
        let uses = known.uses;
        known
            .by_dir
            .get_mut(dir)
            .map(|checkout| {
                checkout.last_use = uses;
                Arc::clone(&checkout.files)
            })
            .unwrap_or_default()
    }

    /// Returns true if the index of a worktree is the one that git left when the checkout was verified.
    pub(super) fn has_index(&self, dir: &Path, admin: &Path) -> bool {
        let left = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.by_dir.get(dir).and_then(|known| known.index)
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
            known.by_dir.get(dir).and_then(|known| known.index)
        };
        self.put(dir, index, files);
    }

    /// Moves what is known of a checkout, because its directory was renamed.
    pub(super) fn rename(&self, from: &Path, to: &Path) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(checkout) = known.by_dir.remove(from) {
            known.by_dir.insert(to.to_owned(), checkout);
        }
    }

    fn put(&self, dir: &Path, index: Option<[u8; 32]>, files: VerifiedFiles) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_dir.remove(dir);
        // One that is too large on its own must not push out all others.
        if files.0.len() > MAX_FILES {
            return;
        }
        known.uses += 1;
        let checkout = KnownCheckout {
            index,
            files: Arc::new(files),
            last_use: known.uses,
        };
        known.by_dir.insert(dir.to_owned(), checkout);
        known.make_room(MAX_CHECKOUTS, MAX_FILES);
    }

    /// Forgets the index of a checkout, because git is about to change it. Until the files are verified again, another
    /// index is created.
    pub(super) fn forget_index(&self, dir: &Path) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(checkout) = known.by_dir.get_mut(dir) {
            checkout.index = None;
        }
    }
}

/// Files whose content was compared with an object.
#[derive(Debug, Default)]
pub(super) struct VerifiedFiles(HashSet<VerifiedIdentity>);

impl VerifiedFiles {
    /// Returns true if a file was verified against this object and has not changed since.
    pub(super) fn has(&self, file: VerifiedIdentity) -> bool {
        self.0.contains(&file)
    }

    /// Remembers a file, unless it changed so shortly before `clock` that another change could look the same. `meta`
    /// is that of the identity, and must have been read before the content.
    pub(super) fn insert(&mut self, file: VerifiedIdentity, meta: &Metadata, clock: FileClock) {
        if clock.0 - changed_at(meta) >= clock.settled() {
            self.0.insert(file);
        }
    }

    /// Adds the files of another part of the same checkout.
    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

/// Digest of the path of a file, of its object, and of everything that the file system says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct VerifiedIdentity([u64; 2]);

/// Keys of the digests. Nobody can make two files alike without them, and they never leave the process.
static KEYS: LazyLock<[RandomState; 2]> =
    LazyLock::new(|| [RandomState::new(), RandomState::new()]);

impl VerifiedIdentity {
    /// Returns the identity of a file that is compared with an object.
    pub(super) fn of(path: &Path, object: &str, meta: &Metadata) -> Self {
        let file = (
            path.as_os_str(),
            object,
            (meta.dev(), meta.ino(), meta.size(), meta.mode()),
            (meta.mtime(), meta.mtime_nsec()),
            (meta.ctime(), meta.ctime_nsec()),
        );
        let [one, two] = &*KEYS;
        Self([one.hash_one(file), two.hash_one(file)])
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
        let of = |path: &str, object: &str, meta: &Metadata| {
            VerifiedIdentity::of(Path::new(path), object, meta)
        };
        files.insert(of("main.tf", OBJECT, &meta), &meta, late);
        assert!(files.has(of("main.tf", OBJECT, &meta)));
        assert!(!files.has(of("other.tf", OBJECT, &meta)));
        assert!(!files.has(of("main.tf", &OBJECT.replace('5', "6"), &meta)));
        // The same size, and the old time of its last change: only `ctime` tells.
        fs::write(&path, "two").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(meta.modified().unwrap()).unwrap();
        let forged = fs::metadata(&path).unwrap();
        assert_eq!(forged.modified().unwrap(), meta.modified().unwrap());
        if changed_at(&forged) != changed_at(&meta) {
            assert!(!files.has(of("main.tf", OBJECT, &forged)));
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
            let file = VerifiedIdentity::of(Path::new("main.tf"), OBJECT, &meta);
            files.insert(file, &meta, FileClock(clock));
            files.has(file)
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
    fn the_checkout_used_least_recently_makes_room() {
        let of = |file: u64| VerifiedFiles(HashSet::from([VerifiedIdentity([file; 2])]));
        let is_known = |known: &KnownCheckouts, dir: &str| {
            let checkouts = known.0.lock().unwrap();
            checkouts.by_dir.contains_key(Path::new(dir))
        };
        let known = KnownCheckouts::default();
        let admin = tempfile::tempdir().unwrap();
        for (dir, file) in [("/one", 1), ("/two", 2), ("/three", 3)] {
            known.remember_written(Path::new(dir), admin.path(), of(file));
        }
        known.files(Path::new("/one"));
        known.0.lock().unwrap().make_room(2, 100);
        assert!(!is_known(&known, "/two"));
        assert!(is_known(&known, "/one") && is_known(&known, "/three"));
        known.rename(Path::new("/one"), Path::new("/renamed"));
        known.0.lock().unwrap().make_room(100, 1);
        assert!(!is_known(&known, "/three"), "used before the renamed one");
        assert!(is_known(&known, "/renamed"));
        known.0.lock().unwrap().make_room(100, 0);
        assert!(!is_known(&known, "/renamed"));
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
