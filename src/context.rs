//! Provides handlers and jobs with the services of one replica and the settings that are in effect.

mod file_state;
mod live;
mod live_accounts;
mod settings;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;

pub use file_state::{FileCheck, FileState, RefusedContent};
pub use live::Live;
pub use live_accounts::LiveAccounts;
pub use settings::{ModuleGraphs, SeenRepositories, Settings};

use crate::claims::CredentialStore;
use crate::clock::{Clock, Ids};
use crate::forges::{Forges, Memberships, Webhooks};
use crate::leases::Leases;
use crate::locks::AuditFiles;
use crate::model::CommandId;
use crate::queue::{RunPool, RunningJob, WakeUp};
use crate::store::Store;
use crate::sync::Syncer;
use crate::telemetry::{Metrics, Panics};
use crate::workflow::{Artifacts, Checkouts, OutputHub, Terraform};

/// Context of handlers and jobs: the database, the settings and the services of one replica.
#[derive(Clone)]
pub struct Ctx {
    /// The database. For the work of a job, its writes depend on the lease of that job.
    pub store: Store,
    /// Settings of the administrator. They do not change during a job; the next job may see other settings.
    pub settings: Arc<Settings>,
    services: Arc<Services>,
}

impl Ctx {
    /// Combines a database and services.
    pub fn new(store: Store, services: Services) -> Self {
        Self {
            store,
            settings: services.live.settings(),
            services: Arc::new(services),
        }
    }

    /// Changes the settings, for this context and for everything that begins from now on.
    pub fn change_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        change(Arc::make_mut(&mut self.settings));
        self.live.put(Arc::clone(&self.settings));
    }

    /// Returns a context with the current settings, for callers that live as long as the server.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self {
            settings: self.live.settings(),
            ..self.clone()
        }
    }

    /// Returns a context for the work of one job. It writes nothing once the lease is lost, and has the settings of
    /// the start of the job.
    #[must_use]
    pub fn under(&self, attempt: &RunningJob) -> Self {
        let store = self.store.under(&attempt.lease, attempt.lost.clone());
        Self {
            store,
            settings: self.live.settings(),
            services: Arc::clone(&self.services),
        }
    }
}

impl Deref for Ctx {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

/// Services that one replica provides.
pub struct Services {
    pub clock: Arc<dyn Clock>,
    /// Source of new identifiers.
    pub ids: Arc<dyn Ids>,
    /// Forges of the repositories.
    pub forges: Forges,
    /// Webhooks of the configured forges.
    pub webhooks: Webhooks,
    /// Credentials that owners stored for their repositories.
    pub credentials: CredentialStore,
    /// Location of the key and the last checkpoint of the audit log.
    pub audit: AuditFiles,
    /// Cache of recent memberships in teams.
    pub memberships: Memberships,
    /// Leases for the exclusive work of this server.
    pub leases: Leases,
    /// Mirrors and checkouts on this disk.
    pub checkouts: Checkouts,
    /// Keeps the mirrors in sync.
    pub syncer: Syncer,
    /// Finds and starts Terraform and OpenTofu.
    pub terraform: Terraform,
    /// Store of plan files.
    pub artifacts: Artifacts,
    /// Permits for runs: one pool for the whole process (`--parallel-pool-size`, `--parallel-repo-size`).
    pub pool: RunPool,
    /// News of runs for viewers of their pages.
    pub hub: OutputHub,
    /// Nudge that wakes the workers.
    pub nudge: WakeUp,
    /// Nudge that wakes the reconcilers of mirrors.
    pub mirror_nudge: WakeUp,
    /// Commands of this process that can be stopped.
    pub stops: Stops,
    /// Start time of this server. It may have missed earlier news.
    pub started_at: DateTime<Utc>,
    /// Cancelled when the server begins no more work.
    pub closing: CancellationToken,
    /// Cancelled when the server does not wait for runs any longer.
    pub interrupt: CancellationToken,
    /// Metrics of this process.
    pub metrics: Metrics,
    pub panics: Arc<Panics>,
    /// Current settings, which may change while the server runs.
    pub live: Live,
}

/// Commands that this process works on, each with the token that stops it.
#[derive(Clone, Debug, Default)]
pub struct Stops(Arc<Mutex<HashMap<CommandId, CancellationToken>>>);

impl Stops {
    /// Registers a command at its beginning. Dropping the guard removes it.
    pub fn enter(&self, command: CommandId) -> StopGuard {
        let token = CancellationToken::new();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(command, token.clone());
        StopGuard {
            stops: self.clone(),
            command,
            token,
        }
    }

    /// Stops commands, and returns how many of them were not stopping yet. Other replicas learn from the database
    /// which of their commands to stop.
    pub fn stop(&self, commands: &[CommandId]) -> u64 {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let untold = |token: &&CancellationToken| !token.is_cancelled();
        let told = commands
            .iter()
            .filter_map(|command| running.get(command))
            .filter(untold);
        told.map(CancellationToken::cancel).count() as u64
    }
}

/// Registration of a command that can be stopped while this value lives.
pub struct StopGuard {
    stops: Stops,
    command: CommandId,
    /// Cancelled when the command has to stop.
    pub token: CancellationToken,
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.stops
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.command);
    }
}
