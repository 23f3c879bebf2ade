//! Keys of leases: texts that name exclusive work and are the same on every server.

use std::fmt;

use lockkeeper_registry::versions::VersionKey;

use crate::model::RepoId;

/// The name of exclusive work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseKey(String);

/// Sort of work under a lease: the first word of its key, and a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// A change of a mirror.
    RepositorySync,
    /// The turn of a reconciler.
    Reconciler,
    /// The reading of the log of a peer of the registry.
    RegistryPull,
    /// The telling of a peer of the registry.
    RegistryPush,
    /// The download of a package of the registry.
    RegistryDownload,
    /// The fetch of a version that the registry does not have.
    RegistryFill,
    /// Work that this release does not know.
    Other,
}

impl LeaseKind {
    /// All kinds of leases.
    pub const ALL: [Self; 7] = [
        Self::RepositorySync,
        Self::Reconciler,
        Self::RegistryPull,
        Self::RegistryPush,
        Self::RegistryDownload,
        Self::RegistryFill,
        Self::Other,
    ];

    /// Returns the spelling in keys and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RepositorySync => "repository_sync",
            Self::Reconciler => "reconciler",
            Self::RegistryPull => "registry_pull",
            Self::RegistryPush => "registry_push",
            Self::RegistryDownload => "registry_download",
            Self::RegistryFill => "registry_fill",
            Self::Other => "other",
        }
    }
}

impl LeaseKey {
    /// Returns the key for the mirror of a repository below one data directory. `data_dir_id` is the name of that
    /// directory, which outlives its servers.
    pub fn repository_sync(data_dir_id: &str, repo: &RepoId) -> Self {
        Self::of(LeaseKind::RepositorySync, &format!("{data_dir_id}:{repo}"))
    }

    /// Returns the common prefix of the keys of all mirrors below one data directory.
    pub fn beginning_of_data_dir(data_dir_id: &str) -> String {
        format!("{}:{data_dir_id}:", LeaseKind::RepositorySync.as_str())
    }

    /// Returns the key for the turn of a reconciler.
    pub fn reconciler(name: &str) -> Self {
        Self::of(LeaseKind::Reconciler, name)
    }

    /// Returns the key for reading the log of a peer of the registry.
    pub fn registry_pull(peer: &str) -> Self {
        Self::of(LeaseKind::RegistryPull, peer)
    }

    /// Returns the key for telling a peer of the registry about new records.
    pub fn registry_push(peer: &str) -> Self {
        Self::of(LeaseKind::RegistryPush, peer)
    }

    /// Returns the key for downloading the package of a version, which is named by kind, name and version.
    pub fn registry_download(version: &str) -> Self {
        Self::of(LeaseKind::RegistryDownload, version)
    }

    /// Returns the key for the fetch of a version that the registry does not have.
    pub fn registry_fill(version: &VersionKey) -> Self {
        let name = version.name();
        let what = format!("{}:{}@{}", name.kind(), name.as_str(), version.version());
        Self::of(LeaseKind::RegistryFill, &what)
    }

    /// Wraps a key that was read from a row or entered by a person.
    pub fn of_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn of(kind: LeaseKind, what: &str) -> Self {
        Self(format!("{}:{what}", kind.as_str()))
    }

    /// Returns the sort of work that the key names.
    pub fn kind(&self) -> LeaseKind {
        let word = self.0.split_once(':').map_or("", |(word, _)| word);
        LeaseKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == word)
            .unwrap_or(LeaseKind::Other)
    }

    /// Returns the repository of the mirror, if the key names one.
    pub fn repo(&self) -> Option<RepoId> {
        let what = self
            .0
            .strip_prefix(LeaseKind::RepositorySync.as_str())?
            .strip_prefix(':')?;
        what.split_once(':')?.1.parse().ok()
    }

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
                .starts_with(&LeaseKey::beginning_of_data_dir("0198"))
        );
        assert!(
            !sync
                .as_str()
                .starts_with(&LeaseKey::beginning_of_data_dir("019"))
        );
        assert_eq!(LeaseKey::reconciler("disk").as_str(), "reconciler:disk");
        let version = "go example.com/m v1.0.0".parse().unwrap();
        let fill = LeaseKey::registry_fill(&version);
        assert_eq!(fill.as_str(), "registry_fill:go:example.com/m@v1.0.0");
        assert_eq!(fill.kind(), LeaseKind::RegistryFill);
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
