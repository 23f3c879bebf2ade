//! Rules of credentials: the checks before one is stored, its encryption, its lookup, and the rotation of the key.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use tracing::warn;

use crate::clock::Ids;
use crate::credential::{GitAccess, InvalidAccess, SshAccess, binding};
use crate::forges::{AccessError, RepoAccess, StoredAccess};
use crate::model::{Cause, ClaimId, CredentialId, OwnerName, RepoId, RepoUrl, Rights};
use crate::seal::{self, Binding, KeyName, Keyring, OpenError, SealedText};
use crate::store::{KeepCredential, NewCredential, SealedCredential, Store};

/// Number of credentials that get another key in one transaction.
const BATCH: i64 = 100;
/// Maximum number of credentials that a report names.
const MOST_NAMED: usize = 100;

/// The stored credentials and the keys that encrypt them.
#[derive(Clone)]
pub struct CredentialStore {
    store: Store,
    ids: Arc<dyn Ids>,
    keys: Option<Arc<Keyring>>,
}

/// A credential that was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCredential {
    pub id: CredentialId,
    /// The claim it refers to.
    pub claim: ClaimId,
}

/// Requested change of a credential.
#[derive(Clone, Debug, Default)]
pub struct ChangeCredential {
    /// New repository of the credential.
    pub url: Option<RepoUrl>,
    /// New value of the credential.
    pub access: Option<GitAccess>,
}

/// Reason why a credential is not stored.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// No key to encrypt with.
    #[error(
        "credentials are stored encrypted, and there is no key. Write a line from `lockkeeper credentials keygen` to a \
         file that only the server can read, and set --encryption-key-file to that file"
    )]
    NoKeys,
    /// No owner has this name.
    #[error("{}", super::no_owner(.0))]
    NoOwner(OwnerName),
    #[error(transparent)]
    Invalid(#[from] InvalidAccess),
    /// Another owner has claimed the repository.
    #[error("{}", super::owned_by(url, owner))]
    OwnedBy {
        url: RepoUrl,
        /// Owner that has claimed it.
        owner: OwnerName,
    },
    /// Nobody has claimed the repository, and the requester may not make the first claim.
    #[error("{}", super::unclaimed(.0))]
    Unclaimed(RepoUrl),
    /// The owner has the maximum number of credentials.
    #[error("`{0}` has {most} credentials, which is the maximum. Remove one first", most = Store::MAX_CREDENTIALS)]
    TooMany(OwnerName),
    /// No credential has this identifier.
    #[error("there is no credential {0}, or it was removed")]
    NotFound(CredentialId),
    /// The credential was changed concurrently.
    #[error(
        "the credential {0} was changed by somebody else at the same time. Check it and try again"
    )]
    Changed(CredentialId),
    /// The stored credential cannot be decrypted.
    #[error("the credential {id} cannot be read: {reason}")]
    Unreadable { id: CredentialId, reason: OpenError },
    #[error("the database query failed")]
    Store(#[from] sqlx::Error),
}

/// Result of encrypting every credential with the first key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Number of credentials encrypted with the first key.
    pub resealed: u64,
    /// Number of credentials that somebody changed at the same time; they may still have another key.
    pub changed: u64,
    /// Number of credentials that cannot be read.
    pub unreadable: u64,
    /// The first of the unreadable credentials, each with the reason.
    pub named: Vec<(CredentialId, OpenError)>,
}

impl Rotation {
    /// Returns true if no other key is needed.
    pub fn is_complete(&self) -> bool {
        self.changed == 0 && self.unreadable == 0
    }
}

impl CredentialStore {
    /// Creates the access to the credentials of a database; `keys` are the keys of the key file, if there is one.
    pub fn new(store: Store, ids: Arc<dyn Ids>, keys: Option<Arc<Keyring>>) -> Self {
        Self { store, ids, keys }
    }

