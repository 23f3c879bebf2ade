//! Reads a repository that is no mirror, such as a fetched copy of the accounts on this disk, or all objects of one in
//! memory. Nothing is written, and no git is run, so neither the configuration nor the hooks of the repository matter.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind, Tree, TreeRef};
use lockkeeper_accounts::external_ids::NoteName;
use lockkeeper_accounts::notes::{NoteTrees, NotesError, read_notes, read_notes_on_threads};

use super::object_db::{Entries, ObjectDb, ObjectError, entries_of};
use super::plain_file::{open, small};

/// Maximum size of the file with packed refs in bytes, enough for some millions of them.
const MAX_PACKED: u64 = 512 * 1024 * 1024;
/// Maximum number of folders inside each other in the name of a ref.
const MAX_DEPTH: usize = 16;
/// Maximum number of files of a branch that are read, and of their bytes. One blob can be in a tree many times.
const MAX_FILES: usize = 1_000;
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of an object of a whole copy in bytes. The root directory of some million notes is as large.
const MAX_REACHABLE: u64 = 64 * 1024 * 1024;
/// Maximum number of threads that read at the same time.
const MAX_THREADS: usize = 8;
/// Maximum number of commits of a branch.
const MAX_COMMITS: usize = 1_000_000;

/// A repository on this disk or in memory.
pub struct LocalCopy {
    objects: CopyObjects,
    refs: BTreeMap<String, ObjectId>,
}

/// Reason that a repository cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LocalCopyError {
    /// The directory is not a repository.
    #[error("{} is not a git repository", .0.display())]
    NotARepository(PathBuf),
    /// The refs or objects are stored in a form that is not read here.
    #[error("{} stores {what}, which is not supported; make a copy with `git clone --mirror`", .dir.display())]
    Format {
        /// Directory of the repository.
        dir: PathBuf,
        /// Part that is stored in another form.
        what: &'static str,
    },
    /// A file cannot be read.
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The content of a ref is not the id of an object.
    #[error("the ref {0:?} cannot be read: it has no id of an object")]
    Ref(String),
    /// An object cannot be read.
    #[error("an object cannot be read: {0}")]
    Object(String),
    /// An object is larger than its place permits.
    #[error("the object {0} has {1} bytes, and the limit is {2}")]
    Large(ObjectId, u64, u64),
    /// A commit has more than [`MAX_FILES`] files or [`MAX_FILE_BYTES`] bytes.
    #[error("the commit {0} has more than {MAX_FILES} files or {MAX_FILE_BYTES} bytes in them")]
    ManyFiles(ObjectId),
    /// A branch has more than [`MAX_COMMITS`] commits.
    #[error("the history of {0} has more than {MAX_COMMITS} commits")]
    LongHistory(ObjectId),
}

impl From<ObjectError> for LocalCopyError {
    fn from(error: ObjectError) -> Self {
        Self::Object(error.to_string())
    }
}

/// History of a branch, along the first parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchHistory {
    /// Committer time of the first commit.
    pub began_at: DateTime<Utc>,
    /// Newest commit with several parents.
    pub merge: Option<ObjectId>,
}

impl LocalCopy {
    /// Opens a repository, bare or with a worktree, and reads all of its refs.
    pub fn open(dir: &Path) -> Result<Self, LocalCopyError> {
        let git_dir = [dir.to_owned(), dir.join(".git")]
            .into_iter()
            .find(|dir| dir.join("HEAD").is_file() && dir.join("objects").is_dir())
            .ok_or_else(|| LocalCopyError::NotARepository(dir.to_owned()))?;
        if git_dir.join("reftable").exists() {
            return Err(LocalCopyError::Format {
                dir: git_dir,
                what: "its refs as a reftable",
            });
        }
        if git_dir.join("objects/info/alternates").exists() {
            return Err(LocalCopyError::Format {
                dir: git_dir,
                what: "objects in another repository",
            });
        }
        let refs = all_refs(&git_dir)?;
        Ok(Self {
            objects: CopyObjects::Disk(Box::new(ObjectDb::open(&git_dir)?)),
            refs,
        })
    }

