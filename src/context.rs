//! Provides features with the services of one server and the settings that are in effect, each with as much as it needs.

mod file_state;
mod live;
mod live_accounts;
mod settings;

use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;

pub use file_state::{FileCheck, FileState, RefusedContent};
pub use live::Live;
pub use live_accounts::LiveAccounts;
pub use settings::{ModuleGraphs, SeenRepositories, Settings};

use crate::claims::CredentialStore;
use crate::clock::{Clock, Ids};
use crate::config::server::{AccountsMirrorConfig, OwnRegistry};
use crate::forges::{Forges, Memberships, Webhooks};
use crate::git::{GitSettings, ServedPlaces};
use crate::leases::Leases;
use crate::locks::AuditFiles;
use crate::model::CommandId;
use crate::objects::RemoteObjects;
use crate::process::LeaseHeartbeat;
use crate::queue::{RunPool, RunningJob, WakeUp};
use crate::seal::Keyring;
use crate::store::Store;
use crate::sync::Syncer;
use crate::telemetry::{Metrics, Panics};
use crate::workflow::{Artifacts, Checkouts, ChildEnvironment, OutputHub, RunRegistry, Terraform};

/// The database, the settings, and the services that every feature uses. Code that runs no program gets this one, so it
/// cannot start any.
#[derive(Clone)]
pub struct Ctx {
    /// The database. For the work of a job, its writes depend on the lease of that job.
    pub store: Store,
    /// Settings of the administrator. They do not change during a job; the next job may see other settings.
    pub settings: Arc<Settings>,
    services: Arc<Services>,
}

impl Ctx {
    /// Returns a context with the current settings, for callers that live as long as the server.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self {
            settings: self.live.settings(),
            ..self.clone()
        }
    }
}

impl Deref for Ctx {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

/// Context of commands that run programs: plan, apply and the like.
#[derive(Clone)]
pub struct RunCtx {
    ctx: Ctx,
    /// Services that only runs need.
    pub runs: Arc<RunServices>,
}

impl Deref for RunCtx {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.ctx
    }
}

/// Everything that one server has. Its loops and its reconcilers get it, and hand on what each feature needs.
#[derive(Clone)]
pub struct ServerCtx {
    ctx: RunCtx,
    /// Services that only the server itself and its reconcilers need.
    pub server: Arc<ServerServices>,
}

impl ServerCtx {
    /// Combines a database and services.
    pub fn new(
        store: Store,
        services: Services,
        runs: RunServices,
        server: ServerServices,
    ) -> Self {
        let ctx = Ctx {
            store,
            settings: services.live.settings(),
            services: Arc::new(services),
        };
        let runs = Arc::new(runs);
        Self {
            ctx: RunCtx { ctx, runs },
            server: Arc::new(server),
        }
    }

    /// Changes the settings, for this context and for everything that begins from now on.
    pub fn change_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        let ctx = &mut self.ctx.ctx;
        change(Arc::make_mut(&mut ctx.settings));
        ctx.live.put(Arc::clone(&ctx.settings));
    }

    /// Returns a context with the current settings.
    #[must_use]
    pub fn fresh(&self) -> Self {
        self.with(self.ctx.ctx.fresh())
    }

    /// Returns a context for the work of one job. It writes nothing once the lease is lost, and has the settings of
    /// the start of the job.
    #[must_use]
    pub fn under(&self, attempt: &RunningJob) -> Self {
        let store = self.store.under(&attempt.lease, attempt.lost.clone());
        self.with(Ctx {
            store,
            ..self.ctx.ctx.fresh()
        })
    }

    fn with(&self, ctx: Ctx) -> Self {
        let runs = Arc::clone(&self.ctx.runs);
        Self {
            ctx: RunCtx { ctx, runs },
            server: Arc::clone(&self.server),
        }
    }
}

impl Deref for ServerCtx {
    type Target = RunCtx;

    fn deref(&self) -> &RunCtx {
        &self.ctx
    }
}

impl AsRef<Ctx> for ServerCtx {
    fn as_ref(&self) -> &Ctx {
        self
    }
}

impl AsRef<RunCtx> for ServerCtx {
    fn as_ref(&self) -> &RunCtx {
        self
    }
}

