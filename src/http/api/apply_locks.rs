//! `/api/apply-locks`: what stops applies.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use super::OfOwner;
use crate::http::apply_locks::{Stopping, allow, seen, set_before, stop};
use crate::http::csrf::Script;
use crate::http::extract::{Asked, JsonBody, Segment};
use crate::http::reach::Sight;
use crate::http::{Failure, Web};
use crate::model::{
    ApplyLock, ApplyLockField, ApplyLockFields, ApplyLockId, ApplyLockProblem, ApplyLockWish,
    ApplyScope,
};

/// All of them, the widest first.
#[derive(Serialize)]
pub(super) struct ApplyLocks {
    apply_locks: Vec<ApplyLockJson>,
}

/// One of them.
#[derive(Serialize)]
pub(super) struct ApplyLockJson {
    id: String,
    /// `server`, `repo`, `path`, or `unknown`, which stops everything.
    scope: &'static str,
    repo: Option<String>,
    dir: Option<String>,
    holder: String,
    reason: String,
    since: String,
    until: Option<String>,
    /// What stands on record in place of a scope that this version understands.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_understood: Option<String>,
}

impl From<ApplyLock> for ApplyLockJson {
    fn from(lock: ApplyLock) -> Self {
        let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        Self {
            id: lock.id.to_string(),
            scope: lock.scope.kind(),
            repo: lock.scope.repo().map(ToString::to_string),
            dir: lock.scope.dir().map(ToString::to_string),
            holder: lock.holder,
            reason: lock.reason,
            since: time(lock.taken_at),
            until: lock.ends_at.map(time),
            not_understood: match lock.scope {
                ApplyScope::Unknown(text) => Some(text),
                ApplyScope::Server | ApplyScope::Repo(_) | ApplyScope::Path { .. } => None,
            },
        }
    }
}

/// `GET /api/apply-locks?owner=…`. Of an owner: those that stop applies in repositories that it has claimed, with those
/// that stop everything.
pub(super) async fn list(
    State(web): State<Arc<Web>>,
    sight: Sight,
    Asked(of): Asked<OfOwner>,
) -> Result<Json<ApplyLocks>, Failure> {
    let locks = seen(&web, &sight, of.owner.as_deref()).await?;
    Ok(Json(ApplyLocks {
        apply_locks: locks.into_iter().map(ApplyLockJson::from).collect(),
    }))
}

/// What is to be stopped.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Wish {
    repo: Option<String>,
    dir: Option<String>,
    reason: String,
    until: Option<String>,
}

impl Wish {
    fn read(&self) -> Result<ApplyLockWish, Vec<ApplyLockProblem>> {
        let fields = ApplyLockFields {
            repo: self.repo.as_deref().unwrap_or_default(),
            dir: self.dir.as_deref().unwrap_or_default(),
            reason: &self.reason,
            until: self.until.as_deref().unwrap_or_default(),
        };
        // Most likely a variable of the script that was not set: it must not widen what is stopped.
        let given = [
            (ApplyLockField::Repo, &self.repo),
            (ApplyLockField::Dir, &self.dir),
            (ApplyLockField::Until, &self.until),
        ];
        let empty = given
            .into_iter()
            .filter(|(_, text)| text.as_ref().is_some_and(|text| text.trim().is_empty()));
        let empty = empty.map(|(field, _)| {
            ApplyLockProblem::new(field, "It is empty. Give it a value, or leave it out.")
        });
        let empty: Vec<_> = empty.collect();
        if empty.is_empty() {
            fields.wish()
        } else {
            Err(empty)
        }
    }
}

/// `POST /api/apply-locks`
pub(super) async fn set(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    JsonBody(wish): JsonBody<Wish>,
) -> Result<(StatusCode, Json<ApplyLockJson>), Failure> {
    match stop(&web, wish.read(), &who.by_script()).await? {
        Stopping::Set(lock) => Ok((StatusCode::CREATED, Json(lock.into()))),
        Stopping::AlreadySet(lock) => Err(Failure::stopped_before(&set_before(&lock))),
        Stopping::Wrong(problems) => Err(Failure::wrong_fields(&problems)),
    }
}

/// `DELETE /api/apply-locks/{id}`; the answer is what was ended.
pub(super) async fn end(
    State(web): State<Arc<Web>>,
    Script(who): Script,
    Segment(asked): Segment,
) -> Result<Json<ApplyLockJson>, Failure> {
    let id: ApplyLockId = asked.parse().map_err(|_| Failure::no_such_apply_lock())?;
    let ended = allow(&web, id, &who.by_script()).await?;
    ended
        .map(|lock| Json(lock.into()))
        .ok_or_else(Failure::no_such_apply_lock)
}
