//! Packages of versions whose base location is a peer come here.
//!
//! A package is requested by its digest, first from the peer that has sent the record, and then from others. Each gets a time
//! that fits the size, and after a failure another one comes first, so that none of them keeps the package away. It goes to a
//! file that nothing refers to, and its size, digest, rules and checksums are checked as those of an upload, before the
//! base location moves here (R4). A wrong one is counted against its sender. A download that failed is repeated later, with
//! a growing pause. After [`MAX_WRONG`] attempts that brought wrong bytes, it is repeated only for a client, or after an
//! administrator has changed or resumed the peer. The store of packages here is asked whether it has what it has
//! confirmed, because nobody downloads a package again whose base location is here.
//!
//! A client that requests such a version waits for its download, so any number of them start one (R7).
//!
//! A peer has few places of its own, in a turn and among the downloads that clients wait for, so that one that sends slowly
//! does not stop the downloads from others. A turn does not wait for a large package: it has a task of its own.
//!
//! A crash leaves an announced package that no version has, or a version whose base location is still the peer. The first
//! is removed as after a publication, and the second is downloaded again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::{BoxFuture, Shared, join_all};
use futures::{FutureExt as _, TryStreamExt as _};
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::records::{DeploymentName, PackageFile, VersionContent};
use lockkeeper_registry::states::BaseLocation;
use lockkeeper_registry::versions::VersionKey;
use reqwest::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::super::blobs::{BlobError, StagedBlob};
use super::super::packaging::{CheckedPackage, limits};
use super::super::rows::versions_write_in_tx;
use super::super::service::RegistryError;
use super::super::store::{
    RegistryVersion, VersionOrigin, broken, go_mod_add_in_tx, key_of, log_hold_in_tx,
    package_is_here_in_tx, version_in_tx,
};
use super::client::{ClientFault, package_time};
use super::model::Peer;
use super::store::kept_error;
use super::{DOWNLOADS_OF_PEER, PeerExchange};
use crate::context::ServerCtx;
use crate::errors::describe_error;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::leases::{LeaseKey, LeaseOutcome};
use crate::model::RepoPath;
use crate::store::{Result as StoreResult, Store, Tx, execute, execute_alone, kept_time, on_pool};

/// Longest wait of a client for a download. The time limit of requests is longer.
const WAIT: Duration = Duration::from_secs(20);

/// Pause between two looks of a client that waits for another server.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Number of attempts with wrong bytes after which nobody tries again automatically. The index of due downloads has it too.
const MAX_WRONG: i64 = 20;

/// Maximum number of downloads for which clients wait at a time.
const MAX_WAITED: usize = 64;

/// Maximum number of them for versions that one peer has announced.
const MAX_WAITED_OF_PEER: usize = 16;

/// Number of downloads of each peer in one turn.
const AT_A_TIME: i64 = 50;

/// Time after which a turn begins no other download, so that versions that were published meanwhile come soon.
const BEGIN_TIME: Duration = Duration::from_mins(3);

/// First pause after a failed download, which doubles up to the longest one.
const FIRST_PAUSE: TimeDelta = TimeDelta::seconds(10);
const LONGEST_PAUSE: TimeDelta = TimeDelta::hours(1);

/// Longest time for a download in a turn, from all peers together. Slow ones must not keep the packages of others waiting.
const LONGEST: Duration = Duration::from_mins(10);

/// Longest time for a package from one peer in a turn. A package that may take longer has a task of its own.
const LONGEST_OF_PEER: Duration = Duration::from_secs(200);

/// Pause before a large package is looked at again, because another one of its peer is on its way.
const LARGE_PAUSE: TimeDelta = TimeDelta::minutes(1);

/// Peers that have announced a large package that is on its way. Its task outlives the turn, so turns share them.
static LARGE: Mutex<BTreeSet<DeploymentName>> = Mutex::new(BTreeSet::new());

/// Time of the lease, which is renewed while the download goes on.
const LEASE_TIME: Duration = Duration::from_mins(2);

