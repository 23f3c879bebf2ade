//! Repositories that git clients fetch from and push to. What they hold is stored elsewhere and put here before each
//! request, so one can be removed at any time. A client can ask for any object by its id, so such a repository holds only
//! what its clients may read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind, Tree, TreeRef, Write as _};
use lockkeeper_accounts::external_ids::NoteName;
use lockkeeper_accounts::notes::{NoteFault, NoteTrees, NotesError, changed_notes};

use super::GitSettings;
use super::environment::git_in;
use super::object_db::{Entry, ObjectDb, ObjectError};
use crate::process::{Cmd, Dialogue, ProcessError, RunLimits};

/// Size of the first part of an answer in bytes. An answer that is not larger is whole before anything is sent, so that a
/// damaged repository can be made again.
const FIRST_PART: usize = 1024 * 1024;
/// Size of the other parts in bytes.
const PART: usize = 64 * 1024;
/// Longest time for an answer, with the time that the client takes to receive it.
const ANSWER_TIME: Duration = Duration::from_mins(5);
/// Maximum number of objects in a push. Each becomes a file.
const MAX_OBJECTS: u32 = 20_000;
/// Maximum size of a pushed commit in bytes.
const MAX_COMMIT: u64 = 64 * 1024;
/// Maximum number of objects from before that the commits of a push lead to. A directory of notes has hundreds.
const MAX_KNOWN: usize = 1_000;
const MAX_KNOWN_NOTES: usize = 50_000;
/// Maximum size of a note in bytes.
const MAX_NOTE: u64 = 64 * 1024;
/// Maximum number of directories in a pushed commit, and of directories inside each other. A small pack can describe any
/// number of both.
const MAX_DIRS: usize = 100;
const MAX_DEPTH: usize = 16;
/// Maximum number of commits in a push to one ref.
const MAX_COMMITS: usize = 100;

/// Limits of the program that unpacks a push, because a small pack can describe large objects.
const UNPACKING: RunLimits = RunLimits {
    memory: Some(512 * 1024 * 1024),
    processes: None,
    file_size: Some(64 * 1024 * 1024),
    disk: None,
    cpu: Some(Duration::from_secs(20)),
};

pub(super) const CONFIG: &str = "\
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
    pub(super) settings: GitSettings,
    pub(super) dir: PathBuf,
}

/// All refs by name, as one update has left them.
pub type RefsAt = (i64, Arc<Vec<(String, ObjectId)>>);

/// State that all requests of this process share.
#[derive(Default)]
pub struct ServedPlaces {
    /// Locks on the repositories for clients, by name.
    places: Mutex<HashMap<String, Arc<ServedPlace>>>,
    /// The refs that were read last, with the number of the update. git sends several requests for one command.
    refs: Mutex<Option<RefsAt>>,
    /// Place where the check of all repositories goes on.
    next_check: Mutex<Option<(String, u8)>>,
}

/// Locks on a repository for clients.
#[derive(Default)]
pub struct ServedPlace {
    /// One request at a time brings the repository up to date. The moment when it was last made again.
    pub turn: tokio::sync::Mutex<Option<Instant>>,
    /// Requests that use the repository share it; it is removed while nobody does.
    pub users: Arc<tokio::sync::RwLock<()>>,
}

impl ServedPlaces {
    /// Returns the locks on a repository.
    pub fn of(&self, name: &str) -> Arc<ServedPlace> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(name.to_owned()).or_default())
    }

    /// Returns the refs as the update with this number has left them, if they were read before.
    pub fn refs_at(&self, update: i64) -> Option<Arc<Vec<(String, ObjectId)>>> {
        let known = self.refs.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, refs) = known.as_ref()?;
        (*number == update).then(|| Arc::clone(refs))
    }

    /// Returns where the check of all repositories goes on: in a repository, at the objects whose ids begin with a byte.
    /// The next call returns nothing until a place is kept again.
    pub fn take_next_check(&self) -> Option<(String, u8)> {
        let mut next = self
            .next_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        next.take()
    }

    /// Keeps the place where the check of all repositories goes on.
    pub fn keep_next_check(&self, next: (String, u8)) {
        *self
            .next_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Keeps refs for the next request.
    pub fn keep_refs(&self, (number, refs): RefsAt) {
        *self.refs.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, refs));
    }
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
    /// An object cannot be read.
    #[error("an object cannot be read: {0}")]
    Object(String),
}

