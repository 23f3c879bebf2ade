//! Caches provider packages for any number of concurrent `init`s (reference 12.4).
//!
//! Terraform's own `TF_PLUGIN_CACHE_DIR` is one directory into which every `init` unpacks in place. Two concurrent
//! `init`s write one file, and one can overwrite a program that another one runs. Here no `init` ever gets a
//! directory that another `init` could write to:
//!
//! - *Store.* `<data-dir>/plugin-cache/HOST/NAMESPACE/TYPE/VERSION/PLATFORM` holds packages that are never changed, each
//!   with its checksum (`h1`, as lock files have it) beside it.
//! - *Session.* An `init` gets a cache directory of its own ([`CacheSession`]), with links to those packages of the store
//!   that it will use unchanged. The packages that it has to fetch are unpacked there.
//! - *Promotion.* After a successful `init` each new package moves into the store by one rename. A later `init` with
//!   the same package finds the place taken and discards its own. Then the links in `.terraform/providers`, which
//!   lead to the session's directory, are changed to lead to the store.
//! - *Eviction.* A package that no project links to any more is removed when space is needed, or after a while
//!   (`eviction.rs`).
//!
//! Terraform writes *through* a link if it does not accept the package, so a link may exist only if the package is
//! going to be accepted. With a lock file in the repository, that is so if the lock file contains the checksum of the
//! package. Without one it is always so, because `TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE` then says that the
//! (throw-away) lock file follows the cache. In addition, the files of the store are read-only.
//!
//! - *Another user* (`--run-as`) owns the session and can read the store. Packages that this user fetched are copied,
//!   not moved: programs of the user may still have files of them open for writing.
//! - *Links of a checkout* are never followed: other programs of the pull request may change directories there while
//!   the server works in them (`links.rs`).
//!
//! Packages must not come from the pull request (P8): if it brings its own mirror in `terraform.d/plugins`, nothing
//! of that `init` is promoted.

mod eviction;
mod hash;
mod links;
mod session;
mod store;
mod uses;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::file_owner::change_owner;
use super::running::ProgramObserver;
use crate::clock::Clock;
use crate::model::RunUser;
use links::ProjectLinks;
use store::PackageStore;
use uses::LinkedPackages;

pub use eviction::{Linked, PackageUse};
pub use store::PackagePath;

/// Variable with the cache directory for Terraform and OpenTofu.
const CACHE_DIR: &str = "TF_PLUGIN_CACHE_DIR";
/// Variable that lets them use packages that the lock file does not know.
const MAY_BREAK: &str = "TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE";
/// Number of directory levels of a package: host, namespace, type, version, platform.
const DEPTH: usize = 5;

/// The cache of provider packages on this disk (`--use-tf-plugin-cache`).
#[derive(Clone)]
pub struct ProviderCache {
    store: PackageStore,
    /// Parent of the session directories, on the same disk as the store.
    scratch: PathBuf,
    /// Parent of the checkouts, whose projects use packages.
    checkouts: PathBuf,
    clock: Arc<dyn Clock>,
    /// User that runs execute as; `None` for the user of the server.
    user: Option<RunUser>,
}

impl fmt::Debug for ProviderCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderCache")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// Place where an `init` runs.
#[derive(Debug, Clone)]
pub struct InitPlace {
    /// Directory of the project.
    pub dir: PathBuf,
    /// Data directory of Terraform for the project, usually `.terraform` in it.
    pub data_dir: PathBuf,
    /// True if `.terraform.lock.hcl` is part of the repository.
    pub lock_file_tracked: bool,
}

/// Cache directory of one `init`. The directory is removed on drop; call [`CacheSession::finish`] after a successful
/// `init`.
#[must_use = "without `finish`, nothing is kept, and the providers of the project are deleted with the session"]
pub struct CacheSession {
    store: PackageStore,
    overlay: TempDir,
    held: LinkedPackages,
    clock: Arc<dyn Clock>,
    place: InitPlace,
    /// True if the project has a mirror of packages, which are for this project alone.
    brings_its_own: bool,
    /// Links of the project, whose targets are in the cache directory until [`CacheSession::finish`].
    links: ProjectLinks,
    /// User that the `init` executes as; `None` for the user of the server.
    user: Option<RunUser>,
}

impl ProviderCache {
    /// Creates the cache. Packages are kept in `plugin-cache` of a data directory and sessions in `tmp`, both on one
    /// disk. The projects that use packages are in `checkouts`.
    pub fn new(data_dir: &Path, clock: Arc<dyn Clock>) -> Self {
        let [store, scratch, checkouts] =
            ["plugin-cache", "tmp", "checkouts"].map(|name| data_dir.join(name));
        Self {
            store: PackageStore::new(store),
            scratch,
            checkouts,
            clock,
            user: None,
        }
    }

    /// Sets the user that runs execute as, if it is not the user of the server.
    #[must_use]
    pub fn of_user(self, user: Option<RunUser>) -> Self {
        Self { user, ..self }
    }

    /// Begins a session for an `init`. Returns `None` if a cache directory is already `set`, which then stays in
    /// effect, or if the data directory of the project is not in a checkout: nobody would see that its packages are in
    /// use.
    pub async fn enter(
        &self,
        place: InitPlace,
        set: Option<&OsStr>,
    ) -> std::io::Result<Option<CacheSession>> {
        if set.is_some_and(|dir| !dir.is_empty()) {
            return Ok(None);
        }
        let cache = self.clone();
        on_disk(move || cache.begin(place)).await
    }

    fn begin(&self, place: InitPlace) -> std::io::Result<Option<CacheSession>> {
        let Some(links) = ProjectLinks::within(&self.checkouts, &place.data_dir)? else {
            return Ok(None);
        };
        std::fs::create_dir_all(&self.scratch)?;
        let scratch = self.scratch.canonicalize()?;
        let overlay = tempfile::Builder::new()
            .prefix("providers-")
            .tempdir_in(&scratch)?;
        let held = LinkedPackages {
            uses: self.store.uses.clone(),
            packages: Vec::new(),
        };
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        let mut session = CacheSession {
            store,
            overlay,
            held,
            clock,
            place,
            brings_its_own: false,
            links,
            user: self.user,
        };
        session.lay_out()?;
        if let Some(user) = self.user {
            change_owner(
                scratch.parent().unwrap_or(&scratch),
                session.overlay.path(),
                user,
            )?;
        }
        Ok(Some(session))
    }
}

impl CacheSession {
    /// Returns the variables that the `init` needs in addition to its usual environment.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![(CACHE_DIR, self.overlay.path().into())];
        if !self.place.lock_file_tracked {
            variables.push((MAY_BREAK, "true".into()));
        }
        variables
    }

    /// Returns the directory that the `init` fills.
    pub fn dir(&self) -> &Path {
        self.overlay.path()
    }

    /// Ends a successful `init`: keeps the fetched packages and changes the links of the project to lead to them. If programs of
    /// the pull request ran meanwhile, they may have exchanged packages, so these are for the project alone.
    pub async fn finish(mut self, programs: ProgramObserver) -> std::io::Result<()> {
        on_disk(move || self.keep(self.clock.now(), &programs)).await
    }
}

/// Runs file operations on a thread for blocking work, because disks can be slow and packages have hundreds of
/// megabytes.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
