//! Proof that the audit log is whole.
//!
//! Each event continues the one before it, so nothing in the middle can be changed or removed alone. What a chain of
//! hashes cannot show is shown by *anchors*: signed checkpoints, in the database and outside of it, say which hash an event
//! must have and how far the log must reach; a signed seal says where it begins.

use std::collections::BTreeMap;

use crate::model::{ChainedEvent, Sha256Digest};
use crate::seal::{Checkpoint, PublicKey};
use crate::store::{LockEventSeal, Result, Store};

/// So many events are read at once.
const PIECE: i64 = 1_000;

/// What looking through the log comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every event continues the one before it, and every anchor holds.
    Whole(Whole),
    /// The first event that does not fit.
    Broken {
        /// Its place.
        seq: i64,
        /// What does not fit.
        fault: Fault,
    },
}

/// A log that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Number of events in the chain.
    pub events: u64,
    /// How many were removed by `audit prune`.
    pub removed: i64,
    /// Hash of the newest. Kept elsewhere, it later proves that nothing was cut off the end.
    pub head: Sha256Digest,
    /// Whether the hash that was asked for stands in the log.
    pub known: bool,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Events after the last checkpoint, sealed or not.
    pub unsigned: i64,
}

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Something in the event was changed.
    Changed,
    /// It does not continue the event before it: that one was changed together with its hash.
    Unlinked,
    /// The event that should be here is not.
    Missing,
    /// Neither this event is there nor any up to that number.
    MissingTo(i64),
    /// It has a number that no event has, or one that was pruned.
    Stray,
    /// A checkpoint says that the event had another hash.
    Replaced,
    /// A seal in place of pruned events was not signed.
    UnsignedSeal,
    /// A checkpoint was not signed by a key of the log.
    UnsignedCheckpoint,
    /// The log was sealed, and there is no checkpoint.
    NoCheckpoint,
}

impl Fault {
    /// What to say of an event, after its number.
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
            Self::Stray => "does not belong to the log: no event of that number can be in it",
            Self::Replaced => {
                "is not the one that was signed in a checkpoint: the log was written again from there, or from before"
            }
            Self::UnsignedSeal => {
                "is said to be the last of those that were pruned, but no key of the log has signed that: somebody \
                 removed events without `audit prune`"
            }
            Self::UnsignedCheckpoint => "has a checkpoint that no key of the log has signed",
            Self::NoCheckpoint => "was sealed, but no checkpoint is left: somebody removed them",
        };
        text.to_owned()
    }
}

/// What is known about the log from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Authentic checkpoints that lie outside of the database.
    pub checkpoints: Vec<Checkpoint>,
    /// The keys that may sign checkpoints; `None`: those that the database names.
    pub keys: Option<Vec<PublicKey>>,
}

/// A place in the log up to which it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of the last event that was verified.
    pub seq: i64,
    /// Its hash.
    pub hash: Sha256Digest,
}

/// What looking through a part of the log comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Every event continues the one before it.
    Whole {
        /// How far it was looked through.
        mark: Mark,
        /// How many events were looked at.
        events: u64,
        /// Whether that is the end of the log.
        at_end: bool,
    },
    /// The first event that does not fit.
    Broken {
        /// Its place.
        seq: i64,
        /// What does not fit.
        fault: Fault,
    },
}

/// Walks along the chain.
struct Walk<'a> {
    seq: i64,
    head: Sha256Digest,
    events: u64,
    known: bool,
    wanted: Option<&'a Sha256Digest>,
    anchors: &'a BTreeMap<i64, Sha256Digest>,
}

impl Walk<'_> {
    fn step(&mut self, next: &ChainedEvent) -> Result<(), (i64, Fault)> {
        if next.seq != self.seq + 1 {
            return Err((self.seq + 1, Fault::Missing));
        }
        if next.previous != self.head {
            return Err((next.seq, Fault::Unlinked));
        }
        if !next.is_intact() {
            return Err((next.seq, Fault::Changed));
        }
        if self
            .anchors
            .get(&next.seq)
            .is_some_and(|hash| *hash != next.hash)
        {
            return Err((next.seq, Fault::Replaced));
        }
        self.seq = next.seq;
        self.head = next.hash.clone();
        self.events += 1;
        self.known |= self.wanted == Some(&self.head);
        Ok(())
    }

    fn stretch(self, at_end: bool) -> Stretch {
        Stretch::Whole {
            mark: Mark {
                seq: self.seq,
                hash: self.head,
            },
            events: self.events,
            at_end,
        }
    }
}

/// Where the log begins: behind the last event that was pruned.
fn beginning(seals: &[LockEventSeal]) -> Mark {
    let last = seals.last().map(|seal| Mark {
        seq: seal.last_seq,
        hash: seal.last_hash.clone(),
    });
    last.unwrap_or_else(|| Mark {
        seq: 0,
        hash: ChainedEvent::genesis(),
    })
}

