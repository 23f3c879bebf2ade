//! Finds the projects of a command from changed files, the files of the checkout and the configuration (reference 3).
//!
//! The module reads no disk and asks no forge, and the result depends only on the input. The same pull request
//! therefore has the same projects on every replica, in the same order (by group of the order, directory, workspace,
//! name).
//!
//! All input comes from a pull request, so each step has a limit. A large input can take seconds of work, so
//! asynchronous callers use a blocking thread. `docs/discovery.md` explains the rules to users.

mod auto;
mod cloud;
mod code;
mod configured;
pub mod explain;
mod interface;
mod limits;
mod links;
mod modules;
mod names;
mod order;
mod reach;
mod refusal;
mod required_version;
mod restrict;
mod target;
pub mod terragrunt;
mod tree;
mod version_constraint;
mod why;

use std::collections::HashSet;
use std::sync::LazyLock;

use semver::Version;

pub use crate::config::repo::{AutodiscoverMode, Patterns};
pub use crate::config::repos::Autodiscover;
pub use code::UnreadFile;
pub use interface::{ModuleInput, ModuleInterface, ModuleOutput, module_interface};
pub use limits::LimitExceeded;
pub use modules::{
    MissingModule, ModuleGraph, RemoteCall, UseReason, local_sources, missing_modules, remote_calls,
};
pub use names::{NameError, choose as choose_names};
pub use order::{OrderPosition, ProjectGroup, stages};
pub use reach::{ProjectReach, Start, reach};
pub use refusal::SelectError;
pub use required_version::{RequiredVersion, RequiredVersions, required_versions};
pub use restrict::Unchanged;
pub use target::{DirSelector, RequestedProjects, select, select_for_plan};
pub use tree::FileTree;
pub use version_constraint::{InvalidConstraint, VersionConstraint};
pub use why::ProjectReason;

use crate::config::repo::{DirGlob, RepoConfig};
use crate::config::repos::Decider;
use crate::config::server::{AUTOPLAN_FILES, PlanningConfig, TerraformConfig};
use crate::model::{BranchName, ChangedFile, Distribution, ProjectKey, RepoPath};

/// Input of the search for projects.
pub struct Input<'a> {
    /// Files of the checkout.
    pub tree: &'a FileTree,
    /// Files that the pull request changes, in any order.
    pub changed: &'a [ChangedFile],
    /// Configuration of the repository for that branch ([`RepoConfig::for_base`]), if one exists.
    pub config: Option<&'a RepoConfig>,
    /// Base branch of the pull request.
    pub base: &'a BranchName,
    /// Settings for the search in the files of server and repository.
    pub autodiscover: &'a Autodiscover,
    /// Uses of directories as modules; `None` if the search for modules is off (`--autoplan-modules`).
    pub modules: Option<&'a ModuleGraph>,
    /// Settings of the administrator.
    pub settings: &'a SearchSettings,
    /// Returns the text of a file of the checkout; `None` if it cannot be read. The function should not follow links,
    /// and not read more than a megabyte. For code behind a link it receives the path of the target.
    pub read: &'a dyn Fn(&RepoPath) -> Option<String>,
}

impl Input<'_> {
    /// Returns true if the search covers directories that no project names (reference 3.5). Projects for other base
    /// branches count as configured, because their author did not request a search.
    pub fn searches(&self) -> bool {
        let mode = self
            .autodiscover
            .mode
            .as_ref()
            .map_or(self.settings.mode, |mode| mode.value);
        mode.is_active(
            self.config
                .map_or(0, |config| config.projects.len() + config.elsewhere.len()),
        )
    }

    /// Returns the pattern of `ignore_paths` that excludes a directory, and its author.
    fn ignored(&self, dir: &RepoPath) -> Option<(&DirGlob, &Decider)> {
        let ignored = self.autodiscover.ignore_paths.as_ref()?;
        Some((
            ignored.value.iter().find(|glob| glob.matches(dir))?,
            &ignored.by,
        ))
    }
}

/// Settings of the administrator for the search.
#[derive(Debug, Clone)]
pub struct SearchSettings {
    /// Value of `--autodiscover-mode`; the configuration files take precedence.
    pub mode: AutodiscoverMode,
    /// Value of `--autoplan-file-list`: files that count when projects are discovered.
    pub file_list: Patterns,
    /// Value of `--default-tf-distribution`: tool whose files are read.
    pub distribution: Distribution,
    /// Value of `--max-projects`: maximum number of projects of one command.
    pub max_projects: usize,
    /// Files that make the modules of a directory count (`--autoplan-modules-from-projects`); `None` if modules
    /// concern no project (`--autoplan-modules` is off).
    pub modules: Option<Patterns>,
    /// Value of `--restrict-file-list`: `-d` and `-p` may only plan directories with changes.
    pub restrict: bool,
    /// Value of `--enable-regexp-cmd`: the value of `-p` may be a regular expression.
    pub regexp: bool,
}

impl SearchSettings {
    /// Default of `--max-projects`: more than any comment could show.
    pub const DEFAULT_MAX_PROJECTS: usize = 1_000;

