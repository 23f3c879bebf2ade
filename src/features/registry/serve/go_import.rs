//! Leads `go` from an import path on the host of this registry to its modules: `?go-get=1`. So clients without this registry
//! in `GOPROXY` find them as well.
//!
//! `go` asks the address of the path, and of the paths above it. The answer names the requested path itself as the place
//! of a repository, so nothing is said about any other one. Where a registry needs a token, a request without one gets the
//! same answer for every path, so strangers do not learn which namespaces there are.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_registry::names::{NameKind, RegistryName};

use super::RegistryServer;
use super::refusal::ServeRefusal;
use crate::kit::web::{count, headers, hosts};

/// Route of these requests in metrics, because they can have any path.
const ROUTE: &str = "/{*path}?go-get=1";

/// Answers requests of `go` for an import path ([`is_go_get`]) in a namespace on the host of the registry, and passes all
/// others on.
pub(crate) async fn lead_go(
    State(server): State<Arc<RegistryServer>>,
    request: Request,
    next: Next,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    // The guard of the other routes refuses requests for other hosts.
    if !is_read || hosts::is_foreign(server.web(), &request) {
        return next.run(request).await;
    }
    let mut response = match answer(&server, request.uri(), request.headers()).await {
        Ok(Some(response)) => response,
        Ok(None) => return next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let metrics = &server.web().metrics;
    count::add(metrics, ROUTE, request.method(), response.status());
    headers::secure(&mut response);
    response
}

/// Returns true for a request of `go` for an import path.
pub(crate) fn is_go_get(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query.split('&').any(|pair| pair == "go-get=1")
}

/// Returns the answer for an import path; `None`: the path is in no namespace.
async fn answer(
    server: &RegistryServer,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Response>, ServeRefusal> {
    let path = format!("{}{}", server.host, uri.path().trim_end_matches('/'));
    let Ok(name) = RegistryName::new(NameKind::Go, &path) else {
        return Ok(None);
    };
    let snapshot = server.catalog.snapshot().await?;
    let reader = server.reader(snapshot, headers).await?;
    let namespaces = server.catalog.namespaces(snapshot).await?;
    let Some(namespace) = namespaces.of(&name) else {
        return Ok(None);
    };
    match reader.check(&name, Some(namespace)) {
        // As if the name were in no namespace.
        Err(ServeRefusal::NotFound(_)) => return Ok(None),
        checked => checked?,
    }
    // A path has letters, digits and `-._~/` only.
    let page = format!(
        "<!DOCTYPE html>\n<html><head><meta name=\"go-import\" content=\"{} mod {}\"></head></html>\n",
        name.as_str(),
        server.go_base
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "private, no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok(Some((headers, page).into_response()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_go_asks_for_an_import_path() {
        for (uri, expected) in [
            ("/net?go-get=1", true),
            ("/net?x=1&go-get=1", true),
            ("/net?go-get=0", false),
            ("/net?go-get=11", false),
            ("/go-get=1", false),
        ] {
            assert_eq!(is_go_get(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
