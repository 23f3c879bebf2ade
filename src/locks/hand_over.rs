//! Releases locks of pulls on request of other people, or hands them over.
//!
//! - *release*: the plans under the lock are discarded, and the first pull in the queue gets the lock, if there is one.
//!   Refused while a command of the pull works under the lock. Also refused if something was applied under it that is not
//!   merged, because the next plan of another pull would undo that;
//! - *force*: the same in spite of both, with a reason. A plan under way is interrupted, and a waiting apply does not find
//!   its plan. Never while an apply changes things (P4);
//! - *hand over*: a chosen pull in the queue gets the lock, regardless of its place. Refused if pulls would then wait for
//!   each other forever. Everything that forbids a release forbids this too, unless it is forced.
//!
//! Races, by name:
//! - *two requests for the same lock*: each names the lock by its identifier, and one deletes it. The other one is
//!   refused, even if the same pull has taken the lock again;
//! - *release meets apply*: the row of the pull is held, so an apply is either seen and spared, or does not find its plan;
//! - *release meets plan*: a plan that begins after the check is not interrupted, but is not kept either, because its lock
//!   is gone when the plan is to be recorded.

use super::lines::conflict;
use super::take::lines_of;
use crate::model::{
    Actor, Cause, CommandId, CommandKind, Lock, LockEventKind, LockId, LockUse, Reason, Subject,
    code_span, without_backticks,
};
use crate::store::{LockChange, NewJob, Result, Store, WaiterRow};

/// Request to take a lock from the pull that holds it.
#[derive(Clone, Debug)]
pub struct HandOver {
    pub lock: LockId,
    /// Pull that gets the lock. `None`: the first in the queue, if there is one.
    pub to: Option<Subject>,
    /// True if the lock is taken even if its pull works under it or has applied something.
    pub force: bool,
    /// Reason of the request, required with `force`.
    pub reason: Option<Reason>,
    pub actor: Actor,
    /// Network address that the request came from.
    pub remote: Option<String>,
}

/// Result of the request.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOverOutcome {
    /// The pull has lost the lock.
    Done(Box<HandedOver>),
    /// No pull held the lock any more.
    NotHeld,
    /// The pull keeps the lock.
    Refused(Box<Lock>, KeptReason),
}

/// A lock that was taken from its pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The lock before it was taken.
    pub lock: Lock,
    /// True if a plan was discarded that could have been applied.
    pub plan: bool,
    /// Plans under way that will be interrupted.
    pub interrupted: Vec<CommandId>,
    /// True if something was applied under the lock.
    pub applied: bool,
    /// Lock of the new holder on the same project or a part of it.
    pub now: Option<Lock>,
}

/// Reason why a pull keeps its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptReason {
    /// A forced request has no reason.
    ReasonWanted,
    /// An apply, an import or a `state rm` changes things under it.
    ApplyRunning,
    /// A plan is being made under the lock.
    PlanRunning,
    /// An apply, an import or a `state rm` is about to begin.
    ApplyWaiting,
    /// An apply under the lock is not merged.
    Applied,
    /// The chosen pull is not in the queue of the lock.
    NotQueued(Subject),
    /// If this pull got the lock, pulls would wait for each other forever.
    Circle(Subject),
}

impl KeptReason {
    /// Returns why a pull keeps its lock unless the request is forced.
    pub fn of(lock_use: &LockUse) -> Option<Self> {
        let changes = |(_, kind): &(CommandId, CommandKind)| kind.changes();
        if lock_use.applying {
            return Some(Self::ApplyRunning);
        }
        match lock_use.at_work.as_slice() {
            [] => lock_use.applied.then_some(Self::Applied),
            commands if commands.iter().any(changes) => Some(Self::ApplyWaiting),
            _ => Some(Self::PlanRunning),
        }
    }
}

