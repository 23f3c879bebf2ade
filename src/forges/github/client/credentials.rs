//! Selects the credentials of a request: those that the owner of the repository gave for it, or else the server's
//! own.
//!
//! The owner's credential is looked up with each request, so that a removed or replaced credential is no longer used.
//! The tokens that an App was issued with it are cached until the credential is changed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use tokio::sync::OnceCell;

use super::auth::{ClientCredentials, GitHubAuth, TokenSource};
use super::call::{Call, RequestFailure, SuccessResponse};
use super::installations::Installations;
use super::wire::Wire;
use crate::credential::GitAccess;
use crate::forges::{
    AccessError, ForgeFeatures, GitCredentials, RepoAccess, SshLogin, StoredAccess,
};
use crate::model::{CredentialId, RepoId};

/// Maximum number of credentials whose tokens are cached; beyond it, tokens are requested again.
const MOST: usize = 10_000;

/// Credentials of the server and of owners.
pub(super) struct CredentialResolver {
    own: ClientCredentials,
    access: Option<Arc<dyn RepoAccess>>,
    /// Directory of SSH keys while git works with them.
    logins: PathBuf,
    opened: Mutex<HashMap<CredentialId, Arc<DecryptedCredential>>>,
}

/// Credential of a repository in use.
struct DecryptedCredential {
    version: DateTime<Utc>,
    credentials: ClientCredentials,
    login: OnceCell<String>,
}

impl CredentialResolver {
    pub fn new(own: ClientCredentials) -> Self {
        Self {
            own,
            access: None,
            logins: PathBuf::new(),
            opened: Mutex::default(),
        }
    }

    /// Enables the credentials that owners gave for their repositories.
    pub fn set_access(&mut self, access: Arc<dyn RepoAccess>, logins: PathBuf) {
        (self.access, self.logins) = (Some(access), logins);
    }

    /// Sends a request about a repository.
    pub async fn send(
        &self,
        wire: &Wire,
        repo: &RepoId,
        call: &Call,
    ) -> Result<SuccessResponse, RequestFailure> {
        let sent = match self.of(wire, repo, &call.what).await? {
            Some(given) => given.credentials.send(wire, repo, call).await,
            None => self.own.send(wire, repo, call).await,
        };
        sent.map_err(|failure| failure.of_name(repo))
    }

    /// Returns the id of the App that may write check runs of a repository, if its credentials are of such an App.
    pub async fn writes_checks(
        &self,
        wire: &Wire,
        repo: &RepoId,
    ) -> Result<Option<u64>, RequestFailure> {
        match self.of(wire, repo, "check runs").await? {
            Some(given) => given.credentials.writes_checks(wire, repo).await,
            None => self.own.writes_checks(wire, repo).await,
        }
    }

    /// Returns user name and password for git, or an SSH key.
    pub async fn git(&self, wire: &Wire, repo: &RepoId) -> Result<GitCredentials, RequestFailure> {
        if let Some(login) = self.ssh(wire, repo).await? {
            return Ok(GitCredentials::by_ssh(login));
        }
        match self.of(wire, repo, "git").await? {
            Some(given) => {
                let credentials = given.credentials.git(wire, repo).await?;
                Ok(GitCredentials {
                    of_owner: true,
                    ..credentials
                })
            }
            None => self.own.git(wire, repo).await,
        }
    }

    /// Returns the installations of the server's own App, to which deliveries come. An App that an owner gave has its
    /// own installation.
    pub fn installations(&self) -> Option<Arc<Installations>> {
        self.own.installations()
    }

    /// Looks up the installation of a repository again before the next request with the server's own credentials.
    pub fn doubt(&self, repo: &RepoId) {
        self.own.doubt(repo);
    }

    /// Returns credentials for code of other repositories that this repository's code refers to. Returns `None` if
    /// the owner gave an SSH key, which is for this repository alone.
    pub async fn git_to_read(
        &self,
        wire: &Wire,
        repo: &RepoId,
    ) -> Result<Option<GitCredentials>, RequestFailure> {
        if self.ssh(wire, repo).await?.is_some() {
            return Ok(None);
        }
        match self.of(wire, repo, "git").await? {
            Some(given) => given.credentials.git_to_read(wire, repo).await.map(Some),
            None => self.own.git_to_read(wire, repo).await.map(Some),
        }
    }

