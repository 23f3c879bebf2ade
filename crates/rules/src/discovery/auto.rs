//! Finds projects that nobody configured: directories with changed code, or that use a module with changes (reference
//! 3.4, 3.10).

use std::collections::{BTreeMap, HashSet};

use super::limits::LimitExceeded;
use super::{FileTree, Input, OrderPosition, Project, ProjectReason, cloud, terragrunt};
use crate::model::{ProjectKey, RepoPath};

/// Names of files that hold state or settings of tools, but no code. A file matches if its name contains one of them.
const IGNORED_NAMES: [&str; 3] = [
    "terraform.tfstate",
    "terraform.tfstate.backup",
    "tflint.hcl",
];

/// Returns the projects that contain the changed files (sorted), and those that use a module which contains one.
/// Configured directories and those of `ignore_paths` are left out.
pub(super) fn find(
    input: &Input<'_>,
    changed: &[&RepoPath],
    configured: &HashSet<RepoPath>,
) -> Result<Vec<Project>, LimitExceeded> {
    let units = terragrunt::TerragruntProjects::of(input.tree, input.read, changed, &|file| {
        counts(input, file)
    });
    let counting: Vec<&RepoPath> = changed
        .iter()
        .copied()
        .filter(|file| counts(input, file))
        .collect();
    let users = input
        .modules
        .map(|modules| modules.users(&counting))
        .unwrap_or_default();
    let of_files = counting.iter().filter_map(|file| place(input.tree, file));
    let of_modules = users
        .into_iter()
        .filter(|(dir, _)| uses_by_itself(input, dir));
    let found = of_files.chain(of_modules.map(|(dir, found)| (dir, ProjectReason::Module(found))));
    let others = found
        .filter(|(dir, _)| !units.owned.contains(dir))
        .map(|(dir, why)| (dir, why, 0));
    let of_units = units
        .concerned
        .into_iter()
        .map(|(dir, chain, group)| (dir, ProjectReason::Terragrunt(chain), group));
    let mut dirs = BTreeMap::new();
    for (dir, why, group) in of_units.chain(others) {
        // A directory that a link leads to is found under its own name.
        if !configured.contains(&dir) && input.tree.has_code(&dir) && input.ignored(&dir).is_none()
        {
            dirs.entry(dir).or_insert((why, group));
        }
    }
    // The check comes before the code is read, because reading is the costly part.
    input.settings.check_count(dirs.len())?;
    Ok(dirs
        .into_iter()
        .map(|(dir, (why, group))| project(input, dir, why, group))
        .collect())
}

/// Returns true if a changed file can make its directory a project.
pub(super) fn counts(input: &Input<'_>, file: &RepoPath) -> bool {
    input
        .settings
        .file_list
        .matching(&RepoPath::root(), file)
        .is_some()
        && !is_no_code(file)
}

/// Returns true if a file holds state or settings of a tool.
pub(super) fn is_no_code(file: &RepoPath) -> bool {
    IGNORED_NAMES
        .iter()
        .any(|name| file.file_name().contains(name))
}

/// Returns true if a directory that uses modules is a project, and not a module itself.
fn uses_by_itself(input: &Input<'_>, dir: &RepoPath) -> bool {
    above_modules(dir).is_none() && input.modules.is_some_and(|modules| modules.is_project(dir))
}

/// Returns the directory that a changed file belongs to, if any.
pub(super) fn place(tree: &FileTree, file: &RepoPath) -> Option<(RepoPath, ProjectReason)> {
    let dir = file.parent();
    if dir.file_name() == "env" {
        return Some((dir.parent(), ProjectReason::EnvDir(file.clone())));
    }
    if let Some(owner) = above_modules(&dir) {
        // Shared modules have no such owner, and nothing says which projects use them.
        return tree
            .has_code(&owner)
            .then(|| (owner, ProjectReason::Modules(file.clone())));
    }
    Some((dir, ProjectReason::OwnDir(file.clone())))
}

/// Returns the directory that contains the first `modules` of a path.
pub(super) fn above_modules(dir: &RepoPath) -> Option<RepoPath> {
    let parts: Vec<&str> = dir.as_str().split('/').collect();
    let first = parts.iter().position(|part| *part == "modules")?;
    RepoPath::new(&parts[..first].join("/")).ok()
}

fn project(input: &Input<'_>, dir: RepoPath, why: ProjectReason, group: i32) -> Project {
    let workspace = cloud::workspace(input, &dir);
    let key = ProjectKey {
        dir,
        workspace,
        name: None,
    };
    Project {
        key,
        terraform_version: None,
        autoplan: true,
        order: OrderPosition::in_group(group),
        why,
    }
}
