//! Failures that are remembered, and the size of everything that came from elsewhere.
//!
//! The table is bounded: only a fetch writes a row, the fetches of a token in an hour are limited, and a row goes some
//! time after the version may be fetched again.

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_registry::versions::VersionKey;

use super::super::store::broken;
use crate::model::text_enum;
use crate::store::{Result, Store, execute, free_text, kept_time, on_pool, on_tx};

text_enum! {
    /// Kind of a failure, which decides when the version may be fetched again.
    pub enum FillFault {
        /// Nobody has the version.
        NotFound = "not_found",
        /// The version breaks a rule, such as a package that is too large. Asking again would not help soon.
        Refused = "refused",
        /// The network or a server failed.
        Failed = "failed",
    }
}

/// A version that could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedFill {
    /// Kind of the failure.
    pub fault: FillFault,
    /// Explanation, as a clause.
    pub reason: String,
    /// Number of failures in a row.
    pub attempts: i64,
    /// Time of the last failure.
    pub failed_at: DateTime<Utc>,
    /// Time from which the version may be fetched again.
    pub retry_at: DateTime<Utc>,
}

/// Size of everything that was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledCache {
    /// Number of bytes of the packages and `go.mod` files that are here.
    pub bytes: u64,
    /// Number of versions that were ever recorded, also those that were taken down.
    pub versions: u64,
}

/// Time for which a version that nobody has is not looked for.
const NOT_FOUND: TimeDelta = TimeDelta::minutes(10);
/// Time after which a version that breaks a rule is fetched again.
const REFUSED: TimeDelta = TimeDelta::hours(1);
/// Wait after a first failure of the network, which doubles with each further one.
const FIRST_RETRY: TimeDelta = TimeDelta::minutes(1);
/// Longest wait after a failure of the network.
const LONGEST_RETRY: TimeDelta = TimeDelta::hours(1);
/// Time for which the number of failures is remembered after the version may be fetched again.
const FORGOTTEN: TimeDelta = TimeDelta::hours(1);
/// Maximum number of characters of an explanation.
const MAX_REASON: usize = 500;

#[derive(sqlx::FromRow)]
struct FailureRow {
    fault: FillFault,
    reason: String,
    attempts: i64,
    failed_at: DateTime<Utc>,
    retry_at: DateTime<Utc>,
}

const FAILURE: &str = "SELECT fault, reason, attempts, failed_at, retry_at FROM registry_fills \
    WHERE kind = $1 AND name = $2 AND version = $3";

fn wait(fault: FillFault, attempts: i64) -> TimeDelta {
    match fault {
        FillFault::NotFound => NOT_FOUND,
        FillFault::Refused => REFUSED,
        FillFault::Failed => {
            let doublings = u32::try_from((attempts - 1).clamp(0, 6)).unwrap_or(6);
            (FIRST_RETRY * 2_i32.pow(doublings)).min(LONGEST_RETRY)
        }
    }
}

impl From<FailureRow> for FailedFill {
    fn from(row: FailureRow) -> Self {
        Self {
            fault: row.fault,
            reason: row.reason,
            attempts: row.attempts,
            failed_at: row.failed_at,
            retry_at: row.retry_at,
        }
    }
}

impl FailedFill {
    /// Returns true if the version may not be fetched yet.
    pub fn is_in_effect(&self, now: DateTime<Utc>) -> bool {
        now < self.retry_at
    }
}

impl FilledCache {
    /// Reads bytes and versions from their row.
    ///
    /// Earlier releases did not count `go.mod` files, and a takedown takes those of their versions away all the same.
    pub(in crate::features::registry) fn of_row((bytes, versions): (i64, i64)) -> Result<Self> {
        Ok(Self {
            bytes: u64::try_from(bytes.max(0)).map_err(broken)?,
            versions: u64::try_from(versions).map_err(broken)?,
        })
    }
}

impl Store {
    /// Remembers that a version could not be fetched.
    pub async fn registry_fill_failed(
        &self,
        key: &VersionKey,
        fault: FillFault,
        reason: &str,
    ) -> Result<FailedFill> {
        let name = key.name();
        let mut tx = self.begin_shared().await?;
        let before = on_tx!(&mut tx, db => sqlx::query_as::<_, FailureRow>(FAILURE)
            .bind(key.kind()).bind(name.as_str()).bind(key.version()).fetch_optional(db))?;
        let attempts = before.map_or(0, |row| row.attempts).saturating_add(1);
        let failed_at = kept_time(self.now());
        let reason: String = free_text(reason).chars().take(MAX_REASON).collect();
        let failed = FailedFill {
            fault,
            reason,
            attempts,
            failed_at,
            retry_at: failed_at + wait(fault, attempts),
        };
        execute!(
            &mut tx,
            "INSERT INTO registry_fills (kind, name, version, fault, reason, attempts, failed_at, retry_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT (kind, name, version) DO UPDATE SET fault = excluded.fault, reason = excluded.reason, \
             attempts = excluded.attempts, failed_at = excluded.failed_at, retry_at = excluded.retry_at",
            key.kind(),
            name.as_str(),
            key.version(),
            failed.fault,
            failed.reason.as_str(),
            failed.attempts,
            failed.failed_at,
            failed.retry_at,
        )?;
        tx.commit().await.map(|()| failed)
    }

    /// Returns the last failure of a version, which may be in effect no longer.
    pub async fn registry_fill_failure(&self, key: &VersionKey) -> Result<Option<FailedFill>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, FailureRow>(FAILURE)
            .bind(key.kind()).bind(key.name().as_str()).bind(key.version()).fetch_optional(db))?;
        Ok(row.map(FailedFill::from))
    }

    /// Forgets the failures of a version that was fetched.
    pub async fn registry_fill_succeeded(&self, key: &VersionKey) -> Result<()> {
        let mut tx = self.begin_shared().await?;
        execute!(
            &mut tx,
            "DELETE FROM registry_fills WHERE kind = $1 AND name = $2 AND version = $3",
            key.kind(),
            key.name().as_str(),
            key.version(),
        )?;
        tx.commit().await
    }

    /// Forgets failures whose versions nobody has looked for in the meantime. Returns their number.
    pub async fn registry_fills_forget(&self) -> Result<u64> {
        let before = kept_time(self.now() - FORGOTTEN);
        let mut tx = self.begin_shared().await?;
        let forgotten = execute!(
            &mut tx,
            "DELETE FROM registry_fills WHERE retry_at < $1",
            before,
        )?;
        tx.commit().await.map(|()| forgotten)
    }

    /// Returns the size of everything that came from elsewhere.
    pub async fn registry_cache(&self) -> Result<FilledCache> {
        let row = on_pool!(self, db => sqlx::query_as::<_, (i64, i64)>(
            "SELECT bytes, versions FROM registry_cache WHERE id = 1").fetch_one(db))?;
        FilledCache::of_row(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_network_wait_longer_each_time() {
        let minutes = [1, 2, 4, 8, 16, 32, 60, 60];
        for (attempt, expected) in (1..).zip(minutes) {
            assert_eq!(
                wait(FillFault::Failed, attempt),
                TimeDelta::minutes(expected)
            );
        }
        assert_eq!(wait(FillFault::Failed, i64::MAX), LONGEST_RETRY);
        assert_eq!(wait(FillFault::NotFound, 9), TimeDelta::minutes(10));
        assert_eq!(wait(FillFault::Refused, 1), TimeDelta::hours(1));
    }
}
