//! Repositories that git clients fetch from and push to. What they hold is stored elsewhere and put here before each
//! request, so one can be removed at any time. A client can ask for any object by its id, so such a repository holds only
//! what its clients may read.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind, Write as _};

use super::GitSettings;
use super::environment::git_in;
use super::object_db::{ObjectDb, ObjectError};
use crate::process::{Cmd, ProcessError, RunLimits};

/// Maximum size of an answer to a client in bytes, held in memory.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// Maximum number of directories in a pushed commit, and of directories inside each other. A small pack can describe any
/// number of both.
const MAX_DIRS: usize = 100;
const MAX_DEPTH: usize = 16;
/// Maximum number of commits in a push to one ref.
const MAX_COMMITS: usize = 1_000;

/// Limits of the program that unpacks a push, because a small pack can describe large objects.
const UNPACKING: RunLimits = RunLimits {
    memory: Some(512 * 1024 * 1024),
    processes: None,
    file_size: Some(64 * 1024 * 1024),
    cpu: Some(Duration::from_mins(1)),
};

const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tbare = true
[uploadpack]
\tallowAnySHA1InWant = true
[gc]
\tauto = 0
";

/// A repository for clients.
#[derive(Clone)]
pub struct ServedRepo {
    settings: GitSettings,
    dir: PathBuf,
}

/// A request could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file of the repository cannot be read or written.
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// git could not be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// git ended with an error.
    #[error("git {command}: {complaint}")]
    Git {
        /// Name of the git command.
        command: &'static str,
        /// Last line of its error output.
        complaint: String,
    },
    /// The answer is larger than [`MAX_ANSWER`].
    #[error("the answer has more than {MAX_ANSWER} bytes")]
    Large,
    /// An object cannot be read.
    #[error("an object cannot be read: {0}")]
    Object(String),
}

/// Objects that a client has pushed, in quarantine. Dropping the value removes them.
pub struct PushedPack {
    dir: tempfile::TempDir,
}

/// Commits between the old and the new place of a ref.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushedCommits {
    /// The commits, newest first.
    pub commits: Vec<PushedCommit>,
    /// Files of the newest commit by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Everything that the new commits lead to and that was pushed, each after what it leads to.
    pub objects: Vec<(ObjectId, Kind, Vec<u8>)>,
}

/// A commit in a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedCommit {
    /// Id of the commit.
    pub id: ObjectId,
    /// Address of the committer.
    pub committer: String,
}

/// Reason why the commits of a push are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushFault {
    /// The new commits do not continue the old ones.
    #[error("non-fast-forward")]
    NotForward,
    /// A commit has several parents.
    #[error("the commit {0} is a merge")]
    Merge(ObjectId),
    /// The push has too many commits, files or bytes.
    #[error("{0}")]
    Large(String),
    /// An object cannot be read, or is none that is accepted.
    #[error("{0}")]
    Unreadable(String),
}

impl ServedRepo {
    /// Opens the repository in `dir`, which is created if it is not there.
    pub fn open(settings: &GitSettings, dir: PathBuf) -> Result<Self, ServeError> {
        let repo = Self {
            settings: settings.clone(),
            dir,
        };
        init(&repo.dir)?;
        Ok(repo)
    }

    /// Returns the directory of the repository.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns true if the object is here.
    pub fn has(&self, id: ObjectId) -> bool {
        let hex = id.to_string();
        let path = self.dir.join("objects").join(&hex[..2]).join(&hex[2..]);
        path.exists()
    }

    /// Adds objects. Each has to come after those that it leads to: one that is here stands for all of them.
    pub fn add<'a>(
        &self,
        objects: impl IntoIterator<Item = (Kind, &'a [u8])>,
    ) -> Result<(), ServeError> {
        let dir = self.dir.join("objects");
        let store = gix_odb::loose::Store::at(&dir, gix_hash::Kind::Sha1);
        for (kind, content) in objects {
            store
                .write_buf(kind, content)
                .map_err(|error| ServeError::Object(error.to_string()))?;
        }
        Ok(())
    }

    /// Puts all refs in place, sorted by name, and `HEAD`.
    pub fn set_refs(&self, refs: &[(String, ObjectId)], head: &str) -> Result<(), ServeError> {
        let mut text = String::from("# pack-refs with: peeled fully-peeled sorted \n");
        for (name, id) in refs {
            text.extend([id.to_string().as_str(), " ", name, "\n"]);
        }
        replace(&self.dir.join("packed-refs"), &text)?;
        replace(&self.dir.join("HEAD"), &format!("ref: {head}\n"))
    }

    /// Lists the refs for a client that fetches.
    pub async fn advertise(&self, protocol: Option<&str>) -> Result<Vec<u8>, ServeError> {
        let cmd = self.upload_pack(protocol).arg("--advertise-refs");
        self.answer("upload-pack", cmd.arg(&self.dir)).await
    }

