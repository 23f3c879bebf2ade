//! Removes packages that nothing refers to: of publications that did not end, and of versions that were deleted when the
//! store of packages could not remove anything. Each server also removes its copies of them. Forgets old failures to fetch
//! missing versions.

use std::time::Duration;

use anyhow::{Context as _, bail};

use super::blobs::{Blobs, remove_all_copies};
use super::service::{PUBLICATION_TIME, remove_orphans};
use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "registry_packages",
    "Removes packages of the registry that nothing refers to, an hour after an unfinished publication.",
    Duration::from_hours(1),
    |ctx| Box::pin(tick(ctx)),
);

pub(super) const COPIES: Reconciler = Reconciler::new(
    "registry_copies",
    "Removes copies on this server of packages of the registry that no version has any more.",
    Duration::from_mins(5),
    |ctx| Box::pin(remove_copies(ctx)),
)
.on_every_replica();

async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let Some(parts) = &ctx.server.registry else {
        return Ok(TickResult::default());
    };
    let Some(id) = ctx.store.registry_store_id().await? else {
        bail!("the database has no registry any more");
    };
    let blobs = Blobs::open(&parts.packages, Some(&id))
        .await
        .context("cannot open the store of packages")?;
    let forgotten = ctx.store.registry_fills_forget().await;
    forgotten.context("cannot forget failures to fetch modules")?;
    let begun = ctx.clock.now() - PUBLICATION_TIME;
    let swept = blobs
        .sweep_staged(begun)
        .await
        .context("cannot remove packages that did not arrive")?;
    // Last, because the store may be away.
    let removed = remove_orphans(&ctx.store, &blobs)
        .await
        .context("cannot remove packages")?;
    Ok(TickResult::repaired(removed + swept))
}

async fn remove_copies(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let Some(parts) = &ctx.server.registry else {
        return Ok(TickResult::default());
    };
    if parts.packages.remote.is_none() {
        let removed = remove_all_copies(&parts.packages.dir).await;
        let removed = removed.context("cannot remove the copies of an earlier object store")?;
        return Ok(TickResult::repaired(removed));
    }
    let Some(id) = ctx.store.registry_store_id().await? else {
        bail!("the database has no registry any more");
    };
    let blobs = Blobs::open(&parts.packages, Some(&id))
        .await
        .context("cannot open the store of packages")?;
    // Each server has a disk of its own.
    let begun = ctx.clock.now() - PUBLICATION_TIME;
    let swept = blobs.sweep_staged(begun).await;
    let mut result =
        TickResult::repaired(swept.context("cannot remove packages that did not arrive")?);
    let copies = blobs.copies().await.context("cannot list copies")?;
    for digest in copies {
        result.looked_at += 1;
        if ctx.store.registry_package_is_here(&digest).await? {
            continue;
        }
        // A version that is published at this moment gets another copy later.
        let removed = blobs.remove_copy(&digest).await;
        let removed = removed.context("cannot remove a copy of a package")?;
        result.repaired += u64::from(removed);
    }
    Ok(result)
}
