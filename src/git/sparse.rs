//! Checks out only some directories of a commit.
//!
//! The need: in a repository with a hundred thousand files, a plan reads one directory and the modules it uses. The
//! cone mode of git selects the files: those in the root, the named directories with everything below them, and the
//! files directly in the directories above them.
//!
//! A file beside the index of a checkout records its extent. The extent only grows during the lifetime of the
//! checkout, because several projects of a command share it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::mirror::{make_dir, remove_all};
use super::object_db::MAX_LIST;
use super::plain_file;
use crate::model::RepoPath;
use crate::process::Cmd;

/// File beside the index of a checkout that lists its directories, one per line.
const DIRS: &str = "lockkeeper-dirs";
/// File in the same directory that has git's form of the list.
const PATTERNS: &str = "info/sparse-checkout";

/// Part of a commit that a checkout has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// The whole commit, with every file.
    #[default]
    Whole,
    /// Only these directories, see [`Extent::of_dirs`].
    Dirs(BTreeSet<RepoPath>),
}

impl Extent {
    /// Creates the extent with the files in the root and everything below these directories. With the root it is the
    /// whole commit.
    pub fn of_dirs(dirs: impl IntoIterator<Item = RepoPath>) -> Self {
        let dirs: BTreeSet<RepoPath> = dirs.into_iter().collect();
        if dirs.iter().any(RepoPath::is_root) {
            return Self::Whole;
        }
        let is_below = |dir: &RepoPath| above(dir).any(|above| dirs.contains(&above));
        Self::Dirs(dirs.iter().filter(|dir| !is_below(dir)).cloned().collect())
    }

    /// Adds files to the extent. For a file outside it, adds the directory of the file.
    #[must_use]
    pub fn with_files<'a>(self, files: impl IntoIterator<Item = &'a RepoPath>) -> Self {
        let outside = files
            .into_iter()
            .filter(|file| !self.has(file))
            .map(RepoPath::parent)
            .collect::<BTreeSet<_>>();
        self.with(&Self::Dirs(outside))
    }

    /// Returns the union of both extents.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Dirs(one), Self::Dirs(other)) => {
                Self::of_dirs(one.into_iter().chain(other.iter().cloned()))
            }
            (Self::Whole, _) | (_, Self::Whole) => Self::Whole,
        }
    }

    /// Returns true if a file is in the extent.
    pub fn has(&self, file: &RepoPath) -> bool {
        match self {
            Self::Whole => true,
            Self::Dirs(dirs) => {
                let parent = file.parent();
                let is_above = |dir: &RepoPath| above(dir).any(|above| above == parent);
                parent.is_root()
                    || dirs.contains(&parent)
                    || above(&parent).any(|above| dirs.contains(&above))
                    || dirs.iter().any(is_above)
            }
        }
    }

    /// Reads the recorded extent of a checkout; one without a record is whole.
    pub(super) fn noted(admin: &Path) -> io::Result<Self> {
        let Some(text) = plain_file::text(&admin.join(DIRS), MAX_LIST as u64)? else {
            return Ok(Self::Whole);
        };
        let dirs: Result<BTreeSet<RepoPath>, _> = text.lines().map(RepoPath::new).collect();
        dirs.map(Self::of_dirs)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }

    /// Records the extent for later calls and for git.
    pub(super) fn note(&self, admin: &Path) -> io::Result<()> {
        match self {
            Self::Whole => [DIRS, PATTERNS]
                .iter()
                .try_for_each(|file| remove_all(&admin.join(file))),
            Self::Dirs(dirs) => {
                make_dir(&admin.join("info"))?;
                fs::write(admin.join(PATTERNS), patterns(dirs))?;
                fs::write(
                    admin.join(DIRS),
                    dirs.iter()
                        .map(|dir| format!("{dir}\n"))
                        .collect::<Vec<_>>()
                        .concat(),
                )
            }
        }
    }

    /// Configures git to use the recorded extent.
    pub(super) fn applied_to(&self, git: Cmd) -> Cmd {
        match self {
            Self::Whole => git,
            Self::Dirs(_) => git.args([
                "-c",
                "core.sparseCheckout=true",
                "-c",
                "core.sparseCheckoutCone=true",
            ]),
        }
    }

    /// Adds the arguments that read a commit into a new index. For a partial extent, they also mark the excluded
    /// files and write the others. Without the marks, the `checkout` that follows would look for every file of the
    /// commit.
    pub(super) fn read_into_index(&self, git: Cmd) -> Cmd {
        match self {
            Self::Whole => git.arg("read-tree"),
            Self::Dirs(_) => git.args(["read-tree", "--reset", "-u"]),
        }
    }
}

