//! `/audit`: events, newest first. An account that is limited to owners sees events of these and of their repositories.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::event_words;
use crate::kit::web::cursor::is_full;
use crate::kit::web::extract::LenientQuery;
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::text::{PastTime, query, shown};
use crate::kit::web::visitor::Visitor;
use crate::kit::web::{WebError, WebState};
use crate::model::{ApplyScope, Concern, LockEvent};

/// Maximum number of events on a page.
const MOST: i64 = 100;

/// `?owner=…&after=…`
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditQuery {
    owner: String,
    after: String,
}

#[derive(Serialize)]
struct AuditPage {
    events: Vec<AuditLine>,
    owners: Vec<String>,
    owner: String,
    /// True on the first page.
    is_newest: bool,
    next: Option<String>,
}

#[derive(Serialize)]
struct AuditLine {
    id: i64,
    /// Sequence number; `None` until the event is sealed.
    seq: Option<i64>,
    what: &'static str,
    repo: Option<String>,
    owner: Option<String>,
    /// `dir/workspace` of the lock, or the directory in which applies were stopped.
    place: Option<String>,
    pull: Option<String>,
    who: String,
    way: &'static str,
    why: String,
    at: PastTime,
}

impl AuditLine {
    fn new(kept: &LockEvent, now: DateTime<Utc>) -> Self {
        let (event, cause) = (&kept.event, &kept.event.cause);
        let lock = event
            .key
            .as_ref()
            .map(|key| format!("{}/{}", key.dir, key.workspace));
        let place = lock.or_else(|| {
            event
                .scope
                .as_ref()
                .and_then(ApplyScope::dir)
                .map(ToString::to_string)
        });
        Self {
            id: kept.place,
            seq: kept.seq(),
            what: event_words(event.kind),
            repo: event.about_repo().map(|repo| shown(&repo.to_string())),
            owner: event
                .concern
                .as_ref()
                .and_then(Concern::owner)
                .map(ToString::to_string),
            place: place.map(|place| shown(&place)),
            pull: kept.of_whom().map(|whom| shown(&whom)),
            who: shown(&kept.who().to_string()),
            way: cause.actor.origin.way(),
            why: shown(&cause.reason.replace('`', "")),
            at: PastTime::new(kept.at, now),
        }
    }
}

/// `GET /audit`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visitor: Visitor,
    visible: VisibleScope,
    LenientQuery(which): LenientQuery<AuditQuery>,
) -> Result<Response, WebError> {
    let asked = which.owner.trim();
    // An invalid place means the first page.
    let after: Option<i64> = which.after.trim().parse().ok();
    let of = visible.concerns(Some(asked)).await?;
    let events = web
        .store
        .lock_event_part(of.as_deref(), after, MOST)
        .await?;
    let (now, last) = (
        web.clock.now(),
        events.last().filter(|_| is_full(events.len(), MOST)),
    );
    let view = AuditPage {
        next: last.map(|last| query(&[("owner", asked), ("after", &last.place.to_string())])),
        is_newest: after.is_none(),
        events: events
            .iter()
            .map(|event| AuditLine::new(event, now))
            .collect(),
        owners: visible.owners_to_choose().await?,
        owner: shown(&asked.to_lowercase()),
    };
    visitor.page("audit.html", &view)
}
