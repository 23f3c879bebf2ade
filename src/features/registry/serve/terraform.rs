//! Service discovery and the protocol of module registries, for `terraform` and `tofu`.
//!
//! A deprecated version stays in the list, because there is no other way to one that a configuration names. A version that
//! was taken down leaves the list, so no constraint chooses it.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::records::{PackageFile, PackageFileName, VersionContent};
use lockkeeper_registry::versions::VersionKey;
use serde::Serialize;
use serde_json::json;
use url::Url;

use super::access::Reader;
use super::answer::{self, Freshness};
use super::catalog::CatalogState;
use super::links::LinkQuery;
use super::refusal::ServeRefusal;
use super::{RegistryServer, packages, served};

const JSON: &str = "application/json";

/// Header with the address of a package.
const GET_FROM: HeaderName = HeaderName::from_static("x-terraform-get");

/// Returns the answer to service discovery. A proxy may serve the public address below a path.
pub(super) fn discovery(public_url: &Url) -> Bytes {
    let base = public_url.path().trim_end_matches('/');
    let services = json!({ "modules.v1": format!("{base}/registry/v1/modules/") });
    services.to_string().into()
}

/// `GET /.well-known/terraform.json`
pub(super) async fn discover(
    State(server): State<Arc<RegistryServer>>,
    headers: HeaderMap,
) -> Response {
    answer::content(
        &headers,
        JSON,
        Freshness::Revalidated,
        server.discovery.clone(),
    )
}

/// Body of the list of versions.
#[derive(Serialize)]
struct ModuleList {
    modules: [ModuleVersions; 1],
}

#[derive(Serialize)]
struct ModuleVersions {
    versions: Vec<AvailableVersion>,
}

#[derive(Serialize)]
struct AvailableVersion {
    version: String,
}

pub(super) type ModulePath = (String, String, String);
pub(super) type VersionPath = (String, String, String, String);
type FilePath = (String, String, String, String, String);

pub(super) fn module(
    namespace: &str,
    name: &str,
    system: &str,
) -> Result<RegistryName, ServeRefusal> {
    let text = format!("{namespace}/{name}/{system}");
    RegistryName::new(NameKind::Module, &text)
        .map_err(|error| ServeRefusal::not_found(error.to_string()))
}

pub(super) fn version(name: RegistryName, version: &str) -> Result<VersionKey, ServeRefusal> {
    VersionKey::new(name, version).map_err(|error| ServeRefusal::not_found(error.to_string()))
}

/// `GET /registry/v1/modules/{namespace}/{name}/{system}/versions`
pub(super) async fn versions(
    State(server): State<Arc<RegistryServer>>,
    Path((namespace, name, system)): Path<ModulePath>,
    headers: HeaderMap,
) -> Result<Response, ServeRefusal> {
    let snapshot = server.catalog.snapshot().await?;
    let reader = server.reader(snapshot, &headers).await?;
    list(
        &server,
        snapshot,
        &reader,
        &headers,
        &(namespace, name, system),
    )
    .await
}

/// Answers with the versions of a module that a reader may choose from.
pub(super) async fn list(
    server: &RegistryServer,
    snapshot: CatalogState,
    reader: &Reader,
    headers: &HeaderMap,
    (namespace, name, system): &ModulePath,
) -> Result<Response, ServeRefusal> {
    let name = module(namespace, name, system)?;
    server.check(snapshot, reader, &name, None).await?;
    let known = server.name_or_ask(snapshot, reader, &name).await?;
    if known.versions.is_empty() {
        let unknown = ServeRefusal::unknown(&name);
        return Err(server.missing(snapshot, reader, &name, unknown).await);
    }
    let list = known.list.get_or_init(|| {
        let available = known.versions.iter().filter(|version| version.is_served);
        let versions = available.map(|version| AvailableVersion {
            version: version.key.version(),
        });
        let list = ModuleList {
            modules: [ModuleVersions {
                versions: versions.collect(),
            }],
        };
        let list = serde_json::to_vec(&list).expect("texts are JSON");
        Bytes::from(list).into()
    });
    Ok(answer::content(
        headers,
        JSON,
        Freshness::Revalidated,
        list.clone(),
    ))
}

