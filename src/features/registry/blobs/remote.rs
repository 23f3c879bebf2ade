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
//! - *The right store*: an object with an identifier says which database it belongs to. If the store is away when
//!   the server starts, the identifier is read before the first package.
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
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt as _, TryStreamExt as _};
use object_store::path::Path as Key;
use object_store::{
    GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use tracing::warn;

use super::cache::{CACHED, CacheLimits, PackageCache};
use super::{
    BlobError, BlobWriter, MAX_STORE_ID, PACKAGES, STAGED, STORE_ID, StagedBlob, StoreId, blocking,
    file_error, key, new_writer,
};
use crate::context::PackagePlace;
use crate::errors::describe_error;
use crate::model::Sha256Digest;
use crate::objects::RemoteObjects;
use crate::telemetry::{Metric, Metrics};

/// Number of bytes of a request. S3 wants at least 5 MiB in each part but the last one.
const PART: u64 = 8 << 20;

/// Maximum size of a package. The rules of packages have lower limits.
const MAX_PACKAGE: u64 = 1 << 30;

/// Number of packages that are read at a time, and that wait for that.
const READ_AT_ONCE: usize = 8;
const MAX_WAITING: usize = 256;

/// Longest wait of a request for a package. The time limit of requests is longer.
const WAIT: Duration = Duration::from_secs(20);

/// Longest time for a removal, which holds a row of the database.
const REMOVE_TIME: Duration = Duration::from_secs(5);

/// Number of times that a package is written if another server removes or writes it at the same moment.
const ATTEMPTS: usize = 3;

/// Failure of the object store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteFault {
    /// The store does not answer, or refuses requests.
    #[error("the store of packages cannot be used: {0}")]
    Away(String),
    /// The package has not come from the store yet.
    #[error("the store of packages has not sent the package yet")]
    Slow,
    /// The store has other bytes under the name of a package.
    #[error(
        "the store of packages has wrong bytes for {0}: {1}. Publish the same files again, or restore the object from a \
         backup"
    )]
    Wrong(Sha256Digest, String),
    /// The disk of this server cannot keep the package.
    #[error("cannot keep a package of the store on this server: {0}")]
    Disk(String),
}

impl From<object_store::Error> for RemoteFault {
    fn from(error: object_store::Error) -> Self {
        Self::Away(describe_error(&error))
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
            | BlobError::TooLarge(_)) => Self::Disk(describe_error(&error)),
        }
    }
}

/// A package that is being read from the store: true once it is on the disk, false if the store has none.
type RunningRead = Shared<BoxFuture<'static, Result<bool, RemoteFault>>>;

#[derive(Debug)]
pub(super) struct RemotePackages {
    store: Arc<dyn ObjectStore>,
    shown: String,
    id: StoreId,
    /// Set once the store has shown this identifier.
    checked: OnceCell<()>,
    staged: Box<Path>,
    cache: Arc<PackageCache>,
    places: Semaphore,
    running: Mutex<HashMap<Sha256Digest, RunningRead>>,
    metrics: Metrics,
}

