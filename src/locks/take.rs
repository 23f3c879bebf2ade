//! Takes every lock that a command needs before its work begins, and queues the pull for the rest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::lines::{LockQueues, QueueStep};
use crate::model::{Cause, Lock, LockEventKind, LockKey, ProjectKey, PullRef, Subject};
use crate::store::{LockAttempt, LockChange, NewWaiter, Result, Store, TakeLock, WaiterRow};

/// Maximum number of pulls that wait for locks of one repository (P12).
const MOST_WAITERS: usize = 5_000;

/// Plan to make when the pull gets the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedPlan {
    pub project: ProjectKey,
    /// Arguments for `terraform plan`.
    pub extra_args: Vec<String>,
}

/// A lock that a command needs.
#[derive(Clone, Debug)]
pub struct LockRequest {
    pub key: LockKey,
    /// Plan to make under the lock.
    pub ask: QueuedPlan,
}

/// Result of one request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The pull holds the lock.
    Held(Lock),
    /// Another pull holds the lock, and this one is queued.
    Queued {
        /// Lock of the other pull.
        holder: Lock,
        /// Place in the queue, from 1.
        place: usize,
    },
    /// Another pull holds the lock, and this one is not queued.
    Refused {
        /// Lock of the other pull.
        holder: Lock,
        /// Reason why this pull is not queued.
        why: NotQueued,
    },
    /// The pull is closed.
    PullClosed,
}

impl TakeOutcome {
    /// Returns true if the pull holds the lock.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }
}

/// Reason why a pull is not queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotQueued {
    /// Queues are turned off.
    Off,
    /// The pull and these pulls would wait for each other forever.
    Circle(Vec<Subject>),
    /// Too many pulls already wait in the repository: this many.
    Full(usize),
}

/// Results of all requests.
#[derive(Clone, Debug, Default)]
pub struct TakeAll {
    pub took: BTreeMap<ProjectKey, TakeOutcome>,
    /// Locks that the pull handed over so that no two pulls wait for each other; it is queued for them now.
    pub gave_way: Vec<Lock>,
}

/// Reads the stored plans of a place in a queue.
pub fn read_queued_plans(json: &str) -> Result<Vec<QueuedPlan>, serde_json::Error> {
    serde_json::from_str(json)
}

fn to_json(asks: &[QueuedPlan]) -> String {
    serde_json::to_string(asks).expect("an ask consists of texts")
}

/// Takes every free lock, and queues the pull for the rest if `may_queue`.
pub async fn take_all(
    store: &Store,
    pull: &PullRef,
    pull_url: &str,
    requests: &[LockRequest],
    cause: &Cause,
    may_queue: bool,
) -> Result<TakeAll> {
    let mut all = TakeAll::default();
    let mut missing = Vec::new();
    for request in requests {
        let want = LockAttempt {
            key: &request.key,
            project: &request.ask.project,
            pull,
            pull_url,
            cause,
        };
        let took = match store.lock_take(&want).await? {
            TakeLock::Taken(lock) | TakeLock::AlreadyOurs(lock) => TakeOutcome::Held(lock),
            TakeLock::HeldBy(holder) => {
                missing.push(request);
                TakeOutcome::Refused {
                    holder,
                    why: NotQueued::Off,
                }
            }
            TakeLock::PullClosed => TakeOutcome::PullClosed,
        };
        all.took.insert(request.ask.project.clone(), took);
    }
    if may_queue && !missing.is_empty() {
        line_up(store, pull, pull_url, &missing, cause, &mut all).await?;
    }
    Ok(all)
}

async fn line_up(
    store: &Store,
    pull: &PullRef,
    pull_url: &str,
    missing: &[&LockRequest],
    cause: &Cause,
    all: &mut TakeAll,
) -> Result<()> {
    let (mut change, _) = LockChange::begin(store, pull, cause).await?;
    let mut wanted: BTreeMap<LockKey, Vec<QueuedPlan>> = BTreeMap::new();
    for request in missing {
        let want = LockAttempt {
            key: &request.key,
            project: &request.ask.project,
            pull,
            pull_url,
            cause,
        };
        // It may have been released since; from here on nobody else releases any.
        let took = match change.take(&want).await? {
            TakeLock::Taken(lock) | TakeLock::AlreadyOurs(lock) => TakeOutcome::Held(lock),
            TakeLock::PullClosed => TakeOutcome::PullClosed,
            TakeLock::HeldBy(holder) => {
                wanted
                    .entry(request.key.clone())
                    .or_default()
                    .push(request.ask.clone());
                TakeOutcome::Refused {
                    holder,
                    why: NotQueued::Off,
                }
            }
        };
        all.took.insert(request.ask.project.clone(), took);
    }
    let waiters = change.waiters(&pull.repo).await?;
    if waiters.len() + wanted.len() > MOST_WAITERS {
        full(all, waiters.len());
        return change.commit().await;
    }
    let locks = change.locks(&pull.repo).await?;
    let applied = change.applied(pull).await?;
    let mut lines = lines_of(&locks, &waiters);
    let may_give = |key: &LockKey| !applied.iter().any(|project| key.covers(project));
    let steps = lines.line_up(pull.subject, wanted.keys().cloned().collect(), &may_give);
    let mut queue = QueueUpdate {
        change,
        pull,
        pull_url,
        wanted,
        locks,
        waiters,
    };
    for step in &steps {
        queue.act(step, all).await?;
    }
    let after = queue.change.locks(&pull.repo).await?;
    set_outcomes(all, &steps, &lines, &after, missing, pull);
    queue.change.commit().await
}

