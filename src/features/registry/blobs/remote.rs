//! Packages in an object store, which servers with one database share.
//!
//! The need: the same as for a directory, although the store is another machine that can be away, slow or wrong.
//!
//! - *Create-only*: a package that is there is not written again, unless its bytes are wrong. A small one is written on the
//!   condition that there is none. Parts of a large one have no such condition in all stores. So the store is asked
//!   first, and two servers that write the same package at once write the same bytes, because its name is their hash.
//! - *Nothing is half done*: a package appears in the store as a whole, after its last byte.
//! - *What leaves is verified*: a package is read into a file of this server, and only served from there once its bytes have
//!   the hash. Any number of requests for it read it once (R7).
//! - *The right store*: an object with an identifier says which database it belongs to. It is read when the server starts,
//!   or before the first package if the store is away then.
//! - *Nobody waits for long*: each wait for the store has an end, and everyone who waits for the same learns the same.
//!
//! | Key | Content |
//! |--|--|
//! | `sha256/ab/cdef…` | packages |
//! | `store-id` | identifier of the store |
//!
//! These are the paths in a directory, so a directory can be copied into a store.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt as _, TryStreamExt as _};
use object_store::path::Path as Key;
use object_store::{
    GetOptions, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    PutPayload,
};
use reqwest::StatusCode;
use tokio::sync::{Mutex as AsyncMutex, OnceCell, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::cache::{CACHED, CacheLimits, PackageCache};
use super::{
    BlobError, BlobWriter, MAX_STORE_ID, PACKAGES, STAGED, STORE_ID, StagedBlob, StoreId, blocking,
    file_error, key, new_writer,
};
use crate::context::PackagePlace;
use crate::errors::describe_error;
use crate::model::Sha256Digest;
use crate::objects::{RemoteObjects, StoreRefusal, describe_failure};
use crate::telemetry::{Metric, Metrics};

/// Number of bytes of a request. S3 wants at least 5 MiB in each part but the last one.
const PART: u64 = 8 << 20;

/// Maximum size of a package. The rules of packages have lower limits.
const MAX_PACKAGE: u64 = 1 << 30;

/// Number of packages that are read at a time, and that wait for that.
const READ_AT_ONCE: usize = 8;
const MAX_WAITING: usize = 256;

/// Number of groups of copies. One copy of each group is verified at a time.
const TURNS: usize = 8;

/// Longest wait of a request for a package. The time limit of requests is longer.
const WAIT: Duration = Duration::from_secs(20);

/// Longest time to read the identifier of the store.
const CHECK_TIME: Duration = Duration::from_secs(5);

/// Longest time for a removal. Publications of the same bytes wait for it.
const REMOVE_TIME: Duration = Duration::from_secs(5);

/// Lowest number of bytes in a second with which a package is read, and the time that each has in addition.
const SLOWEST: u64 = 256 * 1024;
const READ_TIME: Duration = Duration::from_mins(1);

/// Number of times that a package is written if another server removes or writes it at the same moment, and the first
/// pause between them.
const ATTEMPTS: u32 = 3;
const WRITE_PAUSE: Duration = Duration::from_millis(500);

/// Time for which an object with wrong bytes is not read again, and the number of such objects that are known.
const WRONG_TIME: Duration = Duration::from_secs(30);
const MAX_WRONG: usize = 1_000;

/// Failure of the object store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteFault {
    /// The store does not answer.
    #[error("the store of packages cannot be used: {0}")]
    Away(String),
    /// The package has not come from the store yet.
    #[error("the store of packages has not sent the package yet")]
    Slow,
    /// The store refuses a request, and would refuse it again.
    #[error(
        "the store of packages refuses a request: {0}. Check the credentials of the server, its permissions, and the \
         address of the store (docs/registry.md)"
    )]
    Refused(String),
    /// The store has other bytes under the name of a package.
    #[error(
        "the store of packages has wrong bytes for {0}: {1}. Publish the same files again, or restore the object from a \
         backup"
    )]
    Wrong(Sha256Digest, String),
    /// The disk of this server cannot keep the package.
    #[error("cannot keep a package of the store on this server")]
    Disk(#[source] Arc<BlobError>),
}