/// Answer to a client that fetches.
pub struct FetchAnswer {
    /// Program that answers, until it has said everything.
    program: Option<Dialogue>,
    first: Option<Vec<u8>>,
}

/// Objects that a client has pushed, in quarantine. Dropping the value removes them.
pub struct PushedPack {
    dir: tempfile::TempDir,
}

/// Reason why the objects of a push are not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackRefusal {
    /// The push has too many objects.
    #[error("{0}")]
    Large(String),
    /// Git does not accept them, or cannot read the repository that they are for.
    #[error("{0}")]
    ByGit(String),
}

/// Content of pushed commits that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushContent {
    /// The files of the newest commit.
    Files {
        /// Maximum number of files.
        most: usize,
        /// Maximum number of bytes of a file in the commits before the newest one.
        max_old_bytes: u64,
    },
    /// The notes of the newest commit that differ from the old place of the ref, at most this many.
    Notes(usize),
}

/// A git note that a push changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedNote {
    /// Name of the note.
    pub name: NoteName,
    /// Blob of the note before. `None` for an added note.
    pub before: Option<ObjectId>,
    /// Content of the note. `None` for a removed note.
    pub after: Option<Vec<u8>>,
}

/// Commits between the old and the new place of a ref.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushedCommits {
    /// The commits, newest first.
    pub commits: Vec<PushedCommit>,
    /// Files of the newest commit by path, if they were requested.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Notes that differ, if they were requested.
    pub notes: Vec<PushedNote>,
    /// Everything that the new commits lead to and that was pushed, each after what it leads to.
    pub objects: Vec<(ObjectId, Kind, Vec<u8>)>,
    /// Objects from before that the new ones lead to.
    pub known: HashSet<ObjectId>,
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
    /// Entries of the directories are not notes.
    #[error("the tree has entries that are not notes")]
    Notes(Vec<NoteFault>),
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

    /// Opens the repository in `dir`, which has refs of its own and shares the objects of another one next to it.
    pub fn open_sharing_objects(other: &Self, dir: PathBuf) -> Result<Self, ServeError> {
        let objects = dir.join("objects");
        if !objects.exists() {
            let failed = |error| ServeError::File(objects.clone(), error);
            fs::create_dir_all(&dir).map_err(failed)?;
            // Relative, so that a copy of the data directory does not lead to the first one.
            let name = other.dir.file_name().unwrap_or_default();
            let shared = Path::new("..").join(name).join("objects");
            std::os::unix::fs::symlink(shared, &objects).map_err(failed)?;
        }
        Self::open(&other.settings, dir)
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

    /// Returns the names of all refs.
    pub fn ref_names(&self) -> Result<Vec<String>, ServeError> {
        let path = self.dir.join("packed-refs");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(|error| ServeError::File(path, error))?,
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let names = lines.filter_map(|line| Some(line.split_once(' ')?.1.to_owned()));
        Ok(names.collect())
    }

    /// Returns the number of bytes of all objects, as they are on the disk.
    pub fn size(&self) -> Result<u64, ServeError> {
        let mut bytes = 0;
        for folder in read_dir(&self.dir.join("objects"))? {
            for file in read_dir(&folder)? {
                let metadata =
                    fs::metadata(&file).map_err(|error| ServeError::File(file, error))?;
                bytes += metadata.len();
            }
        }
        Ok(bytes)
    }

    /// Lists the refs for a client that fetches.
    pub async fn advertise(&self, protocol: Option<&str>) -> Result<FetchAnswer, ServeError> {
        let cmd = self.upload_pack(protocol).arg("--advertise-refs");
        answer(&cmd.arg(&self.dir), &[]).await
    }

    /// Answers a client that fetches.
    pub async fn fetch(
        &self,
        protocol: Option<&str>,
        request: &[u8],
    ) -> Result<FetchAnswer, ServeError> {
        answer(&self.upload_pack(protocol).arg(&self.dir), request).await
    }

    fn upload_pack(&self, protocol: Option<&str>) -> Cmd {
        let cmd = git_in(&self.settings, &self.dir, None);
        let cmd = match protocol {
            Some(protocol) => cmd.env("GIT_PROTOCOL", protocol),
            None => cmd,
        };
        cmd.deadline(ANSWER_TIME)
            .args(["upload-pack", "--stateless-rpc", "--strict"])
    }

    /// Returns true if everything that the refs lead to can be read.
    pub async fn is_whole(&self) -> Result<bool, ServeError> {
        let cmd = git_in(&self.settings, &self.dir, None);
        let cmd = cmd.args(["fsck", "--no-dangling", "--no-progress"]);
        Ok(cmd.output().await?.is_success())
    }

    /// Checks a pushed pack and keeps it in quarantine below `dir`. `Err` inside: the reason why it is refused.
    pub async fn receive(
        &self,
        dir: &Path,
        pack: Vec<u8>,
        max_bytes: usize,
    ) -> Result<Result<PushedPack, PackRefusal>, ServeError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| ServeError::File(path, error)
        };
        if let Some(objects) = number_of_objects(&pack)
            && objects > MAX_OBJECTS
        {
            let what = format!("the push has {objects} objects; the limit is {MAX_OBJECTS}");
            return Ok(Err(PackRefusal::Large(what)));
        }
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let quarantine = tempfile::tempdir_in(dir).map_err(failed(dir))?;
        init(quarantine.path())?;
        let known = self.dir.join("objects");
        let known = known.canonicalize().map_err(failed(&known))?;
        let alternates = quarantine.path().join("objects/info/alternates");
        replace(&alternates, &format!("{}\n", known.display()))?;
        let cmd = git_in(&self.settings, quarantine.path(), None)
            .args(["unpack-objects", "-q", "--strict"])
            .arg(format!("--max-input-size={max_bytes}"))
            .limits(UNPACKING)
            .input(pack);
        let output = cmd.output().await?;
        if output.is_success() {
            Ok(Ok(PushedPack { dir: quarantine }))
        } else {
            let complaint = match output.code {
                Some(_) => last_line(&output.stderr.bytes),
                None => "they take too much time or space; push fewer at once".to_owned(),
            };
            Ok(Err(PackRefusal::ByGit(complaint)))
        }
    }
}

