//! Reports panics of this server: each is a bug in Lockkeeper that an administrator should hear of, although the work
//! continues.

use anyhow::bail;
use chrono::{SecondsFormat, TimeDelta};
use std::time::Duration;

use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};

pub(super) const RECONCILER: Reconciler = Reconciler::new(
        "panics",
        "Checks whether this server panicked in the last 24 hours. The work goes on, but an administrator should \
         know.",
        Duration::from_mins(1),
        |ctx| Box::pin(std::future::ready(tick(ctx))),
    )
    .on_every_replica();

/// Time for which a panic is reported. Older ones are only in the log.
const TOLD_FOR: TimeDelta = TimeDelta::days(1);

/// Fails if there were any panics. It has nothing to fix.
fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let seen = ctx.server.panics.since(ctx.clock.now() - TOLD_FOR);
    if let Some(last) = seen.last() {
        let times = if seen.len() == 1 {
            "once".to_owned()
        } else {
            format!("{} times", seen.len())
        };
        bail!(
            "the server {} panicked {times} in the last 24 hours, most recently at {} in {}. This is a bug in \
             Lockkeeper. Please report it with the log of that server",
            ctx.server.leases.replica(),
            last.at.to_rfc3339_opts(SecondsFormat::Secs, true),
            last.place
        );
    }
    Ok(TickResult {
        looked_at: 1,
        repaired: 0,
    })
}
