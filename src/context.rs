//! What handlers and jobs are given: the services of one replica and the settings they follow.

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

pub use file_state::{FileState, Look, Refused};
pub use live::Live;
pub use live_accounts::LiveAccounts;

use crate::claims::Credentials;
use crate::clock::{Clock, Ids};
use crate::command::{ExtraArgs, Grammar};
use crate::config::access::{TeamAuthz, TeamRules, WebRules};
use crate::config::repo::RepoConfig;
use crate::config::repos::{ConfigSource, LockPolicy, RepoRules, ServerRepos};
use crate::config::server::{
    AutomergeConfig, Commenters, Labels, Periods, RepoAllowlist, Retention,
};
use crate::config::size::ByteSize;
use crate::discovery::{self, ModuleGraph};
use crate::leases::Leases;
use crate::locks::AuditFiles;
use crate::model::{CommandId, Distribution, ForgeHosts, ProjectKey, RepoId};
use crate::queue::{Attempt, Nudge, Pool};
use crate::render;
use crate::secret::Secret;
use crate::store::Store;
use crate::sync::Syncer;
use crate::telemetry::{Metrics, Panics};
use crate::vcs::{Forge, Memberships};
use crate::workflow::{Artifacts, Checkouts, OutputHub, Terraform};

/// What handlers and jobs are given: the database and the services of one replica.
#[derive(Clone)]
pub struct Ctx {
    /// The database. For the work of a job it is under the lease of that job.
    pub store: Store,
    /// What the operator wants. It does not change while a job is worked on; the next job may see other settings.
    pub settings: Arc<Settings>,
    services: Arc<Services>,
}

impl Ctx {
    /// The services on a database.
    pub fn new(store: Store, services: Services) -> Self {
        Self {
            store,
            settings: services.live.settings(),
            services: Arc::new(services),
        }
    }

