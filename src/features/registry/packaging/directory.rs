//! Reads a directory of a person, and leaves out everything that belongs to no package.
//!
//! A package is published for good, so nothing gets into it by accident: in a working tree of git, only files that git
//! tracks, and nowhere the directories and states of tools. A file that git neither tracks nor ignores may be part of the
//! module or a secret that somebody has put there, so it is refused. No link is followed on the disk: links are part of
//! the tree, and the rules for packages decide on them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use lockkeeper_registry::git_archive::ArchivedFile;
use lockkeeper_registry::go_zip::{OmittedReason, select_go_files, write_go_zip};
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::tf_archive::{select_tf_files, write_tf_archive};
use lockkeeper_registry::tree::{TreeFile, TreeMode};
use lockkeeper_registry::versions::VersionKey;
use nix::fcntl::OFlag;

use super::reach::{ModuleReach, ReachedFiles};
use super::{PackagingError, limits};
use crate::features::registry::blobs::blocking;
use crate::git::{GitError, WorkTree, WorkTreeNames};
use crate::model::{CommitSha, RepoPath};

/// Directories of version control. The `go` command leaves them out as well.
const VERSION_CONTROL: [&str; 4] = [".git", ".hg", ".svn", ".bzr"];
/// Directories of Terraform and Terragrunt.
const TOOL_DIRECTORIES: [&str; 2] = [".terraform", ".terragrunt-cache"];
/// Folder of the module in the tree. The licence at the top of a repository is part of each package of Go.
const MODULE: &str = "module";
/// File with that licence.
pub(super) const LICENSE: &str = "LICENSE";
/// Maximum number of files in a message.
const MAX_NAMED: usize = 5;

const OF_VERSION_CONTROL: &str = "it belongs to the version control";
const OF_TOOL: &str = "it is a working directory of Terraform";
const STATE: &str = "it is a state, which can have secrets";

fn is_state(name: &str) -> bool {
    name.ends_with(".tfstate") || name.contains(".tfstate.")
}

/// Returns why a file of a commit belongs to no package of Terraform, by the rules for directories.
fn reason_by_name(path: &[u8]) -> Option<&'static str> {
    let path = String::from_utf8_lossy(path);
    let (dirs, name) = path.rsplit_once('/').unwrap_or(("", &path));
    if path.split('/').any(|part| VERSION_CONTROL.contains(&part)) {
        Some(OF_VERSION_CONTROL)
    } else if dirs.split('/').any(|part| TOOL_DIRECTORIES.contains(&part)) {
        Some(OF_TOOL)
    } else {
        // A directory with such a name is left out with all of its files.
        let mut parts = dirs.split('/').chain([name]);
        parts.any(is_state).then_some(STATE)
    }
}

/// A directory that cannot become a package.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryFault {
    /// The path is not that of a directory.
    #[error("`{0}` is not a directory")]
    NotDirectory(PathBuf),
    /// A file or directory cannot be read.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A device, a socket or a pipe.
    #[error("`{0}` is neither a file nor a directory nor a link. Remove it")]
    Special(PathBuf),
    /// More files and directories than a package can have.
    #[error("`{dir}` has more than {most} files and directories")]
    TooMany {
        /// Directory that was read.
        dir: PathBuf,
        /// Number of files and directories that a package can have.
        most: usize,
    },
    /// More bytes than a package can have.
    #[error("the files of `{dir}` have more than {most} bytes")]
    TooLarge {
        /// Directory that was read.
        dir: PathBuf,
        /// Number of bytes that the files of a package can have together.
        most: u64,
    },
    /// Files of a working tree that git neither tracks nor ignores.
    #[error("{}", describe_untracked(.dir, .names))]
    Untracked {
        /// Directory that was read.
        dir: PathBuf,
        /// Paths of the files from there.
        names: Vec<String>,
    },
    /// git cannot say which files belong to the repository.
    #[error(
        "cannot ask git which files of `{dir}` it tracks. To publish a directory without git, copy it out of the \
         repository"
    )]
    Git {
        /// Directory that was read.
        dir: PathBuf,
        /// Failure of the call of git.
        source: GitError,
    },
}

/// A file or directory that does not belong to the package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Path from the directory, for people.
    pub path: String,
    /// Reason, which follows "because".
    pub reason: &'static str,
}

