//! Projects that a person asks for by name or place, whatever changed (reference 3.7).

use super::configured::{self, Configured};
use super::limits::LimitExceeded;
use super::{Input, Project, Why, sorted};
use crate::config::repo::{DirGlob, InvalidGlob, nearest, quoted, shown};
use crate::model::{ProjectKey, RepoPath, WorkspaceName};

/// What a person asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `-p`: the project with exactly this name.
    Project(String),
    /// `-d`, `-w`, or both.
    Place {
        /// Directory, or a pattern of directories.
        dir: DirSelector,
        /// Workspace; left out, it is `default`.
        workspace: Option<WorkspaceName>,
    },
}

/// The value of `-d`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirSelector {
    /// One directory.
    Path(RepoPath),
    /// Every configured project whose directory matches.
    Glob(String),
}

/// Why a target names no project. Displays as a sentence with the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// A name was given, but the repository names no projects.
    #[error(
        "there is no project `{}`, because this repository has no configuration file that names projects: choose a \
         directory with `-d`", shown(.0)
    )]
    NothingConfigured(String),
    /// No project has the name.
    #[error("there is no project `{}` in the configuration file. {}", shown(.name), alternatives(.near, .known))]
    UnknownName {
        /// The name asked for.
        name: String,
        /// Names that are spelled nearly so, nearest first.
        near: Vec<String>,
        /// Some of the names there are.
        known: Vec<String>,
    },
    /// The directory does not exist at the head of the pull request.
    #[error("the directory `{}` does not exist in this pull request. {}", shown(.dir.as_str()), similar_dirs(.near))]
    DirMissing {
        /// The directory asked for.
        dir: RepoPath,
        /// Directories that are spelled nearly so, nearest first.
        near: Vec<String>,
    },
    /// The directory is configured, with other workspaces only.
    #[error(
        "workspace `{}` is not configured for the directory `{}`: choose with `-w` one that is: {}",
        shown(.workspace.as_str()), shown(.dir.as_str()), quoted(.allowed.iter().map(|name| shown(name.as_str())))
    )]
    WorkspaceNotAllowed {
        /// The directory asked for.
        dir: RepoPath,
        /// The workspace asked for.
        workspace: WorkspaceName,
        /// The workspaces that are configured for it.
        allowed: Vec<WorkspaceName>,
    },
    /// Several projects share directory and workspace.
    #[error(
        "{} projects are in the directory `{}` with the workspace `{}`: choose one by its name with {}",
        .matches.len(), shown(.dir.as_str()), shown(.workspace.as_str()), names(.matches)
    )]
    Several {
        /// The directory asked for.
        dir: RepoPath,
        /// The workspace asked for.
        workspace: WorkspaceName,
        /// The projects there.
        matches: Vec<ProjectKey>,
    },
    /// The pattern of directories is none.
    #[error(transparent)]
    BadGlob(#[from] InvalidGlob),
    /// The pattern matches no configured project.
    #[error(
        "no project in the configuration file has a directory that matches `{}` and the workspace `{}`: a pattern \
         chooses among configured projects only, so write another pattern, or one directory without `*`, `?` and `[`",
        shown(.glob), shown(.workspace.as_str())
    )]
    GlobMatchesNothing {
        /// The pattern asked for.
        glob: String,
        /// The workspace asked for.
        workspace: WorkspaceName,
    },
    /// More than is allowed.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

/// Names that an error lists.
const MAX_LISTED: usize = 10;

/// Names that are suggested in place of a mistyped one.
const MAX_NEAR: usize = 3;

/// The projects that a target names, sorted by directory, workspace and name; at least one.
pub fn select(target: &Target, input: &Input<'_>) -> Result<Vec<Project>, SelectError> {
    let configured = configured::expand(input.config, input.tree)?;
    let projects = match target {
        Target::Project(name) => vec![by_name(name, configured, input)?],
        Target::Place { dir, workspace } => {
            let workspace = workspace.clone().unwrap_or_default();
            match dir {
                DirSelector::Path(dir) => vec![by_place(dir, workspace, configured, input)?],
                DirSelector::Glob(glob) => by_glob(glob, workspace, configured, input)?,
            }
        }
    };
    input.settings.check_count(projects.len())?;
    Ok(sorted(projects))
}

