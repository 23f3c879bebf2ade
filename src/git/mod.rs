//! Manages mirrors and checkouts with the `git` program (2.38 or newer).
//!
//! The need: many pulls of a repository are planned side by side, each at exactly one commit, on disks that are only
//! a cache. Each repository has one bare [`Mirror`], and fetches write into it. Each pull and workspace has one
//! [`Checkout`], which is a worktree of the mirror.
//!
//! Everything fetched is hostile. Git reads no configuration of the user or the system. Hooks, file system monitors,
//! filters, submodules, pagers and editors do not run. Git checks objects on arrival. Paths on disk are built only
//! from validated names; see `environment`. A `git fetch` receives credentials only when it asks for them, and no
//! environment contains them (see `process/secret.rs`).
//!
//! Invariants:
//! - *One writer.* A mirror has three async mutexes. `transfer` covers bringing objects and moving refs, and its
//!   holder may wait for the network. `writer` covers the worktrees and the replacement of the mirror itself. So a
//!   checkout of a commit that is already present never waits for the network. `spare` covers the spare checkout,
//!   which is written without `writer`. Code that removes or replaces the mirror holds all, in this order: hold,
//!   transfer, spare, writer. Between replicas that share a disk, the caller's lease on the repository does the same.
//! - *No run underneath.* A checkout is changed or removed only while its [`crate::process::FileHold`] is held
//!   exclusively. So Lockkeeper waits for a Terraform process that outlived a server.
//! - *No switch underneath.* A checkout is a worktree of one copy of the mirror. A fresh copy replaces the old one
//!   only when no run is under way in any checkout of the old one. This includes runs of this process
//!   ([`Mirror::begin_run`]) and runs that outlived an earlier server (its [`crate::process::FileHold`]).
//! - *Whole or marked.* A checkout carries a mark while it is being changed. A mark found later means that a process
//!   was killed during the change. The checkout is then recreated, because git cannot tell which files belong to it.
//! - *Ours.* Before each call, the configuration of the mirror is compared byte by byte with what Lockkeeper writes
//!   (`integrity`). Checked-out files are compared with the commit (`tree_check`). So a process that writes into a
//!   mirror cannot change code that runs.
//! - *Cache.* A fresh mirror, made beside a damaged one, replaces it. Lock files left behind by a killed git are
//!   removed, because this process is the only writer.

mod advertise;
mod changes;
mod checkout;
mod classify;
mod commit_files;
mod disk;
mod environment;
mod error;
mod fetch;
mod filter;
mod foreign_repository;
mod integrity;
mod kept;
mod known;
mod lfs;
mod links_out;
mod local_copy;
mod ls_refs;
mod merge;
mod mirror;
mod object_db;
mod objects;
mod parts_upkeep;
mod place;
mod plain_file;
mod push;
mod rebuild;
mod ref_file;
mod refs;
mod refused;
mod remote;
mod renames;
mod served;
mod served_check;
mod spare;
mod sparse;
mod ssh;
mod submodule_files;
mod submodule_url;
mod submodules;
mod sync;
mod tags;
mod tree_check;
mod tree_reader;
mod upkeep;
mod work_tree;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::config::MirrorFilter;
use crate::model::RepoId;
use crate::process::Sandbox;

pub use changes::{BaseCommit, BranchChanges};
pub use checkout::{Checkout, CheckoutRequest, CheckoutStrategy, DirError, Prepared};
pub use commit_files::{CommitSnapshot, FileLimits, SelectedFiles, SnapshotError};
pub use disk::{DiskPart, DiskUse};
pub use environment::{AUTHORITY_VARIABLES, ModuleAccess, PROXY_VARIABLES};
pub use error::GitError;
pub use fetch::{FetchRequest, Fetched, Head};
pub use foreign_repository::{ForeignRepository, RemoteRef};
pub use lfs::LfsFile;
pub use links_out::{CommitLinks, LinkOut};
pub use local_copy::{BranchHistory, LocalCopy, LocalCopyError};
pub use mirror::{Mirror, MirrorInUse};
pub use objects::{IgnoredFiles, TreeFiles};
pub use push::RemoteMove;
pub use refs::{InvalidRefName, RefList, RefName, RefSelection};
pub use refused::{RefusedRef, without_refused};
pub use remote::Remote;
pub use served::{
    FetchAnswer, PackRefusal, PushContent, PushFault, PushedCommit, PushedCommits, PushedNote,
    PushedPack, ServeError, ServedPlace, ServedPlaces, ServedRepo,
};
pub use served_check::{MissingObject, ServedDamage};
pub use sparse::Extent;
pub use submodules::{Submodule, SubmoduleAdmission, SubmoduleRules};
pub use sync::Synced;
pub use tags::ForgeTags;
pub use tree_reader::TreeReader;
pub use work_tree::{Base, WorkTree, WorkTreeChanges, WorkTreeNames};

/// Number of files that take long enough to write that another copy of them on the disk is worth it.
const SPARE_FROM: usize = 5_000;