/// Files of a directory, in memory.
#[derive(Debug)]
pub struct SourceDirectory {
    entries: Vec<SourceEntry>,
    license: Option<SourceEntry>,
    commit: Option<CommitSha>,
    left_out: Vec<LeftOut>,
    /// Directory of the module among the entries.
    module_dir: RepoPath,
    beside: Vec<RepoPath>,
}

/// A file or link.
#[derive(Debug)]
pub(super) struct SourceEntry {
    /// Path from the directory that was read.
    pub path: Vec<u8>,
    pub mode: TreeMode,
    /// Content of a file, or target of a link.
    pub content: Vec<u8>,
}

impl SourceDirectory {
    /// Reads a directory for a package of this kind. `git` is the environment of git.
    pub async fn read(
        dir: &Path,
        kind: NameKind,
        git: Vec<(OsString, OsString)>,
    ) -> Result<Self, PackagingError> {
        let unreadable = |source| unreadable(dir, source);
        let metadata = std::fs::metadata(dir).map_err(unreadable)?;
        if !metadata.is_dir() {
            return Err(DirectoryFault::NotDirectory(dir.to_owned()).into());
        }
        let root = dir.canonicalize().map_err(unreadable)?;
        let repository = SourceRepository::of(&root, git).await;
        let repository = repository.map_err(|source| DirectoryFault::Git {
            dir: root.clone(),
            source,
        })?;
        let (names, top, commit) = match &repository {
            Some(repository) => (
                Some(repository.names.clone()),
                repository.top.clone(),
                repository.commit.clone(),
            ),
            None => (None, root.clone(), None),
        };
        let has_license = match &repository {
            Some(repository) if kind == NameKind::Go && top != root => {
                repository.tracks_license(&root).await?
            }
            Some(_) | None => false,
        };
        let (mut source, budget) = blocking(move || {
            let mut walk = Walk::new(root, kind, names, WalkBudget::of(kind));
            walk.read_all()?;
            let license = if has_license {
                walk.read_license(&top)?
            } else {
                None
            };
            let source = Self {
                commit: commit.filter(|_| walk.has_all_files()),
                entries: walk.entries,
                license,
                left_out: walk.left_out,
                module_dir: RepoPath::root(),
                beside: Vec::new(),
            };
            Ok::<_, DirectoryFault>((source, walk.budget))
        })
        .await?;
        if kind == NameKind::Module
            && let Some(repository) = &repository
            && let Some(below) = &repository.below
        {
            Box::pin(source.add_reached(repository, below, budget)).await?;
        }
        Ok(source)
    }

    /// Adds the directories of the working tree that the module reaches by local sources.
    async fn add_reached(
        &mut self,
        repository: &SourceRepository,
        below: &RepoPath,
        mut budget: WalkBudget,
    ) -> Result<(), PackagingError> {
        let mut reach = ModuleReach::new(below.clone(), self.take_entries());
        loop {
            let (searched, unread) = blocking(move || {
                let unread = reach.unread();
                (reach, unread)
            })
            .await;
            reach = searched;
            let unread = unread?;
            if unread.is_empty() {
                break;
            }
            for dir in unread {
                if reach.has(&dir) {
                    continue;
                }
                let names = repository.names_in(&dir).await;
                let names = names.map_err(|source| DirectoryFault::Git {
                    dir: repository.on_disk(&dir),
                    source,
                })?;
                let root = repository.on_disk(&dir);
                let walked = blocking(move || {
                    // No link leads out of the repository on the way.
                    if names.all.is_empty() || root.canonicalize().ok().as_ref() != Some(&root) {
                        return Ok((None, budget));
                    }
                    let mut walk = Walk::new(root, NameKind::Module, Some(names), budget);
                    walk.read_all()?;
                    let is_whole = walk.has_all_files();
                    let budget = walk.budget;
                    Ok::<_, DirectoryFault>((Some((walk.entries, walk.left_out, is_whole)), budget))
                });
                let (walked, left) = walked.await?;
                budget = left;
                let entries = walked.map(|(entries, left_out, is_whole)| {
                    self.commit = self.commit.take().filter(|_| is_whole);
                    self.leave_out(&dir, left_out);
                    entries
                });
                reach.add(dir, entries);
            }
        }
        self.put_reached(reach.finish());
        Ok(())
    }

    /// Takes the files and links. [`put_reached`](Self::put_reached) puts them back.
    pub(super) fn take_entries(&mut self) -> Vec<SourceEntry> {
        std::mem::take(&mut self.entries)
    }

