//! The source that reads Git repositories on allowed hosts.
//!
//! Our own mirrors are made with credentials, so nothing in one shows that everyone may read it. What does is the answer of
//! the host to a client without credentials: a commit that is under a branch or tag there may be read by everyone, with all of
//! its files. So each version is looked up at the host, and the files of its commit come from our mirror if it has them. If
//! the mirror is damaged, or replaced meanwhile, they come from the host.
//!
//! A fetched version is trusted when it comes first, and never changes from then on (R1): a tag that moves later leads to
//! no other content here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_registry::names::{GoPath, RegistryName};
use lockkeeper_registry::versions::{GoVersion, VersionKey};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use tracing::{info, warn};

use super::super::blobs::blocking;
use super::super::packaging::{CheckedPackage, CommitFault, packing_place};
use super::super::service::{Published, Registry};
use super::super::store::VersionOrigin;
use super::go_import::GoImports;
use super::refusal::{FilesFault, SourceRefusal};
use super::repository::{GoRepository, ModulePlace, RepositoryLookup, repository_lookup};
use super::revision::{
    check_pseudo, module_directory, pseudo_commit, tag_of, tagged, version_tags, versions_in,
};
use super::store::FilledCache;
use crate::config::server::{MissLimits, VcsHosts};
use crate::config::size::{ByteSize, shown};
use crate::errors::describe_error;
use crate::git::{CommitSnapshot, ForeignRepository, Git, GitError, GitSettings};
use crate::kit::recent::RecentMap;
use crate::model::{Actor, Cause, CommitSha, Origin};

/// Time for which the tags of a repository, or the failure to list them, are kept.
const TAGS_TIME: Duration = Duration::from_mins(1);
/// Time for which the repository of a module is kept, where a page had to be asked.
const LEAD_TIME: Duration = Duration::from_mins(10);
/// Rough limits in bytes of what is kept.
const TAGS_BYTES: usize = 64 << 20;
const LEAD_BYTES: usize = 1 << 20;
/// Rough size of a tag besides its name, and of everything else that is kept.
const TAG_SIZE: usize = 30;
const SMALL_SIZE: usize = 500;
/// Part of the quota that has to be free before a fetch begins: 1/20.
const ROOM: u64 = 20;
/// Maximum number of tags of a repository that can be versions. Those of more would not be kept.
const MAX_TAGS: usize = 100_000;
/// Maximum number of lists of tags that are read at once, and of those of one host. A host that does not answer must not
/// keep the lists of others waiting.
const LISTS_AT_ONCE: usize = 8;
const LISTS_OF_HOST: usize = 4;
/// Age at which a scratch repository is removed that a killed git has written to while it was removed.
const OLD: Duration = Duration::from_hours(1);

/// Parts from which the source is made.
pub(in crate::features::registry) struct VcsParts {
    /// Registry that gets the versions.
    pub registry: Arc<Registry>,
    /// Hosts that the operator allows.
    pub hosts: VcsHosts,
    /// Number of bytes of packages and `go.mod` files from elsewhere after which nothing is fetched.
    pub quota: ByteSize,
    /// Number of versions from elsewhere after which nothing is fetched.
    pub versions: u64,
    /// Limits that no flag sets.
    pub limits: MissLimits,
    /// Settings of git for these repositories.
    pub git: GitSettings,
    /// Mirrors of this server.
    pub mirrors: Git,
    /// Directory for scratch repositories.
    pub scratch: PathBuf,
}

/// Git repositories on allowed hosts.
pub(in crate::features::registry) struct VersionControl {
    registry: Arc<Registry>,
    hosts: Arc<VcsHosts>,
    quota: ByteSize,
    versions: u64,
    limits: MissLimits,
    git: GitSettings,
    mirrors: Git,
    scratch: PathBuf,
    imports: GoImports,
    leads: Mutex<RecentMap<GoPath, (Instant, GoRepository)>>,
    tags: Mutex<RecentMap<String, Arc<ListedTags>>>,
    lists: Semaphore,
    lists_of_hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// True after a limit was found to be reached, so that the log has it once.
    is_full: AtomicBool,
    /// Last time at which old scratch repositories were removed.
    swept_at: Mutex<Instant>,
}

/// The tags of a repository that can be versions. One request lists them for all that wait.
struct ListedTags {
    at: Instant,
    tags: OnceCell<Result<Arc<Vec<String>>, SourceRefusal>>,
}

