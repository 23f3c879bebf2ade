//! One lock: `GET /api/locks/{id}`, and its changes:
//! `POST /api/locks/{id}/release`, `POST /api/locks/{id}/hand-over`.
//!
//! `{id}` is the identifier, or the classic name with or without the host, percent-encoded or not. A change requires the
//! password and refuses browsers, as every route for scripts does.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::actions::{LockAction, hand_over_lock, read_reason, the_lock};
use super::view::{LockDetails, LockFactsJson, LockJson};
use crate::kit::web::csrf::Script;
use crate::kit::web::extract::{JsonBody, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};
use crate::locks::HandedOver;
use crate::model::Subject;

/// `GET /api/locks/{id}`
pub(super) async fn show(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    Segment(asked): Segment,
) -> Result<Json<LockFactsJson>, WebError> {
    let lock = the_lock(&web, &visible, &asked).await?;
    let facts = LockDetails::read(&web.store, lock).await?;
    Ok(Json(LockFactsJson::from(&facts)))
}

/// Body of a change. Each route checks which fields it takes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LockChangeBody {
    pull: Option<i64>,
    reason: Option<String>,
    force: bool,
}

/// Result of a change.
#[derive(Serialize)]
pub(super) struct Done {
    /// The lock before the change.
    lock: LockJson,
    /// True if a plan was discarded that could have been applied.
    plan_discarded: bool,
    /// Number of plans under way that will be interrupted.
    plans_interrupted: usize,
    /// Lock of the new holder.
    now: Option<LockJson>,
}

impl From<&HandedOver> for Done {
    fn from(given: &HandedOver) -> Self {
        Self {
            lock: LockJson::from(&given.lock),
            plan_discarded: given.plan,
            plans_interrupted: given.interrupted.len(),
            now: given.now.as_ref().map(LockJson::from),
        }
    }
}

/// `POST /api/locks/{id}/release` and `…/hand-over`.
pub(super) async fn change(
    State(web): State<Arc<WebState>>,
    Segment(path): Segment,
    Script(who): Script,
    visible: VisibleScope,
    JsonBody(wanted): JsonBody<LockChangeBody>,
) -> Result<Json<Done>, WebError> {
    let release = path.strip_suffix("/release").map(|asked| (asked, false));
    let named = release.or_else(|| path.strip_suffix("/hand-over").map(|asked| (asked, true)));
    let (asked, to_another) = named.ok_or_else(WebError::no_such_page)?;
    let to = match (to_another, wanted.pull) {
        (false, None) => None,
        (false, Some(_)) => return Err(not_taken()),
        (true, pull) => Some(receiver(pull)?),
    };
    let reason = read_reason(&wanted.reason.unwrap_or_default())?;
    let lock = the_lock(&web, &visible, asked).await?;
    let action = LockAction {
        to,
        force: wanted.force,
        reason,
    };
    let given = hand_over_lock(&web, lock.id, asked, &who.by_script(), action).await?;
    Ok(Json(Done::from(&given)))
}

fn receiver(pull: Option<i64>) -> Result<Subject, WebError> {
    let way_out = "Give the number of a queued pull request. GET of this lock lists them.";
    match pull {
        Some(number) if number > 0 => Ok(Subject::pull(number)),
        Some(_) => Err(WebError::unusable_field(
            "pull",
            "it is not the number of a pull request",
            way_out,
        )),
        None => Err(WebError::unusable_field("pull", "it is missing", way_out)),
    }
}

fn not_taken() -> WebError {
    let problem =
        "a release does not take it, because the first pull request in the queue gets the lock";
    WebError::unusable_field("pull", problem, "Leave it out, or use …/hand-over.")
}
