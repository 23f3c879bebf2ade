//! Fixes differences at any time: each reconciler reads the state and moves it one step towards the intended one. It
//! takes no argument, so that it finds changes without an event, and a second run finds nothing to do.
//!
//! Servers run the reconcilers of [`crate::features::reconcilers`] on a timer. Metrics, the page of operations and the
//! documentation are made from that list. A reconciler is a function `async fn tick(&ServerCtx) -> anyhow::Result<Found>`
//! and a value with its name, its purpose and its period.

mod rounds;

use std::ops::AddAssign;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::config::server::Periods;
use crate::context::ServerCtx;

pub use rounds::{Rounds, TurnResult};

/// Longest pause of a reconciler that backs off.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Pause of a reconciler after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailurePause {
    /// The same time as after a success.
    Period,
    /// Twice as long after each failure, because it depends on another server that may be down for long.
    Growing,
}

/// Result of one tick of a reconciler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickResult {
    /// Number of things that it checked.
    pub looked_at: u64,
    /// Number of things that it fixed.
    pub repaired: u64,
}

impl TickResult {
    /// Counts the results of a reconciler that only finds things that it fixes.
    pub const fn repaired(count: u64) -> Self {
        Self {
            looked_at: count,
            repaired: count,
        }
    }
}

impl AddAssign for TickResult {
    fn add_assign(&mut self, more: Self) {
        self.looked_at += more.looked_at;
        self.repaired += more.repaired;
    }
}

/// Servers that turn a reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every server turns it for itself.
    EveryReplica,
    /// One of the servers with a common database turns it: the first one after the period is over.
    OnePerGroup,
}

/// Time until which a stopping server turns a reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopDeadline {
    /// Until the server begins to stop.
    Closing,
    /// Until its last run has ended, because those runs need it.
    End,
}

/// News that wake a reconciler before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakingNews {
    /// News of repositories ([`crate::store::News::Mirrors`]).
    Mirrors,
    /// Records that were made here ([`crate::store::News::Registry`]).
    Registry,
}

type TickFn = for<'a> fn(&'a ServerCtx) -> BoxFuture<'a, anyhow::Result<TickResult>>;

/// A reconciler with its schedule.
pub struct Reconciler {
    /// Name in metrics and on the page of operations; it never changes.
    pub name: &'static str,
    /// Purpose of the reconciler, a sentence for people.
    pub repairs: &'static str,
    /// Time from one tick to the next, unless a setting changes it ([`Self::every`]).
    pub period: Duration,
    set: Option<fn(&Periods) -> Duration>,
    /// Servers that turn it.
    pub scope: Scope,
    /// Time until which a stopping server turns it.
    pub until: StopDeadline,
    /// News that wake it before its time.
    pub woken_by: Option<WakingNews>,
    /// True if the server renews its own leases first. After a pause of the whole machine they look like those of a
    /// dead server, and it would take work over from itself.
    pub renews_first: bool,
    /// Pause after a failure.
    pause: FailurePause,
    /// True if a starting server turns it at once, even if another one has had the turn. Changes that it missed while
    /// it was down need not wait for a period.
    pub looks_at_start: bool,
    tick: TickFn,
}

impl Reconciler {
    /// Defines a reconciler that one of the servers with a common database turns, until that server begins to stop.
    pub const fn new(
        name: &'static str,
        repairs: &'static str,
        period: Duration,
        tick: TickFn,
    ) -> Self {
        Self {
            name,
            repairs,
            period,
            set: None,
            scope: Scope::OnePerGroup,
            until: StopDeadline::Closing,
            woken_by: None,
            renews_first: false,
            pause: FailurePause::Period,
            looks_at_start: false,
            tick,
        }
    }

    /// Takes the period from a setting.
    pub(crate) const fn set_by(self, set: fn(&Periods) -> Duration) -> Self {
        Self {
            set: Some(set),
            ..self
        }
    }

    /// Lets each server turn it for itself, until its last run has ended.
    pub(crate) const fn on_every_replica(self) -> Self {
        Self {
            scope: Scope::EveryReplica,
            until: StopDeadline::End,
            ..self
        }
    }

    /// Wakes it before its time.
    pub(crate) const fn woken_by(self, news: WakingNews) -> Self {
        Self {
            woken_by: Some(news),
            ..self
        }
    }

    pub(crate) const fn renewing_first(self) -> Self {
        Self {
            renews_first: true,
            ..self
        }
    }

    pub(crate) const fn backing_off(self) -> Self {
        Self {
            pause: FailurePause::Growing,
            ..self
        }
    }

    pub(crate) const fn looking_at_start(self) -> Self {
        Self {
            looks_at_start: true,
            ..self
        }
    }

    /// Returns the time from one tick to the next on this server.
    pub fn every(&self, periods: &Periods) -> Duration {
        self.set.map_or(self.period, |set| set(periods))
    }

    /// Returns the time from the last one of consecutive failures to the next tick. `period` is the usual time.
    pub fn pause_after(&self, failures: u32, period: Duration) -> Duration {
        if self.pause == FailurePause::Period {
            return period;
        }
        let longer = period.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        longer.min(LONGEST_PAUSE.max(period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconciler_that_backs_off_waits_twice_as_long_after_each_failure() {
        let of = |reconciler: Reconciler, failures: &[u32]| {
            let pauses = failures.iter().map(|failures| {
                reconciler
                    .pause_after(*failures, reconciler.period)
                    .as_secs()
            });
            pauses.collect::<Vec<_>>()
        };
        let every = |seconds| {
            Reconciler::new("x", "Nothing.", Duration::from_secs(seconds), |_| {
                Box::pin(async { Ok(TickResult::default()) })
            })
        };
        let failures = [1, 2, 3, 5, 6, 7, u32::MAX];
        let pauses = of(every(10).backing_off(), &failures);
        assert_eq!(pauses, [10, 20, 40, 160, 300, 300, 300]);
        assert_eq!(of(every(3600).backing_off(), &failures), [3600; 7]);
        assert_eq!(of(every(10), &failures), [10; 7]);
    }
}
