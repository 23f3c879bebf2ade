//! Finds the units that a change concerns, and the way from the file to each unit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;

use super::{FileUse, TerragruntDirs, UnitCode};
use crate::config::repo::shown;
use crate::discovery::FileTree;
use crate::model::RepoPath;

/// Reason why a change concerns a unit. Displays as one clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// File changed by the pull request.
    pub file: RepoPath,
    /// Relation of the file to the unit that it concerns first.
    pub cause: FileRelation,
    /// Units between the first one, which comes first, and this one; each depends on the one before. Empty if the
    /// file concerns this unit directly.
    pub through: Vec<RepoPath>,
}

/// Relation of a file to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRelation {
    /// The unit reads the file.
    Read(FileUse),
    /// The file is code that the unit runs.
    Code(UnitCode),
}

/// Maximum number of units that an explanation names.
const SHOWN: usize = 4;

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &RepoPath| shown(path.as_str());
        write!(f, "`{}` changed", path(&self.file))?;
        let first = self
            .through
            .first()
            .map_or_else(|| "it".to_owned(), |first| format!("`{}`", path(first)));
        match self.cause {
            FileRelation::Read(FileUse::Own) | FileRelation::Code(UnitCode::Own) => {}
            FileRelation::Read(how) => write!(f, ", which {first} {how}")?,
            FileRelation::Code(UnitCode::Source) => {
                write!(f, ", which is in the code that {first} runs")?;
            }
            FileRelation::Code(UnitCode::Module) => {
                write!(f, ", which is in a module that {first} uses")?;
            }
        }
        if self.through.is_empty() {
            return Ok(());
        }
        let last: Vec<String> = self
            .through
            .iter()
            .rev()
            .take(SHOWN)
            .map(|unit| format!("`{}`", path(unit)))
            .collect();
        write!(
            f,
            ", and it depends on {}",
            last.join(", which depends on ")
        )?;
        if self.through.len() > SHOWN {
            f.write_str(", and so on")
        } else {
            Ok(())
        }
    }
}

/// Returns the units that changed files concern, sorted, each with the shortest way to it. A file that a unit reads
/// always counts. Another file in a directory of its code counts if `counts` says so. A change of a unit also
/// concerns the units that depend on it, and so on.
pub fn concerned(
    found: &TerragruntDirs,
    tree: &FileTree,
    changed: &[&RepoPath],
    counts: &dyn Fn(&RepoPath) -> bool,
) -> Vec<(RepoPath, Chain)> {
    let index = Index::new(found);
    let mut chains: BTreeMap<usize, Chain> = BTreeMap::new();
    let mut files: Vec<&RepoPath> = changed.to_vec();
    files.sort_unstable();
    for file in files {
        for (unit, cause) in index.of(tree, file, counts) {
            let chain = || Chain {
                file: file.clone(),
                cause,
                through: vec![],
            };
            chains.entry(unit).or_insert_with(chain);
        }
    }
    spread(found, &index, &mut chains);
    chains
        .into_iter()
        .map(|(unit, chain)| (found.units[unit].dir.clone(), chain))
        .collect()
}

/// Adds the units that depend on the concerned units, nearest first.
fn spread(found: &TerragruntDirs, index: &Index<'_>, chains: &mut BTreeMap<usize, Chain>) {
    let mut left: VecDeque<usize> = chains.keys().copied().collect();
    while let Some(unit) = left.pop_front() {
        let from = chains[&unit].clone();
        for user in index.users.get(&unit).into_iter().flatten() {
            if !chains.contains_key(user) {
                let mut through = from.through.clone();
                // Long ways are shortened: nobody reads them, and a thousand of them would fill the memory.
                if through.len() > SHOWN {
                    through.remove(1);
                }
                through.push(found.units[unit].dir.clone());
                chains.insert(
                    *user,
                    Chain {
                        through,
                        ..from.clone()
                    },
                );
                left.push_back(*user);
            }
        }
    }
}

/// Units by the files and directories that they depend on.
struct Index<'f> {
    reads: HashMap<&'f RepoPath, Vec<(usize, FileUse)>>,
    watches: HashMap<&'f RepoPath, Vec<(usize, UnitCode)>>,
    users: HashMap<usize, Vec<usize>>,
}

impl<'f> Index<'f> {
    fn new(found: &'f TerragruntDirs) -> Self {
        let mut index = Self {
            reads: HashMap::new(),
            watches: HashMap::new(),
            users: HashMap::new(),
        };
        let places: HashMap<&RepoPath, usize> = found
            .units
            .iter()
            .enumerate()
            .map(|(at, unit)| (&unit.dir, at))
            .collect();
        for (at, unit) in found.units.iter().enumerate() {
            for (file, how) in &unit.reads {
                index.reads.entry(file).or_default().push((at, *how));
            }
            for (dir, watch) in &unit.watches {
                index.watches.entry(dir).or_default().push((at, *watch));
            }
            for need in unit.depends_on.iter().filter_map(|dir| places.get(dir)) {
                index.users.entry(*need).or_default().push(at);
            }
        }
        index
    }

    fn of(
        &self,
        tree: &FileTree,
        file: &RepoPath,
        counts: &dyn Fn(&RepoPath) -> bool,
    ) -> Vec<(usize, FileRelation)> {
        let reads = self.reads.get(file).into_iter().flatten();
        let mut all: Vec<(usize, FileRelation)> = reads
            .map(|(unit, how)| (*unit, FileRelation::Read(*how)))
            .collect();
        if counts(file) {
            let watches = self
                .watches
                .get(&self.home(tree, file))
                .into_iter()
                .flatten();
            all.extend(watches.map(|(unit, watch)| (*unit, FileRelation::Code(*watch))));
        }
        all
    }

    /// Returns the nearest directory with code above a file. A directory without code below a module belongs to the
    /// module.
    fn home(&self, tree: &FileTree, file: &RepoPath) -> RepoPath {
        let mut dir = file.parent();
        while !dir.is_root() && !self.watches.contains_key(&dir) && !tree.has_code(&dir) {
            dir = dir.parent();
        }
        dir
    }
}