impl From<object_store::Error> for RemoteFault {
    fn from(error: object_store::Error) -> Self {
        let why = describe_failure(&error);
        let is_refused = matches!(
            error,
            object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. }
                | object_store::Error::NotImplemented { .. }
                | object_store::Error::NotSupported { .. }
        );
        if is_refused || StoreRefusal::of(&error).is_some() {
            Self::Refused(why)
        } else {
            Self::Away(why)
        }
    }
}

impl From<BlobError> for RemoteFault {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Remote(fault) => fault,
            error @ (BlobError::File { .. }
            | BlobError::Store(_)
            | BlobError::NoStore(_)
            | BlobError::OtherStore(..)
            | BlobError::TwoStores(..)
            | BlobError::TooLarge(_)
            | BlobError::LowSpace(_)) => Self::Disk(Arc::new(error)),
        }
    }
}

/// A package that is being read from the store: true once it is on the disk, false if the store has none.
type RunningRead = Shared<BoxFuture<'static, Result<bool, RemoteFault>>>;

#[derive(Debug)]
pub(super) struct RemotePackages {
    store: Arc<dyn ObjectStore>,
    shown: String,
    /// Sentences for a failure of the check, if the server has no credentials.
    advice: Option<String>,
    id: StoreId,
    /// Set once the store has shown this identifier.
    checked: OnceCell<()>,
    /// End and reason of the last check that failed. The holder of the mutex checks.
    failed_check: AsyncMutex<Option<(Instant, RemoteFault)>>,
    staged: Box<Path>,
    cache: Arc<PackageCache>,
    /// Held while a copy is verified for the first time.
    verifying: [Arc<AsyncMutex<()>>; TURNS],
    places: Semaphore,
    running: Mutex<HashMap<Sha256Digest, RunningRead>>,
    /// Objects whose bytes were wrong a moment ago.
    wrong: Mutex<HashMap<Sha256Digest, WrongObject>>,
    metrics: Metrics,
}

/// An object with wrong bytes.
#[derive(Debug)]
struct WrongObject {
    /// Tag of these bytes.
    tag: String,
    why: String,
    seen: Instant,
}

impl RemotePackages {
    /// Opens the store at a place.
    ///
    /// `expected` is the identifier that the database has. Without it, a place without a store becomes one. With it,
    /// nothing is sent yet, and the store is checked before its first package.
    pub async fn open(
        place: &PackagePlace,
        objects: &RemoteObjects,
        expected: Option<&StoreId>,
    ) -> Result<Self, BlobError> {
        let staged = place.dir.join(STAGED).into_boxed_path();
        let (dir, made) = (place.dir.clone(), staged.clone());
        let (store, shown) = (Arc::clone(objects.store()), objects.to_string());
        let moved_to = shown.clone();
        let prepared = blocking(move || {
            // Somebody who forgets the flag would publish and remove packages there.
            if dir.join(STORE_ID).exists() {
                return Err(BlobError::TwoStores(dir.display().to_string(), moved_to));
            }
            let made_dir = std::fs::create_dir_all(&made);
            made_dir.map_err(|source| file_error(&made, source))
        });
        prepared.await?;
        let advice = objects.advice().map(str::to_owned);
        let id = if let Some(id) = expected {
            id.clone()
        } else {
            let made = make_store_id(&*store, &shown).await;
            made.map_err(|error| explained(error, &shown, advice.as_deref()))?
        };
        Ok(Self {
            store,
            shown,
            advice,
            id,
            checked: OnceCell::new(),
            failed_check: AsyncMutex::default(),
            staged,
            cache: Arc::new(PackageCache::new(
                place.dir.join(CACHED),
                CacheLimits::USUAL,
            )),
            verifying: std::array::from_fn(|_| Arc::default()),
            places: Semaphore::new(READ_AT_ONCE),
            running: Mutex::default(),
            wrong: Mutex::default(),
            metrics: place.metrics.clone(),
        })
    }

