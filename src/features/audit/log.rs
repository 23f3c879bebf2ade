//! State of the audit log. No page reads the whole log, because the reconciler `audit` does.

use chrono::{DateTime, Utc};

use super::verifying::{AGAIN, NEW};
use crate::model::{LockEvent, Sha256Digest};
use crate::seal::Checkpoint;
use crate::store::{AuditLogRange, LockEventSeal, Result, Store};

/// State of the log.
pub(crate) struct AuditLog {
    /// Number of events in the log, sealed or not.
    pub events: i64,
    /// Position of the end of the log.
    pub reach: AuditLogRange,
    /// Hash of the newest sealed event.
    pub newest_hash: Option<Sha256Digest>,
    /// The newest signed checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Newest events, newest first.
    pub newest: Vec<LockEvent>,
    /// Seals of pruned events, oldest first.
    pub seals: Vec<LockEventSeal>,
    /// Number of the event up to which it is verified.
    pub verified_seq: i64,
    /// Time of the last verification.
    pub looked_at: Option<DateTime<Utc>>,
    /// Number of the event up to which it is being verified again.
    pub again_seq: i64,
    /// First event that does not fit.
    pub broken: Option<MismatchedEvent>,
}

/// An event that does not fit.
pub(crate) struct MismatchedEvent {
    pub seq: i64,
    /// Fault of the event, to be appended to its number.
    pub fault: String,
}

impl AuditLog {
    /// Reads the state, with so many of the newest events. Numbers have no gaps, so no events have to be counted.
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
            Some(MismatchedEvent {
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

    /// Returns the number of events that are not verified yet.
    pub fn unverified(&self) -> i64 {
        (self.reach.head + self.reach.waiting - self.verified_seq).clamp(0, self.events)
    }
}
