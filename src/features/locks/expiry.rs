//! Enforces the time limits of locks: warns pull requests and releases unused locks (`repo_locks.ttl`).

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tracing::info;

use crate::context::Ctx;
use crate::features::replies;
use crate::kit::reconcile::{Reconciler, TickResult};
use crate::locks::{Limit, limit};
use crate::model::{Actor, Cause, CommandId, CommandKind, Lock, Origin, PullRef};
use crate::render::{Body, IdleNotice, Released};
use crate::store::{ExpiredLock, IdleLock, NewJob};

pub(super) const RECONCILER: Reconciler = Reconciler::new(
    "idle_locks",
    "Warns pull requests whose locks are near their time limit (repo_locks.ttl), and releases those that are over it.",
    Duration::from_mins(1),
    |ctx| Box::pin(tick(ctx)),
);

/// Locks of one pull request that need a warning or a release.
#[derive(Default)]
struct ExpiringLocks {
    ttl: TimeDelta,
    warn: Vec<Lock>,
    /// Time of the first release among the locks with a warning.
    ends_at: Option<DateTime<Utc>>,
    end: Vec<Lock>,
}

/// Checks every lock that could be near its time limit.
async fn tick(ctx: &Ctx) -> anyhow::Result<TickResult> {
    let mut found = TickResult::default();
    let Some(shortest) = ctx.settings.repo_rules.repos.shortest_ttl() else {
        return Ok(found);
    };
    let now = ctx.clock.now();
    let until = now - shortest * 4 / 5;
    let mut due = BTreeMap::<PullRef, ExpiringLocks>::new();
    let mut page = ctx.store.lock_list_idle(until, None).await?;
    while let Some(last) = page.last().map(|idle| idle.lock.clone()) {
        found.looked_at += u64::try_from(page.len())?;
        for idle in page {
            note(ctx, &mut due, idle, now);
        }
        page = ctx.store.lock_list_idle(until, Some(&last)).await?;
    }
    for (pull, due) in due {
        found.repaired += u64::try_from(act(ctx, &pull, due).await?)?;
    }
    Ok(found)
}

fn note(ctx: &Ctx, due: &mut BTreeMap<PullRef, ExpiringLocks>, idle: IdleLock, now: DateTime<Utc>) {
    let IdleLock { lock, warned_at } = idle;
    let Some(ttl) = ctx.settings.lock_ttl(&lock.key.repo) else {
        return;
    };
    match limit(lock.active_at, warned_at, ttl, now) {
        Limit::Wait => {}
        Limit::Warn(ends_at) => {
            let due = due.entry(lock.pull.clone()).or_default();
            (due.ttl, due.ends_at) = (
                ttl,
                Some(due.ends_at.map_or(ends_at, |first| first.min(ends_at))),
            );
            due.warn.push(lock);
        }
        Limit::End => {
            let due = due.entry(lock.pull.clone()).or_default();
            due.ttl = ttl;
            due.end.push(lock);
        }
    }
}

async fn act(ctx: &Ctx, pull: &PullRef, due: ExpiringLocks) -> anyhow::Result<usize> {
    let ExpiringLocks {
        ttl,
        warn,
        ends_at,
        end,
    } = due;
    let cause = |reason: String| Cause::new(Actor::lockkeeper(Origin::Reconciler), reason);
    let mut done = 0;
    if let Some(ends_at) = ends_at {
        let cause = cause("the pull request was warned of the time limit".to_owned());
        done += ctx
            .store
            .lock_warn(pull, &warn, &cause, |locks| {
                warning(ctx, pull, locks, ttl, ends_at)
            })
            .await?
            .len();
    }
    if !end.is_empty() {
        let cause = cause(format!(
            "the pull request had no activity for {}",
            crate::render::span(ttl)
        ));
        let expired = ctx
            .store
            .lock_expire(pull, &end, &cause, |expired| {
                end_notice(ctx, pull, expired, ttl)
            })
            .await?;
        if !expired.is_empty() {
            info!(%pull, locks = expired.len(), "Locks expired");
        }
        done += expired.len();
    }
    ctx.wake_up.send();
    Ok(done)
}

fn warning(
    ctx: &Ctx,
    pull: &PullRef,
    locks: &[Lock],
    ttl: TimeDelta,
    ends_at: DateTime<Utc>,
) -> Vec<NewJob> {
    let projects = locks.iter().map(|lock| lock.project.clone()).collect();
    notice_jobs(
        ctx,
        pull,
        Body::LockIdle(IdleNotice {
            projects,
            ttl,
            ends_at,
        }),
    )
}

fn end_notice(ctx: &Ctx, pull: &PullRef, expired: &[ExpiredLock], ttl: TimeDelta) -> Vec<NewJob> {
    let released = expired
        .iter()
        .map(|expired| Released::lock_and_plan(expired.lock.project.clone()))
        .collect();
    let applied = expired.iter().any(|expired| expired.applied);
    notice_jobs(
        ctx,
        pull,
        Body::LockExpired {
            released,
            ttl,
            applied,
        },
    )
}

fn notice_jobs(ctx: &Ctx, pull: &PullRef, body: Body) -> Vec<NewJob> {
    let report = replies::notice(
        ctx,
        CommandKind::Unlock,
        CommandId::next(&*ctx.ids),
        pull,
        body,
    );
    replies::comment_jobs(ctx, &report, pull, ctx.clock.now())
}
