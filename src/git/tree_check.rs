//! Checks that the files of a checkout are those of its commit.
//!
//! The need: git writes a checkout from objects on a disk where programs of pull requests may have written, too. Git
//! trusts these objects: it compares an object with its id only on receipt. So the checked-out files are compared
//! with the commit again, without git's index and filters. Commit and directories are read through git and hashed
//! here, and each must have the requested id. Files are read from the checkout and hashed. A passed check therefore
//! depends only on the id of the commit, regardless of the objects, the configuration and the index. A file that this
//! process has hashed before is not hashed again as long as nothing about it changes (`known.rs`).
//!
//! Git converts some files by attributes of the commit (line ends, `ident`, encodings), so their bytes differ in a
//! checkout. Only for those files, and only if the commit has attributes, git computes the object that they would
//! become.
//!
//! Untracked files are not checked: hooks and earlier runs of the same pull request create them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::disk::run_blocking;
use super::known::{FileClock, VerifiedFiles, VerifiedIdentity};
use super::object_db::{Entry, MAX_LIST, ObjectDb, ObjectError, TreeListing};
use super::plain_file::meta;
use super::{Extent, GitError, Mirror};
use crate::model::{CommitSha, RepoPath};
use crate::process::Cmd;

/// Maximum number of converted files that git hashes.
const MAX_CONVERTED: usize = 100_000;
/// Minimum number of files that are worth a thread of their own.
const FILES_OF_A_THREAD: usize = 2_000;
/// Maximum number of threads for one checkout. They mostly wait for the kernel, and other checkouts need some, too.
const MAX_THREADS: usize = 8;
const ATTRIBUTES: &str = ".gitattributes";

/// Entry of a commit for a file or link.
struct TreeEntry {
    /// Path from the root of the checkout.
    path: PathBuf,
    kind: EntryKind,
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    File { is_executable: bool },
    Link,
}

/// Content that a commit expects in a checkout.
#[derive(Default)]
struct ExpectedTree {
    entries: Vec<TreeEntry>,
    /// Paths that must be directories and not links.
    dirs: Vec<PathBuf>,
}

/// Part of a directory that is checked out.
#[derive(Clone)]
enum DirPart {
    /// Everything below the directory.
    All,
    /// The part that the extent selects; the path is that of the directory.
    Some(RepoPath),
}

/// Result of comparing the bytes of a checkout with its commit.
enum ComparedTree {
    /// All bytes are those of the commit.
    Equal(VerifiedFiles),
    /// The bytes of some files differ, and attributes of the commit may be the reason.
    Converted {
        files: Vec<TreeEntry>,
        /// Paths of all files of the commit.
        paths: BTreeSet<PathBuf>,
        verified: VerifiedFiles,
    },
    /// Description of the first difference.
    Different(String),
}