/// Marks the missing locks as not queued, because there is no room.
fn full(all: &mut TakeAll, waiting: usize) {
    for took in all.took.values_mut() {
        if let TakeOutcome::Refused { why, .. } = took {
            *why = NotQueued::Full(waiting);
        }
    }
}

pub(super) fn lines_of(locks: &[Lock], waiters: &[WaiterRow]) -> LockQueues {
    LockQueues {
        held: locks
            .iter()
            .map(|lock| (lock.key.clone(), lock.pull.subject))
            .collect(),
        waiting: waiters
            .iter()
            .map(|waiter| (waiter.key(), waiter.pull))
            .collect(),
    }
}

/// Carries the steps out in the database.
struct QueueUpdate<'a> {
    change: LockChange<'a>,
    pull: &'a PullRef,
    pull_url: &'a str,
    wanted: BTreeMap<LockKey, Vec<QueuedPlan>>,
    locks: Vec<Lock>,
    waiters: Vec<WaiterRow>,
}

impl QueueUpdate<'_> {
    async fn act(&mut self, step: &QueueStep, all: &mut TakeAll) -> Result<()> {
        match step {
            QueueStep::LineUp(key) => {
                let asks = self.wanted.get(key).cloned().unwrap_or_default();
                self.join(key, &asks).await
            }
            QueueStep::FallBack(key) => {
                let row = self
                    .waiters
                    .iter()
                    .find(|row| row.key() == *key && row.pull == self.pull.subject);
                let asks = row
                    .and_then(|row| read_queued_plans(&row.asks).ok())
                    .unwrap_or_default();
                self.change.leave(key, self.pull).await?;
                self.join(key, &asks).await
            }
            QueueStep::GiveWay(key) => {
                let Some(lock) = self
                    .locks
                    .iter()
                    .find(|lock| lock.key == *key && lock.pull == *self.pull)
                    .cloned()
                else {
                    return Ok(());
                };
                self.change.discard_plans(&lock).await?;
                self.change
                    .free_one(lock.id, LockEventKind::Released)
                    .await?;
                let asks = [QueuedPlan {
                    project: lock.project.clone(),
                    extra_args: Vec::new(),
                }];
                all.gave_way.push(lock);
                self.join(key, &asks).await
            }
            QueueStep::Refuse(key, _) => self.change.leave(key, self.pull).await.map(drop),
        }
    }

    /// Joins the queue. Earlier requests at this place are kept, unless the same project is requested again.
    async fn join(&mut self, key: &LockKey, asks: &[QueuedPlan]) -> Result<()> {
        let before = self
            .waiters
            .iter()
            .find(|row| row.key() == *key && row.pull == self.pull.subject);
        let mut merged = before
            .and_then(|row| read_queued_plans(&row.asks).ok())
            .unwrap_or_default();
        merged.retain(|old| asks.iter().all(|new| new.project != old.project));
        merged.extend_from_slice(asks);
        let Some(first) = merged.first() else {
            return Ok(());
        };
        let new = NewWaiter {
            key,
            project: &first.project,
            pull: self.pull,
            pull_url: self.pull_url,
            asker: self.change.actor(),
            asks: &to_json(&merged),
        };
        self.change.line_up(&new).await
    }
}

/// Sets the result of each request after all steps.
fn set_outcomes(
    all: &mut TakeAll,
    steps: &[QueueStep],
    lines: &LockQueues,
    locks: &[Lock],
    missing: &[&LockRequest],
    pull: &PullRef,
) {
    let circles: BTreeMap<&LockKey, &Vec<Subject>> = steps
        .iter()
        .filter_map(|step| {
            if let QueueStep::Refuse(key, circle) = step {
                Some((key, circle))
            } else {
                None
            }
        })
        .collect();
    let given: Vec<LockKey> = all.gave_way.iter().map(|lock| lock.key.clone()).collect();
    let waited = missing
        .iter()
        .map(|request| (request.ask.project.clone(), request.key.clone()));
    let keys: BTreeMap<ProjectKey, LockKey> = waited.collect();
    for (project, took) in &mut all.took {
        let key = match took {
            TakeOutcome::Held(lock) if given.contains(&lock.key) => lock.key.clone(),
            TakeOutcome::Held(_) | TakeOutcome::PullClosed => continue,
            TakeOutcome::Queued { .. } | TakeOutcome::Refused { .. } => keys[project].clone(),
        };
        let excludes = |lock: &&Lock| {
            lock.pull != *pull && (lock.key.covers(project) || key.covers(&lock.project))
        };
        let Some(holder) = locks.iter().find(excludes).cloned() else {
            continue;
        };
        *took = match circles.get(&key) {
            Some(circle) => TakeOutcome::Refused {
                holder,
                why: NotQueued::Circle((*circle).clone()),
            },
            None => TakeOutcome::Queued {
                holder,
                place: lines.place(&key, pull.subject),
            },
        };
    }
}
