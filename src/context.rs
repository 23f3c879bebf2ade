//! Provides handlers and jobs with the services of one replica and the settings that are in effect.

mod file_state;
mod live;
mod live_accounts;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use file_state::{FileCheck, FileState, RefusedContent};
pub use live::Live;
pub use live_accounts::LiveAccounts;

use crate::claims::CredentialStore;
use crate::clock::{Clock, Ids};
use crate::command::{ExtraArgs, Grammar};
use crate::config::access::{TeamAuthz, TeamRules, WebRules};
use crate::config::repo::RepoConfig;
use crate::config::repos::{ConfigSource, LockPolicy, RepoRules, ServerRepos};
use crate::config::server::{Commenters, IdleStatuses, Periods, RepoAllowlist, Retention};
use crate::config::size::ByteSize;
use crate::discovery::{self, ModuleGraph};
use crate::leases::Leases;
use crate::locks::AuditFiles;
use crate::model::{CommandId, Distribution, ForgeHosts, MergeMethod, ProjectKey, RepoId};
use crate::queue::{RunPool, RunningJob, WakeUp};
use crate::render;
use crate::secret::Secret;
use crate::store::Store;
use crate::sync::Syncer;
use crate::telemetry::{Metrics, Panics};
use crate::vcs::{Forge, Memberships};
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
    pub forge: Arc<dyn Forge>,
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

/// Settings of the administrator, as far as handlers and jobs need them.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct Settings {
    /// Repositories that the server works for.
    pub allowlist: RepoAllowlist,
    /// True if the built-in `init` may read private modules of the forge (`--write-git-creds`).
    pub module_access: bool,
    /// Commands that each team of the forge may give.
    pub team_rules: TeamRules,
    /// People who may give commands if there are no rules for teams.
    pub commenters: Commenters,
    /// Actions that the pages and the API permit.
    pub web_rules: WebRules,
    /// Accounts that are limited to owners on the pages and in the API. They always follow the current content of
    /// their file.
    pub web_accounts: Arc<LiveAccounts>,
    /// Rules of the administrator for single repositories.
    pub repos: Arc<ServerRepos>,
    /// Repositories for which near misses of patterns have been logged.
    pub sighted: Arc<SeenRepositories>,
    /// Module graphs of the repositories that were searched last.
    pub modules: Arc<ModuleGraphs>,
    /// Program of the administrator that decides about permissions.
    pub team_authz: Option<TeamAuthz>,
    /// True if a plan is queued when another pull request has the lock.
    pub lock_queue: bool,
    /// Secrets with which deliveries may be signed. If empty, unsigned deliveries are accepted.
    pub webhook_secrets: Vec<Secret>,
    /// Grammar of commands in comments.
    pub grammar: Grammar,
    /// Name of the program in hints.
    pub executable: String,
    /// First part of the name of every status.
    pub status_name: String,
    /// First parts of the names of other statuses that do not keep a pull request from being mergeable.
    pub ignored_status_names: Vec<String>,
    /// Address of the dashboard for people, without a slash at the end.
    pub public_url: String,
    /// Reaction to comments with a command, in the forge's words; `None` for no reaction.
    pub reaction: Option<String>,
    /// True if drafts are planned when they change.
    pub allow_drafts: bool,
    /// True if pull requests from forks are served.
    pub allow_forks: bool,
    /// True if a command fails when a hook before it fails.
    pub fail_on_pre_hook: bool,
    /// True if a change of a pull request leads to a plan.
    pub autoplan: bool,
    /// Labels of pull requests that prevent commands.
    pub no_autoplan_label: Option<String>,
    pub no_unlock_label: Option<String>,
    pub no_automerge_label: Option<String>,
    /// True if pull requests are merged after applies, unless the repository configures it.
    pub automerge: bool,
    pub merge_method: Option<MergeMethod>,
    /// True if commands in repositories that are not served get no reply.
    pub silence_allowlist: bool,
    /// True if commands on pull requests from forks get no reply.
    pub silence_forks: bool,
    /// True if a command that concerns no project gets no reply.
    pub silence_no_projects: bool,
    /// Statuses of commits for which nothing is planned.
    pub statuses: IdleStatuses,
    /// True if files that hooks make count as changed.
    pub untracked_files: bool,
    /// Rules that derive projects from changed files.
    pub discovery: discovery::SearchSettings,
    /// Program that runs the code, unless a project chooses another.
    pub distribution: Distribution,
    /// Version of the program, unless a project chooses another; `None` for any available version.
    pub default_version: Option<semver::Version>,
    /// Arguments that comments may pass to Terraform.
    pub extra_args: ExtraArgs,
    /// Directories outside of a project that may contain variables files.
    pub var_file_dirs: Vec<PathBuf>,
    /// Maximum size of mirrors, checkouts and packages of providers on this disk; `None` for no limit.
    pub disk_quota: Option<ByteSize>,
    /// Maximum number of concurrent mirror syncs.
    pub sync_parallel: usize,
    /// Maximum duration of a run.
    pub run_timeout: Duration,
    /// Retention periods of finished work.
    pub retention: Retention,
    /// Periods of the reconcilers.
    pub periods: Periods,
    /// Hosts that are forges.
    pub forges: ForgeHosts,
    /// Flags and variables that are accepted and have no effect, one sentence each.
    pub without_effect: Vec<String>,
    /// Limits on the size of posted comments.
    pub limits: render::Limits,
    /// Source of the file of a repository, unless its entry chooses another; `None` for the checkout.
    pub config_source: Option<ConfigSource>,
    /// Style of comments on pull requests.
    pub style: render::ReportStyle,
}