/// Takes a lock from its pull. The jobs that `outbox` makes are queued in the same transaction.
pub async fn hand_over(
    store: &Store,
    giving: &HandOver,
    outbox: impl FnOnce(&HandedOver) -> Vec<NewJob>,
) -> Result<HandOverOutcome> {
    let Some(held) = store.lock_get(giving.lock).await? else {
        return Ok(HandOverOutcome::NotHeld);
    };
    let cause = giving.cause();
    let (mut change, _) = LockChange::begin(store, &held.pull, &cause).await?;
    let Some(lock) = change.lock(held.id).await? else {
        return Ok(HandOverOutcome::NotHeld);
    };
    let given = match take_away(&mut change, giving, &lock).await? {
        Ok(given) => given,
        Err(why) => return Ok(HandOverOutcome::Refused(Box::new(lock), why)),
    };
    change.push(outbox(&given));
    change
        .commit()
        .await
        .map(|()| HandOverOutcome::Done(Box::new(given)))
}

async fn take_away(
    change: &mut LockChange<'_>,
    giving: &HandOver,
    lock: &Lock,
) -> Result<Result<HandedOver, KeptReason>> {
    let lock_use = change.lock_use(lock).await?;
    let place = match giving.to {
        Some(to) => Some(find_place(change, lock, to).await?),
        None => None,
    };
    let place = match (giving.forbidden(&lock_use), place.transpose()) {
        (Some(why), _) | (None, Err(why)) => return Ok(Err(why)),
        (None, Ok(place)) => place,
    };
    change.set_clause(giving.clause());
    let freed = match &place {
        Some(_) => change.free_for(lock.id, giving.event()).await?,
        None => change.free_one(lock.id, giving.event()).await?,
    };
    if freed.is_none() {
        return Ok(Err(KeptReason::ApplyRunning));
    }
    if let Some(waiter) = place {
        change.hand_to(waiter, &giving.to_the_chosen(lock)).await?;
    }
    clear_up(change, giving, lock, &lock_use).await.map(Ok)
}

/// Stops the work of the pull and finds the new holder.
async fn clear_up(
    change: &mut LockChange<'_>,
    giving: &HandOver,
    lock: &Lock,
    lock_use: &LockUse,
) -> Result<HandedOver> {
    let at_work: Vec<CommandId> = lock_use.at_work.iter().map(|(id, _)| *id).collect();
    let interrupted = change
        .interrupt_plans(&at_work, &giving.to_the_interrupted())
        .await?;
    let plan = change.discard_plans(lock).await?;
    let now = change
        .locks(&lock.key.repo)
        .await?
        .into_iter()
        .find(|other| conflict(&other.key, &lock.key));
    Ok(HandedOver {
        lock: lock.clone(),
        plan,
        interrupted,
        applied: lock_use.applied,
        now,
    })
}

/// Finds the place of a pull in the queue of exactly this lock, if the pull can get the lock.
async fn find_place(
    change: &mut LockChange<'_>,
    lock: &Lock,
    to: Subject,
) -> Result<Result<WaiterRow, KeptReason>> {
    let waiters = change.waiters(&lock.key.repo).await?;
    let wanted = waiters
        .iter()
        .find(|row| row.pull == to && row.key() == lock.key);
    let Some(waiter) = wanted.cloned() else {
        return Ok(Err(KeptReason::NotQueued(to)));
    };
    let mut lines = lines_of(&change.locks(&lock.key.repo).await?, &waiters);
    lines.held.retain(|(key, _)| *key != lock.key);
    lines.held.push((lock.key.clone(), to));
    lines
        .waiting
        .retain(|(key, pull)| !(*key == lock.key && *pull == to));
    Ok(if lines.has_circle() {
        Err(KeptReason::Circle(to))
    } else {
        Ok(waiter)
    })
}

impl HandOver {
    /// Returns why the state of the lock forbids the request.
    fn forbidden(&self, lock_use: &LockUse) -> Option<KeptReason> {
        if self.force && !lock_use.applying {
            return self.reason.is_none().then_some(KeptReason::ReasonWanted);
        }
        KeptReason::of(lock_use)
    }

