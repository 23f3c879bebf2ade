//! Reads objects of a mirror in this process.
//!
//! The need: a git process costs some milliseconds, and one plan looks up a dozen things: commits, directories, files,
//! the commit at which a branch left its base. So objects are read with gitoxide, whose libraries read packs and loose
//! objects. Git still talks to the forge, and writes mirrors and checkouts.
//!
//! Every object is hashed when it is read, and must have the requested id. Git does that only when it receives an
//! object. So a program that has changed the objects on this disk changes nothing that is read here.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gix_hash::ObjectId;
use gix_object::{Data, Find, FindHeader as _, Kind, TreeRefIter};
use sha1::Digest as _;
use tokio::time::timeout;

use super::disk::run_blocking;
use super::{GitError, Mirror};
use crate::model::{CommitSha, RepoPath};

/// Maximum size of the directories that one call reads, and of the paths that it lists, in bytes.
pub(super) const MAX_LIST: usize = 64 * 1024 * 1024;
/// Maximum size of a commit in bytes.
const MAX_COMMIT: usize = 16 * 1024 * 1024;
/// Maximum size of an object in a pack in bytes; also that of the parts from which it is made.
const MAX_OBJECT: usize = 512 * 1024 * 1024;
/// Maximum size of all remembered listings, counted as [`TreeListing::bytes`].
const MAX_KNOWN: usize = 32 * 1024 * 1024;
/// Bytes that `git ls-tree` prints for an entry besides its path. With them, lists end where they always did.
const AROUND_A_PATH: usize = 53;

/// Objects of a mirror.
pub(super) struct ObjectDb {
    objects: gix_odb::Handle,
    /// Bytes of directories that may still be read. A pull request decides how large they are.
    left: Cell<usize>,
}

/// Reason that an object cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    /// The mirror does not have a requested commit.
    #[error("commit {0} is not in the mirror; it must be fetched first")]
    NoCommit(CommitSha),
    /// Another object refers to this one, and the mirror does not have it.
    #[error("the object {0} is missing")]
    Missing(ObjectId),
    /// The content has another id, or is of another kind.
    #[error("the content of the object {0} does not match its id")]
    Mismatch(ObjectId),
    /// The directories are larger than [`MAX_LIST`].
    #[error("the directories have more than 64 MiB in total")]
    TooLarge,
    /// A commit is larger than [`MAX_COMMIT`].
    #[error("the commit {0} is larger than 16 MiB")]
    LargeCommit(ObjectId),
    /// The object, or the file with it, cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// Entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Mode as git stores it.
    mode: u16,
    pub(super) id: ObjectId,
}

/// Names of a directory with their entries, in the order of git: a directory sorts as if its name ended with `/`.
pub(super) type Entries = Vec<(Vec<u8>, Entry)>;

impl Entry {
    pub(super) fn is_dir(self) -> bool {
        self.mode == 0o040_000
    }

    pub(super) fn is_file(self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    pub(super) fn is_link(self) -> bool {
        self.mode == 0o120_000
    }

    pub(super) fn is_submodule(self) -> bool {
        self.mode == 0o160_000
    }

    /// Returns true if the owner may execute the file. Old tools wrote other bits as well; git distinguishes no more.
    pub(super) fn is_executable(self) -> bool {
        self.mode & 0o100 != 0
    }
}

/// Everything that a commit has.
#[derive(Debug, Default)]
pub(super) struct TreeListing {
    /// Paths of files, links and submodules, in the order of git.
    pub(super) entries: Vec<(Vec<u8>, Entry)>,
    /// Paths of the directories below the root.
    pub(super) dirs: Vec<Vec<u8>>,
    /// False if the list ends early, because it is too long.
    pub(super) is_whole: bool,
    /// Size of the paths, and of what stands beside them.
    bytes: usize,
}

impl TreeListing {
    /// Returns true if the commit has a file, link, submodule or directory at a path. The paths of the entries are in
    /// the order of their bytes, because git sorts directories as if their names ended with `/`.
    pub(super) fn has(&self, path: &RepoPath) -> bool {
        let path = path.as_str().as_bytes();
        let at = self
            .entries
            .partition_point(|(name, _)| name.as_slice() < path);
        let is_entry = self.entries.get(at).is_some_and(|(name, _)| name == path);
        let inside = [path, b"/"].concat();
        let at = self.entries.partition_point(|(name, _)| *name < inside);
        is_entry
            || self
                .entries
                .get(at)
                .is_some_and(|(name, _)| name.starts_with(&inside))
    }
}

/// Listings of the commits that were used last, of all mirrors. One command lists a commit several times, and the next
/// one often lists the same.
#[derive(Debug, Default)]
pub(super) struct KnownListings(Mutex<Vec<(CommitSha, Arc<TreeListing>)>>);

impl KnownListings {
    fn find(&self, commit: &CommitSha) -> Option<Arc<TreeListing>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|(id, _)| id == commit)?;
        let found = known.remove(at);
        let listing = Arc::clone(&found.1);
        known.push(found);
        Some(listing)
    }

    /// Remembers a listing, and forgets the oldest ones above the limit.
    fn remember(&self, commit: CommitSha, listing: &Arc<TreeListing>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(id, _)| *id != commit);
        known.push((commit, Arc::clone(listing)));
        let mut bytes = 0;
        let keep = known.iter().rev().take_while(|(_, listing)| {
            bytes += listing.bytes;
            bytes <= MAX_KNOWN
        });
        let surplus = known.len() - keep.count();
        known.drain(..surplus);
    }
}

