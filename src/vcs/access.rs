//! Credentials that the owner of a repository gave for it: they take the place of the server's own.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::credential::{Access, SshAccess};
use crate::model::{CredentialId, RepoId};
use crate::seal::OpenError;

/// Where credentials of repositories come from.
#[async_trait]
pub trait RepoAccess: Send + Sync + 'static {
    /// What the API, and git over HTTPS, is to be given for a repository; `None`: the server's own.
    async fn for_api(&self, repo: &RepoId) -> Result<Option<Held>, AccessError>;

    /// The key with which git goes by SSH to a repository; `None`: it goes by HTTPS.
    async fn for_ssh(&self, repo: &RepoId) -> Result<Option<SshAccess>, AccessError>;
}

/// A credential that is kept for a repository.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its number.
    pub id: CredentialId,
    /// When it was changed last.
    pub version: DateTime<Utc>,
    /// The credential.
    pub access: Access,
}

/// Why the credential of a repository is not to be had. Another is not taken in its place: the owner decided.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// It cannot be decrypted.
    #[error("the credential {id} that its owner gave for it cannot be read: {reason}")]
    Sealed {
        /// Its number.
        id: CredentialId,
        /// Why.
        reason: OpenError,
    },
    /// It was decrypted, and says nothing.
    #[error(
        "the credential {0} that its owner gave for it is not understood here: was it kept by a newer server?"
    )]
    Unknown(CredentialId),
    /// The database did not answer; a passing fault.
    #[error("the database did not say which credential its owner gave for it")]
    Store(#[source] sqlx::Error),
}
