//! Everything that other files do with versions and the log.
//!
//! # Crashes
//!
//! - A publication first announces its package in the database, then makes it durable in the store of packages, and then
//!   records the version (R1, R4). A crash in between leaves a package that no version refers to, which is removed after
//!   [`PUBLICATION_TIME`].
//! - A publication that records nothing makes its package due, so that it is removed at once unless a version has it.
//! - A takedown records the deletion, and in the same transaction that its packages are to be removed. Then it removes
//!   them, also if the client has left. After a crash in between, [`Registry::remove_orphans`] does so.
//! - A removal claims the package in the database for [`REMOVAL_TIME`], and gives the claim back when the store of packages
//!   has removed it. A store that does not answer may remove it later, so the claim is kept then. A publication of the same
//!   bytes waits for a short removal, and is refused during a long one. One that took longer than [`PUBLICATION_TIME`] finds
//!   out that its package is gone or claimed, and records nothing.
//! - A package that was lost or damaged is stored again when the same files are published again.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use lockkeeper_registry::names::RegistryName;
use lockkeeper_registry::records::{
    DeploymentName, LogId, PackageFile, RecordChange, RecordMaker, RecordNotice, RecordTime,
    TakedownKind, UnsignedRecord, VersionContent,
};
use lockkeeper_registry::signed_note::{NoteVerifier, sign_note};
use lockkeeper_registry::states::{BaseLocation, RecordEffect, VersionState};
use lockkeeper_registry::tlog::{self, LogHash, TILE_HEIGHT, Tile, TileLevel, TlogError, TreeHead};
use lockkeeper_registry::versions::VersionKey;
use sha2::Sha256;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::blobs::{BlobError, Blobs, PackageReader};
use super::deployment::Deployment;
use super::packaging::CheckedPackage;
use super::store::{LogOutcome, NewChange, RegistryVersion, VersionNotice, VersionOrigin};
use crate::context::PackagePlace;
use crate::errors::describe_error;
use crate::model::{Cause, Sha256Digest};
use crate::queue::WakeUp;
use crate::seal::Keyring;
use crate::store::Store;

/// Time that a publication has from its announcement to its record.
pub(super) const PUBLICATION_TIME: TimeDelta = TimeDelta::hours(1);

/// Number of changes that wait for the log at a time. Each waits with a connection to the database, and the rest of the
/// server needs some as well.
const RECORDED_AT_ONCE: usize = 2;

/// Number of packages that are removed at a time.
const REMOVED_AT_ONCE: i64 = 1_000;

/// Number of packages that cannot be removed, after which the rest waits for the next time.
const MAX_FAILED_REMOVALS: usize = 20;

/// Time of a claim to remove a package. A request that the store has not answered is over long before its end.
const REMOVAL_TIME: TimeDelta = TimeDelta::minutes(5);

/// Longest wait of a publication for a removal of the same bytes, and the pause between two looks.
const REMOVAL_WAIT: Duration = Duration::from_secs(8);
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);

/// The registry of this deployment.
#[derive(Clone)]
pub struct Registry {
    pub(super) store: Store,
    pub(super) blobs: Blobs,
    pub(super) deployment: Deployment,
    /// Newest head that was signed.
    head: Arc<Mutex<Option<SignedHead>>>,
    /// Places of changes that wait for the log. They are taken before the transaction begins.
    pub(super) recording: Arc<Semaphore>,
    /// Wakes those of this server who tell peers about new records.
    news: WakeUp,
}

/// A record of the log, and the proof that the log of a signed head has it.
#[derive(Clone, Debug)]
pub struct ProvenRecord {
    /// Text of the record.
    pub text: String,
    /// Hash of the record.
    pub leaf: LogHash,
    /// Hashes by which that of the record leads to the root of the head.
    pub proof: Vec<LogHash>,
    /// Signed head of the log, as a note.
    pub head: Arc<str>,
}