impl FetchAnswer {
    /// Returns the next part. `None`: the answer is complete.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ServeError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(program) = &mut self.program else {
            return Ok(None);
        };
        let part = program.more(PART).await?;
        if !part.is_empty() {
            return Ok(Some(part));
        }
        match self.program.take() {
            Some(program) => ended(program).await.map(|()| None),
            None => Ok(None),
        }
    }
}

/// Starts git, and waits for the first part of its answer. A shorter answer is complete.
async fn answer(cmd: &Cmd, request: &[u8]) -> Result<FetchAnswer, ServeError> {
    let mut program = cmd.dialogue()?;
    let first = program.exchange(request, FIRST_PART).await?;
    if first.len() == FIRST_PART {
        return Ok(FetchAnswer {
            program: Some(program),
            first: Some(first),
        });
    }
    // git tells the client what is wrong with its request, in a line of the protocol: `0030ERR …`.
    let is_told = first.get(4..8) == Some(b"ERR ");
    match ended(program).await {
        Err(ServeError::Git { .. }) if is_told => {}
        ended => ended?,
    }
    Ok(FetchAnswer {
        program: None,
        first: Some(first),
    })
}

async fn ended(program: Dialogue) -> Result<(), ServeError> {
    let output = program.end().await?;
    if output.is_success() {
        return Ok(());
    }
    Err(ServeError::Git {
        command: "upload-pack",
        complaint: last_line(&output.stderr.bytes),
    })
}

