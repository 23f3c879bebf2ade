//! Exclusive work: at most one holder at a time on all servers, by a database row with an end time.
//!
//! The need: only one server at a time may synchronise a mirror, and one server of a group runs a reconciler. The row
//! names the holder and the end time. Work under a lease must stop before another server can begin the same work.
//!
//! Invariants, and their enforcement:
//! - *One holder*: one statement takes a lease, and also decides if its previous holder is gone (`store::leases`).
//! - *No second while the first works*: a holder renews its lease ([`Leases::tick`]). Its work is cancelled before
//!   others can take the lease. That happens when a renewal reports that the lease is lost, or when the lease could not
//!   be renewed for most of its time ([`Leases::cancel_expiring`]). It also happens when this server does not reach the
//!   database any more ([`Leases::watch`]), after which others take over everything that it holds. Cancelled work is
//!   dropped before its lease is released. Within this process, a key is never requested twice at once, even if the
//!   database shows it as free. After a pause of the machine the row may be free although the work has not been
//!   cancelled yet.
//! - *Released in every case*: a lease is released at the end of the work, after an error or a panic, and when the
//!   work is dropped. Each tick repeats releases that did not reach the database. All leases end with their server,
//!   by the prefix of the holder.
//!
//! The races: a lease that expires during its release is gone either way. A renewal that overtakes the end of its
//! work finds no row and no work to cancel. A claim whose answer was lost is released before the key is requested
//! again. A release by an administrator does not overtake a holder that may be at work. It only prevents the renewal
//! ([`crate::store::Store::lease_free`]).

mod gates;
mod held;
mod key;
mod local;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, warn};

use self::local::{LocalLeases, TwoClockTime};
use crate::clock::{Clock, Ids};
use crate::process::LeaseHeartbeat;
use crate::store::{LeaseHold, NewLease, Store, TakeLease};
use crate::telemetry::{Metric, Metrics};

pub use self::gates::SharedGates;
pub use self::held::{HeldLease, LeaseOutcome};
pub use self::key::{LeaseKey, LeaseKind};

/// Interval of [`Leases::tick`] and [`Leases::cancel_expiring`], short enough for leases of a few seconds. Neither
/// queries the database unless a renewal is due.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Result of a request for a lease.
#[must_use]
pub enum LeaseAttempt {
    /// Lease of this server.
    Held(HeldLease),
    /// Another holder has the lease.
    Busy {
        /// Key of the requested lease.
        key: LeaseKey,
        /// Holder of the lease.
        holder: String,
        /// End of the lease unless it is renewed, by the clock that decides (see `store::time`).
        until: DateTime<Utc>,
    },
}

/// The leases of one server. Clones share them.
#[derive(Clone)]
pub struct Leases(Arc<LeasesInner>);

struct LeasesInner {
    store: Store,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    /// Prefix of every holder. The leases end with this replica.
    replica: String,
    metrics: Metrics,
    local: LocalLeases,
}

impl Leases {
    /// Returns the name of this replica.
    pub fn replica(&self) -> &str {
        &self.0.replica
    }

