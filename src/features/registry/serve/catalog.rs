//! Versions, tokens and namespaces in memory, never older than the request that reads them.
//!
//! The need: `go` and `terraform` send many small requests for what never changes, and one query for each row would be
//! most of the work. But a version must not be served after its takedown was answered, on any replica, even if another server or the command
//! line took it down.
//!
//! - *As new as the request*: every request learns the [`RegistryState`] of a moment after its arrival. What is in memory
//!   counts only for the state that it was read in.
//! - *One query for all that wait*: requests that arrive while the state is read wait for the next reading, and share it.
//!   So the number of queries does not grow with the number of requests, and one connection is enough. It stays open. If
//!   the reading fails, all that wait for it fail, so nobody waits for one attempt after the other. If the request that
//!   reads is cancelled, another one that waits reads.
//! - *The log says what changed*: a new state has new records, and only their versions and names are forgotten. A change of
//!   tokens or namespaces makes the server forget all of them.
//! - *Nothing old comes back*: what was read from the database is kept only if the state in memory is still the one of
//!   before the reading.
//! - *Limited*: each kind of data has a number of bytes, and what was not used lately is forgotten.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::records::{LogId, Record};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::tlog::Tile;
use lockkeeper_registry::versions::VersionKey;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::super::readers::Namespaces;
use super::super::state::{RegistryState, StateReader};
use super::super::{
    Registry, RegistryError, RegistryVersion, Token, TokenId, VersionNotice, VersionOrigin,
};
use super::answer::TaggedContent;
use super::memory::PackageMemory;
use crate::kit::recent::RecentMap;

/// Limits of each kind of data in bytes.
const VERSION_BYTES: usize = 32 << 20;
const LIST_BYTES: usize = 64 << 20;
const LOOKUP_BYTES: usize = 8 << 20;
const TILE_BYTES: usize = 8 << 20;
const TOKEN_BYTES: usize = 4 << 20;
const PACKAGE_BYTES: usize = 64 << 20;

/// Memory of packages in bytes: of those that are kept, and of those that are forgotten while clients still read them. Large
/// `go.mod` files have it as well while clients read them.
const PACKAGE_MEMORY: usize = 2 * PACKAGE_BYTES;

/// Rough size of a version, its key and its place in a map.
const VERSION_SIZE: usize = 1500;

/// Rough size of a version in a list, and its line in answers.
const LISTED_SIZE: usize = 250;

/// Largest number of new records that are read to find out what changed. After more, everything is forgotten.
const MOST_RECORDS: i64 = 256;

/// Time after which a token is looked up again, so that its last use is recorded.
const TOKEN_TIME: Duration = Duration::from_mins(1);

/// Versions, tokens and namespaces in memory.
pub(super) struct Catalog {
    registry: Arc<Registry>,
    /// Number of requests so far.
    arrived: AtomicU64,
    reader: tokio::sync::Mutex<StateReader>,
    last: watch::Sender<LastReading>,
    kept: Mutex<Kept>,
    package_memory: PackageMemory,
}

/// Number of the requests that the last reading of the state is for.
#[derive(Clone, Copy, Default)]
struct LastReading {
    arrived: u64,
    /// `None`: the reading has failed.
    state: Option<RegistryState>,
}

impl LastReading {
    /// Returns the state for a request that has waited for another one.
    fn shared(self) -> Result<CatalogState, RegistryError> {
        let failed = || {
            let why = "another request could not read the state of the registry; its line in the log has the cause";
            sqlx::Error::Io(io::Error::other(why))
        };
        Ok(CatalogState(self.state.ok_or_else(failed)?))
    }
}

/// A state that was read after the arrival of a request. What is in memory counts for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CatalogState(RegistryState);

