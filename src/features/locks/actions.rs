//! Releases locks and hands them over for the pages and the API: permission, result and messages.

use axum::http::StatusCode;

use super::errors::{no_such_lock, several_locks};
use super::{KeptLockReason, action, explain};
use crate::authz::Resource;
use crate::config::access::NetworkRequester;
use crate::kit::web::WebState;
use crate::kit::web::errors::WebError;
use crate::kit::web::reach::VisibleScope;
use crate::locks::{HandOver, HandOverOutcome, HandedOver, KeptReason};
use crate::model::{Lock, LockId, LockName, Reason, Subject};

/// Request to take a lock from its pull.
pub(super) struct LockAction {
    /// Pull that gets the lock. `None`: the first in the queue.
    pub to: Option<Subject>,
    /// True if the lock is taken even if it is in use.
    pub force: bool,
    /// Reason of the request.
    pub reason: Option<Reason>,
}

/// Reads a reason from a request.
pub(super) fn read_reason(text: &str) -> Result<Option<Reason>, WebError> {
    Reason::read(text).map_err(|problem| {
        WebError::unusable_field("reason", &problem.to_string(), "Use a shorter reason.")
    })
}

/// Takes a lock from its pull if the user may. `asked` is the requested name of the lock.
pub(super) async fn hand_over_lock(
    web: &WebState,
    id: LockId,
    asked: &str,
    who: &NetworkRequester,
    requested: LockAction,
) -> Result<HandedOver, WebError> {
    let Some(lock) = web.store.lock_get(id).await? else {
        return Err(no_such_lock(asked));
    };
    let LockAction { to, force, reason } = requested;
    let giving = HandOver {
        lock: id,
        to,
        force,
        reason,
        actor: who.actor(),
        remote: who.remote.clone(),
    };
    web.permit(who, action(&giving), &Resource::Lock(&lock))
        .await?;
    match web.hand_over.hand_over(&giving).await? {
        HandOverOutcome::Done(given) => Ok(*given),
        HandOverOutcome::NotHeld => Err(no_such_lock(asked)),
        HandOverOutcome::Refused(lock, why) => {
            Err(kept(why, &explain(&lock, why, &web.executable)))
        }
    }
}

/// Failure for a lock that its pull request keeps.
fn kept(why: KeptReason, explained: &KeptLockReason) -> WebError {
    let head = match why {
        KeptReason::ReasonWanted => (StatusCode::UNPROCESSABLE_ENTITY, "Reason required"),
        KeptReason::ApplyRunning => (StatusCode::CONFLICT, "Apply is running"),
        KeptReason::PlanRunning | KeptReason::ApplyWaiting => (StatusCode::CONFLICT, "Lock in use"),
        KeptReason::Applied => (StatusCode::CONFLICT, "Unmerged apply"),
        KeptReason::NotQueued(_) => (StatusCode::CONFLICT, "Not queued"),
        KeptReason::Circle(_) => (StatusCode::CONFLICT, "Circular wait"),
    };
    let KeptLockReason {
        field,
        code,
        message,
        way_out,
    } = explained;
    WebError::nothing_changed(head, *field, code, message, way_out)
}

/// Lock that a text names.
pub(super) enum LockLookup {
    One(Box<Lock>),
    /// Several locks with the same classic name: on several hosts, or with a path and a project that read the same.
    Several,
    None,
}

/// Finds a lock like [`find_lock`], if the user may see it.
pub(super) async fn find_seen_lock(
    web: &WebState,
    visible: &VisibleScope,
    asked: &str,
) -> Result<LockLookup, WebError> {
    let found = find_lock(web, asked).await?;
    match &found {
        LockLookup::One(lock) => visible.require_access(&Resource::Lock(lock)).await?,
        // Neither reveals anything.
        LockLookup::Several | LockLookup::None => {}
    }
    Ok(found)
}

/// Finds a lock by identifier or classic name (see [`LockName`]). With the host in front, a name means one lock.
async fn find_lock(web: &WebState, asked: &str) -> Result<LockLookup, WebError> {
    if let Ok(id) = asked.parse::<LockId>() {
        let lock = web.store.lock_get(id).await?;
        return Ok(lock.map_or(LockLookup::None, |lock| LockLookup::One(Box::new(lock))));
    }
    let Ok(name) = asked.parse::<LockName>() else {
        return Ok(LockLookup::None);
    };
    Ok(match name.choose(web.store.lock_list_named(&name).await?) {
        Ok(None) => LockLookup::None,
        Ok(Some(lock)) => LockLookup::One(Box::new(lock)),
        Err(_) => LockLookup::Several,
    })
}

/// Finds the one lock that a script names.
pub(super) async fn the_lock(
    web: &WebState,
    visible: &VisibleScope,
    asked: &str,
) -> Result<Lock, WebError> {
    match find_seen_lock(web, visible, asked).await? {
        LockLookup::One(lock) => Ok(*lock),
        LockLookup::None => Err(no_such_lock(asked)),
        LockLookup::Several => Err(several_locks(asked)),
    }
}