    /// Takes the files of the module and of everything that it reaches.
    pub(super) fn put_reached(&mut self, files: ReachedFiles) {
        let ReachedFiles {
            module_dir,
            beside,
            entries,
        } = files;
        self.module_dir = module_dir;
        self.beside = beside;
        self.entries = entries;
    }

    fn leave_out(&mut self, dir: &RepoPath, left_out: Vec<LeftOut>) {
        self.left_out
            .extend(left_out.into_iter().map(|file| LeftOut {
                path: format!("{dir}/{}", file.path),
                ..file
            }));
    }

    /// Takes the files of a directory at a commit, as `git archive` gives them. The licence at the top of the repository is
    /// among them.
    pub fn of_commit(
        kind: NameKind,
        dir: &RepoPath,
        files: Vec<ArchivedFile>,
        commit: CommitSha,
    ) -> Self {
        let (mut entries, mut left_out, mut license) = (Vec::new(), Vec::new(), None);
        let prefix = if dir.is_root() {
            String::new()
        } else {
            format!("{dir}/")
        };
        for file in files {
            let Some(below) = file.path.strip_prefix(prefix.as_bytes()) else {
                let entry = SourceEntry::of_archived(file);
                license = (entry.path == LICENSE.as_bytes())
                    .then_some(entry)
                    .or(license);
                continue;
            };
            let below = below.to_vec();
            if kind == NameKind::Module
                && let Some(reason) = reason_by_name(&below)
            {
                let path = String::from_utf8_lossy(&below).into_owned();
                left_out.push(LeftOut { path, reason });
                continue;
            }
            entries.push(SourceEntry::of_archived(ArchivedFile {
                path: below,
                ..file
            }));
        }
        entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Self {
            entries,
            license,
            commit: Some(commit),
            left_out,
            module_dir: RepoPath::root(),
            beside: Vec::new(),
        }
    }

    /// Takes the files of another directory at the commit, and returns those that belong to a package of Terraform.
    pub(super) fn part_of_commit(
        &mut self,
        dir: &RepoPath,
        files: Vec<ArchivedFile>,
    ) -> Vec<SourceEntry> {
        let commit = self.commit.clone();
        let commit = commit.expect("the files are those of a commit");
        let part = Self::of_commit(NameKind::Module, dir, files, commit);
        self.leave_out(dir, part.left_out);
        part.entries
    }

    /// Returns the directory of the module in the package. It is not the top if the module uses others beside it.
    pub fn module_dir(&self) -> &RepoPath {
        &self.module_dir
    }

    /// Returns the directories outside of that of the module that are part of the package.
    pub fn outside_dirs(&self) -> &[RepoPath] {
        &self.beside
    }

    /// Returns the commit with exactly these files, if the directory is in a working tree without changes.
    pub fn commit(&self) -> Option<&CommitSha> {
        self.commit.as_ref()
    }

    /// Returns the files and directories that were left out.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Writes the package of a version. Waits for the disk.
    pub(super) fn write(&self, key: &VersionKey, file: &mut File) -> Result<(), PackagingError> {
        if let Some((path, version)) = key.as_go() {
            let tree = self.go_tree();
            let files = select_go_files(&tree.entries(), MODULE)?;
            write_go_zip(path, version, &files, file)?;
        } else {
            let tree: Vec<TreeFile<'_>> = self.entries.iter().map(SourceEntry::entry).collect();
            let files = select_tf_files(&tree, |_| true)?;
            write_tf_archive(&files, file)?;
        }
        Ok(())
    }

    /// Returns the files that the rules of Go leave out of a package.
    pub fn left_out_by_go(&self) -> Vec<LeftOut> {
        let tree = self.go_tree();
        let selected = select_go_files(&tree.entries(), MODULE).unwrap_or_default();
        let reason = |reason| match reason {
            OmittedReason::Vendored => "it is vendored",
            OmittedReason::OtherModule => "it belongs to another module",
            OmittedReason::HgArchive => "it is a file of Mercurial",
            OmittedReason::Link => "it is a link",
        };
        let left_out = selected.omitted.into_iter().map(|omitted| LeftOut {
            path: omitted.path,
            reason: reason(omitted.reason),
        });
        left_out.collect()
    }

    fn go_tree(&self) -> GoTree<'_> {
        let below = |entry: &SourceEntry| [MODULE.as_bytes(), b"/", &entry.path].concat();
        GoTree {
            paths: self.entries.iter().map(below).collect(),
            source: self,
        }
    }
}

/// Tree of a repository with the module in a folder.
struct GoTree<'a> {
    paths: Vec<Vec<u8>>,
    source: &'a SourceDirectory,
}