impl VersionControl {
    /// Creates the source.
    ///
    /// # Errors
    ///
    /// The certificates of the system cannot be read.
    pub fn new(parts: VcsParts) -> Result<Self, reqwest::Error> {
        let hosts = Arc::new(parts.hosts);
        Ok(Self {
            registry: parts.registry,
            imports: GoImports::new(Arc::clone(&hosts))?,
            hosts,
            quota: parts.quota,
            versions: parts.versions,
            limits: parts.limits,
            git: parts.git,
            mirrors: parts.mirrors,
            scratch: parts.scratch,
            leads: Mutex::new(RecentMap::new(LEAD_BYTES)),
            tags: Mutex::new(RecentMap::new(TAGS_BYTES)),
            lists: Semaphore::new(LISTS_AT_ONCE),
            lists_of_hosts: Mutex::default(),
            is_full: AtomicBool::new(false),
            swept_at: Mutex::new(Instant::now()),
        })
    }

    /// Returns true if a repository can have versions of the name. Asks nobody.
    pub fn covers(&self, name: &RegistryName) -> bool {
        match name {
            RegistryName::Go(path) => repository_lookup(&self.hosts, path).is_ok(),
            RegistryName::Module(_) => false,
        }
    }

    /// Brings a version into the registry. After a success, the version is there. Returns the number of bytes that were stored.
    pub async fn fill(&self, key: &VersionKey, requested_by: &str) -> Result<u64, SourceRefusal> {
        let Some((path, _)) = key.as_go() else {
            return Err(SourceRefusal::not_found(
                "only Go modules have repositories",
            ));
        };
        self.check_room(0).await?;
        // Repositories are read on the same disk.
        let space = self.registry.blobs().check_space().await;
        space.map_err(|low| SourceRefusal::failed(low.to_string()))?;
        self.sweep_old().await;
        let (repository, place) = self.place(path).await?;
        let package = self.fetch(key, &repository, &place).await?;
        self.publish(package, &repository, requested_by).await
    }

    /// Lists the versions of a Go module.
    pub async fn versions(&self, path: &GoPath) -> Result<Vec<GoVersion>, SourceRefusal> {
        let (repository, place) = self.place(path).await?;
        let tags = self.tags(&repository).await?;
        Ok(versions_in(&tags, &place, path))
    }

    /// Finds the repository of a module, and the place of the module in it.
    async fn place(&self, path: &GoPath) -> Result<(GoRepository, ModulePlace), SourceRefusal> {
        let repository = match repository_lookup(&self.hosts, path)
            .map_err(SourceRefusal::not_found)?
        {
            RepositoryLookup::Repository(repository) => repository,
            RepositoryLookup::Ask(page) => {
                let known = lock(&self.leads).get(path);
                if let Some((_, repository)) = known.filter(|(at, _)| at.elapsed() < LEAD_TIME) {
                    repository
                } else {
                    let found = self.imports.find(path, &page).await?;
                    let entry = (Instant::now(), found.clone());
                    lock(&self.leads).insert(path.clone(), entry, SMALL_SIZE);
                    found
                }
            }
        };
        let place = repository.place_of(path).map_err(SourceRefusal::refused)?;
        Ok((repository, place))
    }

    /// Checks that a version with this size in bytes fits into the limits of everything from elsewhere.
    async fn check_room(&self, size: u64) -> Result<(), SourceRefusal> {
        let cache = self.registry.store().registry_cache().await;
        let FilledCache { bytes, versions } = cache.map_err(|error| internal(&error))?;
        let (quota, most) = (self.quota, self.versions);
        let full = if versions >= most {
            Some(format!(
                "the log has {versions} versions from elsewhere, and --registry-cache-versions is {most}"
            ))
        } else if bytes.saturating_add(quota.bytes() / ROOM) > quota.bytes() {
            // Near the quota, nothing is fetched that would be thrown away afterwards.
            Some(format!(
                "the packages from elsewhere have {}, and --registry-cache-quota is {quota}",
                shown(bytes)
            ))
        } else {
            None
        };
        let was_full = self.is_full.swap(full.is_some(), Ordering::Relaxed);
        if let (Some(why), false) = (&full, was_full) {
            warn!(
                bytes,
                versions, "The registry fetches no more modules: {why}"
            );
        }
        match full {
            Some(why) => Err(SourceRefusal::failed(why)),
            None if bytes.saturating_add(size) > quota.bytes() => {
                Err(SourceRefusal::failed(format!(
                    "the package has {}, the packages from elsewhere have {}, and --registry-cache-quota is {quota}",
                    shown(size),
                    shown(bytes)
                )))
            }
            None => Ok(()),
        }
    }

