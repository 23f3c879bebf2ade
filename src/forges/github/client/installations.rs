//! Remembers the installation of a GitHub App for each repository.
//!
//! An installation belongs to an account, and an account has at most one of an App. It gives access to some or all
//! repositories of the account. There are four sources, which differ in what they may be used for:
//!
//! | Source | Holds for | Used for |
//! |--|--|--|
//! | GitHub's answer about the repository | the repository | everything |
//! | `--gh-app-installation-id` | all repositories that nothing else is known of | everything |
//! | GitHub's answer about another repository of the owner | all repositories of the owner | everything |
//! | a signed delivery | the served repositories that it names | the API of the repository |
//!
//! A delivery is only a hint. Everyone who knows the secret of one webhook can sign a delivery that names any repository and
//! any installation. A token for git can read all repositories of its installation (submodules and modules need
//! that), so a hint never chooses the token for git. If GitHub refuses a request with an installation that it did not
//! name for the repository, it has to name the right one, once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::RepoId;

/// Maximum number of repositories and of owners that are remembered; another lookup costs a request.
const MOST: usize = 10_000;

/// Installations of an App, as far as this process knows them.
pub(in crate::forges::github) struct Installations {
    configured: Option<u64>,
    known: Mutex<KnownInstallations>,
}

#[derive(Default)]
struct KnownInstallations {
    repos: HashMap<RepoId, InstallationSource>,
    owners: HashMap<String, u64>,
    lookups: HashMap<String, LookupTurn>,
}

/// Turn to look up an installation of an owner, so that a burst of requests asks once.
pub(super) type LookupTurn = Arc<tokio::sync::Mutex<()>>;

/// Source of the installation of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstallationSource {
    /// A delivery named the installation.
    Delivery(u64),
    /// GitHub named the installation of this repository.
    GitHub(u64),
    /// Another source was wrong, so GitHub has to be asked.
    NoneYet,
}

impl Installations {
    /// Creates a memory with the installation that the administrator configured, if any.
    pub fn new(configured: Option<u64>) -> Self {
        Self {
            configured,
            known: Mutex::default(),
        }
    }

    /// Remembers the installation that a delivery names for a repository, unless GitHub itself has named one.
    pub fn hint(&self, repo: &RepoId, installation: u64) {
        let mut known = self.known();
        if !matches!(known.repos.get(repo), Some(InstallationSource::GitHub(_))) {
            known.keep(repo, InstallationSource::Delivery(installation));
        }
    }

    /// Returns the installation for requests to the API about a repository.
    pub fn for_api(&self, repo: &RepoId) -> Option<u64> {
        let known = self.known();
        match known.repos.get(repo) {
            Some(InstallationSource::Delivery(id) | InstallationSource::GitHub(id)) => Some(*id),
            Some(InstallationSource::NoneYet) => None,
            None => self.presumed(&known, repo),
        }
    }

    /// Returns the installation for git. A delivery does not choose it.
    pub fn for_git(&self, repo: &RepoId) -> Option<u64> {
        let known = self.known();
        match known.repos.get(repo) {
            Some(InstallationSource::GitHub(id)) => Some(*id),
            Some(InstallationSource::Delivery(id)) => {
                self.presumed(&known, repo).filter(|other| other == id)
            }
            Some(InstallationSource::NoneYet) => None,
            None => self.presumed(&known, repo),
        }
    }

    fn presumed(&self, known: &KnownInstallations, repo: &RepoId) -> Option<u64> {
        self.configured
            .or_else(|| known.owners.get(repo.owner()).copied())
    }

    /// Returns the installation that GitHub named for a repository.
    pub fn answered(&self, repo: &RepoId) -> Option<u64> {
        match self.known().repos.get(repo) {
            Some(InstallationSource::GitHub(id)) => Some(*id),
            Some(InstallationSource::Delivery(_) | InstallationSource::NoneYet) | None => None,
        }
    }