impl GoTree<'_> {
    fn entries(&self) -> Vec<TreeFile<'_>> {
        let pairs = self.paths.iter().zip(&self.source.entries);
        let module = pairs.map(|(path, entry)| TreeFile {
            path,
            ..entry.entry()
        });
        let license = self.source.license.iter().map(SourceEntry::entry);
        module.chain(license).collect()
    }
}

impl SourceEntry {
    fn of_archived(file: ArchivedFile) -> Self {
        Self {
            path: file.path,
            mode: file.mode,
            content: file.content,
        }
    }

    fn entry(&self) -> TreeFile<'_> {
        TreeFile {
            path: &self.path,
            mode: self.mode,
            content: &self.content,
        }
    }
}

/// The git repository that a directory is in.
struct SourceRepository {
    tree: WorkTree,
    /// Names of its files below the directory, from the directory.
    names: WorkTreeNames,
    top: PathBuf,
    /// Directory from the top. `None`: no path of a repository is written like it.
    below: Option<RepoPath>,
    commit: Option<CommitSha>,
}

impl SourceRepository {
    async fn of(dir: &Path, git: Vec<(OsString, OsString)>) -> Result<Option<Self>, GitError> {
        // Without a repository, git need not be installed.
        if !dir.ancestors().any(|dir| dir.join(".git").exists()) {
            return Ok(None);
        }
        let Some(tree) = WorkTree::find(dir, git).await? else {
            return Ok(None);
        };
        let top = tree.root().canonicalize();
        let top = top.unwrap_or_else(|_| tree.root().to_owned());
        let Ok(below) = dir.strip_prefix(&top) else {
            return Ok(None);
        };
        let names = names_below(&tree, below).await?;
        // git ignores the whole directory, such as one that a build has made.
        if names.all.is_empty() {
            return Ok(None);
        }
        let commit = tree.clean_commit().await?;
        let below = below.to_str().and_then(|below| RepoPath::new(below).ok());
        Ok(Some(Self {
            tree,
            names,
            top,
            below,
            commit,
        }))
    }

    fn on_disk(&self, dir: &RepoPath) -> PathBuf {
        if dir.is_root() {
            self.top.clone()
        } else {
            self.top.join(dir.as_str())
        }
    }

    /// Returns the names of the files below another directory, from there.
    async fn names_in(&self, dir: &RepoPath) -> Result<WorkTreeNames, GitError> {
        let below = if dir.is_root() { "" } else { dir.as_str() };
        names_below(&self.tree, Path::new(below)).await
    }

    /// Returns true if git tracks a license at the top, and false if there is none or git ignores it. One that git does not
    /// track is refused like other files. `dir` is the directory that is read.
    async fn tracks_license(&self, dir: &Path) -> Result<bool, DirectoryFault> {
        let names = self.tree.names_below(Path::new(LICENSE)).await;
        let names = names.map_err(|source| DirectoryFault::Git {
            dir: dir.to_owned(),
            source,
        })?;
        if names.untracked.contains(LICENSE.as_bytes()) {
            return Err(DirectoryFault::Untracked {
                dir: self.top.clone(),
                names: vec![LICENSE.to_owned()],
            });
        }
        Ok(names.all.contains(LICENSE.as_bytes()))
    }
}

async fn names_below(tree: &WorkTree, below: &Path) -> Result<WorkTreeNames, GitError> {
    let names = tree.names_below(below).await?;
    let prefix = match below.as_os_str().as_bytes() {
        b"" => Vec::new(),
        below => [below, b"/"].concat(),
    };
    let from_there = |names: &BTreeSet<Vec<u8>>| -> BTreeSet<Vec<u8>> {
        let names = names.iter();
        names
            .filter_map(|name| name.strip_prefix(prefix.as_slice()))
            .map(<[u8]>::to_vec)
            .collect()
    };
    Ok(WorkTreeNames {
        all: from_there(&names.all),
        untracked: from_there(&names.untracked),
    })
}

fn describe_untracked(dir: &Path, names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMED);
    let shown: Vec<String> = shown.map(|name| format!("`{name}`")).collect();
    let (dir, shown) = (dir.display(), shown.join(", "));
    let files = match names.len() {
        1 => format!("a file that git does not track: {shown}"),
        many if many > MAX_NAMED => {
            let more = many - MAX_NAMED;
            format!("{many} files that git does not track: {shown} and {more} more")
        }
        many => format!("{many} files that git does not track: {shown}"),
    };
    format!(
        "`{dir}` has {files}. A version is published for good, so it has only files that git tracks. Add those that belong to \
         it (`git add`, a commit is not needed), and remove the others or name them in .gitignore"
    )
}