    /// Changes what the operator wants, for this and for all that begins from now on.
    pub fn change_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        change(Arc::make_mut(&mut self.settings));
        self.live.put(Arc::clone(&self.settings));
    }

    /// The same with the settings of this moment, for those who live as long as the server.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self {
            settings: self.live.settings(),
            ..self.clone()
        }
    }

    /// The same for the work of one job: nothing is written once its lease is lost, and the settings are those of its
    /// start.
    #[must_use]
    pub fn under(&self, attempt: &Attempt) -> Self {
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

/// The services of one replica.
pub struct Services {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers.
    pub ids: Arc<dyn Ids>,
    /// The forge.
    pub forge: Arc<dyn Forge>,
    /// What owners gave for their repositories.
    pub credentials: Credentials,
    /// Where the key and the last checkpoint of the audit log lie.
    pub audit: AuditFiles,
    /// Who was in which team a moment ago.
    pub memberships: Memberships,
    /// Exclusive work of this server.
    pub leases: Leases,
    /// Mirrors and checkouts on this disk.
    pub checkouts: Checkouts,
    /// Keeps the mirrors in step.
    pub syncer: Syncer,
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
    /// Wakes the repair of mirrors.
    pub mirror_nudge: Nudge,
    /// Commands of this process that can be told to stop.
    pub stops: Stops,
    /// When this server started: what was told before may have been missed.
    pub started_at: DateTime<Utc>,
    /// Cancelled when the server begins nothing more.
    pub closing: CancellationToken,
    /// Cancelled when the server will not wait for runs any longer.
    pub interrupt: CancellationToken,
    /// Numbers for monitors.
    pub metrics: Metrics,
    /// Panics of this process.
    pub panics: Arc<Panics>,
    /// What the operator wants, as it is now.
    pub live: Live,
}

/// What the operator wants, as far as handlers and jobs need it.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct Settings {
    /// Which repositories are served.
    pub allowlist: RepoAllowlist,
    /// Whether the built-in `init` may read private modules of the forge (`--write-git-creds`).
    pub module_access: bool,
    /// Which team of the forge may give which command.
    pub team_rules: TeamRules,
    /// Who may give commands where there is no such list.
    pub commenters: Commenters,
    /// What the pages and the API may be used for.
    pub web_rules: WebRules,
    /// Who on the pages and in the API is limited to owners: at each moment by what the file says then.
    pub web_accounts: Arc<LiveAccounts>,
    /// What the operator says about single repositories.
    pub repos: Arc<ServerRepos>,
    /// Repositories of which has been said which patterns nearly fit.
    pub sighted: Arc<Sighted>,
    /// Who uses which module, in the repositories that were searched last.
    pub modules: Arc<ModuleGraphs>,
    /// The command of the operator that says who may do what.
    pub team_authz: Option<TeamAuthz>,
    /// Whether a plan that meets the lock of another pull waits for it in line.
    pub lock_queue: bool,
    /// Secrets with which deliveries may be signed; empty: unsigned ones are taken.
    pub webhook_secrets: Vec<Secret>,
    /// How comments are read.
    pub grammar: Grammar,
    /// The word shown in hints.
    pub executable: String,
    /// First part of every status.
    pub status_name: String,
    /// First parts of statuses of others that do not keep a pull from being mergeable.
    pub ignored_status_names: Vec<String>,
    /// Where people reach the dashboard; without a slash at the end.
    pub public_url: String,
    /// Reaction to comments that give a command, in the forge's words; `None`: none.
    pub reaction: Option<String>,
    /// Whether drafts are planned when they change.
    pub allow_drafts: bool,
    /// Whether pulls from forks are served.
    pub allow_forks: bool,
    /// Whether a command fails when a hook before it does.
    pub fail_on_pre_hook: bool,
    /// Whether a change of a pull leads to a plan.
    pub autoplan: bool,
    /// Labels of pulls that keep something from being done.
    pub labels: Labels,
    /// Merging after applies, where the repository says nothing.
    pub automerge: AutomergeConfig,
    /// Whether nothing is said about repositories that are not served.
    pub silence_allowlist: bool,
    /// Whether nothing is said about pulls from forks.
    pub silence_forks: bool,
    /// Whether a command that concerns no project is answered.
    pub silence_no_projects: bool,
    /// Whether commits get statuses although nothing is planned.
    pub statuses: IdleStatuses,
    /// Whether files that hooks make count as changed.
    pub untracked_files: bool,
    /// How changed files lead to projects.
    pub discovery: discovery::Settings,
    /// Which program runs the code unless a project says otherwise.
    pub distribution: Distribution,
    /// Which version of it, unless a project says otherwise; `None`: whichever is there.
    pub default_version: Option<semver::Version>,
    /// Arguments that comments may hand to Terraform.
    pub extra_args: ExtraArgs,
    /// Where variables files outside of a project may lie.
    pub var_file_dirs: Vec<PathBuf>,
    /// Most that mirrors, checkouts and packages of providers may take on this disk; `None`: any amount.
    pub disk_quota: Option<ByteSize>,
    /// Mirrors that are brought in step at the same time at most.
    pub sync_parallel: usize,
    /// How long a run may take.
    pub run_timeout: Duration,
    /// How long what is over is kept.
    pub retention: Retention,
    /// How often repairs look.
    pub periods: Periods,
    /// Hosts that are forges.
    pub forges: ForgeHosts,
    /// Flags and variables that are accepted and have no effect, a sentence each.
    pub without_effect: Vec<String>,
    /// Limits on what is posted.
    pub limits: render::Limits,
    /// What the file of a repository is read from, unless its entry says otherwise; `None`: what is checked out.
    pub config_source: Option<ConfigSource>,
    /// How comments look.
    pub style: render::Style,
}

impl Settings {
    /// The same with another file of `--repo-config`.
    fn with_repos(&self, repos: ServerRepos) -> Self {
        Self {
            team_authz: repos.team_authz.clone(),
            repos: Arc::new(repos),
            sighted: Arc::default(),
            ..self.clone()
        }
    }