/// Settings of the git program and its surroundings.
#[derive(Clone)]
pub struct GitSettings {
    /// Directory that contains `mirrors/` and `checkouts/`.
    pub data_dir: PathBuf,
    /// Program to run: a path, or a name looked up in the `PATH` of `env`.
    pub program: OsString,
    /// Variables for every call: `PATH` and, where needed, proxies and certificates (`https_proxy`, `no_proxy`,
    /// `SSL_CERT_FILE`, `GIT_SSL_CAINFO`). Variables that `environment` sets take precedence.
    pub env: Vec<(OsString, OsString)>,
    /// Paths that git may use; with `None` git may use all paths that the server may use.
    pub sandbox: Option<Sandbox>,
    /// Objects that new mirrors leave at the forge until they are needed; `None` leaves nothing there.
    pub filter: Option<MirrorFilter>,
    /// Minimum number of files of a repository that gets a spare checkout.
    pub spare_from: usize,
    /// True if fetches from `file://` are allowed; only for tests and demonstrations.
    pub allow_file: bool,
    /// Longest time for one call that does not use the network.
    pub deadline: Duration,
    /// Longest wait for an old run to leave a checkout, and for runs to leave a mirror before it is replaced.
    pub hold_wait: Duration,
    /// File that every call holds ([`crate::process::Cmd::holds`]). With `None`, nothing waits for a git process that
    /// outlives its server.
    pub hold: Option<PathBuf>,
}

impl GitSettings {
    /// Uses the `git` found in `path`, a limit of 5 minutes per call and a wait of 2 minutes for old runs.
    pub fn new(data_dir: impl Into<PathBuf>, path: impl Into<OsString>) -> Self {
        Self {
            data_dir: data_dir.into(),
            program: "git".into(),
            env: vec![("PATH".into(), path.into())],
            sandbox: None,
            filter: None,
            spare_from: SPARE_FROM,
            allow_file: false,
            deadline: Duration::from_mins(5),
            hold_wait: Duration::from_mins(2),
            hold: None,
        }
    }
}

impl fmt::Debug for GitSettings {
    /// Shows variables by name only: the URL of a proxy may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        let mut debug = f.debug_struct("GitSettings");
        debug
            .field("data_dir", &self.data_dir)
            .field("program", &self.program)
            .field("env", &names);
        debug.finish_non_exhaustive()
    }
}

/// Access to all mirrors of this process. Cheap to clone; clones share the mutexes.
#[derive(Clone, Debug)]
pub struct Git {
    settings: Arc<GitSettings>,
    locks: Arc<Mutex<HashMap<RepoId, Arc<MirrorLocks>>>>,
    known: Arc<known::KnownCheckouts>,
    listings: Arc<object_db::KnownListings>,
}

/// Mutexes of one mirror (see the invariant *one writer*), and its runs (see *no switch underneath*).
#[derive(Debug, Default)]
struct MirrorLocks {
    transfer: tokio::sync::Mutex<()>,
    writer: tokio::sync::Mutex<()>,
    /// Covers the directory of the spare checkout, see `spare`.
    spare: tokio::sync::Mutex<()>,
    /// Lock shared by runs. Code that replaces the mirror only tries to lock it exclusively and never queues for it,
    /// so no run waits for another.
    runs: Arc<tokio::sync::RwLock<()>>,
    /// Number of times that the mirror was replaced.
    replaced: AtomicU64,
    merges: merge::Merges,
    /// Verified checkouts of all mirrors.
    known: Arc<known::KnownCheckouts>,
    listings: Arc<object_db::KnownListings>,
}

impl Git {
    /// Creates the handle without touching the disk.
    pub fn new(mut settings: GitSettings) -> Self {
        // Git runs in other directories, so the path must be absolute. An empty path, the only one without an
        // absolute form, fails later.
        settings.data_dir = std::path::absolute(&settings.data_dir).unwrap_or(settings.data_dir);
        Self {
            settings: Arc::new(settings),
            locks: Arc::default(),
            known: Arc::default(),
            listings: Arc::default(),
        }
    }

    /// Returns the mirror of a repository, which need not exist on disk yet.
    pub fn mirror(&self, repo: &RepoId) -> Mirror {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = Arc::clone(locks.entry(repo.clone()).or_insert_with(|| {
            Arc::new(MirrorLocks {
                known: Arc::clone(&self.known),
                listings: Arc::clone(&self.listings),
                ..MirrorLocks::default()
            })
        }));
        Mirror::new(Arc::clone(&self.settings), repo, locks)
    }

    /// Returns the version of the program, such as `2.39.5`. Fails when it is older than 2.38, which cannot merge
    /// without a checkout.
    pub async fn version(&self) -> Result<String, GitError> {
        let output = environment::git(&self.settings)
            .arg("version")
            .output()
            .await;
        let output = output.map_err(|error| GitError::from_process("run git", error))?;
        let text = output.stdout.text();
        let version = text.split_whitespace().nth(2).unwrap_or_default();
        let mut numbers = version
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0));
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < (2, 38) {
            let message = format!("found version {version:?}; install git 2.38 or newer");
            return Err(GitError::Other {
                doing: "use git".to_owned(),
                message,
            });
        }
        Ok(version.to_owned())
    }
}
