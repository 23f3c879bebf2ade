//! Deletes rows and files that are older than their retention period (P12).
//!
//! Everything is deleted in pieces, each in a transaction of its own, so that nobody waits long for the one writer of
//! SQLite. After a limited number of pieces the rest waits for the next tick.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use tracing::info;

use crate::context::ServerCtx;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::model::PlanId;

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "retention",
    "Removes deliveries and runs that are older than --keep-deliveries and --keep-runs, jobs that ended a week \
         ago, servers that ended a day ago, repository events that every server has processed, and plan files without \
         a record.",
    Duration::from_hours(1),
    |ctx| Box::pin(tick(ctx)),
);

/// Maximum number of rows that one statement deletes.
const BATCH: i64 = 500;
/// Maximum number of statements for one kind of row in one tick.
const BATCHES: usize = 200;
/// Maximum number of plan files whose records one query looks up.
const FILES: usize = 500;
/// Maximum number of commands that one tick deletes, with everything below them.
const COMMANDS: usize = 2_000;

/// Retention period of jobs. People who investigate last week still find its jobs.
const KEEP_JOBS: TimeDelta = TimeDelta::days(7);
/// Retention period of replicas. People who investigate last night still find the servers of that time.
const KEEP_REPLICAS: TimeDelta = TimeDelta::days(1);
/// Retention period of repository events. All servers have begun to walk them by then.
const KEEP_REPOSITORY_EVENTS: TimeDelta = TimeDelta::days(1);
/// Time after which an absent data directory is not waited for. If its server comes back, it checks everything in the
/// directory again.
const KEEP_DATA_DIRS: TimeDelta = TimeDelta::days(7);
/// Retention period of rate gates. A gate that was closed earlier is open, with or without its row.
const KEEP_RATE_GATES: TimeDelta = TimeDelta::days(1);
const KEEP_DISCARDED_PLANS: TimeDelta = TimeDelta::days(7);
/// Minimum age of plan files without a record. The record follows its file within moments. The rest of the time
/// allows for clocks that differ, because the file may be on a disk of another machine.
const KEEP_UNRECORDED_PLAN_FILES: TimeDelta = TimeDelta::hours(1);

/// Kinds of rows to delete, with the time before which they ended.
#[derive(Clone, Copy)]
enum ExpiredRows {
    Deliveries(DateTime<Utc>),
    Jobs(DateTime<Utc>),
    /// Events that every data directory has walked past.
    RepositoryEvents(DateTime<Utc>),
    /// Files of plans that nobody can apply any more, regardless of their age.
    PlanFiles,
    /// Discarded plans together with their files.
    DiscardedPlans(DateTime<Utc>),
}

/// Deletes everything that is older than its retention period.
async fn tick(ctx: &ServerCtx) -> anyhow::Result<TickResult> {
    let (now, keep) = (ctx.clock.now(), &ctx.settings.retention);
    let mut gone = 0;
    if let Some(before) = keep.deliveries.and_then(|keep| older_than(now, keep)) {
        gone += in_batches(ctx, ExpiredRows::Deliveries(before)).await?;
    }
    gone += in_batches(ctx, ExpiredRows::Jobs(now - KEEP_JOBS)).await?;
    gone += ctx.store.replica_prune(now - KEEP_REPLICAS).await?;
    gone += ctx.store.reconciler_prune().await?;
    gone += ctx.store.rate_gate_prune(now - KEEP_RATE_GATES).await?;
    gone += data_dirs(ctx, now - KEEP_DATA_DIRS).await?;
    gone += in_batches(
        ctx,
        ExpiredRows::RepositoryEvents(now - KEEP_REPOSITORY_EVENTS),
    )
    .await?;
    gone += in_batches(ctx, ExpiredRows::PlanFiles).await?;
    gone += in_batches(ctx, ExpiredRows::DiscardedPlans(now - KEEP_DISCARDED_PLANS)).await?;
    gone += unrecorded_plan_files(ctx, now).await?;
    if let Some(before) = keep.runs.and_then(|keep| older_than(now, keep)) {
        gone += commands(ctx, before).await?;
    }
    Ok(TickResult::repaired(gone))
}

/// Drops data directories without a sign of life since then, so that nobody waits for them.
async fn data_dirs(ctx: &ServerCtx, before: DateTime<Utc>) -> anyhow::Result<u64> {
    let dropped = ctx.store.repository_event_drop_cursors(before).await?;
    for data_dir_id in &dropped {
        info!(%data_dir_id, "Removed the records of a data directory that no server has used for a long time");
    }
    Ok(dropped.len() as u64)
}

/// Deletes plan files without a record: a server died between the file and its record. Files that a queued or running
/// run could have written stay.
async fn unrecorded_plan_files(ctx: &ServerCtx, now: DateTime<Utc>) -> anyhow::Result<u64> {
    let mut files = ctx
        .runs
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
        // A file with a record is complete. The server that wrote an incomplete one gave up.
        for file in files
            .iter()
            .filter(|file| !file.is_whole || !recorded.contains(&file.plan))
        {
            ctx.runs
                .artifacts
                .remove_found(file)
                .await
                .context("cannot remove a plan file without a record")?;
            info!(plan = %file.plan, written_at = %file.modified, "Removed a plan file without a record");
            gone += 1;
        }
    }
    Ok(gone)
}

fn older_than(now: DateTime<Utc>, keep: Duration) -> Option<DateTime<Utc>> {
    now.checked_sub_signed(TimeDelta::from_std(keep).ok()?)
}

/// Deletes in batches until one is not full.
async fn in_batches(ctx: &ServerCtx, old: ExpiredRows) -> anyhow::Result<u64> {
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

async fn batch(ctx: &ServerCtx, old: ExpiredRows) -> anyhow::Result<u64> {
    Ok(match old {
        ExpiredRows::Deliveries(before) => ctx.store.delivery_prune(before, BATCH).await?,
        ExpiredRows::Jobs(before) => ctx.store.job_prune(before, BATCH).await?,
        ExpiredRows::RepositoryEvents(before) => {
            ctx.store.repository_event_prune(before, BATCH).await?
        }
        ExpiredRows::PlanFiles => ctx.store.plan_file_prune(BATCH).await?,
        ExpiredRows::DiscardedPlans(before) => {
            let gone = ctx.store.plan_prune(before, BATCH).await?;
            for plan in &gone {
                ctx.runs.artifacts.remove(*plan).await?;
            }
            gone.len() as u64
        }
    })
}

async fn commands(ctx: &ServerCtx, before: DateTime<Utc>) -> anyhow::Result<u64> {
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
