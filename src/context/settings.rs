//! Holds the settings that are in effect: the configuration of the server, and values that depend on it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::TimeDelta;
use tracing::warn;

use super::LiveAccounts;
use crate::command::Grammar;
use crate::config::repo::RepoConfig;
use crate::config::repos::{LockPolicy, RepoRules, ServerRepos};
use crate::config::server::{
    CommentConfig, LockingConfig, Periods, PermissionConfig, PlanningConfig, RepoRulesConfig,
    Retention, RunConfig, ServedReposConfig, ServerConfig, SyncConfig, TerraformConfig,
};
use crate::config::size::ByteSize;
use crate::discovery::{ModuleGraph, SearchSettings};
use crate::model::{
    ApplicationId, CommandKind, ForgeHosts, HostName, LockId, ProjectKey, RepoId, RunId,
};
use crate::render;

/// Settings of the administrator that are in effect, one field for each section that features use. Sections with
/// secrets (credentials of forges, secrets of webhooks, passwords of the pages) are not among them: `app` hands those to
/// the adapters.
#[derive(Clone)]
pub struct Settings {
    /// Settings that are accepted without effect, one sentence each.
    without_effect: Arc<[String]>,
    /// Base URL of the pages, without a slash at the end.
    pub base_url: String,
    /// Hosts that are forges.
    pub forge_hosts: ForgeHosts,
    /// Grammars of commands in comments.
    grammars: Arc<HostGrammars>,
    /// Repositories and pulls to serve.
    pub repos: ServedReposConfig,
    /// Rules for single repositories, with the current content of the file of `--repo-config`.
    pub repo_rules: RepoRulesConfig,
    /// Rules about permitted actions.
    pub permissions: PermissionConfig,
    /// Settings for commands in comments, and for the replies.
    pub comments: CommentConfig,
    /// Settings for automatic plans, and for merges.
    pub planning: PlanningConfig,
    /// Settings for locks, and for their queues.
    pub locking: LockingConfig,
    /// Programs that run the code.
    pub terraform: TerraformConfig,
    /// Limits of runs, and their variables.
    pub runs: RunConfig,
    /// Limits for the sync of mirrors.
    pub sync: SyncConfig,
    /// Times after which old data is removed.
    pub retention: Retention,
    /// Periods of the reconcilers.
    pub periods: Periods,
    /// Maximum size of the files of this server.
    pub disk_quota: Option<ByteSize>,
    /// Accounts that are limited to owners on the pages and in the API. They always follow the current content of
    /// their file.
    pub web_accounts: Arc<LiveAccounts>,
    /// Module graphs of the repositories that were searched last.
    pub modules: Arc<ModuleGraphs>,
    /// Repositories for which near misses of patterns have been logged.
    reported: Arc<SeenRepositories>,
}

/// Grammars of commands in comments, by host: Lockkeeper can have another account on each.
struct HostGrammars {
    by_host: BTreeMap<HostName, Grammar>,
    /// Grammar for hosts that this server does not work for, without an account.
    elsewhere: Grammar,
}

impl HostGrammars {
    fn new(server: &ServerConfig) -> Self {
        let hosts = server.github.iter().map(|github| &github.host);
        Self {
            by_host: hosts
                .map(|host| (host.clone(), server.grammar(Some(host))))
                .collect(),
            elsewhere: server.grammar(None),
        }
    }

    fn on(&self, host: &HostName) -> &Grammar {
        self.by_host.get(host).unwrap_or(&self.elsewhere)
    }
}

impl Settings {
    /// Puts a configuration into effect, with the accounts that its file names.
    pub fn new(server: &ServerConfig, web_accounts: LiveAccounts) -> Self {
        Self {
            without_effect: server.without_effect.clone().into(),
            base_url: server.web.base_url().to_owned(),
            forge_hosts: server.forge_hosts(),
            grammars: Arc::new(HostGrammars::new(server)),
            repos: server.repos.clone(),
            repo_rules: server.repo_rules.clone(),
            permissions: server.permissions.clone(),
            comments: server.comments.clone(),
            planning: server.planning.clone(),
            locking: server.locking.clone(),
            terraform: server.terraform.clone(),
            runs: server.runs.clone(),
            sync: server.sync.clone(),
            retention: server.retention,
            periods: server.periods,
            disk_quota: server.storage.disk_quota,
            web_accounts: Arc::new(web_accounts),
            modules: Arc::default(),
            reported: Arc::default(),
        }
    }