fn by_name(name: &str, configured: Vec<Configured<'_>>, input: &Input<'_>) -> Result<Project, SelectError> {
    let mut names: Vec<&str> =
        configured.iter().filter_map(|one| one.key.name.as_ref()).map(crate::model::ProjectName::as_str).collect();
    names.sort_unstable();
    if names.is_empty() {
        return Err(SelectError::NothingConfigured(name.to_owned()));
    }
    if !names.contains(&name) {
        let near = owned(nearest(name, names.iter().copied(), MAX_NEAR));
        let known = owned(names.into_iter().take(MAX_LISTED));
        return Err(SelectError::UnknownName { name: name.to_owned(), near, known });
    }
    let found = configured.into_iter().find(|one| one.key.name.as_ref().is_some_and(|own| own.as_str() == name));
    let found = found.expect("the name is among those of the configured projects");
    check_dir(&found.key.dir, input)?;
    Ok(found.into_project(Why::ByName))
}

fn owned<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

fn check_dir(dir: &RepoPath, input: &Input<'_>) -> Result<(), SelectError> {
    if input.tree.dir_exists(dir) {
        return Ok(());
    }
    let with_code = input.tree.dirs().filter(|dir| input.tree.has_code(dir)).map(RepoPath::as_str);
    let near = owned(nearest(dir.as_str(), with_code, MAX_NEAR));
    Err(SelectError::DirMissing { dir: dir.clone(), near })
}

fn by_place(
    dir: &RepoPath,
    workspace: WorkspaceName,
    configured: Vec<Configured<'_>>,
    input: &Input<'_>,
) -> Result<Project, SelectError> {
    check_dir(dir, input)?;
    let in_dir: Vec<Configured<'_>> = configured.into_iter().filter(|one| one.key.dir == *dir).collect();
    let mut allowed: Vec<WorkspaceName> = in_dir.iter().map(|one| one.key.workspace.clone()).collect();
    let mut matches: Vec<Configured<'_>> = in_dir.into_iter().filter(|one| one.key.workspace == workspace).collect();
    if matches.len() > 1 {
        let matches = matches.into_iter().map(|one| one.key).collect();
        return Err(SelectError::Several { dir: dir.clone(), workspace, matches });
    }
    if let Some(only) = matches.pop() {
        return Ok(only.into_project(Why::ByPlace));
    }
    if allowed.is_empty() {
        return Ok(unconfigured(dir.clone(), workspace));
    }
    allowed.sort();
    allowed.dedup();
    Err(SelectError::WorkspaceNotAllowed { dir: dir.clone(), workspace, allowed })
}

/// A directory that no project is configured for is one by being asked for.
fn unconfigured(dir: RepoPath, workspace: WorkspaceName) -> Project {
    Project {
        key: ProjectKey { dir, workspace, name: None },
        terraform_version: None,
        autoplan: true,
        why: Why::ByPlace,
    }
}

fn by_glob(
    text: &str,
    workspace: WorkspaceName,
    configured: Vec<Configured<'_>>,
    input: &Input<'_>,
) -> Result<Vec<Project>, SelectError> {
    let glob = DirGlob::new(text)?;
    let chosen = |one: &Configured<'_>| {
        one.key.workspace == workspace && glob.matches(&one.key.dir) && input.tree.dir_exists(&one.key.dir)
    };
    let chosen = configured.into_iter().filter(chosen);
    let projects: Vec<Project> = chosen.map(|one| one.into_project(Why::ByGlob(text.to_owned()))).collect();
    if projects.is_empty() {
        return Err(SelectError::GlobMatchesNothing { glob: text.to_owned(), workspace });
    }
    Ok(projects)
}

fn alternatives(near: &[String], known: &[String]) -> String {
    if near.is_empty() {
        return format!("There are {}.", quoted(known.iter().map(|name| shown(name))));
    }
    format!("Did you mean {}?", quoted(near.iter().map(|name| shown(name))))
}

fn similar_dirs(near: &[String]) -> String {
    if near.is_empty() {
        return "Write the path from the root of the repository.".to_owned();
    }
    format!("Did you mean {}?", quoted(near.iter().map(|dir| shown(dir))))
}

/// The flags that choose each project; the one without a name cannot be chosen.
fn names(projects: &[ProjectKey]) -> String {
    let named: Vec<String> =
        projects.iter().filter_map(|key| key.name.as_ref()).map(|name| format!("-p {name}")).collect();
    let hint =
        if named.len() < projects.len() { " (one has no `name` in the configuration file: give it one)" } else { "" };
    format!("{}{hint}", quoted(named))
}
