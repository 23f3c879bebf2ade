//! Runs the loops of a running server. Each loop calls one `tick()`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::replica::commands_of_a_repo;
use super::{Replica, reload};
use crate::features::{self, Jobs};
use crate::kit::reconcile::{Reconciler, StopDeadline, TurnResult, WakingNews};
use crate::leases;
use crate::queue::{NextJob, RENEW_EVERY, WakeUps, Worker};
use crate::store::JobLease;

/// Number of workers for short jobs. They wait for the forge, not for the processor.
const SHORT_WORKERS: usize = 8;
/// Factor for the workers for commands: this many repositories can each have their maximum number of concurrent
/// commands. Most of the commands wait for a permit of the pool of runs, and a waiting worker costs almost nothing.
const BUSY_REPOS: i64 = 4;
/// Number of workers for commands that are answered at once, such as `unlock`. Waiting commands take all other
/// workers.
const ANSWER_WORKERS: usize = 8;
/// Time between two looks at the queue without a wake-up: other replicas add jobs without a wake-up to this one.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time until the next attempt after an error (the database is unavailable).
const AFTER_ERROR: Duration = Duration::from_secs(2);
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Time between two summaries of metrics if no monitor reads them.
const TIDY_EVERY: Duration = Duration::from_secs(30);
/// Time after a wake-up in which further ones are gathered before the next look. The event of a push often comes with
/// one of its pull request. That command fetches the same commits, so it goes first; a mirror has time.
const GATHER: Duration = Duration::from_secs(2);
/// The same time after a record of the registry, which others wait for.
const GATHER_RECORDS: Duration = Duration::from_millis(200);
/// Number of attempts per period if another replica had the turn, in case that replica ends in the meantime.
const TRIES_IN_A_PERIOD: u32 = 5;

/// Starts every loop. Workers claim no more jobs once `closing` is cancelled, and end after their current job. The
/// other loops end after the last worker.
pub(super) fn start(
    replica: &Arc<Replica>,
    closing: &CancellationToken,
    ended: &CancellationToken,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    start_workers(&mut tasks, replica, closing, ended);
    start_leases(&mut tasks, replica, ended);
    spawn_until(&mut tasks, ended, replica, listen);
    spawn_every(&mut tasks, TIDY_EVERY, ended, replica, |r| async move {
        r.ctx.metrics.tidy();
        Ok(())
    });
    spawn_every(
        &mut tasks,
        reload::LOOK_EVERY,
        ended,
        replica,
        |r| async move {
            r.tick_repo_config().await?;
            Ok(())
        },
    );
    spawn_every(
        &mut tasks,
        reload::LOOK_EVERY,
        ended,
        replica,
        |r| async move {
            r.tick_web_accounts().await?;
            Ok(())
        },
    );
    for reconciler in features::reconcilers() {
        let until = match reconciler.until {
            StopDeadline::Closing => closing,
            StopDeadline::End => ended,
        };
        let (replica, until) = (Arc::clone(replica), until.clone());
        tasks.spawn(async move { repair(&replica, reconciler, &until).await });
    }
    tasks
}

fn start_workers(
    tasks: &mut JoinSet<()>,
    replica: &Arc<Replica>,
    closing: &CancellationToken,
    ended: &CancellationToken,
) {
    let turn = || Arc::new(Mutex::new(replica.ctx.wake_up.listen()));
    let (short_turn, command_turn, answer_turn) = (turn(), turn(), turn());
    for _ in 0..SHORT_WORKERS {
        let (replica, turn, ended) = (Arc::clone(replica), Arc::clone(&short_turn), ended.clone());
        // Short jobs continue while commands end, because they post the results of the commands.
        tasks.spawn(async move { work(&replica.short, &turn, &ended).await });
    }
    for _ in 0..commands_of_a_repo(&replica.ctx).saturating_mul(BUSY_REPOS) {
        let (replica, turn, closing) = (
            Arc::clone(replica),
            Arc::clone(&command_turn),
            closing.clone(),
        );
        tasks.spawn(async move { work(&replica.long, &turn, &closing).await });
    }
    for _ in 0..ANSWER_WORKERS {
        let (replica, turn, closing) = (
            Arc::clone(replica),
            Arc::clone(&answer_turn),
            closing.clone(),
        );
        tasks.spawn(async move { work(&replica.answers, &turn, &closing).await });
    }
}

/// Renews all leases, or releases them in time.
fn start_leases(tasks: &mut JoinSet<()>, replica: &Arc<Replica>, ended: &CancellationToken) {
    spawn_until(
        tasks,
        ended,
        replica,
        |r| async move { r.watch_leases().await },
    );
    spawn_until(tasks, ended, replica, |r| async move {
        // Other replicas learn at once that this server claims no more work.
        r.ctx.closing.cancelled().await;
        r.tick_leases().await.ok();
    });
    spawn_every(tasks, RENEW_EVERY, ended, replica, |r| async move {
        Ok(r.tick_leases().await?)
    });
    spawn_every(tasks, leases::LOOK_EVERY, ended, replica, |r| async move {
        r.ctx.server.leases.tick().await;
        Ok(())
    });
    spawn_every(tasks, leases::LOOK_EVERY, ended, replica, |r| async move {
        r.ctx.server.leases.cancel_expiring();
        Ok(())
    });
}