    /// Selects the settings of the server that matter for a search. Regular expressions (`--enable-regexp-cmd`) are
    /// off.
    pub fn new(planning: &PlanningConfig, terraform: &TerraformConfig) -> Self {
        Self {
            mode: planning.autodiscover,
            file_list: planning.autoplan_files.clone(),
            modules: planning.module_files.clone(),
            restrict: planning.restrict_file_list,
            max_projects: planning.max_projects,
            distribution: terraform.distribution,
            regexp: false,
        }
    }

    fn check_count(&self, found: usize) -> Result<(), LimitExceeded> {
        let allowed = self.max_projects;
        if found > allowed {
            Err(LimitExceeded::Projects { found, allowed })
        } else {
            Ok(())
        }
    }
}

/// Default list of files, compiled once.
static DEFAULT_FILE_LIST: LazyLock<Patterns> =
    LazyLock::new(|| Patterns::from_flag(AUTOPLAN_FILES).expect("the default list is valid"));

impl Default for SearchSettings {
    fn default() -> Self {
        Self {
            mode: AutodiscoverMode::default(),
            file_list: DEFAULT_FILE_LIST.clone(),
            distribution: Distribution::Terraform,
            max_projects: Self::DEFAULT_MAX_PROJECTS,
            modules: None,
            restrict: false,
            regexp: false,
        }
    }
}

/// A project that a command concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Directory, workspace and name of the project.
    pub key: ProjectKey,
    /// Version that the configuration requires.
    pub terraform_version: Option<Version>,
    /// True if a push plans the project. `false` only excludes it from autoplan: a `plan` comment still plans it
    /// (reference 3.3).
    pub autoplan: bool,
    /// Position in the order of projects.
    pub order: OrderPosition,
    /// Rule that chose the project.
    pub why: ProjectReason,
}

/// Returns the projects that the changed files concern, sorted by group of the order, directory, workspace and name.
/// Autoplan takes those with `autoplan`; a command without a target takes all.
pub fn discover(input: &Input<'_>) -> Result<Vec<Project>, LimitExceeded> {
    let changed = links::seen(input.tree, changed_paths(input.changed))?;
    let changed: Vec<&RepoPath> = changed.iter().collect();
    let configured = configured::expand(input)?;
    let mut projects = Vec::new();
    if input.searches() {
        projects = auto::find(input, &changed, &configured.dirs)?;
    }
    let users = input
        .modules
        .map(|modules| modules.users(&changed))
        .unwrap_or_default();
    projects.extend(configured::concerned(
        configured.projects,
        input.tree,
        &changed,
        &users,
    )?);
    input.settings.check_count(projects.len())?;
    Ok(sorted(projects))
}

/// Finds the same projects for a plan, but refuses a case that would otherwise be left out silently: the changed
/// files concern a project whose directory is a symbolic link. `by_itself` means that nobody requested the plan, so
/// projects without `autoplan` do not count.
pub fn discover_for_plan(input: &Input<'_>, by_itself: bool) -> Result<Vec<Project>, SelectError> {
    let changed = links::seen(input.tree, changed_paths(input.changed))?;
    let mut configured = configured::expand(input)?.projects;
    configured.retain(|one| !by_itself || one.config.autoplan.enabled);
    if let Some((dir, target)) =
        configured::behind_link(configured, input.tree, &changed.iter().collect::<Vec<_>>())?
    {
        return Err(SelectError::DirIsLink { dir, target });
    }
    Ok(discover(input)?)
}

/// Returns the unresolved dependencies of Terragrunt units, sorted. Because of them, the change may concern units
/// that are not among these projects.
pub fn not_known(
    input: &Input<'_>,
    projects: &[Project],
) -> Result<Vec<terragrunt::Unresolved>, LimitExceeded> {
    if !input.searches() {
        return Ok(Vec::new());
    }
    let changed = links::seen(input.tree, changed_paths(input.changed))?;
    let configured = configured::expand(input)?.dirs;
    let planned: HashSet<&RepoPath> = projects.iter().map(|project| &project.key.dir).collect();
    let answered = |dir: &RepoPath| {
        planned.contains(dir) || configured.contains(dir) || input.ignored(dir).is_some()
    };
    let counts = |file: &RepoPath| auto::counts(input, file);
    let changed: Vec<&RepoPath> = changed.iter().collect();
    Ok(terragrunt::not_known(
        input.tree, input.read, &changed, &counts, &answered,
    ))
}

/// Returns every changed path once, sorted. A moved file changed in both places.
fn changed_paths(changed: &[ChangedFile]) -> Vec<RepoPath> {
    let mut paths: Vec<RepoPath> = changed
        .iter()
        .flat_map(|file| std::iter::once(&file.path).chain(&file.previous))
        .cloned()
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn sorted(mut projects: Vec<Project>) -> Vec<Project> {
    projects.sort_by(|a, b| (a.order.group, &a.key).cmp(&(b.order.group, &b.key)));
    projects
}

#[cfg(test)]
mod tests;