impl PushedPack {
    /// Follows the commits of a ref from its new place to the old one, or to the first commit if the ref is new.
    /// `max_bytes` is the limit for everything that they lead to.
    pub fn commits(
        &self,
        old: Option<ObjectId>,
        new: ObjectId,
        content: PushContent,
        max_bytes: u64,
    ) -> Result<PushedCommits, PushFault> {
        let objects = ObjectDb::open(self.dir.path()).map_err(unreadable)?;
        let mut walk = PushWalk {
            objects: &objects,
            pushed: &self.pushed_ids()?,
            seen: HashSet::new(),
            found: PushedCommits::default(),
            bytes: max_bytes,
            max_bytes,
            max_file: None,
            is_of_notes: matches!(content, PushContent::Notes(_)),
            max_known: match content {
                PushContent::Files { .. } => MAX_KNOWN,
                PushContent::Notes(_) => MAX_KNOWN_NOTES,
            },
        };
        let mut next = Some(new);
        let mut trees = Vec::new();
        while next != old {
            let at = next.ok_or(PushFault::NotForward)?;
            if trees.len() >= MAX_COMMITS {
                let what = format!(
                    "the push has more than {MAX_COMMITS} commits; push some of them first, as in `git push origin \
                     HEAD~{MAX_COMMITS}:BRANCH`"
                );
                return Err(PushFault::Large(what));
            }
            // A commit that was here before and is not the old one is on another line of history.
            if !walk.pushed.contains(&at) {
                return Err(PushFault::NotForward);
            }
            let size = walk.charge(at)?;
            if size > MAX_COMMIT {
                let what = format!("the commit {at} has {size} bytes; the limit is {MAX_COMMIT}");
                return Err(PushFault::Large(what));
            }
            let content = objects.read(at, Kind::Commit).map_err(unreadable)?;
            let header = CommitHeader::read(at, &content)?;
            if header.parents.len() > 1 {
                return Err(PushFault::Merge(at));
            }
            walk.found.commits.push(PushedCommit {
                id: at,
                committer: header.committer,
            });
            trees.push((at, header.tree, content));
            next = header.parents.first().copied();
        }
        let Some((_, newest, _)) = trees.first() else {
            return Err(PushFault::NotForward);
        };
        match content {
            PushContent::Files { most, .. } => walk.read_files(*newest, most)?,
            PushContent::Notes(most) => walk.read_notes(old, *newest, most)?,
        }
        // Oldest first, so that each object comes after those that it leads to.
        for (commit, tree, text) in trees.into_iter().rev() {
            walk.max_file = match content {
                // The caller checks these files.
                PushContent::Files { .. } if commit == new => None,
                PushContent::Files { max_old_bytes, .. } => Some(max_old_bytes),
                PushContent::Notes(_) => None,
            };
            walk.tree(tree, 0)?;
            walk.found.objects.push((commit, Kind::Commit, text));
        }
        Ok(walk.found)
    }

    /// Returns the content of the blob that a ref shall point to, which was pushed or was here before.
    pub fn blob(&self, id: ObjectId, max_bytes: u64) -> Result<Vec<u8>, PushFault> {
        let objects = ObjectDb::open(self.dir.path()).map_err(unreadable)?;
        let header = objects.header(id).map_err(unreadable)?;
        let (_, size) = header.ok_or_else(|| unreadable(ObjectError::Missing(id)))?;
        if size > max_bytes {
            let what = format!("the text has {size} bytes; the limit is {max_bytes}");
            return Err(PushFault::Large(what));
        }
        objects.read(id, Kind::Blob).map_err(unreadable)
    }

    /// Returns the ids of all objects that were pushed. Each has a file of its own.
    fn pushed_ids(&self) -> Result<HashSet<ObjectId>, PushFault> {
        let mut ids = HashSet::new();
        for folder in read_dir(&self.dir.path().join("objects")).map_err(unreadable)? {
            for file in read_dir(&folder).map_err(unreadable)? {
                let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
                let hex = name(&folder).zip(name(&file));
                let id = hex.and_then(|(dir, rest)| {
                    ObjectId::from_hex(format!("{dir}{rest}").as_bytes()).ok()
                });
                ids.extend(id);
            }
        }
        Ok(ids)
    }
}

