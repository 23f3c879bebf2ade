//! Keeps the mirrors of repositories in sync: a tick takes up their events, and workers sync the mirrors that are due
//! (`sync`). The tick does not wait for the workers.

use std::time::Duration;

use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult, WakingNews};
use crate::store::FormerName;
use crate::sync::{SyncRound, SyncSettings};

/// Maximum number of former names whose directories are searched.
const MOST_NAMES: i64 = 1000;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "repositories",
    "Syncs mirrors after a push, after a failure and for the first time, and removes directories that a server left \
     behind.",
    Duration::from_secs(5),
    |ctx| Box::pin(tick(ctx)),
)
.on_every_replica()
.woken_by(WakingNews::Mirrors)
.renewing_first();

/// Takes up new events, and wakes the workers.
async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    // Moves directories on the disk of a server that did not rename the rows itself.
    for FormerName { old, now } in ctx.store.repository_former_names(MOST_NAMES).await? {
        ctx.checkouts.follow_name(&old, &now).await;
    }
    let wants = SyncSettings {
        allowlist: ctx.settings.repos.allowlist.clone(),
        parallel: ctx.settings.sync.parallel,
    };
    let SyncRound {
        looked_at,
        orphaned,
    } = ctx.server.syncer.round(&wants).await?;
    Ok(TickResult {
        looked_at,
        repaired: orphaned,
    })
}