impl Mirror {
    /// Checks that the files of a directory are those of the commit. `git` is for the worktree in that directory. The
    /// caller must ensure that nothing changes the directory at the same time.
    ///
    /// Files that git converts can have other bytes than the commit, and still pass. So the check is for a directory
    /// that git has just written; for one where a run has been, see [`Self::has_exactly`].
    pub(super) async fn check_tree(
        &self,
        doing: &str,
        (git, dir): (Cmd, &Path),
        known: &KnownFiles,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<VerifiedFiles, GitError> {
        let compared = self.compare_tree(doing, dir, known, commit, extent).await?;
        let difference = match compared {
            ComparedTree::Equal(verified) => return Ok(verified),
            ComparedTree::Different(difference) => difference,
            ComparedTree::Converted {
                files,
                paths,
                verified,
            } => match self
                .misconverted(doing, (git, dir), &files, &paths, commit)
                .await?
            {
                None => return Ok(verified),
                Some(difference) => difference,
            },
        };
        Err(self.altered(doing, &difference))
    }

    /// Returns the verified files of a directory if each has exactly the bytes of the commit, and otherwise the
    /// difference. A run could have changed a converted file into another one that git takes for the same, such as
    /// the text after `$Id:`, so those count as different.
    pub(super) async fn has_exactly(
        &self,
        doing: &str,
        dir: &Path,
        known: &KnownFiles,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<Result<VerifiedFiles, String>, GitError> {
        let compared = self.compare_tree(doing, dir, known, commit, extent).await?;
        Ok(match compared {
            ComparedTree::Equal(verified) => Ok(verified),
            ComparedTree::Different(difference) => Err(difference),
            ComparedTree::Converted { files, .. } => Err(not_of(&files[0].path, commit)),
        })
    }

    async fn compare_tree(
        &self,
        doing: &str,
        dir: &Path,
        known: &KnownFiles,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<ComparedTree, GitError> {
        let tree = self.tree_of(doing, commit, extent).await?;
        let has_attributes = tree
            .entries
            .iter()
            .any(|entry| entry.path.file_name() == Some(OsStr::new(ATTRIBUTES)));
        let paths: BTreeSet<PathBuf> = if has_attributes {
            tree.entries
                .iter()
                .map(|entry| entry.path.clone())
                .collect()
        } else {
            BTreeSet::new()
        };
        let (root, known) = (dir.to_owned(), known.clone());
        let looked = run_blocking(move || differing(&root, tree, &known))
            .await
            .flatten()
            .map_err(GitError::from_io(doing))?;
        Ok(match looked {
            Ok((files, verified)) if files.is_empty() => ComparedTree::Equal(verified),
            Ok((files, verified)) if has_attributes => ComparedTree::Converted {
                files,
                paths,
                verified,
            },
            Ok((files, _)) => ComparedTree::Different(not_of(&files[0].path, commit)),
            Err(path) => ComparedTree::Different(not_of(&path, commit)),
        })
    }

    /// Describes the first file that is not what git makes of its object, if there is one.
    async fn misconverted(
        &self,
        doing: &str,
        (git, dir): (Cmd, &Path),
        files: &[TreeEntry],
        paths: &BTreeSet<PathBuf>,
        commit: &CommitSha,
    ) -> Result<Option<String>, GitError> {
        // Git would also use attribute files that a run has created.
        if let Some(other) = files
            .iter()
            .find_map(|entry| attributes_of_others(dir, &entry.path, paths))
        {
            return Ok(Some(not_of(&other, commit)));
        }
        let ids = self.converted_ids(doing, git, files).await?;
        let same =
            |(at, entry): &(usize, &TreeEntry)| ids.get(*at).is_some_and(|id| *id == entry.id);
        let wrong = files.iter().enumerate().find(|pair| !same(pair));
        Ok(wrong.map(|(_, entry)| not_of(&entry.path, commit)))
    }

    /// Returns everything that a commit has in an extent.
    async fn tree_of(
        &self,
        doing: &str,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<ExpectedTree, GitError> {
        if *extent == Extent::Whole {
            let listing = self.commit_listing(doing, commit).await?;
            if !listing.is_whole {
                return Err(self.object_error(doing, &ObjectError::TooLarge));
            }
            return Ok(ExpectedTree::of(&listing));
        }
        let (commit, extent) = (commit.clone(), extent.clone());
        self.read_objects(doing, move |objects| expected(objects, &commit, &extent))
            .await
    }

    /// Returns the ids of the objects that the files would become, in the same order.
    async fn converted_ids(
        &self,
        doing: &str,
        git: Cmd,
        files: &[TreeEntry],
    ) -> Result<Vec<String>, GitError> {
        if files.len() > MAX_CONVERTED {
            let limit =
                format!("its attributes change the bytes of more than {MAX_CONVERTED} files");
            return Err(GitError::other(doing, limit));
        }
        let mut list = Vec::new();
        for entry in files {
            list.extend(entry.path.as_os_str().as_bytes());
            list.push(b'\n');
        }
        let output = self
            .run(
                doing,
                git.cap(MAX_LIST)
                    .args(["hash-object", "--stdin-paths"])
                    .input(list),
            )
            .await?;
        Ok(output.stdout.text().lines().map(str::to_owned).collect())
    }
}

/// Finds an attribute file beside or above a path that the commit does not have.
fn attributes_of_others(root: &Path, path: &Path, known: &BTreeSet<PathBuf>) -> Option<PathBuf> {
    let mut files = path.ancestors().skip(1).map(|dir| dir.join(ATTRIBUTES));
    files.find(|file| !known.contains(file) && root.join(file).symlink_metadata().is_ok())
}

fn not_of(path: &Path, commit: &CommitSha) -> String {
    format!(
        "`{}` in the checkout differs from the commit {}",
        shown(path),
        commit.short()
    )
}

fn shown(path: &Path) -> String {
    let text = if path.as_os_str().is_empty() {
        ".".into()
    } else {
        path.to_string_lossy()
    };
    text.replace(char::is_control, "\u{FFFD}")
        .chars()
        .take(200)
        .collect()
}

impl DirPart {
    /// Returns the part of a subdirectory that is checked out, or `None` for nothing.
    fn below(&self, name: &OsStr, extent: &Extent) -> Option<Self> {
        let Self::Some(dir) = self else {
            return Some(Self::All);
        };
        let path = dir.join(name.to_str()?).ok()?;
        let Extent::Dirs(dirs) = extent else {
            return Some(Self::All);
        };
        if dirs.contains(&path) {
            return Some(Self::All);
        }
        let some = Self::Some(path);
        some.has_files(extent).then_some(some)
    }

    /// Returns true if the files directly in the directory are checked out.
    fn has_files(&self, extent: &Extent) -> bool {
        match self {
            Self::All => true,
            Self::Some(dir) => dir.join("x").is_ok_and(|file| extent.has(&file)),
        }
    }
}

impl ExpectedTree {
    fn of(listing: &TreeListing) -> Self {
        let path = |path: &[u8]| PathBuf::from(OsStr::from_bytes(path));
        let entries = listing.entries.iter().filter_map(|(name, entry)| {
            Some(TreeEntry {
                path: path(name),
                kind: kind(*entry)?,
                id: entry.id.to_string(),
            })
        });
        let dirs = listing.dirs.iter().map(|dir| path(dir));
        Self {
            entries: entries.collect(),
            dirs: std::iter::once(PathBuf::new()).chain(dirs).collect(),
        }
    }
}

/// Returns everything that a commit has in an extent. Each directory is verified when it is read.
fn expected(
    objects: &ObjectDb,
    commit: &CommitSha,
    extent: &Extent,
) -> Result<ExpectedTree, ObjectError> {
    let root = match extent {
        Extent::Whole => DirPart::All,
        Extent::Dirs(_) => DirPart::Some(RepoPath::root()),
    };
    let mut open = vec![(PathBuf::new(), root, objects.tree_of(commit)?)];
    let (mut tree, mut bytes) = (ExpectedTree::default(), 0);
    while let Some((dir, part, id)) = open.pop() {
        for (name, entry) in objects.entries(id)? {
            let path = dir.join(OsStr::from_bytes(&name));
            bytes += path.as_os_str().len();
            if bytes > MAX_LIST {
                return Err(ObjectError::TooLarge);
            }
            if entry.is_dir() {
                let part = part.below(OsStr::from_bytes(&name), extent);
                open.extend(part.map(|part| (path, part, entry.id)));
            } else if part.has_files(extent) {
                tree.entries.extend(kind(entry).map(|kind| TreeEntry {
                    path,
                    kind,
                    id: entry.id.to_string(),
                }));
            }
        }
        tree.dirs.push(dir);
    }
    Ok(tree)
}

/// Returns the kind of an entry; `None` for a submodule.
fn kind(entry: Entry) -> Option<EntryKind> {
    if entry.is_link() {
        return Some(EntryKind::Link);
    }
    entry.is_file().then(|| EntryKind::File {
        is_executable: entry.is_executable(),
    })
}

/// Files that an earlier check has verified, and the time of their file system at the beginning of this one.
#[derive(Clone)]
pub(super) struct KnownFiles {
    pub files: Arc<VerifiedFiles>,
    /// `None` remembers nothing.
    pub clock: Option<FileClock>,
}

impl KnownFiles {
    /// Nothing is known, and nothing is to be remembered.
    pub(super) fn none() -> Self {
        Self {
            files: Arc::default(),
            clock: None,
        }
    }
}

/// Files whose bytes differ from those of their objects, and the others as verified. The error is a path that is not the
/// expected kind of file or directory.
type Differing = Result<(Vec<TreeEntry>, VerifiedFiles), PathBuf>;

/// Compares all files of a tree, on several threads if there are many.
fn differing(root: &Path, tree: ExpectedTree, known: &KnownFiles) -> io::Result<Differing> {
    for dir in tree.dirs {
        if !meta(&root.join(&dir))?.is_some_and(|meta| meta.is_dir()) {
            return Ok(Err(dir));
        }
    }
    let mut parts: Vec<Vec<TreeEntry>> = Vec::new();
    let mut rest = tree.entries;
    let size = rest.len().div_ceil(threads()).max(FILES_OF_A_THREAD);
    while rest.len() > size {
        let tail = rest.split_off(size);
        parts.push(std::mem::replace(&mut rest, tail));
    }
    let compared: Vec<io::Result<Differing>> = thread::scope(|scope| {
        let others: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(|| differing_part(root, part, known)))
            .collect();
        let last = differing_part(root, rest, known);
        let joined = others.into_iter().map(|thread| {
            let panicked = || Err(io::Error::other("a thread that compares files panicked"));
            thread.join().unwrap_or_else(|_| panicked())
        });
        joined.chain([last]).collect()
    });
    let (mut differing, mut verified) = (Vec::new(), VerifiedFiles::default());
    for part in compared {
        match part? {
            Ok((files, others)) => {
                differing.extend(files);
                verified.extend(others);
            }
            Err(path) => return Ok(Err(path)),
        }
    }
    Ok(Ok((differing, verified)))
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS))
}

fn differing_part(
    root: &Path,
    entries: Vec<TreeEntry>,
    known: &KnownFiles,
) -> io::Result<Differing> {
    let (mut differing, mut verified) = (Vec::new(), VerifiedFiles::default());
    for entry in entries {
        let path = root.join(&entry.path);
        let Some(meta) = meta(&path)? else {
            return Ok(Err(entry.path));
        };
        let id = match entry.kind {
            EntryKind::Link if meta.is_symlink() => Hash::of(
                &entry.id,
                "blob",
                fs::read_link(&path)?.as_os_str().as_bytes(),
            ),
            EntryKind::File { is_executable }
                if meta.is_file() && (meta.permissions().mode() & 0o100 != 0) == is_executable =>
            {
                let file = VerifiedIdentity::of(&entry.path, &entry.id, &meta);
                let id = if known.files.has(file) {
                    entry.id.clone()
                } else {
                    Hash::of_file(&entry.id, &path, meta.len())?
                };
                if let Some(clock) = known.clock.filter(|_| id == entry.id) {
                    verified.insert(file, &meta, clock);
                }
                id
            }
            EntryKind::Link | EntryKind::File { .. } => return Ok(Err(entry.path)),
        };
        match entry.kind {
            _ if id == entry.id => {}
            EntryKind::File { .. } => differing.push(entry),
            EntryKind::Link => return Ok(Err(entry.path)),
        }
    }
    Ok(Ok((differing, verified)))
}

/// Running hash of an object; the length of another id selects the algorithm.
enum Hash {
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hash {
    fn new(like: &str, kind: &str, size: u64) -> Self {
        let mut hash = if like.len() == 64 {
            Self::Sha256(Sha256::new())
        } else {
            Self::Sha1(Sha1::new())
        };
        let mut header = String::new();
        write!(header, "{kind} {size}\0").expect("writing to a string does not fail");
        hash.update(header.as_bytes());
        hash
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(hash) => hash.update(bytes),
            Self::Sha256(hash) => hash.update(bytes),
        }
    }

    fn end(self) -> String {
        match self {
            Self::Sha1(hash) => hex::encode(hash.finalize()),
            Self::Sha256(hash) => hex::encode(hash.finalize()),
        }
    }

    fn of(like: &str, kind: &str, bytes: &[u8]) -> String {
        let mut hash = Self::new(like, kind, bytes.len() as u64);
        hash.update(bytes);
        hash.end()
    }

    fn of_file(like: &str, path: &Path, size: u64) -> io::Result<String> {
        let (mut hash, mut file, mut buffer) = (
            Self::new(like, "blob", size),
            File::open(path)?,
            vec![0; 64 * 1024],
        );
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hash.end()),
                many => hash.update(&buffer[..many]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        let sha1 = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        assert_eq!(Hash::of(sha1, "blob", b""), sha1);
        let sha256 = "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813";
        assert_eq!(Hash::of(sha256, "blob", b""), sha256);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "one").unwrap();
        assert_eq!(
            Hash::of_file(sha1, &dir.path().join("f"), 3).unwrap(),
            Hash::of(sha1, "blob", b"one")
        );
    }
}