/// Services of one server that every feature uses.
pub struct Services {
    pub clock: Arc<dyn Clock>,
    /// Source of new identifiers.
    pub ids: Arc<dyn Ids>,
    /// Forges of the repositories.
    pub forges: Forges,
    /// Webhooks of the configured forges.
    pub webhooks: Webhooks,
    /// Cache of recent memberships in teams.
    pub memberships: Memberships,
    /// Variables of the program that decides about people (`team_authz`).
    pub authz_environment: ChildEnvironment,
    /// Credentials that owners stored for their repositories.
    pub credentials: CredentialStore,
    /// Mirrors and checkouts on this disk.
    pub checkouts: Checkouts,
    /// Wake-up of the workers.
    pub wake_up: WakeUp,
    /// Wake-up of the reconcilers of mirrors.
    pub mirror_wake_up: WakeUp,
    /// Wake-up of the reconciler of pushes: the log of the registry has a new record.
    pub registry_wake_up: WakeUp,
    /// Commands of this process that can be stopped.
    pub stops: Stops,
    /// Renewals of the leases of this server. Without them, it must not write to a forge.
    pub heartbeat: LeaseHeartbeat,
    /// Start time of this server. It may have missed earlier news.
    pub started_at: DateTime<Utc>,
    /// Cancelled when the server begins no more work.
    pub closing: CancellationToken,
    /// Metrics of this process.
    pub metrics: Metrics,
    /// Current settings, which may change while the server runs.
    pub live: Live,
}

/// Services for runs of programs.
pub struct RunServices {
    /// Finds and starts Terraform and OpenTofu.
    pub terraform: Terraform,
    /// Store of plan files.
    pub artifacts: Artifacts,
    /// Permits for runs: one pool for the whole process (`--parallel-pool-size`, `--parallel-repo-size`).
    pub pool: RunPool,
    /// News of runs for viewers of their pages.
    pub hub: OutputHub,
    /// Registry of modules, as runs reach it.
    pub registry: RunRegistry,
    /// Cancelled when the server does not wait for runs any longer.
    pub interrupt: CancellationToken,
}

/// Services of the server itself and of its reconcilers.
pub struct ServerServices {
    /// Leases for the exclusive work of this server.
    pub leases: Leases,
    /// Keeps the mirrors in sync.
    pub syncer: Syncer,
    /// Location of the key and the last checkpoint of the audit log.
    pub audit: AuditFiles,
    pub panics: Arc<Panics>,
    /// Settings of the git that serves the accounts.
    pub git_of_accounts: GitSettings,
    /// Locks on the repositories that it serves.
    pub accounts_served: Arc<ServedPlaces>,
    /// Numbers for new accounts that are taken from the sequence at a time.
    pub account_batch: u32,
    /// Copy of the accounts on another server (`--accounts-mirror-to`).
    pub accounts_mirror: Option<AccountsMirror>,
    /// Database with the reviewed flags of accounts, if they are not with everything else (`--reviewed-flags-url`).
    pub flag_store: Option<Store>,
    /// Registry of modules (`--registry`).
    pub registry: Option<RegistryParts>,
}

/// Parts from which the registry of modules is opened.
#[derive(Clone)]
pub struct RegistryParts {
    /// Name and access of the registry.
    pub config: OwnRegistry,
    /// Place of the packages.
    pub packages: PackagePlace,
    /// Keys that seal the key of the log.
    pub keys: Option<Arc<Keyring>>,
    /// Settings of git for repositories from which missing modules are fetched.
    pub git: GitSettings,
    /// Directory for those repositories.
    pub scratch: PathBuf,
}

/// Place of the packages of the registry.
#[derive(Clone, Debug)]
pub struct PackagePlace {
    /// Directory of the packages. With an object store, of those that arrive, and of copies.
    pub dir: PathBuf,
    /// Object store with the packages. `None`: they are in the directory.
    pub remote: Option<RemoteObjects>,
    /// Counts failures of the object store.
    pub metrics: Metrics,
}

impl From<&Path> for PackagePlace {
    fn from(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            remote: None,
            metrics: Metrics::default(),
        }
    }
}

impl From<&PathBuf> for PackagePlace {
    fn from(dir: &PathBuf) -> Self {
        Self::from(dir.as_path())
    }
}

impl From<&Self> for PackagePlace {
    fn from(place: &Self) -> Self {
        place.clone()
    }
}

/// Copy of the accounts on another server.
pub struct AccountsMirror {
    /// Repository that gets the copy, and the credentials for it.
    pub config: AccountsMirrorConfig,
    /// Directory for the key of SSH while git uses it.
    pub scratch: PathBuf,
    /// Newest state that this process has pushed, or found there.
    pub newest: Mutex<Option<MirroredAccounts>>,
}

/// State of the accounts that the copy had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirroredAccounts {
    /// Number of the newest update.
    pub number: i64,
    /// Time of the comparison with the copy.
    pub compared_at: DateTime<Utc>,
}

impl AccountsMirror {
    /// Describes a copy that nothing is known about yet.
    pub fn new(config: AccountsMirrorConfig, scratch: PathBuf) -> Self {
        Self {
            config,
            scratch,
            newest: Mutex::default(),
        }
    }
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