/// A head of the log as a note.
#[derive(Clone)]
struct SignedHead {
    size: u64,
    note: Arc<str>,
}

/// Failure of the registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A statement failed in the database.
    #[error("the database of the registry failed")]
    Database(#[from] sqlx::Error),
    /// The store of packages failed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// The registry cannot be opened with these settings. The text names the way out.
    #[error("{0}")]
    Settings(String),
    /// The request cannot be recorded, such as a replacement of another kind.
    #[error("{0}")]
    Refused(String),
    /// The package was removed while its version was published. The same publication mends that, after the removal.
    #[error(
        "the package of {0} was removed while it was published. Publish it again in some minutes"
    )]
    PackageGone(Box<VersionKey>),
    /// Stored data is damaged. `lockkeeper registry verify` names it.
    #[error("{0}. `lockkeeper registry verify` checks everything")]
    Damaged(String),
}

impl RegistryError {
    /// Returns true if the store of packages cannot be used at this moment, so that the same request can work later.
    pub fn is_store_away(&self) -> bool {
        matches!(self, Self::Blobs(error) if error.is_unusable())
    }

    /// Returns true if there is no space left for a package.
    pub fn is_store_full(&self) -> bool {
        matches!(self, Self::Blobs(error) if error.is_full())
    }
}

/// Outcome of a publication.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// The version is recorded under this ID.
    New(LogId),
    /// The version was there with the same files.
    Same,
    /// The version has this other content, which stays.
    Conflict(VersionContent),
    /// The version was deleted, and its number is never used again.
    Tombstoned(VersionNotice),
    /// The name belongs to no owner, so nobody can publish it.
    NoNamespace,
    /// The name belongs to an owner, and the version is from elsewhere.
    Owned,
    /// The name differs only in case from this one.
    CaseConflict(RegistryName),
}

/// Outcome of a deprecation.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deprecated {
    /// The deprecation is recorded under this ID.
    New(LogId),
    /// The version was deprecated before, for this reason.
    Before(VersionNotice),
    /// The version was deleted, for this reason.
    Tombstoned(VersionNotice),
    /// No record of the version was seen.
    NotFound,
}

/// Outcome of a takedown.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenDown {
    /// The takedown is recorded under this ID.
    New(LogId),
    /// The version was deleted before, for this reason.
    Before(VersionNotice),
    /// Another deployment has deleted the version for this reason, and it was never here. The takedown counts as one of this
    /// deployment from now on.
    Confirmed(VersionNotice),
    /// No record of the version was seen.
    NotFound,
}

impl RegistryError {
    /// Reports that a publication was refused because its name has an owner. Only fetched versions are.
    pub(super) fn owned(key: &VersionKey) -> Self {
        Self::Refused(format!("{key} belongs to an owner, and was fetched"))
    }
}

/// A deprecated or deleted version without a reason, which this program would not have stored.
fn no_notice(key: &VersionKey) -> RegistryError {
    RegistryError::Damaged(format!("the row of {key} has no reason"))
}

impl From<TlogError> for RegistryError {
    fn from(error: TlogError) -> Self {
        Self::Damaged(format!("the log cannot be read: {error}"))
    }
}

impl Registry {
    /// Opens the registry, and checks its store of packages. The first time, this makes the signing key of the deployment.
    pub async fn open(
        store: Store,
        keys: Option<Arc<Keyring>>,
        name: DeploymentName,
        packages: impl Into<PackagePlace>,
    ) -> Result<Self, RegistryError> {
        let registry = Self::reopen(store, keys, name, packages).await?;
        registry.blobs.check_at_start().await?;
        Ok(registry)
    }