struct Kept {
    state: RegistryState,
    versions: RecentMap<VersionKey, Arc<KeptVersion>>,
    /// The package of a version. Modules of either kind have one.
    packages: RecentMap<VersionKey, Bytes>,
    names: RecentMap<RegistryName, Arc<KeptName>>,
    lookups: RecentMap<VersionKey, (i64, TaggedContent)>,
    tiles: RecentMap<Tile, TaggedContent>,
    tokens: RecentMap<[u8; 32], (Arc<Token>, Instant)>,
    tokens_by_id: RecentMap<TokenId, Arc<Token>>,
    namespaces: Option<Arc<Namespaces>>,
}

/// A version, and answers about it that were sent before.
pub(super) struct KeptVersion {
    pub version: RegistryVersion,
    /// Answer to a request for `.info`.
    pub info: OnceLock<TaggedContent>,
    /// The `go.mod` file, unless it is large.
    pub go_mod: OnceLock<TaggedContent>,
}

/// The versions of a name, and answers that were sent before.
pub(super) struct KeptName {
    pub versions: Vec<ListedVersion>,
    /// True if all versions were fetched because clients have requested them. Without versions as well.
    pub is_foreign: bool,
    /// Reason of the takedown of the highest version that was taken down.
    pub takedown: Option<VersionNotice>,
    /// Answer to `list`, or to `versions`.
    pub list: OnceLock<TaggedContent>,
    /// The versions that were here, if others were not.
    were_here: Option<Arc<Self>>,
}

/// A version as lists show it.
pub(super) struct ListedVersion {
    pub key: VersionKey,
    pub state: VersionState,
    /// Time that `go` compares versions by.
    pub go_time: Option<DateTime<Utc>>,
    /// True if the version has content, so that it can be requested.
    pub is_served: bool,
}

impl KeptVersion {
    /// Largest `go.mod` file that is kept. Most are far smaller.
    pub const MAX_GO_MOD: usize = 4 << 10;

    /// Number of bytes that a version can take at most.
    const BYTES: usize = VERSION_SIZE + Self::MAX_GO_MOD;

    fn new(version: RegistryVersion) -> Self {
        Self {
            version,
            info: OnceLock::new(),
            go_mod: OnceLock::new(),
        }
    }
}

impl KeptName {
    /// Takes versions from the highest to the lowest.
    fn new(versions: &[RegistryVersion]) -> Self {
        let all: Vec<&RegistryVersion> = versions.iter().collect();
        let here = all
            .iter()
            .copied()
            .filter(|version| version.takedown_stays());
        let here: Vec<&RegistryVersion> = here.collect();
        let were_here = (here.len() < all.len()).then(|| Arc::new(Self::of(&here, None)));
        Self::of(&all, were_here)
    }

    fn of(versions: &[&RegistryVersion], were_here: Option<Arc<Self>>) -> Self {
        let mut deleted = versions
            .iter()
            .filter(|version| version.known.state() == VersionState::Deleted);
        Self {
            takedown: deleted.next().and_then(|version| version.notice.clone()),
            is_foreign: versions
                .iter()
                .filter_map(|version| version.origin)
                .all(VersionOrigin::is_foreign),
            versions: versions
                .iter()
                .map(|version| ListedVersion::new(version))
                .collect(),
            list: OnceLock::new(),
            were_here,
        }
    }

    /// Returns the rough size in bytes.
    fn bytes(&self) -> usize {
        let here = self.were_here.as_ref();
        let listed = self.versions.len() + here.map_or(0, |here| here.versions.len());
        VERSION_SIZE + LISTED_SIZE * listed
    }
}

impl ListedVersion {
    fn new(version: &RegistryVersion) -> Self {
        Self {
            key: version.key.clone(),
            state: version.known.state(),
            go_time: version.go_time(),
            is_served: version.known.content().is_some(),
        }
    }
}

impl Catalog {
    /// Largest package that is kept in memory, in bytes: the largest value of a [`RecentMap`].
    pub const MAX_PACKAGE: u64 = (PACKAGE_BYTES / 8) as u64;

