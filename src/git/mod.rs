//! Mirrors and checkouts, kept with the `git` program (2.38 or newer).
//!
//! The need: many pulls of a repository are planned side by side, each at exactly one commit, on disks that are only a
//! cache. A bare [`Mirror`] per repository is fetched into; a [`Checkout`] per pull and workspace is a worktree of it.
//!
//! Everything fetched is hostile. No configuration of the user or the system is read; hooks, file system monitors,
//! filters, submodules, pagers and editors do not run; objects are checked on arrival; paths on disk are made from
//! validated names only; see `environment`. Credentials are handed to one `git fetch`
//! that asks for them, and are in no environment (see `process/secret.rs`).
//!
//! Invariants:
//! - *One writer.* A mirror has two async mutexes: `transfer` for what brings objects and moves refs (it may wait for
//!   the network), `writer` for its worktrees and for replacing the mirror itself. So a checkout of a commit that is here
//!   never waits for the network. Whoever throws objects or the mirror away holds both; order: hold, transfer, writer.
//!   Between replicas that share a disk the caller's lease on the repository does the same.
//! - *No run underneath.* A checkout is changed or removed only while its [`crate::process::Hold`] is held
//!   exclusively, so a Terraform that outlived a server is waited for.
//! - *No switch underneath.* A checkout is a worktree of one copy of the mirror. A fresh copy takes the place of the old one
//!   only when no run is under way in any checkout of it, neither one of this process ([`Mirror::begin_run`]) nor one that
//!   outlived an earlier server (its [`crate::process::Hold`]).
//! - *Whole or marked.* A checkout that is being changed carries a mark. A mark found later means that somebody was
//!   killed half-way: the checkout is made anew, because git cannot tell which files belong to it.
//! - *Ours.* Before each call the configuration of the mirror is compared with what we write, byte by byte (`ours`), and
//!   what was checked out with the commit (`tree_check`), so that whoever writes into a mirror changes no code that runs.
//! - *Cache.* A mirror that is damaged is replaced by a fresh one, made beside it; lock files left behind by a killed git are
//!   removed, as only one writer exists and it is us.

mod advertise;
mod changes;
mod checkout;
mod classify;
mod disk;
mod environment;
mod error;
mod fetch;
mod filter;
mod kept;
mod lfs;
mod links_out;
mod ls_refs;
mod merge;
mod mirror;
mod objects;
mod ours;
mod parts_upkeep;
mod place;
mod rebuild;
mod refs;
mod refused;
mod remote;
mod renames;
mod sparse;
mod ssh;
mod submodule_files;
mod submodule_url;
mod submodules;
mod sync;
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

pub use changes::{BaseCommit, Changes};
pub use checkout::{Checkout, CheckoutStrategy, DirError, Prepared, Wanted};
pub use disk::{DiskPart, DiskUse};
pub use environment::ModuleAccess;
pub use error::GitError;
pub use fetch::{FetchRequest, Fetched, Head};
pub use lfs::LfsFile;
pub use links_out::{CommitLinks, LinkOut};
pub use mirror::{Mirror, MirrorInUse};
pub use objects::{Ignored, TreeFiles};
pub use refs::{InvalidRefName, RefList, RefName, RefSelection};
pub use refused::{RefusedRef, without_refused};
pub use remote::Remote;
pub use sparse::Extent;
pub use submodules::{Admission, Submodule, SubmoduleRules};
pub use sync::Synced;
pub use tree_reader::TreeReader;
pub use work_tree::{Base, WorkTree, WorkTreeChanges};

/// What git needs to know of its surroundings.
#[derive(Clone)]
pub struct GitSettings {
    /// Directory that gets `mirrors/` and `checkouts/`.
    pub data_dir: PathBuf,
    /// The program: a path, or a name looked up in the `PATH` of `env`.
    pub program: OsString,
    /// Variables for every call: `PATH`, and where wanted proxies and certificates (`https_proxy`, `no_proxy`,
    /// `SSL_CERT_FILE`, `GIT_SSL_CAINFO`). What `environment` sets wins.
    pub env: Vec<(OsString, OsString)>,
    /// Paths that git may use; `None`: what the server may.
    pub sandbox: Option<Sandbox>,
    /// What new mirrors leave at the forge until it is needed; `None`: nothing.
    pub filter: Option<MirrorFilter>,
    /// Whether `file://` may be fetched from; only for tests and demonstrations.
    pub allow_file: bool,
    /// Longest time for one call that does not touch the network.
    pub deadline: Duration,
    /// Longest wait for an old run to leave a checkout, and for runs to leave a mirror that is to be replaced.
    pub hold_wait: Duration,
    /// File that every call holds ([`crate::process::Cmd::holds`]); `None`: nobody minds git that outlives its server.
    pub hold: Option<PathBuf>,
}

impl GitSettings {
    /// Usual values: the `git` found in `path`, 5 minutes a call, 2 minutes for old runs.
    pub fn new(data_dir: impl Into<PathBuf>, path: impl Into<OsString>) -> Self {
        Self {
            data_dir: data_dir.into(),
            program: "git".into(),
            env: vec![("PATH".into(), path.into())],
            sandbox: None,
            filter: None,
            allow_file: false,
            deadline: Duration::from_mins(5),
            hold_wait: Duration::from_mins(2),
            hold: None,
        }
    }
}

impl fmt::Debug for GitSettings {
    /// Variables by name only: the URL of a proxy may contain a password.
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

/// All mirrors of this process. Cheap to clone; clones share the mutexes.
#[derive(Clone, Debug)]
pub struct Git {
    settings: Arc<GitSettings>,
    locks: Arc<Mutex<HashMap<RepoId, Arc<Locks>>>>,
}

/// The mutexes of one mirror, see the invariant *one writer*, and its runs, see *no switch underneath*.
#[derive(Debug, Default)]
struct Locks {
    transfer: tokio::sync::Mutex<()>,
    writer: tokio::sync::Mutex<()>,
    /// Shared by runs. Whoever replaces the mirror tries to have it alone and never queues for it, so no run waits for
    /// another.
    runs: Arc<tokio::sync::RwLock<()>>,
    /// Number of times that the mirror was replaced.
    replaced: AtomicU64,
    merges: merge::Merges,
}

impl Git {
    /// Touches nothing yet.
    pub fn new(mut settings: GitSettings) -> Self {
        // Git runs in directories of its own. An empty path, the only one without an absolute form, fails later.
        settings.data_dir = std::path::absolute(&settings.data_dir).unwrap_or(settings.data_dir);
        Self {
            settings: Arc::new(settings),
            locks: Arc::default(),
        }
    }

    /// The mirror of a repository, which need not exist on disk yet.
    pub fn mirror(&self, repo: &RepoId) -> Mirror {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = Arc::clone(locks.entry(repo.clone()).or_default());
        Mirror::new(Arc::clone(&self.settings), repo, locks)
    }

    /// The version of the program, `2.39.5`; an error when it is older than 2.38, which cannot merge without a
    /// checkout.
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
