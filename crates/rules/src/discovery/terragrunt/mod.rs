//! Finds the units and stacks of Terragrunt, the files that each depends on, and their dependencies, so that nobody
//! has to generate a configuration file for them.
//!
//! The module runs nothing. An expression may need a value from outside the repository: a program, the environment, a
//! cloud, the outputs of another unit. That value is unknown and is never guessed. If it decides which files a unit
//! depends on, the module reports it with its place.
//!
//! All input comes from a pull request, so each step has a limit, cycles end, and no path leaves the repository. The
//! rules are those of Terragrunt 1.0; `docs/terragrunt.md` lists them.

mod calls;
mod collections;
mod concern;
mod eval;
mod facts;
mod files;
mod frame;
mod functions;
mod includes;
mod limits;
mod loops;
mod order;
mod paths;
mod projects;
mod reading;
mod session;
mod source;
mod stack;
mod unit;
mod value;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

pub use concern::{Chain, FileRelation, concerned};

pub(super) use projects::{TerragruntProjects, group, not_known, passed_over};

use files::UnitFiles;
use limits::{MAX_UNITS, MAX_UNRESOLVED};
use reading::CONFIG;
use unit::Draft;

use super::FileTree;
use super::code::UnreadFile;
use crate::model::RepoPath;

/// Name of the file that makes a directory a stack.
const STACK: &str = "terragrunt.stack.hcl";

/// Directories that Terragrunt generates; their content does not belong to the repository.
const GENERATED: [&str; 2] = [".terragrunt-cache", ".terragrunt-stack"];

/// Units and stacks found in a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerragruntDirs {
    /// Units and stacks, sorted by directory; at most one per directory.
    pub units: Vec<Unit>,
    /// Directories with a configuration that are no projects, and why not.
    pub passed_over: BTreeMap<RepoPath, SkippedDir>,
    /// Facts that could not be determined, sorted.
    pub unresolved: Vec<Unresolved>,
    /// Note that units were not examined because there are too many.
    pub cut_off: Option<Unresolved>,
    /// Unreadable code of units, whose module calls are therefore unknown; sorted.
    pub unread: Vec<UnreadFile>,
}

/// A directory that Terragrunt runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Directory of the unit.
    pub dir: RepoPath,
    /// Kind of the directory: unit or stack.
    pub kind: DirRole,
    /// Files that the unit reads or looks for, and how it reaches them.
    pub reads: BTreeMap<RepoPath, FileUse>,
    /// Directories whose code the unit runs.
    pub watches: BTreeMap<RepoPath, UnitCode>,
    /// Units and stacks that must run first, or whose outputs the unit needs; sorted.
    pub depends_on: BTreeSet<RepoPath>,
    /// Number of units that must run one after another before this one. Units in a cycle count as if they were not in
    /// one.
    pub order: usize,
    /// Entries of [`TerragruntDirs::unresolved`] that belong to this unit.
    pub unresolved: BTreeSet<Unresolved>,
}

/// Role of a directory in Terragrunt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirRole {
    /// The directory has `terragrunt.hcl`.
    Unit,
    /// The directory has `terragrunt.stack.hcl`.
    Stack,
}

/// Way in which a unit reaches a file; the most informative way is last. Displays as the end of a clause: "…, which
/// it includes".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileUse {
    /// The unit checks whether the file exists.
    LookedFor,
    /// A unit of the stack, whose files are not in this repository, would find the file in a directory above.
    AboveForeign,
    /// The unit reads the files of another unit.
    Dependency,
    /// The unit reads the content of the file.
    File,
    /// The unit takes variables from the file.
    VarFile,
    /// The unit evaluates the file with `read_terragrunt_config`.
    Config,
    /// The unit includes the file.
    Include,
    /// A stack makes a unit from the file.
    Template,
    /// The file is the unit's own configuration.
    Own,
}

impl fmt::Display for FileUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LookedFor => "looks for",
            Self::AboveForeign => "may include in a unit that is not in this repository",
            Self::Dependency => "depends on",
            Self::File | Self::Config => "reads",
            Self::VarFile => "takes variables from",
            Self::Include => "includes",
            Self::Template => "generates a unit from",
            Self::Own => "is configured by",
        })
    }
}