pub(in crate::features::registry) const DOWNLOADS: Reconciler = Reconciler::new(
    "registry_downloads",
    "Downloads packages of modules that other deployments have published.",
    Duration::from_secs(10),
    |ctx| Box::pin(tick(ctx)),
);

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    if ctx.store.registry_download_peers().await?.is_empty() {
        return Ok(TickResult::default());
    }
    let Some(peers) = PeerExchange::of(ctx).await? else {
        return Ok(TickResult::default());
    };
    let report = Arc::new(peers).download_due().await?;
    Ok(TickResult {
        looked_at: report.arrived + report.failed,
        repaired: report.arrived,
    })
}

/// A download that clients wait for.
pub(super) struct RunningDownload {
    /// Peer that has sent the record.
    peer: Option<DeploymentName>,
    outcome: Shared<BoxFuture<'static, DownloadOutcome>>,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DownloadOutcome {
    /// The packages are here, or the version has none any more.
    Arrived,
    Failed,
    /// Another server downloads them, or the next turn does.
    Elsewhere,
    /// The package is too large for a turn.
    Large,
}

/// Slot for the download of a large package of a peer. A peer has one.
struct LargeDownloadSlot(DeploymentName);

impl LargeDownloadSlot {
    /// Takes the place, if it is free.
    fn take(peer: &DeploymentName) -> Option<Self> {
        let mut large = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
        large.insert(peer.clone()).then(|| Self(peer.clone()))
    }
}

impl Drop for LargeDownloadSlot {
    fn drop(&mut self) {
        let mut large = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
        large.remove(&self.0);
    }
}

/// Entry of a download that clients wait for. It ends with the download, also if that panics.
struct RunningEntry<'a> {
    peers: &'a PeerExchange,
    key: &'a VersionKey,
}

impl Drop for RunningEntry<'_> {
    fn drop(&mut self) {
        let running = &self.peers.running;
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(self.key);
    }
}

/// A version whose packages are at a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingDownload {
    pub key: VersionKey,
    /// Peer that has sent the record.
    pub peer: DeploymentName,
    /// Number of failed attempts.
    pub attempts: i64,
    /// Number of those that brought other bytes than the recorded ones.
    pub wrong: i64,
    /// Time of the next attempt.
    pub next_at: DateTime<Utc>,
    /// Reason of the last failure.
    pub error: Option<String>,
}

/// Result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownloadReport {
    /// Number of versions whose packages are here now.
    pub arrived: u64,
    /// Number of versions whose packages did not come.
    pub failed: u64,
}

/// Reason why a package did not come from a peer.
#[derive(Debug, thiserror::Error)]
enum DownloadFault {
    #[error("{0}")]
    Away(String),
    /// The peer answers that it has no such package.
    #[error("{0}")]
    Missing(String),
    /// The bytes are not those of the record.
    #[error("{0}")]
    Wrong(String),
    /// The version was taken down meanwhile.
    #[error("the version was taken down")]
    Gone,
    /// The store of packages here does not have what it has confirmed.
    #[error("the store of packages here has confirmed the package and does not have it")]
    Lost,
    #[error(transparent)]
    Here(#[from] RegistryError),
}

impl From<BlobError> for DownloadFault {
    fn from(error: BlobError) -> Self {
        Self::Here(error.into())
    }
}

impl From<sqlx::Error> for DownloadFault {
    fn from(error: sqlx::Error) -> Self {
        Self::Here(error.into())
    }
}

impl From<ClientFault> for DownloadFault {
    fn from(fault: ClientFault) -> Self {
        if let ClientFault::Status(StatusCode::NOT_FOUND, _) = &fault {
            return Self::Missing(fault.to_string());
        }
        Self::Away(fault.to_string())
    }
}

impl PeerExchange {
    /// Downloads what is due, a part of each peer. Large packages are not here when it ends.
    pub async fn download_due(self: &Arc<Self>) -> Result<DownloadReport, RegistryError> {
        let end = Instant::now() + BEGIN_TIME;
        let store = self.registry.store();
        let mut peers = store.registry_download_peers().await?;
        // All of them wait for the same places, and none is always the first.
        peers.sort_by_cached_key(|_| rand::random::<u64>());
        let mut due = Vec::new();
        for peer in &peers {
            due.extend(store.registry_downloads_due(peer, AT_A_TIME).await?);
        }
        let downloads = due
            .iter()
            .map(|waiting| Box::pin(self.download(&waiting.key, Some(&waiting.peer), Some(end))));
        let mut report = DownloadReport::default();
        for (waiting, outcome) in due.iter().zip(join_all(downloads).await) {
            match outcome? {
                DownloadOutcome::Arrived => report.arrived += 1,
                DownloadOutcome::Failed => report.failed += 1,
                DownloadOutcome::Elsewhere => {}
                DownloadOutcome::Large => self.begin_large(waiting).await?,
            }
        }
        Ok(report)
    }