    pub fn new(registry: Arc<Registry>) -> Self {
        let reader = StateReader::new(registry.store().clone());
        Self {
            registry,
            arrived: AtomicU64::new(0),
            reader: tokio::sync::Mutex::new(reader),
            last: watch::Sender::new(LastReading::default()),
            kept: Mutex::new(Kept {
                state: RegistryState::default(),
                versions: RecentMap::new(VERSION_BYTES),
                packages: RecentMap::new(PACKAGE_BYTES),
                names: RecentMap::new(LIST_BYTES),
                lookups: RecentMap::new(LOOKUP_BYTES),
                tiles: RecentMap::new(TILE_BYTES),
                tokens: RecentMap::new(TOKEN_BYTES),
                tokens_by_id: RecentMap::new(TOKEN_BYTES),
                namespaces: None,
            }),
            package_memory: PackageMemory::new(PACKAGE_MEMORY),
        }
    }

    /// Returns the state of the database at a moment after the call, and forgets what changed until then.
    pub async fn snapshot(&self) -> Result<CatalogState, RegistryError> {
        let number = self.arrived.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.subscribe();
        let mut reader = tokio::select! {
            // All that wait go on at once. One after the other, they would keep a single processor busy.
            Ok(last) = last.wait_for(|last| last.arrived > number) => {
                return last.shared();
            }
            reader = self.reader.lock() => reader,
        };
        let last = *self.last.borrow();
        if last.arrived > number {
            return last.shared();
        }
        // A request that is cancelled while it reads leaves everything as it was, and the next one reads.
        let arrived = self.arrived.load(Ordering::SeqCst);
        let read = self.read(&mut reader).await;
        let state = read.as_ref().ok().copied();
        self.last.send_replace(LastReading { arrived, state });
        read.map(CatalogState)
    }

    /// Reads the state, and forgets what has changed until then.
    async fn read(&self, reader: &mut StateReader) -> Result<RegistryState, RegistryError> {
        let state = reader.read().await?;
        self.bring_up_to(state).await?;
        Ok(state)
    }

    /// Forgets what has changed since the state in memory.
    async fn bring_up_to(&self, state: RegistryState) -> Result<(), RegistryError> {
        let known = self.kept().state;
        if state == known {
            return Ok(());
        }
        let changed = self.changed_keys(known, state).await?;
        let mut kept = self.kept();
        if let Some(keys) = changed {
            for key in keys {
                kept.versions.remove(&key);
                kept.packages.remove(&key);
                kept.names.remove(&key.name());
            }
        } else {
            kept.versions.clear();
            kept.packages.clear();
            kept.names.clear();
        }
        if state.records < known.records {
            // Somebody has restored an older database.
            kept.lookups.clear();
            kept.tiles.clear();
        }
        if state.access != known.access {
            kept.tokens.clear();
            kept.tokens_by_id.clear();
            kept.namespaces = None;
        }
        kept.state = state;
        Ok(())
    }

    /// Returns the versions with new records. `None`: too many, or the log is another one.
    async fn changed_keys(
        &self,
        known: RegistryState,
        state: RegistryState,
    ) -> Result<Option<Vec<VersionKey>>, RegistryError> {
        let count = state.records - known.records;
        let Ok(from) = LogId::new(known.records + 1) else {
            return Ok(None);
        };
        if !(0..=MOST_RECORDS).contains(&count) {
            return Ok(None);
        }
        if count == 0 {
            return Ok(Some(Vec::new()));
        }
        let records = self.registry.store().registry_records(from, count).await?;
        let keys = records.iter().map(|(_, text)| {
            let record = Record::parse(text.as_bytes()).ok()?;
            Some(record.key().clone())
        });
        let keys: Option<Vec<VersionKey>> = keys.collect();
        Ok(keys.filter(|keys| i64::try_from(keys.len()) == Ok(count)))
    }

