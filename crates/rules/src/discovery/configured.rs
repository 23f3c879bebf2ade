//! Selects the projects that the repository configures, and those that the changed files concern (reference 3.3).

use std::collections::HashSet;

use super::limits::{LimitExceeded, MAX_CONFIGURED, MAX_LINK_PARTS, MAX_PATTERN_TESTS};
use super::modules::Users;
use super::{FileTree, Input, OrderPosition, Project, ProjectReason, links};
use crate::config::repo::{Patterns, ProjectConfig, ProjectDir};
use crate::model::{ProjectKey, RepoPath};

/// An entry of the configuration for one directory.
#[derive(Debug, Clone)]
pub(super) struct Configured<'c> {
    pub(super) key: ProjectKey,
    pub(super) config: &'c ProjectConfig,
}

/// Result of expanding the patterns of a configuration.
pub(super) struct Expanded<'c> {
    /// Projects for the base branch of the pull request.
    pub(super) projects: Vec<Configured<'c>>,
    /// Projects for other base branches.
    pub(super) elsewhere: Vec<Configured<'c>>,
    /// Directories of all these projects, which the automatic search skips.
    pub(super) dirs: HashSet<RepoPath>,
}

impl<'c> Configured<'c> {
    fn new(config: &'c ProjectConfig, dir: RepoPath) -> Self {
        let key = ProjectKey {
            dir,
            workspace: config.workspace.clone(),
            name: config.name.clone(),
        };
        Self { key, config }
    }

    pub(super) fn patterns(&self) -> &'c Patterns {
        &self.config.autoplan.when_modified
    }

    /// Returns the changed files (sorted) that the patterns of the project could match at all.
    pub(super) fn near<'a, 'p>(&self, changed: &'a [&'p RepoPath]) -> &'a [&'p RepoPath] {
        below(changed, &self.patterns().reach(&self.key.dir))
    }

    pub(super) fn concerned_by(&self, file: &RepoPath) -> Option<ProjectReason> {
        let pattern = self.patterns().matching(&self.key.dir, file)?;
        Some(ProjectReason::WhenModified {
            file: file.clone(),
            pattern: pattern.to_owned(),
        })
    }

    /// Returns the line of the file where the entry of the project begins.
    pub(super) fn line(&self) -> usize {
        self.config.line
    }

    pub(super) fn into_project(self, why: ProjectReason) -> Project {
        Project {
            key: self.key,
            terraform_version: self.config.terraform_version.clone(),
            autoplan: self.config.autoplan.enabled,
            order: OrderPosition::of(self.config),
            why,
        }
    }
}

/// Returns all configured projects, even if their directory does not exist.
///
/// A pattern as `dir` becomes one project per matching directory with code. A directory and workspace is left out if
/// an earlier entry, or any entry with a plain path, has it already. Entries for other base branches (reference 3.11)
/// do not hide those for this branch.
pub(super) fn expand<'c>(input: &Input<'c>) -> Result<Expanded<'c>, LimitExceeded> {
    let (here, elsewhere) = input.config.map_or((&[][..], &[][..]), |config| {
        (&config.projects, &config.elsewhere)
    });
    let code: Vec<&RepoPath> = if has_globs(here) || has_globs(elsewhere) {
        input
            .tree
            .dirs()
            .filter(|dir| input.tree.has_code(dir))
            .collect()
    } else {
        vec![]
    };
    let (projects, elsewhere) = (carry_out(here, &code)?, carry_out(elsewhere, &code)?);
    let dirs = projects
        .iter()
        .chain(&elsewhere)
        .map(|one| one.key.dir.clone())
        .collect();
    Ok(Expanded {
        projects,
        elsewhere,
        dirs,
    })
}