    /// Begins the download of a large package, unless another one of its peer is on its way.
    async fn begin_large(self: &Arc<Self>, waiting: &WaitingDownload) -> Result<(), RegistryError> {
        let Some(place) = LargeDownloadSlot::take(&waiting.peer) else {
            let store = self.registry.store();
            return Ok(store.registry_download_later(&waiting.key).await?);
        };
        let (peers, waiting) = (Arc::clone(self), waiting.clone());
        tokio::spawn(async move {
            let _place = place;
            peers
                .download_alone(&waiting.key, Some(&waiting.peer))
                .await
        });
        Ok(())
    }

    /// Waits until the packages of a version are here. Returns false if they do not come in time.
    pub async fn arrive(self: &Arc<Self>, key: &VersionKey) -> Result<bool, RegistryError> {
        let (store, end) = (self.registry.store(), Instant::now() + WAIT);
        let waiting = store.registry_download(key).await?;
        if waiting
            .as_ref()
            .is_some_and(|waiting| waiting.has_failed_lately(store.now()))
        {
            return Ok(false);
        }
        let peer = waiting.map(|waiting| waiting.peer);
        let running = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let of_peer = running.values().filter(|download| download.peer == peer);
            let of_peer = of_peer.count();
            if let Some(download) = running.get(key) {
                download.outcome.clone()
            } else if running.len() >= MAX_WAITED || of_peer >= MAX_WAITED_OF_PEER {
                return Ok(false);
            } else {
                // A task of its own, so that the download goes on if the clients leave.
                let (peers, of_task) = (Arc::clone(self), (key.clone(), peer.clone()));
                let task = tokio::spawn(async move {
                    let (key, peer) = of_task;
                    peers.download_waited(&key, peer.as_ref()).await
                });
                let outcome = task
                    .map(|outcome| outcome.unwrap_or(DownloadOutcome::Failed))
                    .boxed()
                    .shared();
                let download = RunningDownload {
                    peer,
                    outcome: outcome.clone(),
                };
                running.insert(key.clone(), download);
                outcome
            }
        };
        let outcome = timeout_at(end, running).await;
        loop {
            let version = store.registry_version(key).await?;
            let located = version.as_ref().and_then(|version| version.known.content());
            if located.is_none_or(|located| located.base == BaseLocation::Here) {
                return Ok(true);
            }
            if outcome != Ok(DownloadOutcome::Elsewhere) || Instant::now() >= end {
                return Ok(false);
            }
            let waiting = store.registry_download(key).await?;
            if waiting.is_some_and(|waiting| waiting.has_failed_lately(store.now())) {
                return Ok(false);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn download_waited(
        &self,
        key: &VersionKey,
        peer: Option<&DeploymentName>,
    ) -> DownloadOutcome {
        let _entry = RunningEntry { peers: self, key };
        self.download_alone(key, peer).await
    }

    /// Downloads the packages of a version, however long that takes.
    async fn download_alone(
        &self,
        key: &VersionKey,
        peer: Option<&DeploymentName>,
    ) -> DownloadOutcome {
        match Box::pin(self.download(key, peer, None)).await {
            Ok(outcome) => outcome,
            Err(error) => {
                warn!(error = describe_error(&error), version = %key, "Cannot download a package of a peer");
                DownloadOutcome::Failed
            }
        }
    }

    /// Returns the places for packages that a peer has announced.
    fn places_of(&self, peer: &DeploymentName) -> Arc<Semaphore> {
        let places = &self.places_of_peers;
        let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
        let places = places.entry(peer.clone());
        Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(DOWNLOADS_OF_PEER))))
    }

