//! Packages by the SHA-256 of their bytes, in a directory or in an object store. Servers with one database share it.
//!
//! This file has the directory, and what both have in common. `remote.rs` has object stores, `cache.rs` the copies of their
//! packages on the disk of a server, and `space.rs` the space that packages leave free.
//!
//! The need: a package is there once its version is in the log, with exactly the recorded bytes (R1, R4), also after
//! a crash, and until its version is taken down.
//!
//! - *Verified on the way in*: bytes are hashed while they arrive in a file that nothing refers to ([`BlobWriter`]), and
//!   that file gets its name from the hash. So the same name means the same bytes, and reading verifies them again only
//!   for the memory, where they stay; `lockkeeper registry verify --packages` verifies all.
//! - *Durable before it is recorded*: the bytes and the directory are on the disk when [`Blobs::keep`] returns.
//! - *The database knows what is there*: the directory is never listed to find a package. The same bytes can belong to
//!   two versions, so the database also decides when nothing refers to a package any more and [`Blobs::remove`] may be
//!   called.
//! - *One store*: a file identifies the directory, and the database has the same identifier. A server whose directory is
//!   another one, or whose disk is not mounted, notices that when it starts.
//!
//! | Path | Content |
//! |--|--|
//! | `sha256/ab/cdef…` | packages |
//! | `staged/…` | packages that arrive; they are removed when their writer gives up, or after an hour |
//! | `store-id` | identifier of the store |

mod cache;
mod remote;
mod space;

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{GetResultPayload, ObjectStoreExt as _};
use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempPath};
use tokio::io::AsyncWriteExt as _;

pub use self::remote::RemoteFault;
use self::remote::RemotePackages;
pub use self::space::LowSpace;
use crate::context::PackagePlace;
use crate::model::{Sha256Digest, text_type};

/// Directory of the packages.
const PACKAGES: &str = "sha256";
/// Directory of packages that arrive.
const STAGED: &str = "staged";
/// File that names the store.
const STORE_ID: &str = "store-id";
/// Maximum size of that file in bytes.
const MAX_STORE_ID: u64 = 1024;
/// Number of bytes that are read from a package at once.
const PIECE: usize = 256 * 1024;
/// Number of pieces of a package that are read or wait to be sent. With two, the next one is read while one is sent.
const PIECES_AT_ONCE: usize = 2;

/// Failure of the store of packages.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// A file or directory cannot be read or written.
    #[error("cannot use `{path}` in the store of packages")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The store cannot read or write a package.
    #[error("cannot read or write the store of packages")]
    Store(#[from] object_store::Error),
    /// The place is none of ours.
    #[error(
        "`{0}` is not a store of packages: its file `store-id` is damaged or missing. Mount the disk of the packages, set \
         --registry-store as the first server has it, or restore the store from a backup"
    )]
    NoStore(String),
    /// The place is the store of another database.
    #[error(
        "`{0}` is not the store of packages of this database: its identifier is {1}, and the database has {2}. Use the \
         store that the first server used: mount its directory, or set --registry-store. Several replicas need a shared one"
    )]
    OtherStore(String, StoreId, StoreId),
    /// The packages were copied into an object store, and the directory is still a store of packages.
    #[error(
        "`{0}` is still a store of packages, and so is `{1}`. Only one of them can be the store of this database. If \
         the packages were moved to the second one, rename the file `store-id` of the first one to `store-id.moved`. If they \
         were not, start without --registry-store"
    )]
    TwoStores(String, String),
    /// The object store failed.
    #[error(transparent)]
    Remote(#[from] RemoteFault),
    /// The package has more bytes than allowed.
    #[error("the package has more than {0} bytes")]
    TooLarge(u64),
    /// The disk has too little free space for packages.
    #[error(transparent)]
    LowSpace(#[from] LowSpace),
}

impl BlobError {
    /// Returns true if the store does not answer at this moment. Other requests would wait as well.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Remote(RemoteFault::Away(_) | RemoteFault::Slow))
    }

    /// Returns true if the store does not answer or refuses the request, so that the same request can work later.
    pub fn is_unusable(&self) -> bool {
        self.is_away() || matches!(self, Self::Remote(RemoteFault::Refused(_)))
    }

    /// Returns true if there is no space left for a package.
    pub fn is_full(&self) -> bool {
        if matches!(self, Self::LowSpace(_)) {
            return true;
        }
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if matches!(
                kind,
                Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            ) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Identifier of a store, made once at random. The database has it as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreId(String);

impl StoreId {
    /// Returns the identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn random() -> Self {
        Self(hex::encode(rand::random::<[u8; 16]>()))
    }
}

impl FromStr for StoreId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 32 && text.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err("an identifier of a store is 32 hexadecimal digits")
        }
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_type!(StoreId);

