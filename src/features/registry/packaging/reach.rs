//! Finds the directories beside a Terraform module that it reaches by local sources, such as `../shared`.
//!
//! A module that stays in its directory is packed with its files at the top. One that leaves it keeps its place in the
//! repository, so that `../shared` leads to the same directory as there, and the name of the package tells the place
//! ([`PackageFileName::of_module_in`](lockkeeper_registry::records::PackageFileName::of_module_in)). Nothing is ever
//! taken from outside of the repository.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use lockkeeper_registry::limits::ExceededLimit;
use lockkeeper_registry::names::NameKind;
use lockkeeper_registry::tf_archive::TfArchiveError;
use lockkeeper_registry::tree::TreeMode;

use super::directory::SourceEntry;
use super::module::{self, ModuleFault};
use super::{PackagingError, limits};
use crate::discovery::{FileTree, missing_modules};
use crate::git::FileLimits;
use crate::model::RepoPath;

/// Maximum number of directories that a module reaches, including those that do not exist. Nobody uses that many.
pub(super) const MAX_DIRS: usize = 100;
/// Number of bytes of code after which no further search begins. Each directory that is found leads to another search of
/// all code.
pub(super) const MAX_SEARCHED: u64 = 256 << 20;

/// Files of a module, and of the directories that it reaches.
pub(super) struct ModuleReach {
    /// Directory of the module in the repository.
    top: RepoPath,
    /// Directories that were read, none of them in another one, with the paths of their files from there.
    parts: BTreeMap<RepoPath, Vec<SourceEntry>>,
    /// Directories that the repository does not have.
    absent: BTreeSet<RepoPath>,
    /// Number of directories that were ever added, also of those that another one has replaced and of those that are absent.
    added: usize,
    /// Bytes of code in all searches so far.
    searched: u64,
}

/// All files of a package.
pub(super) struct ReachedFiles {
    /// Directory of the module in the package.
    pub module_dir: RepoPath,
    /// Directories that the module reaches outside of its own.
    pub beside: Vec<RepoPath>,
    /// Files by their paths in the package.
    pub entries: Vec<SourceEntry>,
}

impl ModuleReach {
    /// Begins with the files of the module. Their paths are those from its directory.
    pub fn new(top: RepoPath, files: Vec<SourceEntry>) -> Self {
        Self {
            parts: BTreeMap::from([(top.clone(), files)]),
            top,
            absent: BTreeSet::new(),
            added: 1,
            searched: 0,
        }
    }

    /// Returns the directories that the module reaches and that were not read yet. Parses code, which takes a while.
    pub fn unread(&mut self) -> Result<BTreeSet<RepoPath>, ModuleFault> {
        // What will be refused in the end is not searched.
        if self.parts.keys().any(|part| *part != self.top) {
            module::file_name(&self.top)?;
        }
        if self.searched >= MAX_SEARCHED {
            return Err(ModuleFault::TooMuchCode);
        }
        let (found, searched) = self.search();
        self.searched += searched;
        if self.added + found.len() > MAX_DIRS {
            return Err(ModuleFault::FarReaching);
        }
        Ok(found)
    }

    /// Returns the directories, and the number of bytes of code that were parsed.
    fn search(&self) -> (BTreeSet<RepoPath>, u64) {
        let (mut paths, mut links, mut code) = (Vec::new(), Vec::new(), HashMap::new());
        for (dir, file) in self.files() {
            let Some(path) = std::str::from_utf8(&file.path)
                .ok()
                .and_then(|path| dir.join(path).ok())
            else {
                continue;
            };
            if file.mode == TreeMode::Link {
                let target = String::from_utf8_lossy(&file.content).into_owned();
                links.push((path.clone(), target));
            } else if module::is_code(path.as_str()) {
                code.insert(path.clone(), file.content.as_slice());
            }
            paths.push(path);
        }
        let tree = FileTree::new(paths).with_links(links);
        let parsed = Cell::new(0_u64);
        let read = |path: &RepoPath| {
            let content = code.get(path)?;
            let is_read = content.len() as u64 <= module::MAX_CODE_FILE;
            let text = is_read
                .then(|| std::str::from_utf8(content).ok())
                .flatten()?;
            parsed.set(parsed.get() + text.len() as u64);
            Some(text.to_owned())
        };
        // The check of the finished package finds everything that is left.
        let missing = missing_modules(&tree, &self.top, &read);
        let found = missing.into_iter().flatten();
        let found = found.filter_map(|missing| missing.module);
        let found: BTreeSet<RepoPath> = found
            .filter(|dir| !self.has(dir) && !self.absent.contains(dir))
            .collect();
        (found, parsed.get())
    }

