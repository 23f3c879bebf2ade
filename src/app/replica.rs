//! One running server, as a value: the services, and workers with a `tick()` that loops or tests turn.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tracing::error;

use super::{news, reload};
use crate::context::{Ctx, Look};
use crate::features;
use crate::handlers::reconcile::{Found, Reconciler, Rounds, Turn};
use crate::jobs::{Jobs, RunCommand};
use crate::queue::{Job, Kinds, LeaseKeeper, Running, Tick, Worker};
use crate::store::ReplicaId;

/// One running server.
pub struct Replica {
    /// Its services.
    pub ctx: Arc<Ctx>,
    /// The jobs it works on right now.
    pub running: Running,
    pub(super) short: Worker<Jobs>,
    pub(super) long: Worker<Jobs>,
    pub(super) answers: Worker<Jobs>,
    keeper: LeaseKeeper,
    rounds: Rounds,
    name: String,
}

/// Commands of one repository at once: enough to fill every place of the pool that it may have, and always several,
/// because most commands wait for something else than a place.
pub(super) fn commands_of_a_repo(ctx: &Ctx) -> i64 {
    i64::try_from(ctx.pool.places_of_a_repo())
        .unwrap_or(i64::MAX)
        .saturating_add(1)
        .max(16)
}

/// Commands of one repository that are answered at once, at the same time; others have workers left.
const ANSWERS_OF_A_REPO: i64 = 4;

impl Replica {
    /// A server over its services, on a machine that does not matter; `name` signs its claims and is unlike that of any
    /// other server, also of earlier ones on the same machine.
    pub fn new(ctx: Arc<Ctx>, name: &str) -> Self {
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

    /// A server over its services, as other replicas and people are to know it.
    pub fn known_as(ctx: Arc<Ctx>, id: ReplicaId) -> Self {
        let pulse = ctx.terraform.supervisor.pulse.clone();
        let (running, name) = (Running::new(pulse.clone()), id.name.clone());
        let jobs = Arc::new(Jobs::new(Arc::clone(&ctx)));
        let worker = |kinds| {
            let (store, clock, nudge) =
                (ctx.store.clone(), Arc::clone(&ctx.clock), ctx.nudge.clone());
            Worker::new(
                store,
                clock,
                Arc::clone(&jobs),
                name.clone(),
                kinds,
                running.clone(),
                nudge,
            )
        };
        let commands = <RunCommand as Job<Ctx>>::KIND;
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
                pulse,
                ctx.closing.clone(),
            ),
            rounds: Rounds::new(Arc::clone(&ctx), &name, features::reconcilers()),
            running,
            ctx,
            name,
        }
    }

    /// What its claims are signed with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Works on one short job: deliveries, comments, statuses.
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

    /// Renews what is held.
    pub async fn tick_leases(&self) -> Result<(), sqlx::Error> {
        self.keeper.tick().await
    }

    /// Looks whether the file of `--repo-config` has changed, and takes what it says if it can.
    pub async fn tick_repo_config(&self) -> anyhow::Result<Look> {
        reload::look(&self.ctx).await
    }

    /// Looks whether the file of `--web-accounts-file` has changed, and takes what it says if it can.
    pub async fn tick_web_accounts(&self) -> anyhow::Result<Look> {
        reload::look_at_accounts(&self.ctx).await
    }

    /// Stops all work whenever the leases could not be renewed in time. Never returns.
    pub async fn watch_leases(&self) {
        tokio::join!(
            self.keeper.watch(),
            self.ctx.leases.watch(&self.ctx.terraform.supervisor.pulse)
        );
    }

    /// Ends in good order: what it still holds is free at once.
    pub async fn end(&self) -> Result<(), sqlx::Error> {
        self.keeper.end().await
    }

    /// Passes on what other replicas tell until the connection is lost; `false` when there is nobody to hear from.
    pub async fn listen(&self) -> anyhow::Result<bool> {
        news::listen(&self.ctx).await
    }

    /// How long from one look of a reconciler to the next.
    pub fn every(&self, which: &Reconciler) -> Duration {
        self.rounds.every(which)
    }

    /// Turns the reconciler of that name now, whoever's turn it is: for those who turn the crank by hand.
    pub async fn tick(&self, name: &str) -> anyhow::Result<Found> {
        let which = features::reconciler(name)
            .with_context(|| format!("there is no reconciler of the name `{name}`"))?;
        self.prepare(which).await?;
        self.rounds.tick(which).await
    }

    /// Turns a reconciler if it is the turn of this replica.
    pub async fn turn(&self, which: &Reconciler) -> anyhow::Result<Turn> {
        self.prepare(which).await?;
        self.rounds.turn(which).await
    }

    /// Turns a reconciler for the first time since this replica began.
    pub async fn first_turn(&self, which: &Reconciler) -> anyhow::Result<Turn> {
        self.prepare(which).await?;
        self.rounds.first_turn(which).await
    }

    async fn prepare(&self, which: &Reconciler) -> anyhow::Result<()> {
        if which.renews_first {
            let renewed = self
                .keeper
                .tick()
                .await
                .context("the leases of this server could not be renewed");
            return renewed.inspect_err(|error| {
                error!(
                    reconciler = which.name,
                    error = format!("{error:#}"),
                    "A repair could not begin"
                );
            });
        }
        Ok(())
    }
}
