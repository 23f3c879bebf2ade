//! Panics of this server: each is a mistake in Lockkeeper that somebody should hear of, although the work goes on.

use anyhow::bail;
use chrono::{SecondsFormat, TimeDelta};

use super::Found;
use crate::context::Ctx;

/// Older ones are in the log alone.
const TOLD_FOR: TimeDelta = TimeDelta::days(1);

/// Looks whether there were any. There is nothing to repair.
pub(super) fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    let seen = ctx.panics.since(ctx.clock.now() - TOLD_FOR);
    if let Some(last) = seen.last() {
        let times = if seen.len() == 1 {
            "once".to_owned()
        } else {
            format!("{} times", seen.len())
        };
        bail!(
            "the server {} panicked {times} in the last 24 hours, most recently at {} in {}. That is a bug in Lockkeeper; please \
             report it with what the log of that server says",
            ctx.leases.replica(),
            last.at.to_rfc3339_opts(SecondsFormat::Secs, true),
            last.place
        );
    }
    Ok(Found {
        looked_at: 1,
        repaired: 0,
    })
}
