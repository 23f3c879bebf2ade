//! Keeps what this replica holds, and puts back what a dead replica left.

use std::sync::Arc;

use tracing::{info, warn};

use super::worker::Running;
use super::{LEASE, Nudge};
use crate::clock::Clock;
use crate::store::Store;

/// Renews the leases of one replica.
pub struct LeaseKeeper {
    store: Store,
    clock: Arc<dyn Clock>,
    holder: String,
    running: Running,
}

impl LeaseKeeper {
    /// A keeper for the claims signed with `holder`.
    pub fn new(store: Store, clock: Arc<dyn Clock>, holder: String, running: Running) -> Self {
        Self { store, clock, holder, running }
    }

    /// Renews the lease of every job that is worked on, and tells work whose lease is gone to stop.
    ///
    /// The list of running jobs is taken *before* the renewal: a job claimed in between has a new lease anyway, and one
    /// that was finished in between is no longer there to be stopped.
    pub async fn tick(&self) -> Result<(), sqlx::Error> {
        let running = self.running.list();
        let held = self.store.job_renew(&self.holder, &running, self.clock.now() + LEASE).await?;
        for job in running.into_iter().filter(|job| !held.contains(job)) {
            warn!(job.id = %job, "Another replica took the job over; it is stopped here");
            self.running.cancel(job);
        }
        Ok(())
    }
}

/// Puts jobs whose lease ran out back into the queue. Idempotent; runs on a timer.
pub async fn requeue_orphans(store: &Store, clock: &dyn Clock, nudge: &Nudge) -> Result<u64, sqlx::Error> {
    let orphans = store.job_requeue_orphans(clock.now()).await?;
    if orphans > 0 {
        info!(orphans, "Took over jobs whose worker had gone");
        nudge.nudge();
    }
    Ok(orphans)
}
