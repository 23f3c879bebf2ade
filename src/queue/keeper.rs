//! Renews the leases of this replica, and requeues the jobs of a dead replica.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::worker::Running;
use super::{LEASE, WakeUp};
use crate::clock::Clock;
use crate::process::LeaseHeartbeat;
use crate::store::{Presence, ReplicaId, Store};

/// Keeper of the leases of one replica. Each renewal also says that the replica is alive.
pub struct LeaseKeeper {
    store: Store,
    clock: Arc<dyn Clock>,
    replica: ReplicaId,
    running: Running,
    heartbeat: LeaseHeartbeat,
    closing: CancellationToken,
}

impl LeaseKeeper {
    /// Creates a keeper for the claims of a replica. It reports the replica as stopping once `closing` is cancelled.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        replica: ReplicaId,
        running: Running,
        heartbeat: LeaseHeartbeat,
        closing: CancellationToken,
    ) -> Self {
        Self {
            store,
            clock,
            replica,
            running,
            heartbeat,
            closing,
        }
    }

    /// Renews the lease of every running job, and tells work to stop if its lease is gone.
    ///
    /// The list of running jobs is taken *before* the renewal. A job claimed in between has a new lease anyway, and a
    /// job finished in between needs no stop. The heartbeat counts from before the renewal, too, so that it never
    /// outlasts the lease.
    pub async fn tick(&self) -> Result<(), sqlx::Error> {
        let (running, beat) = (self.running.list(), self.heartbeat.prepare());
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
            warn!(job.id = %job, "Another replica took over the job; it is stopped on this server");
            self.running.cancel(job);
        }
        self.heartbeat.beat(beat);
        Ok(())
    }

    /// Tells all work to stop whenever the leases could not be renewed for so long that another replica may have
    /// taken it over. The database is out of reach then, or this server was paused. Never returns.
    pub async fn watch(&self) {
        loop {
            self.heartbeat.ran_out().await;
            warn!(
                jobs = self.running.count(),
                "Could not renew the leases in time; all work on this server is stopped"
            );
            self.running.cancel_all();
            self.heartbeat.came_back().await;
        }
    }

    /// Ends the replica cleanly: all jobs that it still holds are free at once.
    pub async fn end(&self) -> Result<(), sqlx::Error> {
        let jobs = self.store.replica_end(&self.replica.name).await?;
        if jobs > 0 {
            info!(
                jobs,
                "Left jobs to the other replicas, or to the next start"
            );
        }
        Ok(())
    }
}

/// Requeues jobs whose lease expired or whose replica is gone, and ends the other leases of that replica. Idempotent;
/// runs on a timer.
pub async fn requeue_orphans(
    store: &Store,
    clock: &dyn Clock,
    wake_up: &WakeUp,
) -> Result<u64, sqlx::Error> {
    let orphans = store.job_requeue_orphans(clock.now()).await?;
    store.replica_end_leases().await?;
    if orphans > 0 {
        info!(orphans, "Queued jobs of stopped servers again");
        wake_up.send();
    }
    Ok(orphans)
}