/// Change of a path between two commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    Added,
    Removed,
    Modified,
}

impl Mirror {
    /// Reads objects on a thread for blocking work, within the time limit of a git command.
    ///
    /// # Errors
    ///
    /// [`GitError::Altered`] if the mirror is not as Lockkeeper left it, and [`GitError::Corrupt`] if an object is
    /// missing or unreadable.
    pub(super) async fn read_objects<T: Send + 'static>(
        &self,
        doing: &str,
        look: impl FnOnce(&ObjectDb) -> Result<T, ObjectError> + Send + 'static,
    ) -> Result<T, GitError> {
        self.check_integrity(doing)?;
        let dir = self.dir().to_owned();
        let looked = run_blocking(move || ObjectDb::open(&dir).and_then(|objects| look(&objects)));
        let Ok(looked) = timeout(self.settings.deadline, looked).await else {
            return Err(GitError::TimedOut {
                doing: doing.to_owned(),
                message: format!(
                    "reading the mirror took longer than {} s",
                    self.settings.deadline.as_secs()
                ),
            });
        };
        looked
            .map_err(GitError::from_io(doing))?
            .map_err(|error| self.object_error(doing, &error))
    }

    /// Lists everything that a commit has.
    pub(super) async fn commit_listing(
        &self,
        doing: &str,
        commit: &CommitSha,
    ) -> Result<Arc<TreeListing>, GitError> {
        if let Some(known) = self.locks.listings.find(commit) {
            self.check_integrity(doing)?;
            return Ok(known);
        }
        let wanted = commit.clone();
        let listing = self.read_objects(doing, move |objects| objects.listing(&wanted));
        let listing = Arc::new(listing.await?);
        self.locks.listings.remember(commit.clone(), &listing);
        Ok(listing)
    }

    pub(super) fn object_error(&self, doing: &str, error: &ObjectError) -> GitError {
        let (doing, message) = (doing.to_owned(), error.to_string());
        match error {
            ObjectError::NoCommit(_) => GitError::NotFound { doing, message },
            ObjectError::Missing(_) | ObjectError::Unreadable(_) => {
                GitError::Corrupt { doing, message }
            }
            ObjectError::Mismatch(_) => self.altered(&doing, &message),
            ObjectError::TooLarge | ObjectError::LargeCommit(_) => {
                GitError::Other { doing, message }
            }
        }
    }
}

impl ObjectDb {
    /// Opens the objects of a mirror. Everything on the disk at this moment is found.
    pub(super) fn open(mirror: &Path) -> Result<Self, ObjectError> {
        let options = gix_odb::store::init::Options {
            alloc_limit_bytes: Some(MAX_OBJECT),
            ..gix_odb::store::init::Options::default()
        };
        let objects = gix_odb::at_opts(mirror.join("objects"), gix_hash::Kind::Sha1, None, options);
        let objects = objects.map_err(|error| ObjectError::Unreadable(error.to_string()))?;
        Ok(Self {
            objects,
            left: Cell::new(MAX_LIST),
        })
    }

