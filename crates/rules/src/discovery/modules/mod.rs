//! Builds the graph of directories that use others as modules (reference 3.10). A change in a module then plans the
//! projects that use it, directly or through other modules.
//!
//! The graph depends only on the files of a commit and one setting, so callers may cache it by the id of the tree.
//! Only sources that stay in the repository count, after following symbolic links. Circles are harmless: every
//! directory is visited once.

mod calls;
mod package;
mod remote;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::code::UnreadFile;
use super::limits::{LimitExceeded, MAX_MODULE_BYTES, MAX_MODULE_DIRS, MAX_SOURCE_PARTS};
use super::{FileTree, Patterns, links};
use crate::model::RepoPath;
use calls::Calls;

pub use package::{MissingModule, missing_modules};
pub use remote::{RemoteCall, local_sources, remote_calls};

/// Maximum number of unreadable files that are kept to report them.
const MAX_UNREAD: usize = 100;

/// Reason why a change elsewhere concerns a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseReason {
    /// Changed file in the last module.
    pub file: RepoPath,
    /// Modules between directory and file: first the one that the directory uses itself, then the one that this
    /// module uses, and so on to the one with the file; at least one.
    pub via: Vec<RepoPath>,
}

/// Directories that changes in modules concern.
pub type Users = BTreeMap<RepoPath, UseReason>;

/// Directories and the modules that they use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleGraph {
    /// Directories that use each module.
    users: BTreeMap<RepoPath, BTreeSet<RepoPath>>,
    /// Directories that matched the setting, so that they may be projects.
    roots: HashSet<RepoPath>,
    /// Directories that say where their state is: projects, even if other code uses them as a module.
    stateful: HashSet<RepoPath>,
    /// Code that cannot be read, so that the modules it uses are unknown.
    unread: BTreeSet<UnreadFile>,
    /// Code that cannot be read, so that the place of its state is unknown.
    unread_states: BTreeSet<UnreadFile>,
}

impl ModuleGraph {
    /// Reads the code of all directories with a file that matches `from`, and of the modules they use. `read` is as
    /// in [`super::Input`]. Code that cannot be read or understood uses nothing.
    pub fn build(
        tree: &FileTree,
        from: &Patterns,
        read: &dyn Fn(&RepoPath) -> Option<String>,
    ) -> Result<Self, LimitExceeded> {
        let matches = |dir: &&RepoPath| {
            tree.has_code(dir)
                && tree
                    .files_in(dir)
                    .iter()
                    .any(|file| from.matching(&RepoPath::root(), file).is_some())
        };
        let roots: HashSet<RepoPath> = tree.dirs().filter(matches).cloned().collect();
        let mut graph = Self {
            roots,
            ..Self::default()
        };
        let mut todo: VecDeque<RepoPath> = graph.roots.iter().cloned().collect();
        let mut seen = graph.roots.clone();
        let (mut budget, mut parts_left) = (MAX_MODULE_BYTES, MAX_SOURCE_PARTS);
        while let Some(dir) = todo.pop_front() {
            if seen.len() > MAX_MODULE_DIRS {
                return Err(LimitExceeded::Modules);
            }
            let calls =
                Calls::of_dir(tree, &dir, read, &mut budget).ok_or(LimitExceeded::Modules)?;
            for source in &calls.sources {
                let target = target(tree, &dir, source, &mut parts_left)
                    .map_err(|_| LimitExceeded::Modules)?;
                let Some(module) = target else { continue };
                if seen.insert(module.clone()) {
                    todo.push_back(module.clone());
                }
                graph.users.entry(module).or_default().insert(dir.clone());
            }
            keep(&mut graph.unread, calls.unread);
            keep(&mut graph.unread_states, calls.unread_states);
            if calls.has_state {
                graph.stateful.insert(dir);
            }
        }
        Ok(graph)
    }

    /// Returns true if a directory that uses modules is a project: it matches the setting, and is not a module
    /// itself.
    pub(super) fn is_project(&self, dir: &RepoPath) -> bool {
        self.roots.contains(dir) && (self.stateful.contains(dir) || !self.users.contains_key(dir))
    }