    /// Returns a version in any state but absent. One that was never here, and was taken down, is absent unless that counts.
    pub async fn version(
        &self,
        snapshot: CatalogState,
        key: &VersionKey,
    ) -> Result<Option<Arc<KeptVersion>>, RegistryError> {
        let version = self.stored_version(snapshot, key).await?;
        if let Some(version) = &version
            && !version.version.takedown_stays()
            && !self.takedowns_count(snapshot, &key.name()).await?
        {
            return Ok(None);
        }
        Ok(version)
    }

    async fn takedowns_count(
        &self,
        snapshot: CatalogState,
        name: &RegistryName,
    ) -> Result<bool, RegistryError> {
        let namespaces = self.namespaces(snapshot).await?;
        Ok(namespaces.count_takedowns(name))
    }

    /// Returns a version in any state but absent, whether it was here or not.
    pub async fn stored_version(
        &self,
        snapshot: CatalogState,
        key: &VersionKey,
    ) -> Result<Option<Arc<KeptVersion>>, RegistryError> {
        if let Some(version) = self.kept().versions.get(key) {
            return Ok(Some(version));
        }
        let Some(version) = self.registry.version(key).await? else {
            return Ok(None);
        };
        let version = Arc::new(KeptVersion::new(version));
        // No record tells if somebody here confirms the takedown of another deployment.
        if version.version.takedown_stays() {
            self.keep(snapshot, |kept| {
                let entry = Arc::clone(&version);
                kept.versions.insert(key.clone(), entry, KeptVersion::BYTES);
            });
        }
        Ok(Some(version))
    }

    /// Returns the package of a version, if it is in memory.
    pub fn package(&self, key: &VersionKey) -> Option<Bytes> {
        self.kept().packages.get(key)
    }

    /// Takes memory for a package of this size in bytes. `None`: it is too large, or clients read so many others.
    pub fn memory_for_package(&self, size: u64) -> Option<OwnedSemaphorePermit> {
        if size > Self::MAX_PACKAGE {
            return None;
        }
        self.package_memory.take(size)
    }

    /// Takes memory for a `go.mod` file of this size in bytes, from that of packages. `None`: clients read so many others.
    pub fn memory_for_go_mod(&self, size: u64) -> Option<OwnedSemaphorePermit> {
        self.package_memory.take(size)
    }

    /// Keeps the package of a version in memory that was taken for it.
    pub fn keep_package(&self, snapshot: CatalogState, key: &VersionKey, content: &Bytes) {
        self.keep(snapshot, |kept| {
            kept.packages
                .insert(key.clone(), content.clone(), content.len());
        });
    }

    /// Returns the versions of a name in any state, from the highest to the lowest, as [`version`](Self::version) does.
    pub async fn name(
        &self,
        snapshot: CatalogState,
        name: &RegistryName,
    ) -> Result<Arc<KeptName>, RegistryError> {
        let known = self.stored_name(snapshot, name).await?;
        if let Some(were_here) = &known.were_here
            && !self.takedowns_count(snapshot, name).await?
        {
            return Ok(Arc::clone(were_here));
        }
        Ok(known)
    }

    /// Returns the versions of a name in any state, whether they were here or not.
    pub async fn stored_name(
        &self,
        snapshot: CatalogState,
        name: &RegistryName,
    ) -> Result<Arc<KeptName>, RegistryError> {
        if let Some(versions) = self.kept().names.get(name) {
            return Ok(versions);
        }
        let versions = self.registry.versions(name).await?;
        let is_known = !versions.is_empty();
        let versions = Arc::new(KeptName::new(&versions));
        // Anybody can make up names that are not here. For the others, see `stored_version`.
        if is_known && versions.were_here.is_none() {
            self.keep(snapshot, |kept| {
                let bytes = versions.bytes();
                kept.names
                    .insert(name.clone(), Arc::clone(&versions), bytes);
            });
        }
        Ok(versions)
    }