/// Packages by the SHA-256 of their bytes. Clones share the store.
#[derive(Clone, Debug)]
pub struct Blobs {
    kept: KeptPackages,
    /// Directory of the packages, or of those that arrive and of copies.
    dir: Arc<Path>,
    id: StoreId,
}

/// The packages of a store.
#[derive(Clone, Debug)]
enum KeptPackages {
    /// Packages in the directory.
    Directory(Arc<LocalFileSystem>),
    /// Packages in an object store.
    Remote(Arc<RemotePackages>),
}

impl Blobs {
    /// Opens the store at a place, which is a directory or an object store.
    ///
    /// `expected` is the identifier that the database has. Then nothing is created, because a directory without this store
    /// is one whose disk is not mounted. Without it, a place that is no store yet becomes one with a random identifier. An
    /// object store with an expected identifier is not requested before it is used ([`Blobs::check_at_start`]).
    pub async fn open(
        place: impl Into<PackagePlace>,
        expected: Option<&StoreId>,
    ) -> Result<Self, BlobError> {
        let place = place.into();
        let Some(objects) = &place.remote else {
            return Self::open_directory(&place.dir, expected).await;
        };
        let remote = RemotePackages::open(&place, objects, expected).await?;
        Ok(Self {
            id: remote.id().clone(),
            kept: KeptPackages::Remote(Arc::new(remote)),
            dir: place.dir.as_path().into(),
        })
    }

    async fn open_directory(root: &Path, expected: Option<&StoreId>) -> Result<Self, BlobError> {
        let (dir, expected) = (root.to_owned(), expected.cloned());
        let id = blocking(move || match expected {
            Some(expected) => check_directory(&dir, expected),
            None => create_directory(&dir),
        });
        let id = id.await?;
        let files = LocalFileSystem::new_with_prefix(root)?.with_fsync(true);
        Ok(Self {
            kept: KeptPackages::Directory(Arc::new(files)),
            dir: root.into(),
            id,
        })
    }

    /// Checks that an object store is the one of the database. One that does not answer is checked before it is used.
    pub async fn check_at_start(&self) -> Result<(), BlobError> {
        match &self.kept {
            KeptPackages::Directory(_) => Ok(()),
            KeptPackages::Remote(remote) => remote.check_at_start().await,
        }
    }

    /// Returns the identifier of the store.
    pub fn store_id(&self) -> &StoreId {
        &self.id
    }

    /// Checks that the disk has space for packages that arrive, with an object store as well.
    pub async fn check_space(&self) -> Result<(), LowSpace> {
        let staged = self.staging_dir();
        blocking(move || space::check(&staged)).await
    }

    /// Begins a package of at most `limit` bytes. It is refused, also in the middle, when it would take the space that packages
    /// leave free.
    pub async fn stage(&self, limit: u64) -> Result<BlobWriter, BlobError> {
        self.check_space().await?;
        let writer = new_writer(&self.staging_dir(), limit).await?;
        Ok(BlobWriter {
            next_look: Some(space::LOOK_EVERY),
            ..writer
        })
    }

    /// Returns the directory of packages that are written by [`StagedBlob::write_in`].
    pub fn staging_dir(&self) -> PathBuf {
        self.dir.join(STAGED)
    }

    /// Keeps a package durably under its digest.
    ///
    /// One that is there already is replaced by the same bytes, or compared with them. That mends a package that is damaged.
    pub async fn keep(&self, staged: StagedBlob) -> Result<(), BlobError> {
        match &self.kept {
            KeptPackages::Directory(files) => {
                let name = staged.path.file_name().map(|name| name.to_string_lossy());
                let from = Key::from_iter([STAGED, name.as_deref().unwrap_or_default()]);
                // A renamed file is in one place at any moment, so a crash leaves no second one.
                Ok(files.rename(&from, &key(&staged.digest)).await?)
            }
            KeptPackages::Remote(remote) => remote.keep(staged).await,
        }
    }