    /// Returns the same objects for another thread.
    pub(super) fn for_thread(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            left: Cell::new(MAX_LIST),
        }
    }

    /// Allows as many bytes of directories as in the beginning.
    pub(super) fn renew_limit(&self) {
        self.left.set(MAX_LIST);
    }

    /// Returns kind and size of an object, or `None` if the mirror does not have it.
    pub(super) fn header(&self, id: ObjectId) -> Result<Option<(Kind, u64)>, ObjectError> {
        let header = self.objects.try_header(&id).map_err(unreadable)?;
        Ok(header.map(|header| (header.kind, header.size)))
    }

    /// Checks the size of a commit or directory before it is read. The caller checks the size of a file, if it has a limit:
    /// that takes as long as reading a small one.
    fn check_size(&self, id: ObjectId, kind: Kind) -> Result<(), ObjectError> {
        if matches!(kind, Kind::Blob | Kind::Tag) {
            return Ok(());
        }
        let (_, size) = self.header(id)?.ok_or(ObjectError::Missing(id))?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if kind == Kind::Tree {
            let left = self.left.get().checked_sub(size);
            self.left.set(left.ok_or(ObjectError::TooLarge)?);
        } else if size > MAX_COMMIT {
            return Err(ObjectError::LargeCommit(id));
        }
        Ok(())
    }

    /// Returns the content of an object.
    pub(super) fn read(&self, id: ObjectId, kind: Kind) -> Result<Vec<u8>, ObjectError> {
        self.check_size(id, kind)?;
        let (found, content) = self.read_any(id)?;
        if found != kind {
            return Err(ObjectError::Mismatch(id));
        }
        Ok(content)
    }

    /// Returns kind and content of an object, without a limit for directories.
    pub(super) fn read_any(&self, id: ObjectId) -> Result<(Kind, Vec<u8>), ObjectError> {
        let mut buffer = Vec::new();
        let found = self
            .objects
            .try_find(&id, &mut buffer)
            .map_err(unreadable)?;
        let data = found.ok_or(ObjectError::Missing(id))?;
        if !has_id(&data, id) {
            return Err(ObjectError::Mismatch(id));
        }
        let (kind, size) = (data.kind, data.data.len());
        buffer.truncate(size);
        Ok((kind, buffer))
    }

    /// Returns true if the mirror has a commit.
    pub(super) fn has_commit(&self, commit: &CommitSha) -> Result<bool, ObjectError> {
        Ok(self
            .header(id_of(commit)?)?
            .is_some_and(|(kind, _)| kind == Kind::Commit))
    }

    /// Returns the directory of a commit.
    pub(super) fn tree_of(&self, commit: &CommitSha) -> Result<ObjectId, ObjectError> {
        let id = id_of(commit)?;
        let bytes = match self.read(id, Kind::Commit) {
            Err(ObjectError::Missing(_)) => return Err(ObjectError::NoCommit(commit.clone())),
            read => read?,
        };
        let parsed = gix_object::CommitRefIter::from_bytes(&bytes, gix_hash::Kind::Sha1).tree_id();
        parsed.map_err(unreadable)
    }

    /// Returns the time of a commit: when it was committed, in seconds of Unix time.
    pub(super) fn time_of(&self, commit: &CommitSha) -> Result<i64, ObjectError> {
        let bytes = self.read(id_of(commit)?, Kind::Commit)?;
        let parsed = gix_object::CommitRefIter::from_bytes(&bytes, gix_hash::Kind::Sha1);
        let committer = parsed.committer().map_err(unreadable)?;
        committer
            .time()
            .map(|time| time.seconds)
            .map_err(unreadable)
    }

    /// Returns the entries of a directory.
    pub(super) fn entries(&self, dir: ObjectId) -> Result<Entries, ObjectError> {
        entries_of(&self.read(dir, Kind::Tree)?)
    }

    /// Lists everything that a commit has.
    fn listing(&self, commit: &CommitSha) -> Result<TreeListing, ObjectError> {
        let mut listing = TreeListing::default();
        match self.list(self.tree_of(commit)?, &mut listing) {
            Ok(()) => listing.is_whole = true,
            Err(ObjectError::TooLarge) => {}
            Err(error) => return Err(error),
        }
        Ok(listing)
    }

    fn list(&self, root: ObjectId, listing: &mut TreeListing) -> Result<(), ObjectError> {
        let mut open = vec![(Vec::new(), self.entries(root)?.into_iter())];
        while let Some((dir, entries)) = open.last_mut() {
            let Some((name, entry)) = entries.next() else {
                open.pop();
                continue;
            };
            let path = [dir.as_slice(), &name].concat();
            listing.bytes += path.len() + AROUND_A_PATH;
            if listing.bytes > MAX_LIST {
                return Err(ObjectError::TooLarge);
            }
            if entry.is_dir() {
                let below = self.entries(entry.id)?.into_iter();
                open.push(([&path, &b"/"[..]].concat(), below));
                listing.dirs.push(path);
            } else {
                listing.entries.push((path, entry));
            }
        }
        Ok(())
    }

    /// Calls `visit` for each path in which two directories differ, in the order of `git diff-tree -r`.
    pub(super) fn differences(
        &self,
        old: ObjectId,
        new: ObjectId,
        mut visit: impl FnMut(&[u8], Difference),
    ) -> Result<(), ObjectError> {
        type Pairs = BTreeMap<Vec<u8>, (Option<Entry>, Option<Entry>)>;
        let pairs = |old: Option<ObjectId>, new: Option<ObjectId>| -> Result<Pairs, ObjectError> {
            let mut pairs = Pairs::new();
            for (name, entry) in old.map_or(Ok(Vec::new()), |dir| self.entries(dir))? {
                pairs.entry(sorted_name(name, entry)).or_default().0 = Some(entry);
            }
            for (name, entry) in new.map_or(Ok(Vec::new()), |dir| self.entries(dir))? {
                pairs.entry(sorted_name(name, entry)).or_default().1 = Some(entry);
            }
            pairs.retain(|_, (old, new)| old != new);
            Ok(pairs)
        };
        let mut open = vec![(Vec::new(), pairs(Some(old), Some(new))?.into_iter())];
        let mut left = MAX_LIST;
        while let Some((dir, entries)) = open.last_mut() {
            let Some((name, (old, new))) = entries.next() else {
                open.pop();
                continue;
            };
            let path = [dir.as_slice(), &name].concat();
            left = left.checked_sub(path.len()).ok_or(ObjectError::TooLarge)?;
            if path.ends_with(b"/") {
                let below = pairs(old.map(|entry| entry.id), new.map(|entry| entry.id))?;
                open.push((path, below.into_iter()));
                continue;
            }
            let difference = match (old, new) {
                (None, _) => Difference::Added,
                (_, None) => Difference::Removed,
                (Some(_), Some(_)) => Difference::Modified,
            };
            visit(&path, difference);
        }
        Ok(())
    }

    /// Returns those of the commits that are in the history of `head`, which includes `head` itself.
    pub(super) fn in_history(
        &self,
        head: &CommitSha,
        wanted: &BTreeSet<CommitSha>,
    ) -> Result<BTreeSet<CommitSha>, ObjectError> {
        let mut left: HashMap<ObjectId, &CommitSha> = HashMap::new();
        for commit in wanted {
            left.insert(id_of(commit)?, commit);
        }
        let (mut found, mut open) = (BTreeSet::new(), VecDeque::from([id_of(head)?]));
        let mut seen: HashSet<ObjectId> = open.iter().copied().collect();
        while let Some(id) = open.pop_front() {
            if let Some(commit) = left.remove(&id) {
                found.insert(commit.clone());
            }
            if left.is_empty() {
                break;
            }
            let bytes = self.read(id, Kind::Commit)?;
            for parent in
                gix_object::CommitRefIter::from_bytes(&bytes, gix_hash::Kind::Sha1).parent_ids()
            {
                if seen.insert(parent) {
                    open.push_back(parent);
                }
            }
        }
        Ok(found)
    }

    /// Returns the best common ancestor of two commits, or `None` if they have none.
    pub(super) fn merge_base(
        &self,
        one: &CommitSha,
        other: &CommitSha,
    ) -> Result<Option<CommitSha>, ObjectError> {
        for commit in [one, other] {
            if !self.has_commit(commit)? {
                return Err(ObjectError::NoCommit(commit.clone()));
            }
        }
        let refused = Cell::new(None);
        let verified = Verified {
            objects: self,
            refused: &refused,
        };
        let mut graph = gix_revision::Graph::new(verified, None);
        let bases = gix_revision::merge_base(id_of(one)?, &[id_of(other)?], &mut graph);
        if let Some(refused) = refused.take() {
            return Err(refused);
        }
        let bases = bases.map_err(unreadable)?;
        bases.map(|bases| sha_of(*bases.first())).transpose()
    }
}

