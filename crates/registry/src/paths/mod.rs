//! Rules for names of files in packages. A package has to unpack to the same files on every system.

mod unicode;

use std::collections::HashMap;

use self::unicode::{fold, is_letter};

/// Maximum number of bytes of a path, which is that of Linux.
pub const MAX_PATH: usize = 4096;

/// Maximum number of bytes of the paths of a package together, which are kept in memory.
pub const MAX_PATHS: usize = 64 << 20;

/// Maximum number of files and folders of a package. A single path can have thousands of folders, none of them an entry.
pub const MAX_NAMES: usize = 200_000;

/// Name of a file that a package cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// The bytes are not UTF-8.
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// The path is longer than [`MAX_PATH`].
    #[error("the path is longer than {MAX_PATH} bytes")]
    TooLong,
    /// The path begins with `/` or the name of a drive.
    #[error("the path is absolute")]
    Absolute,
    /// The path leads out of the package.
    #[error("the path has `..`")]
    Parent,
    /// The path is empty, or has an empty part or `.`.
    #[error("the path is not in its shortest form")]
    NotClean,
    /// A part consists of dots or ends with one. Windows would change it.
    #[error("the part {0:?} ends with a dot")]
    Dot(String),
    /// A part ends with a space. Windows would change it.
    #[error("the part {0:?} ends with a space")]
    Space(String),
    /// A character is not allowed in names of files.
    #[error("the path has the character {0:?}")]
    Character(char),
    /// Windows reserves the name for a device.
    #[error("Windows reserves the name {0:?}")]
    Reserved(String),
    /// Another path differs only in case.
    #[error("the path differs from {0:?} only in case")]
    Case(String),
    /// The path is there twice.
    #[error("the file is there twice")]
    Twice,
    /// The path is a file and a folder.
    #[error("the path is a file and a folder")]
    FileAndFolder,
    /// The package has more than [`MAX_NAMES`] files and folders, or more than [`MAX_PATHS`] bytes of paths.
    #[error(
        "the package has more than {MAX_NAMES} files and folders, or more than {MAX_PATHS} bytes of paths"
    )]
    TooMany,
}

/// Checks a path by the rules of `CheckFilePath` in `golang.org/x/mod/module`.
pub(crate) fn check_go_path(path: &str) -> Result<(), PathFault> {
    check_parts(path)?;
    path.split('/').try_for_each(check_go_part)
}

/// Checks a part of a path as `CheckFilePath` does.
pub(crate) fn check_go_part(part: &str) -> Result<(), PathFault> {
    if part.is_empty() {
        return Err(PathFault::NotClean);
    }
    if part.ends_with('.') {
        return Err(PathFault::Dot(part.to_owned()));
    }
    let is_allowed = |c: char| {
        c.is_ascii_alphanumeric()
            || "!#$%&()+,-.=@[]^_{}~ ".contains(c)
            || (!c.is_ascii() && is_letter(c))
    };
    if let Some(c) = part.chars().find(|c| !is_allowed(*c)) {
        return Err(PathFault::Character(c));
    }
    check_reserved(part)
}

/// Checks a path of a package that is not one of Go. More characters are allowed, as pictures and examples of modules
/// have any names, but none that Windows refuses.
pub(crate) fn check_path(path: &str) -> Result<(), PathFault> {
    check_parts(path)?;
    for part in path.split('/') {
        if part.ends_with('.') {
            return Err(PathFault::Dot(part.to_owned()));
        }
        if part.ends_with(' ') {
            return Err(PathFault::Space(part.to_owned()));
        }
        let is_refused = |c: char| c.is_control() || "\\:*?\"<>|".contains(c);
        if let Some(c) = part.chars().find(|c| is_refused(*c)) {
            return Err(PathFault::Character(c));
        }
        check_reserved(part)?;
    }
    Ok(())
}

