//! `/api/apply-locks`, and the routes by which scripts of Atlantis stop applies.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::actions::{StopOutcome, allow, allow_all, already_set, not_set, seen, stop, unusable};
use super::input::{ApplyLockField, ApplyLockFields, ApplyLockProblem, NewApplyLock};
use super::view::ApplyLockView;
use crate::kit::web::csrf::Script;
use crate::kit::web::extract::{JsonBody, LenientQuery, OwnerQuery, Segment};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState};
use crate::model::ApplyLockId;

/// All apply locks, the widest scope first.
#[derive(Serialize)]
pub(super) struct ApplyLocks {
    apply_locks: Vec<ApplyLockView>,
}

/// `GET /api/apply-locks?owner=…`. With `owner`: the apply locks of repositories that it has claimed, and those of the whole
/// server.
pub(super) async fn list(
    State(web): State<Arc<WebState>>,
    visible: VisibleScope,
    LenientQuery(of): LenientQuery<OwnerQuery>,
) -> Result<Json<ApplyLocks>, WebError> {
    let locks = seen(&web, &visible, of.owner.as_deref()).await?;
    Ok(Json(ApplyLocks {
        apply_locks: locks.iter().map(ApplyLockView::from).collect(),
    }))
}

/// Body of a request to stop applies.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ApplyLockBody {
    repo: Option<String>,
    dir: Option<String>,
    reason: String,
    until: Option<String>,
}

impl ApplyLockBody {
    fn read(&self) -> Result<NewApplyLock, Vec<ApplyLockProblem>> {
        let fields = ApplyLockFields {
            repo: self.repo.as_deref().unwrap_or_default(),
            dir: self.dir.as_deref().unwrap_or_default(),
            reason: &self.reason,
            until: self.until.as_deref().unwrap_or_default(),
        };
        // Probably an unset variable of the script, which must not widen the scope.
        let given = [
            (ApplyLockField::Repo, &self.repo),
            (ApplyLockField::Dir, &self.dir),
            (ApplyLockField::Until, &self.until),
        ];
        let empty = given
            .into_iter()
            .filter(|(_, text)| text.as_ref().is_some_and(|text| text.trim().is_empty()));
        let empty = empty.map(|(field, _)| {
            ApplyLockProblem::new(
                field,
                "The value is empty. Give a value, or leave the field out.",
            )
        });
        let empty: Vec<_> = empty.collect();
        if empty.is_empty() {
            fields.new_lock()
        } else {
            Err(empty)
        }
    }
}

/// `POST /api/apply-locks`
pub(super) async fn set(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    JsonBody(body): JsonBody<ApplyLockBody>,
) -> Result<(StatusCode, Json<ApplyLockView>), WebError> {
    match stop(&web, body.read(), &who.by_script()).await? {
        StopOutcome::Set(lock) => Ok((StatusCode::CREATED, Json((&lock).into()))),
        StopOutcome::AlreadySet(lock) => Err(already_set(&lock)),
        StopOutcome::Wrong(problems) => Err(unusable(&problems)),
    }
}

/// `DELETE /api/apply-locks/{id}`; the answer is the ended apply lock.
pub(super) async fn end(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
    Segment(asked): Segment,
) -> Result<Json<ApplyLockView>, WebError> {
    let id: ApplyLockId = asked.parse().map_err(|_| not_set())?;
    let ended = allow(&web, id, &who.by_script()).await?;
    ended.map(|lock| Json((&lock).into())).ok_or_else(not_set)
}

/// Reason for scripts that give none.
const REASON: &str = "stopped by a script, without a reason";

/// `POST /apply/lock`
pub(super) async fn stop_applies(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
) -> Result<&'static str, WebError> {
    let read = ApplyLockFields {
        reason: REASON,
        ..ApplyLockFields::default()
    }
    .new_lock();
    match stop(&web, read, &who.by_script()).await? {
        StopOutcome::Set(_) => Ok("All applies are stopped.\n"),
        StopOutcome::AlreadySet(_) => Ok("All applies were already stopped.\n"),
        StopOutcome::Wrong(problems) => Err(unusable(&problems)),
    }
}

/// `DELETE /apply/unlock`
pub(super) async fn allow_applies(
    State(web): State<Arc<WebState>>,
    Script(who): Script,
) -> Result<&'static str, WebError> {
    let ended = allow_all(&web, &who.by_script()).await?;
    Ok(if ended.is_some() {
        "Applies are allowed again.\n"
    } else {
        "Applies were not stopped.\n"
    })
}