    /// Returns the name of the key that encrypts. `None`: there is no key.
    pub fn first_key(&self) -> Option<&KeyName> {
        self.keys.as_deref().map(Keyring::first)
    }

    /// Stores a credential of an owner for a repository, and claims the repository if the requester has the right to.
    pub async fn add(
        &self,
        owner: &OwnerName,
        url: &RepoUrl,
        access: &GitAccess,
        by: (Rights, &Cause),
    ) -> Result<StoredCredential, CredentialError> {
        let keys = self.keys()?;
        let public = access.check(&url.host())?;
        let Some(owner) = self.store.owner_get(owner).await? else {
            return Err(CredentialError::NoOwner(owner.clone()));
        };
        let id = CredentialId::next(&*self.ids);
        let to = binding(id, owner.id, url.as_str(), access.kind());
        let sealed = keys.seal(&access.to_sealed_text(), &to);
        let new = NewCredential {
            id,
            owner: owner.id,
            url: url.clone(),
            kind: access.kind(),
            public,
            sealed,
        };
        let outcome = self.store.credential_create(&new, by).await?;
        kept(outcome, &new, &owner.name, CredentialError::NotFound)
    }

    /// Changes the repository of a credential, its value, or both. A new repository is claimed first.
    pub async fn change(
        &self,
        id: CredentialId,
        change: ChangeCredential,
        by: (Rights, &Cause),
    ) -> Result<StoredCredential, CredentialError> {
        let keys = self.keys()?;
        let there = self
            .store
            .credential_sealed(id)
            .await?
            .ok_or(CredentialError::NotFound(id))?;
        let row = self
            .store
            .credential_get(id)
            .await?
            .ok_or(CredentialError::NotFound(id))?;
        let access = match change.access {
            Some(access) => access,
            None => read(Some(keys), &there)?,
        };
        let url = change.url.unwrap_or_else(|| there.url.clone());
        let public = access.check(&url.host())?;
        let to = binding(id, there.owner, url.as_str(), access.kind());
        let sealed = keys.seal(&access.to_sealed_text(), &to);
        let new = NewCredential {
            id,
            owner: there.owner,
            url,
            kind: access.kind(),
            public,
            sealed,
        };
        let outcome = self
            .store
            .credential_change(&new, there.updated_at, by)
            .await?;
        kept(outcome, &new, &row.owner_name, CredentialError::Changed)
    }

    /// Encrypts every credential with the first key, batch by batch; finished batches stay if it is interrupted. Calls
    /// `told` after each batch with the total so far.
    pub async fn rotate(&self, mut told: impl FnMut(u64)) -> Result<Rotation, CredentialError> {
        let keys = self.keys()?;
        let (mut rotation, mut after) = (Rotation::default(), None);
        loop {
            let batch = self
                .store
                .credential_list_of_other_keys(keys.first(), after, BATCH)
                .await?;
            let Some(last) = batch.last() else {
                return Ok(rotation);
            };
            after = Some(last.id);
            let mut resealed = Vec::new();
            for there in batch {
                match resealed_with(keys, &there) {
                    Ok(sealed) => resealed.push((there, sealed)),
                    Err(reason) => rotation.note_unreadable(there.id, reason),
                }
            }
            let done = self.store.credential_reseal(&resealed).await?;
            rotation.resealed += done;
            rotation.changed += (resealed.len() as u64).saturating_sub(done);
            told(rotation.resealed);
        }
    }

    /// Encrypts a credential for the new address of its repository.
    pub fn resealed_for(
        &self,
        there: &SealedCredential,
        url: &RepoUrl,
    ) -> Result<SealedText, OpenError> {
        let text = seal::open(self.keys.as_deref(), &there.sealed, &bound(there))?;
        let keys = self
            .keys
            .as_deref()
            .ok_or_else(|| OpenError::NoKeys(there.sealed.key.clone()))?;
        Ok(keys.seal(
            &text,
            &binding(there.id, there.owner, url.as_str(), there.kind),
        ))
    }

