//! Serves modules to runs of this server, on a listener of the loopback interface.
//!
//! The token of a run is in the path, because a configuration of `terraform` names only an address. Nothing here is
//! logged with its path. Links to packages need no signature: the path with the token permits the download.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use axum::routing::get;
use lockkeeper_registry::records::PackageFileName;
use tokio::sync::OwnedSemaphorePermit;

use super::access::Reader;
use super::catalog::CatalogState;
use super::refusal::ServeRefusal;
use super::{RegistryServer, go, links, terraform};
use crate::workflow::RunRegistry;

/// Everything that serves modules to runs.
pub(crate) struct RunModuleServer {
    server: Arc<RegistryServer>,
    runs: RunRegistry,
}

/// A request of a run.
struct RunRequest {
    /// State of the registry now.
    snapshot: CatalogState,
    /// Rights of the run.
    reader: Reader,
    _place: OwnedSemaphorePermit,
}

type RunModulePath = (String, String, String, String);
type RunVersionPath = (String, String, String, String, String);
type RunFilePath = (String, String, String, String, String, String);

impl RunModuleServer {
    pub(crate) fn new(server: Arc<RegistryServer>, runs: RunRegistry) -> Self {
        Self { server, runs }
    }

    /// Lets in a request of the run with this token.
    async fn enter(&self, token: &str) -> Result<RunRequest, ServeRefusal> {
        let (run, places) = self.runs.reader(token).ok_or(ServeRefusal::RunEnded)?;
        let place = places.requests.try_acquire_owned();
        let place = place.map_err(|_| ServeRefusal::Busy)?;
        Ok(RunRequest {
            snapshot: self.server.catalog.snapshot().await?,
            reader: Reader::Run {
                run,
                downloads: places.downloads,
            },
            _place: place,
        })
    }
}

/// Returns the routes for runs.
pub(crate) fn run_router(server: RunModuleServer) -> Router {
    const MODULE: &str = "/run/{token}/v1/modules/{namespace}/{name}/{system}";
    Router::new()
        .route(&format!("{MODULE}/versions"), get(versions))
        .route(&format!("{MODULE}/{{version}}/download"), get(download))
        .route(&format!("{MODULE}/{{version}}/{{file}}"), get(package))
        .route("/run/{token}/go/{*path}", get(go))
        .with_state(Arc::new(server))
}

/// `GET /run/{token}/v1/modules/{namespace}/{name}/{system}/versions`
async fn versions(
    State(run): State<Arc<RunModuleServer>>,
    Path((token, namespace, name, system)): Path<RunModulePath>,
    headers: HeaderMap,
) -> Result<Response, ServeRefusal> {
    let asked = run.enter(&token).await?;
    let path = (namespace, name, system);
    terraform::list(&run.server, asked.snapshot, &asked.reader, &headers, &path).await
}

/// `GET /run/{token}/v1/modules/{namespace}/{name}/{system}/{version}/download`
async fn download(
    State(run): State<Arc<RunModuleServer>>,
    Path((token, namespace, name, system, version)): Path<RunVersionPath>,
) -> Result<Response, ServeRefusal> {
    let asked = run.enter(&token).await?;
    let path = (namespace, name, system, version);
    let (_, file) = terraform::file_of(&run.server, asked.snapshot, &asked.reader, &path).await?;
    Ok(terraform::leads_to(&links::place_of(&file)))
}

/// `GET /run/{token}/v1/modules/{namespace}/{name}/{system}/{version}/{file}`
async fn package(
    State(run): State<Arc<RunModuleServer>>,
    Path((token, namespace, name, system, number, file)): Path<RunFilePath>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ServeRefusal> {
    let asked = run.enter(&token).await?;
    let name = terraform::module(&namespace, &name, &system)?;
    let key = terraform::version(name, &number)?;
    let file: PackageFileName = file.parse().map_err(|_| ServeRefusal::BadLink)?;
    let request = (&method, &headers);
    terraform::send(
        &run.server,
        asked.snapshot,
        &asked.reader,
        request,
        (&key, &file),
    )
    .await
}

/// `GET /run/{token}/go/{*path}`
async fn go(
    State(run): State<Arc<RunModuleServer>>,
    Path((token, _)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ServeRefusal> {
    let (parts, _) = request.into_parts();
    let asked = run.enter(&token).await?;
    // The path of the protocol as it was sent: its own escapes are not those of addresses.
    let path = parts.uri.path().splitn(5, '/').nth(4).unwrap_or_default();
    go::answer_path(&run.server, asked.snapshot, &asked.reader, &parts, path).await
}
