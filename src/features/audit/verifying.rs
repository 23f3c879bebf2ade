//! Checks that nobody changed the audit log of locks.
//!
//! Two walks follow the chain. `new` follows its end, so that new events are verified within a period. `again` goes
//! from the beginning to the end and then starts again. So it also finds changes to events that were verified long
//! ago. Each walk has a limited length per tick, so a tick costs the same for a log of any length.

use std::time::Duration;

use anyhow::bail;
use tracing::debug;

use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::locks::{KnownLogState, RangeVerdict, VerifiedMark, verify_on};
use crate::model::ChainedEvent;
use crate::store::LockEventWalk;

/// Name of the walk along the end of the log.
pub(super) const NEW: &str = "new";
/// Name of the repeated walk through the whole log.
pub(super) const AGAIN: &str = "again";

/// Maximum number of pieces per walk and tick; a piece has a thousand events.
const PIECES: usize = 20;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "audit",
    "Verifies the audit log of locks: first its new events, then all events again, piece by piece.",
    Duration::from_mins(5),
    |ctx| Box::pin(tick(ctx)),
);

/// Continues both walks. A broken log is reported by every tick until an administrator has dealt with it.
async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let before = ctx.store.lock_event_walks().await?;
    let (mut looked_at, mut broken) = (0, None);
    for name in [NEW, AGAIN] {
        let walk = before.iter().find(|walk| walk.name == name);
        match step(ctx, name, walk).await? {
            RangeVerdict::Whole { events, .. } => looked_at += events,
            RangeVerdict::Broken { seq, fault } => broken = Some((seq, fault)),
        }
    }
    if let Some((seq, fault)) = broken {
        bail!(
            "the audit log of locks is broken: event {seq} {}. Run `lockkeeper audit verify` to verify all of it",
            fault.says()
        );
    }
    Ok(TickResult {
        looked_at,
        repaired: 0,
    })
}

async fn step(
    ctx: &ServerCtx,
    name: &str,
    walk: Option<&LockEventWalk>,
) -> anyhow::Result<RangeVerdict> {
    let from = walk.map(|walk| VerifiedMark {
        seq: walk.seq,
        hash: walk.hash.clone(),
    });
    let evidence = KnownLogState {
        checkpoints: ctx.server.audit.mark()?.into_iter().collect(),
        keys: None,
    };
    let mut stretch = verify_on(&ctx.store, &evidence, from.as_ref(), PIECES).await?;
    if matches!(stretch, RangeVerdict::Broken { .. }) {
        // An administrator may have pruned the log between two ticks.
        stretch = verify_on(&ctx.store, &evidence, from.as_ref(), PIECES).await?;
    }
    let begin = || VerifiedMark {
        seq: 0,
        hash: ChainedEvent::genesis(),
    };
    let (mark, broken) = match &stretch {
        RangeVerdict::Whole {
            mark, at_end: true, ..
        } if name == AGAIN && mark.seq > 0 => {
            debug!(
                events = mark.seq,
                "The whole audit log of locks was verified again"
            );
            (begin(), None)
        }
        RangeVerdict::Whole { mark, .. } => (mark.clone(), None),
        RangeVerdict::Broken { seq, fault } => {
            (from.unwrap_or_else(begin), Some((*seq, fault.says())))
        }
    };
    let (broken_seq, fault) = broken.unzip();
    let (name, walked_at) = (name.to_owned(), ctx.clock.now());
    ctx.store
        .lock_event_walk_set(&LockEventWalk {
            name,
            seq: mark.seq,
            hash: mark.hash,
            broken_seq,
            fault,
            walked_at,
        })
        .await?;
    Ok(stretch)
}