impl RemotePackages {
    /// Opens the store at a place.
    ///
    /// `expected` is the identifier that the database has. Without it, a place without a store becomes one. With it, a
    /// store that is away is opened as well, and checked before its first package.
    pub async fn open(
        place: &PackagePlace,
        objects: &RemoteObjects,
        expected: Option<&StoreId>,
    ) -> Result<Self, BlobError> {
        let staged = place.dir.join(STAGED).into_boxed_path();
        let made = staged.clone();
        let made = blocking(move || {
            let made_dir = std::fs::create_dir_all(&made);
            made_dir.map_err(|source| file_error(&made, source))
        });
        made.await?;
        let (store, shown) = (Arc::clone(objects.store()), objects.to_string());
        let id = match expected {
            Some(id) => id.clone(),
            None => make_store_id(&*store, &shown).await?,
        };
        let packages = Self {
            store,
            shown,
            id,
            checked: OnceCell::new(),
            staged,
            cache: Arc::new(PackageCache::new(
                place.dir.join(CACHED),
                CacheLimits::USUAL,
            )),
            places: Semaphore::new(READ_AT_ONCE),
            running: Mutex::default(),
            metrics: place.metrics.clone(),
        };
        match packages.ready().await {
            Err(BlobError::Remote(fault)) => {
                warn!(store = packages.shown, error = %fault, "The store of packages is away; versions are served without their packages");
            }
            checked => checked?,
        }
        Ok(packages)
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
                Err(WriteFault::Removed) if attempts < ATTEMPTS => attempts += 1,
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
        let is_there = if *size > PART {
            present(self.store.head(&key).await)?.is_some()
        } else {
            let (_, content) = read_part(package.open()?, *size).await?;
            match put(&*self.store, &key, content.into(), PutMode::Create).await {
                Ok(()) => return Ok(()),
                // Some stores also say this about two writers at one moment.
                Err(object_store::Error::AlreadyExists { .. }) => true,
                Err(error) => return Err(RemoteFault::from(error).into()),
            }
        };
        if is_there {
            match self.read(digest).await {
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
        if *size > PART {
            self.upload(&key, file, *size).await?;
        } else {
            let (_, content) = read_part(file, *size).await?;
            let written = put(&*self.store, &key, content.into(), PutMode::Overwrite);
            written.await.map_err(RemoteFault::from)?;
        }
        Ok(())
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
                error = describe_error(&error),
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

    /// Opens a package, whose bytes are verified. `None`: the store has none with this digest.
    pub async fn open_file(
        self: &Arc<Self>,
        digest: &Sha256Digest,
    ) -> Result<Option<File>, BlobError> {
        for _ in 0..ATTEMPTS {
            let (cache, of) = (Arc::clone(&self.cache), digest.clone());
            let copy = blocking(move || cache.open(&of)).await?;
            if copy.is_some() {
                return Ok(copy);
            }
            if !self.read_once(digest).await? {
                return Ok(None);
            }
            // The copy may have made room for others already.
        }
        Err(RemoteFault::Slow.into())
    }

    /// Opens a package as the store has it, without its copy on this server and without a verification. At most one byte
    /// more than `size` is read.
    pub async fn open_stored(
        &self,
        digest: &Sha256Digest,
        size: u64,
    ) -> Result<Option<File>, BlobError> {
        self.ready().await?;
        let staged = self.receive(digest, size.saturating_add(1)).await;
        match staged {
            // The open file stays readable without its name.
            Ok(staged) => staged.map(|staged| staged.open()).transpose(),
            Err(fault) => Err(self.counted(fault).into()),
        }
    }

    /// Removes a package. Returns false if there was none.
    pub async fn remove(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        self.remove_copy(digest).await?;
        self.ready().await?;
        let key = key(digest);
        let removal = async {
            // S3 does not tell whether there was one.
            if present(self.store.head(&key).await)?.is_none() {
                return Ok(false);
            }
            present(self.store.delete(&key).await)?;
            Ok::<bool, RemoteFault>(true)
        };
        let removed = timeout(REMOVE_TIME, removal).await.unwrap_or_else(|_| {
            let why = "it does not answer in time";
            Err(RemoteFault::Away(why.to_owned()))
        });
        removed.map_err(|fault| self.counted(fault).into())
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
        match self.checked.get_or_try_init(|| self.check()).await {
            Ok(_) => Ok(()),
            Err(BlobError::Remote(fault)) => Err(self.counted(fault).into()),
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
    async fn read_once(self: &Arc<Self>, digest: &Sha256Digest) -> Result<bool, BlobError> {
        self.ready().await?;
        let running = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(read) = running.get(digest) {
                read.clone()
            } else if running.len() >= MAX_WAITING {
                return Err(self.counted(RemoteFault::Slow).into());
            } else {
                // A task of its own, so that it goes on if the clients leave.
                let (packages, of) = (Arc::clone(self), digest.clone());
                let task = tokio::spawn(async move { packages.read_waited(&of).await });
                let read = async move {
                    task.await.unwrap_or_else(|error| {
                        Err(RemoteFault::Disk(format!("the task has failed: {error}")))
                    })
                };
                let read = read.boxed().shared();
                running.insert(digest.clone(), read.clone());
                read
            }
        };
        match timeout(WAIT, running).await {
            Ok(read) => Ok(read?),
            Err(_) => Err(self.counted(RemoteFault::Slow).into()),
        }
    }

    async fn read_waited(&self, digest: &Sha256Digest) -> Result<bool, RemoteFault> {
        let _place = self.places.acquire().await;
        let read = match self.read(digest).await {
            Ok(Some(package)) => match self.cached(package).await {
                Ok(()) => Ok(true),
                Err(error) => Err(error.into()),
            },
            Ok(None) => Ok(false),
            Err(fault) => Err(fault),
        };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(digest);
        drop(running);
        read.map_err(|fault| self.counted(fault))
    }

    /// Keeps a copy of a package with this digest on this server.
    async fn cached(&self, package: StagedBlob) -> Result<(), BlobError> {
        let cache = Arc::clone(&self.cache);
        blocking(move || cache.add(package)).await
    }

    /// Reads a package and verifies its bytes.
    async fn read(&self, digest: &Sha256Digest) -> Result<Option<StagedBlob>, RemoteFault> {
        let Some(package) = self.receive(digest, MAX_PACKAGE).await? else {
            return Ok(None);
        };
        if package.digest == *digest {
            return Ok(Some(package));
        }
        let why = format!("{} bytes with the SHA-256 {}", package.size, package.digest);
        Err(RemoteFault::Wrong(digest.clone(), why))
    }

    /// Reads what the store has under the name of a package, at most `limit` bytes, in parts.
    async fn receive(
        &self,
        digest: &Sha256Digest,
        limit: u64,
    ) -> Result<Option<StagedBlob>, RemoteFault> {
        let key = key(digest);
        let wrong = |why: &str| RemoteFault::Wrong(digest.clone(), why.to_owned());
        let mut file: BlobWriter = new_writer(&self.staged, limit).await?;
        let mut total = None;
        loop {
            let start = file.size();
            let end = start.saturating_add(PART).min(limit);
            let options = GetOptions {
                range: Some((start..end).into()),
                ..GetOptions::default()
            };
            let Some(got) = present(self.store.get_opts(&key, options).await)? else {
                return Ok(None);
            };
            let size = *total.get_or_insert(got.meta.size);
            if got.meta.size != size {
                return Err(wrong("its size changes"));
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
            if file.size() >= size.min(limit) {
                break;
            }
        }
        Ok(Some(file.finish().await?))
    }

    fn counted(&self, fault: RemoteFault) -> RemoteFault {
        let kind = match &fault {
            RemoteFault::Away(_) => "away",
            RemoteFault::Slow => "slow",
            RemoteFault::Wrong(..) => "wrong",
            RemoteFault::Disk(_) => "disk",
        };
        self.metrics.count(Metric::RegistryStoreFailures, &[kind]);
        fault
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
    let content = PutPayload::from(format!("{id}\n"));
    match put(store, &Key::from(STORE_ID), content, PutMode::Create).await {
        Ok(()) => Ok(id),
        // Another server makes it at this moment. Then both have the same one.
        Err(object_store::Error::AlreadyExists { .. }) => {
            let id = read_store_id(store, shown).await?;
            id.ok_or_else(|| BlobError::NoStore(shown.to_owned()))
        }
        Err(error) => Err(RemoteFault::from(error).into()),
    }
}
