//! What a search for projects that nobody configured takes from Terragrunt.

use std::collections::HashSet;

use super::reading::CONFIG;
use super::{Chain, Watch, concerned, is_used, runs, units};
use crate::discovery::Tree;
use crate::model::RepoPath;

fn is_own_language(file: &RepoPath) -> bool {
    file.file_name().rsplit_once('.').is_some_and(|(_, ending)| ending == "hcl")
}

/// The projects that are units and stacks.
#[derive(Default)]
pub(in crate::discovery) struct Search {
    /// Those that the change concerns, sorted, with the group of the order that each is in.
    pub(in crate::discovery) concerned: Vec<(RepoPath, Chain, i32)>,
    /// Directories that no other rule makes a project: those that Terragrunt runs, and code that units run.
    pub(in crate::discovery) owned: HashSet<RepoPath>,
}

impl Search {
    /// Looks for them. A directory whose `terragrunt.hcl` does not count is left out; so operators can leave some, or
    /// all, to other rules. Files of Terragrunt's language count wherever code does.
    pub(in crate::discovery) fn of(
        tree: &Tree,
        read: &dyn Fn(&RepoPath) -> Option<String>,
        changed: &[&RepoPath],
        counts: &dyn Fn(&RepoPath) -> bool,
    ) -> Self {
        if changed.is_empty() || !is_used(tree) {
            return Self::default();
        }
        let wanted = |dir: &RepoPath| dir.join(CONFIG).is_ok_and(|file| counts(&file));
        let mut found = units(tree, read);
        found.units.retain(|unit| wanted(&unit.dir));
        let code = |file: &RepoPath| counts(file) || is_own_language(file);
        let group = |dir: &RepoPath| found.unit(dir).map_or(0, |unit| i32::try_from(unit.order).unwrap_or(i32::MAX));
        let concerned = concerned(&found, tree, changed, &code);
        let concerned = concerned.into_iter().map(|(dir, chain)| (dir.clone(), chain, group(&dir))).collect();
        let sources = found.units.iter().flat_map(|unit| &unit.watches).filter(|(_, watch)| **watch != Watch::Own);
        let mut owned: HashSet<RepoPath> = sources.map(|(dir, _)| dir.clone()).collect();
        owned.extend(tree.dirs().filter(|dir| runs(tree, dir) && wanted(dir)).cloned());
        Self { concerned, owned }
    }
}
