//! The result of a check: the errors in the files, or what would be planned.

use crate::config::repo::{self, RepoConfig, YamlErrors};
use crate::config::repos::{ConfigSource, Decided, Decider, NoPolicySets, RepoRules, ServerRepos};
use crate::config::server::{HostsFile, RepoFile, SearchConfig};
use crate::discovery::explain::{
    ConfigWarning, ExplainInput, ExplainedTool, PlanExplanation, explain, hooks_before_plan,
    remarks, warnings,
};
use crate::discovery::{FileTree, Input, ModuleGraph, SearchSettings};
use crate::model::{BranchName, RepoId, RepoPath};

use super::local::Local;
use super::without_locking;

/// Repository and branch that the check is about.
pub(super) struct CheckRequest {
    /// Server's name of the repository.
    pub repo: RepoId,
    /// Base branch of the pull request, if it was given.
    pub branch: Option<BranchName>,
}

/// A file with errors.
#[derive(Debug)]
pub(super) enum FileProblem {
    /// Errors with their places in the file.
    Errors(YamlErrors),
    /// An error about the file as a whole.
    Whole(String),
}

/// Result of a check.
#[derive(Debug)]
pub(super) struct CheckVerdict {
    /// The repository on this machine.
    pub local: Local,
    /// Server's name of the repository.
    pub repo: RepoId,
    /// Base branch of the pull request.
    pub branch: BranchName,
    /// `false` if the base branch was neither given nor found, and is assumed.
    pub knows_branch: bool,
    /// Name of the repository's own file.
    pub config_file: Option<String>,
    /// Name of the file of the server.
    pub server_file: Option<String>,
    /// `false` if the server's file has errors, so the permissions of the repository are not known.
    pub knows_permissions: bool,
    /// Source of the repository's file on the server, and the setting that selects it, if it is not the working tree.
    pub elsewhere: Option<String>,
    /// Commands that the server runs before it looks for the projects of a plan.
    pub hooks: usize,
    /// Maximum number of projects of a command.
    pub max_projects: usize,
    /// Errors, grouped by file.
    pub problems: Vec<FileProblem>,
    /// Settings that have no effect.
    pub warnings: Vec<ConfigWarning>,
    /// Planned and skipped projects; `None` if there are errors or the changed files are not known.
    pub explanation: Option<PlanExplanation>,
}

/// Reads the files and computes the verdict.
pub(super) fn reach(
    local: Local,
    asked: &CheckRequest,
    config: &SearchConfig,
) -> anyhow::Result<CheckVerdict> {
    let found = asked.branch.clone().or_else(|| local.branch());
    let knows_branch = found.is_some();
    let branch = found.unwrap_or_else(|| BranchName::new("main").expect("it is a branch"));
    let mut verdict = CheckVerdict {
        local,
        repo: asked.repo.clone(),
        branch,
        knows_branch,
        config_file: None,
        server_file: config.repo_file.as_ref().map(|file| file.name.clone()),
        knows_permissions: true,
        elsewhere: None,
        hooks: 0,
        max_projects: config.planning.max_projects,
        problems: Vec::new(),
        warnings: Vec::new(),
        explanation: None,
    };
    if let Some(Err(errors)) = config.hosts_file.as_ref().map(HostsFile::check) {
        verdict.problems.push(FileProblem::Errors(errors));
    }
    let server = verdict.server(config);
    let rules = server.as_ref().map(|server| server.rules(&asked.repo));
    verdict.knows_permissions = rules.is_some();
    verdict.elsewhere = rules
        .as_ref()
        .and_then(|rules| read_elsewhere(rules, config.config_source.as_ref()));
    verdict.hooks = rules
        .as_ref()
        .map_or(0, |rules| hooks_before_plan(rules, &verdict.branch));
    let tree = FileTree::new(verdict.local.files.iter().cloned()).with_links(verdict.local.links());
    let repo_config = verdict.config(&tree, rules.as_ref());
    if let (true, Some(rules)) = (verdict.problems.is_empty(), &rules) {
        verdict.explain(&tree, rules, repo_config.as_ref(), config)?;
        let (file, idle) = server
            .as_ref()
            .map(ServerRepos::without_effect)
            .unwrap_or_default();
        verdict.warnings.extend(remarks(file, idle));
    }
    Ok(verdict)
}

impl CheckVerdict {
    /// Returns the maximum number of projects of a command, if this one exceeds it.
    pub fn over_limit(&self) -> Option<usize> {
        let planned = self
            .explanation
            .as_ref()
            .map_or(0, |explanation| explanation.planned.len());
        (planned > self.max_projects).then_some(self.max_projects)
    }

