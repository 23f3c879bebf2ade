//! Downloads of packages: whole or in part, in pieces, without a connection to the database. Large `go.mod` files are sent in
//! the same way.
//!
//! - *Read once*: packages that are requested often are in memory, unless they are large ([`super::Catalog::MAX_PACKAGE`]).
//! - *Limited*: [`AT_ONCE`] packages are sent at a time. Further requests wait, because their clients would fail else.
//! - *Not held by slow clients*: a download that gets slower than [`SLOWEST`] on average is ended, because it has a place.
//! - *Ended by a takedown*: a download that takes long looks every second whether its version is still there.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lockkeeper_registry::records::PackageFile;
use lockkeeper_registry::states::BaseLocation;
use lockkeeper_registry::versions::VersionKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::super::places::take_all;
use super::super::{BlobError, PackageReader, RegistryError};
use super::answer::{self, EntityTag, Freshness, Part};
use super::catalog::{CatalogState, KeptVersion};
use super::refusal::ServeRefusal;
use super::{RegistryServer, memory, served};

/// Maximum number of packages that are sent at a time. Each takes an open file, or memory.
pub(super) const AT_ONCE: usize = 128;

/// Maximum number of them for one token, and for all requests without a token. Neither can take all places.
pub(super) const AT_ONCE_OF_TOKEN: usize = AT_ONCE / 4;
pub(super) const AT_ONCE_OF_ANONYMOUS: usize = AT_ONCE / 2;

/// Largest package or `go.mod` file that is sent without a place, in bytes. It fits into the buffers of a connection.
pub(super) const SMALL: u64 = 64 << 10;

/// Number of bytes that are sent from memory between two looks at the clock.
const PIECE: usize = 256 << 10;

/// Longest wait for the package and for a place. The time limit of requests is longer.
const BEGIN_TIME: Duration = Duration::from_secs(25);

/// Lowest number of bytes in a second, on average, after [`SLOW_AFTER`].
const SLOWEST: u64 = 16 * 1024;
const SLOW_AFTER: Duration = Duration::from_mins(1);

/// Interval at which a download looks whether its version is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest time of such a look.
const LOOK_TIME: Duration = Duration::from_secs(30);

/// Answers a request for a package of a version that the reader may read.
pub(super) async fn send(
    server: &Arc<RegistryServer>,
    snapshot: CatalogState,
    places: Vec<Arc<Semaphore>>,
    (method, headers): (&Method, &HeaderMap),
    version: &Arc<KeptVersion>,
    file: &PackageFile,
    content_type: &'static str,
) -> Result<Response, ServeRefusal> {
    let key = &version.version.key;
    let tag = EntityTag::of_digest(&file.digest);
    if tag.is_known(headers) {
        return Ok(answer::not_modified(&tag, Freshness::Immutable));
    }
    let (part, range) = match Part::requested(headers, &tag, file.size) {
        Part::Whole => (None, 0..file.size),
        Part::Bytes(range) => (Some(range.clone()), range),
        Part::AfterEnd => return Err(ServeRefusal::NoSuchRange(file.size)),
    };
    let with = |body| answer::package(content_type, &tag, file.size, part.as_ref(), body);
    if method == Method::HEAD {
        return Ok(with(Body::empty()));
    }
    let ready = Box::pin(begin(server, snapshot, places, version, file, &range));
    let ready = timeout(BEGIN_TIME, ready)
        .await
        .map_err(|_| ServeRefusal::Busy)?;
    let ReadyDownload {
        source,
        places,
        looked_at,
    } = ready?;
    if file.size <= SMALL
        && let Found::InMemory(content) = source
    {
        return Ok(with(Body::from(content)));
    }
    let mut pieces = match source {
        Found::InMemory(content) => pieces_of(content),
        Found::InStore(reader) => reader.read(range),
    };
    // Begins to read before the answer begins, so that a client learns of a takedown in this moment.
    let first = match pieces.try_next().await {
        Ok(Some(first)) => first,
        Ok(None) => return Err(damaged(key, file)),
        Err(error) => return Err(unreadable(server, key, error).await),
    };
    let download = Download {
        server: Arc::clone(server),
        key: key.clone(),
        pieces: stream::iter([Ok(first)]).chain(pieces).boxed(),
        looked_at,
        started: Instant::now(),
        sent: 0,
        _places: places,
    };
    Ok(with(download.into_body()))
}

