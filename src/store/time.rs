//! Chooses the clock that decides on deadlines between replicas.
//!
//! Replicas have their own clocks, and those differ. Some times decide between replicas: when a lease ends, when a
//! job may run, whether a plan is older than the comment that requests to apply it. These times are stored and
//! compared in the time of the only thing that the replicas share. On PostgreSQL this is the clock of the database,
//! read in the same transaction. Callers continue to use the time of their own clock; [`ClockOffset`] translates. The two
//! clocks are read in a fixed order: a pause between the readings makes our leases shorter and those of others
//! longer, never the other way round.
//!
//! SQLite is never shared: the server's clock decides.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

use super::{DbPool, Result, Store, Tx};

/// Clock that decides on leases and waiting times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlineClock {
    /// The clock of a database that is shared.
    Database,
    /// The clock that the store was opened with.
    Own,
}

/// Time by which the deadline clock is ahead of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockOffset(TimeDelta);

impl ClockOffset {
    /// Offset of the clock that the store was opened with.
    pub(super) const NONE: Self = Self(TimeDelta::zero());

    /// Translates a time of our clock into one of the deadline clock, in the precision of both databases.
    pub fn of(self, time: DateTime<Utc>) -> DateTime<Utc> {
        kept_time(time.checked_add_signed(self.0).unwrap_or(time))
    }

    /// Translates a time of the deadline clock into one of our clock.
    pub fn back(self, time: DateTime<Utc>) -> DateTime<Utc> {
        time.checked_sub_signed(self.0).unwrap_or(time)
    }
}

const NOW: &str = "SELECT clock_timestamp()";

impl Store {
    /// Decides on leases by the clock that the store was opened with, also on a shared database. For callers that set
    /// that clock by hand and give the same one to every replica.
    ///
    /// Only tests call this method. It cannot move to them, because the clock of a store is private.
    #[must_use]
    pub fn with_own_deadline_clock(self) -> Self {
        Self {
            deadline_clock: DeadlineClock::Own,
            ..self
        }
    }

    /// Returns the clock offset, read inside the transaction that needs it.
    pub(crate) async fn clock_offset_in_tx(&self, tx: &mut Tx) -> Result<ClockOffset> {
        match tx {
            Tx::Postgres(tx) if self.deadline_clock == DeadlineClock::Database => {
                sqlx::query_scalar(NOW)
                    .fetch_one(&mut **tx)
                    .await
                    .map(|theirs| self.clock_offset_at(theirs))
            }
            Tx::Sqlite(_) | Tx::Postgres(_) => Ok(ClockOffset::NONE),
        }
    }

    /// Returns the clock offset for a single read outside a transaction.
    pub(crate) async fn clock_offset(&self) -> Result<ClockOffset> {
        match &self.pool {
            DbPool::Postgres(pool) if self.deadline_clock == DeadlineClock::Database => {
                sqlx::query_scalar(NOW)
                    .fetch_one(pool)
                    .await
                    .map(|theirs| self.clock_offset_at(theirs))
            }
            DbPool::Sqlite { .. } | DbPool::Postgres(_) => Ok(ClockOffset::NONE),
        }
    }

    fn clock_offset_at(&self, theirs: DateTime<Utc>) -> ClockOffset {
        ClockOffset(theirs - self.now())
    }
}

/// Truncates and clamps a time, so that both databases store and compare it alike. PostgreSQL stores microseconds.
/// SQLite compares texts, which sort by time while the year has four digits.
pub(crate) fn kept_time(time: DateTime<Utc>) -> DateTime<Utc> {
    const FIRST: DateTime<Utc> = DateTime::UNIX_EPOCH;
    const LAST: DateTime<Utc> =
        DateTime::from_timestamp(253_402_300_799, 0).expect("9999-12-31T23:59:59Z");
    time.trunc_subsecs(6).clamp(FIRST, LAST)
}
