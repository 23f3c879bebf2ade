//! `/api/audit`: the audit log, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::view::view;
use crate::kit::web::cursor::{PAGE, next_of};
use crate::kit::web::extract::Asked;
use crate::kit::web::reach::Sight;
use crate::kit::web::{Failure, Web};

/// A part of the log.
#[derive(Serialize)]
pub(super) struct Events {
    events: Vec<Value>,
    /// What to ask for with `after` to see older ones; `null`: there are none.
    next: Option<String>,
}

/// Which are asked for.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Which {
    /// What concerns this owner, and the repositories that it has claimed.
    owner: Option<String>,
    /// Those that come after what was the last of a part: older ones.
    after: Option<i64>,
}

/// `GET /api/audit?owner=…`, `?after=…`
pub(super) async fn list(
    State(web): State<Arc<Web>>,
    sight: Sight,
    Asked(which): Asked<Which>,
) -> Result<Json<Events>, Failure> {
    let of = sight.concerns(which.owner.as_deref()).await?;
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
