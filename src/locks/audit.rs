//! Proof that the audit log is whole.

use crate::model::{LockEvent, Sha256Digest};
use crate::store::{LockEventSeal, Result, Store};

/// So many events are read at once.
const PIECE: i64 = 1_000;

/// What looking through the log comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every event continues the one before it.
    Whole {
        /// How many there are.
        events: u64,
        /// How many were removed by `audit prune`.
        removed: i64,
        /// Hash of the newest. Kept elsewhere, it later proves that nothing was cut off the end.
        head: Sha256Digest,
        /// Whether the hash that was asked for stands in the log.
        known: bool,
    },
    /// The first event that does not fit.
    Broken {
        /// Its place.
        seq: i64,
        /// What does not fit.
        fault: Fault,
    },
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
}

impl Fault {
    /// What to say of an event, after its number.
    pub const fn says(self) -> &'static str {
        match self {
            Self::Changed => "was changed after it was written",
            Self::Unlinked => "does not continue the one before it, which was changed together with its hash",
            Self::Missing => "is missing",
        }
    }
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
}

impl Walk<'_> {
    fn step(&mut self, next: &LockEvent) -> Result<(), (i64, Fault)> {
        if next.seq != self.seq + 1 {
            return Err((self.seq + 1, Fault::Missing));
        }
        if next.previous != self.head {
            return Err((next.seq, Fault::Unlinked));
        }
        if !next.is_intact() {
            return Err((next.seq, Fault::Changed));
        }
        self.seq = next.seq;
        self.head = next.hash.clone();
        self.events += 1;
        self.known |= self.wanted == Some(&self.head);
        Ok(())
    }

    fn stretch(self, at_end: bool) -> Stretch {
        Stretch::Whole { mark: Mark { seq: self.seq, hash: self.head }, events: self.events, at_end }
    }
}

/// Reads the whole log. `wanted` is a hash that somebody noted earlier: it must stand in the log, or be the one that a
/// seal continues.
pub async fn verify(store: &Store, wanted: Option<&Sha256Digest>) -> Result<Verdict> {
    let seals = store.lock_event_seals().await?;
    let last: Option<&LockEventSeal> = seals.last();
    let mut walk = Walk {
        seq: last.map_or(0, |seal| seal.last_seq),
        head: last.map_or_else(LockEvent::genesis, |seal| seal.last_hash.clone()),
        events: 0,
        known: wanted.is_none() || seals.iter().any(|seal| wanted == Some(&seal.last_hash)),
        wanted,
    };
    // What was pruned stays gone: an event before the seal would be one that somebody put there.
    if let Some(stray) = store.lock_event_after(0, 1).await?.first().filter(|event| event.seq <= walk.seq) {
        return Ok(Verdict::Broken { seq: stray.seq, fault: Fault::Unlinked });
    }
    loop {
        let piece = store.lock_event_after(walk.seq, PIECE).await?;
        if piece.is_empty() {
            let removed = seals.iter().map(|seal| seal.events).sum();
            return Ok(Verdict::Whole { events: walk.events, removed, head: walk.head, known: walk.known });
        }
        for event in &piece {
            if let Err((seq, fault)) = walk.step(event) {
                return Ok(Verdict::Broken { seq, fault });
            }
        }
    }
}

/// Reads on from a mark, or from the beginning, at most so many pieces of a thousand events. The event at the mark must
/// still be what it was, so that nothing can be cut off the end unnoticed.
pub async fn verify_on(store: &Store, from: Option<&Mark>, pieces: usize) -> Result<Stretch> {
    let sealed = store.lock_event_seals().await?.pop().map(|seal| Mark { seq: seal.last_seq, hash: seal.last_hash });
    let begin = sealed.unwrap_or_else(|| Mark { seq: 0, hash: LockEvent::genesis() });
    // What was pruned since the mark was made cannot be looked at any more.
    let from = from.filter(|mark| mark.seq >= begin.seq).unwrap_or(&begin);
    if let Some(fault) = changed_at(store, from, &begin).await? {
        return Ok(Stretch::Broken { seq: from.seq, fault });
    }
    let mut walk = Walk { seq: from.seq, head: from.hash.clone(), events: 0, known: true, wanted: None };
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

/// Whether the event at a mark is not what it was.
async fn changed_at(store: &Store, mark: &Mark, begin: &Mark) -> Result<Option<Fault>> {
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