    /// Opens the registry of a server that has checked it when it started.
    pub(super) async fn reopen(
        store: Store,
        keys: Option<Arc<Keyring>>,
        name: DeploymentName,
        packages: impl Into<PackagePlace>,
    ) -> Result<Self, RegistryError> {
        let Some(keys) = keys else {
            return Err(RegistryError::Settings(
                "the registry signs its log with a key, which is kept encrypted in the database. \
                 `lockkeeper credentials keygen` prints a line: put it into a file that only the server can read, and set \
                 --encryption-key-file to that file"
                    .to_owned(),
            ));
        };
        let expected = store.registry_store_id().await?;
        let blobs = Blobs::open(packages, expected.as_ref()).await?;
        let deployment = Deployment::open(&store, &keys, &name, blobs.store_id()).await?;
        Ok(Self {
            store,
            blobs,
            deployment,
            head: Arc::default(),
            recording: Arc::new(Semaphore::new(RECORDED_AT_ONCE)),
            news: WakeUp::default(),
        })
    }

    /// Wakes the reconciler that waits for new records of this deployment. Without it, they are found a moment later.
    #[must_use]
    pub(crate) fn waking(self, news: WakeUp) -> Self {
        Self { news, ..self }
    }

    /// Returns the store of packages, for staging.
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Returns the database with the versions and the log.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the name of the deployment, which is that of its log.
    pub fn name(&self) -> &DeploymentName {
        &self.deployment.name
    }

    /// Returns the public key of the log, as `GOSUMDB` has it.
    pub fn verifier(&self) -> &NoteVerifier {
        self.deployment.signer.verifier()
    }

    /// Publishes a version: makes the package durable, and then records the version. A package with a token of a registry is
    /// refused, unless it was fetched from elsewhere: its files are readable there already.
    pub async fn publish(
        &self,
        package: CheckedPackage,
        origin: VersionOrigin,
        cause: &Cause,
    ) -> Result<Published, RegistryError> {
        if origin != VersionOrigin::VersionControl {
            let checked = package.check_token();
            checked.map_err(|fault| RegistryError::Refused(fault.to_string()))?;
        }
        let CheckedPackage {
            key,
            content,
            go_mod,
            committed_at,
            token_in: _,
            staged,
        } = package;
        let mut packages = content.packages.iter();
        let is_staged = packages
            .next()
            .is_some_and(|file| file.digest == staged.digest && file.size == staged.size);
        if !is_staged || packages.next().is_some() {
            return Err(RegistryError::Refused(format!(
                "the package of {key} is not the one that was stored"
            )));
        }
        let change = NewChange {
            key,
            change: RecordChange::Add(content),
            base: BaseLocation::Here,
            go_mod,
            committed_at,
            origin,
        };
        if let Some(outcome) = self.foresee(&change).await? {
            return Ok(outcome);
        }
        let digest = staged.digest.clone();
        if !self.announce(&digest).await? {
            return Err(RegistryError::PackageGone(Box::new(change.key)));
        }
        self.blobs.keep(staged).await?;
        let outcome = match self.record(&change, cause).await? {
            LogOutcome::Logged(id) => {
                info!(version = %change.key, id = id.get(), by = cause.actor.login, "Published {}", change.key);
                // A store may forget what it has confirmed.
                if !self.blobs.has(&digest).await? {
                    return Err(RegistryError::PackageGone(Box::new(change.key)));
                }
                return Ok(Published::New(id));
            }
            LogOutcome::Known => Published::Same,
            LogOutcome::Conflict(content) => Published::Conflict(content),
            LogOutcome::Tombstoned(notice) => Published::Tombstoned(notice),
            LogOutcome::NoNamespace => Published::NoNamespace,
            LogOutcome::Owned => Published::Owned,
            LogOutcome::CaseConflict(other) => Published::CaseConflict(other),
            LogOutcome::PackageGone => {
                return Err(RegistryError::PackageGone(Box::new(change.key)));
            }
            outcome @ LogOutcome::Confirmed => return Err(unexpected(&change.key, &outcome)),
        };
        let now = self.store.now();
        self.store.registry_package_announce(&digest, now).await?;
        self.remove_now(&change.key).await;
        Ok(outcome)
    }