    /// Makes a repository of these objects and refs. Each content has the id that is given for it.
    pub fn of_objects(
        objects: HashMap<ObjectId, (Kind, Vec<u8>)>,
        refs: BTreeMap<String, ObjectId>,
    ) -> Self {
        Self {
            objects: CopyObjects::Memory(objects),
            refs,
        }
    }

    /// Returns all refs with their ids, by name.
    pub fn refs(&self) -> impl Iterator<Item = (&str, ObjectId)> {
        self.refs.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Returns the content of a blob of at most `most` bytes.
    pub fn blob(&self, id: ObjectId, most: u64) -> Result<Vec<u8>, LocalCopyError> {
        self.objects.blob(id, most)
    }

    /// Reads many blobs of at most `most` bytes, on all processors. Returns what `read` makes of each, in their order.
    pub fn read_blobs<T: Send>(
        &self,
        ids: &[ObjectId],
        most: u64,
        read: impl Fn(Vec<u8>) -> T + Sync,
    ) -> Result<Vec<T>, LocalCopyError> {
        let CopyObjects::Disk(objects) = &self.objects else {
            let blobs = ids.iter().map(|id| Ok(read(self.blob(*id, most)?)));
            return blobs.collect();
        };
        let read = &read;
        std::thread::scope(|scope| {
            let parts = ids.chunks(ids.len().div_ceil(threads()).max(1)).map(|ids| {
                let objects = CopyObjects::Disk(Box::new(objects.for_thread()));
                scope.spawn(move || {
                    let blobs = ids.iter().map(|id| Ok(read(objects.blob(*id, most)?)));
                    blobs.collect::<Result<Vec<T>, LocalCopyError>>()
                })
            });
            let parts: Vec<_> = parts.collect();
            let mut all = Vec::with_capacity(ids.len());
            for part in parts {
                match part.join() {
                    Ok(blobs) => all.extend(blobs?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(all)
        })
    }

    /// Reads all notes of a tree, on all processors.
    pub fn notes(
        &self,
        root: ObjectId,
    ) -> Result<BTreeMap<NoteName, ObjectId>, NotesError<LocalCopyError>> {
        match &self.objects {
            CopyObjects::Memory(_) => read_notes(&self.objects, Some(root)),
            CopyObjects::Disk(objects) => {
                let readers =
                    (0..threads()).map(|_| CopyObjects::Disk(Box::new(objects.for_thread())));
                read_notes_on_threads(readers.collect(), root)
            }
        }
    }

    /// Returns the root directory of a commit. The limit for directories applies to each commit, because they belong to
    /// different people.
    pub fn root(&self, commit: ObjectId) -> Result<ObjectId, LocalCopyError> {
        self.objects.renew_limit();
        let bytes = self.objects.read(commit, Kind::Commit)?;
        CommitRefIter::from_bytes(&bytes, gix_hash::Kind::Sha1)
            .tree_id()
            .map_err(|error| LocalCopyError::Object(error.to_string()))
    }

    /// Returns the files of a commit by their paths, each of at most `most` bytes. Links and submodules are left out.
    pub fn files(
        &self,
        commit: ObjectId,
        most: u64,
    ) -> Result<BTreeMap<String, Vec<u8>>, LocalCopyError> {
        let (mut files, mut bytes) = (BTreeMap::new(), 0);
        let mut open = vec![(String::new(), self.root(commit)?)];
        while let Some((dir, id)) = open.pop() {
            for (name, entry) in self.objects.entries(id)? {
                // A name that is not UTF-8 could not be told from another one.
                let name = String::from_utf8(name).map_err(|error| {
                    let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
                    LocalCopyError::Object(format!(
                        "the name `{}` in the commit {commit} is not UTF-8",
                        name.escape_debug()
                    ))
                })?;
                let path = format!("{dir}{name}");
                if entry.is_dir() {
                    open.push((format!("{path}/"), entry.id));
                } else if entry.is_file() {
                    let content = self.blob(entry.id, most)?;
                    bytes += content.len();
                    if files.len() >= MAX_FILES || bytes > MAX_FILE_BYTES {
                        return Err(LocalCopyError::ManyFiles(commit));
                    }
                    files.insert(path, content);
                }
            }
        }
        Ok(files)
    }

    /// Returns everything that these objects lead to, each once, with kind and content.
    pub fn reachable(
        &self,
        from: impl IntoIterator<Item = ObjectId>,
    ) -> Result<Vec<(ObjectId, Kind, Vec<u8>)>, LocalCopyError> {
        let mut open: Vec<ObjectId> = from.into_iter().collect();
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let bad = |error: &dyn std::fmt::Display| LocalCopyError::Object(error.to_string());
            let header = self.objects.header(id)?;
            let (kind, size) = header.ok_or_else(|| bad(&format!("{id} is missing")))?;
            if size > MAX_REACHABLE {
                return Err(LocalCopyError::Large(id, size, MAX_REACHABLE));
            }
            self.objects.renew_limit();
            let content = self.objects.read(id, kind)?;
            match kind {
                Kind::Commit => {
                    let commit = CommitRefIter::from_bytes(&content, gix_hash::Kind::Sha1);
                    open.extend(commit.parent_ids());
                    let mut commit = CommitRefIter::from_bytes(&content, gix_hash::Kind::Sha1);
                    open.push(commit.tree_id().map_err(|error| bad(&error))?);
                }
                Kind::Tree => {
                    let entries = self.objects.entries(id)?;
                    // A submodule is a commit of another repository.
                    let entries = entries
                        .into_iter()
                        .filter(|(_, entry)| !entry.is_submodule());
                    open.extend(entries.map(|(_, entry)| entry.id));
                }
                Kind::Blob | Kind::Tag => {}
            }
            found.push((id, kind, content));
        }
        Ok(found)
    }

    /// Follows a branch to its first commit.
    pub fn history(&self, head: ObjectId) -> Result<BranchHistory, LocalCopyError> {
        let bad = |error: &dyn std::fmt::Display| LocalCopyError::Object(error.to_string());
        let (mut at, mut merge) = (head, None);
        for _ in 0..MAX_COMMITS {
            let bytes = self.objects.read(at, Kind::Commit)?;
            let commit = CommitRefIter::from_bytes(&bytes, gix_hash::Kind::Sha1);
            let mut parents = commit.parent_ids();
            let (first, second) = (parents.next(), parents.next());
            if second.is_some() {
                merge = merge.or(Some(at));
            }
            if let Some(parent) = first {
                at = parent;
                continue;
            }
            let committer = commit.committer().map_err(|error| bad(&error))?;
            let seconds = committer.time().map_err(|error| bad(&error))?.seconds;
            let began_at = DateTime::from_timestamp_secs(seconds)
                .ok_or_else(|| bad(&format!("the commit {at} has no valid time")))?;
            return Ok(BranchHistory { began_at, merge });
        }
        Err(LocalCopyError::LongHistory(head))
    }
}

/// Place of the objects.
enum CopyObjects {
    Disk(Box<ObjectDb>),
    Memory(HashMap<ObjectId, (Kind, Vec<u8>)>),
}

impl CopyObjects {
    fn renew_limit(&self) {
        match self {
            Self::Disk(objects) => objects.renew_limit(),
            Self::Memory(_) => {}
        }
    }

    fn header(&self, id: ObjectId) -> Result<Option<(Kind, u64)>, ObjectError> {
        match self {
            Self::Disk(objects) => objects.header(id),
            Self::Memory(objects) => {
                let found = objects.get(&id);
                Ok(found.map(|(kind, content)| (*kind, content.len() as u64)))
            }
        }
    }

    fn read(&self, id: ObjectId, kind: Kind) -> Result<Vec<u8>, ObjectError> {
        match self {
            Self::Disk(objects) => objects.read(id, kind),
            Self::Memory(objects) => match objects.get(&id) {
                None => Err(ObjectError::Missing(id)),
                Some((is, content)) if *is == kind => Ok(content.clone()),
                Some(_) => Err(ObjectError::Mismatch(id)),
            },
        }
    }

    fn blob(&self, id: ObjectId, most: u64) -> Result<Vec<u8>, LocalCopyError> {
        match self.header(id)? {
            Some((_, size)) if size > most => Err(LocalCopyError::Large(id, size, most)),
            _ => Ok(self.read(id, Kind::Blob)?),
        }
    }

    fn entries(&self, dir: ObjectId) -> Result<Entries, ObjectError> {
        entries_of(&self.read(dir, Kind::Tree)?)
    }
}

impl NoteTrees for CopyObjects {
    type Error = LocalCopyError;

    fn tree(&self, id: ObjectId) -> Result<Tree, LocalCopyError> {
        let bytes = self.read(id, Kind::Tree)?;
        TreeRef::from_bytes(&bytes, gix_hash::Kind::Sha1)
            .map(|tree| tree.to_owned())
            .map_err(|error| LocalCopyError::Object(error.to_string()))
    }
}

/// Returns the number of threads that read at the same time.
fn threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    processors.min(MAX_THREADS)
}

/// Returns all refs of a repository, packed or not, as git reads them.
fn all_refs(git_dir: &Path) -> Result<BTreeMap<String, ObjectId>, LocalCopyError> {
    let mut refs = packed_refs(git_dir)?;
    refs.extend(loose_refs(git_dir)?);
    Ok(refs)
}

/// Returns the refs that have a file of their own. They come before packed ones.
pub(super) fn loose_refs(git_dir: &Path) -> Result<BTreeMap<String, ObjectId>, LocalCopyError> {
    let mut refs = BTreeMap::new();
    add_loose_refs(git_dir, "refs", 0, &mut refs)?;
    Ok(refs)
}

/// Reads the file `packed-refs` (`<id> SP <name> LF`).
pub(super) fn packed_refs(git_dir: &Path) -> Result<BTreeMap<String, ObjectId>, LocalCopyError> {
    let path = &git_dir.join("packed-refs");
    let failed = |error| LocalCopyError::File(path.to_owned(), error);
    let mut refs = BTreeMap::new();
    let Some(file) = open(path).map_err(failed)? else {
        return Ok(refs);
    };
    for line in BufReader::new(file.take(MAX_PACKED)).lines() {
        let line = line.map_err(failed)?;
        // The first line is a comment, and `^` stands before the commit of a tag.
        if line.starts_with(['#', '^']) {
            continue;
        }
        let entry = line.split_once(' ');
        let entry = entry.and_then(|(id, name)| Some((id_of(id)?, name.to_owned())));
        let (id, name) = entry.ok_or(LocalCopyError::Ref(line))?;
        refs.insert(name, id);
    }
    Ok(refs)
}

fn add_loose_refs(
    git_dir: &Path,
    name: &str,
    depth: usize,
    refs: &mut BTreeMap<String, ObjectId>,
) -> Result<(), LocalCopyError> {
    let dir = git_dir.join(name);
    let failed = |error| LocalCopyError::File(dir.clone(), error);
    if depth > MAX_DEPTH {
        return Err(LocalCopyError::Ref(name.to_owned()));
    }
    for entry in fs::read_dir(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().map_err(failed)?.is_dir() {
            add_loose_refs(git_dir, &name, depth + 1, refs)?;
            continue;
        }
        let text = small(&entry.path()).map_err(failed)?.unwrap_or_default();
        let id = id_of(text.trim_end()).ok_or_else(|| LocalCopyError::Ref(name.clone()))?;
        refs.insert(name, id);
    }
    Ok(())
}

fn id_of(text: &str) -> Option<ObjectId> {
    ObjectId::from_hex(text.as_bytes()).ok()
}
