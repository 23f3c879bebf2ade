//! Selects projects that a person requests by name or place, independent of the changed files (reference 3.7).

use super::configured::{self, Configured, Expanded};
use super::names;
use super::refusal::SelectError;
use super::{
    Input, OrderPosition, Project, ProjectReason, auto, links, restrict, sorted, terragrunt,
};
use crate::config::repo::{DirGlob, nearest};
use crate::model::{ProjectKey, ProjectName, RepoPath, WorkspaceName};

/// Projects that a person requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedProjects {
    /// Value of `-p`: the project with exactly this name; with [`super::SearchSettings::regexp`] every project whose name
    /// matches.
    Project(String),
    /// Values of `-d`, `-w`, or both.
    Place {
        /// Directory, or a pattern of directories.
        dir: DirSelector,
        /// Workspace; `None` means `default`.
        workspace: Option<WorkspaceName>,
    },
}

/// Value of `-d` in a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirSelector {
    /// Path of one directory.
    Path(RepoPath),
    /// Pattern that selects every configured project with a matching directory.
    Glob(String),
}

/// Maximum number of names that an error lists.
const MAX_LISTED: usize = 10;

/// Maximum number of names that are suggested in place of a mistyped one.
const MAX_NEAR: usize = 3;

/// Returns the projects that a target names, at least one, sorted like those of [`super::discover`].
pub fn select(target: &RequestedProjects, input: &Input<'_>) -> Result<Vec<Project>, SelectError> {
    let configured = configured::expand(input)?;
    let projects = match target {
        RequestedProjects::Project(name) => by_name(name, &configured, input)?,
        RequestedProjects::Place { dir, workspace } => {
            let workspace = workspace.clone().unwrap_or_default();
            match dir {
                DirSelector::Path(dir) => vec![by_place(dir, workspace, configured, input)?],
                DirSelector::Glob(glob) => match named_like(glob, input) {
                    Some(dir) => vec![by_place(&dir, workspace, configured, input)?],
                    None => by_glob(glob, workspace, configured.projects, input)?,
                },
            }
        }
    };
    input.settings.check_count(projects.len())?;
    Ok(sorted(projects))
}

/// Selects projects for a plan, which the administrator may restrict to changed ones (`--restrict-file-list`,
/// reference 3.8).
pub fn select_for_plan(
    target: &RequestedProjects,
    input: &Input<'_>,
) -> Result<Vec<Project>, SelectError> {
    let projects = select(target, input)?;
    if input.settings.restrict {
        restrict::check(target, projects, input)
    } else {
        Ok(projects)
    }
}

fn by_name(
    name: &str,
    configured: &Expanded<'_>,
    input: &Input<'_>,
) -> Result<Vec<Project>, SelectError> {
    let known = named(&configured.projects);
    let prefixes = input
        .config
        .map_or(&[][..], |config| &config.allowed_regexp_prefixes);
    let chosen = names::choose(name, &known, input.settings.regexp, prefixes)?;
    if chosen.is_empty() {
        return Err(no_such_name(name, known, &configured.elsewhere, input));
    }
    let why = |own: &str| {
        if own == name {
            ProjectReason::ByName
        } else {
            ProjectReason::ByRegexp(name.to_owned())
        }
    };
    let is_chosen = |one: &Configured<'_>| {
        one.key
            .name
            .as_ref()
            .is_some_and(|own| chosen.contains(own.as_str()))
    };
    let mut projects = Vec::new();
    for one in configured.projects.iter().filter(|one| is_chosen(one)) {
        check_dir(&one.key.dir, input)?;
        let why = why(one.key.name.as_ref().map_or("", ProjectName::as_str));
        projects.push(one.clone().into_project(why));
    }
    Ok(projects)
}

/// Returns the names of the configured projects, sorted.
fn named<'a>(configured: &'a [Configured<'_>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = configured
        .iter()
        .filter_map(|one| one.key.name.as_ref())
        .map(ProjectName::as_str)
        .collect();
    names.sort_unstable();
    names
}

fn no_such_name(
    name: &str,
    known: Vec<&str>,
    elsewhere: &[Configured<'_>],
    input: &Input<'_>,
) -> SelectError {
    let is_it = |one: &&Configured<'_>| {
        one.key
            .name
            .as_ref()
            .is_some_and(|own| own.as_str() == name)
    };
    if let Some((filter, line)) = elsewhere.iter().find(is_it).and_then(branch_of) {
        return SelectError::NameForOtherBranch {
            name: name.to_owned(),
            filter,
            line,
            base: input.base.to_string(),
        };
    }
    let known = if known.is_empty() {
        named(elsewhere)
    } else {
        known
    };
    if known.is_empty() {
        return SelectError::NothingConfigured(name.to_owned());
    }
    let near = owned(nearest(name, known.iter().copied(), MAX_NEAR));
    SelectError::UnknownName {
        name: name.to_owned(),
        near,
        known: owned(known.into_iter().take(MAX_LISTED)),
    }
}

