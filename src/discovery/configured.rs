//! Projects that the repository configures: which there are, and which the changed files concern (reference 3.3).

use std::collections::HashSet;

use super::limits::{LimitExceeded, MAX_CONFIGURED, MAX_PATTERN_TESTS};
use super::{Project, Tree, Why};
use crate::config::repo::{ProjectConfig, ProjectDir, RepoConfig};
use crate::model::{ProjectKey, RepoPath};

/// An entry of the configuration at one directory.
#[derive(Debug, Clone)]
pub(super) struct Configured<'c> {
    pub(super) key: ProjectKey,
    config: &'c ProjectConfig,
}

impl<'c> Configured<'c> {
    fn new(config: &'c ProjectConfig, dir: RepoPath) -> Self {
        let key = ProjectKey { dir, workspace: config.workspace.clone(), name: config.name.clone() };
        Self { key, config }
    }

    pub(super) fn into_project(self, why: Why) -> Project {
        Project {
            key: self.key,
            terraform_version: self.config.terraform_version.clone(),
            autoplan: self.config.autoplan.enabled,
            why,
        }
    }
}

/// All configured projects, whether their directory is there or not. A pattern as `dir` becomes a project per directory
/// with code that matches, except where an entry before it, or any entry with a plain path, has that directory and
/// workspace already.
pub(super) fn expand<'c>(config: Option<&'c RepoConfig>, tree: &Tree) -> Result<Vec<Configured<'c>>, LimitExceeded> {
    let entries = config.map_or(&[][..], |config| &config.projects);
    let plain = entries.iter().filter_map(|entry| match &entry.dir {
        ProjectDir::Path(dir) => Some(Configured::new(entry, dir.clone())),
        ProjectDir::Glob(_) => None,
    });
    let mut all: Vec<Configured<'c>> = plain.collect();
    let mut taken: HashSet<_> = all.iter().map(|one| (one.key.dir.clone(), one.key.workspace.clone())).collect();
    let code: Vec<&RepoPath> =
        if has_globs(entries) { tree.dirs().filter(|dir| tree.has_code(dir)).collect() } else { vec![] };
    for entry in entries {
        let ProjectDir::Glob(glob) = &entry.dir else { continue };
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
    entries.iter().any(|entry| matches!(entry.dir, ProjectDir::Glob(_)))
}

/// The projects whose `when_modified` matches one of the changed files, which are sorted.
pub(super) fn concerned(
    configured: Vec<Configured<'_>>,
    tree: &Tree,
    changed: &[&RepoPath],
) -> Result<Vec<Project>, LimitExceeded> {
    let mut tests = 0;
    let mut projects = Vec::new();
    for one in configured {
        if !tree.dir_exists(&one.key.dir) {
            continue;
        }
        let patterns = &one.config.autoplan.when_modified;
        let near = below(changed, &patterns.reach(&one.key.dir));
        tests += near.len() * patterns.len();
        if tests > MAX_PATTERN_TESTS {
            return Err(LimitExceeded::PatternTests);
        }
        let matching =
            |file: &&RepoPath| patterns.matching(&one.key.dir, file).map(|text| ((*file).clone(), text.to_owned()));
        if let Some((file, pattern)) = near.iter().find_map(matching) {
            projects.push(one.into_project(Why::WhenModified { file, pattern }));
        }
    }
    Ok(projects)
}

/// The part of a sorted list that lies below a directory.
fn below<'a, 'p>(sorted: &'a [&'p RepoPath], dir: &RepoPath) -> &'a [&'p RepoPath] {
    if dir.is_root() {
        return sorted;
    }
    let prefix = format!("{dir}/");
    let start = sorted.partition_point(|file| file.as_str() < prefix.as_str());
    let length = sorted[start..].iter().take_while(|file| file.as_str().starts_with(&prefix)).count();
    &sorted[start..start + length]
}
