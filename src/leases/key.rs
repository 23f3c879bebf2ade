//! What a lease is for, as a text that is the same on every server.

use std::fmt;

use crate::model::RepoId;

/// The name of something exclusive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseKey(String);

/// What sort of work a lease is for: the first word of its key, and a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Something that changes a mirror.
    RepositorySync,
    /// The turn of a reconciler.
    Reconciler,
    /// What this release does not know.
    Other,
}

impl LeaseKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RepositorySync, Self::Reconciler, Self::Other];

    /// As it stands in keys and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RepositorySync => "repository_sync",
            Self::Reconciler => "reconciler",
            Self::Other => "other",
        }
    }
}

impl LeaseKey {
    /// The mirror of a repository below one data directory: `home` is the name of that directory, which outlives its
    /// servers.
    pub fn repository_sync(home: &str, repo: &RepoId) -> Self {
        Self::of(LeaseKind::RepositorySync, &format!("{home}:{repo}"))
    }

    /// What the keys of all mirrors below one data directory begin with.
    pub fn beginning_of_home(home: &str) -> String {
        format!("{}:{home}:", LeaseKind::RepositorySync.as_str())
    }

    /// The turn of a reconciler.
    pub fn reconciler(name: &str) -> Self {
        Self::of(LeaseKind::Reconciler, name)
    }

    /// A key as it stands in a row, or as a person gives it.
    pub fn of_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn of(kind: LeaseKind, what: &str) -> Self {
        Self(format!("{}:{what}", kind.as_str()))
    }

    /// What sort of work it is for.
    pub fn kind(&self) -> LeaseKind {
        let word = self.0.split_once(':').map_or("", |(word, _)| word);
        LeaseKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == word)
            .unwrap_or(LeaseKind::Other)
    }

    /// The repository whose mirror it is for, if it is for one.
    pub fn repo(&self) -> Option<RepoId> {
        let what = self
            .0
            .strip_prefix(LeaseKind::RepositorySync.as_str())?
            .strip_prefix(':')?;
        what.split_once(':')?.1.parse().ok()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_begins_with_its_kind() {
        let repo = "github.com/acme/infra".parse().unwrap();
        let sync = LeaseKey::repository_sync("0198", &repo);
        assert_eq!(
            sync.to_string(),
            "repository_sync:0198:github.com/acme/infra"
        );
        assert!(
            sync.as_str()
                .starts_with(&LeaseKey::beginning_of_home("0198"))
        );
        assert!(
            !sync
                .as_str()
                .starts_with(&LeaseKey::beginning_of_home("019"))
        );
        assert_eq!(LeaseKey::reconciler("disk").as_str(), "reconciler:disk");
        let kinds = [
            sync.as_str(),
            "reconciler:disk",
            "reconciler",
            "",
            "x:reconciler:y",
        ];
        let kinds = kinds.map(|key| LeaseKey::of_text(key).kind().as_str());
        assert_eq!(
            kinds,
            ["repository_sync", "reconciler", "other", "other", "other"]
        );
        assert_eq!(sync.repo(), Some(repo));
        for key in [
            "reconciler:disk",
            "repository_sync",
            "repository_sync:0198",
            "repository_sync:0198:x",
            "x:y:h/a/b",
        ] {
            assert_eq!(LeaseKey::of_text(key).repo(), None, "{key}");
        }
    }
}
