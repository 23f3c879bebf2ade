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
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::disk::apart;
use super::known::{FileClock, VerifiedFiles};
use super::objects::MAX_LIST;
use super::{Extent, GitError, Mirror};
use crate::model::{CommitSha, RepoPath};
use crate::process::{Cmd, Dialogue};

/// Maximum length of the first line of an answer of `git cat-file`.
const MAX_LINE: usize = 200;
/// Maximum size of a commit in bytes.
const MAX_COMMIT: usize = 16 * 1024 * 1024;
/// Maximum number of converted files that git hashes.
const MAX_CONVERTED: usize = 100_000;
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
        let tree = match self.tree_of(doing, commit, extent).await? {
            Ok(tree) => tree,
            Err(what) => return Ok(ComparedTree::Different(what)),
        };
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
        let looked = apart(move || differing(&root, tree, &known))
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

    /// Returns everything that a commit has in an extent, or a description of an object that does not match its id.
    async fn tree_of(
        &self,
        doing: &str,
        commit: &CommitSha,
        extent: &Extent,
    ) -> Result<Result<ExpectedTree, String>, GitError> {
        self.check_ours(doing)?;
        let cmd = self.git().args(["cat-file", "--batch"]).holds_nothing();
        let talk = cmd
            .dialogue()
            .map_err(|error| GitError::from_process(doing, error))?;
        let mut objects = ObjectReader {
            doing,
            talk,
            bytes: 0,
        };
        let Some(bytes) = objects.read("commit", commit.as_str()).await? else {
            return Ok(Err(format!(
                "the content of the commit {} does not match its id",
                commit.short()
            )));
        };
        let Some(id) = tree_id(&bytes) else {
            return Ok(Err(format!("the commit {} has no tree", commit.short())));
        };
        let root = match extent {
            Extent::Whole => DirPart::All,
            Extent::Dirs(_) => DirPart::Some(RepoPath::root()),
        };
        let (mut tree, mut open) = (ExpectedTree::default(), vec![(PathBuf::new(), root, id)]);
        while let Some((dir, part, id)) = open.pop() {
            let Some(list) = objects.read("tree", &id).await? else {
                return Ok(Err(format!(
                    "the content of the directory `{}` at {} does not match its id",
                    shown(&dir),
                    commit.short()
                )));
            };
            let Some(entries) = entries(&list, id.len() / 2) else {
                return Err(GitError::other(
                    doing,
                    format!("cannot read the directory `{}`", shown(&dir)),
                ));
            };
            for (mode, name, id) in entries {
                let path = dir.join(&name);
                match mode {
                    b"40000" => open.extend(part.below(&name, extent).map(|part| (path, part, id))),
                    b"160000" => {}
                    mode if part.has_files(extent) => {
                        tree.entries
                            .extend(kind(mode).map(|kind| TreeEntry { path, kind, id }));
                    }
                    _ => {}
                }
            }
            tree.dirs.push(dir);
        }
        Ok(Ok(tree))
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

/// Running `git cat-file --batch`.
struct ObjectReader<'a> {
    doing: &'a str,
    talk: Dialogue,
    /// Number of bytes read so far.
    bytes: usize,
}

impl ObjectReader<'_> {
    /// Returns the content of an object, or `None` if the content or kind does not match.
    async fn read(&mut self, kind: &str, id: &str) -> Result<Option<Vec<u8>>, GitError> {
        let doing = self.doing;
        let process = |error| GitError::from_process(doing, error);
        let gone = || GitError::Corrupt {
            doing: doing.to_owned(),
            message: format!("the object {id} is missing"),
        };
        self.talk
            .say(format!("{id}\n").as_bytes())
            .await
            .map_err(process)?;
        let line = self
            .talk
            .line(MAX_LINE)
            .await
            .map_err(process)?
            .ok_or_else(gone)?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let size = line
            .strip_prefix(id)
            .and_then(|rest| rest.trim_start().split_once(' '));
        let Some((found, size)) =
            size.and_then(|(found, size)| Some((found, size.parse::<usize>().ok()?)))
        else {
            return Err(gone());
        };
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_LIST + MAX_COMMIT {
            return Err(GitError::other(
                doing,
                "the directories have more than 64 MiB in total",
            ));
        }
        let bytes = self
            .talk
            .bytes(size)
            .await
            .map_err(process)?
            .ok_or_else(gone)?;
        self.talk.bytes(1).await.map_err(process)?;
        Ok((found == kind && Hash::of(id, found, &bytes) == id).then_some(bytes))
    }
}

