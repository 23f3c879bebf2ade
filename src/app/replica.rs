//! One running server, as a value: the services, and workers with a `tick()` that loops or tests turn.

use std::sync::Arc;

use super::news;
use crate::context::Ctx;
use crate::handlers::reconcile::{self, Tally};
use crate::jobs::{Jobs, RunCommand};
use crate::queue::{self, Job, Kinds, LeaseKeeper, Running, Tick, Worker};
use crate::store::ReplicaId;

/// One running server.
pub struct Replica {
    /// Its services.
    pub ctx: Arc<Ctx>,
    /// The jobs it works on right now.
    pub running: Running,
    pub(super) short: Worker<Jobs>,
    pub(super) long: Worker<Jobs>,
    keeper: LeaseKeeper,
    name: String,
}

/// Commands of one repository at once: enough to fill every place of the pool that it may have, and always several,
/// because most commands wait for something else than a place.
pub(super) fn commands_of_a_repo(ctx: &Ctx) -> i64 {
    i64::try_from(ctx.pool.places_of_a_repo()).unwrap_or(i64::MAX).saturating_add(1).max(16)
}

impl Replica {
    /// A server over its services, on a machine that does not matter; `name` signs its claims and is unlike that of any
    /// other server, also of earlier ones on the same machine.
    pub fn new(ctx: Arc<Ctx>, name: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self::known_as(ctx, ReplicaId { name: name.to_owned(), host: String::new(), address: String::new(), version })
    }

    /// A server over its services, as other replicas and people are to know it.
    pub fn known_as(ctx: Arc<Ctx>, id: ReplicaId) -> Self {
        let pulse = ctx.terraform.supervisor.pulse.clone();
        let (running, name) = (Running::new(pulse.clone()), id.name.clone());
        let jobs = Arc::new(Jobs::new(Arc::clone(&ctx)));
        let worker = |kinds| {
            let (store, clock, nudge) = (ctx.store.clone(), Arc::clone(&ctx.clock), ctx.nudge.clone());
            Worker::new(store, clock, Arc::clone(&jobs), name.clone(), kinds, running.clone(), nudge)
        };
        let commands = <RunCommand as Job<Ctx>>::KIND;
        Self {
            short: worker(Kinds::Except(commands)),
            long: worker(Kinds::Only(commands)).with_most_of_a_share(commands_of_a_repo(&ctx)),
            keeper: LeaseKeeper::new(
                ctx.store.clone(),
                Arc::clone(&ctx.clock),
                id,
                running.clone(),
                pulse,
                ctx.closing.clone(),
            ),
            running,
            ctx,
            name,
        }
    }

    /// What its claims are signed with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Works on one short job: deliveries, comments, statuses.
    pub async fn tick_short(&self) -> Result<Tick, sqlx::Error> {
        self.short.tick().await
    }

    /// Works on one command, however long it takes.
    pub async fn tick_command(&self) -> Result<Tick, sqlx::Error> {
        self.long.tick().await
    }

    /// Renews what is held.
    pub async fn tick_leases(&self) -> Result<(), sqlx::Error> {
        self.keeper.tick().await
    }

    /// Stops all work whenever the leases could not be renewed in time. Never returns.
    pub async fn watch_leases(&self) {
        self.keeper.watch().await;
    }

    /// Ends in good order: what it still holds is free at once.
    pub async fn end(&self) -> Result<(), sqlx::Error> {
        self.keeper.end().await
    }

    /// Passes on what other replicas tell until the connection is lost; `false` when there is nobody to hear from.
    pub async fn listen(&self) -> anyhow::Result<bool> {
        news::listen(&self.ctx).await
    }

    /// Puts back what a dead replica left. After a pause of the whole machine our own leases look like those of a dead
    /// one; they are renewed first, so that we never take work over from ourselves.
    pub async fn tick_orphans(&self) -> Result<u64, sqlx::Error> {
        self.keeper.tick().await?;
        queue::requeue_orphans(&self.ctx.store, &*self.ctx.clock, &self.ctx.nudge).await
    }

    /// Stops commands that other replicas asked to stop.
    pub async fn tick_stops(&self) -> anyhow::Result<()> {
        reconcile::stops(&self.ctx).await
    }

    /// Closes pulls whose close event was missed.
    pub async fn tick_pulls(&self) -> anyhow::Result<()> {
        reconcile::pulls(&self.ctx).await
    }

    /// Warns of locks whose time limit is near and gives back those whose limit is over; how many were looked at, and
    /// for how many something was done.
    pub async fn tick_idle_locks(&self) -> anyhow::Result<(usize, usize)> {
        reconcile::idle_locks(&self.ctx).await
    }

    /// Removes apply locks whose time is over.
    pub async fn tick_apply_locks(&self) -> anyhow::Result<()> {
        reconcile::apply_locks(&self.ctx).await
    }

    /// Finds what no event has told of pulls.
    pub async fn tick_missed(&self) -> anyhow::Result<Tally> {
        reconcile::missed(&self.ctx).await
    }

    /// Ends statuses that were left pending.
    pub async fn tick_statuses(&self) -> anyhow::Result<Tally> {
        reconcile::statuses(&self.ctx).await
    }

    /// Removes what takes more room on this disk than it may.
    pub async fn tick_disk(&self) -> anyhow::Result<Tally> {
        reconcile::disk(&self.ctx).await
    }

    /// Forgets what is old enough.
    pub async fn tick_prune(&self) -> anyhow::Result<()> {
        reconcile::prune(&self.ctx).await
    }
}
