//! A cache of provider packages that any number of `init`s may use at once (reference 12.4).
//!
//! Terraform's own `TF_PLUGIN_CACHE_DIR` is one directory into which every `init` unpacks in place: two at once write one
//! file, and one can overwrite a program that another one runs. Here no `init` ever gets a directory that it could write
//! to together with somebody else:
//!
//! - *Store.* `<data-dir>/plugin-cache/HOST/NAMESPACE/TYPE/VERSION/PLATFORM` holds packages that are never changed, each
//!   with its checksum (`h1`, as lock files have it) beside it.
//! - *Session.* An `init` gets a cache directory of its own ([`Session`]), with links to those packages of the store that it
//!   will take as they are. What it has to fetch, it unpacks there.
//! - *Promotion.* After a good `init` each package that is new moves into the store by one rename. Whoever comes second
//!   finds the place taken and throws its own away. Then the links in `.terraform/providers`, which lead to the
//!   session's directory, are led to the store.
//! - *Room.* A package that no project links to any more goes when there is no room for it, or after a while (`room.rs`).
//!
//! Terraform writes *through* a link whose package it does not accept, so a link may only be there when it is going to be
//! accepted: with a lock file of the repository, when that holds the checksum of the package; without one, always, as
//! `TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE` then says that the (throw-away) lock file follows the cache. The files
//! of the store are read-only besides.
//!
//! - *Another user* (`--run-as`) owns the session and can read the store. What it fetched is copied, not moved: its programs
//!   may still have files of it open for writing.
//!
//! Packages must not come from the pull request (P8): where it brings its own mirror in `terraform.d/plugins`, nothing of
//! that `init` is promoted.

mod hash;
mod links;
mod lock_file;
mod room;
mod session;
mod store;
mod uses;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::lend::lend;
use crate::clock::Clock;
use crate::model::RunUser;
use store::Store;
use uses::Held;

pub use room::{Linked, PackageUse};
pub use store::PackagePath;

/// Names the cache directory to Terraform and OpenTofu.
const CACHE_DIR: &str = "TF_PLUGIN_CACHE_DIR";
/// Lets them take packages that the lock file does not know.
const MAY_BREAK: &str = "TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE";
/// A package: host, namespace, type, version, platform.
const DEPTH: usize = 5;

/// The cache of provider packages on this disk (`--use-tf-plugin-cache`).
#[derive(Clone)]
pub struct ProviderCache {
    store: Store,
    /// Where the directories of sessions are; on the same disk as the store.
    scratch: PathBuf,
    /// Where the projects are that use packages.
    checkouts: PathBuf,
    clock: Arc<dyn Clock>,
    /// Who runs are; `None`: the server.
    user: Option<RunUser>,
}

impl fmt::Debug for ProviderCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderCache")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// Where an `init` runs.
#[derive(Debug, Clone)]
pub struct InitPlace {
    /// Directory of the project.
    pub dir: PathBuf,
    /// Where Terraform keeps what belongs to the directory, usually `.terraform` in it.
    pub data_dir: PathBuf,
    /// Whether `.terraform.lock.hcl` is part of the repository.
    pub lock_file_tracked: bool,
}

/// The cache directory of one `init`. It is gone when this is dropped; call [`Session::finish`] after a good `init`.
#[must_use = "without `finish` nothing is kept, and the providers of the project are gone with the session"]
pub struct Session {
    store: Store,
    overlay: TempDir,
    held: Held,
    clock: Arc<dyn Clock>,
    place: InitPlace,
    /// Who the `init` is; `None`: the server.
    user: Option<RunUser>,
}

impl ProviderCache {
    /// Keeps packages in `plugin-cache` of a data directory, and makes sessions in `tmp`; both are on one disk. Those
    /// who use packages are in `checkouts`.
    pub fn new(data_dir: &Path, clock: Arc<dyn Clock>) -> Self {
        let [store, scratch, checkouts] =
            ["plugin-cache", "tmp", "checkouts"].map(|name| data_dir.join(name));
        Self {
            store: Store::new(store),
            scratch,
            checkouts,
            clock,
            user: None,
        }
    }

    /// Has runs be another user than the server.
    #[must_use]
    pub fn of_user(self, user: Option<RunUser>) -> Self {
        Self { user, ..self }
    }

    /// Begins an `init`. `None` where somebody has `set` a cache directory: that stays as it is.
    pub async fn enter(
        &self,
        place: InitPlace,
        set: Option<&OsStr>,
    ) -> std::io::Result<Option<Session>> {
        if set.is_some_and(|dir| !dir.is_empty()) {
            return Ok(None);
        }
        let cache = self.clone();
        on_disk(move || cache.begin(place)).await.map(Some)
    }

    fn begin(&self, place: InitPlace) -> std::io::Result<Session> {
        std::fs::create_dir_all(&self.scratch)?;
        let scratch = self.scratch.canonicalize()?;
        let overlay = tempfile::Builder::new()
            .prefix("providers-")
            .tempdir_in(&scratch)?;
        let held = Held {
            uses: self.store.uses.clone(),
            packages: Vec::new(),
        };
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        let mut session = Session {
            store,
            overlay,
            held,
            clock,
            place,
            user: self.user,
        };
        session.lay_out()?;
        if let Some(user) = self.user {
            lend(
                scratch.parent().unwrap_or(&scratch),
                session.overlay.path(),
                user,
            )?;
        }
        Ok(session)
    }
}

impl Session {
    /// What the `init` has to be given besides its usual environment.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![(CACHE_DIR, self.overlay.path().into())];
        if !self.place.lock_file_tracked {
            variables.push((MAY_BREAK, "true".into()));
        }
        variables
    }

    /// The directory that the `init` fills.
    pub fn dir(&self) -> &Path {
        self.overlay.path()
    }

    /// Ends a good `init`: keeps what it fetched, and leads its links to where that is kept.
    pub async fn finish(mut self) -> std::io::Result<()> {
        on_disk(move || self.keep(self.clock.now())).await
    }
}

/// Disks can be slow, and packages have hundreds of megabytes.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