/// Parses `tree 1234…` in the first line of a commit.
fn tree_id(commit: &[u8]) -> Option<String> {
    let line = commit.split(|byte| *byte == b'\n').next()?;
    let id = std::str::from_utf8(line.strip_prefix(b"tree ")?).ok()?;
    (matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| id.to_owned())
}

/// Parses repeated entries of the form `<mode> SP <name> NUL <id in bytes>`.
fn entries(mut list: &[u8], id_bytes: usize) -> Option<Vec<(&[u8], OsString, String)>> {
    let mut entries = Vec::new();
    while !list.is_empty() {
        let space = list.iter().position(|byte| *byte == b' ')?;
        let nul = list
            .iter()
            .position(|byte| *byte == 0)
            .filter(|nul| *nul > space)?;
        let id = list.get(nul + 1..nul + 1 + id_bytes)?;
        let name = OsString::from_vec(list[space + 1..nul].to_vec());
        entries.push((&list[..space], name, hex::encode(id)));
        list = &list[nul + 1 + id_bytes..];
    }
    Some(entries)
}

fn kind(mode: &[u8]) -> Option<EntryKind> {
    match mode {
        b"120000" => Some(EntryKind::Link),
        // Old tools wrote other bits as well; git only distinguishes whether the owner may execute a file.
        mode if mode.starts_with(b"100") => Some(EntryKind::File {
            is_executable: mode.get(3).is_some_and(|bits| bits & 1 == 1),
        }),
        _ => None,
    }
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

/// Returns the files whose bytes differ from those of their objects, and the others as verified. The inner error is a
/// path that is not the expected kind of file or directory.
fn differing(
    root: &Path,
    tree: ExpectedTree,
    known: &KnownFiles,
) -> io::Result<Result<(Vec<TreeEntry>, VerifiedFiles), PathBuf>> {
    for dir in tree.dirs {
        if !meta(&root.join(&dir))?.is_some_and(|meta| meta.is_dir()) {
            return Ok(Err(dir));
        }
    }
    let (mut differing, mut verified) = (Vec::new(), VerifiedFiles::default());
    for entry in tree.entries {
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
                let id = if known.files.has(&entry.path, &entry.id, &meta) {
                    entry.id.clone()
                } else {
                    Hash::of_file(&entry.id, &path, meta.len())?
                };
                if let Some(clock) = known.clock.filter(|_| id == entry.id) {
                    verified.insert(&entry.path, &entry.id, &meta, clock);
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

fn meta(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match path.symlink_metadata() {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        meta => meta.map(Some),
    }
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

    #[test]
    fn directories_are_read_entry_by_entry() {
        let list = [&b"100644 a b\0"[..], &[0xAB; 20], b"40000 dir\0", &[1; 20]].concat();
        let read = entries(&list, 20).unwrap();
        let told: Vec<_> = read
            .iter()
            .map(|(mode, name, id)| (*mode, name.to_str().unwrap(), &id[..4]))
            .collect();
        assert_eq!(
            told,
            [
                (&b"100644"[..], "a b", "abab"),
                (&b"40000"[..], "dir", "0101")
            ]
        );
        for broken in [&b"100644 a"[..], b"100644 a\0abc", b"x\0", b"x\0 y"] {
            assert!(entries(broken, 20).is_none(), "{broken:?}");
        }
        assert_eq!(
            kind(b"100755"),
            Some(EntryKind::File {
                is_executable: true
            })
        );
        assert_eq!(
            kind(b"100664"),
            Some(EntryKind::File {
                is_executable: false
            })
        );
        assert_eq!(
            (kind(b"120000"), kind(b"160000")),
            (Some(EntryKind::Link), None)
        );
        assert_eq!(
            tree_id(format!("tree {}\nauthor", "a".repeat(40)).as_bytes()),
            Some("a".repeat(40))
        );
        assert_eq!(tree_id(b"parent x"), None);
    }
}
