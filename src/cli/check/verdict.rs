//! What there is to say about a repository: the mistakes of its files, or what would be planned.

use crate::app::discovery_settings;
use crate::config::repo::{self, ConfigErrors, RepoConfig};
use crate::config::repos::{ConfigSource, Decided, Decider, RepoRules, ServerRepos};
use crate::config::server::SearchConfig;
use crate::discovery::explain::{
    Explanation, Question, Tool, Warning, explain, hooks_before_plan, remarks, warnings,
};
use crate::discovery::{Input, ModuleGraph, Settings, Tree};
use crate::model::{BranchName, RepoId, RepoPath};

use super::local::Local;
use super::without_locking;

/// What was asked for.
pub(super) struct Asked {
    /// The repository.
    pub repo: RepoId,
    /// The branch that the pull request would go into, if it was said.
    pub branch: Option<BranchName>,
}

/// A file with mistakes.
#[derive(Debug)]
pub(super) enum FileProblem {
    /// Some can be pointed at.
    Errors(ConfigErrors),
    /// It is about the file as such.
    Whole(String),
}

/// What there is to say.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The repository on this machine.
    pub local: Local,
    /// What the server calls it.
    pub repo: RepoId,
    /// The branch that the pull request would go into.
    pub branch: BranchName,
    /// Whether that was said or found out; else it is a guess.
    pub knows_branch: bool,
    /// Name of the repository's own file.
    pub config_file: Option<String>,
    /// Name of the file of the server.
    pub server_file: Option<String>,
    /// Whether the server's file says what the repository may decide.
    pub knows_permissions: bool,
    /// Where the server reads the repository's file instead, and who said so.
    pub elsewhere: Option<String>,
    /// Commands that the server runs before it looks for the projects of a plan.
    pub hooks: usize,
    /// How many projects a command of the server may concern.
    pub max_projects: usize,
    /// What is wrong.
    pub problems: Vec<FileProblem>,
    /// What has no effect.
    pub warnings: Vec<Warning>,
    /// What would be planned; `None`: something is wrong, or it is not known what changed.
    pub explanation: Option<Explanation>,
}

/// Reads the files and thinks.
pub(super) fn reach(local: Local, asked: &Asked, config: &SearchConfig) -> anyhow::Result<Verdict> {
    let found = asked.branch.clone().or_else(|| local.branch());
    let knows_branch = found.is_some();
    let branch = found.unwrap_or_else(|| BranchName::new("main").expect("it is a branch"));
    let mut verdict = Verdict {
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
    let server = verdict.server(config);
    let rules = server.as_ref().map(|server| server.rules(&asked.repo));
    verdict.knows_permissions = rules.is_some();
    verdict.elsewhere = rules
        .as_ref()
        .and_then(|rules| read_elsewhere(rules, config.config_source.as_ref()));
    verdict.hooks = rules
        .as_ref()
        .map_or(0, |rules| hooks_before_plan(rules, &verdict.branch));
    let tree = Tree::new(verdict.local.files.iter().cloned()).with_links(verdict.local.links());
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

impl Verdict {
    /// How many projects a command may concern, if this one concerns more.
    pub fn over_limit(&self) -> Option<usize> {
        let planned = self
            .explanation
            .as_ref()
            .map_or(0, |explanation| explanation.planned.len());
        (planned > self.max_projects).then_some(self.max_projects)
    }

    /// Whether it was said, or could be found out, which repository it is.
    pub fn names_itself(&self) -> bool {
        self.local.knows_its_origin() || self.repo != self.local.repo()
    }

    fn server(&mut self, config: &SearchConfig) -> Option<ServerRepos> {
        let Some(file) = &config.repo_file else {
            return Some(without_locking(
                ServerRepos::default(),
                config.locking_is_off,
            ));
        };
        match file.parse() {
            Ok(repos) => Some(without_locking(repos, config.locking_is_off)),
            Err(errors) => {
                self.problems.push(FileProblem::Errors(errors));
                None
            }
        }
    }

    /// Where the server's file is broken, it is not known what it allows; then the repository's file is not judged.
    fn config(&mut self, tree: &Tree, rules: Option<&RepoRules>) -> Option<RepoConfig> {
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
        tree: &Tree,
        rules: &RepoRules,
        repo_config: Option<&RepoConfig>,
        config: &SearchConfig,
    ) -> anyhow::Result<()> {
        // Nobody waits for this one but the person who asked.
        let settings = Settings {
            max_projects: usize::MAX,
            ..discovery_settings(&config.planning, &config.terraform)?
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
        let tool = Tool::of_server(
            config.terraform.distribution,
            config.terraform.version.clone(),
        );
        let question = Question {
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

/// Whether a pull request cannot change the file that holds for it: by its entry, else by the flag.
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

/// The repository's file: the one that the operator names, else one of the usual names.
fn file_of(
    tree: &Tree,
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
