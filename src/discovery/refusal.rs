//! Why what somebody asked for is not run: in words, with the way out.

use super::limits::LimitExceeded;
use super::names::NameError;
use super::restrict::Unchanged;
use crate::config::repo::{InvalidGlob, quoted, shown};
use crate::config::repos::Decider;
use crate::model::{ProjectKey, RepoPath, WorkspaceName};

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
    /// The projects with the name are for other base branches.
    #[error(
        "the project `{}` is for other base branches: its `branch` (`/{}/`, line {line} of the configuration file) does \
         not match `{}`, which this pull request goes into", shown(.name), shown(.filter), shown(.base)
    )]
    NameForOtherBranch {
        /// The name asked for.
        name: String,
        /// Its `branch`.
        filter: String,
        /// Line of its entry.
        line: usize,
        /// Branch of the pull request.
        base: String,
    },
    /// The projects of the directory are for other base branches.
    #[error(
        "the directory `{}` is configured for other base branches only: `branch` (`/{}/`, line {line} of the \
         configuration file) does not match `{}`, which this pull request goes into",
        shown(.dir.as_str()), shown(.filter), shown(.base)
    )]
    DirForOtherBranch {
        /// The directory asked for.
        dir: RepoPath,
        /// The `branch` of its first project.
        filter: String,
        /// Line of the entry.
        line: usize,
        /// Branch of the pull request.
        base: String,
    },
    /// The directory is taken out of the search for projects.
    #[error(
        "the directory `{}` is no project: it matches `{}` of `ignore_paths` ({by}). Give it an entry in `projects` if it \
         is one", shown(.dir.as_str()), shown(.glob)
    )]
    Ignored {
        /// The directory asked for.
        dir: RepoPath,
        /// The pattern.
        glob: String,
        /// Who wrote it.
        by: Decider,
    },
    /// What stands after `-p` cannot be followed.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// The operator lets only be planned what changed.
    #[error(transparent)]
    Unchanged(#[from] Unchanged),
    /// A symbolic link is no directory of a project.
    #[error(
        "`{}` is a symbolic link to `{}`: two projects in the same files would get in each other's way, so name that \
         directory, with `-d` or as `dir` in the configuration file", shown(.dir.as_str()), shown(.target.as_str())
    )]
    DirIsLink {
        /// The directory asked for.
        dir: RepoPath,
        /// Where it leads.
        target: RepoPath,
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

fn alternatives(near: &[String], known: &[String]) -> String {
    if near.is_empty() {
        return format!(
            "There are {}.",
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

/// The flags that choose each project; the one without a name cannot be chosen.
fn names(projects: &[ProjectKey]) -> String {
    let named: Vec<String> = projects
        .iter()
        .filter_map(|key| key.name.as_ref())
        .map(|name| format!("-p {name}"))
        .collect();
    let hint = if named.len() < projects.len() {
        " (one has no `name` in the configuration file: give it one)"
    } else {
        ""
    };
    format!("{}{hint}", quoted(named))
}