/// Reason why the code in a directory belongs to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitCode {
    /// The directory is a module that the code of the unit calls.
    Module,
    /// The directory is the `source` of the unit.
    Source,
    /// The directory is that of the unit itself.
    Own,
}

/// Reason why a directory with a configuration is no project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkippedDir {
    /// Other files include the configuration, and the directory has no code.
    Included,
    /// The directory has no code, names no `source` and generates no code.
    NoCode,
    /// The configuration excludes the directory with `skip` or `exclude`.
    Excluded,
    /// A stack makes units from the directory.
    Template,
}

impl fmt::Display for SkippedDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Included => {
                "its `terragrunt.hcl` is included by others and names no `source`, and it has no code itself"
            }
            Self::NoCode => "it has no code, and its `terragrunt.hcl` neither names a `source` nor generates code",
            Self::Excluded => "`skip` or `exclude` in its `terragrunt.hcl` excludes it",
            Self::Template => "a stack generates units from it",
        })
    }
}

/// A fact that only a run could determine, so that a change may be missed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unresolved {
    /// File that contains the expression.
    pub file: RepoPath,
    /// Line of the expression, from 1.
    pub line: usize,
    /// Description of the unknown fact, one clause.
    pub what: String,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Returns true if a tree contains any Terragrunt file. The check is cheap.
pub fn is_used(tree: &FileTree) -> bool {
    tree.dirs()
        .any(|dir| has(tree, dir, CONFIG) || has(tree, dir, STACK))
}

/// Returns true if Terragrunt runs a directory instead of Terraform.
pub(super) fn runs(tree: &FileTree, dir: &RepoPath) -> bool {
    has(tree, dir, CONFIG) || has(tree, dir, STACK)
}

fn has(tree: &FileTree, dir: &RepoPath, name: &str) -> bool {
    dir.join(name).is_ok_and(|file| tree.has_file(&file))
}

fn is_generated(dir: &RepoPath) -> bool {
    dir.as_str()
        .split('/')
        .any(|part| GENERATED.contains(&part))
}

/// Returns every unit and stack of a tree. `read` returns the text of a file, as in [`super::Input`].
pub fn units(tree: &FileTree, read: &dyn Fn(&RepoPath) -> Option<String>) -> TerragruntDirs {
    let files = UnitFiles::new(tree, read);
    let dirs = tree
        .dirs()
        .filter(|dir| runs(tree, dir) && !is_generated(dir));
    let mut drafts: Vec<Draft> = Vec::new();
    let mut unresolved = BTreeSet::new();
    let mut cut_off = None;
    for dir in dirs {
        if drafts.len() == MAX_UNITS {
            let what = format!("there are more than {MAX_UNITS} units: the rest is ignored");
            cut_off = Some(Unresolved {
                file: dir.clone(),
                line: 1,
                what,
            });
            unresolved.extend(cut_off.clone());
            break;
        }
        drafts.push(if has(tree, dir, STACK) {
            stack::draft(&files, dir)
        } else {
            unit::draft(&files, dir)
        });
    }
    let (mut units, passed_over) = unit::chosen(drafts, &files, &mut unresolved);
    order::set(&mut units, &mut unresolved);
    let code: HashSet<&RepoPath> = units.iter().flat_map(|unit| unit.watches.keys()).collect();
    let unread = files.into_unread(|dir| code.contains(dir));
    let unresolved = unresolved.into_iter().take(MAX_UNRESOLVED).collect();
    TerragruntDirs {
        units,
        passed_over,
        unresolved,
        cut_off,
        unread,
    }
}

impl TerragruntDirs {
    /// Returns the unit or stack of a directory.
    pub fn unit(&self, dir: &RepoPath) -> Option<&Unit> {
        self.units
            .binary_search_by(|unit| unit.dir.cmp(dir))
            .ok()
            .map(|at| &self.units[at])
    }
}

#[cfg(test)]
mod tests;
