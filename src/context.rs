//! What handlers and jobs are given: the services of one replica and the settings they follow.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Ids};
use crate::command::Grammar;
use crate::config::server::RepoAllowlist;
use crate::discovery;
use crate::model::{CommandId, Distribution};
use crate::queue::{Nudge, Pool};
use crate::render;
use crate::secret::Secret;
use crate::store::Store;
use crate::vcs::Forge;
use crate::workflow::{Artifacts, Checkouts, OutputHub, Terraform};

/// The services of one replica.
pub struct Ctx {
    /// The database.
    pub store: Store,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers.
    pub ids: Arc<dyn Ids>,
    /// The forge.
    pub forge: Arc<dyn Forge>,
    /// Mirrors and checkouts on this disk.
    pub checkouts: Checkouts,
    /// How Terraform and OpenTofu are found and started.
    pub terraform: Terraform,
    /// Plan files.
    pub artifacts: Artifacts,
    /// Places for runs: one pool for the whole process (`--parallel-pool-size`, `--parallel-repo-size`).
    pub pool: Pool,
    /// News of runs for watchers.
    pub hub: OutputHub,
    /// Wakes the workers.
    pub nudge: Nudge,
    /// Commands of this process that can be told to stop.
    pub stops: Stops,
    /// Cancelled when the server will not wait for runs any longer.
    pub interrupt: CancellationToken,
    /// What the operator wants.
    pub settings: Settings,
}

/// What the operator wants, as far as handlers and jobs need it.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own on the command line")]
pub struct Settings {
    /// Which repositories are served.
    pub allowlist: RepoAllowlist,
    /// Secrets with which deliveries may be signed; empty: unsigned ones are taken.
    pub webhook_secrets: Vec<Secret>,
    /// How comments are read.
    pub grammar: Grammar,
    /// The word shown in hints.
    pub executable: String,
    /// First part of every status.
    pub status_name: String,
    /// Where people reach the dashboard; without a slash at the end.
    pub public_url: String,
    /// Reaction to comments that give a command, in the forge's words; `None`: none.
    pub reaction: Option<String>,
    /// Whether drafts are planned when they change.
    pub allow_drafts: bool,
    /// Whether pulls from forks are served.
    pub allow_forks: bool,
    /// Whether a change of a pull leads to a plan.
    pub autoplan: bool,
    /// Whether nothing is said about repositories that are not served.
    pub silence_allowlist: bool,
    /// Whether nothing is said about pulls from forks.
    pub silence_forks: bool,
    /// Whether a command that concerns no project is answered.
    pub silence_no_projects: bool,
    /// How changed files lead to projects.
    pub discovery: discovery::Settings,
    /// Which program runs the code unless a project says otherwise.
    pub distribution: Distribution,
    /// Which version of it, unless a project says otherwise; `None`: whichever is there.
    pub default_version: Option<semver::Version>,
    /// Where variables files outside of a project may lie.
    pub var_file_dirs: Vec<PathBuf>,
    /// How long a run may take.
    pub run_timeout: Duration,
    /// Limits on what is posted.
    pub limits: render::Limits,
    /// How comments look.
    pub style: render::Style,
}

impl Settings {
    /// Page of a run.
    pub fn run_url(&self, run: crate::model::RunId) -> String {
        format!("{}/jobs/{run}", self.public_url)
    }

    /// Page of a lock.
    pub fn lock_url(&self, lock: crate::model::LockId) -> String {
        format!("{}/locks/{lock}", self.public_url)
    }
}

/// The commands that this process works on, each with the token that tells it to stop.
#[derive(Clone, Debug, Default)]
pub struct Stops(Arc<Mutex<HashMap<CommandId, CancellationToken>>>);

impl Stops {
    /// A command begins; the guard forgets it at the end.
    pub fn enter(&self, command: CommandId) -> StopGuard {
        let token = CancellationToken::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(command, token.clone());
        StopGuard { stops: self.clone(), command, token }
    }

    /// Tells commands to stop; those of other replicas learn it from the database.
    pub fn stop(&self, commands: &[CommandId]) {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        commands.iter().filter_map(|command| running.get(command)).for_each(CancellationToken::cancel);
    }
}

/// A command that can be told to stop while this lives.
pub struct StopGuard {
    stops: Stops,
    command: CommandId,
    /// Cancelled when the command is to stop.
    pub token: CancellationToken,
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.stops.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.command);
    }
}
