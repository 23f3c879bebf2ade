//! Defines access to the credentials that owners gave for their repositories. They replace the server's own
//! credentials.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::credential::{GitAccess, SshAccess};
use crate::model::{CredentialId, RepoId};
use crate::seal::OpenError;

/// Source of the credentials of repositories.
#[async_trait]
pub trait RepoAccess: Send + Sync + 'static {
    /// Returns the credential of a repository for the API and for git over HTTPS, or `None` for the server's own.
    async fn for_api(&self, repo: &RepoId) -> Result<Option<StoredAccess>, AccessError>;

    /// Returns the key for git over SSH to a repository, or `None` if git uses HTTPS.
    async fn for_ssh(&self, repo: &RepoId) -> Result<Option<SshAccess>, AccessError>;
}

/// Credential that is stored for a repository.
#[derive(Clone, Debug)]
pub struct StoredAccess {
    /// Number of the credential.
    pub id: CredentialId,
    /// Time of the last change.
    pub version: DateTime<Utc>,
    /// Decrypted content of the credential.
    pub access: GitAccess,
}

/// Reason why the credential of a repository is not available. No other credential replaces it, because the owner has
/// chosen this one.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The credential cannot be decrypted.
    #[error("cannot decrypt the credential {id} of the repository: {reason}")]
    Sealed {
        /// Number of the credential.
        id: CredentialId,
        /// Error of the decryption.
        reason: OpenError,
    },
    /// The credential was decrypted, but its content is not understood.
    #[error(
        "the credential {0} of the repository has an unknown format. A newer server may have stored it"
    )]
    Unknown(CredentialId),
    /// The database did not answer; the failure is temporary.
    #[error("cannot look up the credential of the repository in the database")]
    Store(#[source] sqlx::Error),
}
