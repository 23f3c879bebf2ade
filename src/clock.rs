//! Clocks and sources of identifiers, passed in from outside so that tests can control both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use uuid::Uuid;

/// A source of the current time and of waits. Instants are cut to microseconds because PostgreSQL keeps no more.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> DateTime<Utc>;

    /// Waits for the duration. A manual clock moves itself forward instead and returns at once.
    async fn sleep(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    fn now(&self) -> DateTime<Utc> {
        Utc::now().trunc_subsecs(6)
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A clock that stands still until a caller moves it.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// Starts at the given instant.
    pub fn new(start: DateTime<Utc>) -> Self {
        Self(Mutex::new(start.trunc_subsecs(6)))
    }

    fn lock(&self) -> MutexGuard<'_, DateTime<Utc>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the clock forward by the duration.
    pub fn advance(&self, duration: Duration) {
        let step = TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
        *self.lock() += step;
    }

    /// Moves the clock to the instant, unless it has passed already.
    pub fn advance_to(&self, instant: DateTime<Utc>) {
        let mut now = self.lock();
        *now = instant.trunc_subsecs(6).max(*now);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.lock()
    }

    async fn sleep(&self, duration: Duration) {
        self.advance(duration);
        tokio::task::yield_now().await;
    }
}

/// A source of unique identifiers.
pub trait Ids: Send + Sync + 'static {
    /// Returns a new identifier. Later ones sort after earlier ones.
    fn next(&self) -> Uuid;
}

/// Version 7 identifiers: time-ordered, and unguessable enough to be names. Never used as secrets.
#[derive(Debug, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that makes identifiers"
    )]
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// A source of predictable identifiers for tests: `00000000-0000-7000-8000-000000000001`, `…2`, and so on.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl Ids for CountingIds {
    fn next(&self) -> Uuid {
        let n = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        Uuid::from_u64_pair(0x7000, 0x8000_0000_0000_0000 | n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_ids_are_well_formed() {
        let ids = CountingIds::default();
        assert_eq!(
            ids.next().to_string(),
            "00000000-0000-7000-8000-000000000001"
        );
        assert_eq!(
            ids.next().to_string(),
            "00000000-0000-7000-8000-000000000002"
        );
    }
}