    /// Returns true if the store has a package.
    pub async fn has(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        match &self.kept {
            KeptPackages::Directory(files) => Ok(found(files.head(&key(digest)).await)?.is_some()),
            KeptPackages::Remote(remote) => remote.has(digest).await,
        }
    }

    /// Opens a kept package. `None`: the store has none with this digest. With `size`: one of another size in an object
    /// store is not read.
    pub async fn open_package(
        &self,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<Option<PackageReader>, BlobError> {
        let Some(file) = self.open_file(digest, size).await? else {
            return Ok(None);
        };
        let path: Arc<Path> = Path::new(key(digest).as_ref()).into();
        let meta = file
            .metadata()
            .map_err(|source| file_error(&path, source))?;
        Ok(Some(PackageReader {
            size: meta.len(),
            file: Arc::new(file),
            path,
        }))
    }

    /// Opens a kept package as a local file, for readers that seek. With `size` like [`Self::open_package`].
    pub async fn open_file(
        &self,
        digest: &Sha256Digest,
        size: Option<u64>,
    ) -> Result<Option<File>, BlobError> {
        match &self.kept {
            KeptPackages::Directory(files) => self.open_in_directory(files, digest).await,
            KeptPackages::Remote(remote) => remote.open_file(digest, size).await,
        }
    }

    /// Opens a kept package as the store has it, which may be damaged, for readers that verify it. At most one byte more
    /// than `size` is read from an object store.
    pub async fn open_stored(
        &self,
        digest: &Sha256Digest,
        size: u64,
    ) -> Result<Option<File>, BlobError> {
        match &self.kept {
            KeptPackages::Directory(files) => self.open_in_directory(files, digest).await,
            KeptPackages::Remote(remote) => remote.open_stored(digest, size).await,
        }
    }

    /// Reports a package that a version here has and the store does not.
    pub fn report_missing(&self, digest: &Sha256Digest) {
        if let KeptPackages::Remote(remote) = &self.kept {
            remote.report_missing(digest);
        }
    }

    async fn open_in_directory(
        &self,
        files: &LocalFileSystem,
        digest: &Sha256Digest,
    ) -> Result<Option<File>, BlobError> {
        let got = found(files.get(&key(digest)).await)?;
        let got = got.map(|got| match got.payload {
            GetResultPayload::File(file, _) => Ok(file),
            GetResultPayload::Stream(_) => {
                let path = self.dir.join(key(digest).as_ref());
                Err(file_error(&path, ErrorKind::Unsupported.into()))
            }
        });
        got.transpose()
    }

    /// Removes a kept package durably. Returns false if there was none.
    pub async fn remove(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        let files = match &self.kept {
            KeptPackages::Directory(files) => files,
            KeptPackages::Remote(remote) => return remote.remove(digest).await,
        };
        let key = key(digest);
        let removed = found(files.delete(&key).await)?;
        let path = self.dir.join(key.as_ref());
        // After a power cut, the file would be there again, and nothing would remove it.
        blocking(move || sync_directory_of(&path)).await?;
        Ok(removed.is_some())
    }

    /// Returns the packages of an object store with copies on this server.
    pub async fn copies(&self) -> Result<Vec<Sha256Digest>, BlobError> {
        match &self.kept {
            KeptPackages::Directory(_) => Ok(Vec::new()),
            KeptPackages::Remote(remote) => remote.copies().await,
        }
    }

    /// Removes the copy of a package on this server. Returns false if there was none.
    pub async fn remove_copy(&self, digest: &Sha256Digest) -> Result<bool, BlobError> {
        match &self.kept {
            KeptPackages::Directory(_) => Ok(false),
            KeptPackages::Remote(remote) => remote.remove_copy(digest).await,
        }
    }

    /// Removes what writers that crashed before this time left behind. Returns the number of files.
    pub async fn sweep_staged(&self, before: DateTime<Utc>) -> Result<u64, BlobError> {
        let dir = self.dir.join(STAGED);
        blocking(move || sweep(&dir, before)).await
    }
}

/// A package that arrives, in a file that nothing refers to. Dropping it removes the bytes.
#[derive(Debug)]
pub struct BlobWriter {
    file: tokio::fs::File,
    path: TempPath,
    hash: Sha256,
    size: u64,
    limit: u64,
    /// Size at which the free space is looked at again. `None`: the package is a copy, which takes the place of others.
    next_look: Option<u64>,
}

impl BlobWriter {
    /// Returns the number of bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds bytes at the end.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        self.size = self.size.saturating_add(bytes.len() as u64);
        if self.size > self.limit {
            return Err(BlobError::TooLarge(self.limit));
        }
        if self.next_look.is_some_and(|at| self.size >= at) {
            let path = self.path.to_path_buf();
            blocking(move || space::check(&path)).await?;
            self.next_look = Some(self.size.saturating_add(space::LOOK_EVERY));
        }
        self.hash.update(bytes);
        let written = self.file.write_all(bytes).await;
        written.map_err(|source| file_error(&self.path, source))
    }

