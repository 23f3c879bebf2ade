//! Where the audit log of locks stands. Nobody reads all of it for a page: the reconciler `audit` has.

use chrono::{DateTime, Utc};

use crate::handlers::reconcile::{AUDIT_AGAIN, AUDIT_NEW};
use crate::model::LockEvent;
use crate::store::{LockEventSeal, Result, Store};

/// The log.
pub(in crate::http) struct Log {
    /// Events in it.
    pub events: i64,
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
pub(in crate::http) struct Broken {
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
        let (last, sealed) = (newest.first().map(|event| event.seq), seals.last().map_or(0, |seal| seal.last_seq));
        let walks = store.lock_event_walks().await?;
        let walk = |name| walks.iter().find(|walk| walk.name == name);
        let broken = walks
            .iter()
            .filter_map(|walk| Some(Broken { seq: walk.broken_seq?, fault: walk.fault.clone().unwrap_or_default() }));
        Ok(Self {
            events: last.map_or(0, |last| last - sealed),
            newest,
            verified_seq: walk(AUDIT_NEW).map_or(0, |walk| walk.seq),
            looked_at: walk(AUDIT_NEW).map(|walk| walk.walked_at),
            again_seq: walk(AUDIT_AGAIN).map_or(0, |walk| walk.seq),
            broken: broken.min_by_key(|broken| broken.seq),
            seals,
        })
    }

    /// Events that nobody has looked at yet.
    pub fn unverified(&self) -> i64 {
        self.newest.first().map_or(0, |newest| newest.seq - self.verified_seq).clamp(0, self.events)
    }
}
