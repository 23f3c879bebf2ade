//! What is old enough to be forgotten (P12).
//!
//! Everything is removed in pieces, each a transaction of its own, so that nobody waits long for the one writer of
//! SQLite; what is left after so many pieces is for the next time.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use tracing::info;

use super::Found;
use crate::context::Ctx;
use crate::model::PlanId;

/// Rows that one statement removes at most.
const BATCH: i64 = 500;
/// Statements for one kind of row in one look.
const BATCHES: usize = 200;
/// Plan files whose records one query looks for.
const FILES: usize = 500;
/// Commands that one look removes, with everything below them.
const COMMANDS: usize = 2_000;

/// Somebody who looks for what happened last week still finds the jobs of it.
const KEEP_JOBS: TimeDelta = TimeDelta::days(7);
/// Somebody who looks for what happened last night still finds who was there.
const KEEP_REPLICAS: TimeDelta = TimeDelta::days(1);
/// Whoever begins to walk them has long begun by then.
const KEEP_REPOSITORY_EVENTS: TimeDelta = TimeDelta::days(1);
/// A data directory whose server was not there for so long is not waited for. If it comes back, everything on it is looked
/// at anew.
const KEEP_HOMES: TimeDelta = TimeDelta::days(7);
/// A gate that was closed longer ago is open, whether it is known or not.
const KEEP_RATE_GATES: TimeDelta = TimeDelta::days(1);
const KEEP_DISCARDED_PLANS: TimeDelta = TimeDelta::days(7);
/// The record follows its file within moments. The rest of the time is for clocks that differ: the file may lie on a disk of
/// another machine.
const KEEP_UNRECORDED_PLAN_FILES: TimeDelta = TimeDelta::hours(1);

/// What is removed when it was over by that time.
#[derive(Clone, Copy)]
enum Old {
    Deliveries(DateTime<Utc>),
    Jobs(DateTime<Utc>),
    /// That every data directory has walked past.
    RepositoryEvents(DateTime<Utc>),
    /// Of plans that nobody can apply any more, at once.
    PlanFiles,
    /// With their files.
    DiscardedPlans(DateTime<Utc>),
}

/// Forgets what nobody will ask for any more.
pub(super) async fn tick(ctx: &Ctx) -> anyhow::Result<Found> {
    let (now, keep) = (ctx.clock.now(), &ctx.settings.retention);
    let mut gone = 0;
    if let Some(before) = keep.deliveries.and_then(|keep| older_than(now, keep)) {
        gone += in_batches(ctx, Old::Deliveries(before)).await?;
    }
    gone += in_batches(ctx, Old::Jobs(now - KEEP_JOBS)).await?;
    gone += ctx.store.replica_prune(now - KEEP_REPLICAS).await?;
    gone += ctx.store.reconciler_prune().await?;
    gone += ctx.store.rate_gate_prune(now - KEEP_RATE_GATES).await?;
    gone += homes(ctx, now - KEEP_HOMES).await?;
    gone += in_batches(ctx, Old::RepositoryEvents(now - KEEP_REPOSITORY_EVENTS)).await?;
    gone += in_batches(ctx, Old::PlanFiles).await?;
    gone += in_batches(ctx, Old::DiscardedPlans(now - KEEP_DISCARDED_PLANS)).await?;
    gone += unrecorded_plan_files(ctx, now).await?;
    if let Some(before) = keep.runs.and_then(|keep| older_than(now, keep)) {
        gone += commands(ctx, before).await?;
    }
    Ok(Found::repaired(gone))
}

/// Nobody waits for data directories that were not heard of since then.
async fn homes(ctx: &Ctx, before: DateTime<Utc>) -> anyhow::Result<u64> {
    let dropped = ctx.store.repository_event_drop_cursors(before).await?;
    for home in &dropped {
        info!(%home, "Forgot the mirrors of a data directory that was not heard of for long");
    }
    Ok(dropped.len() as u64)
}

/// Removes plan files that no record names: a server died between the file and its record. What a run that is queued or
/// under way could have written stays.
async fn unrecorded_plan_files(ctx: &Ctx, now: DateTime<Utc>) -> anyhow::Result<u64> {
    let mut files = ctx
        .artifacts
        .found()
        .await
        .context("cannot list the plan files")?;
    files.retain(|file| file.modified < now - KEEP_UNRECORDED_PLAN_FILES);
    if files.is_empty() {
        return Ok(0);
    }
    if let Some(oldest) = ctx.store.run_oldest_open().await? {
        files.retain(|file| file.modified < oldest - KEEP_UNRECORDED_PLAN_FILES);
    }
    let mut gone = 0;
    for files in files.chunks(FILES) {
        let plans: Vec<PlanId> = files.iter().map(|file| file.plan).collect();
        let recorded = ctx.store.plan_list_recorded(&plans).await?;
        // The file of a record is whole; one that is not was given up by whoever wrote it.
        for file in files
            .iter()
            .filter(|file| !file.is_whole || !recorded.contains(&file.plan))
        {
            ctx.artifacts
                .remove_found(file)
                .await
                .context("cannot remove a plan file without a record")?;
            info!(plan = %file.plan, written_at = %file.modified, "Removed a plan file that no record names");
            gone += 1;
        }
    }
    Ok(gone)
}

fn older_than(now: DateTime<Utc>, keep: Duration) -> Option<DateTime<Utc>> {
    now.checked_sub_signed(TimeDelta::from_std(keep).ok()?)
}

/// Removes until a piece is not full.
async fn in_batches(ctx: &Ctx, old: Old) -> anyhow::Result<u64> {
    let mut all = 0;
    for _ in 0..BATCHES {
        let rows = batch(ctx, old).await?;
        all += rows;
        if rows < BATCH.cast_unsigned() {
            break;
        }
    }
    Ok(all)
}

async fn batch(ctx: &Ctx, old: Old) -> anyhow::Result<u64> {
    Ok(match old {
        Old::Deliveries(before) => ctx.store.delivery_prune(before, BATCH).await?,
        Old::Jobs(before) => ctx.store.job_prune(before, BATCH).await?,
        Old::RepositoryEvents(before) => ctx.store.repository_event_prune(before, BATCH).await?,
        Old::PlanFiles => ctx.store.plan_file_prune(BATCH).await?,
        Old::DiscardedPlans(before) => {
            let gone = ctx.store.plan_prune(before, BATCH).await?;
            for plan in &gone {
                ctx.artifacts.remove(*plan).await?;
            }
            gone.len() as u64
        }
    })
}

async fn commands(ctx: &Ctx, before: DateTime<Utc>) -> anyhow::Result<u64> {
    let mut rows = 0;
    let over = ctx
        .store
        .command_list_over(before, i64::try_from(COMMANDS).unwrap_or(i64::MAX))
        .await?;
    for command in over {
        rows += ctx.store.command_remove(command, before, BATCH).await?;
    }
    Ok(rows)
}