    /// Downloads the packages of a version that a peer has announced, unless they are here. With `end`, it is part of a turn:
    /// after that time nothing begins, and no large package ever does.
    async fn download(
        &self,
        key: &VersionKey,
        peer: Option<&DeploymentName>,
        end: Option<Instant>,
    ) -> Result<DownloadOutcome, RegistryError> {
        let of_peer = peer.map(|peer| self.places_of(peer));
        let _place_of_peer = match &of_peer {
            Some(places) => Some(places.acquire().await),
            None => None,
        };
        let _place = self.places.acquire().await;
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(DownloadOutcome::Elsewhere);
        }
        let lease = LeaseKey::registry_download(&key.to_string());
        let purpose = "downloads a package of a peer of the registry";
        let Some(lease) = self.leases.turn(&lease, purpose, LEASE_TIME).await? else {
            return Ok(DownloadOutcome::Elsewhere);
        };
        let download = async {
            match end {
                Some(_) => {
                    let download = self.download_leased(key, LONGEST_OF_PEER);
                    timeout(LONGEST, download).await.ok()
                }
                None => Some(self.download_leased(key, Duration::MAX).await),
            }
        };
        let store = self.registry.store();
        match lease.run(Box::pin(download)).await {
            LeaseOutcome::Done(Some(Ok(outcome))) => Ok(outcome),
            LeaseOutcome::Done(Some(Err(error))) => {
                // Others come first the next time.
                let why = "it could not be kept here. The log of the server says why";
                store.registry_download_failed(key, why, false).await?;
                Err(error)
            }
            LeaseOutcome::Done(None) => {
                let why = "peers send it too slowly";
                store.registry_download_failed(key, why, false).await?;
                Ok(DownloadOutcome::Failed)
            }
            LeaseOutcome::Lost => Ok(DownloadOutcome::Elsewhere),
        }
    }

    /// Downloads the packages of a version, if they need at most the time `longest` from one peer.
    async fn download_leased(
        &self,
        key: &VersionKey,
        longest: Duration,
    ) -> Result<DownloadOutcome, RegistryError> {
        let store = self.registry.store();
        let version = store.registry_version(key).await?;
        let located = version.as_ref().and_then(|version| version.known.content());
        let Some((content, BaseLocation::Peer(base))) =
            located.map(|located| (located.content.clone(), located.base.clone()))
        else {
            store.registry_download_over(key).await?;
            return Ok(DownloadOutcome::Arrived);
        };
        let size = content.packages.iter().map(|package| package.size).sum();
        if package_time(size) > longest {
            return Ok(DownloadOutcome::Large);
        }
        let waiting = store.registry_download(key).await?;
        let attempts = waiting.map_or(0, |waiting| waiting.attempts);
        let peers = store.registry_peers().await?;
        let mut peers: Vec<Peer> = peers
            .into_iter()
            .filter(|peer| peer.state.has_packages())
            .collect();
        // The peer that has sent the record comes first, and every other time one of the others in turn.
        peers.sort_by_key(|peer| peer.name != base);
        let first = first_asked(attempts, peers.len());
        peers.rotate_left(first);
        let mut errors = Vec::new();
        let (mut is_wrong, mut is_away) = (false, false);
        for peer in &peers {
            match Box::pin(self.download_from(peer, key, &content)).await {
                Ok(()) => {
                    info!(version = %key, peer = peer.name.as_str(), "Downloaded {key} from a peer");
                    return Ok(DownloadOutcome::Arrived);
                }
                Err(DownloadFault::Gone) => return Ok(DownloadOutcome::Arrived),
                Err(DownloadFault::Here(error))
                    if error.is_store_away() || error.is_store_full() =>
                {
                    // Other peers would send it for nothing.
                    let why = if error.is_store_full() {
                        error.to_string()
                    } else {
                        "the store of packages here does not answer".to_owned()
                    };
                    store.registry_download_failed(key, &why, false).await?;
                    return Ok(DownloadOutcome::Failed);
                }
                Err(DownloadFault::Here(error)) => return Err(error),
                Err(fault @ DownloadFault::Lost) => {
                    warn!(version = %key, "The store of packages has lost a package of a peer; it is downloaded again");
                    store
                        .registry_download_failed(key, &fault.to_string(), false)
                        .await?;
                    return Ok(DownloadOutcome::Failed);
                }
                Err(DownloadFault::Away(why)) => {
                    errors.push(format!("{}: {why}", peer.name));
                    is_away = true;
                }
                Err(DownloadFault::Missing(why)) => {
                    errors.push(format!("{}: {why}", peer.name));
                    // The one that has sent the record may get the package later.
                    is_away |= peer.name == base;
                }
                Err(DownloadFault::Wrong(why)) => {
                    warn!(version = %key, peer = peer.name.as_str(), why, "A peer sent a package that is not the recorded one");
                    store.registry_peer_wrong_package(&peer.name).await?;
                    errors.push(format!("{}: {why}", peer.name));
                    is_wrong = true;
                }
            }
        }
        if errors.is_empty() {
            errors.push(format!(
                "{base} is no peer any more, and there is no other one"
            ));
        }
        // One that sends wrong bytes must not be the reason why nobody asks another one that was away.
        store
            .registry_download_failed(key, &errors.join("; "), is_wrong && !is_away)
            .await?;
        Ok(DownloadOutcome::Failed)
    }

    /// Downloads the package of a version from a peer, and moves the base location here.
    async fn download_from(
        &self,
        peer: &Peer,
        key: &VersionKey,
        content: &VersionContent,
    ) -> Result<(), DownloadFault> {
        let mut packages = content.packages.iter();
        let (Some(package), None) = (packages.next(), packages.next()) else {
            let why = "the version has several packages, which this release does not serve";
            return Err(DownloadFault::Away(why.to_owned()));
        };
        let staged = self.fetch(peer, key, package).await?;
        let module_dir = package.name.module_dir().unwrap_or_else(RepoPath::root);
        let checked = CheckedPackage::of_upload(key.clone(), staged, module_dir, ()).await;
        let (checked, ()) = checked.map_err(|error| {
            if error.is_internal() {
                DownloadFault::Away(format!("the package cannot be checked: {error}"))
            } else {
                DownloadFault::Wrong(format!("the package breaks a rule: {error}"))
            }
        })?;
        if !checked.content.has_same_files(content) {
            let why = "the files of the package do not have the recorded checksums";
            return Err(DownloadFault::Wrong(why.to_owned()));
        }
        let store = self.registry.store();
        let digest = checked.staged.digest.clone();
        if !self.registry.announce(&digest).await? {
            let why = "the same package is being removed here";
            return Err(DownloadFault::Away(why.to_owned()));
        }
        self.registry.blobs.keep(checked.staged).await?;
        // A store may forget what it has confirmed.
        if !self.registry.blobs.has(&digest).await? {
            return Err(DownloadFault::Lost);
        }
        let is_here = {
            let _place = self.registry.recording.acquire().await;
            let go_mod = checked.go_mod.as_deref();
            store.registry_downloaded(key, content, go_mod).await?
        };
        if is_here {
            return Ok(());
        }
        store
            .registry_package_announce(&digest, store.now())
            .await?;
        self.registry.remove_orphans().await?;
        let version = store.registry_version(key).await?;
        let located = version.as_ref().and_then(|version| version.known.content());
        if located.is_none_or(|located| located.base == BaseLocation::Here) {
            return Err(DownloadFault::Gone);
        }
        let why = "the package was removed here before its version could be changed";
        Err(DownloadFault::Away(why.to_owned()))
    }

    /// Receives the bytes of a package, and checks size and digest.
    async fn fetch(
        &self,
        peer: &Peer,
        key: &VersionKey,
        package: &PackageFile,
    ) -> Result<StagedBlob, DownloadFault> {
        let most = limits(key.kind()).packed;
        if package.size > most {
            let why = format!("the package has more than {most} bytes");
            return Err(DownloadFault::Away(why));
        }
        let token = self
            .token(peer)
            .map_err(|fault| DownloadFault::Away(fault.to_string()))?;
        let request = (&package.digest, package.size);
        let mut pieces = self.client.package(&peer.url, &token, request).await?;
        let mut staging = self.registry.blobs.stage(package.size).await?;
        while let Some(piece) = pieces.try_next().await? {
            match staging.write(&piece).await {
                Err(BlobError::TooLarge(_)) => {
                    let why = format!("it has more than {} bytes", package.size);
                    return Err(DownloadFault::Wrong(why));
                }
                written => written?,
            }
        }
        if staging.size() != package.size {
            return Err(DownloadFault::Wrong(format!(
                "it has {} bytes instead of {}",
                staging.size(),
                package.size
            )));
        }
        let staged = staging.finish().await?;
        if staged.digest != package.digest {
            return Err(DownloadFault::Wrong(format!(
                "it has the SHA-256 {} instead of {}",
                staged.digest, package.digest
            )));
        }
        Ok(staged)
    }
}

