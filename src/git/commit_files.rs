//! Reads the files of one commit as `git archive` gives them.
//!
//! The need: a package must have the very files that `go` finds in the same commit. Attributes of a repository change them
//! (`eol=crlf`, `ident`), and only git knows how. Two attributes would leave out files or put the commit into them
//! (`export-ignore`, `export-subst`); `go` turns them off, and so does this module.
//!
//! Git runs in a repository of its own, which exists only as long as the value. It borrows the objects of the mirror, or gets
//! them from the forge if the mirror does not have all of them. So nothing is written to a mirror, no lock of it is taken,
//! and no plan waits. If the mirror is replaced or removed meanwhile, the reading fails and is tried again.
//!
//! Everything is read by the id of the commit. Before git writes files, they and their directories are verified here.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use gix_hash::ObjectId;
use gix_object::Kind;
use lockkeeper_registry::git_archive::{ArchivedFile, read_git_archive};
use tempfile::TempDir;

use super::disk::run_blocking;
use super::environment::git_in;
use super::fetch::FETCH;
use super::foreign_repository::valid_time;
use super::object_db::{Dirs, Entry, ObjectDb, ObjectError};
use super::objects::path_of;
use super::{Git, GitError, GitSettings, Mirror, Remote, place};
use crate::model::{CommitSha, RepoId, RepoPath};

/// Directory of temporary files in the data directory. A starting server empties it.
const SCRATCH: &str = "tmp";
/// Turns off the attributes that are meant for archives of releases.
const ATTRIBUTES: &str = "* -export-subst -export-ignore\n";
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
/// Bytes of an archive for each entry, beside its content: the header, that of a long name, and padding.
const AROUND_AN_ENTRY: u64 = 4 << 10;
/// Maximum number of bytes of a path.
const MAX_PATH: usize = 4 << 10;
/// Maximum number of files and directories of a whole commit, and of the bytes of their paths. Git reads all of them into
/// its memory before it writes an archive, also those that the archive leaves out.
const MAX_OF_COMMIT: usize = 1_000_000;
const MAX_PATHS_OF_COMMIT: usize = 256 << 20;

/// Files of one commit.
pub struct CommitSnapshot {
    settings: Arc<GitSettings>,
    commit: CommitSha,
    dir: TempDir,
    is_fetched: bool,
}

/// Files of a commit that were selected by their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedFiles {
    /// Files with their contents.
    pub files: Vec<(RepoPath, Vec<u8>)>,
    /// Number of files that are left out, because they are too large or too many.
    pub left_out: usize,
}

/// Limits of the files that are read.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// Maximum number of files and directories.
    pub entries: usize,
    /// Maximum number of bytes of all files together.
    pub bytes: u64,
}

/// Reason that the files of a commit cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operation failed, which says nothing about the commit.
    #[error(transparent)]
    Git(GitError),
    /// Git refuses the objects of the commit.
    #[error("git refuses the commit: {0}")]
    Refused(String),
    /// The files are larger than allowed.
    #[error("`{dir}` has more than {most} bytes of files")]
    TooLarge {
        /// Directory with the files.
        dir: RepoPath,
        /// Number of bytes that are allowed.
        most: u64,
    },
    /// The directory has more files than allowed, or longer paths.
    #[error("`{dir}` has more than {most} files and directories, or paths that are too long")]
    TooMany {
        /// Directory with the files.
        dir: RepoPath,
        /// Number of files and directories that are allowed.
        most: usize,
    },
    /// The file is larger than allowed.
    #[error("`{path}` has more than {most} bytes")]
    LargeFile {
        /// Path of the file.
        path: RepoPath,
        /// Number of bytes that are allowed.
        most: u64,
    },
}

impl SnapshotError {
    /// Returns true if the same commit will always lead to this error.
    pub fn is_of_commit(&self) -> bool {
        !matches!(self, Self::Git(_))
    }
}

impl From<GitError> for SnapshotError {
    fn from(error: GitError) -> Self {
        if let GitError::Fsck { message, .. } = error {
            Self::Refused(message)
        } else {
            Self::Git(error)
        }
    }
}