/// Directories that were read, for callers that look up many paths.
#[derive(Default)]
pub(super) struct Dirs(HashMap<ObjectId, HashMap<Vec<u8>, Entry>>);

impl Dirs {
    /// Returns the entry at a path below a directory.
    pub(super) fn entry_at(
        &mut self,
        objects: &ObjectDb,
        root: ObjectId,
        path: &RepoPath,
    ) -> Result<Option<Entry>, ObjectError> {
        let mut at = Entry {
            mode: 0o040_000,
            id: root,
        };
        for name in path.as_str().split('/') {
            if !at.is_dir() {
                return Ok(None);
            }
            let dir = match self.0.entry(at.id) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(free) => {
                    free.insert(objects.entries(at.id)?.into_iter().collect())
                }
            };
            let Some(entry) = dir.get(name.as_bytes()) else {
                return Ok(None);
            };
            at = *entry;
        }
        Ok(Some(at))
    }
}

/// Objects for the search of a common ancestor, each verified. One that is refused counts as missing, and the reason is
/// kept.
struct Verified<'a> {
    objects: &'a ObjectDb,
    refused: &'a Cell<Option<ObjectError>>,
}

impl Find for Verified<'_> {
    fn try_find<'a>(
        &self,
        id: &gix_hash::oid,
        buffer: &'a mut Vec<u8>,
    ) -> gix_error::Result<Option<Data<'a>>> {
        let refused = self.objects.check_size(id.to_owned(), Kind::Commit).err();
        let found = match &refused {
            Some(_) => None,
            None => self.objects.objects.try_find(id, buffer)?,
        };
        let is_same = found
            .as_ref()
            .is_none_or(|data| has_id(data, id.to_owned()));
        let refused = refused.or_else(|| (!is_same).then(|| ObjectError::Mismatch(id.to_owned())));
        let found = found.filter(|_| is_same);
        if refused.is_some() {
            self.refused.set(refused);
        }
        Ok(found)
    }
}

