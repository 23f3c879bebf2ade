//! Lists the files of a checkout for fast lookups. The module itself reads no files.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::model::RepoPath;

/// All files of a checkout, and the directories that contain them.
#[derive(Debug, Clone)]
pub struct FileTree {
    /// Files sorted by directory, then by name, so that the files of a directory are neighbours.
    files: Vec<RepoPath>,
    /// Every directory, with the range of its own files in `files`.
    dirs: BTreeMap<RepoPath, Range<usize>>,
    /// Files that are symbolic links, with their texts.
    links: BTreeMap<RepoPath, String>,
}

/// Splits a path into directory (empty for the root) and name.
fn split(file: &RepoPath) -> (&str, &str) {
    file.as_str()
        .rsplit_once('/')
        .unwrap_or(("", file.as_str()))
}

impl FileTree {
    /// Sorts a listing in any order, with or without repetitions. Sorting 200,000 files takes well under a second.
    pub fn new(files: impl IntoIterator<Item = RepoPath>) -> Self {
        let mut files: Vec<RepoPath> = files.into_iter().filter(|file| !file.is_root()).collect();
        files.sort_unstable_by(|a, b| split(a).cmp(&split(b)));
        files.dedup();
        let mut dirs = BTreeMap::from([(RepoPath::root(), 0..0)]);
        let mut start = 0;
        for group in files.chunk_by(|a, b| split(a).0 == split(b).0) {
            let end = start + group.len();
            let dir = group[0].parent();
            insert_ancestors(&mut dirs, &dir);
            dirs.insert(dir, start..end);
            start = end;
        }
        Self {
            files,
            dirs,
            links: BTreeMap::new(),
        }
    }

    /// Adds the texts of symbolic links. They are followed by name only; nothing below a linked directory is listed.
    #[must_use]
    pub fn with_links(self, links: impl IntoIterator<Item = (RepoPath, String)>) -> Self {
        Self {
            links: links.into_iter().collect(),
            ..self
        }
    }

    /// Returns every symbolic link and its text.
    pub(super) fn links(&self) -> impl Iterator<Item = (&RepoPath, &str)> {
        self.links
            .iter()
            .map(|(link, target)| (link, target.as_str()))
    }

    /// Returns the text of a path that is a symbolic link.
    pub(super) fn link_target(&self, path: &RepoPath) -> Option<&str> {
        self.links.get(path).map(String::as_str)
    }

    /// Returns true if a path is known to be a symbolic link.
    pub fn is_link(&self, path: &RepoPath) -> bool {
        self.links.contains_key(path)
    }

    /// Returns every file, sorted by directory, then by name.
    pub fn files(&self) -> &[RepoPath] {
        &self.files
    }

    /// Returns every directory that holds a file, directly or further down, and always the root; sorted.
    pub fn dirs(&self) -> impl Iterator<Item = &RepoPath> {
        self.dirs.keys()
    }

    /// Returns true if a directory exists. Git stores no empty directories.
    pub fn dir_exists(&self, dir: &RepoPath) -> bool {
        self.dirs.contains_key(dir)
    }

    /// Returns the files directly in a directory, sorted; none if it does not exist.
    pub fn files_in(&self, dir: &RepoPath) -> &[RepoPath] {
        self.dirs
            .get(dir)
            .map_or(&[], |range| &self.files[range.clone()])
    }

    /// Returns true if a file exists.
    pub fn has_file(&self, file: &RepoPath) -> bool {
        self.files_in(&file.parent()).binary_search(file).is_ok()
    }

    /// Returns true if a directory itself holds a file that makes it a project (reference 3.4).
    pub fn has_code(&self, dir: &RepoPath) -> bool {
        self.files_in(dir)
            .iter()
            .any(|file| is_indicator(file.file_name()))
    }
}

/// Adds the directories above that only hold directories.
fn insert_ancestors(dirs: &mut BTreeMap<RepoPath, Range<usize>>, dir: &RepoPath) {
    let mut above = dir.parent();
    while !dirs.contains_key(&above) {
        let next = above.parent();
        dirs.insert(above, 0..0);
        above = next;
    }
}

/// Returns true for names of Terraform, OpenTofu or Terragrunt code files (reference 3.4, step 4).
fn is_indicator(name: &str) -> bool {
    const ENDINGS: [&str; 4] = [".tf", ".tf.json", ".tofu", ".tofu.json"];
    ["terragrunt.hcl", "terragrunt.stack.hcl"].contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RepoPath {
        text.parse().unwrap()
    }

    fn tree(files: &[&str]) -> FileTree {
        FileTree::new(files.iter().map(|file| path(file)))
    }

    #[test]
    fn files_and_directories_are_found() {
        let tree = tree(&["a/b/c/x.tf", "a-b/y.tf", "z", "a/b.tf", "a/a", "a/b/d"]);
        let names = |dir: &str| {
            tree.files_in(&path(dir))
                .iter()
                .map(RepoPath::as_str)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("."), ["z"]);
        assert_eq!(names("a"), ["a/a", "a/b.tf"]);
        assert_eq!(names("a/b"), ["a/b/d"]);
        assert_eq!(names("nowhere"), [""; 0]);
        let dirs: Vec<_> = tree.dirs().map(RepoPath::as_str).collect();
        assert_eq!(dirs, [".", "a", "a-b", "a/b", "a/b/c"]);
        assert!(!tree.dir_exists(&path("z")) && !tree.dir_exists(&path("a/b.tf")));
    }

    #[test]
    fn an_empty_tree_has_its_root() {
        assert!(tree(&[]).dir_exists(&RepoPath::root()));
        assert_eq!(tree(&["."]).files(), &[]);
    }

    #[test]
    fn code_is_told_by_the_names_of_files() {
        for name in [
            "main.tf",
            "x.tf.json",
            "x.tofu",
            "x.tofu.json",
            "terragrunt.hcl",
            "terragrunt.stack.hcl",
        ] {
            assert!(tree(&[name]).has_code(&RepoPath::root()), "{name}");
        }
        for name in [
            "x.tfvars",
            "x.hcl",
            "tf",
            "x.json",
            "my-terragrunt.hcl",
            "sub/main.tf",
        ] {
            assert!(!tree(&[name]).has_code(&RepoPath::root()), "{name}");
        }
    }

    #[test]
    fn two_hundred_thousand_files_are_no_trouble() {
        let tree = FileTree::new(
            (0..200_000).map(|n| path(&format!("team{}/app{}/f{n}.tf", n % 50, n % 5_000))),
        );
        assert_eq!(tree.files().len(), 200_000);
        assert_eq!(tree.dirs().count(), 5_000 + 50 + 1);
        assert_eq!(tree.files_in(&path("team7/app4007")).len(), 40);
    }

    proptest! {
        #[test]
        fn every_file_is_in_its_directory_and_every_directory_in_another(
            files in proptest::collection::vec("[a-c.-]{1,2}(/[a-c-]{1,2}){0,3}", 0..20)
        ) {
            let files: Vec<RepoPath> = files.iter().filter_map(|file| RepoPath::new(file).ok()).collect();
            let tree = FileTree::new(files.clone());
            for file in files.iter().filter(|file| !file.is_root()) {
                prop_assert!(tree.files_in(&file.parent()).contains(file));
            }
            for dir in tree.dirs() {
                prop_assert!(tree.dir_exists(&dir.parent()));
                prop_assert!(tree.files_in(dir).iter().all(|file| file.parent() == *dir));
            }
            prop_assert_eq!(tree.dirs().map(|dir| tree.files_in(dir).len()).sum::<usize>(), tree.files().len());
        }
    }
}
