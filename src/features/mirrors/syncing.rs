//! Mirrors of repositories: what happened to them is taken up, and workers bring in step what is due (`sync`). A look does
//! not wait for the workers.

use std::time::Duration;

use crate::context::Ctx;
use crate::handlers::reconcile::{Found, Reconciler};
use crate::store::FormerName;
use crate::sync::{Round, Wants};

/// Former names whose directories are looked for.
const MOST_NAMES: i64 = 1000;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "repositories",
    "Brings mirrors in step: what was pushed, what was never fetched, what failed and may be tried again, and what a \
     server left behind.",
    Duration::from_secs(5),
    |ctx| Box::pin(tick(ctx)),
)
.on_every_replica()
.hearing_of_mirrors()
.renewing_first();

/// Takes up what is to be done, and lets the workers begin.
async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    // On the disk of a server that did not move the rows itself.
    for FormerName { old, now } in ctx.store.repository_former_names(MOST_NAMES).await? {
        ctx.checkouts.follow_name(&old, &now).await;
    }
    let wants = Wants {
        allowlist: ctx.settings.allowlist.clone(),
        parallel: ctx.settings.sync_parallel,
    };
    let Round {
        looked_at,
        orphaned,
    } = ctx.syncer.round(&wants).await?;
    Ok(Found {
        looked_at,
        repaired: orphaned,
    })
}
