//! Finds the projects that a plan would not cover, and why: configured projects that the change does not concern, and
//! directories with code that are no projects or have no changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use super::super::auto;
use super::super::configured::{Configured, Expanded};
use super::super::terragrunt::SkippedDir;
use super::super::{Input, Project, links};
use super::files::FileVerdict;
use super::{Autodiscovery, FileExclusion};
use crate::config::repo::{AutodiscoverMode, Autoplan, Patterns, quoted, shown};
use crate::config::repos::{Decided, Decider};
use crate::model::{BranchName, ProjectKey, RepoPath};

/// A project that would not be planned, or a directory that could be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Directory, workspace and name of the project.
    pub key: ProjectKey,
    /// Line of the repository's file with the entry of the project; `None` if nobody configured it.
    pub configured: Option<Decider>,
    /// Reason why the project would not be planned.
    pub why_not: SkipReason,
}

/// Reason why a project would not be planned. `Display` writes a clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    /// The directory is not in the checkout.
    DirMissing,
    /// The directory is a symbolic link, or lies behind one; the value is the target.
    DirIsLink(RepoPath),
    /// The `branch` of the project does not match the base branch of the pull request.
    OtherBranch {
        /// Expression of `branch`, without slashes.
        filter: String,
        /// Base branch of the pull request.
        base: BranchName,
    },
    /// The directory is excluded from the search for projects.
    Ignored {
        /// Pattern of `ignore_paths` that excludes the directory.
        glob: String,
        /// Author of the pattern.
        by: Decider,
    },
    /// The project has an empty list `when_modified`.
    NoPatterns,
    /// No changed file matches `when_modified`.
    NoMatch(Patterns),
    /// Nobody configured the project, and no file changed in its directory.
    Unchanged,
    /// Files changed in the directory, but none that counts.
    NothingCounts(FileExclusion),
    /// The directory is below `modules`, which belongs to the named directory if that has code.
    PartOf(Option<RepoPath>),
    /// Nobody configured the project, and only configured projects are planned.
    NotConfigured(Decided<AutodiscoverMode>),
    /// The directory has a configuration of Terragrunt, but is no unit.
    PassedOver(SkippedDir),
}

impl SkipReason {
    /// Returns a stable word for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::DirMissing => "dir_missing",
            Self::DirIsLink(_) => "dir_is_link",
            Self::OtherBranch { .. } => "other_branch",
            Self::Ignored { .. } => "ignored",
            Self::NoPatterns => "no_patterns",
            Self::NoMatch(_) => "no_match",
            Self::Unchanged => "unchanged",
            Self::NothingCounts(_) => "nothing_counts",
            Self::PartOf(_) => "module",
            Self::NotConfigured(_) => "not_configured",
            Self::PassedOver(_) => "passed_over",
        }
    }
}

impl SkipReason {
    /// Returns the patterns that no changed file matches.
    pub(super) fn patterns(&self) -> Vec<&str> {
        match self {
            Self::NoMatch(patterns) => patterns.texts().collect(),
            Self::DirMissing
            | Self::DirIsLink(_)
            | Self::OtherBranch { .. }
            | Self::Ignored { .. }
            | Self::NoPatterns
            | Self::Unchanged
            | Self::NothingCounts(_)
            | Self::PartOf(_)
            | Self::NotConfigured(_)
            | Self::PassedOver(_) => Vec::new(),
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirMissing => f.write_str("its directory does not exist"),
            Self::DirIsLink(target) => {
                let target = shown(target.as_str());
                write!(
                    f,
                    "its directory is a symbolic link to `{target}`, and projects behind links are not run: write \
                     `dir: {target}`"
                )
            }
            Self::OtherBranch { filter, base } => {
                write!(
                    f,
                    "its `branch` (`/{}/`) does not match `{}`",
                    shown(filter),
                    shown(base.as_str())
                )
            }
            Self::Ignored { glob, by } => {
                write!(f, "it matches `{}` of `ignore_paths` ({by})", shown(glob))
            }
            Self::NoPatterns => f.write_str("its `when_modified` is empty, so no file concerns it"),
            Self::NoMatch(patterns) if *patterns == Autoplan::default().when_modified => f
                .write_str(
                    "no Terraform file in its directory changed (the default of `when_modified`)",
                ),
            Self::NoMatch(patterns) => {
                write!(
                    f,
                    "no changed file matches its `when_modified`: {}",
                    quoted(patterns.texts().map(shown))
                )
            }
            Self::Unchanged => f.write_str("no file in it changed"),
            Self::NothingCounts(reason) => write!(f, "its changed files do not count: {reason}"),
            Self::PartOf(Some(owner)) => {
                write!(
                    f,
                    "it is below `modules`, which belongs to `{}`",
                    shown(owner.as_str())
                )
            }
            Self::PassedOver(why) => write!(f, "it is not a Terragrunt unit: {why}"),
            Self::PartOf(None) => {
                f.write_str("it is below `modules`, and there is no directory with code above it")
            }
            Self::NotConfigured(mode) => match mode.value {
                AutodiscoverMode::Auto | AutodiscoverMode::Enabled => f.write_str(
                    "the configuration lists projects, and this directory is not among them",
                ),
                AutodiscoverMode::Disabled => {
                    write!(
                        f,
                        "it is not configured, and `autodiscover` is `disabled` ({})",
                        mode.by
                    )
                }
            },
        }
    }
}

