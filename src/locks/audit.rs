//! Proof that the audit log is whole.
//!
//! Each event continues the one before it, so no event in the middle can be changed or removed without a trace. A chain of
//! hashes alone does not show how far the log must reach. *Anchors* do: signed checkpoints, in the database and outside of
//! it, give the hash that an event must have. A signed seal says where the log begins.

use std::collections::BTreeMap;

use crate::model::{ChainedEvent, Sha256Digest};
use crate::seal::{Checkpoint, PublicKey};
use crate::store::{LockEventSeal, Result, Store};

/// Number of events that are read at once.
const PIECE: i64 = 1_000;

/// Result of verifying the whole log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditVerdict {
    /// Every event continues the one before it, and matches every anchor.
    Whole(WholeLog),
    /// The first event that does not fit.
    Broken { seq: i64, fault: ChainFault },
}

/// A log that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeLog {
    /// Number of events in the chain.
    pub events: u64,
    /// Number of events removed by `audit prune`.
    pub removed: i64,
    /// Hash of the newest event. If you keep it elsewhere, it proves later that nothing was cut off the end.
    pub head: Sha256Digest,
    /// True if the requested hash is in the log.
    pub known: bool,
    /// The newest signed checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Events after the last checkpoint, sealed or not.
    pub unsigned: i64,
}

/// Reason why an event does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainFault {
    /// The event was changed after it was written.
    Changed,
    /// The event does not continue the one before it, which was changed together with its hash.
    Unlinked,
    /// The event is missing.
    Missing,
    /// All events from this one up to that number are missing.
    MissingTo(i64),
    /// The event has a number that no event can have, or that was pruned.
    Stray,
    /// A checkpoint has another hash for this event.
    Replaced,
    /// A seal in place of pruned events was not signed.
    UnsignedSeal,
    /// A checkpoint was not signed by a key of the log.
    UnsignedCheckpoint,
    /// The log was sealed, and there is no checkpoint.
    NoCheckpoint,
}

impl ChainFault {
    /// Describes the fault, to be appended to the number of the event.
    pub fn says(self) -> String {
        let text = match self {
            Self::Changed => "was changed after it was written",
            Self::Unlinked => {
                "does not continue the one before it, which was changed together with its hash"
            }
            Self::Missing => "is missing",
            Self::MissingTo(last) => {
                return format!("and all after it up to event {last} are missing");
            }
            Self::Stray => {
                "does not belong to the log: the log cannot contain an event with that number"
            }
            Self::Replaced => {
                "is not the one that was signed in a checkpoint: this event or an earlier one was replaced"
            }
            Self::UnsignedSeal => {
                "is recorded as the last pruned event, but no key of the log has signed that: somebody removed events \
                 without `audit prune`"
            }
            Self::UnsignedCheckpoint => "has a checkpoint that no key of the log has signed",
            Self::NoCheckpoint => "was sealed, but no checkpoint is left: somebody removed them",
        };
        text.to_owned()
    }
}

/// Facts about the log from outside of the database.
#[derive(Clone, Debug, Default)]
pub struct KnownLogState {
    /// Authentic checkpoints from outside of the database.
    pub checkpoints: Vec<Checkpoint>,
    /// Keys that may sign checkpoints. `None`: the keys in the database.
    pub keys: Option<Vec<PublicKey>>,
}

/// A place in the log up to which it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedMark {
    /// Number of the last event that was verified.
    pub seq: i64,
    pub hash: Sha256Digest,
}

/// Result of verifying a part of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeVerdict {
    /// Every event continues the one before it.
    Whole {
        /// Position up to which it was verified.
        mark: VerifiedMark,
        /// Number of verified events.
        events: u64,
        /// True if the part reaches the end of the log.
        at_end: bool,
    },
    /// The first event that does not fit.
    Broken { seq: i64, fault: ChainFault },
}

/// Position of a verification along the chain.
struct ChainWalk<'a> {
    seq: i64,
    head: Sha256Digest,
    events: u64,
    known: bool,
    wanted: Option<&'a Sha256Digest>,
    anchors: &'a BTreeMap<i64, Sha256Digest>,
}