/// Looks at the anchors without reading the log: both ends, and the events that checkpoints outside of the database and
/// the last one inside are about. The first thing that does not fit, if any.
pub async fn anchored(store: &Store, evidence: &Evidence) -> Result<Option<(i64, Fault)>> {
    // The log goes on meanwhile: what is known of it is read before it is looked at.
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
        return Ok(Some((forged.seq, Fault::UnsignedCheckpoint)));
    }
    let begin = beginning(&seals);
    if let Some(stray) = store
        .lock_event_after(i64::MIN, 1)
        .await?
        .first()
        .filter(|event| event.seq <= begin.seq)
    {
        return Ok(Some((stray.seq, Fault::Stray)));
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
            &Mark {
                seq: anchor.seq,
                hash: anchor.hash.clone(),
            },
            &begin,
        )
        .await?
        {
            return Ok(Some((
                anchor.seq,
                if fault == Fault::Changed {
                    Fault::Replaced
                } else {
                    fault
                },
            )));
        }
    }
    Ok((last.is_none() && reach.sealed > 0).then_some((reach.sealed, Fault::NoCheckpoint)))
}

fn missing(from: i64, to: i64) -> Fault {
    if from == to {
        Fault::Missing
    } else {
        Fault::MissingTo(to)
    }
}

/// The keys that may sign.
async fn trusted(store: &Store, evidence: &Evidence) -> Result<Vec<PublicKey>> {
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

/// A seal that no key of the log has signed.
fn unsigned_seal(seals: &[LockEventSeal], keys: &[PublicKey]) -> Option<(i64, Fault)> {
    seals
        .iter()
        .find(|seal| !seal.is_signed_by(keys))
        .map(|seal| (seal.last_seq, Fault::UnsignedSeal))
}

/// Reads the whole log. `wanted` is a hash that somebody noted earlier: it must stand in the log, or be the one that a
/// seal continues.
pub async fn verify(
    store: &Store,
    evidence: &Evidence,
    wanted: Option<&Sha256Digest>,
) -> Result<Verdict> {
    let broken = |(seq, fault)| Ok(Verdict::Broken { seq, fault });
    let checkpoints = store.audit_checkpoints().await?;
    let keys = trusted(store, evidence).await?;
    if let Some(forged) = checkpoints
        .iter()
        .find(|checkpoint| !is_signed(checkpoint, &keys))
    {
        return broken((forged.seq, Fault::UnsignedCheckpoint));
    }
    let mut anchors = BTreeMap::new();
    for checkpoint in checkpoints.iter().chain(&evidence.checkpoints) {
        if anchors
            .insert(checkpoint.seq, checkpoint.hash.clone())
            .is_some_and(|hash| hash != checkpoint.hash)
        {
            return broken((checkpoint.seq, Fault::Replaced));
        }
    }
    let seals = store.lock_event_seals().await?;
    let begin = beginning(&seals);
    let mut walk = Walk {
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
    Ok(Verdict::Whole(Whole {
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

/// Looks at the anchors, and reads on from a mark, or from the beginning, at most so many pieces of a thousand events. The
/// event at the mark must still be what it was.
pub async fn verify_on(
    store: &Store,
    evidence: &Evidence,
    from: Option<&Mark>,
    pieces: usize,
) -> Result<Stretch> {
    if let Some((seq, fault)) = anchored(store, evidence).await? {
        return Ok(Stretch::Broken { seq, fault });
    }
    let begin = beginning(&store.lock_event_seals().await?);
    // What was pruned since the mark was made cannot be looked at any more.
    let from = from.filter(|mark| mark.seq >= begin.seq).unwrap_or(&begin);
    if let Some(fault) = changed_at(store, from, &begin).await? {
        return Ok(Stretch::Broken {
            seq: from.seq,
            fault,
        });
    }
    let anchors = BTreeMap::new();
    let mut walk = Walk {
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
                return Ok(Stretch::Broken { seq, fault });
            }
        }
        if piece.is_empty() {
            return Ok(walk.stretch(true));
        }
    }
    Ok(walk.stretch(false))
}

/// Whether the event at a mark is not what it was. One that was pruned cannot be looked at.
async fn changed_at(store: &Store, mark: &Mark, begin: &Mark) -> Result<Option<Fault>> {
    if mark.seq < begin.seq {
        return Ok(None);
    }
    if mark.seq == begin.seq {
        return Ok((mark.hash != begin.hash).then_some(Fault::Changed));
    }
    let kept = store.lock_event_after(mark.seq - 1, 1).await?;
    Ok(match kept.first().filter(|event| event.seq == mark.seq) {
        Some(event) if event.hash == mark.hash => None,
        Some(_) => Some(Fault::Changed),
        None => Some(Fault::Missing),
    })
}
