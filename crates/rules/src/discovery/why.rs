//! Explains why a command concerns a project: the answer to "why is this planned".

use std::fmt;

use super::modules::UseReason;
use super::terragrunt::Chain;
use crate::config::repo::shown;
use crate::model::RepoPath;

/// Rule that chose a project, with its reason. Displays as one clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectReason {
    /// A changed file matches `when_modified` of the configured project.
    WhenModified {
        /// First changed file that matches.
        file: RepoPath,
        /// Pattern that matched the file.
        pattern: String,
    },
    /// A file changed in a directory with code.
    OwnDir(RepoPath),
    /// A file changed in a directory `env`, which belongs to the directory above it.
    EnvDir(RepoPath),
    /// A file changed below `modules`, which belongs to the directory that contains `modules`.
    Modules(RepoPath),
    /// A file changed on which a unit or stack of Terragrunt depends.
    Terragrunt(Chain),
    /// A file changed in a module that the project uses.
    Module(UseReason),
    /// A person named the project.
    ByName,
    /// A person gave a regular expression that matches the name.
    ByRegexp(String),
    /// A person gave directory and workspace.
    ByPlace,
    /// A person gave a pattern of directories.
    ByGlob(String),
}

impl ProjectReason {
    /// Returns the changed file that decided; `None` if a person chose the project.
    pub fn file(&self) -> Option<&RepoPath> {
        match self {
            Self::WhenModified { file, .. }
            | Self::OwnDir(file)
            | Self::EnvDir(file)
            | Self::Modules(file)
            | Self::Terragrunt(Chain { file, .. })
            | Self::Module(UseReason { file, .. }) => Some(file),
            Self::ByName | Self::ByRegexp(_) | Self::ByPlace | Self::ByGlob(_) => None,
        }
    }

    /// Returns a stable word for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::WhenModified { .. } => "when_modified",
            Self::OwnDir(_) => "own_dir",
            Self::EnvDir(_) => "env_dir",
            Self::Modules(_) => "modules",
            Self::Terragrunt(_) => "terragrunt",
            Self::Module(_) => "module",
            Self::ByName => "by_name",
            Self::ByRegexp(_) => "by_regexp",
            Self::ByPlace => "by_place",
            Self::ByGlob(_) => "by_glob",
        }
    }
}

impl fmt::Display for ProjectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = |file: &RepoPath| shown(file.as_str());
        match self {
            Self::WhenModified {
                file: path,
                pattern,
            } => {
                write!(
                    f,
                    "`{}` changed and matches `{}` of `when_modified`",
                    file(path),
                    shown(pattern)
                )
            }
            Self::OwnDir(path) => write!(f, "`{}` changed", file(path)),
            Self::EnvDir(path) => write!(
                f,
                "`{}` changed, and `env` belongs to the directory above it",
                file(path)
            ),
            Self::Modules(path) => {
                write!(
                    f,
                    "`{}` changed, and `modules` belongs to the directory above it",
                    file(path)
                )
            }
            Self::Terragrunt(chain) => chain.fmt(f),
            Self::Module(UseReason { file: path, via }) => {
                let chain: Vec<String> = via
                    .iter()
                    .map(|dir| format!("`{}`", shown(dir.as_str())))
                    .collect();
                write!(
                    f,
                    "`{}` changed, in a module that it uses: {}",
                    file(path),
                    chain.join(", which uses ")
                )
            }
            Self::ByRegexp(expression) => write!(f, "its name matches `{}`", shown(expression)),
            Self::ByName => f.write_str("it was requested by name"),
            Self::ByPlace => f.write_str("it was requested by directory and workspace"),
            Self::ByGlob(glob) => write!(f, "its directory matches `{}`", shown(glob)),
        }
    }
}
