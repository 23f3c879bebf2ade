//! Work that must not be forgotten: claimed from the database, done under a lease, finished or put back.
//!
//! A [`Worker`] is a value with a `tick()`; the server loops over it, tests turn it by hand. Beside it stand the
//! [`LeaseKeeper`], which renews what this replica holds and tells work that lost its lease to stop, and
//! [`requeue_orphans`], which puts back what a dead replica left.
//!
//! Invariants, by name (see also `store::jobs`):
//! - *lost means silent*: work whose lease is gone is cancelled, and its result is not written;
//! - *a panic is a failed attempt*, not a lost job;
//! - *the job knows*: whether an error is worth another try is said by the job, not by the queue.

mod job;
mod keeper;
mod nudge;
mod pool;
mod worker;

pub use job::{CutOff, Job, JobError, backoff};
pub use keeper::{LeaseKeeper, requeue_orphans};
pub use nudge::{Nudge, Nudges};
pub use pool::{Place, Pool};
pub use worker::{Attempt, Kinds, Runner, Running, Tick, Worker};

use std::time::Duration;

/// How long a job may go without renewal before another replica takes it over.
pub const LEASE: Duration = Duration::from_secs(45);
/// How often a replica renews; three renewals may fail before the lease ends.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);
