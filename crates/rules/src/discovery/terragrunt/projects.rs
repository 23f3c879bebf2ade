//! Selects the units and stacks for a search for projects that nobody configured.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::reading::CONFIG;
use super::{
    Chain, SkippedDir, TerragruntDirs, UnitCode, Unresolved, concerned, is_used, runs, units,
};
use crate::discovery::FileTree;
use crate::model::RepoPath;

/// Returns true if a file is written in Terragrunt's language, by its name.
pub(super) fn is_own_language(file: &RepoPath) -> bool {
    file.file_name()
        .rsplit_once('.')
        .is_some_and(|(_, ending)| ending == "hcl")
}

/// Returns true if the administrator leaves a directory to Terragrunt, because its `terragrunt.hcl` counts.
fn wanted(dir: &RepoPath, counts: &dyn Fn(&RepoPath) -> bool) -> bool {
    dir.join(CONFIG).is_ok_and(|file| counts(&file))
}

/// Returns the directories that Terragrunt would run, but skips, with the reason. [`TerragruntProjects`] takes them from the
/// other rules without making them projects.
pub(in crate::discovery) fn passed_over(
    tree: &FileTree,
    read: &dyn Fn(&RepoPath) -> Option<String>,
    counts: &dyn Fn(&RepoPath) -> bool,
) -> BTreeMap<RepoPath, SkippedDir> {
    if !is_used(tree) {
        return BTreeMap::new();
    }
    let mut found = units(tree, read).passed_over;
    found.retain(|dir, _| wanted(dir, counts));
    found
}

/// Endings of files that units read, or that are code. Changes of all other files say nothing about unresolved facts.
const ENDINGS: [&str; 12] = [
    "hcl", "json", "jsonnet", "sops", "tf", "tftpl", "tfvars", "tmpl", "tofu", "tpl", "yaml", "yml",
];

/// Returns the unresolved facts of units that are not planned, sorted. Because of them, one of these changes may
/// still concern a unit. `planned` returns true for directories that are planned, or that other rules decide about.
pub(in crate::discovery) fn not_known(
    tree: &FileTree,
    read: &dyn Fn(&RepoPath) -> Option<String>,
    changed: &[&RepoPath],
    counts: &dyn Fn(&RepoPath) -> bool,
    planned: &dyn Fn(&RepoPath) -> bool,
) -> Vec<Unresolved> {
    let may_be_read = |file: &&RepoPath| {
        counts(file)
            || file
                .file_name()
                .rsplit_once('.')
                .is_some_and(|(_, ending)| ENDINGS.contains(&ending))
    };
    if !changed.iter().any(may_be_read) || !is_used(tree) {
        return Vec::new();
    }
    let found = units(tree, read);
    let left = found
        .units
        .into_iter()
        .filter(|unit| wanted(&unit.dir, counts) && !planned(&unit.dir));
    let all: BTreeSet<Unresolved> = left
        .flat_map(|unit| unit.unresolved)
        .chain(found.cut_off)
        .collect();
    all.into_iter().collect()
}

/// Returns the group of the order of a directory whose projects nobody configured.
pub(in crate::discovery) fn group(
    tree: &FileTree,
    read: &dyn Fn(&RepoPath) -> Option<String>,
    dir: &RepoPath,
    counts: &dyn Fn(&RepoPath) -> bool,
) -> i32 {
    if !runs(tree, dir) || !wanted(dir, counts) {
        return 0;
    }
    group_of(&units(tree, read), dir)
}

fn group_of(found: &TerragruntDirs, dir: &RepoPath) -> i32 {
    found
        .unit(dir)
        .map_or(0, |unit| i32::try_from(unit.order).unwrap_or(i32::MAX))
}

/// Projects that are units or stacks.
#[derive(Default)]
pub(in crate::discovery) struct TerragruntProjects {
    /// Units and stacks that the change concerns, sorted, each with its group of the order.
    pub(in crate::discovery) concerned: Vec<(RepoPath, Chain, i32)>,
    /// Directories that no other rule makes a project: those that Terragrunt runs, and code that units run.
    pub(in crate::discovery) owned: HashSet<RepoPath>,
}

impl TerragruntProjects {
    /// Searches for units and stacks. A directory whose `terragrunt.hcl` does not count is left out, so
    /// administrators can leave some or all to other rules. Files of Terragrunt's language count like code.
    pub(in crate::discovery) fn of(
        tree: &FileTree,
        read: &dyn Fn(&RepoPath) -> Option<String>,
        changed: &[&RepoPath],
        counts: &dyn Fn(&RepoPath) -> bool,
    ) -> Self {
        if changed.is_empty() || !is_used(tree) {
            return Self::default();
        }
        let mut found = units(tree, read);
        found.units.retain(|unit| wanted(&unit.dir, counts));
        let code = |file: &RepoPath| counts(file) || is_own_language(file);
        let concerned = concerned(&found, tree, changed, &code);
        let concerned = concerned
            .into_iter()
            .map(|(dir, chain)| (dir.clone(), chain, group_of(&found, &dir)))
            .collect();
        let sources = found
            .units
            .iter()
            .flat_map(|unit| &unit.watches)
            .filter(|(_, watch)| **watch != UnitCode::Own);
        let mut owned: HashSet<RepoPath> = sources.map(|(dir, _)| dir.clone()).collect();
        owned.extend(
            tree.dirs()
                .filter(|dir| runs(tree, dir) && wanted(dir, counts))
                .cloned(),
        );
        Self { concerned, owned }
    }
}
