//! `/api/audit`: the audit log, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::view::view;
use crate::kit::web::cursor::{PAGE, next_of};
use crate::kit::web::extract::LenientQuery;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};

/// Page of the log.
#[derive(Serialize)]
pub(super) struct Events {
    events: Vec<Value>,
    /// Value of `after` for older events. `null`: this is the last page.
    next: Option<String>,
}

/// Query of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditFilter {
    /// Owner that the events concern, or whose claimed repositories they concern.
    owner: Option<String>,
    /// Place of the last event of the page before. The page begins with older events.
    after: Option<i64>,
}

/// `GET /api/audit?owner=…`, `?after=…`
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<AuditFilter>,
) -> Result<Json<Events>, WebError> {
    let of = visible.concerns(which.owner.as_deref()).await?;
    let events = web
        .store
        .lock_event_part(of.as_deref(), which.after, PAGE)
        .await?;
    let next = next_of(&events, |event| event.place.to_string());
    Ok(Json(Events {
        events: events.iter().map(view).collect(),
        next,
    }))
}
