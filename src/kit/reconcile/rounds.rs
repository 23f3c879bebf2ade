//! Runs reconcilers on one server, on request or when their turn has come, and records the results.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;
use tracing::{Instrument, debug, error, info, info_span};

use super::{Reconciler, Scope, TickResult};
use crate::context::ServerCtx;
use crate::leases::{LeaseKey, LeaseOutcome};
use crate::store::ReconcilerRun;
use crate::telemetry::Metric;

/// Maximum duration of a tick. A longer one is aborted, because it waits for something that will not come.
const LONGEST: Duration = Duration::from_mins(15);
/// Minimum time between two records of a tick that found nothing, like the one before. Some reconcilers run every two
/// seconds.
const RECORD_EVERY: TimeDelta = TimeDelta::seconds(30);

/// Result of the turn of a reconciler on one server.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnResult {
    /// Run by this server, with its result.
    Ran(TickResult),
    /// Left to another server, which has the turn in this period.
    Skipped,
}

/// Reconcilers of one server, with their last results.
pub struct Rounds {
    ctx: Arc<ServerCtx>,
    replica: String,
    last: Mutex<HashMap<&'static str, Last>>,
}

/// Last recorded result of a reconciler.
#[derive(Clone, Copy, Default)]
struct Last {
    at: DateTime<Utc>,
    failures: u32,
}

impl Rounds {
    /// Prepares the reconcilers of the named server. Each has its metrics from now on, even before its first tick.
    pub fn new(
        ctx: Arc<ServerCtx>,
        replica: &str,
        all: impl Iterator<Item = &'static Reconciler>,
    ) -> Self {
        for Reconciler { name, .. } in all {
            for outcome in ["success", "failure"] {
                ctx.metrics
                    .add(Metric::ReconcilerTicks, &[name, outcome], 0);
            }
            ctx.metrics.add(Metric::ReconcilerRepaired, &[name], 0);
            ctx.metrics.set(Metric::ReconcilerFailures, &[name], 0.0);
        }
        Self {
            ctx,
            replica: replica.to_owned(),
            last: Mutex::default(),
        }
    }

    /// Runs a reconciler if it is the turn of this server.
    ///
    /// A reconciler for one server of the group needs a lease as long as the period. The lease is not released after
    /// the tick, so that its end is the time of the next turn. The name of its holder begins with the name of the
    /// server, so a dead server blocks nobody. After a failure the lease is released, because another server may
    /// succeed. A tick that loses its lease is aborted, and another server does the same work.
    pub async fn turn(&self, which: &Reconciler) -> anyhow::Result<TurnResult> {
        if which.scope == Scope::EveryReplica {
            return self.tick(which).await.map(TurnResult::Ran);
        }
        let key = LeaseKey::reconciler(which.name);
        let held = match self
            .ctx
            .server
            .leases
            .turn(&key, which.repairs, self.every(which))
            .await
        {
            Ok(Some(held)) => held,
            Ok(None) => return Ok(TurnResult::Skipped),
            Err(error) => {
                let failed =
                    Err(anyhow!(error).context("cannot determine which server has the turn"));
                return self
                    .report(which, failed, self.ctx.clock.now())
                    .map(TurnResult::Ran);
            }
        };
        match held.run_turn(self.tick(which)).await {
            LeaseOutcome::Done(ticked) => ticked.map(TurnResult::Ran),
            LeaseOutcome::Lost => Ok(TurnResult::Skipped),
        }
    }

    /// Takes the first turn of a starting server. Another server may have had its turn just before, when this one
    /// could not receive events yet. A reconciler that must not wait for the next period runs anyway.
    pub async fn first_turn(&self, which: &Reconciler) -> anyhow::Result<TurnResult> {
        match self.turn(which).await? {
            TurnResult::Skipped if which.looks_at_start => {
                self.tick(which).await.map(TurnResult::Ran)
            }
            turn @ (TurnResult::Ran(_) | TurnResult::Skipped) => Ok(turn),
        }
    }