    /// Everything of the server's configuration that is accepted and has no effect, a sentence each.
    pub fn without_effect(&self) -> Vec<String> {
        let (file, remarks) = self.repos.without_effect();
        let of_file = remarks
            .iter()
            .map(|remark| format!("{file} line {}: {remark}", remark.line));
        self.without_effect.iter().cloned().chain(of_file).collect()
    }

    /// Page of a run.
    pub fn run_url(&self, run: crate::model::RunId) -> String {
        format!("{}/jobs/{run}", self.public_url)
    }

    /// Page of an application.
    pub fn application_url(&self, application: crate::model::ApplicationId) -> String {
        format!("{}/apps/{application}", self.public_url)
    }

    /// Page of what stops applies.
    pub fn apply_locks_url(&self) -> String {
        format!("{}/apply-locks", self.public_url)
    }

    /// Page of a lock.
    pub fn lock_url(&self, lock: crate::model::LockId) -> String {
        format!("{}/locks/{lock}", self.public_url)
    }

    /// What the operator says about a repository. The first time a repository is seen, entries that Atlantis would let
    /// speak for it and Lockkeeper does not are logged.
    pub fn rules(&self, repo: &RepoId) -> RepoRules {
        let rules = self.repos.rules(repo);
        if !rules.near_misses().is_empty() && self.sighted.first_time(repo) {
            for entry in rules.near_misses() {
                warn!(
                    %repo,
                    "The id in {entry} fits only a part of `{repo}`, so the entry does not count for it: an expression \
                     has to fit the whole id. Write `.*` before or after it if it is meant"
                );
            }
        }
        rules
    }

    /// How long a lock of a repository may be idle; `None`: as long as its pull is open.
    pub fn lock_ttl(&self, repo: &RepoId) -> Option<TimeDelta> {
        self.rules(repo)
            .ttl()
            .and_then(|ttl| TimeDelta::from_std(ttl).ok())
    }

    /// What holds for the lock of a project; `config` is the file of the repository, if it has one.
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
pub struct Sighted(Mutex<HashSet<RepoId>>);

impl Sighted {
    /// Repositories that are remembered; those beyond are never seen for the first time.
    const MAX: usize = 10_000;

    /// Whether nobody has asked for the repository before.
    fn first_time(&self, repo: &RepoId) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.len() < Self::MAX && seen.insert(repo.clone())
    }
}

/// What a plan that concerns no project does to the statuses of the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleStatuses {
    /// It sets them to success.
    #[default]
    Always,
    /// Only if somebody asked for it (`--silence-vcs-status-no-plans`).
    IfAsked,
    /// Nothing; and combined statuses are not set to pending at all (`--silence-vcs-status-no-projects`).
    Never,
}

/// Who uses which module, by the id of a tree: the same files always give the same graph.
#[derive(Debug, Default)]
pub struct ModuleGraphs(Mutex<VecDeque<(String, Arc<ModuleGraph>)>>);

impl ModuleGraphs {
    /// Graphs that are kept; those used last.
    const MAX: usize = 32;

    /// The graph of a tree, if it is kept.
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

/// The commands that this process works on, each with the token that tells it to stop.
#[derive(Clone, Debug, Default)]
pub struct Stops(Arc<Mutex<HashMap<CommandId, CancellationToken>>>);

impl Stops {
    /// A command begins; the guard forgets it at the end.
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

    /// Tells commands to stop, and how many of them had not been told yet; those of other replicas learn it from the
    /// database.
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

/// A command that can be told to stop while this lives.
pub struct StopGuard {
    stops: Stops,
    command: CommandId,
    /// Cancelled when the command is to stop.
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
        let sighted = Sighted::default();
        let [infra, labs]: [RepoId; 2] =
            ["github.com/acme/infra", "github.com/acme/labs"].map(|id| id.parse().unwrap());
        let answers = [&infra, &infra, &labs, &infra].map(|repo| sighted.first_time(repo));
        assert_eq!(answers, [true, false, true, false]);
    }
}