/// Runs a reconciler on its timer and on a wake-up. Its errors are logged where they are measured.
async fn repair(replica: &Replica, reconciler: &'static Reconciler, until: &CancellationToken) {
    let period = replica.every(reconciler);
    let mut wake_ups = reconciler.woken_by.map(|news| match news {
        WakingNews::Mirrors => (replica.ctx.mirror_wake_up.listen(), GATHER),
        WakingNews::Registry => (replica.ctx.registry_wake_up.listen(), GATHER_RECORDS),
    });
    let (mut is_first, mut failures) = (true, 0_u32);
    while !until.is_cancelled() {
        let turned = if is_first {
            replica.first_turn(reconciler).await
        } else {
            replica.turn(reconciler).await
        };
        is_first &= turned.is_err();
        let pause = match turned {
            Ok(TurnResult::Ran(_)) => {
                failures = 0;
                period
            }
            Ok(TurnResult::Skipped) => {
                failures = 0;
                period / TRIES_IN_A_PERIOD
            }
            Err(_) => {
                failures = failures.saturating_add(1);
                reconciler.pause_after(failures, period)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wait_for_wake_up(wake_ups.as_mut()) => {}
            () = until.cancelled() => {}
        }
    }
}

/// Waits for a wake-up and a moment longer, so that one look covers a series of changes.
async fn wait_for_wake_up(wake_ups: Option<&mut (WakeUps, Duration)>) {
    let Some((wake_ups, gather)) = wake_ups else {
        return std::future::pending().await;
    };
    wake_ups.wait().await;
    tokio::time::sleep(*gather).await;
}

/// Listens to the news of other replicas. Without them (for example behind a proxy that shares connections between
/// clients) the loops find everything later, on their timers.
async fn listen(replica: Arc<Replica>) {
    loop {
        match replica.listen().await {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => warn!(
                error = format!("{error:#}"),
                "Cannot receive notifications of other replicas; their changes arrive later"
            ),
        }
        tokio::time::sleep(LISTEN_AGAIN_AFTER).await;
    }
}

/// Spawns a task that runs until the server has ended.
fn spawn_until<F>(
    tasks: &mut JoinSet<()>,
    ended: &CancellationToken,
    replica: &Arc<Replica>,
    what: fn(Arc<Replica>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (replica, ended) = (Arc::clone(replica), ended.clone());
    tasks.spawn(async move {
        ended
            .run_until_cancelled(what(replica))
            .await
            .unwrap_or_default();
    });
}

async fn work(worker: &Worker<Jobs>, turn: &Mutex<WakeUps>, closing: &CancellationToken) {
    while let Some(mut lease) = next(worker, turn, closing).await {
        loop {
            match worker
                .run_claimed(lease, NextJob::ClaimUnless(closing))
                .await
            {
                Ok(Some(next)) => lease = next,
                Ok(None) => break,
                Err(error) => {
                    error!(%error, "Could not record the end of a job");
                    break;
                }
            }
        }
    }
}

/// Claims the next job; `None` once `closing` is cancelled.
///
/// Only the worker with the turn looks at the queue, and then it passes on the turn. If all workers looked at every
/// wake-up, their queries would use more of the database than the work does.
async fn next(
    worker: &Worker<Jobs>,
    turn: &Mutex<WakeUps>,
    closing: &CancellationToken,
) -> Option<JobLease> {
    let mut wake_ups = tokio::select! {
        wake_ups = turn.lock() => wake_ups,
        () = closing.cancelled() => return None,
    };
    while !closing.is_cancelled() {
        let pause = match worker.claim().await {
            Ok(Some(lease)) => return Some(lease),
            Ok(None) => LOOK_EVERY,
            Err(error) => {
                error!(%error, "Could not read the queue");
                AFTER_ERROR
            }
        };
        tokio::select! {
            () = wake_ups.wait() => {}
            () = tokio::time::sleep(pause) => {}
            () = closing.cancelled() => {}
        }
    }
    None
}

/// Spawns a periodic task. `tick` takes no argument and may run at any time.
fn spawn_every<F>(
    tasks: &mut JoinSet<()>,
    period: Duration,
    closing: &CancellationToken,
    replica: &Arc<Replica>,
    tick: fn(Arc<Replica>) -> F,
) where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (replica, closing) = (Arc::clone(replica), closing.clone());
    tasks.spawn(async move {
        while !closing.is_cancelled() {
            if let Err(error) = tick(Arc::clone(&replica)).await {
                error!(
                    error = format!("{error:#}"),
                    "A periodic task failed and will be retried"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                () = closing.cancelled() => {}
            }
        }
    });
}