    /// Returns the grammar of comments on pulls of a repository.
    pub fn grammar(&self, repo: &RepoId) -> &Grammar {
        self.grammars.on(repo.host())
    }

    /// Returns the rules that derive projects from changed files.
    pub fn discovery(&self) -> SearchSettings {
        SearchSettings {
            regexp: self.comments.regexp,
            ..SearchSettings::new(&self.planning, &self.terraform)
        }
    }

    /// Returns these settings with another content of the file of `--repo-config`.
    pub(super) fn with_repos(&self, repos: ServerRepos) -> Self {
        let mut settings = Self {
            reported: Arc::default(),
            ..self.clone()
        };
        settings.repo_rules.repos = Arc::new(repos);
        settings
    }

    /// Lists everything in the server's configuration that is accepted and has no effect, one sentence each.
    pub fn without_effect(&self) -> Vec<String> {
        let (file, remarks) = self.repo_rules.repos.without_effect();
        let of_file = remarks
            .iter()
            .map(|remark| format!("{file} line {}: {remark}", remark.line));
        self.without_effect.iter().cloned().chain(of_file).collect()
    }

    /// Returns the style of comments on pull requests.
    pub fn report_style(&self) -> render::ReportStyle {
        let look = &self.comments.look;
        render::ReportStyle {
            fold: !look.disable_folding,
            hide_unchanged: look.hide_unchanged,
            diff: if look.diff_markdown {
                render::DiffStyle::Everything
            } else {
                render::DiffStyle::default()
            },
            offer_apply: self.comments.allowed.contains(&CommandKind::Apply),
            offer_apply_all: !look.disable_apply_all,
            offer_approval: self
                .comments
                .allowed
                .contains(&CommandKind::ApprovePolicies),
            quiet_policies: look.quiet_policy_checks,
            ..render::ReportStyle::default()
        }
    }

    /// Returns the limits on the size of posted comments.
    pub fn comment_limits(&self) -> render::Limits {
        let most = self.comments.max_comments;
        render::Limits {
            comments: most.map_or(0, |max| usize::try_from(max).unwrap_or(usize::MAX)),
            ..render::Limits::default()
        }
    }

    /// Returns the page of a run.
    pub fn run_url(&self, run: RunId) -> String {
        format!("{}/jobs/{run}", self.base_url)
    }

    /// Returns the page of an application.
    pub fn application_url(&self, application: ApplicationId) -> String {
        format!("{}/apps/{application}", self.base_url)
    }

    /// Returns the page of apply locks.
    pub fn apply_locks_url(&self) -> String {
        format!("{}/apply-locks", self.base_url)
    }

    /// Returns the page of a lock.
    pub fn lock_url(&self, lock: LockId) -> String {
        format!("{}/locks/{lock}", self.base_url)
    }

    /// Returns the rules of the administrator for a repository. The first time a repository is seen, the function
    /// logs entries that Atlantis would apply to it and Lockkeeper does not.
    pub fn rules(&self, repo: &RepoId) -> RepoRules {
        let rules = self.repo_rules.repos.rules(repo);
        if !rules.near_misses().is_empty() && self.reported.first_time(repo) {
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
        let reported = SeenRepositories::default();
        let [infra, labs]: [RepoId; 2] =
            ["github.com/acme/infra", "github.com/acme/labs"].map(|id| id.parse().unwrap());
        let answers = [&infra, &infra, &labs, &infra].map(|repo| reported.first_time(repo));
        assert_eq!(answers, [true, false, true, false]);
    }
}