    /// Announces a package that is about to be stored. Waits for a removal of the same bytes that runs at this moment, and
    /// returns false if that takes too long.
    pub(super) async fn announce(&self, digest: &Sha256Digest) -> Result<bool, RegistryError> {
        let started = Instant::now();
        loop {
            let due_at = self.store.now() + PUBLICATION_TIME;
            let announced = self.store.registry_package_announce(digest, due_at).await?;
            if announced || started.elapsed() > REMOVAL_WAIT {
                return Ok(announced);
            }
            sleep(REMOVAL_PAUSE).await;
        }
    }

    /// Returns the outcome of a publication whose package need not be stored.
    async fn foresee(&self, change: &NewChange) -> Result<Option<Published>, RegistryError> {
        let name = change.key.name();
        let is_owned = self.store.registry_namespace_of(&name).await?.is_some();
        let is_foreign = change.origin.is_foreign();
        match (is_foreign, is_owned) {
            (true, true) => return Ok(Some(Published::Owned)),
            (false, false) => return Ok(Some(Published::NoNamespace)),
            (true, false) | (false, true) => {}
        }
        let version = self.store.registry_version(&change.key).await?;
        let Some(version) = version else {
            if is_foreign {
                return Ok(None);
            }
            let other = self.store.registry_name_in_other_case(&name).await?;
            return Ok(other.map(Published::CaseConflict));
        };
        Ok(match version.known.apply(&change.change, &change.base) {
            RecordEffect::Changed(_) => None,
            // The same package mends one that was lost or damaged. Another one with the same files has other bytes.
            RecordEffect::Known if has_packages_of(&version, &change.change) => None,
            RecordEffect::Known => Some(Published::Same),
            RecordEffect::Conflict(content) => Some(Published::Conflict(content)),
            RecordEffect::Tombstoned => {
                let notice = version.notice.ok_or_else(|| no_notice(&change.key))?;
                Some(Published::Tombstoned(notice))
            }
        })
    }

    /// Deprecates a version, which is final.
    pub async fn deprecate(
        &self,
        key: &VersionKey,
        notice: RecordNotice,
        cause: &Cause,
    ) -> Result<Deprecated, RegistryError> {
        let Some(version) = self.store.registry_version(key).await? else {
            return Ok(Deprecated::NotFound);
        };
        let change = self.notice_change(version, RecordChange::Deprecate(notice))?;
        match self.record(&change, cause).await? {
            LogOutcome::Logged(id) => {
                info!(version = %key, id = id.get(), by = cause.actor.login, "Deprecated {key}");
                Ok(Deprecated::New(id))
            }
            LogOutcome::Known => Ok(Deprecated::Before(self.notice(key).await?)),
            LogOutcome::Tombstoned(notice) => Ok(Deprecated::Tombstoned(notice)),
            outcome @ (LogOutcome::Confirmed
            | LogOutcome::Conflict(_)
            | LogOutcome::NoNamespace
            | LogOutcome::Owned
            | LogOutcome::CaseConflict(_)
            | LogOutcome::PackageGone) => Err(unexpected(key, &outcome)),
        }
    }

    /// Deletes a version for good, and then its packages.
    pub async fn take_down(
        &self,
        key: &VersionKey,
        kind: TakedownKind,
        notice: RecordNotice,
        cause: &Cause,
    ) -> Result<TakenDown, RegistryError> {
        let Some(version) = self.store.registry_version(key).await? else {
            return Ok(TakenDown::NotFound);
        };
        let change = self.notice_change(version, RecordChange::Delete(kind, notice))?;
        let (registry, cause) = (self.clone(), cause.clone());
        // A task of its own, so that the packages also go when the client leaves.
        let removal = tokio::spawn(async move { registry.delete(&change, &cause).await });
        let outcome = removal
            .await
            .unwrap_or_else(|error| resume_unwind(error.into_panic()))?;
        match outcome {
            LogOutcome::Logged(id) => Ok(TakenDown::New(id)),
            LogOutcome::Known => Ok(TakenDown::Before(self.notice(key).await?)),
            LogOutcome::Confirmed => Ok(TakenDown::Confirmed(self.notice(key).await?)),
            outcome @ (LogOutcome::Tombstoned(_)
            | LogOutcome::Conflict(_)
            | LogOutcome::NoNamespace
            | LogOutcome::Owned
            | LogOutcome::CaseConflict(_)
            | LogOutcome::PackageGone) => Err(unexpected(key, &outcome)),
        }
    }

