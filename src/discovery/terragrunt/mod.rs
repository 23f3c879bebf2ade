//! Units and stacks of Terragrunt: which there are, which files each goes by, and what depends on what; so that nobody
//! has to generate a configuration file for them.
//!
//! Nothing is run. What an expression needs from outside of the repository (a program, the environment, a cloud, the
//! outputs of another unit) is not known, and what is not known never becomes a guess: where it decides what a unit
//! goes by, that is reported with its place. Everything comes from a pull request, so each step has a limit, cycles
//! end, and no path leaves the repository. The rules are those of Terragrunt 1.0; `docs/terragrunt.md` has them.

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

pub use concern::{Cause, Chain, concerned};

pub(super) use projects::{Search, group, not_known, passed_over};

use files::Files;
use limits::{MAX_UNITS, MAX_UNRESOLVED};
use reading::CONFIG;
use unit::Draft;

use super::Tree;
use super::code::Unread;
use crate::model::RepoPath;

/// The file that makes a directory a stack.
const STACK: &str = "terragrunt.stack.hcl";

/// What Terragrunt makes itself; what is in there is not of the repository.
const GENERATED: [&str; 2] = [".terragrunt-cache", ".terragrunt-stack"];

/// What is in a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Units and stacks, sorted by directory; at most one a directory.
    pub units: Vec<Unit>,
    /// Directories with a configuration that are no projects, and why not.
    pub passed_over: BTreeMap<RepoPath, PassedOver>,
    /// What could not be found out, sorted.
    pub unresolved: Vec<Unresolved>,
    /// Units that were not looked at because there are too many.
    pub cut_off: Option<Unresolved>,
    /// Code of units that cannot be read, so that nobody knows which modules it calls; sorted.
    pub unread: Vec<Unread>,
}

/// A directory that Terragrunt runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Where.
    pub dir: RepoPath,
    /// Unit or stack.
    pub kind: Kind,
    /// Files that it reads or looks for, and how it comes to them.
    pub reads: BTreeMap<RepoPath, How>,
    /// Directories whose code it runs.
    pub watches: BTreeMap<RepoPath, Watch>,
    /// Units and stacks whose outputs it needs, or that go first; sorted.
    pub depends_on: BTreeSet<RepoPath>,
    /// Number of units that have to run one after another before it. In a cycle: as if those were not in one.
    pub order: usize,
    /// Its part of [`Found::unresolved`].
    pub unresolved: BTreeSet<Unresolved>,
}

/// What a directory is to Terragrunt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It has `terragrunt.hcl`.
    Unit,
    /// It has `terragrunt.stack.hcl`.
    Stack,
}

/// How a unit comes to a file; the most telling way last. Displays as the end of a clause: "…, which it includes".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// It looks whether the file is there.
    LookedFor,
    /// A unit of the stack, whose files are not in this repository, would find it in a directory above.
    AboveForeign,
    /// It reads what another unit is made of.
    Dependency,
    /// It reads the content.
    File,
    /// It takes variables from it.
    VarFile,
    /// It evaluates it with `read_terragrunt_config`.
    Config,
    /// It includes it.
    Include,
    /// A stack makes a unit from it.
    Template,
    /// It is its own configuration.
    Own,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LookedFor => "looks for",
            Self::AboveForeign => "may include in a unit that is not of this repository",
            Self::Dependency => "depends on",
            Self::File | Self::Config => "reads",
            Self::VarFile => "takes variables from",
            Self::Include => "includes",
            Self::Template => "makes a unit from",
            Self::Own => "is configured by",
        })
    }
}

/// Why the code in a directory is that of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// A module that its code calls.
    Module,
    /// The `source` of the unit.
    Source,
    /// The directory of the unit.
    Own,
}

/// Why a directory with a configuration is no project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedOver {
    /// Others include it, and it has no code.
    Included,
    /// It has no code, names no `source` and generates no code.
    NoCode,
    /// `skip` or `exclude` takes it out.
    Excluded,
    /// A stack makes units of it.
    Template,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Included => {
                "its `terragrunt.hcl` is included by others and names no `source`, and it has no code itself"
            }
            Self::NoCode => "it has no code, and its `terragrunt.hcl` neither names a `source` nor generates code",
            Self::Excluded => "`skip` or `exclude` in its `terragrunt.hcl` takes it out",
            Self::Template => "a stack makes units of it",
        })
    }
}

/// Something that could not be found out without running anything, so that a change may be missed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unresolved {
    /// The file that says it.
    pub file: RepoPath,
    /// The line, from 1.
    pub line: usize,
    /// One clause.
    pub what: String,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Whether a tree has anything of Terragrunt. Cheap.
pub fn is_used(tree: &Tree) -> bool {
    tree.dirs()
        .any(|dir| has(tree, dir, CONFIG) || has(tree, dir, STACK))
}

/// Whether Terragrunt, not Terraform, runs a directory.
pub(super) fn runs(tree: &Tree, dir: &RepoPath) -> bool {
    has(tree, dir, CONFIG) || has(tree, dir, STACK)
}

fn has(tree: &Tree, dir: &RepoPath, name: &str) -> bool {
    dir.join(name).is_ok_and(|file| tree.has_file(&file))
}

fn is_generated(dir: &RepoPath) -> bool {
    dir.as_str()
        .split('/')
        .any(|part| GENERATED.contains(&part))
}

/// Every unit and stack of a tree. `read` gives the text of a file, as for [`super::Input`].
pub fn units(tree: &Tree, read: &dyn Fn(&RepoPath) -> Option<String>) -> Found {
    let files = Files::new(tree, read);
    let dirs = tree
        .dirs()
        .filter(|dir| runs(tree, dir) && !is_generated(dir));
    let mut drafts: Vec<Draft> = Vec::new();
    let mut unresolved = BTreeSet::new();
    let mut cut_off = None;
    for dir in dirs {
        if drafts.len() == MAX_UNITS {
            let what = format!("there are more than {MAX_UNITS} units: the rest is not looked at");
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
    Found {
        units,
        passed_over,
        unresolved,
        cut_off,
        unread,
    }
}

impl Found {
    /// The unit or stack of a directory.
    pub fn unit(&self, dir: &RepoPath) -> Option<&Unit> {
        self.units
            .binary_search_by(|unit| unit.dir.cmp(dir))
            .ok()
            .map(|at| &self.units[at])
    }
}

#[cfg(test)]
mod tests;
