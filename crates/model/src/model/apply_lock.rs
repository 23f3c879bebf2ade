//! Apply locks: stops for applies on the whole server, in one repository, or in a directory and below.

use std::fmt;

use chrono::{DateTime, Utc};

use super::ids::ApplyLockId;
use super::path::RepoPath;
use super::person::Person;
use super::repo::RepoId;

/// Applies that an apply lock stops.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ApplyScope {
    /// Every apply of this server.
    Server,
    /// Every apply in a repository.
    Repo(RepoId),
    /// Applies in a directory and everything below it, in any workspace.
    Path {
        /// Repository of the directory.
        repo: RepoId,
        /// Top directory of the stop.
        dir: RepoPath,
    },
    /// A stored value that this version does not understand. It stops every apply (P6).
    Unknown(String),
}

impl ApplyScope {
    /// Returns the scope of a repository, or of a directory in it. The root stands for the whole repository.
    pub fn in_repo(repo: RepoId, dir: Option<RepoPath>) -> Self {
        match dir.filter(|dir| !dir.is_root()) {
            Some(dir) => Self::Path { repo, dir },
            None => Self::Repo(repo),
        }
    }

    /// Reads the scope from its columns.
    pub fn from_columns(kind: &str, repo: &str, dir: &str) -> Self {
        let understood = match (kind, repo, dir) {
            ("server", "", "") => Some(Self::Server),
            ("repo", repo, "") => RepoId::of_record(repo).ok().map(Self::Repo),
            ("path", repo, dir) if !dir.is_empty() => RepoId::of_record(repo)
                .ok()
                .zip(dir.parse().ok())
                .map(|(repo, dir)| Self::Path { repo, dir }),
            _ => None,
        };
        let words = [kind, repo, dir]
            .into_iter()
            .filter(|word| !word.is_empty());
        understood.unwrap_or_else(|| Self::Unknown(words.collect::<Vec<_>>().join(" ")))
    }

    /// Returns the kind as stored in the database and sent to programs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Repo(_) => "repo",
            Self::Path { .. } => "path",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the repository that limits the scope, if there is one.
    pub const fn repo(&self) -> Option<&RepoId> {
        match self {
            Self::Repo(repo) | Self::Path { repo, .. } => Some(repo),
            Self::Server | Self::Unknown(_) => None,
        }
    }

    /// Returns the directory that limits the scope, if there is one.
    pub const fn dir(&self) -> Option<&RepoPath> {
        match self {
            Self::Path { dir, .. } => Some(dir),
            Self::Server | Self::Repo(_) | Self::Unknown(_) => None,
        }
    }

    /// Returns true if the lock stops applies in this directory of this repository.
    pub fn covers(&self, repo: &RepoId, dir: &RepoPath) -> bool {
        match self {
            Self::Server | Self::Unknown(_) => true,
            Self::Repo(own) => own == repo,
            Self::Path {
                repo: own,
                dir: top,
            } => own == repo && top.contains(dir),
        }
    }
}

impl fmt::Display for ApplyScope {
    /// Formats the scope for logs and terminals: `everywhere`, `github.com/acme/infra`,
    /// `network in github.com/acme/infra`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("everywhere"),
            Self::Repo(repo) => write!(f, "{repo}"),
            Self::Path { repo, dir } => write!(f, "{dir} in {repo}"),
            Self::Unknown(text) => write!(f, "everywhere (unknown scope: {text})"),
        }
    }
}

/// An apply lock that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyLock {
    /// Identifier from its start until its end.
    pub id: ApplyLockId,
    /// Applies that the lock stops.
    pub scope: ApplyScope,
    /// Person who set it.
    pub holder: Person,
    /// Reason that people see.
    pub reason: String,
    /// Start of the lock.
    pub taken_at: DateTime<Utc>,
    /// End of the lock. `None` means that it stays until somebody allows applies again.
    pub ends_at: Option<DateTime<Utc>>,
}

impl ApplyLock {
    /// Returns true if the lock has expired. From then on it stops nothing.
    pub fn has_ended(&self, now: DateTime<Utc>) -> bool {
        self.ends_at.is_some_and(|end| end <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn repo(name: &str) -> RepoId {
        name.parse().unwrap()
    }

    fn path(dir: &str) -> ApplyScope {
        ApplyScope::in_repo(repo("github.com/acme/infra"), Some(dir.parse().unwrap()))
    }

    #[test]
    fn a_directory_is_covered_with_all_below_it_and_nothing_beside_it() {
        let infra = repo("github.com/acme/infra");
        for (dir, covered) in [
            ("network", true),
            ("network/eu", true),
            ("network/eu/west", true),
            ("network-2", false),
            ("network-2/eu", false),
            (".", false),
            ("app/network", false),
        ] {
            assert_eq!(
                path("./network/").covers(&infra, &dir.parse().unwrap()),
                covered,
                "{dir}"
            );
        }
        assert!(
            !path("network").covers(&repo("github.com/acme/apps"), &"network".parse().unwrap())
        );
        assert!(
            !path("network").covers(&repo("git.example/acme/infra"), &"network".parse().unwrap())
        );
    }

    #[test]
    fn the_root_of_a_repository_is_the_whole_of_it() {
        assert_eq!(path("/"), ApplyScope::Repo(repo("github.com/ACME/infra")));
    }

    #[test]
    fn what_is_not_understood_covers_everything_and_is_named() {
        for (kind, at, dir, text) in [
            ("team", "acme", "", "team acme"),
            (
                "server",
                "github.com/acme/infra",
                "",
                "server github.com/acme/infra",
            ),
            ("repo", "acme", "", "repo acme"),
            (
                "repo",
                "github.com/acme/infra",
                "net",
                "repo github.com/acme/infra net",
            ),
            (
                "path",
                "github.com/acme/infra",
                "",
                "path github.com/acme/infra",
            ),
            (
                "path",
                "github.com/acme/infra",
                "../..",
                "path github.com/acme/infra ../..",
            ),
            ("", "", "", ""),
        ] {
            let scope = ApplyScope::from_columns(kind, at, dir);
            assert_eq!(scope, ApplyScope::Unknown(text.to_owned()));
            assert!(scope.covers(&repo("github.com/acme/apps"), &RepoPath::root()));
        }
    }

    proptest! {
        #[test]
        fn a_scope_covers_what_lies_below_by_the_segments_of_its_path(
            top in proptest::collection::vec("[a-c]{1,2}", 0..4),
            dir in proptest::collection::vec("[a-c]{1,2}", 0..4),
            ours: bool,
        ) {
            let (infra, other) = (repo("github.com/acme/infra"), repo("github.com/acme/infra-2"));
            let scope = path(&top.join("/"));
            let at = if ours { &infra } else { &other };
            let expected = ours && dir.starts_with(&top);
            prop_assert_eq!(scope.covers(at, &RepoPath::new(&dir.join("/")).unwrap()), expected);
            prop_assert!(ApplyScope::Server.covers(at, &RepoPath::new(&dir.join("/")).unwrap()));
        }

        #[test]
        fn a_scope_comes_back_from_its_columns(dir in "[a-c./-]{0,12}") {
            if let Ok(dir) = RepoPath::new(&dir) {
                let scope = ApplyScope::in_repo(repo("github.com/acme/infra"), Some(dir));
                let text = |part: Option<String>| part.unwrap_or_default();
                let columns = (text(scope.repo().map(ToString::to_string)), text(scope.dir().map(ToString::to_string)));
                prop_assert_eq!(&ApplyScope::from_columns(scope.kind(), &columns.0, &columns.1), &scope);
            }
        }
    }
}
