//! Finds the forge of a repository.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Forge, ForgeError};
use crate::model::{HostName, RepoId};

/// Connections to the forges of a server, by host.
#[derive(Clone, Default)]
pub struct Forges(Arc<BTreeMap<HostName, Arc<dyn Forge>>>);

impl Forges {
    /// Creates the list of the forges of a server. Of two connections to one host, the later one is used.
    pub fn new(forges: impl IntoIterator<Item = Arc<dyn Forge>>) -> Self {
        let by_host = forges
            .into_iter()
            .map(|forge| (forge.host().clone(), forge));
        Self(Arc::new(by_host.collect()))
    }

    /// Returns the forge of a repository.
    ///
    /// # Errors
    ///
    /// [`ForgeError::NotConfigured`] if the server has no connection to the host of the repository.
    pub fn of(&self, repo: &RepoId) -> Result<&dyn Forge, ForgeError> {
        self.on(repo.host())
            .ok_or_else(|| ForgeError::NotConfigured {
                host: repo.host().clone(),
                configured: self.names(),
            })
    }

    /// Returns the forge of a host.
    pub fn on(&self, host: &HostName) -> Option<&dyn Forge> {
        self.0.get(host).map(|forge| &**forge)
    }

    /// Returns true if the server has a connection to a host.
    pub fn has(&self, host: &HostName) -> bool {
        self.0.contains_key(host)
    }

    /// Returns all forges, ordered by host.
    pub fn all(&self) -> impl Iterator<Item = &dyn Forge> {
        self.0.values().map(|forge| &**forge)
    }

    /// Returns the hosts for messages: `code.acme.com and github.com`.
    pub fn names(&self) -> String {
        let hosts: Vec<&str> = self.0.keys().map(HostName::as_str).collect();
        match hosts.as_slice() {
            [] => "no forge".to_owned(),
            [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
            one => one.concat(),
        }
    }
}