/// Answers with a `go.mod` file that is not small. It takes a place, and memory until the client has read it.
pub(super) async fn send_go_mod(
    server: &Arc<RegistryServer>,
    places: Vec<Arc<Semaphore>>,
    (key, size): (&VersionKey, u64),
    tag: &EntityTag,
    content_type: &'static str,
) -> Result<Response, ServeRefusal> {
    let places = timeout(BEGIN_TIME, take_all(places)).await;
    let places = places.map_err(|_| ServeRefusal::Busy)?;
    let places = places.map_err(|_| ServeRefusal::Busy)?;
    let memory = server.catalog.memory_for_go_mod(size);
    let memory = memory.ok_or(ServeRefusal::Busy)?;
    let looked_at = Instant::now();
    let Some(content) = server.registry.go_mod(key).await? else {
        return Err(without_go_mod(server, key).await);
    };
    let content = memory::in_place(content, memory);
    let length = content.len() as u64;
    let download = Download {
        server: Arc::clone(server),
        key: key.clone(),
        pieces: pieces_of(content),
        looked_at,
        started: Instant::now(),
        sent: 0,
        _places: places,
    };
    let body = download.into_body();
    Ok(answer::immutable(content_type, tag, length, body))
}

/// A download that can begin.
struct ReadyDownload {
    source: Found,
    /// Places of the download. Empty: it needs none.
    places: Vec<OwnedSemaphorePermit>,
    /// Time before the last look whether the version is there.
    looked_at: Instant,
}

/// Waits for the package and for places.
async fn begin(
    server: &RegistryServer,
    mut snapshot: CatalogState,
    places: Vec<Arc<Semaphore>>,
    version: &KeptVersion,
    file: &PackageFile,
    range: &Range<u64>,
) -> Result<ReadyDownload, ServeRefusal> {
    let mut looked_at = Instant::now();
    // A package that is on its way here takes no place.
    let small = prepare(server, snapshot, version, file, range).await?;
    let places = if small.is_some() {
        Vec::new()
    } else {
        take_all(places).await.map_err(|_| ServeRefusal::Busy)?
    };
    // An open file is still there after a takedown, and so are bytes in memory.
    if looked_at.elapsed() >= LOOK_EVERY {
        looked_at = Instant::now();
        snapshot = recheck(server, &version.version.key).await?;
    }
    let source = match small {
        Some(content) => Found::InMemory(content),
        None => find(server, snapshot, version, file, range).await?,
    };
    Ok(ReadyDownload {
        source,
        places,
        looked_at,
    })
}

/// Waits until a package is here. Returns the bytes of one that needs no place.
///
/// A package that was opened is closed again, because the number of requests that wait for a place has no limit.
async fn prepare(
    server: &RegistryServer,
    snapshot: CatalogState,
    version: &KeptVersion,
    file: &PackageFile,
    range: &Range<u64>,
) -> Result<Option<Bytes>, ServeRefusal> {
    if file.size <= SMALL {
        return match find(server, snapshot, version, file, range).await? {
            Found::InMemory(content) => Ok(Some(content)),
            Found::InStore(_) => Ok(None),
        };
    }
    if server.catalog.package(&version.version.key).is_none() {
        open(server, version, file).await.map(drop)?;
    }
    Ok(None)
}

/// Bytes that a request wants.
enum Found {
    InMemory(Bytes),
    /// A package that is read while it is sent.
    InStore(PackageReader),
}

async fn find(
    server: &RegistryServer,
    snapshot: CatalogState,
    version: &KeptVersion,
    file: &PackageFile,
    range: &Range<u64>,
) -> Result<Found, ServeRefusal> {
    let content = in_memory(server, snapshot, version, file).await?;
    match content.and_then(|content| part_of(&content, range)) {
        Some(content) => Ok(Found::InMemory(content)),
        None => open(server, version, file).await.map(Found::InStore),
    }
}

/// Returns the bytes of a package that is not large. The first request reads them. `None`: it is read while it is sent.
async fn in_memory(
    server: &RegistryServer,
    snapshot: CatalogState,
    version: &KeptVersion,
    file: &PackageFile,
) -> Result<Option<Bytes>, ServeRefusal> {
    let key = &version.version.key;
    if let Some(content) = server.catalog.package(key) {
        return Ok(Some(content));
    }
    let Some(place) = server.catalog.memory_for_package(file.size) else {
        return Ok(None);
    };
    let package = open(server, version, file).await?;
    // Memory would keep damaged bytes after the package was mended.
    let bytes = match package.read_whole(&file.digest).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            // Another copy comes from an object store.
            let removed = server.registry.blobs().remove_copy(&file.digest).await;
            removed.map_err(RegistryError::from)?;
            return Err(damaged(key, file));
        }
        Err(error) => return Err(unreadable(server, key, error).await),
    };
    let content = memory::in_place(bytes, place);
    server.catalog.keep_package(snapshot, key, &content);
    Ok(Some(content))
}

/// Returns a range of bytes in memory.
fn part_of(content: &Bytes, range: &Range<u64>) -> Option<Bytes> {
    let start = usize::try_from(range.start).ok()?;
    let end = usize::try_from(range.end).ok()?;
    (start <= end && end <= content.len()).then(|| content.slice(start..end))
}

/// Cuts bytes in memory into pieces, so that their download ends as early as one from the disk.
fn pieces_of(mut content: Bytes) -> BoxStream<'static, Result<Bytes, BlobError>> {
    let pieces = std::iter::from_fn(move || {
        let piece = content.split_to(content.len().min(PIECE));
        (!piece.is_empty()).then_some(Ok(piece))
    });
    stream::iter(pieces).boxed()
}