/// Facts about directories that no project names.
pub(super) struct UnnamedDirs<'a> {
    /// Decision about the search for them.
    pub autodiscover: &'a Autodiscovery,
    /// Directories that Terragrunt does not run.
    pub passed_over: &'a BTreeMap<RepoPath, SkippedDir>,
    /// Effect of each changed file.
    pub files: &'a [FileVerdict],
}

/// Returns the projects that would not be planned, sorted by directory, workspace and name.
pub(super) fn find(
    input: &Input<'_>,
    configured: &Expanded<'_>,
    projects: &[Project],
    search: &UnnamedDirs<'_>,
) -> Vec<Skipped> {
    let planned: HashSet<&ProjectKey> = projects.iter().map(|project| &project.key).collect();
    let idle = configured
        .projects
        .iter()
        .filter(|one| !planned.contains(&one.key));
    let mut skipped: Vec<Skipped> = idle
        .map(|one| of_configured(input, one, unmatched(input, one)))
        .collect();
    skipped.extend(
        configured
            .elsewhere
            .iter()
            .map(|one| of_configured(input, one, elsewhere(input, one))),
    );
    let found: HashSet<&RepoPath> = projects.iter().map(|project| &project.key.dir).collect();
    let is_free = |dir: &&RepoPath| {
        !configured.dirs.contains(*dir) && !found.contains(dir) && input.tree.has_code(dir)
    };
    let idle = idle_dirs(search.files);
    skipped.extend(
        input
            .tree
            .dirs()
            .filter(is_free)
            .map(|dir| of_dir(input, dir, &idle, search)),
    );
    skipped.sort_by(|a, b| a.key.cmp(&b.key));
    skipped
}

/// Returns, for each directory whose changed files concern no project, the reason of its first file.
fn idle_dirs(files: &[FileVerdict]) -> HashMap<RepoPath, &FileExclusion> {
    let mut idle = HashMap::new();
    for (file, reason) in files
        .iter()
        .filter_map(|file| Some((file, file.why_not.as_ref()?)))
    {
        idle.entry(file.path.parent()).or_insert(reason);
    }
    idle
}

fn of_configured(input: &Input<'_>, one: &Configured<'_>, why_not: SkipReason) -> Skipped {
    let file = input
        .config
        .map(|config| config.file_name.clone())
        .unwrap_or_default();
    let configured = Some(Decider::Repo {
        file,
        line: one.line(),
    });
    Skipped {
        key: one.key.clone(),
        configured,
        why_not,
    }
}

fn unmatched(input: &Input<'_>, one: &Configured<'_>) -> SkipReason {
    if !input.tree.dir_exists(&one.key.dir) {
        links::dir_behind(input.tree, &one.key.dir)
            .map_or(SkipReason::DirMissing, SkipReason::DirIsLink)
    } else if one.patterns().is_empty() {
        SkipReason::NoPatterns
    } else {
        SkipReason::NoMatch(one.patterns().clone())
    }
}

fn elsewhere(input: &Input<'_>, one: &Configured<'_>) -> SkipReason {
    let filter = one
        .config
        .branch
        .as_ref()
        .map(|branch| branch.as_str().to_owned())
        .unwrap_or_default();
    SkipReason::OtherBranch {
        filter,
        base: input.base.clone(),
    }
}

fn of_dir(
    input: &Input<'_>,
    dir: &RepoPath,
    idle: &HashMap<RepoPath, &FileExclusion>,
    search: &UnnamedDirs<'_>,
) -> Skipped {
    let why_not = if !search.autodiscover.is_active {
        SkipReason::NotConfigured(search.autodiscover.mode.clone())
    } else if let Some(why) = search.passed_over.get(dir) {
        SkipReason::PassedOver(*why)
    } else if let Some(owner) = auto::above_modules(dir) {
        SkipReason::PartOf(input.tree.has_code(&owner).then_some(owner))
    } else if let Some((glob, by)) = input.ignored(dir) {
        SkipReason::Ignored {
            glob: glob.to_string(),
            by: by.clone(),
        }
    } else if let Some(reason) = idle.get(dir) {
        SkipReason::NothingCounts((*reason).clone())
    } else {
        SkipReason::Unchanged
    };
    Skipped {
        key: ProjectKey::of_dir(dir.clone()),
        configured: None,
        why_not,
    }
}

/// Projects that are left out for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedGroup<'a> {
    /// The reason, as a clause.
    pub reason: String,
    /// Projects of the group, in their order.
    pub projects: Vec<&'a Skipped>,
}

/// Groups projects by reason; the reason with the most projects comes first.
pub fn skipped_groups(skipped: &[Skipped]) -> Vec<SkippedGroup<'_>> {
    let mut groups: BTreeMap<String, Vec<&Skipped>> = BTreeMap::new();
    for one in skipped {
        groups.entry(one.why_not.to_string()).or_default().push(one);
    }
    let mut groups: Vec<SkippedGroup<'_>> = groups
        .into_iter()
        .map(|(reason, projects)| SkippedGroup { reason, projects })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.projects.len()));
    groups
}
