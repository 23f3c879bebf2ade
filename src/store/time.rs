//! Whose clock judges.
//!
//! Replicas read clocks of their own, and those differ. Whatever decides between replicas (when a lease ends, when a
//! job may run, whether a plan is older than the comment that asks to apply it) is therefore kept and compared in the
//! time of the one thing they share: on PostgreSQL the clock of the database, read in the same transaction. Callers go
//! on speaking in the time of their own clock; [`Skew`] translates. The two readings are taken in such an order that a
//! pause between them makes a lease of ours shorter and one of others longer, never the other way round.
//!
//! SQLite is never shared: its clock is the server's.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

use super::{Pool, Result, Store, Tx};

/// Whose clock judges leases and waiting times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judge {
    /// The clock of a database that is shared.
    Database,
    /// The clock that the store was opened with.
    Own,
}

/// How far the clock of the judge is ahead of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skew(TimeDelta);

impl Skew {
    const NONE: Self = Self(TimeDelta::zero());

    /// A time of our clock as the judge has it, and as both databases keep it.
    pub fn of(self, time: DateTime<Utc>) -> DateTime<Utc> {
        kept_time(time.checked_add_signed(self.0).unwrap_or(time))
    }

    /// A time of the judge as our clock has it.
    pub fn back(self, time: DateTime<Utc>) -> DateTime<Utc> {
        time.checked_sub_signed(self.0).unwrap_or(time)
    }
}

const NOW: &str = "SELECT clock_timestamp()";
/// The same, and until the end of the transaction PostgreSQL takes indexes in their order wherever it can.
const NOW_IN_ORDER: &str = "SELECT clock_timestamp(), concat(set_config('enable_sort', 'off', true), \
     set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), \
     set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), \
     set_config('enable_material', 'off', true))";

impl Store {
    /// Leases are judged by the clock that the store was opened with, on a shared database too. For those who turn
    /// that clock by hand and give the same one to every replica.
    #[must_use]
    pub fn judged_by_its_own_clock(self) -> Self {
        Self {
            judge: Judge::Own,
            ..self
        }
    }

    /// How far the judge of leases is ahead of our clock, inside the transaction that wants to know.
    pub(crate) async fn skew_in_tx(&self, tx: &mut Tx) -> Result<Skew> {
        match tx {
            Tx::Postgres(tx) if self.judge == Judge::Database => sqlx::query_scalar(NOW)
                .fetch_one(&mut **tx)
                .await
                .map(|theirs| self.skew_at(theirs)),
            Tx::Sqlite(_) | Tx::Postgres(_) => Ok(Skew::NONE),
        }
    }

    /// The same in the transaction that claims a job, which from then on reads nothing as a whole, whatever the statistics of
    /// the table say.
    pub(super) async fn claim_skew_in_tx(&self, tx: &mut Tx) -> Result<Skew> {
        let Tx::Postgres(tx) = tx else {
            return Ok(Skew::NONE);
        };
        let row = sqlx::query_as::<_, (DateTime<Utc>, String)>(NOW_IN_ORDER)
            .fetch_one(&mut **tx)
            .await?;
        Ok(if self.judge == Judge::Database {
            self.skew_at(row.0)
        } else {
            Skew::NONE
        })
    }

    /// The same for a single look.
    pub(crate) async fn skew(&self) -> Result<Skew> {
        match &self.pool {
            Pool::Postgres(pool) if self.judge == Judge::Database => sqlx::query_scalar(NOW)
                .fetch_one(pool)
                .await
                .map(|theirs| self.skew_at(theirs)),
            Pool::Sqlite { .. } | Pool::Postgres(_) => Ok(Skew::NONE),
        }
    }

    fn skew_at(&self, theirs: DateTime<Utc>) -> Skew {
        Skew(theirs - self.now())
    }
}

/// A time from a caller as both databases keep and compare it: PostgreSQL keeps microseconds, and SQLite compares
/// texts, which sort by time while the year has four digits.
pub(crate) fn kept_time(time: DateTime<Utc>) -> DateTime<Utc> {
    const FIRST: DateTime<Utc> = DateTime::UNIX_EPOCH;
    const LAST: DateTime<Utc> =
        DateTime::from_timestamp(253_402_300_799, 0).expect("9999-12-31T23:59:59Z");
    time.trunc_subsecs(6).clamp(FIRST, LAST)
}