    /// Records a deletion and removes the packages.
    async fn delete(&self, change: &NewChange, cause: &Cause) -> Result<LogOutcome, RegistryError> {
        let outcome = self.record(change, cause).await?;
        let key = &change.key;
        if let LogOutcome::Logged(id) = &outcome {
            warn!(version = %key, id = id.get(), by = cause.actor.login, "Took {key} down");
            self.remove_now(key).await;
        }
        if outcome == LogOutcome::Confirmed {
            warn!(version = %key, by = cause.actor.login, "Confirmed the takedown of {key}");
        }
        Ok(outcome)
    }

    /// Removes packages that are due, such as those of a version that was just deleted or refused. If that fails, the
    /// reconciler goes on with what is left.
    async fn remove_now(&self, key: &VersionKey) {
        let (store, blobs) = (self.store.clone(), self.blobs.clone());
        let removal = tokio::spawn(async move { remove_orphans(&store, &blobs).await });
        let removed = removal
            .await
            .unwrap_or_else(|error| resume_unwind(error.into_panic()));
        if let Err(error) = removed {
            warn!(error = describe_error(&error), version = %key, "Could not remove packages that belong to no version");
        }
    }

    /// Checks a deprecation or a deletion.
    fn notice_change(
        &self,
        version: RegistryVersion,
        change: RecordChange,
    ) -> Result<NewChange, RegistryError> {
        // The replacement is the one part that a caller can get wrong.
        let maker = RecordMaker {
            deployment: self.deployment.name.clone(),
            id: LogId::FIRST,
        };
        let time = RecordTime::new(self.store.now());
        let time = time.map_err(|error| RegistryError::Refused(error.to_string()))?;
        UnsignedRecord::new(version.key.clone(), change.clone(), time, maker)
            .map_err(|error| RegistryError::Refused(error.to_string()))?;
        Ok(NewChange {
            key: version.key,
            change,
            base: BaseLocation::Here,
            go_mod: None,
            committed_at: None,
            origin: version.origin.unwrap_or(VersionOrigin::Command),
        })
    }

    /// Records a change. The packages of an added version are announced and stored.
    pub async fn record(
        &self,
        change: &NewChange,
        cause: &Cause,
    ) -> Result<LogOutcome, RegistryError> {
        let _place = self.recording.acquire().await;
        let signer = &self.deployment.signer;
        let outcome = self.store.registry_log(signer, change, cause).await?;
        if matches!(outcome, LogOutcome::Logged(_)) {
            self.news.send();
        }
        Ok(outcome)
    }

    /// Returns the reason of a version that is deprecated or deleted.
    async fn notice(&self, key: &VersionKey) -> Result<VersionNotice, RegistryError> {
        let version = self.store.registry_version(key).await?;
        let notice = version.and_then(|version| version.notice);
        notice.ok_or_else(|| no_notice(key))
    }

    /// Returns a version in any state but absent.
    pub async fn version(
        &self,
        key: &VersionKey,
    ) -> Result<Option<RegistryVersion>, RegistryError> {
        Ok(self.store.registry_version(key).await?)
    }

    /// Returns all versions of a name, also deleted ones, from the highest to the lowest.
    pub async fn versions(
        &self,
        name: &RegistryName,
    ) -> Result<Vec<RegistryVersion>, RegistryError> {
        let mut versions = self.store.registry_versions(name).await?;
        versions.sort_unstable_by(|one, other| other.key.cmp(&one.key));
        Ok(versions)
    }