    /// Checks that this is the store of the database. One that is away is checked before its first package.
    pub async fn check_at_start(&self) -> Result<(), BlobError> {
        match self.ready().await {
            Err(BlobError::Remote(fault)) => {
                warn!(store = self.shown, error = %fault, "The store of packages is away; versions are served without their packages");
                Ok(())
            }
            checked => checked,
        }
    }

    /// Returns the identifier of the store.
    pub fn id(&self) -> &StoreId {
        &self.id
    }

    /// Keeps a package durably under its digest.
    pub async fn keep(&self, package: StagedBlob) -> Result<(), BlobError> {
        self.ready().await?;
        let mut attempts = 1;
        loop {
            match self.write(&package).await {
                Ok(()) => break,
                Err(WriteFault::Removed) if attempts < ATTEMPTS => {
                    sleep(WRITE_PAUSE * attempts).await;
                    attempts += 1;
                }
                Err(WriteFault::Removed) => {
                    let why = "another server writes or removes the same package at this moment";
                    return Err(self.counted(RemoteFault::Away(why.to_owned())).into());
                }
                Err(WriteFault::Failed(fault)) => return Err(self.counted(fault).into()),
            }
        }
        // The store has it, so a full disk of this server is no reason to fail.
        if let Err(error) = self.cached(package).await {
            warn!(
                error = describe_error(&error),
                "Cannot keep a copy of a package on this server"
            );
        }
        Ok(())
    }

