//! Exclusive work: at most one at a time on all servers, by a row of the database with an end time.
//!
//! The need: a mirror is synchronised by one at a time, a repair is made by one server of a group. The row says who and
//! until when; what is done under it must never go on when somebody else may have begun the same.
//!
//! Invariants, and what holds them:
//! - *One holder*: a lease is taken in one statement, which also decides whether its holder is gone (`store::leases`).
//! - *No second while the first works*: whoever works renews ([`Leases::tick`]), and is cancelled before the lease can end
//!   for others: when a renewal says that it is lost, when it could not be renewed for most of its time
//!   ([`Leases::look`]), and when this server is not heard of any more ([`Leases::watch`]), after which others take over
//!   everything that is its own. Work that was given up is dropped before its lease is given back. Within this process a
//!   key is never asked for twice at once, whatever the database says: after a pause of the machine the row may be free
//!   while the work has not been told yet.
//! - *Given back whatever happens*: at the end of the work, after an error, a panic, or when the work is dropped; what
//!   the database does not hear is told again with every tick; and all of it ends with its server, by the holder's
//!   prefix.
//!
//! The races: a lease that ends while it is being given back is gone either way; a renewal that overtakes the end of its
//! work finds no row and nobody to cancel; a claim whose answer was lost is given back before the key is asked for
//! again; a release by hand does not overtake a holder that may be at work, it takes away the renewal
//! ([`crate::store::Store::lease_free`]).

mod gates;
mod held;
mod key;
mod registry;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, warn};

use self::registry::{Moment, Registry};
use crate::clock::{Clock, Ids};
use crate::process::Pulse;
use crate::store::{Hold, NewLease, Store, TakeLease};
use crate::telemetry::{Metric, Metrics};

pub use self::gates::SharedGates;
pub use self::held::{HeldLease, LeaseOutcome};
pub use self::key::{LeaseKey, LeaseKind};

/// How often a server turns [`Leases::tick`] and [`Leases::look`]: often enough for leases of a few seconds. Neither asks
/// the database anything unless a renewal is due.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What came of asking for a lease.
#[must_use]
pub enum Obtained {
    /// It is ours.
    Held(HeldLease),
    /// Somebody else has it.
    Busy {
        /// What was asked for.
        key: LeaseKey,
        /// Who has it.
        holder: String,
        /// When it ends unless it is renewed, by the clock of the judge (see `store::time`).
        until: DateTime<Utc>,
    },
}

/// The leases of one server. Clones share them.
#[derive(Clone)]
pub struct Leases(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    /// Holders are signed with it, and end with it.
    replica: String,
    metrics: Metrics,
    registry: Registry,
}

impl Leases {
    /// The name of this replica.
    pub fn replica(&self) -> &str {
        &self.0.replica
    }

    /// Leases that this replica takes.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        replica: String,
        metrics: Metrics,
    ) -> Self {
        for kind in LeaseKind::ALL {
            metrics.add(Metric::LeaseRefusals, &[kind.as_str()], 0);
            metrics.add(Metric::LeasesLost, &[kind.as_str()], 0);
        }
        Self(Arc::new(Inner {
            store,
            clock,
            ids,
            replica,
            metrics,
            registry: Registry::default(),
        }))
    }

    /// Asks for a lease, for `time` unless it is renewed. It does not wait: what somebody else holds is logged, counted,
    /// and to be tried again later.
    ///
    /// # Errors
    ///
    /// The database did not answer.
    pub async fn obtain(
        &self,
        key: &LeaseKey,
        purpose: &str,
        time: Duration,
    ) -> Result<Obtained, sqlx::Error> {
        let obtained = self.ask(key, purpose, time).await?;
        if let Obtained::Busy { key, holder, until } = &obtained {
            self.0
                .metrics
                .count(Metric::LeaseRefusals, &[key.kind().as_str()]);
            warn!(%key, holder, %until, purpose, "cannot obtain an exclusive lease");
        }
        Ok(obtained)
    }

    /// Asks for a lease that others are expected to have: a turn that one server of a group takes in each period. `None`:
    /// another did.
    ///
    /// # Errors
    ///
    /// The database did not answer.
    pub async fn turn(
        &self,
        key: &LeaseKey,
        purpose: &str,
        period: Duration,
    ) -> Result<Option<HeldLease>, sqlx::Error> {
        Ok(match self.ask(key, purpose, period).await? {
            Obtained::Held(held) => Some(held),
            Obtained::Busy { .. } => None,
        })
    }

    /// In a task of its own: who stops waiting half-way would not know whether it has the lease, and the task does. A
    /// lease that nobody waits for any more is dropped, and so given back.
    async fn ask(
        &self,
        key: &LeaseKey,
        purpose: &str,
        time: Duration,
    ) -> Result<Obtained, sqlx::Error> {
        let (inner, key, purpose) = (Arc::clone(&self.0), key.clone(), purpose.to_owned());
        let asking = async move { inner.ask(key, &purpose, time).await };
        match tokio::spawn(asking.in_current_span()).await {
            Ok(obtained) => obtained,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => Err(sqlx::Error::WorkerCrashed),
        }
    }

    /// Renews what is due, and tells again what the database has not heard yet. To be turned every [`LOOK_EVERY`].
    pub async fn tick(&self) {
        self.look();
        let now = self.0.moment();
        let (due, over) = (self.0.registry.due(now), self.0.registry.over(now));
        let renewals = join_all(due.iter().map(|(hold, time)| self.0.renew(hold, *time)));
        let releases = join_all(over.iter().map(|hold| self.0.give_back(hold)));
        tokio::join!(renewals, releases);
    }

    /// Cancels work whose lease could not be renewed and is about to end. It waits for nothing, so that a database which
    /// does not answer cannot keep it from doing so. To be turned every [`LOOK_EVERY`], beside the ticks.
    pub fn look(&self) {
        for hold in self.0.registry.cancel_old(self.0.moment()) {
            self.0.lost(&hold, "it could not be renewed");
        }
    }

    /// Cancels all work whenever this server was not heard of for so long that others take its leases. Never returns.
    pub async fn watch(&self, pulse: &Pulse) {
        loop {
            pulse.ran_out().await;
            for hold in self.0.registry.cancel_all() {
                self.0
                    .lost(&hold, "this server could not say in time that it is there");
            }
            pulse.came_back().await;
        }
    }
}

