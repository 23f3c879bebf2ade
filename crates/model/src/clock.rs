//! Clocks, passed in from outside so that tests can control them. They wait with tokio, so this module needs the feature
//! `tokio`: code without it never waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

pub use crate::ids::{CountingIds, Ids, RandomIds};

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