/// Checks that a path is relative, in its shortest form and within the package.
fn check_parts(path: &str) -> Result<(), PathFault> {
    if path.len() > MAX_PATH {
        return Err(PathFault::TooLong);
    }
    let is_drive = matches!(path.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    if path.starts_with(['/', '\\']) || is_drive {
        return Err(PathFault::Absolute);
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err(PathFault::Parent);
    }
    if path.split('/').any(|part| part.is_empty() || part == ".") {
        return Err(PathFault::NotClean);
    }
    Ok(())
}

fn check_reserved(part: &str) -> Result<(), PathFault> {
    match reserved_name(part) {
        Some(name) => Err(PathFault::Reserved(name.to_owned())),
        None => Ok(()),
    }
}

/// Digits that Windows takes for those of a port. Go does not name them, but allows them in no path.
const SUPERSCRIPTS: [&str; 3] = ["¹", "²", "³"];

/// Returns the part of a name that Windows reserves for a device, if there is one. Extensions do not matter.
pub(crate) fn reserved_name(part: &str) -> Option<&str> {
    let stem = part.split('.').next().unwrap_or_default();
    let upper = stem.to_ascii_uppercase();
    let is_port = upper
        .strip_prefix("COM")
        .or_else(|| upper.strip_prefix("LPT"))
        .is_some_and(|number| {
            matches!(number.as_bytes(), [b'1'..=b'9']) || SUPERSCRIPTS.contains(&number)
        });
    let is_reserved = is_port || matches!(upper.as_str(), "CON" | "PRN" | "AUX" | "NUL");
    is_reserved.then_some(stem)
}

/// Paths of a package, to find those that are the same on a system that ignores case.
#[derive(Debug, Default)]
pub(crate) struct Collisions {
    /// By the folder above, and by name without differences of case.
    known: HashMap<(FolderId, String), KnownName>,
    size: usize,
}

/// Number of a folder, from 1. The top is 0.
type FolderId = usize;

#[derive(Debug)]
struct KnownName {
    name: String,
    /// Number as a folder, unless this is a file.
    folder: Option<FolderId>,
}

impl Collisions {
    /// Adds a path and the folders above it. The folders of an earlier path are no collision.
    ///
    /// Each name is kept and compared once, so a deep path costs no more than its length.
    pub(crate) fn add(&mut self, path: &str, is_folder: bool) -> Result<(), PathFault> {
        self.size += path.len();
        if self.size > MAX_PATHS {
            return Err(PathFault::TooMany);
        }
        let mut above = 0;
        let mut start = 0;
        for name in path.split('/') {
            let end = start + name.len();
            let is_folder = is_folder || end < path.len();
            let key = (above, name.chars().map(fold).collect());
            match self.known.get(&key) {
                Some(known) if known.name != name => {
                    return Err(PathFault::Case(path[..start].to_owned() + &known.name));
                }
                Some(known) => match known.folder {
                    Some(folder) if is_folder => above = folder,
                    None if !is_folder => return Err(PathFault::Twice),
                    Some(_) | None => return Err(PathFault::FileAndFolder),
                },
                None if self.known.len() >= MAX_NAMES => return Err(PathFault::TooMany),
                None => {
                    let folder = self.known.len() + 1;
                    let known = KnownName {
                        name: name.to_owned(),
                        folder: is_folder.then_some(folder),
                    };
                    self.known.insert(key, known);
                    above = folder;
                }
            }
            start = end + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::fixed_seed;

    #[test]
    fn paths_that_lead_elsewhere_are_refused_by_name() {
        for (path, fault) in [
            ("../a", PathFault::Parent),
            ("a/../../b", PathFault::Parent),
            ("a\\..\\b", PathFault::Parent),
            ("/etc/passwd", PathFault::Absolute),
            ("\\\\server\\share", PathFault::Absolute),
            ("C:\\a", PathFault::Absolute),
            ("c:a", PathFault::Absolute),
            ("", PathFault::NotClean),
            ("a//b", PathFault::NotClean),
            ("a/./b", PathFault::NotClean),
            ("a/", PathFault::NotClean),
            ("a/...", PathFault::Dot("...".to_owned())),
            ("a./b", PathFault::Dot("a.".to_owned())),
            ("a\\b", PathFault::Character('\\')),
            ("a\0", PathFault::Character('\0')),
            ("ab:c", PathFault::Character(':')),
            ("x/nul", PathFault::Reserved("nul".to_owned())),
            ("Com1.txt", PathFault::Reserved("Com1".to_owned())),
        ] {
            assert_eq!(check_path(path), Err(fault.clone()), "{path}");
            assert_eq!(check_go_path(path), Err(fault), "{path}");
        }
        assert_eq!(
            check_path("a ").unwrap_err(),
            PathFault::Space("a ".to_owned())
        );
        assert_eq!(
            check_path("lpt².tf").unwrap_err(),
            PathFault::Reserved("lpt²".to_owned())
        );
        assert_eq!(check_go_path("com¹"), Err(PathFault::Character('¹')));
        assert_eq!(check_go_path("a "), Ok(()));
        assert_eq!(check_path(&"a/".repeat(2100)), Err(PathFault::TooLong));
        for path in [
            "main.tf",
            ".github/a",
            "com10",
            "nul2/x",
            "it's ☃.md",
            "größe",
        ] {
            assert_eq!(check_path(path), Ok(()));
        }
        assert_eq!(check_go_path("☃"), Err(PathFault::Character('☃')));
        assert_eq!(check_go_path("größe/δ"), Ok(()));
    }

    #[test]
    fn paths_that_differ_only_in_case_collide() {
        let mut paths = Collisions::default();
        for (path, is_folder, expected) in [
            ("a/b", false, Ok(())),
            ("a/c", false, Ok(())),
            ("a", true, Ok(())),
            ("A/d", false, Err(PathFault::Case("a".to_owned()))),
            ("a/B", false, Err(PathFault::Case("a/b".to_owned()))),
            ("a/b", false, Err(PathFault::Twice)),
            ("a/b/c", false, Err(PathFault::FileAndFolder)),
            ("a", false, Err(PathFault::FileAndFolder)),
            ("straße", false, Ok(())),
            // A capital sharp s differs in case, but two letters s are another word.
            ("STRASSE", false, Ok(())),
            (
                "STRA\u{1e9e}E",
                false,
                Err(PathFault::Case("straße".to_owned())),
            ),
            ("\u{212a}", false, Ok(())),
            ("k", false, Err(PathFault::Case("\u{212a}".to_owned()))),
        ] {
            assert_eq!(paths.add(path, is_folder), expected, "{path}");
        }
    }

    #[test]
    fn deep_folders_do_not_fill_the_memory() {
        let mut paths = Collisions::default();
        let deep = "/a".repeat(2000);
        let faults: Vec<_> = (0..101)
            .map(|number| paths.add(&format!("{number}{deep}"), false))
            .collect();
        // Each path has 2,001 names.
        assert_eq!(faults[..99], vec![Ok(()); 99]);
        assert_eq!(faults[99..], [const { Err(PathFault::TooMany) }; 2]);
        // Folders that are known take no more memory, but their paths do.
        let mut paths = Collisions {
            size: MAX_PATHS - 6,
            ..Collisions::default()
        };
        assert_eq!(paths.add("a/b", true), Ok(()));
        assert_eq!(paths.add("a/b", true), Ok(()));
        assert_eq!(paths.add("a", true), Err(PathFault::TooMany));
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn any_path_is_checked(path in "([a-cA-C./\\\\: ]{0,8}|\\PC{0,12})", other in "[a-cA-C./]{0,6}") {
            let mut paths = Collisions::default();
            if check_go_path(&path).is_ok() {
                prop_assert!(check_path(&path).is_ok() || path.split('/').any(|part| part.ends_with(' ')));
                prop_assert_eq!(paths.add(&path, false), Ok(()));
                prop_assert_eq!(paths.add(&path, false), Err(PathFault::Twice));
                let is_same = path.eq_ignore_ascii_case(&other);
                prop_assert!(!is_same || paths.add(&other, true).is_err());
            }
        }
    }
}
