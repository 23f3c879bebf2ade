//! Which projects a command concerns: changed files, the files of the checkout and the configuration go in, projects
//! come out (reference 3).
//!
//! Nothing here reads a disk or asks a forge, and the answer depends on nothing but the input: the same pull request
//! gives the same projects on every replica, in the same order (by group of the order, directory, workspace, name). All
//! input comes from a pull request, so each step has a limit; a large one can take seconds of work, so callers in
//! asynchronous code use a blocking thread. `docs/discovery.md` tells people the same.

mod auto;
mod cloud;
mod code;
mod configured;
pub mod explain;
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
pub use limits::LimitExceeded;
pub use modules::{ModuleGraph, Use};
pub use names::{NameError, choose as choose_names};
pub use order::{Order, Stage, stages};
pub use reach::{Reach, Start, reach};
pub use refusal::SelectError;
pub use required_version::{RequiredVersion, RequiredVersions, required_versions};
pub use restrict::Unchanged;
pub use target::{DirSelector, Target, select, select_for_plan};
pub use tree::Tree;
pub use version_constraint::{InvalidConstraint, VersionConstraint};
pub use why::Why;

use crate::config::repo::{DirGlob, RepoConfig};
use crate::config::repos::Decider;
use crate::model::{BranchName, ChangedFile, Distribution, ProjectKey, RepoPath};

/// Everything the search for projects goes by.
pub struct Input<'a> {
    /// The files of the checkout.
    pub tree: &'a Tree,
    /// The files that the pull request changes, in any order.
    pub changed: &'a [ChangedFile],
    /// The configuration of the repository for that branch ([`RepoConfig::for_base`]), if it has any.
    pub config: Option<&'a RepoConfig>,
    /// The branch that the pull request goes into.
    pub base: &'a BranchName,
    /// What the files of server and repository say about looking for projects.
    pub autodiscover: &'a Autodiscover,
    /// Who uses which directory as a module; `None`: nobody asked (`--autoplan-modules`).
    pub modules: Option<&'a ModuleGraph>,
    /// What the operator set.
    pub settings: &'a Settings,
    /// Gives the text of a file of the checkout; `None` when it cannot be read. Should not follow links, and not read
    /// more than a megabyte. Of code that is a link the file is asked for that it leads to.
    pub read: &'a dyn Fn(&RepoPath) -> Option<String>,
}

impl Input<'_> {
    /// Whether directories are looked for that no project names (reference 3.5). Projects for other base branches count
    /// as configured: whoever wrote them did not ask for a search.
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

    /// The pattern of `ignore_paths` that takes a directory out, and who wrote it.
    fn ignored(&self, dir: &RepoPath) -> Option<(&DirGlob, &Decider)> {
        let ignored = self.autodiscover.ignore_paths.as_ref()?;
        Some((
            ignored.value.iter().find(|glob| glob.matches(dir))?,
            &ignored.by,
        ))
    }
}

/// What the operator sets for the search.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--autodiscover-mode`; the files have the last word.
    pub mode: AutodiscoverMode,
    /// `--autoplan-file-list`: files that count when projects are discovered.
    pub file_list: Patterns,
    /// `--default-tf-distribution`: whose files are read.
    pub distribution: Distribution,
    /// `--max-projects`: projects of one command.
    pub max_projects: usize,
    /// `--autoplan-modules`, and with which files a directory is one whose modules count
    /// (`--autoplan-modules-from-projects`); `None`: modules concern nobody.
    pub modules: Option<Patterns>,
    /// `--restrict-file-list`: only what changed may be planned by `-d` and `-p`.
    pub restrict: bool,
    /// `--enable-regexp-cmd`: what follows `-p` may be a regular expression.
    pub regexp: bool,
}

impl Settings {
    /// Default of `--autoplan-file-list` (reference 10.1).
    pub const DEFAULT_FILE_LIST: &str = "**/*.tf,**/*.tf.json,**/*.tfvars,**/*.tfvars.json,**/*.tofu,**/*.tofu.json,\
                                         **/terragrunt.hcl,**/.terraform.lock.hcl";

    /// Default of `--max-projects`: more than any comment could show.
    pub const DEFAULT_MAX_PROJECTS: usize = 1_000;

    fn check_count(&self, found: usize) -> Result<(), LimitExceeded> {
        let allowed = self.max_projects;
        if found > allowed {
            Err(LimitExceeded::Projects { found, allowed })
        } else {
            Ok(())
        }
    }
}

/// Compiled once.
static DEFAULT_FILE_LIST: LazyLock<Patterns> = LazyLock::new(|| {
    Patterns::from_flag(Settings::DEFAULT_FILE_LIST).expect("the default list is valid")
});

impl Default for Settings {
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
    /// Directory, workspace and name.
    pub key: ProjectKey,
    /// Version that the configuration asks for.
    pub terraform_version: Option<Version>,
    /// Whether a push plans it. `false` only takes it out of autoplan: a `plan` comment still plans it (reference 3.3).
    pub autoplan: bool,
    /// When its turn comes.
    pub order: Order,
    /// What chose it.
    pub why: Why,
}

/// The projects that the changed files concern, sorted by group of the order, directory, workspace and name. Autoplan
/// takes those with `autoplan`, a command without a target takes all.
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

/// The same for a plan, which refuses what would otherwise be left out without a word: a project that the changed files
/// concern, with a symbolic link in the place of its directory. `by_itself`: nobody asked for the plan, so that projects
/// without `autoplan` do not count.
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

/// What could not be found out about what units of Terragrunt go by, so that the change may concern units which are not
/// among these projects; sorted.
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

/// Every path that changed, once, sorted. A file that moved changed in both places.
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