    /// Completes the package and makes its bytes durable.
    pub async fn finish(mut self) -> Result<StagedBlob, BlobError> {
        let failed = |source| file_error(&self.path, source);
        self.file.flush().await.map_err(failed)?;
        self.file.sync_all().await.map_err(failed)?;
        Ok(StagedBlob {
            digest: digest(self.hash),
            size: self.size,
            path: self.path,
        })
    }
}

/// A complete package that is not kept yet. Dropping it removes the bytes.
#[derive(Debug)]
pub struct StagedBlob {
    /// SHA-256 of the bytes.
    pub digest: Sha256Digest,
    /// Number of bytes of the package.
    pub size: u64,
    path: TempPath,
}

impl StagedBlob {
    /// Stores a package that a function writes, in a new file of this directory, unless it would take the space that packages
    /// leave free. Waits for the disk.
    pub fn write_in<T, E: From<BlobError>>(
        dir: &Path,
        write: impl FnOnce(&mut File) -> Result<T, E>,
    ) -> Result<(T, Self), E> {
        space::check(dir).map_err(BlobError::from)?;
        let (mut file, path) = new_file(dir)?.into_parts();
        let result = write(&mut file)?;
        let hashed = hash_file(&mut file).map_err(|source| file_error(&path, source));
        let (digest, size) = hashed?;
        let staged = Self { digest, size, path };
        Ok((result, staged))
    }

    /// Opens the file to read it.
    pub fn open(&self) -> Result<File, BlobError> {
        File::open(&self.path).map_err(|source| file_error(&self.path, source))
    }
}

/// A kept package, which can be read whole or in part. It stays readable when it is removed, or makes room for others.
#[derive(Clone, Debug)]
pub struct PackageReader {
    /// Number of bytes of the whole package.
    pub size: u64,
    file: Arc<File>,
    /// Path below that of the store, for errors.
    path: Arc<Path>,
}

impl PackageReader {
    /// Streams a range of the bytes in pieces. The stream is shorter if the package ends before the range.
    pub fn read(&self, range: Range<u64>) -> BoxStream<'static, Result<Bytes, BlobError>> {
        let end = range.end.min(self.size);
        let package = self.clone();
        let buffers = SentBuffers::default();
        let pieces = stream::iter((range.start..end).step_by(PIECE)).map(move |start| {
            let most = usize::try_from(end - start).map_or(PIECE, |left| left.min(PIECE));
            let (package, buffers) = (package.clone(), buffers.clone());
            blocking(move || {
                let mut buffer = buffers.take();
                package.read_now(start, most, &mut buffer.bytes)?;
                Ok(Bytes::from_owner(buffer))
            })
        });
        pieces.buffered(PIECES_AT_ONCE).boxed()
    }

    /// Reads all bytes, which take as much memory. `None`: they are not those with this digest, because the file was damaged.
    pub async fn read_whole(&self, digest: &Sha256Digest) -> Result<Option<Vec<u8>>, BlobError> {
        let size = usize::try_from(self.size);
        let size = size.map_err(|_| file_error(&self.path, ErrorKind::OutOfMemory.into()))?;
        let (package, digest) = (self.clone(), digest.clone());
        let read = move || {
            let mut bytes = Vec::new();
            package.read_now(0, size, &mut bytes)?;
            let is_whole = Sha256Digest::of(&bytes) == digest;
            Ok::<_, BlobError>(is_whole.then_some(bytes))
        };
        blocking(read).await
    }

    /// Fills a buffer with `most` bytes from an offset, or fewer if the package ends before. Waits for the disk.
    fn read_now(&self, start: u64, most: usize, bytes: &mut Vec<u8>) -> Result<(), BlobError> {
        bytes.resize(most, 0);
        let mut count = 0;
        while count < most {
            let read = self.file.read_at(&mut bytes[count..], start + count as u64);
            match read {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(file_error(&self.path, source)),
            }
        }
        bytes.truncate(count);
        Ok(())
    }
}