/// Iterates over the directories above one, except the root.
fn above(dir: &RepoPath) -> impl Iterator<Item = RepoPath> {
    std::iter::successors(Some(dir.parent()), |dir| Some(dir.parent()))
        .take_while(|dir| !dir.is_root())
}

/// Formats the directories for git (gitformat-sparse-checkout "cone mode"): each parent with its files and without
/// its directories, then the wanted directories.
fn patterns(dirs: &BTreeSet<RepoPath>) -> String {
    let mut text = "/*\n!/*/\n".to_owned();
    let parents: BTreeSet<RepoPath> = dirs.iter().flat_map(above).collect();
    for dir in parents.union(dirs) {
        let name = escaped(dir);
        let line = if dirs.contains(dir) {
            format!("/{name}/\n")
        } else {
            format!("/{name}/\n!/{name}/*/\n")
        };
        text.write_str(&line)
            .expect("writing to a string does not fail");
    }
    text
}

/// Escapes characters with a meaning in patterns.
fn escaped(dir: &RepoPath) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | '\\');
    dir.as_str()
        .chars()
        .flat_map(|c| special(c).then_some('\\').into_iter().chain([c]))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(dirs: &[&str]) -> Extent {
        Extent::of_dirs(dirs.iter().map(|dir| dir.parse().unwrap()))
    }

    #[test]
    fn the_patterns_are_those_of_cone_mode() {
        let Extent::Dirs(dirs) = extent(&["a/b", "a/b/c", "q/[x]*"]) else {
            panic!("the root is not among them")
        };
        insta::assert_snapshot!(patterns(&dirs), @r"
        /*
        !/*/
        /a/
        !/a/*/
        /a/b/
        /q/
        !/q/*/
        /q/\[x]\*/
        ");
        assert_eq!(patterns(&BTreeSet::new()), "/*\n!/*/\n");
    }

    #[test]
    fn a_cone_has_what_is_in_it_and_files_on_the_way() {
        let extent = extent(&["a/b"]);
        for (file, is_in) in [
            ("root", true),
            ("a/f", true),
            ("a/b/f", true),
            ("a/b/c/f", true),
            ("a/bb/f", false),
            ("a/x/f", false),
            ("q/f", false),
        ] {
            assert_eq!(extent.has(&file.parse().unwrap()), is_in, "{file}");
        }
        assert_eq!(self::extent(&["a", "."]), Extent::Whole);
        assert_eq!(
            self::extent(&["a/b/c", "a", "b"]),
            self::extent(&["b", "a"])
        );
        let files: Vec<RepoPath> = ["root", "a/f", "a/b/f", "q/r/f"]
            .map(|file| file.parse().unwrap())
            .to_vec();
        assert_eq!(
            self::extent(&["a/b"]).with_files(&files),
            self::extent(&["a/b", "q/r"])
        );
    }

    #[test]
    fn notes_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Extent::noted(dir.path()).unwrap(), Extent::Whole);
        for extent in [extent(&[]), extent(&["a/b", "c d/é"]), Extent::Whole] {
            extent.note(dir.path()).unwrap();
            assert_eq!(Extent::noted(dir.path()).unwrap(), extent);
        }
        assert!(!dir.path().join(PATTERNS).exists());
        fs::write(dir.path().join(DIRS), "../x\n").unwrap();
        assert!(Extent::noted(dir.path()).is_err());
    }

    proptest! {
        #[test]
        fn together_they_have_what_either_has(
            one in proptest::collection::vec("[ab](/[ab]){0,2}", 0..4),
            other in proptest::collection::vec("[ab](/[ab]){0,2}", 0..4),
            file in "([ab]/){0,3}f",
        ) {
            let made = |dirs: &[String]| extent(&dirs.iter().map(String::as_str).collect::<Vec<_>>());
            let (one, other, file) = (made(&one), made(&other), file.parse().unwrap());
            let both = one.clone().with(&other);
            prop_assert_eq!(both.has(&file), one.has(&file) || other.has(&file));
            prop_assert_eq!(&both, &other.with(&one));
        }
    }
}