    /// Creates the leases of this replica, which holds none yet.
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
        Self(Arc::new(LeasesInner {
            store,
            clock,
            ids,
            replica,
            metrics,
            local: LocalLeases::default(),
        }))
    }

    /// Requests a lease that lasts for `time` unless it is renewed. Does not wait: a lease that another holder has is
    /// logged and counted, and the caller tries again later.
    ///
    /// # Errors
    ///
    /// The database did not answer.
    pub async fn obtain(
        &self,
        key: &LeaseKey,
        purpose: &str,
        time: Duration,
    ) -> Result<LeaseAttempt, sqlx::Error> {
        let obtained = self.request(key, purpose, time).await?;
        if let LeaseAttempt::Busy { key, holder, until } = &obtained {
            self.0
                .metrics
                .count(Metric::LeaseRefusals, &[key.kind().as_str()]);
            warn!(%key, holder, %until, purpose, "Cannot obtain an exclusive lease");
        }
        Ok(obtained)
    }

    /// Requests a lease that others are expected to have: a turn that one server of a group takes in each period.
    /// `None` means that another server took the turn.
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
        Ok(match self.request(key, purpose, period).await? {
            LeaseAttempt::Held(held) => Some(held),
            LeaseAttempt::Busy { .. } => None,
        })
    }

    /// Requests the lease in its own task. A caller that stops waiting half-way would not know if it has the lease,
    /// but the task knows. A lease without a waiting caller is dropped, and so released.
    async fn request(
        &self,
        key: &LeaseKey,
        purpose: &str,
        time: Duration,
    ) -> Result<LeaseAttempt, sqlx::Error> {
        let (inner, key, purpose) = (Arc::clone(&self.0), key.clone(), purpose.to_owned());
        let asking = async move { inner.request(key, &purpose, time).await };
        match tokio::spawn(asking.in_current_span()).await {
            Ok(obtained) => obtained,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => Err(sqlx::Error::WorkerCrashed),
        }
    }

    /// Renews the leases that are due, and repeats releases that did not reach the database. Call it every
    /// [`LOOK_EVERY`].
    pub async fn tick(&self) {
        self.cancel_expiring();
        let now = self.0.moment();
        let (due, over) = (self.0.local.due(now), self.0.local.over(now));
        let renewals = join_all(due.iter().map(|(hold, time)| self.0.renew(hold, *time)));
        let releases = join_all(over.iter().map(|hold| self.0.end(hold)));
        tokio::join!(renewals, releases);
    }

    /// Cancels work whose lease could not be renewed and is about to expire. Never waits, so a database that does not
    /// answer cannot delay it. Call it every [`LOOK_EVERY`], beside the ticks.
    pub fn cancel_expiring(&self) {
        for hold in self.0.local.cancel_old(self.0.moment()) {
            self.0.lost(&hold, "it could not be renewed");
        }
    }

    /// Cancels all work whenever this server was out of touch for so long that others take its leases. Never returns.
    pub async fn watch(&self, heartbeat: &LeaseHeartbeat) {
        loop {
            heartbeat.ran_out().await;
            for hold in self.0.local.cancel_all() {
                self.0
                    .lost(&hold, "this server could not renew its own lease in time");
            }
            heartbeat.came_back().await;
        }
    }
}

impl LeasesInner {
    async fn request(
        self: Arc<Self>,
        key: LeaseKey,
        purpose: &str,
        time: Duration,
    ) -> Result<LeaseAttempt, sqlx::Error> {
        let hold = LeaseHold {
            key: key.to_string(),
            holder: format!("{}/{}", self.replica, self.ids.next()),
        };
        let asked = self.moment();
        let lost = CancellationToken::new();
        if let Err(ours) = self.local.enter(&hold, time, asked, &lost) {
            let until = asked.clock() + ours.left;
            return Ok(LeaseAttempt::Busy {
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
            Ok(TakeLease::Taken(_)) => Ok(LeaseAttempt::Held(HeldLease::new(self, hold, lost))),
            Ok(TakeLease::HeldBy(theirs)) => {
                self.local.forget(&hold);
                Ok(LeaseAttempt::Busy {
                    key,
                    holder: theirs.holder,
                    until: theirs.until,
                })
            }
            Err(error) => {
                // The effect in the database is unknown: until a later answer, the lease may be held.
                self.local.end(&hold);
                Err(error)
            }
        }
    }

    async fn renew(&self, hold: &LeaseHold, time: Duration) {
        let asked = self.moment();
        match self.store.lease_renew(hold, self.ends_at(time)).await {
            Ok(true) => self.local.renewed(hold, asked),
            Ok(false) if self.local.cancel(hold) => {
                self.lost(hold, "it expired, or was released manually");
            }
            Ok(false) => {}
            Err(error) => {
                warn!(key = hold.key, %error, "Could not renew a lease; this will be retried");
            }
        }
    }

    /// Records that the work is over, and releases its lease.
    async fn end(&self, hold: &LeaseHold) {
        self.local.end(hold);
        match self.store.lease_release(hold).await {
            Ok(was_held) => {
                if self.local.forget(hold) && !was_held {
                    info!(key = hold.key, "A lease ended before its work");
                }
            }
            Err(error) => {
                warn!(key = hold.key, %error, "Could not release a lease; this will be retried");
            }
        }
    }

    fn lost(&self, hold: &LeaseHold, why: &str) {
        self.metrics.count(
            Metric::LeasesLost,
            &[LeaseKey::of_text(&hold.key).kind().as_str()],
        );
        warn!(
            key = hold.key,
            why, "An exclusive lease was lost; its work is stopped"
        );
    }

    fn ends_at(&self, time: Duration) -> DateTime<Utc> {
        let time = TimeDelta::from_std(time).unwrap_or(TimeDelta::MAX);
        self.clock
            .now()
            .checked_add_signed(time)
            .unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    fn moment(&self) -> TwoClockTime {
        TwoClockTime::new(self.clock.now())
    }
}
