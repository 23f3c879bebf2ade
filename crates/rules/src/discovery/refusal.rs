//! Explains why a requested target is not run, with the way out.

use super::limits::LimitExceeded;
use super::names::NameError;
use super::restrict::Unchanged;
use crate::config::repo::{InvalidGlob, quoted, shown};
use crate::config::repos::Decider;
use crate::model::{ProjectKey, RepoPath, WorkspaceName};

/// Reason why a target names no project. Displays as a sentence with the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// A name was given, but the repository names no projects.
    #[error(
        "there is no project `{}`, because this repository has no configuration file that names projects: choose a \
         directory with `-d`", shown(.0)
    )]
    NothingConfigured(String),
    /// No project has the requested name.
    #[error("there is no project `{}` in the configuration file. {}", shown(.name), alternatives(.near, .known))]
    UnknownName {
        /// Requested name of the project.
        name: String,
        /// Names with a similar spelling, nearest first.
        near: Vec<String>,
        /// Existing names, limited in number.
        known: Vec<String>,
    },
    /// The projects with the name are for other base branches.
    #[error(
        "the project `{}` is for other base branches: its `branch` (`/{}/`, line {line} of the configuration file) \
         does not match `{}`, the base branch of this pull request", shown(.name), shown(.filter), shown(.base)
    )]
    NameForOtherBranch {
        /// Requested name of the project.
        name: String,
        /// Value of its `branch`.
        filter: String,
        /// Line of its entry.
        line: usize,
        /// Base branch of the pull request.
        base: String,
    },
    /// The projects of the directory are for other base branches.
    #[error(
        "the directory `{}` is configured for other base branches only: `branch` (`/{}/`, line {line} of the \
         configuration file) does not match `{}`, the base branch of this pull request",
        shown(.dir.as_str()), shown(.filter), shown(.base)
    )]
    DirForOtherBranch {
        /// Requested directory of the project.
        dir: RepoPath,
        /// Value of `branch` of its first project.
        filter: String,
        /// Line of the entry.
        line: usize,
        /// Base branch of the pull request.
        base: String,
    },
    /// The directory is excluded from the search for projects.
    #[error(
        "the directory `{}` is not a project: it matches `{}` of `ignore_paths` ({by}). Give it an entry in \
         `projects` if it is one", shown(.dir.as_str()), shown(.glob)
    )]
    Ignored {
        /// Requested directory of the project.
        dir: RepoPath,
        /// Pattern that excludes the directory.
        glob: String,
        /// Author of the pattern.
        by: Decider,
    },
    /// The value of `-p` is not usable.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// The administrator only allows plans of changed directories.
    #[error(transparent)]
    Unchanged(#[from] Unchanged),
    /// The directory of a project is a symbolic link.
    #[error(
        "`{}` is a symbolic link to `{}`: two projects with the same files would disturb each other. Name that \
         directory with `-d`, or as `dir` in the configuration file", shown(.dir.as_str()), shown(.target.as_str())
    )]
    DirIsLink {
        /// Requested directory of the project.
        dir: RepoPath,
        /// Directory that the link leads to.
        target: RepoPath,
    },
    /// The directory does not exist at the head of the pull request.
    #[error("the directory `{}` does not exist in this pull request. {}", shown(.dir.as_str()), similar_dirs(.near))]
    DirMissing {
        /// Requested directory of the project.
        dir: RepoPath,
        /// Directories with a similar spelling, nearest first.
        near: Vec<String>,
    },
    /// The directory is configured with other workspaces only.
    #[error(
        "workspace `{}` is not configured for the directory `{}`: choose one of these with `-w`: {}",
        shown(.workspace.as_str()), shown(.dir.as_str()), quoted(.allowed.iter().map(|name| shown(name.as_str())))
    )]
    WorkspaceNotAllowed {
        /// Requested directory of the project.
        dir: RepoPath,
        /// Requested workspace of the project.
        workspace: WorkspaceName,
        /// Workspaces that are configured for the directory.
        allowed: Vec<WorkspaceName>,
    },
    /// Several projects share directory and workspace.
    #[error(
        "{} projects are in the directory `{}` with the workspace `{}`: choose one by its name with {}",
        .matches.len(), shown(.dir.as_str()), shown(.workspace.as_str()), names(.matches)
    )]
    Several {
        /// Requested directory of the projects.
        dir: RepoPath,
        /// Requested workspace of the projects.
        workspace: WorkspaceName,
        /// Projects with that directory and workspace.
        matches: Vec<ProjectKey>,
    },
    /// The text is not a valid pattern of directories.
    #[error(transparent)]
    BadGlob(#[from] InvalidGlob),
    /// The pattern matches no configured project.
    #[error(
        "no configured project matches the directory pattern `{}` and the workspace `{}`. Patterns match configured \
         projects only: change the pattern, or name one directory",
        shown(.glob), shown(.workspace.as_str())
    )]
    GlobMatchesNothing {
        /// Requested pattern of directories.
        glob: String,
        /// Requested workspace of the projects.
        workspace: WorkspaceName,
    },
    /// The search exceeded a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

fn alternatives(near: &[String], known: &[String]) -> String {
    if near.is_empty() {
        return format!(
            "These exist: {}.",
            quoted(known.iter().map(|name| shown(name)))
        );
    }
    format!(
        "Did you mean {}?",
        quoted(near.iter().map(|name| shown(name)))
    )
}

fn similar_dirs(near: &[String]) -> String {
    if near.is_empty() {
        return "Write the path from the root of the repository.".to_owned();
    }
    format!(
        "Did you mean {}?",
        quoted(near.iter().map(|dir| shown(dir)))
    )
}

/// Formats the flags that choose each project; a project without a name cannot be chosen.
fn names(projects: &[ProjectKey]) -> String {
    let named: Vec<String> = projects
        .iter()
        .filter_map(|key| key.name.as_ref())
        .map(|name| format!("-p {name}"))
        .collect();
    let hint = if named.len() < projects.len() {
        " (one has no `name` in the configuration file: add one)"
    } else {
        ""
    };
    format!("{}{hint}", quoted(named))
}
