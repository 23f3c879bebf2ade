//! Represents one running server as a value: the services, and workers with a `tick()` that loops or tests call.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tracing::error;

use super::{news, reload};
use crate::context::{FileCheck, RunCtx, ServerCtx};
use crate::features::planning::RunCommand;
use crate::features::{self, Jobs};
use crate::kit::reconcile::{Reconciler, Rounds, TickResult, TurnResult};
use crate::queue::{Job, Kinds, LeaseKeeper, Running, Tick, Worker};
use crate::store::ReplicaId;

/// One running server with its services and workers.
pub struct Replica {
    pub ctx: Arc<ServerCtx>,
    /// Jobs that this server works on now.
    pub running: Running,
    pub(super) short: Worker<Jobs>,
    pub(super) long: Worker<Jobs>,
    pub(super) answers: Worker<Jobs>,
    keeper: LeaseKeeper,
    rounds: Rounds,
    name: String,
}

/// Returns the maximum number of concurrent commands of one repository. It is enough to use every permit that the
/// repository may have in the pool. It is never less than 16, because most commands wait for something else than a
/// permit.
pub(super) fn commands_of_a_repo(ctx: &ServerCtx) -> i64 {
    i64::try_from(ctx.runs.pool.permits_per_repo())
        .unwrap_or(i64::MAX)
        .saturating_add(1)
        .max(16)
}

/// Maximum number of concurrent commands of one repository that are answered at once. Workers are left for other
/// repositories.
const ANSWERS_OF_A_REPO: i64 = 4;

impl Replica {
    /// Builds a server over its services without a host name and an address. `name` signs its claims. No other server
    /// has it, not even an earlier one on the same machine.
    pub fn new(ctx: Arc<ServerCtx>, name: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self::known_as(
            ctx,
            ReplicaId {
                name: name.to_owned(),
                host: String::new(),
                address: String::new(),
                version,
            },
        )
    }

    /// Builds a server over its services, with the identity that other replicas and people see.
    pub fn known_as(ctx: Arc<ServerCtx>, id: ReplicaId) -> Self {
        let heartbeat = ctx.heartbeat.clone();
        let (running, name) = (Running::new(heartbeat.clone()), id.name.clone());
        let jobs = Arc::new(Jobs::new(Arc::clone(&ctx)));
        let worker = |kinds| {
            let (store, clock, wake_up) = (
                ctx.store.clone(),
                Arc::clone(&ctx.clock),
                ctx.wake_up.clone(),
            );
            Worker::new(
                store,
                clock,
                Arc::clone(&jobs),
                name.clone(),
                kinds,
                running.clone(),
                wake_up,
            )
        };
        let commands = <RunCommand as Job<RunCtx>>::KIND;
        Self {
            short: worker(Kinds::Except(commands)),
            long: worker(Kinds::Only(commands)).with_most_of_a_share(commands_of_a_repo(&ctx)),
            answers: worker(Kinds::Only(commands))
                .with_most_of_a_share(ANSWERS_OF_A_REPO)
                .with_least_priority(RunCommand::AT_ONCE),
            keeper: LeaseKeeper::new(
                ctx.store.clone(),
                Arc::clone(&ctx.clock),
                id,
                running.clone(),
                heartbeat,
                ctx.closing.clone(),
            ),
            rounds: Rounds::new(Arc::clone(&ctx), &name, features::reconcilers()),
            running,
            ctx,
            name,
        }
    }

    /// Returns the name that signs its claims.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Works on one short job: a delivery, a comment or a status.
    pub async fn tick_short(&self) -> Result<Tick, sqlx::Error> {
        self.short.tick().await
    }

    /// Works on one command, however long it takes.
    pub async fn tick_command(&self) -> Result<Tick, sqlx::Error> {
        self.long.tick().await
    }

    /// Works on one command that is answered at once, however many others wait.
    pub async fn tick_answer(&self) -> Result<Tick, sqlx::Error> {
        self.answers.tick().await
    }

    /// Renews the leases of this server.
    pub async fn tick_leases(&self) -> Result<(), sqlx::Error> {
        self.keeper.tick().await
    }

    /// Reads the file of `--repo-config` again, and puts it into effect if it has changed and is valid.
    pub async fn tick_repo_config(&self) -> anyhow::Result<FileCheck> {
        reload::reload_repo_config(&self.ctx).await
    }

    /// Reads the file of `--web-accounts-file` again, and puts it into effect if it has changed and is valid.
    pub async fn tick_web_accounts(&self) -> anyhow::Result<FileCheck> {
        reload::reload_accounts(&self.ctx).await
    }

    /// Stops all work when the leases could not be renewed in time. Never returns.
    pub async fn watch_leases(&self) {
        tokio::join!(
            self.keeper.watch(),
            self.ctx.server.leases.watch(&self.ctx.heartbeat)
        );
    }

    /// Shuts down gracefully: releases everything it still holds at once.
    pub async fn end(&self) -> Result<(), sqlx::Error> {
        self.keeper.end().await
    }

    /// Passes on the news of other replicas until the connection is lost. Returns `false` if no other replica can
    /// send news.
    pub async fn listen(&self) -> anyhow::Result<bool> {
        news::listen(&self.ctx).await
    }

    /// Returns the time from one turn of a reconciler to the next.
    pub fn every(&self, which: &Reconciler) -> Duration {
        self.rounds.every(which)
    }

    /// Runs the reconciler of that name now, even if it is the turn of another replica. Tests and tools call it.
    pub async fn tick(&self, name: &str) -> anyhow::Result<TickResult> {
        let which = features::reconciler(name)
            .with_context(|| format!("there is no reconciler with the name `{name}`"))?;
        self.prepare(which).await?;
        self.rounds.tick(which).await
    }

    /// Runs a reconciler if it is the turn of this replica.
    pub async fn turn(&self, which: &Reconciler) -> anyhow::Result<TurnResult> {
        self.prepare(which).await?;
        self.rounds.turn(which).await
    }

    /// Runs a reconciler for the first time since this replica began.
    pub async fn first_turn(&self, which: &Reconciler) -> anyhow::Result<TurnResult> {
        self.prepare(which).await?;
        self.rounds.first_turn(which).await
    }

    async fn prepare(&self, which: &Reconciler) -> anyhow::Result<()> {
        if which.renews_first {
            let renewed = self
                .keeper
                .tick()
                .await
                .context("cannot renew the leases of this server");
            return renewed.inspect_err(|error| {
                error!(
                    reconciler = which.name,
                    error = format!("{error:#}"),
                    "A reconciler could not start"
                );
            });
        }
        Ok(())
    }
}