/// Files and bytes that can still be read.
#[derive(Clone, Copy)]
struct WalkBudget {
    entries: usize,
    bytes: u64,
}

impl WalkBudget {
    fn of(kind: NameKind) -> Self {
        let limits = limits(kind);
        Self {
            entries: limits.entries,
            bytes: limits.unpacked,
        }
    }
}

/// Reading of a directory.
struct Walk {
    root: PathBuf,
    kind: NameKind,
    names: Option<WorkTreeNames>,
    entries: Vec<SourceEntry>,
    /// Files that git does not track, without their contents.
    untracked: Vec<SourceEntry>,
    left_out: Vec<LeftOut>,
    budget: WalkBudget,
}

impl Walk {
    fn new(
        root: PathBuf,
        kind: NameKind,
        names: Option<WorkTreeNames>,
        budget: WalkBudget,
    ) -> Self {
        Self {
            root,
            kind,
            names,
            entries: Vec::new(),
            untracked: Vec::new(),
            left_out: Vec::new(),
            budget,
        }
    }

    /// Reads all files and links of the package. Fails if git does not track one of them.
    fn read_all(&mut self) -> Result<(), DirectoryFault> {
        let mut todo = vec![Vec::new()];
        while let Some(dir) = todo.pop() {
            let path = self.on_disk(&dir);
            let entries = std::fs::read_dir(&path).map_err(|source| unreadable(&path, source))?;
            for entry in entries {
                let entry = entry.map_err(|source| unreadable(&path, source))?;
                let kind = entry.file_type();
                let kind = kind.map_err(|source| unreadable(&entry.path(), source))?;
                let left = self.budget.entries.checked_sub(1);
                self.budget.entries = left.ok_or_else(|| DirectoryFault::TooMany {
                    dir: self.root.clone(),
                    most: limits(self.kind).entries,
                })?;
                let name = entry.file_name();
                let below = match dir.as_slice() {
                    b"" => name.as_bytes().to_vec(),
                    dir => [dir, b"/", name.as_bytes()].concat(),
                };
                if let Some(reason) = self.reason_to_leave_out(&name, &below, kind.is_dir()) {
                    // Everybody knows that the history is no part of a package.
                    if !VERSION_CONTROL.iter().any(|known| name == *known) {
                        let path = String::from_utf8_lossy(&below).into_owned();
                        self.left_out.push(LeftOut { path, reason });
                    }
                } else if kind.is_dir() {
                    todo.push(below);
                } else if self.is_untracked(&below) {
                    let mode = if kind.is_symlink() {
                        TreeMode::Link
                    } else {
                        TreeMode::File
                    };
                    self.untracked.push(SourceEntry {
                        path: below,
                        mode,
                        content: Vec::new(),
                    });
                } else if kind.is_symlink() {
                    self.read_link(below)?;
                } else if kind.is_file() {
                    self.read_file(below)?;
                } else {
                    return Err(DirectoryFault::Special(entry.path()));
                }
            }
        }
        self.entries
            .sort_unstable_by(|one, other| one.path.cmp(&other.path));
        self.left_out
            .sort_unstable_by(|one, other| one.path.cmp(&other.path));
        self.check_untracked()
    }

    fn is_untracked(&self, path: &[u8]) -> bool {
        let mut names = self.names.iter();
        names.any(|names| names.untracked.contains(path))
    }

