//! Chooses the clock that judges between replicas.
//!
//! Replicas have their own clocks, and those differ. Some times decide between replicas: when a lease ends, when a
//! job may run, whether a plan is older than the comment that requests to apply it. These times are stored and
//! compared in the time of the only thing that the replicas share. On PostgreSQL this is the clock of the database,
//! read in the same transaction. Callers continue to use the time of their own clock; [`ClockOffset`] translates. The two
//! clocks are read in a fixed order: a pause between the readings makes our leases shorter and those of others
//! longer, never the other way round.
//!
//! SQLite is never shared: the server's clock judges.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

use super::{DbPool, Result, Store, Tx};

/// Clock that judges leases and waiting times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlineClock {
    /// The clock of a database that is shared.
    Database,
    /// The clock that the store was opened with.
    Own,
}

/// Time by which the clock of the judge is ahead of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockOffset(TimeDelta);

impl ClockOffset {
    const NONE: Self = Self(TimeDelta::zero());

    /// Translates a time of our clock into one of the judge, in the precision of both databases.
    pub fn of(self, time: DateTime<Utc>) -> DateTime<Utc> {
        kept_time(time.checked_add_signed(self.0).unwrap_or(time))
    }

    /// Translates a time of the judge into one of our clock.
    pub fn back(self, time: DateTime<Utc>) -> DateTime<Utc> {
        time.checked_sub_signed(self.0).unwrap_or(time)
    }
}

const NOW: &str = "SELECT clock_timestamp()";
/// Selects the time. Until the end of the transaction, it also makes PostgreSQL use indexes in their order wherever
/// possible.
const NOW_IN_ORDER: &str = "SELECT clock_timestamp(), concat(set_config('enable_sort', 'off', true), \
     set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), \
     set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), \
     set_config('enable_material', 'off', true))";

impl Store {
    /// Judges leases by the clock that the store was opened with, also on a shared database. For callers that set
    /// that clock by hand and give the same one to every replica.
    #[must_use]
    pub fn judged_by_its_own_clock(self) -> Self {
        Self {
            judge: DeadlineClock::Own,
            ..self
        }
    }

    /// Returns the skew, read inside the transaction that needs it.
    pub(crate) async fn skew_in_tx(&self, tx: &mut Tx) -> Result<ClockOffset> {
        match tx {
            Tx::Postgres(tx) if self.judge == DeadlineClock::Database => sqlx::query_scalar(NOW)
                .fetch_one(&mut **tx)
                .await
                .map(|theirs| self.skew_at(theirs)),
            Tx::Sqlite(_) | Tx::Postgres(_) => Ok(ClockOffset::NONE),
        }
    }

    /// Returns the skew in the transaction that claims a job. From then on, the transaction reads no table as a
    /// whole, no matter what the statistics of the table say.
    pub(super) async fn claim_skew_in_tx(&self, tx: &mut Tx) -> Result<ClockOffset> {
        let Tx::Postgres(tx) = tx else {
            return Ok(ClockOffset::NONE);
        };
        let row = sqlx::query_as::<_, (DateTime<Utc>, String)>(NOW_IN_ORDER)
            .fetch_one(&mut **tx)
            .await?;
        Ok(if self.judge == DeadlineClock::Database {
            self.skew_at(row.0)
        } else {
            ClockOffset::NONE
        })
    }

    /// Returns the skew for a single read outside a transaction.
    pub(crate) async fn skew(&self) -> Result<ClockOffset> {
        match &self.pool {
            DbPool::Postgres(pool) if self.judge == DeadlineClock::Database => {
                sqlx::query_scalar(NOW)
                    .fetch_one(pool)
                    .await
                    .map(|theirs| self.skew_at(theirs))
            }
            DbPool::Sqlite { .. } | DbPool::Postgres(_) => Ok(ClockOffset::NONE),
        }
    }

    fn skew_at(&self, theirs: DateTime<Utc>) -> ClockOffset {
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