/// Committer, directory and parents of a commit.
struct CommitHeader {
    committer: String,
    tree: ObjectId,
    parents: Vec<ObjectId>,
}

impl CommitHeader {
    fn read(id: ObjectId, content: &[u8]) -> Result<Self, PushFault> {
        let bad = |error: &dyn std::fmt::Display| {
            PushFault::Unreadable(format!("the commit {id}: {error}"))
        };
        let iter = || CommitRefIter::from_bytes(content, gix_hash::Kind::Sha1);
        let committer = iter().committer().map_err(|error| bad(&error))?;
        Ok(Self {
            committer: committer.email.to_string(),
            tree: iter().tree_id().map_err(|error| bad(&error))?,
            parents: iter().parent_ids().collect(),
        })
    }
}

/// Objects that a push leads to.
struct PushWalk<'a> {
    objects: &'a ObjectDb,
    pushed: &'a HashSet<ObjectId>,
    seen: HashSet<ObjectId>,
    found: PushedCommits,
    /// Bytes that may still be read, and the number at the beginning.
    bytes: u64,
    max_bytes: u64,
    /// Maximum number of bytes of a file.
    max_file: Option<u64>,
    /// Maximum number of objects from before.
    max_known: usize,
    /// True if the directories have notes. Most of them are the same as before.
    is_of_notes: bool,
}

