//! `/api/repos`: mirrors of repositories.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::actions::{mirrors_of, read_repo, read_state, request_sync};
use super::view::view;
use crate::kit::web::csrf::Script;
use crate::kit::web::extract::{JsonBody, LenientQuery, Segment, search_text};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};
use crate::store::MirrorSearch;

/// Maximum number of mirrors in one answer.
const LISTED: i64 = 1000;

/// `?q=…&state=…&owner=…&page=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MirrorListQuery {
    q: String,
    state: String,
    owner: Option<String>,
    /// Number of the page, from 1.
    page: Option<u32>,
}

/// `GET /api/repos`: failing mirrors first, a thousand in an answer. `found` is the number of all of them, and `next` is
/// the page to request for more, or `null`.
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(search): LenientQuery<MirrorListQuery>,
) -> Result<Json<Value>, WebError> {
    let (repos, page) = (
        visible.repos(search.owner.as_deref()).await?,
        search.page.unwrap_or(1).max(1),
    );
    let search = MirrorSearch {
        state: read_state(&search.state),
        text: search_text(&search.q)?,
        repos: repos.as_deref(),
        skip: i64::from(page - 1) * LISTED,
        limit: LISTED,
    };
    let found = web.store.mirror_search(search).await?;
    let next = (found.count > i64::from(page) * LISTED).then_some(i64::from(page) + 1);
    let mirrors: Vec<Value> = found.rows.iter().map(view).collect();
    Ok(Json(
        json!({ "found": found.count, "mirrors": mirrors, "next": next }),
    ))
}

/// `GET /api/repos/{host}/{path}`: the mirrors of one repository, by disk.
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Json<Value>, WebError> {
    let repo = read_repo(&asked)?;
    let mirrors: Vec<Value> = mirrors_of(&web, &visible, &repo)
        .await?
        .iter()
        .map(view)
        .collect();
    Ok(Json(json!({ "repo": repo, "mirrors": mirrors })))
}

/// Body of a request for a sync.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MirrorBody {
    reason: String,
}

/// `POST /api/repos/{host}/{path}/sync`: 202, because each server syncs its own mirror soon.
pub(super) async fn sync(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
    JsonBody(body): JsonBody<MirrorBody>,
) -> Result<(StatusCode, Json<Value>), WebError> {
    let asked = asked
        .strip_suffix("/sync")
        .ok_or_else(WebError::no_such_page)?;
    let repo = read_repo(asked)?;
    let mirrors = request_sync(&web, &repo, &body.reason, &who.by_script()).await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(json!({ "repo": repo, "mirrors": mirrors })),
    ))
}