/// Returns the `branch` of an entry and its line.
fn branch_of(one: &Configured<'_>) -> Option<(String, usize)> {
    Some((
        one.config.branch.as_ref()?.as_str().to_owned(),
        one.config.line,
    ))
}

fn owned<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

fn check_dir(dir: &RepoPath, input: &Input<'_>) -> Result<(), SelectError> {
    if input.tree.dir_exists(dir) {
        return Ok(());
    }
    if let Some(target) = links::dir_behind(input.tree, dir) {
        return Err(SelectError::DirIsLink {
            dir: dir.clone(),
            target,
        });
    }
    let with_code = input
        .tree
        .dirs()
        .filter(|dir| input.tree.has_code(dir))
        .map(RepoPath::as_str);
    let near = owned(nearest(dir.as_str(), with_code, MAX_NEAR));
    Err(SelectError::DirMissing {
        dir: dir.clone(),
        near,
    })
}

fn by_place(
    dir: &RepoPath,
    workspace: WorkspaceName,
    configured: Expanded<'_>,
    input: &Input<'_>,
) -> Result<Project, SelectError> {
    check_dir(dir, input)?;
    let in_dir: Vec<Configured<'_>> = configured
        .projects
        .into_iter()
        .filter(|one| one.key.dir == *dir)
        .collect();
    let mut allowed: Vec<WorkspaceName> =
        in_dir.iter().map(|one| one.key.workspace.clone()).collect();
    let mut matches: Vec<Configured<'_>> = in_dir
        .into_iter()
        .filter(|one| one.key.workspace == workspace)
        .collect();
    if matches.len() > 1 {
        let matches = matches.into_iter().map(|one| one.key).collect();
        return Err(SelectError::Several {
            dir: dir.clone(),
            workspace,
            matches,
        });
    }
    if let Some(only) = matches.pop() {
        return Ok(only.into_project(ProjectReason::ByPlace));
    }
    if allowed.is_empty() {
        return unconfigured(dir, workspace, &configured.elsewhere, input);
    }
    allowed.sort();
    allowed.dedup();
    Err(SelectError::WorkspaceNotAllowed {
        dir: dir.clone(),
        workspace,
        allowed,
    })
}

/// Makes a project of a directory without configuration, because a person requested it, unless a rule excludes it.
fn unconfigured(
    dir: &RepoPath,
    workspace: WorkspaceName,
    elsewhere: &[Configured<'_>],
    input: &Input<'_>,
) -> Result<Project, SelectError> {
    let dir = dir.clone();
    // Without the workflow and requirements of its entry, the project would not run as its owners intend.
    if let Some((filter, line)) = elsewhere
        .iter()
        .find(|one| one.key.dir == dir)
        .and_then(branch_of)
    {
        return Err(SelectError::DirForOtherBranch {
            dir,
            filter,
            line,
            base: input.base.to_string(),
        });
    }
    if input.searches()
        && let Some((glob, by)) = input.ignored(&dir)
    {
        return Err(SelectError::Ignored {
            dir,
            glob: glob.to_string(),
            by: by.clone(),
        });
    }
    let group = terragrunt::group(input.tree, input.read, &dir, &|file| {
        auto::counts(input, file)
    });
    let key = ProjectKey {
        dir,
        workspace,
        name: None,
    };
    Ok(Project {
        key,
        terraform_version: None,
        autoplan: true,
        order: OrderPosition::in_group(group),
        why: ProjectReason::ByPlace,
    })
}

/// Returns the directory whose name is exactly the text of the pattern. People who type that name mean that
/// directory.
fn named_like(glob: &str, input: &Input<'_>) -> Option<RepoPath> {
    RepoPath::new(glob)
        .ok()
        .filter(|dir| input.tree.dir_exists(dir))
}

fn by_glob(
    text: &str,
    workspace: WorkspaceName,
    configured: Vec<Configured<'_>>,
    input: &Input<'_>,
) -> Result<Vec<Project>, SelectError> {
    let glob = DirGlob::new(text)?;
    let chosen = |one: &Configured<'_>| {
        one.key.workspace == workspace
            && glob.matches(&one.key.dir)
            && input.tree.dir_exists(&one.key.dir)
    };
    let chosen = configured.into_iter().filter(chosen);
    let projects: Vec<Project> = chosen
        .map(|one| one.into_project(ProjectReason::ByGlob(text.to_owned())))
        .collect();
    if projects.is_empty() {
        return Err(SelectError::GlobMatchesNothing {
            glob: text.to_owned(),
            workspace,
        });
    }
    Ok(projects)
}