    /// Returns true if a directory was read.
    pub fn has(&self, dir: &RepoPath) -> bool {
        self.parts.keys().any(|part| part.contains(dir))
    }

    /// Adds a directory. `None`: the repository does not have it.
    pub fn add(&mut self, dir: RepoPath, files: Option<Vec<SourceEntry>>) {
        self.added += 1;
        match files {
            Some(files) => {
                self.parts.retain(|part, _| !dir.contains(part));
                self.parts.insert(dir, files);
            }
            None => {
                self.absent.insert(dir);
            }
        }
    }

    /// Returns the number of files and bytes that further directories can have.
    pub fn left(&self) -> FileLimits {
        let (mut entries, mut bytes) = (0, 0);
        for (_, file) in self.files() {
            entries += 1;
            bytes += file.content.len() as u64;
        }
        let limits = limits(NameKind::Module);
        FileLimits {
            entries: limits.entries.saturating_sub(entries),
            bytes: limits.unpacked.saturating_sub(bytes),
        }
    }

    /// Returns the files of the package.
    pub fn finish(self) -> ReachedFiles {
        let dirs = self.parts.keys().filter(|part| **part != self.top);
        let beside: Vec<RepoPath> = dirs.cloned().collect();
        // With a missing directory there is no package, and the refusal names places in the repository.
        let is_alone = beside.is_empty() && self.absent.is_empty();
        let mut entries = Vec::new();
        for (dir, files) in self.parts {
            let place = if is_alone || dir.is_root() {
                String::new()
            } else {
                format!("{dir}/")
            };
            entries.extend(files.into_iter().map(|file| SourceEntry {
                path: [place.as_bytes(), &file.path].concat(),
                ..file
            }));
        }
        entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        ReachedFiles {
            module_dir: if is_alone { RepoPath::root() } else { self.top },
            beside,
            entries,
        }
    }

    fn files(&self) -> impl Iterator<Item = (&RepoPath, &SourceEntry)> {
        let parts = self.parts.iter();
        parts.flat_map(|(dir, files)| files.iter().map(move |file| (dir, file)))
    }
}

/// Returns the refusal of a module that has too many files with everything that it reaches.
pub(super) fn too_many() -> PackagingError {
    let limit = ExceededLimit::Entries(limits(NameKind::Module).entries);
    TfArchiveError::Limit(limit).into()
}

