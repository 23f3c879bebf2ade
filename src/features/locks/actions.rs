//! Taking locks from pulls, for the pages and the API: who may, what came of it, and how that is said.

use crate::config::access::Asker;
use crate::handlers::authz::Resource;
use crate::handlers::locks::{action, explain};
use crate::kit::web::Web;
use crate::kit::web::errors::Failure;
use crate::kit::web::reach::Sight;
use crate::locks::{Gave, Given, Giving};
use crate::model::{Lock, LockId, LockName, PullNumber, Reason};

/// What somebody wants to be done with a lock.
pub(super) struct LockWish {
    /// The pull that gets it; `None`: the first in line.
    pub to: Option<PullNumber>,
    /// In spite of what goes on under it.
    pub force: bool,
    /// Why.
    pub reason: Option<Reason>,
}

/// Reads a reason that came over the network.
pub(super) fn read_reason(text: &str) -> Result<Option<Reason>, Failure> {
    Reason::read(text).map_err(|problem| {
        Failure::unusable_field("reason", &problem.to_string(), "Say it in fewer words.")
    })
}

/// Takes a lock from its pull for somebody who may. `asked` is how the lock was named.
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

/// Which lock a text means.
pub(super) enum Found {
    One(Box<Lock>),
    /// Locks of the same classic name: on several hosts, or with a path and a project that read alike.
    Several,
    None,
}

/// Looks for a lock as [`find_lock`] does, among those that somebody may see.
pub(super) async fn find_seen_lock(
    web: &Web,
    sight: &Sight,
    asked: &str,
) -> Result<Found, Failure> {
    let found = find_lock(web, asked).await?;
    match &found {
        Found::One(lock) => sight.must_see(&Resource::Lock(lock)).await?,
        // Nothing is told of either.
        Found::Several | Found::None => {}
    }
    Ok(found)
}

/// Looks for a lock by identifier or classic name (see [`LockName`]); with the host before it, a name means one lock.
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

/// The one lock that a script means.
pub(super) async fn the_lock(web: &Web, sight: &Sight, asked: &str) -> Result<Lock, Failure> {
    match find_seen_lock(web, sight, asked).await? {
        Found::One(lock) => Ok(*lock),
        Found::None => Err(Failure::no_such_lock(asked)),
        Found::Several => Err(Failure::several_locks(asked)),
    }
}