    async fn write(&self, package: &StagedBlob) -> Result<(), WriteFault> {
        let StagedBlob { digest, size, .. } = package;
        let key = key(digest);
        let mut is_there = None;
        if *size <= PART {
            let (_, content) = read_part(package.open()?, *size).await?;
            match put(&*self.store, &key, content.into(), PutMode::Create).await {
                Ok(()) => return Ok(()),
                // Some stores also say this about two writers at one moment.
                Err(object_store::Error::AlreadyExists { .. }) => is_there = Some(true),
                Err(error) if has_no_conditions(&error) => {}
                Err(error) => return Err(RemoteFault::from(error).into()),
            }
        }
        let is_there = match is_there {
            Some(is_there) => is_there,
            None => present(self.store.head(&key).await)?.is_some(),
        };
        if is_there {
            match self.read(digest, Some(*size)).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => return Err(WriteFault::Removed),
                Err(RemoteFault::Wrong(_, why)) => {
                    let fault = self.counted(RemoteFault::Wrong(digest.clone(), why));
                    warn!(store = self.shown, error = %fault, "Replaces a package that is damaged in the store");
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        let file = package.open()?;
        let written = if *size > PART {
            self.upload(&key, file, *size).await
        } else {
            let (_, content) = read_part(file, *size).await?;
            let written = put(&*self.store, &key, content.into(), PutMode::Overwrite);
            written.await.map_err(RemoteFault::from)
        };
        let Err(fault) = written else {
            return Ok(());
        };
        // Another server may have written it at this moment, or only the answer was lost.
        match self.read(digest, Some(*size)).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(fault.into()),
        }
    }

    /// Writes a package in parts. It appears with the last one.
    async fn upload(&self, key: &Key, file: File, size: u64) -> Result<(), RemoteFault> {
        let mut upload = self.store.put_multipart(key).await?;
        let sent = send_parts(&mut *upload, file, size).await;
        let fault = match sent {
            Ok(()) => match upload.complete().await {
                Ok(_) => return Ok(()),
                Err(error) => RemoteFault::from(error),
            },
            Err(fault) => fault,
        };
        // Nobody sees parts that stay. A rule of the bucket can remove them.
        if let Err(error) = upload.abort().await {
            warn!(
                store = self.shown,
                error = describe_failure(&error),
                "Parts of a package were left in the store"
            );
        }
        Err(fault)
    }

    /// Returns true if the store has a package.
    pub async fn has(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        self.ready().await?;
        match present(self.store.head(&key(digest)).await) {
            Ok(meta) => Ok(meta.is_some()),
            Err(fault) => Err(self.counted(fault).into()),
        }
    }

    /// Opens a package, whose bytes are verified. `None`: the store has none with this digest. With `size`: one of
    /// another size is wrong, and is not read.
    pub async fn open_file(
        self: &Arc<Self>,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<Option<File>, BlobError> {
        for _ in 0..ATTEMPTS {
            let copy = self.open_copy(digest, size).await?;
            if copy.is_some() {
                return Ok(copy);
            }
            if !self.read_once(digest, size).await? {
                return Ok(None);
            }
            // The copy may have made room for others already.
        }
        Err(RemoteFault::Slow.into())
    }

    /// Opens the copy of a package on this server.
    async fn open_copy(
        &self,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<Option<File>, BlobError> {
        let (cache, of) = (Arc::clone(&self.cache), digest.clone());
        if cache.is_verified(digest) {
            return blocking(move || cache.open(&of, size)).await;
        }
        // Hashing a large copy takes seconds. The others wait, and then find it verified.
        let number = usize::from(digest.as_str().as_bytes()[0]) % TURNS;
        let turn = Arc::clone(&self.verifying[number]).lock_owned().await;
        blocking(move || {
            let copy = cache.open(&of, size);
            // Also kept if the request has ended.
            drop(turn);
            copy
        })
        .await
    }

    /// Opens a package as the store has it, without its copy on this server and without a verification. At most one byte
    /// more than `size` is read.
    pub async fn open_stored(
        &self,
        digest: &Sha256Digest,
        size: u64,
    ) -> Result<Option<File>, BlobError> {
        self.ready().await?;
        let stored = async {
            let Some(meta) = present(self.store.head(&key(digest)).await)? else {
                return Ok(None);
            };
            self.receive(digest, &meta, size.saturating_add(1)).await
        };
        match stored.await {
            // The open file stays readable without its name.
            Ok(staged) => staged.map(|staged| staged.open()).transpose(),
            Err(fault) => Err(self.counted(fault).into()),
        }
    }

    /// Reports a package that a version has and the store does not.
    pub fn report_missing(&self, digest: &Sha256Digest) {
        warn!(store = self.shown, %digest, "The store of packages has lost a package; publish the same files again");
        self.metrics
            .count(Metric::RegistryStoreFailures, &["missing"]);
    }

    /// Removes a package. Returns false if there was none.
    ///
    /// After an error, the store may still remove it some time later.
    pub async fn remove(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        self.remove_copy(digest).await?;
        match timeout(REMOVE_TIME, self.remove_stored(digest)).await {
            Ok(removed) => removed,
            Err(_) => Err(self.counted(too_late()).into()),
        }
    }

    async fn remove_stored(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        self.ready().await?;
        let key = key(digest);
        let failed = |fault| self.counted(fault);
        // S3 does not tell whether there was one.
        let found = present(self.store.head(&key).await).map_err(failed)?;
        if found.is_none() {
            // Nothing is found in a bucket that is gone, either.
            self.check().await?;
            return Ok(false);
        }
        present(self.store.delete(&key).await).map_err(failed)?;
        Ok(true)
    }

    /// Returns the packages with copies on this server.
    pub async fn copies(&self) -> Result<Vec<Sha256Digest>, BlobError> {
        let cache = Arc::clone(&self.cache);
        blocking(move || cache.kept()).await
    }

    /// Removes the copy of a package on this server.
    pub async fn remove_copy(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        let (cache, of) = (Arc::clone(&self.cache), digest.clone());
        blocking(move || cache.remove(&of)).await
    }

    /// Checks that this is the store of the database, unless it was checked before.
    async fn ready(&self) -> Result<(), BlobError> {
        let began = Instant::now();
        if self.checked.initialized() {
            return Ok(());
        }
        let mut failed = self.failed_check.lock().await;
        if self.checked.initialized() {
            return Ok(());
        }
        // One check is enough for everyone who has waited for it.
        if let Some((at, fault)) = &*failed
            && *at >= began
        {
            return Err(fault.clone().into());
        }
        let checked = timeout(CHECK_TIME, self.check()).await;
        let checked = checked.unwrap_or_else(|_| Err(too_late().into()));
        match checked.map_err(|error| explained(error, &self.shown, self.advice.as_deref())) {
            Ok(()) => {
                let _is_first = self.checked.set(());
                Ok(())
            }
            Err(BlobError::Remote(fault)) => {
                let fault = self.counted(fault);
                *failed = Some((Instant::now(), fault.clone()));
                Err(fault.into())
            }
            Err(error) => Err(error),
        }
    }

    async fn check(&self) -> Result<(), BlobError> {
        match read_store_id(&*self.store, &self.shown).await? {
            Some(found) if found == self.id => Ok(()),
            Some(found) => {
                let (shown, expected) = (self.shown.clone(), self.id.clone());
                Err(BlobError::OtherStore(shown, found, expected))
            }
            None => Err(BlobError::NoStore(self.shown.clone())),
        }
    }

    /// Reads a package into a copy, together with everyone who wants it at this moment. Returns false if the store has
    /// none.
    async fn read_once(
        self: &Arc<Self>,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<bool, BlobError> {
        let read = async {
            self.ready().await?;
            let running = self.running_read(digest, size)?;
            Ok::<bool, BlobError>(running.await?)
        };
        match timeout(WAIT, read).await {
            Ok(read) => read,
            Err(_) => Err(self.counted(RemoteFault::Slow).into()),
        }
    }

    /// Returns the task that reads a package. The first request for it begins one.
    fn running_read(
        self: &Arc<Self>,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<RunningRead, RemoteFault> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = running.get(digest) {
            return Ok(read.clone());
        }
        if running.len() >= MAX_WAITING {
            return Err(self.counted(RemoteFault::Slow));
        }
        // A task of its own, so that it goes on if the clients leave.
        let (packages, of) = (Arc::clone(self), digest.clone());
        let task = tokio::spawn(async move { packages.read_waited(&of, size).await });
        let read = async move {
            task.await.unwrap_or_else(|error| {
                Err(RemoteFault::Away(format!("the task has failed: {error}")))
            })
        };
        let read = read.boxed().shared();
        running.insert(digest.clone(), read.clone());
        Ok(read)
    }

    async fn read_waited(
        &self,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<bool, RemoteFault> {
        let _entry = ReadEntry(self, digest);
        // Another read may have ended between the look of the request and the beginning of this one.
        if self.open_copy(digest, size).await?.is_some() {
            return Ok(true);
        }
        let _place = self.places.acquire().await;
        let longest = READ_TIME + Duration::from_secs(size.unwrap_or(MAX_PACKAGE) / SLOWEST);
        let read = timeout(longest, self.read(digest, size)).await;
        let read = match read.unwrap_or(Err(RemoteFault::Slow)) {
            Ok(Some(package)) => self.cached(package).await.map(|()| true),
            Ok(None) => Ok(false),
            Err(fault) => Err(fault.into()),
        };
        read.map_err(|error| self.counted(error.into()))
    }

    /// Keeps a copy of a package with this digest on this server.
    async fn cached(&self, package: StagedBlob) -> Result<(), BlobError> {
        let cache = Arc::clone(&self.cache);
        blocking(move || cache.add(package)).await
    }

    /// Reads a package and verifies its bytes.
    async fn read(
        &self,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<Option<StagedBlob>, RemoteFault> {
        let Some(meta) = present(self.store.head(&key(digest)).await)? else {
            return Ok(None);
        };
        let sizes: RangeInclusive<u64> = size.map_or(1..=MAX_PACKAGE, |size| size..=size);
        let known = if sizes.contains(&meta.size) {
            self.known_wrong(digest, &meta)
        } else {
            Some(format!("it has {} bytes", meta.size))
        };
        if let Some(why) = known {
            return Err(RemoteFault::Wrong(digest.clone(), why));
        }
        let Some(package) = self.receive(digest, &meta, meta.size).await? else {
            return Ok(None);
        };
        if package.digest == *digest {
            return Ok(Some(package));
        }
        let why = format!("{} bytes with the SHA-256 {}", package.size, package.digest);
        self.remember_wrong(digest, meta, why.clone());
        Err(RemoteFault::Wrong(digest.clone(), why))
    }

    /// Returns why an object is wrong, if it was read a moment ago.
    fn known_wrong(&self, digest: &Sha256Digest, meta: &ObjectMeta) -> Option<String> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let known = wrong.get(digest)?;
        let is_same = meta.e_tag.as_ref() == Some(&known.tag);
        (is_same && known.seen.elapsed() < WRONG_TIME).then(|| known.why.clone())
    }

    fn remember_wrong(&self, digest: &Sha256Digest, meta: ObjectMeta, why: String) {
        let Some(tag) = meta.e_tag else {
            return;
        };
        let seen = Instant::now();
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.retain(|_, known| known.seen.elapsed() < WRONG_TIME);
        if wrong.len() < MAX_WRONG {
            wrong.insert(digest.clone(), WrongObject { tag, why, seen });
        }
    }

    /// Reads what the store has under the name of a package, at most `limit` bytes, in parts.
    async fn receive(
        &self,
        digest: &Sha256Digest,
        meta: &ObjectMeta,
        limit: u64,
    ) -> Result<Option<StagedBlob>, RemoteFault> {
        let key = key(digest);
        let wrong = |why: &str| RemoteFault::Wrong(digest.clone(), why.to_owned());
        // Stores refuse to send a range of an empty object.
        if meta.size == 0 {
            return Err(wrong("it is empty"));
        }
        let size = meta.size.min(limit);
        let mut file: BlobWriter = new_writer(&self.staged, size).await?;
        while file.size() < size {
            let start = file.size();
            let end = start.saturating_add(PART).min(size);
            let options = GetOptions {
                range: Some((start..end).into()),
                ..GetOptions::default()
            };
            let Some(got) = present(self.store.get_opts(&key, options).await)? else {
                return Ok(None);
            };
            if got.meta.size != meta.size {
                let why = "a package is replaced while it is read";
                return Err(RemoteFault::Away(why.to_owned()));
            }
            let expected = got.range.end - got.range.start;
            let mut pieces = got.into_stream();
            let mut received = 0;
            while let Some(piece) = pieces.try_next().await? {
                received += piece.len() as u64;
                if received > expected {
                    return Err(wrong("more bytes than it says"));
                }
                file.write(&piece).await?;
            }
            if received != expected || received == 0 {
                return Err(wrong("it is cut off"));
            }
        }
        Ok(Some(file.finish().await?))
    }

    fn counted(&self, fault: RemoteFault) -> RemoteFault {
        let kind = match &fault {
            RemoteFault::Away(_) => "away",
            RemoteFault::Slow => "slow",
            RemoteFault::Refused(_) => "refused",
            RemoteFault::Wrong(..) => "wrong",
            RemoteFault::Disk(_) => "disk",
        };
        self.metrics.count(Metric::RegistryStoreFailures, &[kind]);
        fault
    }
}

/// Entry of a read that runs, also if its task fails.
struct ReadEntry<'a>(&'a RemotePackages, &'a Sha256Digest);

impl Drop for ReadEntry<'_> {
    fn drop(&mut self) {
        let Self(packages, digest) = self;
        let mut running = packages
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        running.remove(*digest);
    }
}

/// Reason why a package was not written.
enum WriteFault {
    /// The store had it, and then it had not.
    Removed,
    Failed(RemoteFault),
}

impl From<RemoteFault> for WriteFault {
    fn from(fault: RemoteFault) -> Self {
        Self::Failed(fault)
    }
}

impl From<BlobError> for WriteFault {
    fn from(error: BlobError) -> Self {
        Self::Failed(error.into())
    }
}

/// Names the store in the failure of its first request, and the credentials that the server may lack.
fn explained(error: BlobError, shown: &str, advice: Option<&str>) -> BlobError {
    let explain = |why: String| {
        let why = why.trim_end_matches([' ', ':', '.']);
        let advice = advice.map(|advice| format!(". {advice}"));
        format!("`{shown}`: {why}{}", advice.unwrap_or_default())
    };
    match error {
        BlobError::Remote(RemoteFault::Away(why)) => RemoteFault::Away(explain(why)).into(),
        BlobError::Remote(RemoteFault::Refused(why)) => RemoteFault::Refused(explain(why)).into(),
        error @ (BlobError::Remote(
            RemoteFault::Slow | RemoteFault::Wrong(..) | RemoteFault::Disk(_),
        )
        | BlobError::File { .. }
        | BlobError::Store(_)
        | BlobError::NoStore(_)
        | BlobError::OtherStore(..)
        | BlobError::TwoStores(..)
        | BlobError::TooLarge(_)
        | BlobError::LowSpace(_)) => error,
    }
}

fn too_late() -> RemoteFault {
    RemoteFault::Away("it does not answer in time".to_owned())
}

/// Returns true if the store does not know requests that depend on what is there.
fn has_no_conditions(error: &object_store::Error) -> bool {
    let refusal = StoreRefusal::of(error);
    refusal.is_some_and(|refusal| refusal.status == StatusCode::NOT_IMPLEMENTED)
        || matches!(
            error,
            object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }
        )
}

/// Returns `None` instead of the error for an object that is not there.
fn present<T>(result: object_store::Result<T>) -> Result<Option<T>, RemoteFault> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn put(
    store: &dyn ObjectStore,
    key: &Key,
    content: PutPayload,
    mode: PutMode,
) -> object_store::Result<()> {
    let options = PutOptions {
        mode,
        ..PutOptions::default()
    };
    store.put_opts(key, content, options).await.map(drop)
}

async fn send_parts(
    upload: &mut dyn MultipartUpload,
    mut file: File,
    size: u64,
) -> Result<(), RemoteFault> {
    let mut left = size;
    while left > 0 {
        let part = left.min(PART);
        let (rest, content) = read_part(file, part).await?;
        file = rest;
        upload.put_part(content.into()).await?;
        left -= part;
    }
    Ok(())
}

/// Reads the next bytes of a file, and returns it.
async fn read_part(file: File, size: u64) -> Result<(File, Bytes), BlobError> {
    blocking(move || {
        let mut file = file;
        let failed = |source| file_error(Path::new(STAGED), source);
        let size = usize::try_from(size).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let mut content = vec![0; size];
        file.read_exact(&mut content).map_err(failed)?;
        Ok((file, Bytes::from(content)))
    })
    .await
}

/// Reads the identifier of the store. `None`: there is none.
async fn read_store_id(store: &dyn ObjectStore, shown: &str) -> Result<Option<StoreId>, BlobError> {
    let Some(got) = present(store.get(&Key::from(STORE_ID)).await)? else {
        return Ok(None);
    };
    let damaged = || BlobError::NoStore(shown.to_owned());
    let mut pieces = got.into_stream();
    let mut text = Vec::new();
    while let Some(piece) = pieces.try_next().await.map_err(RemoteFault::from)? {
        text.extend_from_slice(&piece);
        if text.len() as u64 > MAX_STORE_ID {
            return Err(damaged());
        }
    }
    let text = String::from_utf8(text).map_err(|_| damaged())?;
    let id = text.trim_end().parse().map_err(|_| damaged())?;
    Ok(Some(id))
}

/// Makes the store if there is none, and returns its identifier.
async fn make_store_id(store: &dyn ObjectStore, shown: &str) -> Result<StoreId, BlobError> {
    if let Some(id) = read_store_id(store, shown).await? {
        return Ok(id);
    }
    // The identifier is older than any package.
    let mut packages = store.list(Some(&Key::from(PACKAGES)));
    let package = packages.try_next().await.map_err(RemoteFault::from)?;
    if package.is_some() {
        return Err(BlobError::NoStore(shown.to_owned()));
    }
    let id = StoreId::random();
    let key = Key::from(STORE_ID);
    let content = PutPayload::from(format!("{id}\n"));
    match put(store, &key, content.clone(), PutMode::Create).await {
        Ok(()) | Err(object_store::Error::AlreadyExists { .. }) => {}
        Err(error) if has_no_conditions(&error) => {
            let written = put(store, &key, content, PutMode::Overwrite);
            written.await.map_err(RemoteFault::from)?;
        }
        Err(error) => return Err(RemoteFault::from(error).into()),
    }
    // Another server may make it at this moment. Then both have what is there now.
    let id = read_store_id(store, shown).await?;
    id.ok_or_else(|| BlobError::NoStore(shown.to_owned()))
}