/// Returns the place of the peer that is asked first after this number of failed attempts.
fn first_asked(attempts: i64, peers: usize) -> usize {
    let attempts = usize::try_from(attempts).unwrap_or(0);
    if attempts.is_multiple_of(2) || peers < 2 {
        0
    } else {
        1 + (attempts / 2) % (peers - 1)
    }
}

macro_rules! download_sql {
    ($rest:literal) => {
        concat!(
            "SELECT kind, name, version, peer, attempts, wrong, next_at, error FROM registry_downloads ",
            $rest
        )
    };
}

#[derive(sqlx::FromRow)]
struct DownloadRow {
    kind: NameKind,
    name: String,
    version: String,
    peer: DeploymentName,
    attempts: i64,
    wrong: i64,
    next_at: DateTime<Utc>,
    error: Option<String>,
}

impl WaitingDownload {
    /// Returns true if the last attempt failed a moment ago, so that another one would fail as well.
    fn has_failed_lately(&self, now: DateTime<Utc>) -> bool {
        self.attempts > 0 && self.next_at > now
    }

    /// Returns true if nobody tries again automatically.
    pub fn is_given_up(&self) -> bool {
        self.wrong >= MAX_WRONG
    }
}

impl DownloadRow {
    fn waiting(self) -> StoreResult<WaitingDownload> {
        Ok(WaitingDownload {
            key: key_of(self.kind, &self.name, &self.version)?,
            peer: self.peer,
            attempts: self.attempts,
            wrong: self.wrong,
            next_at: self.next_at,
            error: self.error,
        })
    }
}

