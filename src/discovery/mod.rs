//! Which projects a command concerns: changed files, the files of the checkout and the configuration go in, projects
//! come out (reference 3).
//!
//! Nothing here reads a disk or asks a forge, and the answer depends on nothing but the input: the same pull request
//! gives the same projects on every replica, in the same order (by directory, workspace, name). All input comes from
//! a pull request, so each step has a limit; a large one can take seconds of work, so callers in asynchronous code use
//! a blocking thread.

mod auto;
mod cloud;
mod configured;
pub mod explain;
mod limits;
mod target;
mod tree;
mod why;

use std::collections::HashSet;
use std::sync::LazyLock;

use semver::Version;

pub use crate::config::repo::{AutodiscoverMode, Patterns};
pub use limits::LimitExceeded;
pub use target::{DirSelector, SelectError, Target, select};
pub use tree::Tree;
pub use why::Why;

use crate::config::repo::RepoConfig;
use crate::model::{ChangedFile, Distribution, ProjectKey, RepoPath};

/// Everything the search for projects goes by.
pub struct Input<'a> {
    /// The files of the checkout.
    pub tree: &'a Tree,
    /// The files that the pull request changes, in any order.
    pub changed: &'a [ChangedFile],
    /// The configuration of the repository, if it has any.
    pub config: Option<&'a RepoConfig>,
    /// What the operator set.
    pub settings: &'a Settings,
    /// Gives the text of a file of the checkout; `None` when it cannot be read. Should not follow links, and not read
    /// more than a megabyte.
    pub read: &'a dyn Fn(&RepoPath) -> Option<String>,
}

/// What the operator sets for the search.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--autodiscover-mode`.
    pub mode: AutodiscoverMode,
    /// `--autoplan-file-list`: files that count when projects are discovered.
    pub file_list: Patterns,
    /// `--default-tf-distribution`: whose files are read.
    pub distribution: Distribution,
    /// Projects of one command.
    pub max_projects: usize,
}

impl Settings {
    /// Default of `--autoplan-file-list` (reference 10.1).
    pub const DEFAULT_FILE_LIST: &str = "**/*.tf,**/*.tf.json,**/*.tfvars,**/*.tfvars.json,**/*.tofu,**/*.tofu.json,\
                                         **/terragrunt.hcl,**/.terraform.lock.hcl";

    /// Projects of one command, unless the operator says otherwise: more than any comment could show.
    pub const DEFAULT_MAX_PROJECTS: usize = 1_000;

    fn check_count(&self, found: usize) -> Result<(), LimitExceeded> {
        let allowed = self.max_projects;
        if found > allowed { Err(LimitExceeded::Projects { found, allowed }) } else { Ok(()) }
    }
}

/// Compiled once.
static DEFAULT_FILE_LIST: LazyLock<Patterns> =
    LazyLock::new(|| Patterns::from_flag(Settings::DEFAULT_FILE_LIST).expect("the default list is valid"));

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: AutodiscoverMode::default(),
            file_list: DEFAULT_FILE_LIST.clone(),
            distribution: Distribution::Terraform,
            max_projects: Self::DEFAULT_MAX_PROJECTS,
        }
    }
}

/// A project that a command concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Directory, workspace and name.
    pub key: ProjectKey,
    /// Version that the configuration asks for.
    pub terraform_version: Option<Version>,
    /// Whether a push plans it. `false` only takes it out of autoplan: a `plan` comment still plans it (reference 3.3).
    pub autoplan: bool,
    /// What chose it.
    pub why: Why,
}

/// The projects that the changed files concern, sorted by directory, workspace and name. Autoplan takes those with
/// `autoplan`, a command without a target takes all.
pub fn discover(input: &Input<'_>) -> Result<Vec<Project>, LimitExceeded> {
    let changed = changed_paths(input.changed);
    let configured = configured::expand(input.config, input.tree)?;
    let entries = input.config.map_or(0, |config| config.projects.len());
    let mut projects = Vec::new();
    if input.settings.mode.is_active(entries) {
        let taken: HashSet<&RepoPath> = configured.iter().map(|one| &one.key.dir).collect();
        projects = auto::find(input, &changed, &taken)?;
    }
    projects.extend(configured::concerned(configured, input.tree, &changed)?);
    input.settings.check_count(projects.len())?;
    Ok(sorted(projects))
}

/// Every path that changed, once, sorted. A file that moved changed in both places.
fn changed_paths(changed: &[ChangedFile]) -> Vec<&RepoPath> {
    let mut paths: Vec<&RepoPath> =
        changed.iter().flat_map(|file| std::iter::once(&file.path).chain(&file.previous)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn sorted(mut projects: Vec<Project>) -> Vec<Project> {
    projects.sort_by(|a, b| a.key.cmp(&b.key));
    projects
}

#[cfg(test)]
mod tests;