/// Entries of a directory, with the sum of their sizes.
#[derive(Default)]
struct Measured {
    entries: usize,
    bytes: u64,
}

/// Result of measuring a directory.
enum Measure {
    /// The commit has no such directory.
    None,
    Within(Measured),
    TooLarge,
    TooMany,
    /// The whole commit has more than [`MAX_OF_COMMIT`] files and directories, or too long paths.
    TooManyInCommit,
}

impl Mirror {
    /// Returns true if a commit has a file at one of these paths. Fails if the mirror lacks a directory on the way.
    pub async fn has_any(
        &self,
        commit: &CommitSha,
        paths: Vec<RepoPath>,
    ) -> Result<bool, GitError> {
        let commit = commit.clone();
        self.read_objects("look for files of a commit", move |objects| {
            let (root, mut dirs) = (objects.tree_of(&commit)?, Dirs::default());
            for path in &paths {
                if dirs.entry_at(objects, root, path)?.is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Prepares reading the files of a commit. They come from the forge if the mirror lacks the commit or was made with a
    /// filter.
    pub async fn commit_files(
        &self,
        remote: &Remote<'_>,
        commit: &CommitSha,
    ) -> Result<CommitSnapshot, SnapshotError> {
        let doing = reading(commit);
        let has_objects = self.has_all_of(commit).await?;
        let files = self.snapshot(commit, has_objects).await?;
        if !has_objects {
            let remote = self.check(&doing, remote)?;
            let cmd = remote
                .git_in(&self.settings, files.dir.path(), None)
                .args(FETCH)
                .arg("--depth=1")
                .operands([remote.url(), commit.as_str()]);
            let output = cmd.output().await;
            let output = output.map_err(|error| GitError::from_process(&doing, error))?;
            if !output.is_success() {
                return Err(remote.failure(&doing, &output).into());
            }
            let id = commit.clone();
            if !files
                .read_objects(move |objects| objects.has_commit(&id))
                .await?
            {
                let reason = format!("{} is no commit", commit.short());
                return Err(SnapshotError::Refused(reason));
            }
        }
        Ok(files)
    }

    /// Returns true if the mirror has a commit with all of its files.
    async fn has_all_of(&self, commit: &CommitSha) -> Result<bool, GitError> {
        Ok(!self.is_partial() && self.has_commit(commit).await?)
    }

    /// Makes a repository for the files of a commit. It borrows the objects of the mirror if that has them.
    async fn snapshot(
        &self,
        commit: &CommitSha,
        has_objects: bool,
    ) -> Result<CommitSnapshot, GitError> {
        let doing = reading(commit);
        self.check_integrity(&doing)?;
        let borrowed = has_objects.then(|| self.dir().join("objects"));
        let scratch = self.settings.data_dir.join(SCRATCH);
        let dir = run_blocking(move || make(&scratch, borrowed.as_deref()))
            .await
            .and_then(|made| made)
            .map_err(GitError::from_io(&doing))?;
        Ok(CommitSnapshot {
            settings: Arc::clone(&self.settings),
            commit: commit.clone(),
            dir,
            is_fetched: !has_objects,
        })
    }
}

impl Git {
    /// Prepares reading the files of a commit in the mirror of a repository. `None`: there is no mirror, or it does not have
    /// all files of the commit.
    ///
    /// A mirror is made with credentials. The caller makes sure that the files are only seen by people who may read the
    /// commit.
    pub async fn mirrored_files(
        &self,
        repo: &RepoId,
        commit: &CommitSha,
    ) -> Result<Option<CommitSnapshot>, GitError> {
        // There is a handle for each mirror that was ever looked for, and clients name any repository.
        if !place::mirror(&self.settings.data_dir, repo).is_dir() {
            return Ok(None);
        }
        let mirror = self.mirror(repo);
        if !mirror.has_all_of(commit).await? {
            return Ok(None);
        }
        mirror.snapshot(commit, true).await.map(Some)
    }
}

fn reading(commit: &CommitSha) -> String {
    format!("read the files of {}", commit.short())
}

/// Makes a bare repository without refs.
pub(super) fn make(scratch: &Path, objects: Option<&Path>) -> std::io::Result<TempDir> {
    fs::create_dir_all(scratch)?;
    let dir = tempfile::Builder::new()
        .prefix("commit-")
        .tempdir_in(scratch)?;
    let place = |name: &str| dir.path().join(name);
    for name in ["objects/info", "objects/pack", "refs/heads", "info"] {
        fs::create_dir_all(place(name))?;
    }
    fs::write(place("HEAD"), "ref: refs/heads/main\n")?;
    fs::write(place("config"), CONFIG)?;
    fs::write(place("info/attributes"), ATTRIBUTES)?;
    if let Some(objects) = objects {
        use std::os::unix::ffi::OsStrExt as _;
        let line = [objects.as_os_str().as_bytes(), b"\n"].concat();
        fs::write(place("objects/info/alternates"), line)?;
    }
    Ok(dir)
}

impl CommitSnapshot {
    /// Takes a repository from [`make`] that has a commit with all of its files.
    pub(super) fn of_repository(settings: GitSettings, dir: TempDir, commit: CommitSha) -> Self {
        Self {
            settings: Arc::new(settings),
            commit,
            dir,
            is_fetched: true,
        }
    }

    /// Returns the commit with the files.
    pub fn commit(&self) -> &CommitSha {
        &self.commit
    }

    /// Returns the time of the commit.
    pub async fn committed_at(&self) -> Result<DateTime<Utc>, SnapshotError> {
        let commit = self.commit.clone();
        let seconds = self
            .read_objects(move |objects| objects.time_of(&commit))
            .await?;
        valid_time(seconds).ok_or_else(|| SnapshotError::Refused("it has no valid time".to_owned()))
    }

    /// Returns true if the files came from the forge.
    pub fn is_fetched(&self) -> bool {
        self.is_fetched
    }

    /// Returns the content of a file. `None`: the commit has no file at this path, or something else.
    pub async fn read(&self, path: &RepoPath, most: u64) -> Result<Option<Vec<u8>>, SnapshotError> {
        let (wanted, commit) = (path.clone(), self.commit.clone());
        let found = self.read_objects(move |objects| {
            let root = objects.tree_of(&commit)?;
            let Some(entry) = Dirs::default().entry_at(objects, root, &wanted)? else {
                return Ok(None);
            };
            if !entry.is_file() {
                return Ok(None);
            }
            if size(objects, entry)? > most {
                return Ok(Some(None));
            }
            objects
                .read(entry.id, Kind::Blob)
                .map(|bytes| Some(Some(bytes)))
        });
        match found.await? {
            None => Ok(None),
            Some(Some(bytes)) => Ok(Some(bytes)),
            Some(None) => Err(SnapshotError::LargeFile {
                path: path.clone(),
                most,
            }),
        }
    }

    /// Returns the content of all regular files whose paths are wanted, in the order of their paths. Files of more than `most`
    /// bytes are left out, and so is everything beyond the limits.
    pub async fn select(
        &self,
        is_wanted: fn(&str) -> bool,
        limits: FileLimits,
        most: u64,
    ) -> Result<SelectedFiles, SnapshotError> {
        let commit = self.commit.clone();
        let selected = self.read_objects(move |objects| {
            let root = objects.tree_of(&commit)?;
            if !is_of_usual_size(objects, root)? {
                return Ok(None);
            }
            objects.renew_limit();
            select(objects, root, is_wanted, limits, most).map(Some)
        });
        selected.await?.ok_or_else(|| SnapshotError::TooMany {
            dir: RepoPath::root(),
            most: MAX_OF_COMMIT,
        })
    }

    /// Returns the files and links of a directory, and the file `also` at the top if there is one, as `git archive` gives
    /// them. `None`: the commit has no such directory.
    pub async fn archive(
        &self,
        dir: &RepoPath,
        also: Option<&RepoPath>,
        limits: FileLimits,
    ) -> Result<Option<Vec<ArchivedFile>>, SnapshotError> {
        let measured = match self.measure(dir, limits).await? {
            Measure::None => return Ok(None),
            Measure::Within(measured) => measured,
            Measure::TooLarge => {
                return Err(SnapshotError::TooLarge {
                    dir: dir.clone(),
                    most: limits.bytes,
                });
            }
            Measure::TooMany => {
                return Err(SnapshotError::TooMany {
                    dir: dir.clone(),
                    most: limits.entries,
                });
            }
            Measure::TooManyInCommit => {
                return Err(SnapshotError::TooMany {
                    dir: RepoPath::root(),
                    most: MAX_OF_COMMIT,
                });
            }
        };
        let mut paths = Vec::new();
        if !dir.is_root() {
            paths.push(dir.as_str());
            if let Some(also) = also
                && self.has_file(also, limits.bytes).await?
            {
                paths.push(also.as_str());
            }
        }
        let doing = reading(&self.commit);
        let most = limits.bytes + (measured.entries as u64 + 16) * AROUND_AN_ENTRY;
        let cmd = git_in(&self.settings, self.dir.path(), None)
            // Exactly as `go` calls it.
            .args(["-c", "core.autocrlf=input", "-c", "core.eol=lf"])
            .args(["archive", "--format=tar"])
            .cap(usize::try_from(most).unwrap_or(usize::MAX))
            .operands([self.commit.as_str()])
            .operands(paths);
        let output = cmd.output().await;
        let output = output.map_err(|error| GitError::from_process(&doing, error))?;
        let too_large = || SnapshotError::TooLarge {
            dir: dir.clone(),
            most: limits.bytes,
        };
        if output.stdout.truncated {
            return Err(too_large());
        }
        if !output.is_success() {
            return Err(GitError::from_output(doing, &output, None).into());
        }
        let archive = output.stdout.bytes;
        let read = run_blocking(move || read_git_archive(archive.as_slice(), limits.bytes)).await;
        match read.and_then(|read| read) {
            Ok(files) => Ok(Some(files)),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Err(too_large()),
            Err(error) => Err(GitError::from_io(doing)(error).into()),
        }
    }

    /// Returns true if the commit has a file or a link at this path, which is verified then.
    async fn has_file(&self, path: &RepoPath, most: u64) -> Result<bool, SnapshotError> {
        let (wanted, commit) = (path.clone(), self.commit.clone());
        let found = self.read_objects(move |objects| {
            let root = objects.tree_of(&commit)?;
            let entry = Dirs::default().entry_at(objects, root, &wanted)?;
            let Some(entry) = entry.filter(|entry| entry.is_file() || entry.is_link()) else {
                return Ok(Some(false));
            };
            if size(objects, entry)? > most {
                return Ok(None);
            }
            objects.read(entry.id, Kind::Blob).map(|_| Some(true))
        });
        found.await?.ok_or_else(|| SnapshotError::LargeFile {
            path: path.clone(),
            most,
        })
    }

    /// Measures a directory, and verifies all of its objects.
    async fn measure(&self, dir: &RepoPath, limits: FileLimits) -> Result<Measure, GitError> {
        let (dir, commit) = (dir.clone(), self.commit.clone());
        self.read_objects(move |objects| {
            let root = objects.tree_of(&commit)?;
            if !is_of_usual_size(objects, root)? {
                return Ok(Measure::TooManyInCommit);
            }
            objects.renew_limit();
            let top = if dir.is_root() {
                Some(root)
            } else {
                let entry = Dirs::default().entry_at(objects, root, &dir)?;
                entry.filter(|entry| entry.is_dir()).map(|entry| entry.id)
            };
            match top {
                Some(top) => measure(objects, top, limits),
                None => Ok(Measure::None),
            }
        })
        .await
    }

    async fn read_objects<T: Send + 'static>(
        &self,
        look: impl FnOnce(&ObjectDb) -> Result<T, ObjectError> + Send + 'static,
    ) -> Result<T, GitError> {
        let (doing, dir) = (reading(&self.commit), self.dir.path().to_owned());
        let looked = run_blocking(move || ObjectDb::open(&dir).and_then(|objects| look(&objects)));
        let Ok(looked) = tokio::time::timeout(self.settings.deadline, looked).await else {
            let message = "reading the commit took too long".to_owned();
            return Err(GitError::TimedOut { doing, message });
        };
        let looked = looked.map_err(GitError::from_io(&doing))?;
        looked.map_err(|error| {
            let message = error.to_string();
            match error {
                ObjectError::NoCommit(_) => GitError::NotFound { doing, message },
                ObjectError::Missing(_) | ObjectError::Unreadable(_) | ObjectError::Mismatch(_) => {
                    GitError::Corrupt { doing, message }
                }
                ObjectError::TooLarge | ObjectError::LargeCommit(_) => {
                    GitError::Fsck { doing, message }
                }
            }
        })
    }
}

/// Returns true if the directories of a commit fit into the memory of git.
fn is_of_usual_size(objects: &ObjectDb, root: ObjectId) -> Result<bool, ObjectError> {
    let (mut entries, mut bytes) = (0, 0);
    let mut open: Vec<(usize, ObjectId)> = vec![(0, root)];
    while let Some((length, dir)) = open.pop() {
        for (name, entry) in objects.entries(dir)? {
            let length = length + 1 + name.len();
            entries += 1;
            bytes += length;
            if entries > MAX_OF_COMMIT || bytes > MAX_PATHS_OF_COMMIT || length > MAX_PATH {
                return Ok(false);
            }
            if entry.is_dir() {
                open.push((length, entry.id));
            }
        }
    }
    Ok(true)
}

/// Counts entries and bytes below a directory. Each file is read, which verifies it.
fn measure(objects: &ObjectDb, top: ObjectId, limits: FileLimits) -> Result<Measure, ObjectError> {
    let mut measured = Measured::default();
    let mut open: Vec<(usize, ObjectId)> = vec![(0, top)];
    while let Some((length, dir)) = open.pop() {
        for (name, entry) in objects.entries(dir)? {
            let length = length + 1 + name.len();
            measured.entries += 1;
            if measured.entries > limits.entries || length > MAX_PATH {
                return Ok(Measure::TooMany);
            }
            if entry.is_dir() {
                open.push((length, entry.id));
                continue;
            }
            if entry.is_submodule() {
                continue;
            }
            measured.bytes += size(objects, entry)?;
            if measured.bytes > limits.bytes {
                return Ok(Measure::TooLarge);
            }
            objects.read(entry.id, Kind::Blob)?;
        }
    }
    Ok(Measure::Within(measured))
}

fn select(
    objects: &ObjectDb,
    root: ObjectId,
    is_wanted: fn(&str) -> bool,
    limits: FileLimits,
    most: u64,
) -> Result<SelectedFiles, ObjectError> {
    let mut wanted = Vec::new();
    let mut open = vec![(String::new(), root)];
    while let Some((dir, id)) = open.pop() {
        for (name, entry) in objects.entries(id)? {
            let Ok(name) = std::str::from_utf8(&name) else {
                continue;
            };
            let path = format!("{dir}{name}");
            if entry.is_dir() {
                open.push((format!("{path}/"), entry.id));
            } else if entry.is_file()
                && is_wanted(&path)
                && let Some(path) = path_of(path.as_bytes())
            {
                wanted.push((path, entry));
            }
        }
    }
    wanted.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let (mut selected, mut bytes) = (SelectedFiles::default(), 0);
    for (path, entry) in wanted {
        let size = size(objects, entry)?;
        if size > most || bytes + size > limits.bytes || selected.files.len() >= limits.entries {
            selected.left_out += 1;
            continue;
        }
        bytes += size;
        let content = objects.read(entry.id, Kind::Blob)?;
        selected.files.push((path, content));
    }
    Ok(selected)
}

fn size(objects: &ObjectDb, entry: Entry) -> Result<u64, ObjectError> {
    let header = objects.header(entry.id)?;
    let (_, size) = header.ok_or(ObjectError::Missing(entry.id))?;
    Ok(size)
}