impl Inner {
    async fn ask(
        self: Arc<Self>,
        key: LeaseKey,
        purpose: &str,
        time: Duration,
    ) -> Result<Obtained, sqlx::Error> {
        let hold = Hold {
            key: key.to_string(),
            holder: format!("{}/{}", self.replica, self.ids.next()),
        };
        let asked = self.moment();
        let lost = CancellationToken::new();
        if let Err(ours) = self.registry.enter(&hold, time, asked, &lost) {
            let until = asked.clock() + ours.left;
            return Ok(Obtained::Busy {
                key,
                holder: ours.holder,
                until,
            });
        }
        let until = self.ends_at(time);
        match self
            .store
            .lease_take(NewLease {
                hold: &hold,
                purpose,
                until,
            })
            .await
        {
            Ok(TakeLease::Taken(_)) => Ok(Obtained::Held(HeldLease::new(self, hold, lost))),
            Ok(TakeLease::HeldBy(theirs)) => {
                self.registry.forget(&hold);
                Ok(Obtained::Busy {
                    key,
                    holder: theirs.holder,
                    until: theirs.until,
                })
            }
            Err(error) => {
                // Nobody knows what the database did: until it says otherwise it may be ours.
                self.registry.end(&hold);
                Err(error)
            }
        }
    }

    async fn renew(&self, hold: &Hold, time: Duration) {
        let asked = self.moment();
        match self.store.lease_renew(hold, self.ends_at(time)).await {
            Ok(true) => self.registry.renewed(hold, asked),
            Ok(false) if self.registry.cancel(hold) => {
                self.lost(hold, "it ended, or was given back by hand");
            }
            Ok(false) => {}
            Err(error) => {
                warn!(key = hold.key, %error, "A lease could not be renewed, which is tried again");
            }
        }
    }

    /// Its work is over, in one way or another.
    async fn give_back(&self, hold: &Hold) {
        self.registry.end(hold);
        match self.store.lease_release(hold).await {
            Ok(was_held) => {
                if self.registry.forget(hold) && !was_held {
                    info!(key = hold.key, "A lease was gone before its work had ended");
                }
            }
            Err(error) => {
                warn!(key = hold.key, %error, "A lease could not be given back, which is tried again");
            }
        }
    }

    fn lost(&self, hold: &Hold, why: &str) {
        self.metrics.count(
            Metric::LeasesLost,
            &[LeaseKey::of_text(&hold.key).kind().as_str()],
        );
        warn!(
            key = hold.key,
            why, "An exclusive lease was lost; what is done under it is stopped"
        );
    }

    fn ends_at(&self, time: Duration) -> DateTime<Utc> {
        let time = TimeDelta::from_std(time).unwrap_or(TimeDelta::MAX);
        self.clock
            .now()
            .checked_add_signed(time)
            .unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    fn moment(&self) -> Moment {
        Moment::new(self.clock.now())
    }
}