    /// Lists names by kind and name. With `prefix`: those whose name begins with this text.
    pub async fn names(
        &self,
        prefix: Option<&str>,
        after: Option<&RegistryName>,
        limit: i64,
    ) -> Result<Vec<RegistryName>, RegistryError> {
        Ok(self.store.registry_names(prefix, after, limit).await?)
    }

    /// Returns the `go.mod` file of a version with content.
    pub async fn go_mod(&self, key: &VersionKey) -> Result<Option<Vec<u8>>, RegistryError> {
        Ok(self.store.registry_go_mod(key).await?)
    }

    /// Returns the number of bytes of the `go.mod` file of a version with content.
    pub async fn go_mod_size(&self, key: &VersionKey) -> Result<Option<u64>, RegistryError> {
        Ok(self.store.registry_go_mod_size(key).await?)
    }

    /// Lists versions of Go modules with their states and the times at which they were added here, oldest first.
    pub async fn index(
        &self,
        since: Option<DateTime<Utc>>,
        limit: i64,
    ) -> Result<Vec<(VersionKey, VersionState, DateTime<Utc>)>, RegistryError> {
        Ok(self.store.registry_go_index(since, limit).await?)
    }

    /// Returns the signed head of the log, as a note.
    pub async fn head(&self) -> Result<Arc<str>, RegistryError> {
        let size = self.store.registry_log_size().await?;
        let signed = |head: &Option<SignedHead>| head.clone().filter(|head| head.size == size);
        let known = signed(&self.head.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(head) = known {
            return Ok(head.note);
        }
        let query = tlog::tree_hash(size)?;
        let hashes = self.store.registry_log_hashes(query.indexes()).await?;
        let root = query.compute(&hashes)?;
        let text = TreeHead { size, root }.to_string();
        let note = sign_note(&text, &[&self.deployment.signer]);
        let note: Arc<str> = note
            .map_err(|error| RegistryError::Damaged(error.to_string()))?
            .into();
        let head = SignedHead {
            size,
            note: Arc::clone(&note),
        };
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
        Ok(note)
    }

    /// Returns the size of the newest head that was signed.
    fn signed_size(&self) -> u64 {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        head.as_ref().map_or(0, |head| head.size)
    }

    /// Returns the content of a tile. `None`: the log has no such tile, or it is one of texts of records.
    pub async fn tile(&self, tile: &Tile) -> Result<Option<Vec<u8>>, RegistryError> {
        if tile.height() != TILE_HEIGHT || tile.level() == TileLevel::Data {
            return Ok(None);
        }
        // The log never shrinks, so the size of a head that was signed is enough for most tiles.
        let known = self.signed_size();
        let query = match tile.read(known) {
            Ok(query) => query,
            Err(_) => match tile.read(self.store.registry_log_size().await?) {
                Ok(query) => query,
                Err(_) => return Ok(None),
            },
        };
        let hashes = self.store.registry_log_hashes(query.indexes()).await?;
        Ok(Some(query.compute(&hashes)?))
    }

    /// Returns number and record of an added version and the signed head, as the checksum database of Go answers.
    pub async fn lookup(&self, key: &VersionKey) -> Result<Option<String>, RegistryError> {
        let Some((id, text)) = self.store.registry_added_record(key).await? else {
            return Ok(None);
        };
        let number = u64::try_from(id.get() - 1)
            .map_err(|_| RegistryError::Damaged("an ID is negative".to_owned()))?;
        let record = tlog::format_record(number, &text)?;
        // The head is read after the record, so it covers it.
        Ok(Some(format!("{record}{}", self.head().await?)))
    }

    /// Returns a record with the proof that it is in the log. `None`: the log has no such record.
    pub async fn proven_record(&self, id: LogId) -> Result<Option<ProvenRecord>, RegistryError> {
        let found = self.store.registry_records(id, 1).await?.into_iter().next();
        let Some((_, text)) = found.filter(|(found, _)| *found == id) else {
            return Ok(None);
        };
        // The head is read after the record, so it covers it.
        let head = self.head().await?;
        let size = head.parse::<TreeHead>()?.size;
        let number = u64::try_from(id.get() - 1)
            .map_err(|_| RegistryError::Damaged("an ID is negative".to_owned()))?;
        let query = tlog::prove_record(size, number)?;
        let hashes = self.store.registry_log_hashes(query.indexes()).await?;
        Ok(Some(ProvenRecord {
            leaf: tlog::record_hash(text.as_bytes()),
            proof: query.compute(&hashes)?,
            text,
            head,
        }))
    }

    /// Opens a package. `None`: the store has none with this digest.
    pub async fn package(
        &self,
        digest: &Sha256Digest,
    ) -> Result<Option<PackageReader>, RegistryError> {
        Ok(self.blobs.open_package(digest, None).await?)
    }

    /// Opens a package of a version that is here. `None`: the store has none with this digest.
    pub(super) async fn package_file(
        &self,
        file: &PackageFile,
    ) -> Result<Option<PackageReader>, RegistryError> {
        let package = self.blobs.open_package(&file.digest, Some(file.size));
        Ok(package.await?)
    }

    /// Removes packages that no version refers to and that are due. Returns their number.
    pub async fn remove_orphans(&self) -> Result<u64, RegistryError> {
        remove_orphans(&self.store, &self.blobs).await
    }

    /// Returns the key of signed links to packages, which is the same on every replica.
    pub fn link_key(&self) -> [u8; 32] {
        self.derived_key(b"lockkeeper registry: links to packages")
    }

    /// Returns the key of digests of what is shared with peers.
    pub(super) fn sharing_key(&self) -> [u8; 32] {
        self.derived_key(b"lockkeeper registry: names that are shared")
    }

    /// Derives a key for another purpose from the signing key.
    ///
    /// # Panics
    ///
    /// Never, because HMAC takes keys of any length.
    fn derived_key(&self, purpose: &[u8]) -> [u8; 32] {
        let secret = self.deployment.signer.secret_text();
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
            .expect("a key of HMAC can have any length");
        mac.update(purpose);
        mac.finalize().into_bytes().into()
    }
}

/// Returns true if a version has exactly the packages that an addition has.
fn has_packages_of(version: &RegistryVersion, change: &RecordChange) -> bool {
    match (change, version.known.content()) {
        (RecordChange::Add(content), Some(located)) => content.packages == located.content.packages,
        _ => false,
    }
}

fn unexpected(key: &VersionKey, outcome: &LogOutcome) -> RegistryError {
    RegistryError::Damaged(format!("the change of {key} ended as {outcome:?}"))
}

/// Removes packages that no version refers to and that are due. A package that cannot be removed does not keep the
/// others: its claim makes it due later than they are.
pub(super) async fn remove_orphans(store: &Store, blobs: &Blobs) -> Result<u64, RegistryError> {
    let mut removed = 0;
    let mut failures = 0;
    loop {
        let due = store.registry_packages_due(REMOVED_AT_ONCE).await?;
        let is_last = due.len() < usize::try_from(REMOVED_AT_ONCE).unwrap_or(usize::MAX);
        let mut failed = None;
        for digest in &due {
            let until = store.now() + REMOVAL_TIME;
            if !store.registry_package_claim(digest, until).await? {
                continue;
            }
            match blobs.remove(digest).await {
                Ok(was_there) => {
                    store.registry_package_removed(digest, until).await?;
                    removed += u64::from(was_there);
                }
                // It would be the same for all others, and each of them waits.
                Err(error) if error.is_away() => return Err(error.into()),
                Err(error) => {
                    failures += 1;
                    failed = Some(error);
                    if failures >= MAX_FAILED_REMOVALS {
                        break;
                    }
                }
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        if is_last {
            return Ok(removed);
        }
    }
}