    /// Answers a client that fetches.
    pub async fn fetch(
        &self,
        protocol: Option<&str>,
        request: Vec<u8>,
    ) -> Result<Vec<u8>, ServeError> {
        let cmd = self.upload_pack(protocol).arg(&self.dir).input(request);
        self.answer("upload-pack", cmd).await
    }

    fn upload_pack(&self, protocol: Option<&str>) -> Cmd {
        let cmd = git_in(&self.settings, &self.dir, None);
        let cmd = match protocol {
            Some(protocol) => cmd.env("GIT_PROTOCOL", protocol),
            None => cmd,
        };
        cmd.cap(MAX_ANSWER)
            .args(["upload-pack", "--stateless-rpc", "--strict"])
    }

    /// Checks a pushed pack and keeps it in quarantine below `dir`. `Err` inside: the reason why it is refused.
    pub async fn receive(
        &self,
        dir: &Path,
        pack: Vec<u8>,
        max_bytes: usize,
    ) -> Result<Result<PushedPack, String>, ServeError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| ServeError::File(path, error)
        };
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let quarantine = tempfile::tempdir_in(dir).map_err(failed(dir))?;
        init(quarantine.path())?;
        let known = self.dir.join("objects");
        let known = known.canonicalize().map_err(failed(&known))?;
        let alternates = quarantine.path().join("objects/info/alternates");
        replace(&alternates, &format!("{}\n", known.display()))?;
        let cmd = git_in(&self.settings, quarantine.path(), None)
            .args(["index-pack", "--stdin", "--fix-thin", "--strict"])
            .arg(format!("--max-input-size={max_bytes}"))
            .limits(UNPACKING)
            .input(pack);
        let output = cmd.output().await?;
        if output.is_success() {
            Ok(Ok(PushedPack { dir: quarantine }))
        } else {
            Ok(Err(last_line(&output.stderr.bytes)))
        }
    }

    async fn answer(&self, command: &'static str, cmd: Cmd) -> Result<Vec<u8>, ServeError> {
        let output = cmd.output().await?;
        // git tells the client what is wrong with its request, in a line of the protocol: `0030ERR …`.
        let is_told = output.stdout.bytes.get(4..8) == Some(b"ERR ");
        if !output.is_success() && !is_told {
            return Err(ServeError::Git {
                command,
                complaint: last_line(&output.stderr.bytes),
            });
        }
        if output.stdout.truncated {
            return Err(ServeError::Large);
        }
        Ok(output.stdout.bytes)
    }
}

impl PushedPack {
    /// Follows the commits of a ref from its new place to the old one. `max_bytes` is the limit for all files together.
    pub fn commits(
        &self,
        old: ObjectId,
        new: ObjectId,
        max_files: usize,
        max_bytes: u64,
    ) -> Result<PushedCommits, PushFault> {
        let objects = ObjectDb::open(self.dir.path()).map_err(unreadable)?;
        let pushed = self.pushed_ids()?;
        let mut found = PushWalk {
            objects: &objects,
            pushed: &pushed,
            seen: HashSet::new(),
            found: PushedCommits::default(),
            bytes: max_bytes,
        };
        let mut at = new;
        let mut trees = Vec::new();
        while at != old {
            if trees.len() >= MAX_COMMITS {
                let what = format!("the push has more than {MAX_COMMITS} commits");
                return Err(PushFault::Large(what));
            }
            // A commit that was here before and is not the old one is on another line of history.
            if !pushed.contains(&at) {
                return Err(PushFault::NotForward);
            }
            let content = objects.read(at, Kind::Commit).map_err(unreadable)?;
            let iter = || CommitRefIter::from_bytes(&content, gix_hash::Kind::Sha1);
            let bad = |error: &dyn std::fmt::Display| {
                PushFault::Unreadable(format!("the commit {at}: {error}"))
            };
            let committer = iter().committer().map_err(|error| bad(&error))?;
            found.found.commits.push(PushedCommit {
                id: at,
                committer: committer.email.to_string(),
            });
            trees.push((at, iter().tree_id().map_err(|error| bad(&error))?));
            let mut parents = iter().parent_ids();
            let parent = parents.next().ok_or(PushFault::NotForward)?;
            if parents.next().is_some() {
                return Err(PushFault::Merge(at));
            }
            at = parent;
        }
        // Oldest first, so that each object comes after those that it leads to.
        for (commit, tree) in trees.iter().rev() {
            found.tree(*tree, 0)?;
            found.keep(*commit, Kind::Commit)?;
        }
        if let Some((_, tree)) = trees.first() {
            found.read_files(*tree, max_files)?;
        }
        Ok(found.found)
    }