    /// Returns the time from one tick to the next.
    pub fn every(&self, which: &Reconciler) -> Duration {
        which.every(&self.ctx.settings.periods)
    }

    /// Runs a reconciler now, even if it is the turn of another server.
    pub async fn tick(&self, which: &Reconciler) -> anyhow::Result<TickResult> {
        let started_at = self.ctx.clock.now();
        let span = info_span!("reconciler", reconciler = which.name);
        let ctx = self.ctx.fresh();
        let looking = AssertUnwindSafe((which.tick)(&ctx)).catch_unwind();
        let ticked = match tokio::time::timeout(LONGEST, looking)
            .instrument(span)
            .await
        {
            Ok(Ok(ticked)) => ticked,
            Ok(Err(_)) => Err(anyhow!(
                "it panicked, which is a bug in Lockkeeper; the log says where"
            )),
            Err(_) => Err(anyhow!("it took longer than {} s", LONGEST.as_secs())),
        };
        let ticked = self.report(which, ticked, started_at);
        let recorded = self.record(which.name, &ticked, started_at).await;
        let found = ticked?;
        recorded.context("its result could not be stored")?;
        Ok(found)
    }

    /// Measures and logs the result.
    fn report(
        &self,
        which: &Reconciler,
        ticked: anyhow::Result<TickResult>,
        started_at: DateTime<Utc>,
    ) -> anyhow::Result<TickResult> {
        self.measure(which.name, &ticked, started_at);
        log_result(which.name, &ticked);
        ticked
    }

    fn measure(&self, name: &str, ticked: &anyhow::Result<TickResult>, started_at: DateTime<Utc>) {
        let (metrics, now) = (&self.ctx.metrics, self.ctx.clock.now());
        let took = (now - started_at).to_std().unwrap_or_default();
        metrics.set(Metric::ReconcilerDuration, &[name], took.as_secs_f64());
        match ticked {
            Ok(found) => {
                metrics.count(Metric::ReconcilerTicks, &[name, "success"]);
                metrics.add(Metric::ReconcilerRepaired, &[name], found.repaired);
            }
            Err(_) => metrics.count(Metric::ReconcilerTicks, &[name, "failure"]),
        }
    }

    /// Records the result, unless it repeats a recent one.
    async fn record(
        &self,
        name: &'static str,
        ticked: &anyhow::Result<TickResult>,
        started_at: DateTime<Utc>,
    ) -> Result<(), sqlx::Error> {
        let TickResult {
            looked_at,
            repaired,
        } = *ticked.as_ref().unwrap_or(&TickResult::default());
        if !self.is_news(name, ticked.is_err(), repaired) {
            return Ok(());
        }
        let error = ticked.as_ref().err().map(|error| format!("{error:#}"));
        let (replica, error) = (self.replica.as_str(), error.as_deref());
        self.ctx
            .store
            .reconciler_record(&ReconcilerRun {
                name,
                replica,
                started_at,
                looked_at,
                repaired,
                error,
            })
            .await
    }

    fn is_news(&self, name: &'static str, failed: bool, repaired: u64) -> bool {
        let now = self.ctx.clock.now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.entry(name).or_default();
        let mended = !failed && last.failures > 0;
        last.failures = if failed { last.failures + 1 } else { 0 };
        self.ctx.metrics.set(
            Metric::ReconcilerFailures,
            &[name],
            f64::from(last.failures),
        );
        let is_news = failed || mended || repaired > 0 || now - last.at >= RECORD_EVERY;
        if is_news {
            last.at = now;
        }
        is_news
    }
}

fn log_result(name: &str, ticked: &anyhow::Result<TickResult>) {
    match ticked {
        Ok(TickResult {
            looked_at,
            repaired: repaired @ 1..,
        }) => {
            info!(reconciler = name, looked_at, repaired, "Fixed differences");
        }
        Ok(TickResult {
            looked_at,
            repaired: 0,
        }) => debug!(reconciler = name, looked_at, "Nothing to fix"),
        Err(error) => {
            let error = format!("{error:#}");
            error!(
                reconciler = name,
                error, "A reconciler failed and is retried"
            );
        }
    }
}
