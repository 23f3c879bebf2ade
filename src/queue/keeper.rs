//! Keeps what this replica holds, and puts back what a dead replica left.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::worker::Running;
use super::{LEASE, Nudge};
use crate::clock::Clock;
use crate::process::Pulse;
use crate::store::{Presence, ReplicaId, Store};

/// Renews the leases of one replica, and with them the word that it is there.
pub struct LeaseKeeper {
    store: Store,
    clock: Arc<dyn Clock>,
    replica: ReplicaId,
    running: Running,
    pulse: Pulse,
    closing: CancellationToken,
}

impl LeaseKeeper {
    /// A keeper for the claims of a replica, which begins nothing more once `closing` is cancelled.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        replica: ReplicaId,
        running: Running,
        pulse: Pulse,
        closing: CancellationToken,
    ) -> Self {
        Self {
            store,
            clock,
            replica,
            running,
            pulse,
            closing,
        }
    }

    /// Renews the lease of every job that is worked on, and tells work whose lease is gone to stop.
    ///
    /// The list of running jobs is taken *before* the renewal: a job claimed in between has a new lease anyway, and one
    /// that was finished in between is no longer there to be stopped. The pulse counts from before the renewal, too, so
    /// that it never outlasts the lease.
    pub async fn tick(&self) -> Result<(), sqlx::Error> {
        let (running, beat) = (self.running.list(), self.pulse.prepare());
        let presence = if self.closing.is_cancelled() {
            Presence::Stopping
        } else {
            Presence::Serving
        };
        let until = self.clock.now() + LEASE;
        let held = self
            .store
            .replica_beat(&self.replica, presence, &running, until)
            .await?;
        for job in running.into_iter().filter(|job| !held.contains(job)) {
            warn!(job.id = %job, "Another replica took the job over; it is stopped here");
            self.running.cancel(job);
        }
        self.pulse.beat(beat);
        Ok(())
    }

    /// Tells all work to stop whenever the leases could not be renewed for so long that somebody may have taken it over:
    /// the database is out of reach, or this server was paused. Never returns.
    pub async fn watch(&self) {
        loop {
            self.pulse.ran_out().await;
            warn!(
                jobs = self.running.count(),
                "The leases could not be renewed in time; all work is stopped here"
            );
            self.running.cancel_all();
            self.pulse.came_back().await;
        }
    }

    /// Ends in good order: whatever is still held is free at once.
    pub async fn end(&self) -> Result<(), sqlx::Error> {
        let jobs = self.store.replica_end(&self.replica.name).await?;
        if jobs > 0 {
            info!(
                jobs,
                "Left work to the other replicas, or to the next start"
            );
        }
        Ok(())
    }
}

/// Puts jobs whose lease ran out, or whose replica is gone, back into the queue, and ends the other leases of that
/// replica. Idempotent; runs on a timer.
pub async fn requeue_orphans(
    store: &Store,
    clock: &dyn Clock,
    nudge: &Nudge,
) -> Result<u64, sqlx::Error> {
    let orphans = store.job_requeue_orphans(clock.now()).await?;
    store.replica_end_leases().await?;
    if orphans > 0 {
        info!(orphans, "Took over jobs whose worker had gone");
        nudge.nudge();
    }
    Ok(orphans)
}
