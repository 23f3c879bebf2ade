//! Repair that may run at any time: each reconciler reads the state and moves it one step towards what should be. It takes
//! no argument, so that it finds what nobody told it of, and a second run finds nothing left.
//!
//! Servers turn the reconcilers of [`crate::features::reconcilers`] by timer, and metrics, the page of operations and the
//! documentation are made from that list. A reconciler is a function `async fn tick(&Ctx) -> anyhow::Result<Found>` and a
//! value that says its name, what it repairs and how often.

mod closed_pulls;
mod disk;
mod forge;
mod gone;
mod listing;
mod missed;
mod orphans;
mod panics;
mod retention;
mod rounds;
mod statuses;
mod stops;

use std::ops::AddAssign;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::config::server::Periods;
use crate::context::Ctx;

pub use rounds::{Rounds, Turn};

/// What one look comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How much was looked at.
    pub looked_at: u64,
    /// How much of that was repaired.
    pub repaired: u64,
}

impl Found {
    /// For repairs that only meet what they repair.
    pub const fn repaired(count: u64) -> Self {
        Self {
            looked_at: count,
            repaired: count,
        }
    }
}

impl AddAssign for Found {
    fn add_assign(&mut self, more: Self) {
        self.looked_at += more.looked_at;
        self.repaired += more.repaired;
    }
}

/// Which servers turn a reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each for itself.
    EveryReplica,
    /// One of those that share a database, whichever comes first when the period is over.
    OnePerGroup,
}

/// How long a server that is told to stop goes on with a reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until it is told.
    Closing,
    /// Until its last run has ended, because those runs need it.
    End,
}

type Tick = for<'a> fn(&'a Ctx) -> BoxFuture<'a, anyhow::Result<Found>>;

/// A repair.
pub struct Reconciler {
    /// Its name in metrics and on the operators' page; never changes.
    pub name: &'static str,
    /// What it repairs, a sentence for people.
    pub repairs: &'static str,
    /// How long from one look to the next, unless a setting says otherwise ([`Self::every`]).
    pub period: Duration,
    set: Option<fn(&Periods) -> Duration>,
    /// Who turns it.
    pub scope: Scope,
    /// How long.
    pub until: Until,
    /// Whether news of repositories wake it before its time ([`crate::store::News::Mirrors`]).
    pub hears_of_mirrors: bool,
    /// Whether the server renews its own leases before. After a pause of the whole machine they look like those of a
    /// dead server, and it would take work over from itself.
    pub renews_first: bool,
    /// Whether a server that starts looks at once, also if another has had the turn: what happened while it was away, or
    /// was told to it in vain, is not to wait for a period.
    pub looks_at_start: bool,
    tick: Tick,
}

impl Reconciler {
    /// One of those that share a database turns it, until it is told to stop.
    pub const fn new(
        name: &'static str,
        repairs: &'static str,
        period: Duration,
        tick: Tick,
    ) -> Self {
        Self {
            name,
            repairs,
            period,
            set: None,
            scope: Scope::OnePerGroup,
            until: Until::Closing,
            hears_of_mirrors: false,
            renews_first: false,
            looks_at_start: false,
            tick,
        }
    }

    /// A setting says how long it is from one look to the next.
    pub(crate) const fn set_by(self, set: fn(&Periods) -> Duration) -> Self {
        Self {
            set: Some(set),
            ..self
        }
    }

    /// Each server turns it for itself, until its last run has ended.
    pub(crate) const fn on_every_replica(self) -> Self {
        Self {
            scope: Scope::EveryReplica,
            until: Until::End,
            ..self
        }
    }

    pub(crate) const fn hearing_of_mirrors(self) -> Self {
        Self {
            hears_of_mirrors: true,
            ..self
        }
    }

    pub(crate) const fn renewing_first(self) -> Self {
        Self {
            renews_first: true,
            ..self
        }
    }

    const fn looking_at_start(self) -> Self {
        Self {
            looks_at_start: true,
            ..self
        }
    }

    /// How long from one look to the next on this server.
    pub fn every(&self, periods: &Periods) -> Duration {
        self.set.map_or(self.period, |set| set(periods))
    }
}

/// Reconcilers that belong to no feature yet, in the order of the page of operations.
pub static RECONCILERS: &[Reconciler] = &[
    Reconciler::new(
        "closed_pulls",
        "Gives back what closed pull requests still hold: the close event was missed, or a server died over it; and what \
         pull requests hold that are gone, with their repository or without.",
        Duration::from_mins(5),
        |ctx| Box::pin(closed_pulls::tick(ctx)),
    )
    .looking_at_start(),
    Reconciler::new(
        "orphans",
        "Puts the work of servers that are gone back into the queue, and ends what else they had claimed.",
        Duration::from_secs(15),
        |ctx| Box::pin(orphans::tick(ctx)),
    )
    .on_every_replica()
    .renewing_first(),
    Reconciler::new(
        "forge",
        "Asks whether the forge answers, takes the credentials of the server, and allows what the server needs.",
        Duration::from_mins(5),
        |ctx| Box::pin(forge::tick(ctx)),
    )
    .on_every_replica(),
    Reconciler::new(
        "stops",
        "Stops commands of this server that somebody cancelled on another.",
        Duration::from_secs(2),
        |ctx| Box::pin(stops::tick(ctx)),
    )
    .on_every_replica(),
    Reconciler::new(
        "missed_events",
        "Lists the open pull requests of the forge and does what events would have done that never came.",
        Duration::from_mins(5),
        |ctx| Box::pin(missed::tick(ctx)),
    ),
    Reconciler::new(
        "panics",
        "Looks whether this server panicked in the last 24 hours: the work goes on, but somebody should hear of it.",
        Duration::from_mins(1),
        |ctx| Box::pin(std::future::ready(panics::tick(ctx))),
    )
    .on_every_replica(),
    Reconciler::new(
        "pending_statuses",
        "Ends statuses of commits that no command will end any more.",
        Duration::from_mins(5),
        |ctx| Box::pin(statuses::tick(ctx)),
    ),
    // All files of all checkouts are counted, so not too often.
    Reconciler::new(
        "disk",
        "Removes checkouts of closed pull requests, providers that nobody uses, and what takes more room than \
         --disk-quota.",
        Duration::from_mins(15),
        |ctx| Box::pin(disk::tick(ctx)),
    )
    .on_every_replica(),
    Reconciler::new(
        "retention",
        "Removes what is older than --keep-deliveries and --keep-runs, jobs that ended a week ago, servers that ended \
         a day ago, events of repositories that every server has walked, and plan files without a record.",
        Duration::from_hours(1),
        |ctx| Box::pin(retention::tick(ctx)),
    ),
];

/// Tells commands of this process to stop that were asked to by another replica: for those who have heard of it before
/// its timer has.
pub async fn stops(ctx: &Ctx) -> anyhow::Result<()> {
    stops::tick(ctx).await.map(drop)
}