impl ChainWalk<'_> {
    fn step(&mut self, next: &ChainedEvent) -> Result<(), (i64, ChainFault)> {
        if next.seq != self.seq + 1 {
            return Err((self.seq + 1, ChainFault::Missing));
        }
        if next.previous != self.head {
            return Err((next.seq, ChainFault::Unlinked));
        }
        if !next.is_intact() {
            return Err((next.seq, ChainFault::Changed));
        }
        if self
            .anchors
            .get(&next.seq)
            .is_some_and(|hash| *hash != next.hash)
        {
            return Err((next.seq, ChainFault::Replaced));
        }
        self.seq = next.seq;
        self.head = next.hash.clone();
        self.events += 1;
        self.known |= self.wanted == Some(&self.head);
        Ok(())
    }

    fn stretch(self, at_end: bool) -> RangeVerdict {
        RangeVerdict::Whole {
            mark: VerifiedMark {
                seq: self.seq,
                hash: self.head,
            },
            events: self.events,
            at_end,
        }
    }
}

/// Returns where the log begins: after the last pruned event.
fn beginning(seals: &[LockEventSeal]) -> VerifiedMark {
    let last = seals.last().map(|seal| VerifiedMark {
        seq: seal.last_seq,
        hash: seal.last_hash.clone(),
    });
    last.unwrap_or_else(|| VerifiedMark {
        seq: 0,
        hash: ChainedEvent::genesis(),
    })
}

/// Checks the anchors without reading the log: both ends, the checkpoints outside of the database, and the last one in the
/// database. Returns the first fault, if any.
pub async fn anchored(
    store: &Store,
    evidence: &KnownLogState,
) -> Result<Option<(i64, ChainFault)>> {
    // The log grows in the meantime, so its reach is read before its events.
    let (reach, last) = (
        store.audit_reach().await?,
        store.audit_checkpoint_last().await?,
    );
    let (seals, keys) = (
        store.lock_event_seals().await?,
        trusted(store, evidence).await?,
    );
    if let Some(found) = unsigned_seal(&seals, &keys) {
        return Ok(Some(found));
    }
    if let Some(forged) = last.iter().find(|last| !is_signed(last, &keys)) {
        return Ok(Some((forged.seq, ChainFault::UnsignedCheckpoint)));
    }
    let begin = beginning(&seals);
    if let Some(stray) = store
        .lock_event_after(i64::MIN, 1)
        .await?
        .first()
        .filter(|event| event.seq <= begin.seq)
    {
        return Ok(Some((stray.seq, ChainFault::Stray)));
    }
    let far = evidence
        .checkpoints
        .iter()
        .chain(&last)
        .map(|anchor| anchor.seq)
        .max()
        .unwrap_or_default();
    let (far, head) = (
        far.max(reach.sealed).max(reach.walked),
        reach.head.max(begin.seq),
    );
    if head < far {
        return Ok(Some((head + 1, missing(head + 1, far))));
    }
    for anchor in evidence
        .checkpoints
        .iter()
        .max_by_key(|anchor| anchor.seq)
        .into_iter()
        .chain(&last)
    {
        if let Some(fault) = changed_at(
            store,
            &VerifiedMark {
                seq: anchor.seq,
                hash: anchor.hash.clone(),
            },
            &begin,
        )
        .await?
        {
            return Ok(Some((
                anchor.seq,
                if fault == ChainFault::Changed {
                    ChainFault::Replaced
                } else {
                    fault
                },
            )));
        }
    }
    Ok((last.is_none() && reach.sealed > 0).then_some((reach.sealed, ChainFault::NoCheckpoint)))
}

fn missing(from: i64, to: i64) -> ChainFault {
    if from == to {
        ChainFault::Missing
    } else {
        ChainFault::MissingTo(to)
    }
}

/// Returns the keys that may sign checkpoints.
async fn trusted(store: &Store, evidence: &KnownLogState) -> Result<Vec<PublicKey>> {
    match &evidence.keys {
        Some(keys) => Ok(keys.clone()),
        None => Ok(store
            .audit_keys()
            .await?
            .into_iter()
            .map(|key| key.public)
            .collect()),
    }
}

fn is_signed(checkpoint: &Checkpoint, keys: &[PublicKey]) -> bool {
    keys.contains(&checkpoint.key) && checkpoint.is_authentic()
}

/// Finds a seal that no key of the log has signed.
fn unsigned_seal(seals: &[LockEventSeal], keys: &[PublicKey]) -> Option<(i64, ChainFault)> {
    seals
        .iter()
        .find(|seal| !seal.is_signed_by(keys))
        .map(|seal| (seal.last_seq, ChainFault::UnsignedSeal))
}