/// Buffers of one stream whose bytes were sent. They are filled again, because the kernel has to clear new memory first.
#[derive(Clone, Debug, Default)]
struct SentBuffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// Buffer that becomes one of the sent ones when nobody needs its bytes any more.
struct PieceBuffer {
    bytes: Vec<u8>,
    sent: SentBuffers,
}

impl SentBuffers {
    fn take(&self) -> PieceBuffer {
        PieceBuffer {
            bytes: self.buffers().pop().unwrap_or_default(),
            sent: self.clone(),
        }
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for PieceBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PieceBuffer {
    fn drop(&mut self) {
        self.sent.buffers().push(std::mem::take(&mut self.bytes));
    }
}

/// Returns `None` instead of the error for a package that is not there.
fn found<T>(result: object_store::Result<T>) -> Result<Option<T>, BlobError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the key of a package. Directories of the first two digits keep each of them small.
fn key(digest: &Sha256Digest) -> Key {
    let (start, rest) = digest.as_str().split_at(2);
    Key::from_iter([PACKAGES, start, rest])
}

fn digest(hash: Sha256) -> Sha256Digest {
    let text = hex::encode(hash.finalize());
    text.parse().expect("64 digits are a digest")
}

async fn new_writer(dir: &Path, limit: u64) -> Result<BlobWriter, BlobError> {
    let dir = dir.to_owned();
    let (file, path) = blocking(move || new_file(&dir)).await?.into_parts();
    Ok(BlobWriter {
        file: tokio::fs::File::from_std(file),
        path,
        hash: Sha256::new(),
        size: 0,
        limit,
        next_look: None,
    })
}

fn new_file(dir: &Path) -> Result<NamedTempFile, BlobError> {
    let file = tempfile::Builder::new().prefix("package-").tempfile_in(dir);
    file.map_err(|source| file_error(dir, source))
}

/// Makes a file durable, and returns its digest and size.
fn hash_file(file: &mut File) -> io::Result<(Sha256Digest, u64)> {
    file.sync_all()?;
    file.rewind()?;
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((digest(hash), size)),
            count => {
                hash.update(&piece[..count]);
                size += count as u64;
            }
        }
    }
}

/// Checks that a directory is the store with this identifier.
fn check_directory(dir: &Path, expected: StoreId) -> Result<StoreId, BlobError> {
    let path = dir.join(STORE_ID);
    let found = match read_store_id(&path) {
        Ok(text) => parse_store_id(dir, &text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(no_store(dir));
        }
        Err(source) => return Err(file_error(&path, source)),
    };
    if found == expected {
        Ok(found)
    } else {
        let shown = dir.display().to_string();
        Err(BlobError::OtherStore(shown, found, expected))
    }
}

