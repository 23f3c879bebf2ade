//! Releases locks and hands them over for the pages and the API: permission, result and messages.

use crate::config::access::Asker;
use crate::handlers::authz::Resource;
use crate::handlers::locks::{action, explain};
use crate::kit::web::Web;
use crate::kit::web::errors::Failure;
use crate::kit::web::reach::Sight;
use crate::locks::{Gave, Given, Giving};
use crate::model::{Lock, LockId, LockName, PullNumber, Reason};

/// Request to take a lock from its pull.
pub(super) struct LockWish {
    /// Pull that gets the lock. `None`: the first in the queue.
    pub to: Option<PullNumber>,
    /// True if the lock is taken even if it is in use.
    pub force: bool,
    /// Reason of the request.
    pub reason: Option<Reason>,
}

/// Reads a reason from a request.
pub(super) fn read_reason(text: &str) -> Result<Option<Reason>, Failure> {
    Reason::read(text).map_err(|problem| {
        Failure::unusable_field("reason", &problem.to_string(), "Use a shorter reason.")
    })
}

/// Takes a lock from its pull if the user may. `asked` is the requested name of the lock.
pub(super) async fn give_lock(
    web: &Web,
    id: LockId,
    asked: &str,
    who: &Asker,
    wish: LockWish,
) -> Result<Given, Failure> {
    let Some(lock) = web.store.lock_get(id).await? else {
        return Err(Failure::no_such_lock(asked));
    };
    let LockWish { to, force, reason } = wish;
    let giving = Giving {
        lock: id,
        to,
        force,
        reason,
        actor: who.actor(),
        remote: who.remote.clone(),
    };
    web.permit(who, action(&giving), &Resource::Lock(&lock))
        .await?;
    match web.giving.give(&giving).await? {
        Gave::Done(given) => Ok(*given),
        Gave::NotHeld => Err(Failure::no_such_lock(asked)),
        Gave::Refused(lock, why) => Err(Failure::lock_is_kept(
            why,
            &explain(&lock, why, &web.executable),
        )),
    }
}

/// Lock that a text names.
pub(super) enum Found {
    One(Box<Lock>),
    /// Several locks with the same classic name: on several hosts, or with a path and a project that read the same.
    Several,
    None,
}

/// Finds a lock like [`find_lock`], if the user may see it.
pub(super) async fn find_seen_lock(
    web: &Web,
    sight: &Sight,
    asked: &str,
) -> Result<Found, Failure> {
    let found = find_lock(web, asked).await?;
    match &found {
        Found::One(lock) => sight.must_see(&Resource::Lock(lock)).await?,
        // Neither reveals anything.
        Found::Several | Found::None => {}
    }
    Ok(found)
}

/// Finds a lock by identifier or classic name (see [`LockName`]). With the host in front, a name means one lock.
async fn find_lock(web: &Web, asked: &str) -> Result<Found, Failure> {
    if let Ok(id) = asked.parse::<LockId>() {
        let lock = web.store.lock_get(id).await?;
        return Ok(lock.map_or(Found::None, |lock| Found::One(Box::new(lock))));
    }
    let Ok(name) = asked.parse::<LockName>() else {
        return Ok(Found::None);
    };
    Ok(
        match name.choose(web.store.lock_list_called(&name).await?) {
            Ok(None) => Found::None,
            Ok(Some(lock)) => Found::One(Box::new(lock)),
            Err(_) => Found::Several,
        },
    )
}

/// Finds the one lock that a script names.
pub(super) async fn the_lock(web: &Web, sight: &Sight, asked: &str) -> Result<Lock, Failure> {
    match find_seen_lock(web, sight, asked).await? {
        Found::One(lock) => Ok(*lock),
        Found::None => Err(Failure::no_such_lock(asked)),
        Found::Several => Err(Failure::several_locks(asked)),
    }
}