    /// Returns the answer of the checksum database about a version.
    pub async fn lookup(
        &self,
        snapshot: CatalogState,
        key: &VersionKey,
    ) -> Result<Option<TaggedContent>, RegistryError> {
        let CatalogState(RegistryState { records, .. }) = snapshot;
        let kept = self.kept().lookups.get(key);
        if let Some((of, text)) = kept
            && of == records
        {
            return Ok(Some(text));
        }
        let Some(text) = self.registry.lookup(key).await? else {
            return Ok(None);
        };
        let text = TaggedContent::from(Bytes::from(text));
        let bytes = text.len() + 500;
        self.keep(snapshot, |kept| {
            kept.lookups
                .insert(key.clone(), (records, text.clone()), bytes);
        });
        Ok(Some(text))
    }

    /// Returns the content of a tile, which never changes.
    pub async fn tile(
        &self,
        snapshot: CatalogState,
        tile: &Tile,
    ) -> Result<Option<TaggedContent>, RegistryError> {
        if let Some(content) = self.kept().tiles.get(tile) {
            return Ok(Some(content));
        }
        let Some(content) = self.registry.tile(tile).await? else {
            return Ok(None);
        };
        let content = TaggedContent::from(Bytes::from(content));
        let bytes = content.len() + 100;
        self.keep(snapshot, |kept| {
            kept.tiles.insert(*tile, content.clone(), bytes);
        });
        Ok(Some(content))
    }

    /// Returns the token with this text, unless it is unknown or revoked. It may have expired since.
    pub async fn token(
        &self,
        snapshot: CatalogState,
        text: &str,
    ) -> Result<Option<Arc<Token>>, RegistryError> {
        let hash: [u8; 32] = Sha256::digest(text).into();
        let kept = self.kept().tokens.get(&hash);
        if let Some((token, at)) = kept
            && at.elapsed() < TOKEN_TIME
        {
            return Ok(Some(token));
        }
        let Some(token) = self.registry.store().registry_token_by_text(text).await? else {
            return Ok(None);
        };
        let token = Arc::new(token);
        self.keep(snapshot, |kept| {
            let bytes = token_bytes(&token);
            let entry = (Arc::clone(&token), Instant::now());
            kept.tokens.insert(hash, entry, bytes);
        });
        Ok(Some(token))
    }

    /// Returns the token with this identifier, unless it is unknown or revoked. It may have expired since.
    pub async fn token_by_id(
        &self,
        snapshot: CatalogState,
        id: TokenId,
    ) -> Result<Option<Arc<Token>>, RegistryError> {
        if let Some(token) = self.kept().tokens_by_id.get(&id) {
            return Ok(Some(token));
        }
        let token = self.registry.store().registry_token(id).await?;
        let Some(token) = token.filter(|token| token.revoked_at.is_none()) else {
            return Ok(None);
        };
        let token = Arc::new(token);
        self.keep(snapshot, |kept| {
            let bytes = token_bytes(&token);
            kept.tokens_by_id.insert(id, Arc::clone(&token), bytes);
        });
        Ok(Some(token))
    }

    /// Returns owner and visibility of all namespaces.
    pub async fn namespaces(
        &self,
        snapshot: CatalogState,
    ) -> Result<Arc<Namespaces>, RegistryError> {
        if let Some(namespaces) = &self.kept().namespaces {
            return Ok(Arc::clone(namespaces));
        }
        let namespaces = Arc::new(Namespaces::read(self.registry.store()).await?);
        self.keep(snapshot, |kept| {
            kept.namespaces = Some(Arc::clone(&namespaces));
        });
        Ok(namespaces)
    }

    /// Keeps what was read after `snapshot`, unless the state in memory is a newer one.
    fn keep(&self, snapshot: CatalogState, keep: impl FnOnce(&mut Kept)) {
        let mut kept = self.kept();
        if kept.state == snapshot.0 {
            keep(&mut kept);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn token_bytes(token: &Token) -> usize {
    500 + 200 * token.scopes.len()
}