fn carry_out<'c>(
    entries: &'c [ProjectConfig],
    code: &[&RepoPath],
) -> Result<Vec<Configured<'c>>, LimitExceeded> {
    let plain = entries.iter().filter_map(|entry| match &entry.dir {
        ProjectDir::Path(dir) => Some(Configured::new(entry, dir.clone())),
        ProjectDir::Glob(_) => None,
    });
    let mut all: Vec<Configured<'c>> = plain.collect();
    let mut taken: HashSet<_> = all
        .iter()
        .map(|one| (one.key.dir.clone(), one.key.workspace.clone()))
        .collect();
    for entry in entries {
        let ProjectDir::Glob(glob) = &entry.dir else {
            continue;
        };
        for dir in code.iter().filter(|dir| glob.arrives_at(dir)) {
            if taken.insert(((*dir).clone(), entry.workspace.clone())) {
                all.push(Configured::new(entry, (*dir).clone()));
            }
        }
        if all.len() > MAX_CONFIGURED {
            return Err(LimitExceeded::Configured);
        }
    }
    Ok(all)
}

fn has_globs(entries: &[ProjectConfig]) -> bool {
    entries
        .iter()
        .any(|entry| matches!(entry.dir, ProjectDir::Glob(_)))
}

/// Returns the projects whose `when_modified` matches one of the changed files (sorted), or that use a module which
/// contains one (reference 3.3, 3.10). An empty `when_modified` means that nothing concerns the project.
pub(super) fn concerned(
    configured: Vec<Configured<'_>>,
    tree: &FileTree,
    changed: &[&RepoPath],
    users: &Users,
) -> Result<Vec<Project>, LimitExceeded> {
    let present: Vec<_> = configured
        .into_iter()
        .filter(|one| tree.dir_exists(&one.key.dir))
        .collect();
    check_tests(&present, changed)?;
    let with_files = present.into_iter().map(|one| (one.near(changed), one));
    let project = |(near, one): (&[&RepoPath], Configured<'_>)| {
        let by_file = near.iter().find_map(|file| one.concerned_by(file));
        let by_module = || {
            users
                .get(&one.key.dir)
                .filter(|_| !one.patterns().is_empty())
                .cloned()
                .map(ProjectReason::Module)
        };
        let why = by_file.or_else(by_module)?;
        Some(one.into_project(why))
    };
    Ok(with_files.filter_map(project).collect())
}

/// Returns the first configured project that the changed files would concern, but whose directory is a symbolic link
/// to another directory of the repository. The changed files are sorted and include the names seen through links.
pub(super) fn behind_link(
    configured: Vec<Configured<'_>>,
    tree: &FileTree,
    changed: &[&RepoPath],
) -> Result<Option<(RepoPath, RepoPath)>, LimitExceeded> {
    let absent: Vec<_> = configured
        .into_iter()
        .filter(|one| !tree.dir_exists(&one.key.dir))
        .collect();
    check_tests(&absent, changed)?;
    let mut parts_left = MAX_LINK_PARTS;
    for one in absent {
        if !one
            .near(changed)
            .iter()
            .any(|file| one.concerned_by(file).is_some())
        {
            continue;
        }
        let target = links::follow(
            tree,
            RepoPath::root(),
            one.key.dir.as_str(),
            &mut parts_left,
        )?;
        if let Some(target) = target.filter(|target| tree.dir_exists(target)) {
            return Ok(Some((one.key.dir, target)));
        }
    }
    Ok(None)
}

/// Refuses more pattern tests than one command may cause.
fn check_tests(configured: &[Configured<'_>], changed: &[&RepoPath]) -> Result<(), LimitExceeded> {
    let tests: usize = configured
        .iter()
        .map(|one| one.near(changed).len() * one.patterns().len())
        .sum();
    if tests > MAX_PATTERN_TESTS {
        Err(LimitExceeded::PatternTests)
    } else {
        Ok(())
    }
}

/// Returns the part of a sorted list that lies below a directory.
pub(super) fn below<'a, 'p>(sorted: &'a [&'p RepoPath], dir: &RepoPath) -> &'a [&'p RepoPath] {
    if dir.is_root() {
        return sorted;
    }
    let prefix = format!("{dir}/");
    let start = sorted.partition_point(|file| file.as_str() < prefix.as_str());
    let length = sorted[start..]
        .iter()
        .take_while(|file| file.as_str().starts_with(&prefix))
        .count();
    &sorted[start..start + length]
}
