//! Subjects of events in the audit log that concern no lock, pull or applies.

use std::fmt;
use std::str::FromStr;

use super::owner::{InvalidOwnerName, OwnerName};
use super::repo::{InvalidRepo, RepoId};
use super::text::text_type;

/// An owner or a repository, e.g. `net` or `github.com/acme/infra`. A repository has a slash and the name of an owner
/// never has, so the text alone distinguishes the two.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Concern {
    /// An owner: itself, its claims, applications and credentials.
    Owner(OwnerName),
    /// A repository: its mirrors and their leases.
    Repo(RepoId),
}

/// Reason why a text is neither of the two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConcern {
    /// The text has no slash and is not a valid owner.
    #[error(transparent)]
    Owner(#[from] InvalidOwnerName),
    /// The text has a slash and is not a valid repository.
    #[error(transparent)]
    Repo(#[from] InvalidRepo),
}

impl Concern {
    /// Returns the owner, unless the subject is a repository.
    pub const fn owner(&self) -> Option<&OwnerName> {
        match self {
            Self::Owner(owner) => Some(owner),
            Self::Repo(_) => None,
        }
    }

    /// Returns the repository, unless the subject is an owner.
    pub const fn repo(&self) -> Option<&RepoId> {
        match self {
            Self::Owner(_) => None,
            Self::Repo(repo) => Some(repo),
        }
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(owner) => owner.fmt(f),
            Self::Repo(repo) => repo.fmt(f),
        }
    }
}

impl FromStr for Concern {
    type Err = InvalidConcern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') {
            Ok(Self::Repo(text.parse()?))
        } else {
            Ok(Self::Owner(text.parse()?))
        }
    }
}

text_type!(Concern);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_tells_an_owner_from_a_repository() {
        for (text, owner, repo) in [
            ("net", Some("net"), None),
            ("github.com/acme/net", None, Some("github.com/acme/net")),
        ] {
            let concern: Concern = text.parse().unwrap();
            assert_eq!(concern.to_string(), text);
            assert_eq!(concern.owner().map(ToString::to_string).as_deref(), owner);
            assert_eq!(concern.repo().map(ToString::to_string).as_deref(), repo);
        }
        assert!(matches!(
            "a b".parse::<Concern>(),
            Err(InvalidConcern::Owner(_))
        ));
        assert!(matches!(
            "/".parse::<Concern>(),
            Err(InvalidConcern::Repo(_))
        ));
    }
}
