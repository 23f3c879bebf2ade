//! Where the audit log of locks stands. Nobody reads all of it for a page: the reconciler `audit` has.

use chrono::{DateTime, Utc};

use super::verifying::{AGAIN, NEW};
use crate::model::{LockEvent, Sha256Digest};
use crate::seal::Checkpoint;
use crate::store::{LockEventSeal, LogReach, Result, Store};

/// The log.
pub(crate) struct Log {
    /// Events in it, sealed or not.
    pub events: i64,
    /// How far it reaches.
    pub reach: LogReach,
    /// Hash of the newest sealed event.
    pub newest_hash: Option<Sha256Digest>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The newest, newest first.
    pub newest: Vec<LockEvent>,
    /// What was removed from its beginning, oldest first.
    pub seals: Vec<LockEventSeal>,
    /// Number of the event up to which it is verified.
    pub verified_seq: i64,
    /// When somebody looked last.
    pub looked_at: Option<DateTime<Utc>>,
    /// How far it is being verified again.
    pub again_seq: i64,
    /// The first event that was found not to be in order.
    pub broken: Option<Broken>,
}

/// An event that is not in order.
pub(crate) struct Broken {
    /// Its number.
    pub seq: i64,
    /// What is wrong, after its number.
    pub fault: String,
}

impl Log {
    /// Reads where it stands, with so many of the newest events. Numbers have no gaps, so nobody has to count.
    pub async fn read(store: &Store, events: i64) -> Result<Self> {
        let newest = store.lock_event_list(events.max(1)).await?;
        let seals = store.lock_event_seals().await?;
        let (reach, pruned) = (
            store.audit_reach().await?,
            seals.last().map_or(0, |seal| seal.last_seq),
        );
        let head = store.lock_event_after(reach.head - 1, 1).await?.pop();
        let walks = store.lock_event_walks().await?;
        let walk = |name| walks.iter().find(|walk| walk.name == name);
        let broken = walks.iter().filter_map(|walk| {
            Some(Broken {
                seq: walk.broken_seq?,
                fault: walk.fault.clone().unwrap_or_default(),
            })
        });
        Ok(Self {
            events: (reach.head - pruned).max(0) + reach.waiting,
            newest_hash: head.map(|head| head.hash),
            checkpoint: store.audit_checkpoint_last().await?,
            reach,
            newest,
            verified_seq: walk(NEW).map_or(0, |walk| walk.seq),
            looked_at: walk(NEW).map(|walk| walk.walked_at),
            again_seq: walk(AGAIN).map_or(0, |walk| walk.seq),
            broken: broken.min_by_key(|broken| broken.seq),
            seals,
        })
    }

    /// Events that nobody has looked at yet.
    pub fn unverified(&self) -> i64 {
        (self.reach.head + self.reach.waiting - self.verified_seq).clamp(0, self.events)
    }
}