impl PushWalk<'_> {
    /// Keeps everything below a directory that is new. An object from before is complete.
    fn tree(&mut self, id: ObjectId, depth: usize) -> Result<(), PushFault> {
        if depth > MAX_DEPTH {
            let what = format!("there are more than {MAX_DEPTH} directories inside each other");
            return Err(PushFault::Large(what));
        }
        if !self.is_new(id)? {
            return Ok(());
        }
        for (name, entry) in self.entries(id)? {
            if entry.is_dir() {
                self.tree(entry.id, depth + 1)?;
            } else if !entry.is_file() {
                let what = format!("`{}` is no plain file", name.escape_debug());
                return Err(PushFault::Unreadable(what));
            } else if self.pushed.contains(&entry.id) {
                if self.seen.insert(entry.id) {
                    self.check_size(&name, entry.id)?;
                    self.keep(entry.id, Kind::Blob)?;
                }
            } else if !self.is_of_notes {
                // An old note that differs is among those that are read.
                self.add_known(entry.id)?;
            }
        }
        self.keep(id, Kind::Tree)
    }

    /// Refuses a large file. All versions of a file are kept, also those that a later commit removes.
    fn check_size(&self, name: &str, id: ObjectId) -> Result<(), PushFault> {
        let Some(most) = self.max_file else {
            return Ok(());
        };
        let size = self.objects.header(id).map_err(unreadable)?;
        match size {
            Some((_, size)) if size > most => Err(PushFault::Large(format!(
                "`{}` has {size} bytes in a commit before the newest one, and a file has at most {most}; leave it out of \
                 that commit",
                name.escape_debug()
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns true if the object was pushed and is met for the first time.
    fn is_new(&mut self, id: ObjectId) -> Result<bool, PushFault> {
        if self.pushed.contains(&id) {
            return Ok(self.seen.insert(id));
        }
        self.add_known(id).map(|()| false)
    }

    /// Notes an object from before.
    fn add_known(&mut self, id: ObjectId) -> Result<(), PushFault> {
        self.found.known.insert(id);
        if self.found.known.len() > self.max_known {
            let what = format!(
                "the push leads to more than {} older objects",
                self.max_known
            );
            return Err(PushFault::Large(what));
        }
        Ok(())
    }

    fn keep(&mut self, id: ObjectId, kind: Kind) -> Result<(), PushFault> {
        let content = self.read(id, kind)?;
        self.found.objects.push((id, kind, content));
        Ok(())
    }

    fn read(&mut self, id: ObjectId, kind: Kind) -> Result<Vec<u8>, PushFault> {
        self.charge(id)?;
        self.objects.read(id, kind).map_err(unreadable)
    }

    /// Returns the size of an object, which has to be within the bytes that are left.
    fn charge(&mut self, id: ObjectId) -> Result<u64, PushFault> {
        let header = self.objects.header(id).map_err(unreadable)?;
        let (_, size) = header.ok_or_else(|| unreadable(ObjectError::Missing(id)))?;
        self.bytes = self.bytes.checked_sub(size).ok_or_else(|| {
            let what = format!(
                "the commits lead to more than {} MiB of files and directories; push fewer of them at a time, or remove \
                 large files from all of them",
                self.max_bytes >> 20
            );
            PushFault::Large(what)
        })?;
        Ok(size)
    }

    /// Returns the entries of a directory. A name that is not UTF-8 could not be told from another one.
    fn entries(&mut self, id: ObjectId) -> Result<Vec<(String, Entry)>, PushFault> {
        self.charge(id)?;
        let entries = self.objects.entries(id).map_err(unreadable)?;
        let entries = entries.into_iter().map(|(name, entry)| {
            let name = String::from_utf8(name).map_err(|error| {
                let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let what = format!("the name `{}` is not UTF-8", name.escape_debug());
                PushFault::Unreadable(what)
            })?;
            Ok((name, entry))
        });
        entries.collect()
    }

    /// Reads the notes that differ.
    fn read_notes(
        &mut self,
        old: Option<ObjectId>,
        tree: ObjectId,
        most: usize,
    ) -> Result<(), PushFault> {
        let old = match old {
            None => None,
            Some(commit) => {
                let content = self.objects.read(commit, Kind::Commit);
                Some(CommitHeader::read(commit, &content.map_err(unreadable)?)?.tree)
            }
        };
        let changes = match changed_notes(&NotesOfDb(self.objects), old, Some(tree)) {
            Ok(changes) => changes,
            Err(NotesError::Invalid(faults)) => return Err(PushFault::Notes(faults)),
            Err(NotesError::Read(error)) => return Err(unreadable(error)),
        };
        if changes.len() > most {
            let what = format!(
                "the push changes {} notes; push at most {most} at once",
                changes.len()
            );
            return Err(PushFault::Large(what));
        }
        for (name, change) in changes {
            let after = match change.after {
                None => None,
                Some(blob) => {
                    if !self.pushed.contains(&blob) {
                        self.add_known(blob)?;
                    }
                    let size = self.charge(blob)?;
                    if size > MAX_NOTE {
                        let what =
                            format!("the note {name} has {size} bytes; the limit is {MAX_NOTE}");
                        return Err(PushFault::Large(what));
                    }
                    Some(self.objects.read(blob, Kind::Blob).map_err(unreadable)?)
                }
            };
            self.found.notes.push(PushedNote {
                name,
                before: change.before,
                after,
            });
        }
        Ok(())
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
            for (name, entry) in self.entries(id)? {
                let path = format!("{dir}{name}");
                if entry.is_dir() {
                    open.push((format!("{path}/"), entry.id));
                    continue;
                }
                if !entry.is_file() {
                    let what = format!("`{}` is no plain file", path.escape_debug());
                    return Err(PushFault::Unreadable(what));
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

/// Directories of notes, old and new.
struct NotesOfDb<'a>(&'a ObjectDb);

impl NoteTrees for NotesOfDb<'_> {
    type Error = ObjectError;

    fn tree(&self, id: ObjectId) -> Result<Tree, ObjectError> {
        let content = self.0.read(id, Kind::Tree)?;
        TreeRef::from_bytes(&content, gix_hash::Kind::Sha1)
            .map(|tree| tree.to_owned())
            .map_err(|error| ObjectError::Unreadable(error.to_string()))
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

fn read_dir(dir: &Path) -> Result<Vec<PathBuf>, ServeError> {
    let entries = fs::read_dir(dir).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    entries.map_err(|error| ServeError::File(dir.to_owned(), error))
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

/// Returns the number of objects that a pack says it has: `PACK`, a version, the number. git checks the rest.
fn number_of_objects(pack: &[u8]) -> Option<u32> {
    let number = pack.get(8..12)?.try_into().ok()?;
    Some(u32::from_be_bytes(number))
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

#[cfg(test)]
mod tests;