    /// Returns the code of these directories that cannot be read, by file.
    pub(super) fn unread(&self) -> impl Iterator<Item = &UnreadFile> {
        self.unread.iter()
    }

    /// Returns unreadable code, by file, of modules that would be projects if the code says where the state is.
    pub(super) fn unread_states(&self) -> impl Iterator<Item = &UnreadFile> {
        self.unread_states.iter().filter(move |unread| {
            let dir = unread.file.parent();
            self.roots.contains(&dir)
                && self.users.contains_key(&dir)
                && !self.stateful.contains(&dir)
        })
    }

    /// Returns all directories that use a module with one of the changed files, by the shortest way. A file in a
    /// directory without code of its own belongs to the module above.
    pub(super) fn users(&self, changed: &[&RepoPath]) -> Users {
        let mut users = Users::new();
        let mut sources = BTreeMap::new();
        for file in changed {
            if let Some(module) = self.module_of(file) {
                sources.entry(module).or_insert_with(|| (*file).clone());
            }
        }
        let mut todo: VecDeque<(RepoPath, UseReason)> = sources
            .into_iter()
            .map(|(module, file)| {
                (
                    module.clone(),
                    UseReason {
                        file,
                        via: vec![module],
                    },
                )
            })
            .collect();
        while let Some((module, reason)) = todo.pop_front() {
            for user in self.users.get(&module).into_iter().flatten() {
                if users.contains_key(user) {
                    continue;
                }
                users.insert(user.clone(), reason.clone());
                if self.users.contains_key(user) {
                    let via = std::iter::once(user.clone())
                        .chain(reason.via.iter().cloned())
                        .collect();
                    todo.push_back((
                        user.clone(),
                        UseReason {
                            file: reason.file.clone(),
                            via,
                        },
                    ));
                }
            }
        }
        users
    }

    /// Returns the module that contains a file: the nearest directory above that is a module, unless a project is
    /// nearer.
    fn module_of(&self, file: &RepoPath) -> Option<RepoPath> {
        let mut dir = file.parent();
        loop {
            if self.users.contains_key(&dir) {
                return Some(dir);
            }
            if dir.is_root() || self.roots.contains(&dir) {
                return None;
            }
            dir = dir.parent();
        }
    }
}

/// Adds files and keeps only the first ones.
fn keep(kept: &mut BTreeSet<UnreadFile>, more: Vec<UnreadFile>) {
    kept.extend(more);
    while kept.len() > MAX_UNREAD {
        kept.pop_last();
    }
}

/// Returns the directory that a source leads to; `None`: outside the repository, or the directory itself.
fn target(
    tree: &FileTree,
    dir: &RepoPath,
    source: &str,
    parts_left: &mut usize,
) -> Result<Option<RepoPath>, LimitExceeded> {
    // Terraform follows links first: `..` behind a link is the directory above its target.
    let Some(from) = links::follow(tree, RepoPath::root(), dir.as_str(), parts_left)? else {
        return Ok(None);
    };
    Ok(links::follow(tree, from, source, parts_left)?.filter(|at| at != dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_on_the_way_to_a_module_counts() {
        let path = |text: &str| -> RepoPath { text.parse().unwrap() };
        let links = [(path("live/prod/mods"), "../../modules".to_owned())];
        let tree =
            FileTree::new(["live/prod/main.tf", "modules/net/main.tf"].map(path)).with_links(links);
        let to = |source: &str, mut parts_left: usize| {
            target(&tree, &path("live/prod"), source, &mut parts_left)
        };
        // Two parts of the directory, three of the source, three of the link; `..` behind the link is above its
        // target.
        assert_eq!(to("./mods/net", 2 + 3 + 3), Ok(Some(path("modules/net"))));
        assert_eq!(to("./mods/net", 2 + 3 + 2), Err(LimitExceeded::Links));
        assert_eq!(to("./mods/../live", 100), Ok(Some(path("live"))));
        assert_eq!(
            (to("../../..", 100), to("../prod", 100)),
            (Ok(None), Ok(None))
        );
    }
}