impl Store {
    /// Lists peers that have announced downloads that are due and not given up. The index by peer is looked up for each
    /// peer, however many downloads one has.
    pub async fn registry_download_peers(&self) -> StoreResult<Vec<DeploymentName>> {
        on_pool!(self, db => sqlx::query_scalar::<_, DeploymentName>(
            "SELECT name FROM registry_peers WHERE (SELECT MIN(d.next_at) FROM registry_downloads d \
             WHERE d.peer = registry_peers.name AND d.wrong < 20) <= $1 ORDER BY name")
            .bind(kept_time(self.now())).fetch_all(db))
    }

    /// Lists downloads of a peer that are due and not given up, the oldest first.
    pub async fn registry_downloads_due(
        &self,
        peer: &DeploymentName,
        limit: i64,
    ) -> StoreResult<Vec<WaitingDownload>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, DownloadRow>(
            download_sql!("WHERE peer = $1 AND wrong < 20 AND next_at <= $2 ORDER BY next_at LIMIT $3"))
            .bind(peer).bind(kept_time(self.now())).bind(limit).fetch_all(db))?;
        rows.into_iter().map(DownloadRow::waiting).collect()
    }

    /// Returns the download of a version.
    pub async fn registry_download(
        &self,
        key: &VersionKey,
    ) -> StoreResult<Option<WaitingDownload>> {
        let name = key.name();
        let row = on_pool!(self, db => sqlx::query_as::<_, DownloadRow>(
            download_sql!("WHERE kind = $1 AND name = $2 AND version = $3"))
            .bind(key.kind()).bind(name.as_str()).bind(key.version()).fetch_optional(db))?;
        row.map(DownloadRow::waiting).transpose()
    }

    /// Returns the number of versions whose packages are not here.
    pub async fn registry_download_count(&self) -> StoreResult<i64> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM registry_downloads").fetch_one(db))
    }

    /// Moves the base location of a version here. Returns false if the version has no such content any more.
    pub(super) async fn registry_downloaded(
        &self,
        key: &VersionKey,
        content: &VersionContent,
        go_mod: Option<&[u8]>,
    ) -> StoreResult<bool> {
        let mut tx = self.begin_shared().await?;
        log_hold_in_tx(&mut tx).await?;
        let version = version_in_tx(&mut tx, key).await?;
        let now = version.and_then(|version| {
            let known = version.known.downloaded(content)?;
            Some(RegistryVersion { known, ..version })
        });
        let Some(version) = now else {
            return tx.roll_back().await.map(|()| false);
        };
        // Before the version counts as here, so that it does not vouch for its own package.
        for package in &content.packages {
            let announced = execute!(
                &mut tx,
                "DELETE FROM registry_loose_packages WHERE digest = $1 AND NOT is_removing",
                &package.digest,
            )?;
            // A removal that came between the announcement and now has taken the package away.
            if announced == 0 && !package_is_here_in_tx(&mut tx, &package.digest).await? {
                return tx.roll_back().await.map(|()| false);
            }
        }
        versions_write_in_tx(&mut tx, &[&version]).await?;
        if let Some(go_mod) = go_mod {
            let is_foreign = version.origin.is_some_and(VersionOrigin::is_foreign);
            go_mod_add_in_tx(&mut tx, key, go_mod, is_foreign).await?;
        }
        let name = key.name();
        execute!(
            &mut tx,
            "DELETE FROM registry_downloads WHERE kind = $1 AND name = $2 AND version = $3",
            key.kind(),
            name.as_str(),
            key.version(),
        )?;
        tx.commit().await.map(|()| true)
    }

    /// Forgets a download whose packages are here, or whose version has none any more.
    pub(super) async fn registry_download_over(&self, key: &VersionKey) -> StoreResult<()> {
        let name = key.name();
        execute_alone!(
            self,
            "DELETE FROM registry_downloads WHERE kind = $1 AND name = $2 AND version = $3",
            key.kind(),
            name.as_str(),
            key.version(),
        )
        .map(drop)
    }

    /// Lets all downloads that a peer has announced be due again, also those that were given up. It reads all rows, because
    /// those that were given up have no index. Downloads that others have announced stay as they are.
    pub(super) async fn downloads_again_in_tx(
        &self,
        tx: &mut Tx,
        peer: &DeploymentName,
    ) -> StoreResult<()> {
        execute!(
            tx,
            "UPDATE registry_downloads SET attempts = 0, wrong = 0, next_at = $2 WHERE peer = $1",
            peer,
            kept_time(self.now()),
        )
        .map(drop)
    }

    /// Looks at a download later, which is no failure.
    pub(super) async fn registry_download_later(&self, key: &VersionKey) -> StoreResult<()> {
        let name = key.name();
        execute_alone!(
            self,
            "UPDATE registry_downloads SET next_at = $4 WHERE kind = $1 AND name = $2 AND version = $3",
            key.kind(),
            name.as_str(),
            key.version(),
            kept_time(self.now() + LARGE_PAUSE),
        )
        .map(drop)
    }

    /// Repeats a download later. `is_wrong`: it brought other bytes than the recorded ones.
    pub(super) async fn registry_download_failed(
        &self,
        key: &VersionKey,
        error: &str,
        is_wrong: bool,
    ) -> StoreResult<()> {
        let waiting = self.registry_download(key).await?;
        let attempts = waiting.map_or(0, |waiting| waiting.attempts);
        let exponent = u32::try_from(attempts.clamp(0, 20)).map_err(broken)?;
        let pause = FIRST_PAUSE
            .checked_mul(2_i32.pow(exponent))
            .unwrap_or(LONGEST_PAUSE);
        let pause = pause.min(LONGEST_PAUSE);
        let jitter = 1.0 + 0.2 * rand::random::<f64>();
        let pause = pause.to_std().unwrap_or_default().mul_f64(jitter);
        let name = key.name();
        execute_alone!(
            self,
            "UPDATE registry_downloads SET attempts = attempts + 1, next_at = $4, error = $5, wrong = wrong + $6 \
             WHERE kind = $1 AND name = $2 AND version = $3",
            key.kind(),
            name.as_str(),
            key.version(),
            kept_time(self.now() + pause),
            kept_error(error),
            i64::from(is_wrong),
        )
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_attempt_asks_another_peer_first() {
        let first = |peers| (0..8).map(move |attempts| first_asked(attempts, peers));
        assert_eq!(first(4).collect::<Vec<_>>(), [0, 1, 0, 2, 0, 3, 0, 1]);
        for peers in [0, 1] {
            assert!(first(peers).all(|place| place == 0));
        }
    }

    #[test]
    fn a_package_above_ten_mebibytes_is_large() {
        assert!(package_time(10 << 20) <= LONGEST_OF_PEER);
        assert!(package_time(11 << 20) > LONGEST_OF_PEER);
    }
}
