//! Repair that takes no argument and may run at any time.

mod disk;
mod idle_locks;
mod listing;
mod missed;
mod statuses;

pub use disk::disk;
pub use missed::missed;
pub use statuses::statuses;

use chrono::TimeDelta;
use tracing::{info, warn};

pub use idle_locks::idle_locks;

use super::events::close_pull;
use crate::context::Ctx;
use crate::model::{Actor, Origin, PullState};

/// GitHub offers deliveries for redelivery for three days; this leaves time to look into things.
const KEEP_DELIVERIES: TimeDelta = TimeDelta::days(30);
const KEEP_JOBS: TimeDelta = TimeDelta::days(7);
/// Somebody who looks for what happened last night still finds who was there.
const KEEP_REPLICAS: TimeDelta = TimeDelta::days(1);
const KEEP_DISCARDED_PLANS: TimeDelta = TimeDelta::days(7);

/// What a repair found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Things it looked at.
    pub seen: u64,
    /// Things it mended.
    pub repaired: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.seen += more.seen;
        self.repaired += more.repaired;
    }
}

/// Closes pulls that hold locks although the forge says they are closed: the close event was missed, or the replica
/// died over it (P7).
pub async fn pulls(ctx: &Ctx) -> anyhow::Result<()> {
    for at in ctx.store.pull_list_with_locks().await? {
        match ctx.forge.pull(&at, None).await {
            Ok(pull) if pull.state != PullState::Open => {
                let closed = close_pull(ctx, &pull, None, &Actor::lockkeeper(Origin::Reconciler)).await;
                closed.map_err(|error| anyhow::anyhow!(error.message()))?;
            }
            Ok(_) => {}
            Err(error) => {
                warn!(pull = %at, %error, "Cannot tell whether a pull request that holds locks is still open");
            }
        }
    }
    Ok(())
}

/// Removes apply locks whose time is over, which stop nothing any more, and puts that on record.
pub async fn apply_locks(ctx: &Ctx) -> anyhow::Result<()> {
    for lock in ctx.store.apply_lock_expire().await? {
        info!(scope = %lock.scope, holder = lock.holder, "The time of an apply lock ended");
    }
    Ok(())
}

/// Tells commands of this process to stop that were asked to by another replica.
pub async fn stops(ctx: &Ctx) -> anyhow::Result<()> {
    ctx.stops.stop(&ctx.store.command_list_stopping().await?);
    Ok(())
}

/// Forgets what nobody will ask for any more: deliveries and finished jobs, and plan files of discarded plans (P12).
pub async fn prune(ctx: &Ctx) -> anyhow::Result<()> {
    let now = ctx.clock.now();
    ctx.store.delivery_prune(now - KEEP_DELIVERIES).await?;
    ctx.store.job_prune(now - KEEP_JOBS).await?;
    ctx.store.replica_prune(now - KEEP_REPLICAS).await?;
    ctx.store.plan_file_prune().await?;
    for plan in ctx.store.plan_prune(now - KEEP_DISCARDED_PLANS).await? {
        ctx.artifacts.remove(plan).await?;
    }
    Ok(())
}