/// Returns the refusal of a module that is too large with everything that it reaches.
pub(super) fn too_large() -> PackagingError {
    let limit = ExceededLimit::Unpacked(limits(NameKind::Module).unpacked);
    TfArchiveError::Limit(limit).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<SourceEntry> {
        let entry = |(path, source): &(&str, &str)| SourceEntry {
            path: path.as_bytes().to_vec(),
            mode: TreeMode::File,
            content: format!("module \"x\" {{\n  source = \"{source}\"\n}}\n").into_bytes(),
        };
        files.iter().map(entry).collect()
    }

    fn path(text: &str) -> RepoPath {
        text.parse().unwrap()
    }

    fn unread(reach: &mut ModuleReach) -> Vec<String> {
        let unread = reach.unread().unwrap();
        unread.iter().map(ToString::to_string).collect()
    }

    fn shown(reach: ModuleReach) -> (String, Vec<String>) {
        let files = reach.finish();
        let paths = files.entries.into_iter().map(|file| file.path);
        let paths = paths.map(|path| String::from_utf8(path).unwrap());
        (files.module_dir.to_string(), paths.collect())
    }

    #[test]
    fn a_module_that_stays_in_its_directory_is_at_the_top() {
        let own = [("main.tf", "./a"), ("a/main.tf", "..")];
        let mut reach = ModuleReach::new(path("modules/vpc"), files(&own));
        assert_eq!(unread(&mut reach), [""; 0]);
        assert_eq!(
            shown(reach),
            (
                ".".to_owned(),
                vec!["a/main.tf".to_owned(), "main.tf".to_owned()]
            )
        );
    }

    #[test]
    fn directories_are_found_one_through_the_other_and_keep_their_places() {
        let top = path("infra/vpc");
        let mut reach = ModuleReach::new(top, files(&[("main.tf", "../shared")]));
        assert_eq!(unread(&mut reach), ["infra/shared"]);
        reach.add(
            path("infra/shared"),
            Some(files(&[
                ("main.tf", "../../top/x"),
                ("b.tf", "../gone"),
                ("c.tf", "../../../out"),
            ])),
        );
        assert_eq!(unread(&mut reach), ["infra/gone", "top/x"]);
        reach.add(path("infra/gone"), None);
        reach.add(path("top/x"), Some(files(&[("x.tf", "..")])));
        assert_eq!(unread(&mut reach), ["top"]);
        // A directory replaces those in it.
        let top = [("main.tf", "../infra/vpc"), ("x/x.tf", "..")];
        reach.add(path("top"), Some(files(&top)));
        assert_eq!(unread(&mut reach), [""; 0]);
        let paths = [
            "infra/shared/b.tf",
            "infra/shared/c.tf",
            "infra/shared/main.tf",
            "infra/vpc/main.tf",
            "top/main.tf",
            "top/x/x.tf",
        ];
        let paths = paths.map(str::to_owned).to_vec();
        assert_eq!(shown(reach), ("infra/vpc".to_owned(), paths));
    }

    #[test]
    fn the_top_of_a_repository_has_everything() {
        let mut reach = ModuleReach::new(path("a/b"), files(&[("main.tf", "../..")]));
        assert_eq!(unread(&mut reach), ["."]);
        reach.add(
            path("."),
            Some(files(&[("main.tf", "./c"), ("a/b/main.tf", "../..")])),
        );
        assert_eq!(unread(&mut reach), [""; 0]);
        let paths = vec!["a/b/main.tf".to_owned(), "main.tf".to_owned()];
        assert_eq!(shown(reach), ("a/b".to_owned(), paths));
    }

    #[test]
    fn nobody_reaches_too_far() {
        let many: Vec<(String, String)> = (0..MAX_DIRS)
            .map(|at| (format!("{at}.tf"), format!("../{at}")))
            .collect();
        let many: Vec<(&str, &str)> = many
            .iter()
            .map(|(file, source)| (file.as_str(), source.as_str()))
            .collect();
        let mut reach = ModuleReach::new(path("a"), files(&many));
        assert_eq!(reach.unread(), Err(ModuleFault::FarReaching));
    }

    #[test]
    fn directories_that_others_have_replaced_count() {
        let mut reach = ModuleReach::new(path("a"), files(&[("main.tf", "../next")]));
        for at in 0..MAX_DIRS / 2 {
            reach.add(path(&format!("{at}/below")), Some(Vec::new()));
            assert_eq!(reach.parts.len(), at + 2);
            reach.add(path(&at.to_string()), Some(Vec::new()));
        }
        assert_eq!(reach.unread(), Err(ModuleFault::FarReaching));
    }

    #[test]
    fn a_directory_without_a_name_for_its_package_is_searched_once() {
        let top = path("an odd dir");
        let mut reach = ModuleReach::new(top.clone(), files(&[("main.tf", "../a")]));
        assert_eq!(unread(&mut reach), ["a"]);
        reach.add(path("a"), Some(files(&[("main.tf", "../b")])));
        assert_eq!(reach.unread(), Err(ModuleFault::Unnameable(top)));
    }

    #[test]
    fn all_searches_together_are_limited() {
        let mut reach = ModuleReach::new(path("a"), files(&[("main.tf", "../b")]));
        assert_eq!(unread(&mut reach), ["b"]);
        let once = reach.searched;
        reach.add(path("b"), Some(files(&[("main.tf", "../c")])));
        assert_eq!(unread(&mut reach), ["c"]);
        assert_eq!(reach.searched, 3 * once, "the first file counts twice");
        reach.searched = MAX_SEARCHED;
        assert_eq!(reach.unread(), Err(ModuleFault::TooMuchCode));
    }
}
