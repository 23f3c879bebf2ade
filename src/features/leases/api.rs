//! `/api/leases`: work that only one server at a time may do.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::actions::{Release, not_held, release, seen};
use super::view::view;
use crate::kit::web::csrf::Script;
use crate::kit::web::extract::{LenientQuery, OwnerQuery, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};
use crate::store::{FreeLease, LeaseRow, Store};

/// `GET /api/leases?owner=…`: all leases that the user may see, by key, a thousand at most; `more` says if there may be
/// others. With `owner`: the leases of mirrors of repositories that it has claimed.
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(of): LenientQuery<OwnerQuery>,
) -> Result<Json<Value>, WebError> {
    let leases = seen(&web, &visible, of.owner.as_deref()).await?;
    let more = leases.len() >= usize::from(Store::LEASES_LISTED);
    let leases: Vec<Value> = leases.iter().map(view).collect();
    Ok(Json(json!({ "leases": leases, "more": more })))
}

/// `?reason=…&holder=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseReleaseQuery {
    reason: String,
    holder: Option<String>,
}

/// `DELETE /api/leases/{key}?reason=…`: 200 if it is now `free`, 202 if its holder was asked to stop (`stopping`).
pub(super) async fn end(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(key): Segment,
    LenientQuery(params): LenientQuery<LeaseReleaseQuery>,
) -> Result<(StatusCode, Json<Value>), WebError> {
    let request = Release {
        key: &key,
        holder: params.holder.as_deref(),
        reason: &params.reason,
    };
    let (status, state, lease) = match release(&web, request, &who.by_script()).await? {
        FreeLease::Freed(lease) => (StatusCode::OK, "free", lease),
        FreeLease::Told(lease) | FreeLease::AlreadyTold(lease) => {
            (StatusCode::ACCEPTED, "stopping", lease)
        }
        FreeLease::NotHeld => return Err(not_held()),
    };
    let mut told = view(&LeaseRow {
        lease,
        replica: None,
    });
    told["state"] = state.into();
    Ok((status, Json(told)))
}