/// Returns the name by which git sorts an entry.
fn sorted_name(mut name: Vec<u8>, entry: Entry) -> Vec<u8> {
    if entry.is_dir() {
        name.push(b'/');
    }
    name
}

fn has_id(data: &Data<'_>, id: ObjectId) -> bool {
    let mut hash = sha1::Sha1::new();
    hash.update(format!("{} {}\0", data.kind, data.data.len()));
    hash.update(data.data);
    hash.finalize().as_slice() == id.as_slice()
}

/// Reads the entries of a tree.
pub(super) fn entries_of(tree: &[u8]) -> Result<Entries, ObjectError> {
    TreeRefIter::from_bytes(tree, gix_hash::Kind::Sha1)
        .map(|entry| {
            let entry = entry.map_err(unreadable)?;
            let (mode, id) = (entry.mode.value(), entry.oid.to_owned());
            Ok((entry.filename.to_vec(), Entry { mode, id }))
        })
        .collect()
}

pub(super) fn id_of(commit: &CommitSha) -> Result<ObjectId, ObjectError> {
    // A mirror has objects with ids of 40 digits only.
    ObjectId::from_hex(commit.as_str().as_bytes())
        .map_err(|_| ObjectError::NoCommit(commit.clone()))
}

fn sha_of(id: ObjectId) -> Result<CommitSha, ObjectError> {
    CommitSha::new(&id.to_string()).map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> ObjectError {
    ObjectError::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mode: u16) -> Entry {
        Entry {
            mode,
            id: ObjectId::null(gix_hash::Kind::Sha1),
        }
    }

    #[test]
    fn a_listing_is_searched_by_path() {
        let names = ["a-b", "a.tf", "a/x.tf", "a0", "b/c/d", "b/c-d"];
        let mut entries: Vec<_> = names
            .map(|name| (name.as_bytes().to_vec(), entry(0o100_644)))
            .into();
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        let listing = TreeListing {
            entries,
            ..TreeListing::default()
        };
        for (path, expected) in [
            ("a-b", true),
            ("a", true),
            ("a/x.tf", true),
            ("a/y.tf", false),
            ("b/c", true),
            ("b/c/d/e", false),
            ("b/c-", false),
            ("c", false),
        ] {
            assert_eq!(
                listing.has(&RepoPath::new(path).unwrap()),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn listings_above_the_limit_are_forgotten_oldest_first() {
        let known = KnownListings::default();
        let commit = |digit: &str| CommitSha::new(&digit.repeat(40)).unwrap();
        let listing = |many| {
            Arc::new(TreeListing {
                bytes: many,
                ..TreeListing::default()
            })
        };
        for digit in ["a", "b", "c"] {
            known.remember(commit(digit), &listing(MAX_KNOWN / 2));
        }
        assert!(known.find(&commit("a")).is_none());
        assert!(known.find(&commit("b")).is_some() && known.find(&commit("c")).is_some());
        known.remember(commit("d"), &listing(MAX_KNOWN + 1));
        assert!(known.0.lock().unwrap().is_empty());
    }

    #[test]
    fn modes_tell_what_an_entry_is() {
        assert!(entry(0o040_000).is_dir());
        assert!(entry(0o120_000).is_link() && !entry(0o120_000).is_file());
        assert!(entry(0o160_000).is_submodule() && !entry(0o160_000).is_file());
        for (mode, executable) in [(0o100_644, false), (0o100_664, false), (0o100_755, true)] {
            assert!(entry(mode).is_file());
            assert_eq!(entry(mode).is_executable(), executable);
        }
    }
}