/// Verifies the whole log. `wanted` is a hash that somebody noted earlier: it must be the hash of an event in the log, or
/// the one that a seal continues.
pub async fn verify(
    store: &Store,
    evidence: &KnownLogState,
    wanted: Option<&Sha256Digest>,
) -> Result<AuditVerdict> {
    let broken = |(seq, fault)| Ok(AuditVerdict::Broken { seq, fault });
    let checkpoints = store.audit_checkpoints().await?;
    let keys = trusted(store, evidence).await?;
    if let Some(forged) = checkpoints
        .iter()
        .find(|checkpoint| !is_signed(checkpoint, &keys))
    {
        return broken((forged.seq, ChainFault::UnsignedCheckpoint));
    }
    let mut anchors = BTreeMap::new();
    for checkpoint in checkpoints.iter().chain(&evidence.checkpoints) {
        if anchors
            .insert(checkpoint.seq, checkpoint.hash.clone())
            .is_some_and(|hash| hash != checkpoint.hash)
        {
            return broken((checkpoint.seq, ChainFault::Replaced));
        }
    }
    let seals = store.lock_event_seals().await?;
    let begin = beginning(&seals);
    let mut walk = ChainWalk {
        seq: begin.seq,
        head: begin.hash,
        events: 0,
        known: wanted.is_none() || seals.iter().any(|seal| wanted == Some(&seal.last_hash)),
        wanted,
        anchors: &anchors,
    };
    loop {
        let piece = store.lock_event_after(walk.seq, PIECE).await?;
        for event in &piece {
            if let Err(found) = walk.step(event) {
                return broken(found);
            }
        }
        if piece.is_empty() {
            break;
        }
    }
    if let Some(found) = anchored(store, evidence).await? {
        return broken(found);
    }
    let (reach, checkpoint) = (
        store.audit_reach().await?,
        checkpoints.into_iter().next_back(),
    );
    Ok(AuditVerdict::Whole(WholeLog {
        events: walk.events,
        removed: seals.iter().map(|seal| seal.events).sum(),
        unsigned: walk.seq
            - checkpoint
                .as_ref()
                .map_or(begin.seq, |last| last.seq)
                .min(walk.seq)
            + reach.waiting,
        head: walk.head,
        known: walk.known,
        checkpoint,
    }))
}

/// Checks the anchors, and verifies at most `pieces` pieces of a thousand events after a mark, or from the beginning. The
/// event at the mark must be unchanged.
pub async fn verify_on(
    store: &Store,
    evidence: &KnownLogState,
    from: Option<&VerifiedMark>,
    pieces: usize,
) -> Result<RangeVerdict> {
    if let Some((seq, fault)) = anchored(store, evidence).await? {
        return Ok(RangeVerdict::Broken { seq, fault });
    }
    let begin = beginning(&store.lock_event_seals().await?);
    // Events that were pruned after the mark was made cannot be verified.
    let from = from.filter(|mark| mark.seq >= begin.seq).unwrap_or(&begin);
    if let Some(fault) = changed_at(store, from, &begin).await? {
        return Ok(RangeVerdict::Broken {
            seq: from.seq,
            fault,
        });
    }
    let anchors = BTreeMap::new();
    let mut walk = ChainWalk {
        seq: from.seq,
        head: from.hash.clone(),
        events: 0,
        known: true,
        wanted: None,
        anchors: &anchors,
    };
    for _ in 0..pieces {
        let piece = store.lock_event_after(walk.seq, PIECE).await?;
        for event in &piece {
            if let Err((seq, fault)) = walk.step(event) {
                return Ok(RangeVerdict::Broken { seq, fault });
            }
        }
        if piece.is_empty() {
            return Ok(walk.stretch(true));
        }
    }
    Ok(walk.stretch(false))
}

/// Returns a fault if the event at a mark was changed. A pruned event cannot be checked.
async fn changed_at(
    store: &Store,
    mark: &VerifiedMark,
    begin: &VerifiedMark,
) -> Result<Option<ChainFault>> {
    if mark.seq < begin.seq {
        return Ok(None);
    }
    if mark.seq == begin.seq {
        return Ok((mark.hash != begin.hash).then_some(ChainFault::Changed));
    }
    let kept = store.lock_event_after(mark.seq - 1, 1).await?;
    Ok(match kept.first().filter(|event| event.seq == mark.seq) {
        Some(event) if event.hash == mark.hash => None,
        Some(_) => Some(ChainFault::Changed),
        None => Some(ChainFault::Missing),
    })
}
