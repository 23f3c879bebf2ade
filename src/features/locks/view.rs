//! Collects all facts about one lock, for the API and the command line: its holder, its queue, its history.

use lockkeeper_accounts::refs::ChangeNumber;
use serde::Serialize;

use crate::features::locks;
use crate::kit::term::time;
use crate::locks::KeptReason;
use crate::model::{
    CommandKind, Lock, LockEvent, LockEventKind, LockKey, LockName, LockUse, NamedAccount, Origin,
    PlanRecord, PlanState, Waiter,
};
use crate::store::{Result, Store};

/// Maximum number of shown events of a lock; `lockkeeper audit list` has all.
pub const MOST_EVENTS: i64 = 50;
/// Maximum number of shown waiters in the queue.
pub const MOST_WAITERS: usize = 100;

/// A lock with all facts about it.
#[derive(Clone, Debug)]
pub struct LockDetails {
    pub lock: Lock,
    /// Number by which accounts star the pull request or application that holds it.
    pub change: Option<ChangeNumber>,
    /// Plans of the holder that the lock protects.
    pub plans: Vec<PlanRecord>,
    /// Use of the lock at this moment.
    pub lock_use: LockUse,
    /// Queue of the lock, in order.
    pub waiters: Vec<Waiter>,
    /// Events of the lock, newest first.
    pub history: Vec<LockEvent>,
}

impl LockDetails {
    /// Reads all facts from the database.
    pub async fn read(store: &Store, lock: Lock) -> Result<Self> {
        let mut plans = store.plan_list(&lock.pull).await?;
        plans.retain(|plan| {
            plan.project.dir == lock.key.dir && plan.project.workspace == lock.key.workspace
        });
        Ok(Self {
            plans,
            change: store.change_number(&lock.pull).await?,
            lock_use: store.lock_use(&lock).await?,
            waiters: store.waiter_list(&lock.key).await?,
            history: store.lock_event_list_of(&lock.key, MOST_EVENTS).await?,
            lock,
        })
    }
}

/// A lock in the format of our own API.
#[derive(Debug, Serialize)]
pub struct LockJson {
    id: String,
    name: String,
    host: String,
    repo: String,
    dir: String,
    workspace: String,
    project: Option<String>,
    pull: i64,
    /// Title of the application that holds it; its `pull` is negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    pull_url: String,
    holder: String,
    /// Account of the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<NamedAccount>,
    reason: String,
    since: String,
}

impl From<&Lock> for LockJson {
    fn from(lock: &Lock) -> Self {
        Self {
            id: lock.id.to_string(),
            name: LockName::of_atlantis(&lock.key, lock.project.name.as_ref()),
            host: lock.key.repo.host().to_string(),
            repo: lock.key.repo.full_name().to_owned(),
            dir: lock.key.dir.to_string(),
            workspace: lock.key.workspace.to_string(),
            project: lock.project.name.as_ref().map(ToString::to_string),
            pull: lock.pull.subject.stored(),
            application: lock.title.clone(),
            pull_url: lock.pull_url.clone(),
            holder: lock.holder.login.clone(),
            account: lock.holder.account.clone(),
            reason: lock.reason.clone(),
            since: time(lock.taken_at),
        }
    }
}

/// A lock with all facts, in the format of our own API.
#[derive(Debug, Serialize)]
pub struct LockFactsJson {
    lock: LockJson,
    /// Number by which accounts star the pull request or application that holds it.
    change: Option<u32>,
    /// Plans under the lock. Accounts note by their identifiers which resources they have reviewed.
    plans: Vec<PlanJson>,
    /// Reason why it could not be released without force.
    in_use: Option<&'static str>,
    /// Commands of its pull request that work under it.
    at_work: Vec<CommandKind>,
    /// Number of all waiters, even those that are not shown.
    waiting: usize,
    waiters: Vec<WaiterJson>,
    history: Vec<EventJson>,
}

#[derive(Debug, Serialize)]
struct PlanJson {
    id: String,
    run: String,
    project: Option<String>,
    head: String,
    state: PlanState,
}

#[derive(Debug, Serialize)]
struct WaiterJson {
    place: usize,
    pull: i64,
    pull_url: String,
    asker: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<NamedAccount>,
    since: String,
    /// True if it waits for exactly this lock, so that the lock can be handed over to it.
    exactly: bool,
}

/// Event of a lock. The network address is left out: the administrator's log has it, and the API is for everybody who
/// may look.
#[derive(Debug, Serialize)]
struct EventJson {
    /// Sequence number; `null` until the event is sealed.
    seq: Option<i64>,
    at: String,
    kind: LockEventKind,
    pull: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    actor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<NamedAccount>,
    origin: Origin,
    reason: String,
}

impl From<&LockDetails> for LockFactsJson {
    fn from(facts: &LockDetails) -> Self {
        let waiters = (1..).zip(&facts.waiters).take(MOST_WAITERS);
        Self {
            lock: LockJson::from(&facts.lock),
            change: facts.change.map(ChangeNumber::get),
            plans: facts.plans.iter().map(PlanJson::from).collect(),
            in_use: KeptReason::of(&facts.lock_use).map(locks::code),
            at_work: facts
                .lock_use
                .at_work
                .iter()
                .map(|(_, kind)| *kind)
                .collect(),
            waiting: facts.waiters.len(),
            waiters: waiters
                .map(|(place, waiter)| WaiterJson::new(place, waiter, &facts.lock.key))
                .collect(),
            history: facts.history.iter().map(EventJson::from).collect(),
        }
    }
}

impl From<&PlanRecord> for PlanJson {
    fn from(plan: &PlanRecord) -> Self {
        Self {
            id: plan.id.to_string(),
            run: plan.run.to_string(),
            project: plan.project.name.as_ref().map(ToString::to_string),
            head: plan.head.to_string(),
            state: plan.state,
        }
    }
}

impl WaiterJson {
    fn new(place: usize, waiter: &Waiter, key: &LockKey) -> Self {
        Self {
            place,
            pull: waiter.pull.subject.stored(),
            pull_url: waiter.pull_url.clone(),
            asker: waiter.asker.login.clone(),
            account: waiter.asker.account.clone(),
            since: time(waiter.since),
            exactly: waiter.key == *key,
        }
    }
}

impl From<&LockEvent> for EventJson {
    fn from(kept: &LockEvent) -> Self {
        let (event, cause) = (&kept.event, &kept.event.cause);
        Self {
            seq: kept.seq(),
            at: time(kept.at),
            kind: event.kind,
            pull: event.pull.as_ref().map(|pull| pull.subject.stored()),
            application: kept.title.clone(),
            actor: cause.actor.login.clone(),
            account: kept.account.clone(),
            origin: cause.actor.origin,
            reason: cause.reason.clone(),
        }
    }
}