    /// Returns `true` if the repository was named, or `origin` names it.
    pub fn names_itself(&self) -> bool {
        self.local.knows_its_origin() || self.repo != self.local.repo()
    }

    fn server(&mut self, config: &SearchConfig) -> Option<ServerRepos> {
        let read = config.repo_file.as_ref().map(RepoFile::parse);
        let repos = match read.transpose() {
            Ok(repos) => without_locking(repos.unwrap_or_default(), config.locking_is_off),
            Err(errors) => {
                self.problems.push(FileProblem::Errors(errors));
                return None;
            }
        };
        if !config.planning.policy_checks {
            return Some(repos);
        }
        match repos.with_policy_checks() {
            Ok(repos) => Some(repos),
            Err(error) => {
                self.problems.push(FileProblem::Whole(format!(
                    "{error}; {}",
                    NoPolicySets::FIX
                )));
                None
            }
        }
    }

    /// Checks the repository's file and returns its configuration. Without `rules`, because the server's file has
    /// errors, the permissions are not known and the file is not checked.
    fn config(&mut self, tree: &FileTree, rules: Option<&RepoRules>) -> Option<RepoConfig> {
        let file = match file_of(tree, rules) {
            Ok(file) => file?,
            Err(error) => return self.give_up(FileProblem::Whole(error.to_string())),
        };
        self.config_file = Some(file.to_string());
        let permissions = rules?.permissions();
        let text = match self.local.text(&file) {
            Ok(text) => text,
            Err(error) => {
                return self.give_up(FileProblem::Whole(format!(
                    "`{file}` cannot be read: {error}"
                )));
            }
        };
        let config = match RepoConfig::parse(file.as_str(), &text, permissions) {
            Ok(config) => config,
            Err(errors) => return self.give_up(FileProblem::Errors(errors)),
        };
        match config.for_base(&self.branch) {
            Ok(config) => Some(config),
            Err(error) => self.give_up(FileProblem::Whole(error.to_string())),
        }
    }

    fn give_up(&mut self, problem: FileProblem) -> Option<RepoConfig> {
        self.problems.push(problem);
        None
    }

    fn explain(
        &mut self,
        tree: &FileTree,
        rules: &RepoRules,
        repo_config: Option<&RepoConfig>,
        config: &SearchConfig,
    ) -> anyhow::Result<()> {
        // Only the person who runs the check waits for it.
        let settings = SearchSettings {
            max_projects: usize::MAX,
            ..SearchSettings::new(&config.planning, &config.terraform)
        };
        let read = |file: &RepoPath| self.local.text(file).ok();
        let graph = settings
            .modules
            .as_ref()
            .map(|from| ModuleGraph::build(tree, from, &read))
            .transpose()?;
        let changed = self.local.change.files();
        let input = Input {
            tree,
            changed: changed.unwrap_or_default(),
            config: repo_config,
            base: &self.branch,
            autodiscover: &rules.autodiscover(repo_config),
            modules: graph.as_ref(),
            settings: &settings,
            read: &read,
        };
        let tool = ExplainedTool::of_server(
            config.terraform.distribution,
            config.terraform.version.clone(),
        );
        let question = ExplainInput {
            input: &input,
            rules,
            tool,
            autoplan: config.planning.autoplan,
        };
        self.explanation = changed.map(|_| explain(&question)).transpose()?;
        self.warnings = warnings(&question, self.explanation.as_ref())?;
        Ok(())
    }
}

/// Returns the source of the file in effect if a pull request cannot change it: from its entry, else from the flag.
fn read_elsewhere(rules: &RepoRules, flag: Option<&ConfigSource>) -> Option<String> {
    let by_flag = || {
        Some(Decided {
            value: flag?.clone(),
            by: Decider::Flag("repo-config-source"),
        })
    };
    let source = rules.config_source().cloned().or_else(by_flag)?;
    match source.value {
        ConfigSource::PullHead | ConfigSource::MergeResult => None,
        ConfigSource::Base | ConfigSource::Branch(_) => {
            Some(format!("`{}` ({})", source.value, source.by))
        }
    }
}

/// Finds the repository's file: the one that the administrator names, else one of the usual names.
fn file_of(
    tree: &FileTree,
    rules: Option<&RepoRules>,
) -> Result<Option<RepoPath>, repo::FileNameError> {
    match rules.and_then(RepoRules::config_file) {
        Some(file) => Ok(tree
            .files_in(&file.value.parent())
            .contains(&file.value)
            .then(|| file.value.clone())),
        None => repo::find(tree.files()),
    }
}
