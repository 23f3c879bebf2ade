//! The log of this deployment, in the protocol of Go's checksum database. `go` proves with it that a version has the
//! recorded checksums, and that nobody has changed the past (R5).
//!
//! Tiles have only hashes, so everyone who may read anything gets them. Records have names: only those who may read a name
//! get its records.

use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;

use super::RegistryServer;
use super::access::Reader;
use super::answer::{self, Freshness, TaggedContent};
use super::catalog::CatalogState;
use super::go_paths::SumdbRequest;
use super::refusal::ServeRefusal;

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers a request to the checksum database with this name.
pub(super) async fn answer(
    server: &RegistryServer,
    snapshot: CatalogState,
    reader: &Reader,
    headers: &HeaderMap,
    name: &str,
    request: SumdbRequest,
) -> Result<Response, ServeRefusal> {
    reader.check_any()?;
    if name != server.registry.name().as_str() {
        // `go` then asks that database itself.
        return Err(ServeRefusal::not_found(
            "this registry has only its own checksum database",
        ));
    }
    let content: TaggedContent = match request {
        SumdbRequest::Supported => Bytes::new().into(),
        SumdbRequest::Latest => {
            let head = server.registry.head().await?;
            Bytes::copy_from_slice(head.as_bytes()).into()
        }
        SumdbRequest::Lookup(key) => {
            server.version(snapshot, reader, &key).await?;
            let found = server.catalog.lookup(snapshot, &key).await?;
            found.ok_or_else(|| ServeRefusal::unknown_version(&key))?
        }
        SumdbRequest::Tile(tile) => {
            let found = server.catalog.tile(snapshot, &tile).await?;
            let found =
                found.ok_or_else(|| ServeRefusal::not_found("the log has no such tile yet"))?;
            let kind = "application/octet-stream";
            return Ok(answer::content(headers, kind, Freshness::Immutable, found));
        }
    };
    Ok(answer::content(
        headers,
        TEXT,
        Freshness::Revalidated,
        content,
    ))
}
