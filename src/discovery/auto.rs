//! Projects that nobody configured: directories with code in which something changed (reference 3.4).

use std::collections::{BTreeMap, HashSet};

use super::limits::LimitExceeded;
use super::{Input, Project, Tree, Why, cloud};
use crate::model::{ProjectKey, RepoPath};

/// Names of files that hold state or settings of tools, but no code. A part of the name suffices.
const IGNORED_NAMES: [&str; 3] = ["terraform.tfstate", "terraform.tfstate.backup", "tflint.hcl"];

/// The projects that the changed files (sorted) are in, apart from directories that are configured.
pub(super) fn find(
    input: &Input<'_>,
    changed: &[&RepoPath],
    configured: &HashSet<&RepoPath>,
) -> Result<Vec<Project>, LimitExceeded> {
    let mut dirs = BTreeMap::new();
    for file in changed.iter().filter(|file| counts(input, file)) {
        if let Some((dir, why)) = place(input.tree, file)
            && !configured.contains(&dir)
            && input.tree.has_code(&dir)
        {
            dirs.entry(dir).or_insert(why);
        }
    }
    // Before the code is read, since that is the costly part.
    input.settings.check_count(dirs.len())?;
    Ok(dirs.into_iter().map(|(dir, why)| project(input, dir, why)).collect())
}

/// Whether a changed file can make its directory a project.
pub(super) fn counts(input: &Input<'_>, file: &RepoPath) -> bool {
    input.settings.file_list.matching(&RepoPath::root(), file).is_some() && !is_no_code(file)
}

/// Whether a file holds state or settings of a tool.
pub(super) fn is_no_code(file: &RepoPath) -> bool {
    IGNORED_NAMES.iter().any(|name| file.file_name().contains(name))
}

/// The directory that a changed file speaks for, if any.
pub(super) fn place(tree: &Tree, file: &RepoPath) -> Option<(RepoPath, Why)> {
    let dir = file.parent();
    if dir.file_name() == "env" {
        return Some((dir.parent(), Why::EnvDir(file.clone())));
    }
    if let Some(owner) = above_modules(&dir) {
        // Shared modules have no such owner, and nothing tells who uses them.
        return tree.has_code(&owner).then(|| (owner, Why::Modules(file.clone())));
    }
    Some((dir, Why::OwnDir(file.clone())))
}

/// The directory that the first `modules` of a path is in.
pub(super) fn above_modules(dir: &RepoPath) -> Option<RepoPath> {
    let parts: Vec<&str> = dir.as_str().split('/').collect();
    let first = parts.iter().position(|part| *part == "modules")?;
    RepoPath::new(&parts[..first].join("/")).ok()
}

fn project(input: &Input<'_>, dir: RepoPath, why: Why) -> Project {
    let workspace = cloud::workspace(input, &dir);
    Project { key: ProjectKey { dir, workspace, name: None }, terraform_version: None, autoplan: true, why }
}