    /// Fetches a version and makes its package.
    async fn fetch(
        &self,
        key: &VersionKey,
        repository: &GoRepository,
        place: &ModulePlace,
    ) -> Result<CheckedPackage, SourceRefusal> {
        let Some((path, version)) = key.as_go() else {
            return Err(SourceRefusal::not_found(
                "only Go modules have repositories",
            ));
        };
        let pseudo = version.pseudo();
        let pseudo = pseudo.map_err(|error| SourceRefusal::refused(error.to_string()))?;
        let scratch = self.scratch(repository).await?;
        let refs = scratch.refs().await?;
        let wanted = match &pseudo {
            None => {
                let tag = tag_of(place, version);
                let Some(commit) = tagged(&refs, &tag) else {
                    return Err(SourceRefusal::not_found(format!(
                        "{} has no tag {tag}",
                        repository.url
                    )));
                };
                (format!("refs/tags/{tag}"), commit)
            }
            Some(parts) => {
                let tagged = check_pseudo(&refs, (place, path), (version, parts))?;
                // Removed before the files come, so that one repository is on the disk at a time.
                let history = self.scratch(repository).await?;
                history.fetch_history().await?;
                let commit = pseudo_commit(&history, parts, tagged.as_ref()).await?;
                (commit.as_str().to_owned(), commit)
            }
        };
        let (wanted, expected) = wanted;
        if let Some(files) = self.mirrored(repository, &expected).await {
            match Box::pin(self.package(key, files, (place, path))).await {
                Ok(package) => return Ok(package),
                Err(FilesFault::Refused(refusal)) => return Err(refusal),
                Err(FilesFault::Unread(error)) => log_unread(repository, &expected, &error),
            }
        }
        let commit = scratch.fetch(&wanted).await?;
        if commit != expected {
            return Err(SourceRefusal::failed(format!("`{wanted}` moves")));
        }
        let files = scratch.into_snapshot(commit);
        Ok(Box::pin(self.package(key, files, (place, path))).await?)
    }

    /// Makes the package of a version from the files of its commit.
    async fn package(
        &self,
        key: &VersionKey,
        files: CommitSnapshot,
        (place, path): (&ModulePlace, &GoPath),
    ) -> Result<CheckedPackage, FilesFault> {
        let committed_at = files.committed_at().await?;
        let directory = module_directory(&files, place, path).await?;
        let staging = self.registry.blobs().staging_dir();
        let (key, files) = (key.clone(), Arc::new(files));
        let packing = packing_place().await;
        let package = CheckedPackage::of_commit(key, files, directory, staging, packing);
        let package = package.await.map_err(refused_commit)?;
        Ok(CheckedPackage {
            committed_at: Some(committed_at),
            ..package
        })
    }

    /// Returns the files of a commit from our mirror of its repository, if that has them. The host has just shown the commit
    /// to a client without credentials, under a branch or tag.
    async fn mirrored(
        &self,
        repository: &GoRepository,
        commit: &CommitSha,
    ) -> Option<CommitSnapshot> {
        let repo = repository.mirrored_as()?;
        match self.mirrors.mirrored_files(&repo, commit).await {
            Ok(files) => files,
            Err(error) => {
                log_unread(repository, commit, &error);
                None
            }
        }
    }

    /// Publishes a package that was fetched. Returns the number of bytes that are new here.
    async fn publish(
        &self,
        package: CheckedPackage,
        repository: &GoRepository,
        requested_by: &str,
    ) -> Result<u64, SourceRefusal> {
        let go_mod = package.go_mod.as_ref().map_or(0, Vec::len) as u64;
        let size = package.staged.size.saturating_add(go_mod);
        self.check_room(size).await?;
        let key = package.key.clone();
        // A version from elsewhere has its repository as its publisher.
        let actor = Actor::new(repository.url.as_str(), Origin::Api);
        let reason = format!("fetched because it was missing, for {requested_by}");
        let cause = Cause::new(actor, reason);
        let origin = VersionOrigin::VersionControl;
        match self.registry.publish(package, origin, &cause).await {
            Ok(published @ (Published::New(_) | Published::Same)) => {
                info!(version = %key, repository = %repository.url, requested_by, "Fetched {key}");
                let is_new = matches!(published, Published::New(_));
                Ok(if is_new { size } else { 0 })
            }
            Ok(Published::Conflict(_)) => Err(SourceRefusal::refused(
                "the registry has the version with other files, which stay",
            )),
            Ok(Published::Tombstoned(_)) => Err(SourceRefusal::refused("it was taken down")),
            Ok(Published::Owned | Published::NoNamespace) => Err(SourceRefusal::refused(
                "the name belongs to an owner here, and only the owner publishes it",
            )),
            Ok(Published::CaseConflict(other)) => Err(SourceRefusal::refused(format!(
                "the name differs from {} only in case",
                other.as_str()
            ))),
            Err(error) => Err(internal(&error)),
        }
    }

