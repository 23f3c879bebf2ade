//! Serves `GET /repos/{owner}/{repo}`, redirects from former names, and routes by id.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::json;

use super::auth::Caller;
use super::errors::ApiError;
use super::paging::RequestedUri;
use super::views::full_repo;
use super::{Cx, WireResponse, of_repos};

pub(super) async fn get(
    State(cx): State<Cx>,
    caller: Caller,
    Path((owner, repo)): Path<(String, String)>,
) -> WireResponse {
    let state = cx.world.state();
    let repo = caller.repo(&state, &owner, &repo)?;
    let parent = repo.parent.as_ref().and_then(|key| state.repos.get(key));
    let parent = parent.map(|parent| &**parent);
    Ok(Json(full_repo(&cx.github, repo, parent)).into_response())
}

/// Serves everything below a repository by the repository's id. GitHub does not document these routes, but redirects
/// to them from former names.
pub(super) async fn by_id(
    State(cx): State<Cx>,
    Path(rest): Path<String>,
    request: Request,
) -> WireResponse {
    let (id, rest) = rest
        .split_once('/')
        .map_or((rest.as_str(), ""), |(id, rest)| (id, rest));
    let name = id.parse().ok().and_then(|id| {
        cx.world
            .state()
            .repo_by_id(id)
            .map(|repo| repo.name.to_string())
    });
    let name = name.ok_or(ApiError::NotFound)?;
    let query = request
        .uri()
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let slash = if rest.is_empty() { "" } else { "/" };
    let uri: Uri = format!("/repos/{name}{slash}{rest}{query}")
        .parse()
        .map_err(|_| ApiError::NotFound)?;
    // The request is created again, because routing adds the path parameters that it finds to earlier ones.
    let (parts, body) = request.into_parts();
    let mut request = Request::new(body);
    (
        *request.method_mut(),
        *request.headers_mut(),
        *request.uri_mut(),
    ) = (parts.method, parts.headers, uri);
    if let (Some(caller), Some(asked)) = (
        parts.extensions.get::<Caller>(),
        parts.extensions.get::<RequestedUri>(),
    ) {
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(asked.clone());
    }
    match TowerToHyperService::new(of_repos(&cx)).call(request).await {
        Ok(response) => Ok(response),
        Err(never) => match never {},
    }
}

/// Builds the redirect for a request with a former name. The path is without the base of the API.
pub(super) fn moved(cx: &Cx, path: &str, query: Option<&str>) -> Option<Response> {
    let (owner, rest) = path.strip_prefix("/repos/")?.split_once('/')?;
    let (name, rest) = rest
        .split_once('/')
        .map_or((rest, String::new()), |(name, rest)| {
            (name, format!("/{rest}"))
        });
    let key = format!("{owner}/{name}").to_ascii_lowercase();
    let state = cx.world.state();
    let id = state
        .moved
        .get(&key)
        .filter(|_| !state.repos.contains_key(&key))?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let url = format!(
        "{}/api/v3/repositories/{id}{rest}{query}",
        cx.github.base_url
    );
    let body = json!({ "message": "Moved Permanently", "url": url, "documentation_url": super::errors::DOCUMENTATION });
    Some(
        (
            StatusCode::MOVED_PERMANENTLY,
            [(header::LOCATION, url)],
            Json(body),
        )
            .into_response(),
    )
}
