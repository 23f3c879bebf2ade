//! Repositories and the hosts they live on.

use std::fmt;
use std::str::FromStr;

use super::text::text_type;

/// Why a text is not a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a repository: {reason}")]
pub struct InvalidRepo {
    text: String,
    reason: &'static str,
}

/// The name of a forge host, lower-cased, with a port only where the forge is addressed by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Lower-cases and checks the name.
    pub fn new(text: &str) -> Result<Self, InvalidRepo> {
        let invalid = |reason| InvalidRepo { text: text.to_owned(), reason };
        if text.is_empty() || text.len() > 255 {
            return Err(invalid("a host name has 1 to 255 characters"));
        }
        if !text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']')) {
            return Err(invalid("a host name consists of letters, digits, dots and hyphens"));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The name, with the port if there is one.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without a port.
    pub fn name(&self) -> &str {
        match self.0.rsplit_once(':') {
            // A colon inside of brackets is part of an address.
            Some((name, port)) if !port.ends_with(']') => name,
            _ => &self.0,
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = InvalidRepo;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

text_type!(HostName);

/// A repository on one host, e.g. `github.com/acme/infra`. Forges compare these names without regard to
/// case, so the constructor lower-cases.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoId {
    host: HostName,
    path: String,
}

impl RepoId {
    /// `path` is what follows the host: `owner/name`, on some forges with more segments.
    pub fn new(host: HostName, path: &str) -> Result<Self, InvalidRepo> {
        let text = path;
        let invalid = |reason| InvalidRepo { text: text.to_owned(), reason };
        // Before it is looked at: there are letters whose lower case is none.
        let path = path.to_lowercase();
        if path.len() > 512 {
            return Err(invalid("the name is longer than 512 characters"));
        }
        let segments: Vec<&str> = path.split('/').collect();
        if segments.len() < 2 {
            return Err(invalid("expected `owner/name`"));
        }
        let segment_is_fine = |s: &&str| {
            !s.is_empty()
                && *s != "."
                && *s != ".."
                && !s.starts_with('-')
                && s.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '~' | ' ' | '+'))
        };
        if !segments.iter().all(segment_is_fine) {
            return Err(invalid("each part consists of letters, digits, `.`, `-` and `_` and is not `.` or `..`"));
        }
        Ok(Self { host, path })
    }

    /// The host.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// `owner/name`, as Atlantis calls the full name.
    pub fn full_name(&self) -> &str {
        &self.path
    }

    /// Everything before the last slash of [`Self::full_name`].
    pub fn owner(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(owner, _)| owner)
    }

    /// The last segment of [`Self::full_name`].
    pub fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(self.path.as_str(), |(_, name)| name)
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)
    }
}

impl FromStr for RepoId {
    type Err = InvalidRepo;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, path) = text
            .split_once('/')
            .ok_or_else(|| InvalidRepo { text: text.to_owned(), reason: "expected `host/owner/name`" })?;
        Self::new(HostName::new(host)?, path)
    }
}

text_type!(RepoId);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_compared_without_case() {
        let a: RepoId = "GitHub.com/Acme/Infra".parse().unwrap();
        assert_eq!(a, "github.com/acme/infra".parse().unwrap());
        assert_eq!((a.owner(), a.name()), ("acme", "infra"));
    }

    #[test]
    fn what_was_read_can_be_read_again() {
        for path in ["acme/\u{130}", "acme/a\u{130}b", "\u{212a}x/\u{1e9e}", "ACME/ÜBER", "acme/ǅ"] {
            if let Ok(repo) = format!("github.com/{path}").parse::<RepoId>() {
                assert_eq!(repo.to_string().parse::<RepoId>().unwrap(), repo);
            }
        }
        assert!("github.com/acme/\u{130}".parse::<RepoId>().is_err(), "its lower case has a mark that is no letter");
    }

    proptest! {
        #[test]
        fn whatever_was_read_can_be_read_again(path in "\\PC{1,12}/\\PC{1,12}|[a-zA-Zİẞǅ.-]{1,6}/[a-zA-Zİẞǅ.-]{1,6}") {
            if let Ok(repo) = format!("github.com/{path}").parse::<RepoId>() {
                prop_assert_eq!(repo.to_string().parse::<RepoId>().unwrap(), repo);
            }
        }
    }

    #[test]
    fn names_that_could_leave_their_place_are_refused() {
        for text in [
            "github.com/acme",
            "github.com/acme/..",
            "github.com/../x",
            "github.com/a/b c\n",
            "github.com/a/-b",
            "a b/c/d",
        ] {
            assert!(text.parse::<RepoId>().is_err(), "{text:?}");
        }
    }
}