    /// Lists the tags of a repository, or returns those of less than a minute ago.
    async fn tags(&self, repository: &GoRepository) -> Result<Arc<Vec<String>>, SourceRefusal> {
        let url = repository.url.as_str();
        let listed = {
            let mut tags = lock(&self.tags);
            let known = tags
                .get(url)
                .filter(|listed| listed.at.elapsed() < TAGS_TIME);
            known.unwrap_or_else(|| {
                let listed = Arc::new(ListedTags {
                    at: Instant::now(),
                    tags: OnceCell::new(),
                });
                tags.insert(url.to_owned(), Arc::clone(&listed), SMALL_SIZE);
                listed
            })
        };
        let list = || async {
            let tags = Arc::new(self.tags_now(repository).await?);
            let bytes: usize = tags.iter().map(|tag| TAG_SIZE + tag.len()).sum();
            lock(&self.tags).insert(url.to_owned(), Arc::clone(&listed), SMALL_SIZE + bytes);
            Ok::<_, SourceRefusal>(tags)
        };
        listed.tags.get_or_init(list).await.clone()
    }

    async fn tags_now(&self, repository: &GoRepository) -> Result<Vec<String>, SourceRefusal> {
        let host = repository.url.host_str().unwrap_or_default().to_owned();
        let of_host = {
            let mut hosts = lock(&self.lists_of_hosts);
            let of_host = hosts.entry(host);
            Arc::clone(of_host.or_insert_with(|| Arc::new(Semaphore::new(LISTS_OF_HOST))))
        };
        let _of_host = of_host.acquire().await.map_err(|error| internal(&error))?;
        let _place = self
            .lists
            .acquire()
            .await
            .map_err(|error| internal(&error))?;
        let refs = self.scratch(repository).await?.refs().await?;
        let tags = version_tags(&refs);
        if tags.len() > MAX_TAGS {
            return Err(SourceRefusal::refused(format!(
                "{} has more than {MAX_TAGS} tags of versions",
                repository.url
            )));
        }
        Ok(tags)
    }

    /// Creates a scratch repository.
    async fn scratch(&self, repository: &GoRepository) -> Result<ForeignRepository, SourceRefusal> {
        let (git, url) = (self.git.clone(), repository.url.clone());
        let (parent, most) = (self.scratch.clone(), self.limits.repository_bytes);
        let create = move || ForeignRepository::create(&git, &url, &parent, most);
        Ok(blocking(create).await?)
    }

    /// Removes old scratch repositories, now and then. A killed git that still writes can keep the removal of its repository
    /// from ending.
    async fn sweep_old(&self) {
        {
            let mut swept_at = lock(&self.swept_at);
            if swept_at.elapsed() < OLD {
                return;
            }
            *swept_at = Instant::now();
        }
        let parent = self.scratch.clone();
        blocking(move || sweep(&parent, OLD)).await;
    }
}

/// Removes the scratch repositories that were not changed for a time. One that cannot be removed is tried again later.
pub(super) fn sweep(parent: &Path, age: Duration) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = changed.is_ok_and(|at| at.elapsed().unwrap_or_default() >= age);
        if is_old && let Err(error) = std::fs::remove_dir_all(entry.path()) {
            warn!(error = describe_error(&error), dir = %entry.path().display(), "Cannot remove a scratch repository");
        }
    }
}

/// Builds the refusal for a failure of this server. The log has the cause.
fn internal<E: std::error::Error + 'static>(error: &E) -> SourceRefusal {
    warn!(
        error = describe_error(error),
        "Cannot fetch a module that is missing"
    );
    SourceRefusal::failed("the server has failed, and its log says why")
}

/// Logs that files are fetched from their host because our mirror is damaged or gone.
fn log_unread(repository: &GoRepository, commit: &CommitSha, error: &GitError) {
    warn!(
        repository = %repository.url,
        %commit,
        error = describe_error(error),
        "Cannot read a commit in the mirror, so its files are fetched from the host"
    );
}

/// Returns why a commit has no package.
fn refused_commit(fault: CommitFault) -> FilesFault {
    match fault {
        CommitFault::NoDirectory(_) => SourceRefusal::not_found(fault.to_string()).into(),
        CommitFault::Files(error) => error.into(),
        CommitFault::Packaging(_) | CommitFault::TooSlow | CommitFault::Stopped(_)
            if fault.is_of_commit() =>
        {
            SourceRefusal::refused(fault.to_string()).into()
        }
        CommitFault::Packaging(_) | CommitFault::TooSlow | CommitFault::Stopped(_) => {
            internal(&fault).into()
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
