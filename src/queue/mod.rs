//! Work that must not be forgotten: claimed from the database, done under a lease, then finished or requeued.
//!
//! A [`Worker`] is a value with a `tick()`. The server calls it in a loop, and tests call it directly. Two more parts
//! help it: the [`LeaseKeeper`] renews the leases of this replica and stops work that lost its lease.
//! [`requeue_orphans`] requeues the jobs of a dead replica.
//!
//! Invariants, by name (see also `store::jobs`):
//! - *lost means silent*: work whose lease is gone is cancelled, and its result is not written;
//! - *a panic is a failed attempt*, not a lost job;
//! - *the job knows*: the job, not the queue, decides if an error is worth a retry.

mod job;
mod keeper;
mod pool;
mod processor;
mod wake_up;
mod worker;

pub use job::{Job, JobError, TooManyInterruptions, backoff};
pub use keeper::{LeaseKeeper, requeue_orphans};
pub use pool::{RightOfWay, RunPermit, RunPool};
pub use wake_up::{WakeUp, WakeUps};
pub use worker::{Kinds, NextJob, Runner, Running, RunningJob, Tick, Worker};

use std::time::Duration;

/// Duration of a lease: without a renewal for so long, another replica takes the job over.
pub const LEASE: Duration = Duration::from_secs(45);
/// Interval of renewals. Three of them may fail before the lease expires.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);