    /// Returns the ids of all objects in the pack, from its index (version 2: a header and 256 counts, then the ids).
    fn pushed_ids(&self) -> Result<HashSet<ObjectId>, PushFault> {
        const HEADER: usize = 8;
        const COUNTS: usize = 256 * 4;
        let mut ids = HashSet::new();
        let packs = self.dir.path().join("objects/pack");
        for entry in fs::read_dir(&packs).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_none_or(|extension| extension != "idx") {
                continue;
            }
            let index = fs::read(&path).map_err(unreadable)?;
            let count = index.get(HEADER + COUNTS - 4..HEADER + COUNTS);
            let count: Option<[u8; 4]> = count.and_then(|bytes| bytes.try_into().ok());
            let count = count.map_or(0, u32::from_be_bytes) as usize;
            let names = index.get(HEADER + COUNTS..HEADER + COUNTS + count * 20);
            let names =
                names.ok_or_else(|| PushFault::Unreadable("index of the pack".to_owned()))?;
            ids.extend(names.chunks_exact(20).map(ObjectId::from_bytes_or_panic));
        }
        Ok(ids)
    }
}

/// Objects that a push leads to.
struct PushWalk<'a> {
    objects: &'a ObjectDb,
    pushed: &'a HashSet<ObjectId>,
    seen: HashSet<ObjectId>,
    found: PushedCommits,
    /// Bytes that may still be read.
    bytes: u64,
}

impl PushWalk<'_> {
    /// Keeps everything below a directory that is new. What was here before is complete.
    fn tree(&mut self, id: ObjectId, depth: usize) -> Result<(), PushFault> {
        if depth > MAX_DEPTH {
            let what = format!("there are more than {MAX_DEPTH} directories inside each other");
            return Err(PushFault::Large(what));
        }
        if !self.pushed.contains(&id) || !self.seen.insert(id) {
            return Ok(());
        }
        for (name, entry) in self.objects.entries(id).map_err(unreadable)? {
            if entry.is_dir() {
                self.tree(entry.id, depth + 1)?;
            } else if entry.is_file() {
                if self.pushed.contains(&entry.id) && self.seen.insert(entry.id) {
                    self.keep(entry.id, Kind::Blob)?;
                }
            } else {
                let name = String::from_utf8_lossy(&name);
                let what = format!("`{}` is no plain file", name.escape_debug());
                return Err(PushFault::Unreadable(what));
            }
        }
        self.keep(id, Kind::Tree)
    }

    fn keep(&mut self, id: ObjectId, kind: Kind) -> Result<(), PushFault> {
        let content = self.read(id, kind)?;
        self.found.objects.push((id, kind, content));
        Ok(())
    }

    fn read(&mut self, id: ObjectId, kind: Kind) -> Result<Vec<u8>, PushFault> {
        let header = self.objects.header(id).map_err(unreadable)?;
        let (_, size) = header.ok_or_else(|| unreadable(ObjectError::Missing(id)))?;
        self.bytes = self.bytes.checked_sub(size).ok_or_else(|| {
            PushFault::Large("the push has too many bytes for one branch".to_owned())
        })?;
        self.objects.read(id, kind).map_err(unreadable)
    }

    fn read_files(&mut self, tree: ObjectId, max_files: usize) -> Result<(), PushFault> {
        let mut open = vec![(String::new(), tree)];
        let mut dirs = 0;
        while let Some((dir, id)) = open.pop() {
            dirs += 1;
            if dirs > MAX_DIRS {
                let what = format!("the branch has more than {MAX_DIRS} directories");
                return Err(PushFault::Large(what));
            }
            for (name, entry) in self.objects.entries(id).map_err(unreadable)? {
                let path = format!("{dir}{}", String::from_utf8_lossy(&name));
                if entry.is_dir() {
                    open.push((format!("{path}/"), entry.id));
                    continue;
                }
                if self.found.files.len() >= max_files {
                    let what = format!("the branch has more than {max_files} files");
                    return Err(PushFault::Large(what));
                }
                let content = self.read(entry.id, Kind::Blob)?;
                self.found.files.insert(path, content);
            }
        }
        Ok(())
    }
}

fn unreadable(error: impl std::fmt::Display) -> PushFault {
    PushFault::Unreadable(error.to_string())
}

fn init(dir: &Path) -> Result<(), ServeError> {
    for part in ["objects/info", "objects/pack", "refs"] {
        let path = dir.join(part);
        fs::create_dir_all(&path).map_err(|error| ServeError::File(path, error))?;
    }
    let config = dir.join("config");
    if !config.exists() {
        replace(&dir.join("HEAD"), "ref: refs/heads/none\n")?;
        replace(&config, CONFIG)?;
    }
    Ok(())
}

/// Writes a file whole: a reader sees the old content or the new one.
fn replace(path: &Path, text: &str) -> Result<(), ServeError> {
    let failed = |error| ServeError::File(path.to_owned(), error);
    let dir = path.parent().unwrap_or(path);
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    text.lines()
        .last()
        .unwrap_or_default()
        .chars()
        .take(300)
        .collect()
}
