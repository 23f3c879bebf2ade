//! Paths inside a repository.

use std::fmt;
use std::str::FromStr;

use super::text::text_type;

/// Reason why a text is not a path inside a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// The path climbs above the root of the repository.
    #[error("`{0}` leaves the repository")]
    Leaves(String),
    /// The path has a NUL or another control character.
    #[error("{0:?} has a control character")]
    Control(String),
    /// The path is longer than any real path.
    #[error("the path is longer than {} bytes", RepoPath::MAX_BYTES)]
    TooLong,
}

/// A path relative to the root of a repository, cleaned once: `.` for the root, no leading or trailing slash, no `.`
/// or `..` segments, never outside the repository.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoPath(String);

impl RepoPath {
    /// Maximum length in bytes. Paths of real repositories are shorter, and longer ones fit in no index of
    /// PostgreSQL.
    pub const MAX_BYTES: usize = 1024;

    /// Returns the root of the repository.
    pub fn root() -> Self {
        Self(".".to_owned())
    }

    /// Cleans a path. A leading slash stands for the root of the repository (reference 1.1, step 13).
    pub fn new(text: &str) -> Result<Self, InvalidPath> {
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidPath::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidPath::Control(text.to_owned()));
        }
        let absolute = text.starts_with('/');
        let mut parts: Vec<&str> = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.pop().is_some() || absolute => {}
                ".." => return Err(InvalidPath::Leaves(text.to_owned())),
                name => parts.push(name),
            }
        }
        Ok(if parts.is_empty() {
            Self::root()
        } else {
            Self(parts.join("/"))
        })
    }

    /// Returns the cleaned text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for the root.
    pub fn is_root(&self) -> bool {
        self.0 == "."
    }

    /// Returns the directory that contains this path. The root's parent is the root.
    #[must_use]
    pub fn parent(&self) -> Self {
        self.0
            .rsplit_once('/')
            .map_or_else(Self::root, |(parent, _)| Self(parent.to_owned()))
    }

    /// Returns the last segment; `.` for the root.
    pub fn file_name(&self) -> &str {
        self.0
            .rsplit_once('/')
            .map_or(self.0.as_str(), |(_, name)| name)
    }

    /// Joins and cleans. Fails when the result leaves the repository.
    pub fn join(&self, relative: &str) -> Result<Self, InvalidPath> {
        if self.is_root() {
            return Self::new(relative.trim_start_matches('/'));
        }
        Self::new(&format!("{}/{}", self.0, relative))
    }

    /// Appends one part of a path, as [`Self::join`] does, without cleaning the rest again. After an error the path
    /// is unchanged.
    pub fn enter(&mut self, part: &str) -> Result<(), InvalidPath> {
        match part {
            "" | "." => {}
            ".." if self.is_root() => return Err(InvalidPath::Leaves(part.to_owned())),
            ".." => match self.0.rfind('/') {
                Some(end) => self.0.truncate(end),
                None => *self = Self::root(),
            },
            part if self.is_root() || part.contains('/') => *self = self.join(part)?,
            part if self.0.len() + 1 + part.len() > Self::MAX_BYTES => {
                return Err(InvalidPath::TooLong);
            }
            part if part.chars().any(char::is_control) => {
                return Err(InvalidPath::Control(part.to_owned()));
            }
            name => {
                self.0.push('/');
                self.0.push_str(name);
            }
        }
        Ok(())
    }

    /// Returns true if `other` is this path or lies below it.
    pub fn contains(&self, other: &Self) -> bool {
        self.is_root()
            || self == other
            || other
                .0
                .strip_prefix(&self.0)
                .is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for RepoPath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

text_type!(RepoPath);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_cleaned_as_the_reference_says() {
        for (text, clean) in [
            ("/", "."),
            ("", "."),
            ("a/b/", "a/b"),
            ("/a", "a"),
            ("/..", "."),
            ("./a//b/../c", "a/c"),
        ] {
            assert_eq!(RepoPath::new(text).unwrap().as_str(), clean, "{text}");
        }
        for text in ["..", "./..", "a/../..", "a\0b"] {
            assert!(RepoPath::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_part_that_cannot_be_entered_changes_nothing() {
        let mut at = RepoPath::new("a/b").unwrap();
        let long = "x".repeat(RepoPath::MAX_BYTES - 3);
        assert_eq!(at.enter(&long), Err(InvalidPath::TooLong));
        assert_eq!(at.enter("x\n"), Err(InvalidPath::Control("x\n".to_owned())));
        assert!(at.enter("../../..").is_err());
        assert_eq!(at.as_str(), "a/b");
        at.enter(&long[1..]).unwrap();
        assert_eq!(at.as_str().len(), RepoPath::MAX_BYTES);
    }

    proptest! {
        #[test]
        fn entering_is_joining(base in "[a-c./ -]{0,12}", part in "[a-c./\n -]{0,6}") {
            if let Ok(base) = RepoPath::new(&base) {
                let mut at = base.clone();
                let entered = at.enter(&part).is_ok();
                let joined = base.join(&part);
                prop_assert_eq!(entered, joined.is_ok());
                prop_assert_eq!(at, joined.unwrap_or(base));
            }
        }

        #[test]
        fn cleaning_is_idempotent_and_never_leaves(text in "[a-c./ -]{0,24}") {
            if let Ok(path) = RepoPath::new(&text) {
                prop_assert_eq!(&RepoPath::new(path.as_str()).unwrap(), &path);
                prop_assert!(!path.as_str().split('/').any(|part| part == ".."));
                prop_assert!(!path.as_str().starts_with('/') && !path.as_str().ends_with('/'));
                prop_assert!(path.parent().contains(&path));
            }
        }
    }
}