    /// Refuses files that git does not track, except those that the rules of Go leave out.
    fn check_untracked(&self) -> Result<(), DirectoryFault> {
        if self.untracked.is_empty() {
            return Ok(());
        }
        let names = self.untracked.iter();
        let names = names.map(|file| String::from_utf8_lossy(&file.path).into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        if self.kind == NameKind::Go {
            let entries = self.entries.iter().chain(&self.untracked);
            let tree: Vec<TreeFile<'_>> = entries.map(SourceEntry::entry).collect();
            let selected = select_go_files(&tree, "").unwrap_or_default();
            let omitted = selected.omitted.into_iter().map(|omitted| omitted.path);
            let omitted: BTreeSet<String> = omitted.collect();
            names.retain(|name| !omitted.contains(name));
        }
        if names.is_empty() {
            return Ok(());
        }
        let dir = self.root.clone();
        Err(DirectoryFault::Untracked { dir, names })
    }

    /// Returns true if every file that the repository would have is on the disk. A sparse working tree lacks some, and has no
    /// changes.
    fn has_all_files(&self) -> bool {
        let mut names = self.names.iter().flat_map(|names| &names.all);
        names.all(|name| std::fs::symlink_metadata(self.on_disk(name)).is_ok())
    }

    fn reason_to_leave_out(
        &self,
        name: &OsStr,
        path: &[u8],
        is_directory: bool,
    ) -> Option<&'static str> {
        let is_one_of = |names: &[&str]| names.iter().any(|known| name == *known);
        if is_one_of(&VERSION_CONTROL) {
            return Some(OF_VERSION_CONTROL);
        }
        if self.kind == NameKind::Go && is_directory && self.is_go_module(path) {
            return Some("it belongs to another module");
        }
        if self.kind == NameKind::Module {
            if is_directory && is_one_of(&TOOL_DIRECTORIES) {
                return Some(OF_TOOL);
            }
            if is_state(&name.to_string_lossy()) {
                return Some(STATE);
            }
        }
        let names = &self.names.as_ref()?.all;
        let is_known = if is_directory {
            let folder = [path, b"/"].concat();
            let next = names.range(folder.clone()..).next();
            // A nested repository is listed by its folder alone, and its files are not.
            next.is_some_and(|next| next.starts_with(&folder) && next.len() > folder.len())
        } else {
            names.contains(path)
        };
        (!is_known).then_some("git ignores it, or it belongs to another repository")
    }

    fn is_go_module(&self, dir: &[u8]) -> bool {
        let file = self.on_disk(dir).join("go.mod");
        std::fs::symlink_metadata(file).is_ok_and(|metadata| !metadata.is_dir())
    }

    fn on_disk(&self, below: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(below))
    }

    fn read_link(&mut self, path: Vec<u8>) -> Result<(), DirectoryFault> {
        let link = self.on_disk(&path);
        let target = std::fs::read_link(&link).map_err(|source| unreadable(&link, source))?;
        self.entries.push(SourceEntry {
            path,
            mode: TreeMode::Link,
            content: target.into_os_string().into_vec(),
        });
        Ok(())
    }

    fn read_file(&mut self, path: Vec<u8>) -> Result<(), DirectoryFault> {
        let file = self.on_disk(&path);
        let entry = self.read_regular(&file, path)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Reads the licence at the top of the repository, if there is one.
    fn read_license(&mut self, top: &Path) -> Result<Option<SourceEntry>, DirectoryFault> {
        let license = top.join(LICENSE);
        match std::fs::symlink_metadata(&license) {
            Ok(metadata) if metadata.is_file() => {
                let entry = self.read_regular(&license, LICENSE.into());
                entry.map(Some)
            }
            Ok(metadata) if metadata.is_symlink() => {
                let target = std::fs::read_link(&license);
                let target = target.map_err(|source| unreadable(&license, source))?;
                Ok(Some(SourceEntry {
                    path: LICENSE.into(),
                    mode: TreeMode::Link,
                    content: target.into_os_string().into_vec(),
                }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(unreadable(&license, source)),
        }
    }

    /// Reads a regular file. One that was replaced by a link or a pipe meanwhile is refused.
    fn read_regular(&mut self, file: &Path, path: Vec<u8>) -> Result<SourceEntry, DirectoryFault> {
        let failed = |source| unreadable(file, source);
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let mut options = OpenOptions::new();
        let opened = options.read(true).custom_flags(flags.bits()).open(file);
        let opened = opened.map_err(failed)?;
        let metadata = opened.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(DirectoryFault::Special(file.to_owned()));
        }
        let mut content = Vec::new();
        let mut limited = opened.take(self.budget.bytes + 1);
        limited.read_to_end(&mut content).map_err(failed)?;
        let left = self.budget.bytes.checked_sub(content.len() as u64);
        self.budget.bytes = left.ok_or_else(|| DirectoryFault::TooLarge {
            dir: self.root.clone(),
            most: limits(self.kind).unpacked,
        })?;
        let is_executable = metadata.permissions().mode() & 0o111 != 0;
        Ok(SourceEntry {
            path,
            mode: if is_executable {
                TreeMode::Executable
            } else {
                TreeMode::File
            },
            content,
        })
    }
}

fn unreadable(path: &Path, source: io::Error) -> DirectoryFault {
    let path = path.to_owned();
    DirectoryFault::Unreadable { path, source }
}