/// Creates the store if there is none, and returns its identifier.
fn create_directory(dir: &Path) -> Result<StoreId, BlobError> {
    let path = dir.join(STORE_ID);
    // The file is older than any package. Another server may create both at this moment.
    let has_packages = dir.join(PACKAGES).exists();
    let id = match read_store_id(&path) {
        Ok(text) => parse_store_id(dir, &text)?,
        Err(error) if error.kind() == ErrorKind::NotFound && has_packages => {
            return Err(no_store(dir));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => new_store_id(dir)?,
        Err(source) => return Err(file_error(&path, source)),
    };
    for path in [PACKAGES, STAGED].map(|name| dir.join(name)) {
        std::fs::create_dir_all(&path).map_err(|source| file_error(&path, source))?;
    }
    Ok(id)
}

/// Makes a removal in the directory of a file durable.
fn sync_directory_of(path: &Path) -> Result<(), BlobError> {
    let dir = path.parent().unwrap_or(path);
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(file_error(dir, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes the file with the identifier. Another server may do so at the same moment; then both have the same one.
fn new_store_id(dir: &Path) -> Result<StoreId, BlobError> {
    std::fs::create_dir_all(dir).map_err(|source| file_error(dir, source))?;
    let path = dir.join(STORE_ID);
    let failed = |source| file_error(&path, source);
    let id = StoreId::random();
    let mut file = new_file(dir)?;
    writeln!(file, "{id}").map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    match file.persist_noclobber(&path) {
        Ok(_) => {
            let synced = File::open(dir).and_then(|dir| dir.sync_all());
            synced.map_err(|source| file_error(dir, source))?;
            Ok(id)
        }
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            parse_store_id(dir, &read_store_id(&path).map_err(failed)?)
        }
        Err(error) => Err(failed(error.error)),
    }
}

fn read_store_id(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(MAX_STORE_ID).read_to_string(&mut text)?;
    Ok(text)
}

fn parse_store_id(dir: &Path, text: &str) -> Result<StoreId, BlobError> {
    let id = text.trim_end().parse();
    id.map_err(|_| no_store(dir))
}

fn no_store(dir: &Path) -> BlobError {
    BlobError::NoStore(dir.display().to_string())
}

fn sweep(dir: &Path, before: DateTime<Utc>) -> Result<u64, BlobError> {
    let failed = |source| file_error(dir, source);
    let mut removed = 0;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Its writer may have removed it at this moment.
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let is_old = modified.is_ok_and(|at| DateTime::<Utc>::from(at) < before);
        if is_old && std::fs::remove_file(entry.path()).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

fn file_error(path: &Path, source: io::Error) -> BlobError {
    let path = path.to_owned();
    BlobError::File { path, source }
}

/// Removes the copies that a server has made of packages in an object store. Returns their number.
pub(super) async fn remove_all_copies(dir: &Path) -> Result<u64, BlobError> {
    let dir = dir.join(cache::CACHED);
    blocking(move || cache::remove_all(&dir)).await
}

/// Runs a function on a thread that may wait for the disk. It begins at once, before the result is awaited.
pub(super) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> + Send + 'static {
    let task = tokio::task::spawn_blocking(work);
    async move {
        match task.await {
            Ok(result) => result,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;

    use super::*;

    async fn staged(blobs: &Blobs, content: &[u8]) -> StagedBlob {
        let mut writer = blobs.stage(1_000_000).await.unwrap();
        for piece in content.chunks(100_000) {
            writer.write(piece).await.unwrap();
        }
        writer.finish().await.unwrap()
    }

    async fn read(package: &PackageReader, range: Range<u64>) -> Vec<u8> {
        let pieces: Vec<Bytes> = package.read(range).try_collect().await.unwrap();
        pieces.concat()
    }

    fn files_in(dir: &Path) -> usize {
        std::fs::read_dir(dir).unwrap().count()
    }

    #[tokio::test]
    async fn a_package_is_found_by_its_digest_whole_and_in_part() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), None).await.unwrap();
        let content: Vec<u8> = (0..=250).cycle().take(700_000).collect();
        let digest = Sha256Digest::of(&content);
        assert!(blobs.open_package(&digest, None).await.unwrap().is_none());
        assert!(blobs.open_file(&digest, None).await.unwrap().is_none());
        for _ in 0..2 {
            let staged = staged(&blobs, &content).await;
            assert_eq!((&staged.digest, staged.size), (&digest, 700_000));
            blobs.keep(staged).await.unwrap();
        }
        assert_eq!(files_in(&dir.path().join(STAGED)), 0);
        let package = blobs.open_package(&digest, None).await.unwrap().unwrap();
        assert_eq!(package.size, 700_000);
        assert_eq!(read(&package, 0..700_000).await, content);
        assert_eq!(read(&package, 10..300_000).await, content[10..300_000]);
        assert_eq!(read(&package, 699_999..800_000).await, content[699_999..]);
        assert!(read(&package, 5..5).await.is_empty());
        let mut file = blobs.open_file(&digest, None).await.unwrap().unwrap();
        assert_eq!(hash_file(&mut file).unwrap(), (digest.clone(), 700_000));
        assert!(blobs.remove(&digest).await.unwrap());
        assert!(!blobs.remove(&digest).await.unwrap());
        assert!(blobs.open_package(&digest, None).await.unwrap().is_none());
        // Downloads that have begun go on, until they notice the takedown.
        assert_eq!(read(&package, 0..700_000).await, content);
    }

    #[tokio::test]
    async fn a_package_that_is_too_large_or_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), None).await.unwrap();
        let mut writer = blobs.stage(10).await.unwrap();
        writer.write(b"0123456789").await.unwrap();
        let error = writer.write(b"0").await.unwrap_err();
        assert!(matches!(error, BlobError::TooLarge(10)), "{error}");
        let written = StagedBlob::write_in(&blobs.staging_dir(), |_| {
            Err::<(), _>(BlobError::TooLarge(1))
        });
        assert!(written.is_err());
        drop((writer, staged(&blobs, b"whole").await));
        assert_eq!(files_in(&dir.path().join(STAGED)), 0);
    }

    #[tokio::test]
    async fn a_damaged_package_is_mended_when_it_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), None).await.unwrap();
        let digest = Sha256Digest::of(b"package");
        let path = dir.path().join(key(&digest).as_ref());
        for _ in 0..2 {
            let write = |file: &mut File| {
                let written = file.write_all(b"package");
                written.map_err(|source| file_error(Path::new("x"), source))
            };
            let ((), staged) = StagedBlob::write_in(&blobs.staging_dir(), write).unwrap();
            assert_eq!((&staged.digest, staged.size), (&digest, 7));
            blobs.keep(staged).await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"package");
            std::fs::write(&path, "damaged").unwrap();
        }
    }

    #[tokio::test]
    async fn a_store_has_one_identifier() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/packages");
        let (one, two) = tokio::join!(Blobs::open(&path, None), Blobs::open(&path, None));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one.store_id(), two.store_id());
        assert_eq!(
            one.store_id().to_string().parse().as_ref(),
            Ok(one.store_id())
        );
        let other = Blobs::open(&dir.path().join("b"), None).await.unwrap();
        assert_ne!(one.store_id(), other.store_id());
        let again = Blobs::open(&path, Some(one.store_id())).await.unwrap();
        assert_eq!(again.store_id(), one.store_id());
        let error = Blobs::open(&path, Some(other.store_id()))
            .await
            .unwrap_err();
        assert!(matches!(error, BlobError::OtherStore(..)), "{error}");
        std::fs::write(path.join(STORE_ID), "cut off").unwrap();
        let error = Blobs::open(&path, None).await.unwrap_err();
        assert!(matches!(error, BlobError::NoStore(_)), "{error}");
        std::fs::remove_file(path.join(STORE_ID)).unwrap();
        let error = Blobs::open(&path, None).await.unwrap_err();
        assert!(matches!(error, BlobError::NoStore(_)), "{error}");
    }

    #[tokio::test]
    async fn nothing_is_created_on_a_disk_that_is_not_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let (path, away) = (dir.path().join("packages"), dir.path().join("away"));
        let blobs = Blobs::open(&path, None).await.unwrap();
        std::fs::rename(&path, &away).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = Blobs::open(&path, Some(blobs.store_id()))
            .await
            .unwrap_err();
        assert!(matches!(error, BlobError::NoStore(_)), "{error}");
        assert!(blobs.stage(10).await.is_err());
        assert_eq!(files_in(&path), 0);
    }

    #[tokio::test]
    async fn files_of_crashed_writers_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), None).await.unwrap();
        let left = dir.path().join(STAGED).join("package-left");
        std::fs::write(&left, "cut off").unwrap();
        let written: DateTime<Utc> = left.metadata().unwrap().modified().unwrap().into();
        assert_eq!(blobs.sweep_staged(written).await.unwrap(), 0);
        let later = written + chrono::TimeDelta::hours(1);
        assert_eq!(blobs.sweep_staged(later).await.unwrap(), 1);
        assert!(!left.exists());
    }
}
