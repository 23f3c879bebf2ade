//! Stopping applies and allowing them again, for the pages and the API alike.

use std::collections::BTreeSet;

use tracing::warn;

use super::reach::Sight;
use super::{Failure, Web};
use crate::config::access::{Action, Asker};
use crate::model::{
    ApplyLock, ApplyLockId, ApplyLockProblem, ApplyLockWish, ApplyScope, Cause, Origin, RepoId,
    minute,
};
use crate::store::SetApplyLock;

/// Those that concern what somebody may see, or the repositories of one owner alone: what stops everything concerns
/// everybody.
pub(super) async fn seen(
    web: &Web,
    sight: &Sight,
    owner: Option<&str>,
) -> Result<Vec<ApplyLock>, Failure> {
    let locks = web.store.apply_lock_list().await?;
    let Some(repos) = sight.repos(owner).await? else {
        return Ok(locks);
    };
    let repos: BTreeSet<RepoId> = repos.into_iter().collect();
    let concerns = |lock: &ApplyLock| lock.scope.repo().is_none_or(|repo| repos.contains(repo));
    Ok(locks.into_iter().filter(concerns).collect())
}

/// What came of the wish to stop applies.
#[must_use]
pub(super) enum Stopping {
    /// They are stopped.
    Set(ApplyLock),
    /// Somebody had stopped the same applies before.
    AlreadySet(ApplyLock),
    /// Something is wrong with the wish.
    Wrong(Vec<ApplyLockProblem>),
}

/// Stops applies for somebody who may.
pub(super) async fn stop(
    web: &Web,
    wish: Result<ApplyLockWish, Vec<ApplyLockProblem>>,
    who: &Asker,
) -> Result<Stopping, Failure> {
    let wish = match wish {
        Ok(wish) => wish,
        Err(problems) => return Ok(Stopping::Wrong(problems)),
    };
    web.permit(who, Action::ApplyLock, &(&wish.scope).into())
        .await?;
    match web
        .store
        .apply_lock_set(
            &wish.scope,
            wish.ends_at,
            &wish.cause(who.actor()).from_address(who.remote.clone()),
        )
        .await?
    {
        SetApplyLock::Set(lock) => {
            warn!(who = who.name(), scope = %lock.scope, reason = lock.reason, until = ?lock.ends_at, "Applies are stopped");
            Ok(Stopping::Set(lock))
        }
        SetApplyLock::AlreadySet(lock) => Ok(Stopping::AlreadySet(lock)),
        SetApplyLock::Over(now) => {
            let problem = wish.ends_at.map(|end| ApplyLockProblem::over(end, now));
            Ok(Stopping::Wrong(problem.into_iter().collect()))
        }
        SetApplyLock::TooMany(most) => Err(Failure::too_many_apply_locks(most)),
    }
}

/// Ends one lock for somebody who may; `None`: it is not set any more.
pub(super) async fn allow(
    web: &Web,
    id: ApplyLockId,
    who: &Asker,
) -> Result<Option<ApplyLock>, Failure> {
    let Some(lock) = web.store.apply_lock_find(id).await? else {
        return Ok(None);
    };
    web.permit(who, Action::ApplyLock, &(&lock.scope).into())
        .await?;
    end(web, &lock, who).await
}

/// Ends the lock that stops everything; `None`: there is none.
pub(super) async fn allow_all(web: &Web, who: &Asker) -> Result<Option<ApplyLock>, Failure> {
    let all = ApplyScope::Server;
    web.permit(who, Action::ApplyLock, &(&all).into()).await?;
    let Some(lock) = web.store.apply_lock_get(&all).await? else {
        return Ok(None);
    };
    end(web, &lock, who).await
}

async fn end(web: &Web, lock: &ApplyLock, who: &Asker) -> Result<Option<ApplyLock>, Failure> {
    let actor = who.actor();
    let how = if actor.origin == Origin::Api {
        "allowed again by a script"
    } else {
        "allowed again on the dashboard"
    };
    let cause = Cause::new(actor, how).from_address(who.remote.clone());
    let ended = web.store.apply_lock_clear_one(lock.id, &cause).await?;
    if let Some(lock) = &ended {
        warn!(who = who.name(), scope = %lock.scope, "Applies are allowed again");
    }
    Ok(ended)
}

/// Why a second lock for the same applies is not set.
pub(super) fn set_before(lock: &ApplyLock) -> String {
    let until = lock
        .ends_at
        .map(|end| format!(" until {}", minute(end)))
        .unwrap_or_default();
    format!(
        "{} has stopped these applies since {}{until}: {}. That lock stays as it is; end it first to set another.",
        super::pages::shown(&lock.holder),
        minute(lock.taken_at),
        super::pages::shown(&lock.reason)
    )
}
