//! Finds the projects that each changed file concerns, or the reason why it concerns none.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use super::super::configured::{Configured, Expanded};
use super::super::terragrunt::SkippedDir;
use super::super::{Input, Project, auto};
use crate::config::repo::{FILE_NAMES, shown};
use crate::config::repos::Decider;
use crate::model::{ProjectKey, RepoPath};

/// Effect of a changed file on projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVerdict {
    /// Path of the changed file.
    pub path: RepoPath,
    /// Projects that the file concerns, sorted.
    pub concerns: Vec<ProjectKey>,
    /// Reason why the file concerns no project; `None` if it does concern one.
    pub why_not: Option<FileExclusion>,
}

/// Reason why a changed file concerns no project. `Display` writes a clause about the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileExclusion {
    /// The file is the configuration of the repository.
    Configuration,
    /// No project lists the file, and only configured projects are planned.
    NotListed,
    /// No project lists the file, although its directory is configured.
    OfConfigured(RepoPath),
    /// The file does not match `--autoplan-file-list`.
    NotCounted,
    /// The file holds state or settings of a tool.
    NoCode,
    /// The directory of the file holds no Terraform code.
    DirWithoutCode(RepoPath),
    /// The directory of the file has a configuration of Terragrunt, but is no unit.
    PassedOver(RepoPath, SkippedDir),
    /// The file is in a directory `modules` that belongs to no project.
    SharedModule,
    /// The directory of the file is excluded from the search for projects.
    Ignored {
        /// Pattern of `ignore_paths` that excludes the directory.
        glob: String,
        /// Author of the pattern.
        by: Decider,
    },
}

impl FileExclusion {
    /// Returns a stable word for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::NotListed => "not_listed",
            Self::OfConfigured(_) => "not_in_when_modified",
            Self::NotCounted => "not_in_file_list",
            Self::NoCode => "no_code",
            Self::DirWithoutCode(_) => "dir_without_code",
            Self::PassedOver(..) => "passed_over",
            Self::SharedModule => "shared_module",
            Self::Ignored { .. } => "ignored",
        }
    }
}

impl fmt::Display for FileExclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => {
                f.write_str("it is the configuration, which does not concern a project on its own")
            }
            Self::NotListed => f.write_str("it matches `when_modified` of no project"),
            Self::OfConfigured(dir) => {
                write!(
                    f,
                    "it matches `when_modified` of no project, and `{}` is configured",
                    shown(dir.as_str())
                )
            }
            Self::NotCounted => f.write_str("it is not in `--autoplan-file-list`"),
            Self::NoCode => f.write_str("it contains state or settings of a tool, but no code"),
            Self::DirWithoutCode(dir) => {
                write!(f, "there is no Terraform code in `{}`", shown(dir.as_str()))
            }
            Self::PassedOver(dir, why) => write!(
                f,
                "`{}` is not a Terragrunt unit: {why}",
                shown(dir.as_str())
            ),
            Self::SharedModule => f.write_str("it is in `modules` of a directory without code"),
            Self::Ignored { glob, by } => {
                write!(
                    f,
                    "its directory matches `{}` of `ignore_paths` ({by})",
                    shown(glob)
                )
            }
        }
    }
}

/// Returns the effect of each of the changed files (sorted). `projects` are the projects that the change concerns.
pub(super) fn verdicts(
    input: &Input<'_>,
    changed: &[&RepoPath],
    configured: &Expanded<'_>,
    projects: &[Project],
    passed_over: &BTreeMap<RepoPath, SkippedDir>,
) -> Vec<FileVerdict> {
    let found = by_dir(projects);
    let mut concerned = concerned(changed, &configured.projects, projects);
    let verdict = |file: &&RepoPath| {
        let mut keys = concerned.remove(*file).unwrap_or_default();
        keys.extend(users(input, file, &found));
        let reason = match discovered(input, file, configured) {
            Ok(dir) => {
                keys.extend(
                    found
                        .get(&dir)
                        .into_iter()
                        .flatten()
                        .filter(|key| key.name.is_none())
                        .copied()
                        .cloned(),
                );
                match passed_over.get(&dir) {
                    Some(why) => FileExclusion::PassedOver(dir, *why),
                    None => FileExclusion::DirWithoutCode(dir),
                }
            }
            Err(reason) => reason,
        };
        let why_not = keys.is_empty().then_some(reason);
        FileVerdict {
            path: (*file).clone(),
            concerns: keys.into_iter().collect(),
            why_not,
        }
    };
    changed.iter().map(verdict).collect()
}

/// Returns the projects of each directory.
fn by_dir(projects: &[Project]) -> BTreeMap<&RepoPath, Vec<&ProjectKey>> {
    let mut found: BTreeMap<&RepoPath, Vec<&ProjectKey>> = BTreeMap::new();
    for Project { key, .. } in projects {
        found.entry(&key.dir).or_default().push(key);
    }
    found
}

/// Returns the planned projects that use the module which contains a file.
fn users(
    input: &Input<'_>,
    file: &RepoPath,
    found: &BTreeMap<&RepoPath, Vec<&ProjectKey>>,
) -> Vec<ProjectKey> {
    let users = input
        .modules
        .map(|modules| modules.users(&[file]))
        .unwrap_or_default();
    users
        .keys()
        .filter_map(|dir| found.get(dir))
        .flatten()
        .copied()
        .cloned()
        .collect()
}

/// Returns the projects that each file concerns by patterns, or by the rule that chose the project.
fn concerned<'a>(
    changed: &'a [&RepoPath],
    configured: &[Configured<'_>],
    projects: &'a [Project],
) -> BTreeMap<&'a RepoPath, BTreeSet<ProjectKey>> {
    let mut concerned: BTreeMap<&RepoPath, BTreeSet<ProjectKey>> = BTreeMap::new();
    for Project { key, why, .. } in projects {
        if let Some(file) = why.file() {
            concerned.entry(file).or_default().insert(key.clone());
        }
    }
    let is_found: HashSet<&ProjectKey> = projects.iter().map(|project| &project.key).collect();
    for one in configured.iter().filter(|one| is_found.contains(&one.key)) {
        for file in one
            .near(changed)
            .iter()
            .filter(|file| one.concerned_by(file).is_some())
        {
            concerned.entry(file).or_default().insert(one.key.clone());
        }
    }
    concerned
}

/// Returns the directory that a file makes a project without configuration, or the reason why it makes none.
fn discovered(
    input: &Input<'_>,
    file: &RepoPath,
    configured: &Expanded<'_>,
) -> Result<RepoPath, FileExclusion> {
    if FILE_NAMES.contains(&file.as_str()) {
        return Err(FileExclusion::Configuration);
    }
    if !input.searches() {
        return Err(FileExclusion::NotListed);
    }
    if auto::is_no_code(file) {
        return Err(FileExclusion::NoCode);
    }
    if !auto::counts(input, file) {
        return Err(FileExclusion::NotCounted);
    }
    let Some((dir, _)) = auto::place(input.tree, file) else {
        return Err(FileExclusion::SharedModule);
    };
    if configured.dirs.contains(&dir) {
        return Err(FileExclusion::OfConfigured(dir));
    }
    match input.ignored(&dir) {
        Some((glob, by)) => Err(FileExclusion::Ignored {
            glob: glob.to_string(),
            by: by.clone(),
        }),
        None => Ok(dir),
    }
}