impl Settings {
    /// Returns these settings with another file of `--repo-config`.
    fn with_repos(&self, repos: ServerRepos) -> Self {
        Self {
            team_authz: repos.team_authz.clone(),
            repos: Arc::new(repos),
            sighted: Arc::default(),
            ..self.clone()
        }
    }

    /// Lists everything in the server's configuration that is accepted and has no effect, one sentence each.
    pub fn without_effect(&self) -> Vec<String> {
        let (file, remarks) = self.repos.without_effect();
        let of_file = remarks
            .iter()
            .map(|remark| format!("{file} line {}: {remark}", remark.line));
        self.without_effect.iter().cloned().chain(of_file).collect()
    }

    /// Returns the page of a run.
    pub fn run_url(&self, run: crate::model::RunId) -> String {
        format!("{}/jobs/{run}", self.public_url)
    }

    /// Returns the page of an application.
    pub fn application_url(&self, application: crate::model::ApplicationId) -> String {
        format!("{}/apps/{application}", self.public_url)
    }

    /// Returns the page of apply locks.
    pub fn apply_locks_url(&self) -> String {
        format!("{}/apply-locks", self.public_url)
    }

    /// Returns the page of a lock.
    pub fn lock_url(&self, lock: crate::model::LockId) -> String {
        format!("{}/locks/{lock}", self.public_url)
    }

    /// Returns the rules of the administrator for a repository. The first time a repository is seen, the function
    /// logs entries that Atlantis would apply to it and Lockkeeper does not.
    pub fn rules(&self, repo: &RepoId) -> RepoRules {
        let rules = self.repos.rules(repo);
        if !rules.near_misses().is_empty() && self.sighted.first_time(repo) {
            for entry in rules.near_misses() {
                warn!(
                    %repo,
                    "The id in {entry} matches only a part of `{repo}`, so the entry does not apply to it: an \
                     expression must match the whole id. To match it, write `.*` before or after the expression"
                );
            }
        }
        rules
    }

    /// Returns how long a lock of a repository may be idle. `None`: as long as its pull request is open.
    pub fn lock_ttl(&self, repo: &RepoId) -> Option<TimeDelta> {
        self.rules(repo)
            .ttl()
            .and_then(|ttl| TimeDelta::from_std(ttl).ok())
    }

    /// Returns the policy for the lock of a project; `config` is the file of the repository, if it has one.
    pub fn lock_policy(
        &self,
        repo: &RepoId,
        config: Option<&RepoConfig>,
        project: &ProjectKey,
    ) -> LockPolicy {
        self.rules(repo).lock_policy(config, project)
    }
}

/// Repositories that this process has seen.
#[derive(Debug, Default)]
pub struct SeenRepositories(Mutex<HashSet<RepoId>>);

impl SeenRepositories {
    /// Maximum number of remembered repositories. Further ones are never seen for the first time.
    const MAX: usize = 10_000;

    /// Returns true the first time it is called for a repository.
    fn first_time(&self, repo: &RepoId) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.len() < Self::MAX && seen.insert(repo.clone())
    }
}

/// Module graphs by the id of a tree: the same files always give the same graph.
#[derive(Debug, Default)]
pub struct ModuleGraphs(Mutex<VecDeque<(String, Arc<ModuleGraph>)>>);

impl ModuleGraphs {
    /// Maximum number of kept graphs; those used last are kept.
    const MAX: usize = 32;

    /// Returns the graph of a tree, if it is kept.
    pub fn get(&self, tree: &str) -> Option<Arc<ModuleGraph>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(id, _)| id == tree)?;
        let found = kept.remove(at)?;
        let graph = Arc::clone(&found.1);
        kept.push_front(found);
        Some(graph)
    }

    /// Keeps the graph of a tree.
    pub fn keep(&self, tree: String, graph: &Arc<ModuleGraph>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(id, _)| *id != tree);
        kept.push_front((tree, Arc::clone(graph)));
        kept.truncate(Self::MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_graphs_used_last_are_kept() {
        let graphs = ModuleGraphs::default();
        for n in 0..=ModuleGraphs::MAX {
            graphs.keep(n.to_string(), &Arc::default());
            assert!(graphs.get("0").is_some(), "{n}");
        }
        assert!(graphs.get("1").is_none() && graphs.get("2").is_some());
    }

    #[test]
    fn a_repository_is_seen_for_the_first_time_once() {
        let sighted = SeenRepositories::default();
        let [infra, labs]: [RepoId; 2] =
            ["github.com/acme/infra", "github.com/acme/labs"].map(|id| id.parse().unwrap());
        let answers = [&infra, &infra, &labs, &infra].map(|repo| sighted.first_time(repo));
        assert_eq!(answers, [true, false, true, false]);
    }
}