    fn keys(&self) -> Result<&Keyring, CredentialError> {
        self.keys.as_deref().ok_or(CredentialError::NoKeys)
    }

    async fn in_use(
        &self,
        repo: &RepoId,
        ssh: bool,
    ) -> Result<Option<(CredentialId, DateTime<Utc>, GitAccess)>, AccessError> {
        // A repository without a normalized address cannot be claimed either.
        let Ok(url) = RepoUrl::of(repo) else {
            return Ok(None);
        };
        let there = self
            .store
            .credential_in_use(&url, ssh)
            .await
            .map_err(AccessError::Store)?;
        let Some(there) = there else { return Ok(None) };
        let text = seal::open(self.keys.as_deref(), &there.sealed, &bound(&there));
        let text = text.map_err(|reason| AccessError::Sealed {
            id: there.id,
            reason,
        })?;
        let access =
            GitAccess::from_sealed_text(&text).map_err(|_| AccessError::Unknown(there.id))?;
        if let Err(error) = self.store.credential_note_use(&there).await {
            warn!(%error, credential = %there.id, "Cannot record the use of a credential");
        }
        Ok(Some((there.id, there.updated_at, access)))
    }
}

#[async_trait]
impl RepoAccess for CredentialStore {
    async fn for_api(&self, repo: &RepoId) -> Result<Option<StoredAccess>, AccessError> {
        let found = self.in_use(repo, false).await?;
        Ok(found.map(|(id, version, access)| StoredAccess {
            id,
            version,
            access,
        }))
    }

    async fn for_ssh(&self, repo: &RepoId) -> Result<Option<SshAccess>, AccessError> {
        match self.in_use(repo, true).await? {
            Some((_, _, GitAccess::Ssh(ssh))) => Ok(Some(ssh)),
            Some((id, _, GitAccess::Token { .. } | GitAccess::App { .. })) => {
                Err(AccessError::Unknown(id))
            }
            None => Ok(None),
        }
    }
}

impl Rotation {
    fn note_unreadable(&mut self, id: CredentialId, reason: OpenError) {
        self.unreadable += 1;
        if self.named.len() < MOST_NAMED {
            self.named.push((id, reason));
        }
    }
}

fn kept(
    outcome: KeepCredential,
    new: &NewCredential,
    owner: &OwnerName,
    gone: fn(CredentialId) -> CredentialError,
) -> Result<StoredCredential, CredentialError> {
    match outcome {
        KeepCredential::Kept(claim) => Ok(StoredCredential { id: new.id, claim }),
        KeepCredential::OwnedBy(owner) => Err(CredentialError::OwnedBy {
            url: new.url.clone(),
            owner,
        }),
        KeepCredential::Unclaimed => Err(CredentialError::Unclaimed(new.url.clone())),
        KeepCredential::TooMany => Err(CredentialError::TooMany(owner.clone())),
        KeepCredential::Gone => Err(gone(new.id)),
    }
}

fn bound(there: &SealedCredential) -> Binding {
    binding(there.id, there.owner, there.url.as_str(), there.kind)
}

fn read(keys: Option<&Keyring>, there: &SealedCredential) -> Result<GitAccess, CredentialError> {
    let unreadable = |reason| CredentialError::Unreadable {
        id: there.id,
        reason,
    };
    let text = seal::open(keys, &there.sealed, &bound(there)).map_err(unreadable)?;
    // A server encrypted it. If this one cannot read it, that server is newer.
    GitAccess::from_sealed_text(&text)
        .map_err(|_| unreadable(OpenError::Refused(there.sealed.key.clone())))
}

fn resealed_with(keys: &Keyring, there: &SealedCredential) -> Result<SealedText, OpenError> {
    let to = bound(there);
    Ok(keys.seal(&keys.open(&there.sealed, &to)?, &to))
}
