//! Sets and ends apply locks for pages and scripts, after a check of permissions.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use tracing::warn;

use super::input::{ApplyLockProblem, NewApplyLock};
use super::store::SetApplyLock;
use crate::config::access::{Action, NetworkRequester};
use crate::kit::web::reach::VisibleScope;
use crate::kit::web::{WebError, WebState, shown};
use crate::model::{ApplyLock, ApplyLockId, ApplyScope, Cause, Origin, RepoId, minute};

/// Returns the apply locks that the user may see, or those of the repositories of one owner. Locks of the whole server are
/// always included.
pub(crate) async fn seen(
    web: &WebState,
    visible: &VisibleScope,
    owner: Option<&str>,
) -> Result<Vec<ApplyLock>, WebError> {
    let locks = web.store.apply_lock_list().await?;
    let Some(repos) = visible.repos(owner).await? else {
        return Ok(locks);
    };
    let repos: BTreeSet<RepoId> = repos.into_iter().collect();
    let concerns = |lock: &ApplyLock| lock.scope.repo().is_none_or(|repo| repos.contains(repo));
    Ok(locks.into_iter().filter(concerns).collect())
}

/// Result of a request to stop applies.
#[must_use]
pub(super) enum StopOutcome {
    /// The new apply lock.
    Set(ApplyLock),
    /// The existing apply lock with the same scope.
    AlreadySet(ApplyLock),
    /// Problems of the request.
    Wrong(Vec<ApplyLockProblem>),
}

/// Stops applies if the user may.
pub(super) async fn stop(
    web: &WebState,
    read: Result<NewApplyLock, Vec<ApplyLockProblem>>,
    who: &NetworkRequester,
) -> Result<StopOutcome, WebError> {
    let new = match read {
        Ok(new) => new,
        Err(problems) => return Ok(StopOutcome::Wrong(problems)),
    };
    web.permit(who, Action::ApplyLock, &(&new.scope).into())
        .await?;
    match web
        .store
        .apply_lock_set(
            &new.scope,
            new.ends_at,
            &new.cause(who.actor()).from_address(who.remote.clone()),
        )
        .await?
    {
        SetApplyLock::Set(lock) => {
            warn!(who = who.name(), scope = %lock.scope, reason = lock.reason, until = ?lock.ends_at, "Somebody stopped applies");
            Ok(StopOutcome::Set(lock))
        }
        SetApplyLock::AlreadySet(lock) => Ok(StopOutcome::AlreadySet(lock)),
        SetApplyLock::Over(now) => {
            let problem = new.ends_at.map(|end| ApplyLockProblem::over(end, now));
            Ok(StopOutcome::Wrong(problem.into_iter().collect()))
        }
        SetApplyLock::TooMany(most) => Err(too_many(most)),
    }
}

/// Ends one apply lock if the user may. `None`: there is no such lock any more.
pub(super) async fn allow(
    web: &WebState,
    id: ApplyLockId,
    who: &NetworkRequester,
) -> Result<Option<ApplyLock>, WebError> {
    let Some(lock) = web.store.apply_lock_find(id).await? else {
        return Ok(None);
    };
    web.permit(who, Action::ApplyLock, &(&lock.scope).into())
        .await?;
    end(web, &lock, who).await
}

/// Ends the lock that stops everything. `None`: there is none.
pub(super) async fn allow_all(
    web: &WebState,
    who: &NetworkRequester,
) -> Result<Option<ApplyLock>, WebError> {
    let all = ApplyScope::Server;
    web.permit(who, Action::ApplyLock, &(&all).into()).await?;
    let Some(lock) = web.store.apply_lock_get(&all).await? else {
        return Ok(None);
    };
    end(web, &lock, who).await
}

async fn end(
    web: &WebState,
    lock: &ApplyLock,
    who: &NetworkRequester,
) -> Result<Option<ApplyLock>, WebError> {
    let actor = who.actor();
    let how = if actor.origin == Origin::Api {
        "allowed again by a script"
    } else {
        "allowed again on the dashboard"
    };
    let cause = Cause::new(actor, how).from_address(who.remote.clone());
    let ended = web.store.apply_lock_clear_one(lock.id, &cause).await?;
    if let Some(lock) = &ended {
        warn!(who = who.name(), scope = %lock.scope, "Somebody allowed applies again");
    }
    Ok(ended)
}

/// Explains why a second lock with the same scope is not set.
pub(super) fn set_before(lock: &ApplyLock) -> String {
    let until = lock
        .ends_at
        .map(|end| format!(" until {}", minute(end)))
        .unwrap_or_default();
    format!(
        "{} has stopped these applies since {}{until}: {}. That lock was not changed. End it first to set another.",
        shown(&lock.holder.to_string()),
        minute(lock.taken_at),
        shown(&lock.reason)
    )
}

/// Returns the failure for invalid fields of a request.
pub(super) fn unusable(problems: &[ApplyLockProblem]) -> WebError {
    WebError::wrong_fields(
        problems
            .iter()
            .map(|problem| (problem.field.as_str(), problem.text.as_str())),
    )
}

/// Says that no apply lock has this identifier.
pub(super) fn not_set() -> WebError {
    let message = "No apply lock has this identifier. Most likely it has expired, or somebody ended it. GET \
                   /api/apply-locks and the page of apply locks show the current ones.";
    WebError::new(StatusCode::NOT_FOUND, "Apply lock not found", message)
}

/// Says that the same applies are already stopped.
pub(super) fn already_set(lock: &ApplyLock) -> WebError {
    WebError::new(StatusCode::CONFLICT, "Already stopped", set_before(lock))
}

fn too_many(most: usize) -> WebError {
    let message = format!(
        "There are {most} apply locks, which is the maximum. Nothing was changed. End some of them, or stop a whole \
         repository or the whole server with one."
    );
    WebError::new(StatusCode::CONFLICT, "Too many apply locks", message)
}