/// `GET /registry/v1/modules/{namespace}/{name}/{system}/{version}/download`
pub(super) async fn download(
    State(server): State<Arc<RegistryServer>>,
    Path((namespace, name, system, number)): Path<VersionPath>,
    headers: HeaderMap,
) -> Result<Response, ServeRefusal> {
    let snapshot = server.catalog.snapshot().await?;
    let reader = server.reader(snapshot, &headers).await?;
    let path = (namespace, name, system, number);
    let (key, file) = file_of(&server, snapshot, &reader, &path).await?;
    let now = server.web.clock.now();
    Ok(leads_to(&server.links.link(
        &key,
        &file,
        reader.token_id(),
        now,
    )))
}

/// Returns a version and the name of its package.
pub(super) async fn file_of(
    server: &RegistryServer,
    snapshot: CatalogState,
    reader: &Reader,
    (namespace, name, system, number): &VersionPath,
) -> Result<(VersionKey, PackageFileName), ServeRefusal> {
    let key = version(module(namespace, name, system)?, number)?;
    let version = server.version_or_fill(snapshot, reader, &key).await?;
    let content = served(&key, Some(&version.version))?;
    let name = archive(&key, content)?.name.clone();
    Ok((key, name))
}

/// Answers with the address of a package, relative to that of the request.
pub(super) fn leads_to(link: &str) -> Response {
    let link = HeaderValue::from_str(link).expect("the parts of a link are plain characters");
    (StatusCode::NO_CONTENT, [(GET_FROM, link)]).into_response()
}

/// `GET /registry/v1/modules/{namespace}/{name}/{system}/{version}/{file}`
pub(super) async fn package(
    State(server): State<Arc<RegistryServer>>,
    Path((namespace, name, system, number, file)): Path<FilePath>,
    query: Result<Query<LinkQuery>, QueryRejection>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ServeRefusal> {
    let key = version(module(&namespace, &name, &system)?, &number)?;
    let file: PackageFileName = file.parse().map_err(|_| ServeRefusal::BadLink)?;
    let Query(query) = query.map_err(|_| ServeRefusal::BadLink)?;
    let now = server.web.clock.now();
    let token = server.links.reader(&key, &file, &query, now);
    let token = token.map_err(|_| ServeRefusal::BadLink)?;
    let snapshot = server.catalog.snapshot().await?;
    let reader = match token {
        None if server.is_open => Reader::Anonymous,
        None => return Err(ServeRefusal::BadLink),
        Some(id) => {
            let token = server.catalog.token_by_id(snapshot, id).await?;
            let token = token.filter(|token| token.is_valid(now));
            Reader::Token {
                token: token.ok_or(ServeRefusal::BadLink)?,
                is_open: server.is_open,
            }
        }
    };
    send(
        &server,
        snapshot,
        &reader,
        (&method, &headers),
        (&key, &file),
    )
    .await
}

/// Sends the package of a version, if it has this name.
pub(super) async fn send(
    server: &Arc<RegistryServer>,
    snapshot: CatalogState,
    reader: &Reader,
    request: (&Method, &HeaderMap),
    (key, file): (&VersionKey, &PackageFileName),
) -> Result<Response, ServeRefusal> {
    let version = server.version(snapshot, reader, key).await?;
    let content = served(key, Some(&version.version))?;
    let package = archive(key, content)?;
    if package.name != *file {
        return Err(ServeRefusal::BadLink);
    }
    let places = server.places(reader);
    packages::send(
        server,
        snapshot,
        places,
        request,
        &version,
        package,
        "application/gzip",
    )
    .await
}

/// Returns the package of a module. There is only one.
fn archive<'a>(
    key: &VersionKey,
    content: &'a VersionContent,
) -> Result<&'a PackageFile, ServeRefusal> {
    let package = content.packages.iter().next();
    package.ok_or_else(|| ServeRefusal::unknown_version(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_protocol_is_below_that_of_the_server() {
        for (url, expected) in [
            ("https://mods.example.com/", "/registry/v1/modules/"),
            ("https://example.com/locks/", "/locks/registry/v1/modules/"),
        ] {
            let answer = discovery(&url.parse().unwrap());
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer, json!({ "modules.v1": expected }));
        }
    }
}
