//! Repositories and their hosts.

use std::fmt;
use std::str::FromStr;

use super::text::text_type;

/// Error for a text that is not a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a repository: {reason}")]
pub struct InvalidRepo {
    text: String,
    reason: &'static str,
}

const FORM: &str = "expected `host/owner/name`";

/// The lower-case name of a forge host, with a port only where the address of the forge has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Lower-cases and checks the name.
    pub fn new(text: &str) -> Result<Self, InvalidRepo> {
        let invalid = |reason| InvalidRepo {
            text: text.to_owned(),
            reason,
        };
        if text.is_empty() || text.len() > 255 {
            return Err(invalid("a host name has 1 to 255 characters"));
        }
        if !text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']'))
        {
            return Err(invalid(
                "a host name consists of letters, digits, dots and hyphens",
            ));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// Returns the name, with the port if there is one.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name without a port.
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

/// A repository on one host, e.g. `github.com/acme/infra`. Forges compare these names without regard to case, so the
/// constructor lower-cases them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoId {
    host: HostName,
    path: String,
}

impl RepoId {
    /// Checks a name. `path` is the part after the host: `owner/name`, on some forges with more segments.
    ///
    /// Names are ASCII, like those of GitHub. In other scripts, some letters look alike, and some compare as equal
    /// after a change of case.
    pub fn new(host: HostName, path: &str) -> Result<Self, InvalidRepo> {
        let invalid = |reason| InvalidRepo {
            text: path.to_owned(),
            reason,
        };
        if !path.is_ascii() {
            return Err(invalid("names of repositories are ASCII"));
        }
        let own = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let repo = Self::read(host, path, own).map_err(|reason| {
            invalid(reason.unwrap_or(
                "each part consists of letters, digits, `.`, `-` and `_` and is not `.` or `..`",
            ))
        })?;
        if !repo.owner().contains('/') && repo.owner().contains('.') {
            return Err(invalid("an owner consists of letters, digits, `-` and `_`"));
        }
        // Git serves `name` and `name.git` as one.
        if repo
            .path
            .rsplit_once('.')
            .is_some_and(|(_, end)| end == "git")
        {
            Err(invalid("leave out the `.git` at the end"))
        } else {
            Ok(repo)
        }
    }

    /// Reads a stored name, `host/path`. Older releases accepted letters of all scripts, blanks, `~` and `+`, which
    /// no repository of GitHub has. Such a row is shown, but no new rows appear under its name.
    pub fn of_record(text: &str) -> Result<Self, InvalidRepo> {
        let invalid = |reason| InvalidRepo {
            text: text.to_owned(),
            reason,
        };
        let (host, path) = text.split_once('/').ok_or_else(|| invalid(FORM))?;
        let any = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '~' | ' ' | '+');
        let read = Self::read(HostName::new(host)?, path, any);
        read.map_err(|reason| {
            invalid(reason.unwrap_or("it has characters that no release has accepted"))
        })
    }

    /// Checks the segments of a path. An error without a reason means that a segment has an invalid character or
    /// form.
    fn read(
        host: HostName,
        path: &str,
        may_hold: impl Fn(char) -> bool,
    ) -> Result<Self, Option<&'static str>> {
        // The path is lower-cased before the check, because some letters change into other characters.
        let path = path.to_lowercase();
        if path.len() > 512 {
            return Err(Some("the name is longer than 512 characters"));
        }
        let segments: Vec<&str> = path.split('/').collect();
        if segments.len() < 2 {
            return Err(Some("expected `owner/name`"));
        }
        let segment_is_fine = |s: &&str| {
            !s.is_empty()
                && *s != "."
                && *s != ".."
                && !s.starts_with('-')
                && s.chars().all(&may_hold)
        };
        if segments.iter().all(segment_is_fine) {
            Ok(Self { host, path })
        } else {
            Err(None)
        }
    }

    /// Returns the host of the repository.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// Returns `owner/name`, which Atlantis calls the full name.
    pub fn full_name(&self) -> &str {
        &self.path
    }

    /// Returns everything before the last slash of [`Self::full_name`].
    pub fn owner(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(owner, _)| owner)
    }

    /// Returns the last segment of [`Self::full_name`].
    pub fn name(&self) -> &str {
        self.path
            .rsplit_once('/')
            .map_or(self.path.as_str(), |(_, name)| name)
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
        let (host, path) = text.split_once('/').ok_or_else(|| InvalidRepo {
            text: text.to_owned(),
            reason: FORM,
        })?;
        Self::new(HostName::new(host)?, path)
    }
}

text_type!(RepoId, of_row: RepoId::of_record);

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
    fn names_are_ascii_as_those_of_github_are() {
        for path in [
            "acme/infra",
            "Acme-Net/Infra.2_x",
            "acme_corp/.github",
            "a/_",
            "group/sub.group/infra",
        ] {
            let repo: RepoId = format!("github.com/{path}").parse().unwrap();
            assert_eq!(repo.full_name(), path.to_ascii_lowercase());
        }
        // The long s becomes a plain one in capitals. The Kelvin sign and the dotted I become plain letters in lower
        // case.
        for (path, reason) in [
            ("acme/\u{17f}ecret", "names of repositories are ASCII"),
            ("\u{212a}im/infra", "names of repositories are ASCII"),
            ("acme/\u{130}nfra", "names of repositories are ASCII"),
            ("acme/ünet", "names of repositories are ASCII"),
            ("acme/infra\u{a0}", "names of repositories are ASCII"),
            (
                "acme/infra ",
                "each part consists of letters, digits, `.`, `-` and `_` and is not `.` or `..`",
            ),
            (
                "acme/in+fra",
                "each part consists of letters, digits, `.`, `-` and `_` and is not `.` or `..`",
            ),
            (
                "acme/in~fra",
                "each part consists of letters, digits, `.`, `-` and `_` and is not `.` or `..`",
            ),
            (
                "acme.corp/infra",
                "an owner consists of letters, digits, `-` and `_`",
            ),
            ("acme/infra.git", "leave out the `.git` at the end"),
        ] {
            let refused = format!("github.com/{path}").parse::<RepoId>().unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("`{path}` is not a repository: {reason}")
            );
        }
    }

    #[test]
    fn what_an_older_release_has_written_is_still_read_from_its_rows() {
        for text in [
            "github.com/acme/ſecret",
            "github.com/acme/infra ",
            "git.acme.com/my net/ü+x~",
            "github.com/a.b/c.git",
        ] {
            assert_eq!(RepoId::of_record(text).unwrap().to_string(), text);
            assert!(text.parse::<RepoId>().is_err(), "{text}");
        }
        for text in [
            "github.com",
            "github.com/acme",
            "github.com/acme/..",
            "github.com/acme/a\nb",
            "github.com/a/-b",
        ] {
            assert!(RepoId::of_record(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_was_read_can_be_read_again(path in "\\PC{1,12}/\\PC{1,12}|[a-zA-Zİẞǅ.-]{1,6}/[a-zA-Zİẞǅ.-]{1,6}") {
            if let Ok(repo) = format!("github.com/{path}").parse::<RepoId>() {
                prop_assert!(repo.to_string().is_ascii());
                prop_assert_eq!(&repo.to_string().parse::<RepoId>().unwrap(), &repo);
                prop_assert_eq!(RepoId::of_record(&repo.to_string()).unwrap(), repo);
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