    async fn ssh(&self, wire: &Wire, repo: &RepoId) -> Result<Option<SshLogin>, RequestFailure> {
        let Some(access) = &self.access else {
            return Ok(None);
        };
        let what = "git by SSH";
        let found = access
            .for_ssh(repo)
            .await
            .map_err(|error| failure(wire, repo, what, &error))?;
        let login = found.map(|access| SshLogin::new(&access, repo.host().name(), &self.logins));
        let cannot = |error: std::io::Error| {
            RequestFailure::passing(
                &wire.host,
                what,
                &format!("cannot write the key for git: {error}"),
            )
        };
        login.transpose().map_err(cannot)
    }

    /// Returns true if the repository shares its limits only with the other repositories of its owner.
    pub async fn are_per_owner(&self, wire: &Wire, repo: &RepoId) -> Result<bool, RequestFailure> {
        Ok(self.own.are_per_owner() || self.of(wire, repo, "any request").await?.is_some())
    }

    /// Returns the login of the server's own credentials.
    pub async fn own_login(&self, wire: &Wire) -> Result<String, RequestFailure> {
        self.own.login(wire).await
    }

    /// Returns the rights that the server's own credentials lack.
    pub async fn missing(
        &self,
        wire: &Wire,
        uses: ForgeFeatures,
    ) -> Result<Vec<String>, RequestFailure> {
        self.own.missing(wire, uses).await
    }

    /// Returns the login that the administrator gave for the server's own credentials (`--gh-user`).
    pub fn configured_login(&self) -> Option<&str> {
        self.own.configured_login()
    }

    /// Returns the login under which comments appear in a repository, or `None` for that of the server's own
    /// credentials.
    pub async fn login_for(
        &self,
        wire: &Wire,
        repo: &RepoId,
    ) -> Result<Option<String>, RequestFailure> {
        let Some(given) = self.of(wire, repo, "the account of its credential").await? else {
            return Ok(None);
        };
        let login = given
            .login
            .get_or_try_init(|| given.credentials.login(wire))
            .await?;
        Ok(Some(login.clone()))
    }

    async fn of(
        &self,
        wire: &Wire,
        repo: &RepoId,
        what: &str,
    ) -> Result<Option<Arc<DecryptedCredential>>, RequestFailure> {
        let Some(access) = &self.access else {
            return Ok(None);
        };
        let held = access
            .for_api(repo)
            .await
            .map_err(|error| failure(wire, repo, what, &error))?;
        held.map(|held| self.opened(wire, held, what)).transpose()
    }

    fn opened(
        &self,
        wire: &Wire,
        held: StoredAccess,
        what: &str,
    ) -> Result<Arc<DecryptedCredential>, RequestFailure> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened
            .get(&held.id)
            .filter(|known| known.version == held.version)
        {
            return Ok(Arc::clone(known));
        }
        let auth = match held.access {
            GitAccess::Token { user, token } => GitHubAuth::Token {
                user,
                token: TokenSource::Fixed(token),
            },
            GitAccess::App {
                app_id,
                installation,
                key,
            } => GitHubAuth::App {
                app_id,
                key,
                installation: Some(installation),
            },
            GitAccess::Ssh(_) => {
                return Err(RequestFailure::denied(
                    &wire.host,
                    what,
                    "an SSH key is not a credential for the API",
                ));
            }
        };
        let credentials = ClientCredentials::new(auth)
            .map_err(|error| RequestFailure::denied(&wire.host, what, &error.to_string()))?;
        if opened.len() >= MOST {
            opened.clear();
        }
        let fresh = Arc::new(DecryptedCredential {
            version: held.version,
            credentials,
            login: OnceCell::new(),
        });
        opened.insert(held.id, Arc::clone(&fresh));
        Ok(fresh)
    }
}

fn failure(wire: &Wire, repo: &RepoId, what: &str, error: &AccessError) -> RequestFailure {
    tracing::warn!(%repo, error = error as &dyn std::error::Error, "Could not use the credential of a repository");
    match error {
        AccessError::Store(_) => RequestFailure::passing(&wire.host, what, &error.to_string()),
        AccessError::Sealed { .. } | AccessError::Unknown(_) => {
            RequestFailure::denied(&wire.host, what, &error.to_string())
        }
    }
}