async fn open(
    server: &RegistryServer,
    version: &KeptVersion,
    file: &PackageFile,
) -> Result<PackageReader, ServeRefusal> {
    let key = &version.version.key;
    let located = version.version.known.content();
    if located.is_some_and(|located| located.base != BaseLocation::Here) {
        // Bytes with this digest may be here because of another version. Those of a version that is still at a peer were
        // not compared with its record.
        arrive(server, key).await?;
    }
    match server.registry.package_file(file).await? {
        Some(reader) if reader.size == file.size => return Ok(reader),
        Some(_) => return Err(damaged(key, file)),
        None => {}
    }
    if arrive(server, key).await? {
        let arrived = server.registry.package_file(file).await?;
        let arrived = arrived.filter(|reader| reader.size == file.size);
        if let Some(reader) = arrived {
            return Ok(reader);
        }
    }
    server.registry.blobs().report_missing(&file.digest);
    Err(damaged(key, file))
}

/// Waits until the packages of a version are here, if another deployment has them. Returns false if they were here
/// already.
pub(super) async fn arrive(
    server: &RegistryServer,
    key: &VersionKey,
) -> Result<bool, ServeRefusal> {
    let version = server.registry.version(key).await?;
    served(key, version.as_ref())?;
    let located = version.as_ref().and_then(|version| version.known.content());
    if located.is_none_or(|located| located.base == BaseLocation::Here) {
        return Ok(false);
    }
    if server.peers.arrive(key).await? {
        Ok(true)
    } else {
        Err(ServeRefusal::elsewhere(key))
    }
}

/// Explains why a package cannot be read.
async fn unreadable(server: &RegistryServer, key: &VersionKey, error: BlobError) -> ServeRefusal {
    match still_served(server, key).await {
        Err(refusal) => refusal,
        Ok(()) => ServeRefusal::Failed(error.into()),
    }
}

/// Explains why a version has no `go.mod` file any more. An answer that nothing is here would send `go` elsewhere.
pub(super) async fn without_go_mod(server: &RegistryServer, key: &VersionKey) -> ServeRefusal {
    match still_served(server, key).await {
        Err(refusal) => refusal,
        Ok(()) => ServeRefusal::unknown_version(key),
    }
}

/// Checks that a version was not taken down since the state was read.
async fn still_served(server: &RegistryServer, key: &VersionKey) -> Result<(), ServeRefusal> {
    let version = server.registry.version(key).await?;
    served(key, version.as_ref()).map(drop)
}

fn damaged(key: &VersionKey, file: &PackageFile) -> ServeRefusal {
    ServeRefusal::Failed(RegistryError::Damaged(format!(
        "the package `{}` of {key} is missing or damaged",
        file.name
    )))
}

/// A package or a `go.mod` file on its way to a client.
struct Download {
    server: Arc<RegistryServer>,
    key: VersionKey,
    pieces: BoxStream<'static, Result<Bytes, BlobError>>,
    looked_at: Instant,
    started: Instant,
    sent: u64,
    _places: Vec<OwnedSemaphorePermit>,
}

/// Reason why a download ends early. The client sees a connection that ends.
#[derive(Debug, thiserror::Error)]
enum DownloadStop {
    #[error("the package cannot be read")]
    Unreadable(#[from] BlobError),
    #[error("the version is not there any more")]
    TakenDown,
    #[error("the client reads fewer than {SLOWEST} bytes in a second")]
    TooSlow,
}

impl Download {
    /// Returns the pieces as the body of an answer.
    fn into_body(self) -> Body {
        let pieces = stream::try_unfold(self, async |mut download| {
            let piece = download.next().await?;
            Ok::<_, DownloadStop>(piece.map(|piece| (piece, download)))
        });
        Body::from_stream(pieces)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, DownloadStop> {
        if self.looked_at.elapsed() >= LOOK_EVERY {
            let looked_at = Instant::now();
            // Others wait for the same look, so a database that does not answer ends it as it ends a request.
            let look = timeout(LOOK_TIME, recheck(&self.server, &self.key)).await;
            if !matches!(look, Ok(Ok(_))) {
                warn!(version = %self.key, "A download was ended, because the version was taken down or cannot be checked");
                return Err(DownloadStop::TakenDown);
            }
            self.looked_at = looked_at;
        }
        let time = self.started.elapsed();
        if time > SLOW_AFTER && self.sent / time.as_secs() < SLOWEST {
            return Err(DownloadStop::TooSlow);
        }
        let piece = self.pieces.try_next().await?;
        self.sent += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }
}

/// Returns the state of this moment, after a check that a version is still served.
async fn recheck(server: &RegistryServer, key: &VersionKey) -> Result<CatalogState, ServeRefusal> {
    let snapshot = server.catalog.snapshot().await?;
    let version = server.catalog.version(snapshot, key).await?;
    let version = version.as_ref().map(|version| &version.version);
    served(key, version).map(|_| snapshot)
}
