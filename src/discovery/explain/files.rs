//! Which projects each changed file concerns, and why one concerns none.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use super::super::configured::{Configured, Expanded};
use super::super::terragrunt::PassedOver;
use super::super::{Input, Project, auto};
use crate::config::repo::{FILE_NAMES, shown};
use crate::config::repos::Decider;
use crate::model::{ProjectKey, RepoPath};

/// What a changed file means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVerdict {
    /// The file.
    pub path: RepoPath,
    /// The projects it concerns, sorted.
    pub concerns: Vec<ProjectKey>,
    /// Why it concerns none; `None` when it does concern one.
    pub why_not: Option<FileWhyNot>,
}

/// Why a changed file concerns no project. `Display` gives a clause about the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileWhyNot {
    /// It is the configuration of the repository.
    Configuration,
    /// No project lists it, and only those that are configured are planned.
    NotListed,
    /// No project lists it, although its directory is one that is configured.
    OfConfigured(RepoPath),
    /// It is not what `--autoplan-file-list` counts.
    NotCounted,
    /// It holds state or settings of a tool.
    NoCode,
    /// Its directory holds no Terraform code.
    DirWithoutCode(RepoPath),
    /// Its directory has a configuration of Terragrunt, but is no unit.
    PassedOver(RepoPath, PassedOver),
    /// It is in a directory `modules` that belongs to no project.
    SharedModule,
    /// Its directory is taken out of the search for projects.
    Ignored {
        /// By which pattern of `ignore_paths`.
        glob: String,
        /// Who wrote it.
        by: Decider,
    },
}

impl FileWhyNot {
    /// Stable word for programs.
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

impl fmt::Display for FileWhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => {
                f.write_str("it is the configuration, which concerns no project by itself")
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
            Self::NoCode => f.write_str("it holds state or settings of a tool, no code"),
            Self::DirWithoutCode(dir) => {
                write!(f, "there is no Terraform code in `{}`", shown(dir.as_str()))
            }
            Self::PassedOver(dir, why) => write!(
                f,
                "`{}` is no unit of Terragrunt: {why}",
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

/// What each of the changed files (sorted) means. `projects` are those that are concerned.
pub(super) fn verdicts(
    input: &Input<'_>,
    changed: &[&RepoPath],
    configured: &Expanded<'_>,
    projects: &[Project],
    passed_over: &BTreeMap<RepoPath, PassedOver>,
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
                    Some(why) => FileWhyNot::PassedOver(dir, *why),
                    None => FileWhyNot::DirWithoutCode(dir),
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

/// The projects of each directory.
fn by_dir(projects: &[Project]) -> BTreeMap<&RepoPath, Vec<&ProjectKey>> {
    let mut found: BTreeMap<&RepoPath, Vec<&ProjectKey>> = BTreeMap::new();
    for Project { key, .. } in projects {
        found.entry(&key.dir).or_default().push(key);
    }
    found
}

/// The planned projects that use a module in which a file is.
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

/// The projects that each file concerns by patterns, or by whatever rule chose them.
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

/// The directory that a file makes a project without being configured, or why it makes none.
fn discovered(
    input: &Input<'_>,
    file: &RepoPath,
    configured: &Expanded<'_>,
) -> Result<RepoPath, FileWhyNot> {
    if FILE_NAMES.contains(&file.as_str()) {
        return Err(FileWhyNot::Configuration);
    }
    if !input.searches() {
        return Err(FileWhyNot::NotListed);
    }
    if auto::is_no_code(file) {
        return Err(FileWhyNot::NoCode);
    }
    if !auto::counts(input, file) {
        return Err(FileWhyNot::NotCounted);
    }
    let Some((dir, _)) = auto::place(input.tree, file) else {
        return Err(FileWhyNot::SharedModule);
    };
    if configured.dirs.contains(&dir) {
        return Err(FileWhyNot::OfConfigured(dir));
    }
    match input.ignored(&dir) {
        Some((glob, by)) => Err(FileWhyNot::Ignored {
            glob: glob.to_string(),
            by: by.clone(),
        }),
        None => Ok(dir),
    }
}