    /// Returns the kind of the audit event: handing a lock over takes it from its pull, and so does force. A release
    /// does not.
    fn event(&self) -> LockEventKind {
        if self.force || self.to.is_some() {
            LockEventKind::Stolen
        } else {
            LockEventKind::Released
        }
    }

    /// Cause for the audit log, such as `released by force: the outage first`.
    fn cause(&self) -> Cause {
        let action = self.to.map_or("released".to_owned(), |to| {
            format!("handed over to pull request {to}")
        });
        let force = if self.force { " by force" } else { "" };
        let reason = self
            .reason
            .as_ref()
            .map(|reason| format!(": {}", reason.as_str()))
            .unwrap_or_default();
        Cause::new(self.actor.clone(), format!("{action}{force}{reason}"))
            .from_address(self.remote.clone())
    }

    fn in_brackets(&self) -> String {
        self.reason
            .as_ref()
            .map(|reason| format!(" ({})", without_backticks(reason.as_str())))
            .unwrap_or_default()
    }

    /// Text for the pull that is next in the queue, after the number of the pull that had the lock.
    fn clause(&self) -> String {
        let verb = if self.force { "took away" } else { "released" };
        format!(
            ", whose lock {} {verb}{}",
            without_backticks(&self.actor.login),
            self.in_brackets()
        )
    }

    /// Text for the chosen pull, after "this pull request was".
    fn to_the_chosen(&self, lock: &Lock) -> String {
        let from = match lock.pull.subject {
            Subject::Pull(number) => format!("pull request {number}"),
            Subject::Application(_) => lock.holder_name(),
        };
        format!(
            "chosen by {}, who handed the lock over from {from}{}",
            without_backticks(&self.actor.login),
            self.in_brackets()
        )
    }

    /// Returns why a plan is interrupted, as a clause.
    fn to_the_interrupted(&self) -> String {
        let (by, way) = (code_span(&self.actor.login), self.actor.origin.way());
        match self.to {
            Some(to) => format!("{by} handed its lock over to pull request {to} {way}"),
            None => format!("{by} took its lock away {way}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::CountingIds;
    use crate::model::Origin;

    #[test]
    fn what_forbids_it_is_decided_by_what_goes_on() {
        let ids = CountingIds::default();
        let command = |kind| (CommandId::next(&ids), kind);
        let idle = LockUse::default();
        let applying = LockUse {
            applying: true,
            ..idle.clone()
        };
        let planning = LockUse {
            at_work: vec![command(CommandKind::Autoplan)],
            applied: true,
            ..idle.clone()
        };
        let waiting = LockUse {
            at_work: vec![command(CommandKind::Plan), command(CommandKind::Apply)],
            ..idle.clone()
        };
        let applied = LockUse {
            applied: true,
            ..idle.clone()
        };
        let all = [&idle, &applying, &planning, &waiting, &applied];
        let giving = |force, reason: &str| HandOver {
            lock: LockId::next(&ids),
            to: None,
            force,
            reason: Reason::read(reason).unwrap(),
            actor: Actor::new("olga", Origin::Page),
            remote: None,
        };
        let verdicts = |giving: &HandOver| all.map(|lock_use| giving.forbidden(lock_use));
        let busy = Some(KeptReason::ApplyRunning);
        assert_eq!(
            verdicts(&giving(false, "")),
            [
                None,
                busy,
                Some(KeptReason::PlanRunning),
                Some(KeptReason::ApplyWaiting),
                Some(KeptReason::Applied)
            ]
        );
        let wanted = Some(KeptReason::ReasonWanted);
        assert_eq!(
            verdicts(&giving(true, "")),
            [wanted, busy, wanted, wanted, wanted]
        );
        assert_eq!(
            verdicts(&giving(true, "outage")),
            [None, busy, None, None, None]
        );
        assert!(all.iter().filter(|lock_use| lock_use.is_idle()).count() == 1);
    }
}