    /// Remembers the installation that GitHub named for a repository.
    pub fn answer(&self, repo: &RepoId, installation: u64) {
        let mut known = self.known();
        known.keep(repo, InstallationSource::GitHub(installation));
        if known.owners.len() >= MOST {
            known.owners.clear();
        }
        known.owners.insert(repo.owner().to_owned(), installation);
    }

    /// Forgets the installation of a repository after a request with it was refused. GitHub has to name it.
    pub fn doubt(&self, repo: &RepoId) {
        self.known().keep(repo, InstallationSource::NoneYet);
    }

    /// Forgets an installation that no longer exists: an App that was removed and installed again has another one.
    pub fn remove(&self, installation: u64) {
        let mut known = self.known();
        known.repos.retain(|_, source| match source {
            InstallationSource::Delivery(id) | InstallationSource::GitHub(id) => {
                *id != installation
            }
            InstallationSource::NoneYet => true,
        });
        known.owners.retain(|_, id| *id != installation);
    }

    /// Returns the turn for lookups of the repositories of an owner.
    pub fn turn(&self, repo: &RepoId) -> LookupTurn {
        let mut known = self.known();
        if known.lookups.len() >= MOST {
            known.lookups.clear();
        }
        Arc::clone(known.lookups.entry(repo.owner().to_owned()).or_default())
    }

    fn known(&self) -> MutexGuard<'_, KnownInstallations> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownInstallations {
    fn keep(&mut self, repo: &RepoId, source: InstallationSource) {
        if self.repos.len() >= MOST && !self.repos.contains_key(repo) {
            self.repos.clear();
        }
        self.repos.insert(repo.clone(), source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(name: &str) -> RepoId {
        format!("github.com/{name}").parse().unwrap()
    }

    fn both(installations: &Installations, name: &str) -> [Option<u64>; 2] {
        [
            installations.for_api(&repo(name)),
            installations.for_git(&repo(name)),
        ]
    }

    #[test]
    fn a_delivery_chooses_the_token_for_the_api_but_not_for_git() {
        let installations = Installations::new(None);
        installations.hint(&repo("acme/infra"), 7);
        assert_eq!(both(&installations, "acme/infra"), [Some(7), None]);
        assert_eq!(both(&installations, "acme/labs"), [None, None]);
        installations.answer(&repo("acme/infra"), 8);
        installations.hint(&repo("acme/infra"), 7);
        assert_eq!(both(&installations, "acme/infra"), [Some(8), Some(8)]);
        installations.hint(&repo("acme/labs"), 7);
        assert_eq!(
            both(&installations, "acme/labs"),
            [Some(7), None],
            "the owner has another one, so GitHub has to be asked"
        );
        installations.hint(&repo("acme/labs"), 8);
        assert_eq!(both(&installations, "acme/labs"), [Some(8), Some(8)]);
    }

    #[test]
    fn the_configured_installation_is_for_repositories_that_nothing_is_known_of() {
        let installations = Installations::new(Some(5));
        assert_eq!(both(&installations, "acme/infra"), [Some(5), Some(5)]);
        installations.hint(&repo("acme/infra"), 7);
        assert_eq!(both(&installations, "acme/infra"), [Some(7), None]);
        installations.doubt(&repo("acme/infra"));
        assert_eq!(both(&installations, "acme/infra"), [None, None]);
    }

    #[test]
    fn a_removed_installation_is_forgotten_for_all_repositories_of_the_owner() {
        let installations = Installations::new(None);
        installations.answer(&repo("acme/infra"), 7);
        assert_eq!(both(&installations, "acme/labs"), [Some(7), Some(7)]);
        assert_eq!(both(&installations, "other/labs"), [None, None]);
        installations.remove(7);
        assert_eq!(both(&installations, "acme/infra"), [None, None]);
        assert_eq!(both(&installations, "acme/labs"), [None, None]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let installations = Installations::new(None);
        for n in 0..=MOST {
            installations.hint(&repo(&format!("acme/r{n}")), 7);
            installations.answer(&repo(&format!("o{n}/infra")), 7);
        }
        let known = installations.known();
        assert!(known.repos.len() <= MOST && known.owners.len() <= MOST);
    }
}
