//! The rules of credentials: what is checked before one is kept, how it is sealed, how it is found when it is needed, and
//! how all of them get another key.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use tracing::warn;

use crate::clock::Ids;
use crate::credential::{Access, InvalidAccess, SshAccess, binding};
use crate::model::{Cause, ClaimId, CredentialId, OwnerName, RepoId, RepoUrl, Rights};
use crate::seal::{self, Binding, KeyName, Keyring, OpenError, Sealed};
use crate::store::{KeepCredential, NewCredential, SealedCredential, Store};
use crate::vcs::{AccessError, Held, RepoAccess};

/// Credentials that get another key in one transaction.
const BATCH: i64 = 100;
/// Credentials that a report names one by one.
const MOST_NAMED: usize = 100;

/// The credentials in the database, and the keys they are sealed with.
#[derive(Clone)]
pub struct Credentials {
    store: Store,
    ids: Arc<dyn Ids>,
    keys: Option<Arc<Keyring>>,
}

/// A credential that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub id: CredentialId,
    /// The claim it refers to.
    pub claim: ClaimId,
}

/// What is to be other about a credential.
#[derive(Clone, Debug, Default)]
pub struct ChangeCredential {
    /// The repository it is for.
    pub url: Option<RepoUrl>,
    /// The credential itself.
    pub access: Option<Access>,
}

/// Why a credential is not kept.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// Nothing to encrypt with.
    #[error(
        "credentials are kept encrypted, and there is no key: put a line that `lockkeeper credentials keygen` prints into \
         a file that only the server can read, and name it with --encryption-key-file"
    )]
    NoKeys,
    /// There is no such owner.
    #[error("{}", super::no_owner(.0))]
    NoOwner(OwnerName),
    /// Something about the values.
    #[error(transparent)]
    Invalid(#[from] InvalidAccess),
    /// The repository is somebody else's.
    #[error("{}", super::owned_by(url, owner))]
    OwnedBy {
        /// The repository.
        url: RepoUrl,
        /// Whose it is.
        owner: OwnerName,
    },
    /// Nobody has claimed the repository, and whoever asks must not be the first.
    #[error("{}", super::unclaimed(.0))]
    Unclaimed(RepoUrl),
    /// The owner has enough.
    #[error("`{0}` has {most} credentials, and no owner may have more", most = Store::MAX_CREDENTIALS)]
    TooMany(OwnerName),
    /// There is no such credential.
    #[error("there is no credential {0} (any more)")]
    NotThere(CredentialId),
    /// It is not what it was.
    #[error("the credential {0} was changed by somebody else at the same moment: look at it again")]
    Changed(CredentialId),
    /// The one that is there cannot be read.
    #[error("the credential {id} cannot be read: {reason}")]
    Unreadable {
        /// Its number.
        id: CredentialId,
        /// Why.
        reason: OpenError,
    },
    /// The database.
    #[error("the database query failed")]
    Store(#[from] sqlx::Error),
}

/// What came of giving every credential the first key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Those that have it now.
    pub resealed: u64,
    /// Those that somebody changed at the same moment; they may have another key still.
    pub changed: u64,
    /// How many cannot be read.
    pub unreadable: u64,
    /// The first of them, and why.
    pub named: Vec<(CredentialId, OpenError)>,
}

impl Rotation {
    /// Whether no other key is needed any more.
    pub fn is_complete(&self) -> bool {
        self.changed == 0 && self.unreadable == 0
    }
}

impl Credentials {
    /// Credentials in a database; `keys` is what the file of keys holds, if there is one.
    pub fn new(store: Store, ids: Arc<dyn Ids>, keys: Option<Arc<Keyring>>) -> Self {
        Self { store, ids, keys }
    }

    /// The name of the key that encrypts; `None`: there is none.
    pub fn first_key(&self) -> Option<&KeyName> {
        self.keys.as_deref().map(Keyring::first)
    }

    /// Keeps a credential of an owner for a repository, which the owner acquires with it if whoever asks has the right.
    pub async fn add(
        &self,
        owner: &OwnerName,
        url: &RepoUrl,
        access: &Access,
        by: (Rights, &Cause),
    ) -> Result<Kept, CredentialError> {
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
        kept(outcome, &new, &owner.name, CredentialError::NotThere)
    }

    /// Changes the repository of a credential, or the credential, or both. Another repository is acquired first.
    pub async fn change(
        &self,
        id: CredentialId,
        wish: ChangeCredential,
        by: (Rights, &Cause),
    ) -> Result<Kept, CredentialError> {
        let keys = self.keys()?;
        let there = self
            .store
            .credential_sealed(id)
            .await?
            .ok_or(CredentialError::NotThere(id))?;
        let row = self
            .store
            .credential_get(id)
            .await?
            .ok_or(CredentialError::NotThere(id))?;
        let access = match wish.access {
            Some(access) => access,
            None => read(Some(keys), &there)?,
        };
        let url = wish.url.unwrap_or_else(|| there.url.clone());
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

    /// Seals every credential with the first key, batch by batch; what was done stays done if it is interrupted. `told`
    /// hears after each batch how many it were in all.
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

    /// The seal of a credential whose repository has another address now: whoever could open it can open it there.
    pub fn resealed_for(
        &self,
        there: &SealedCredential,
        url: &RepoUrl,
    ) -> Result<Sealed, OpenError> {
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
    ) -> Result<Option<(CredentialId, DateTime<Utc>, Access)>, AccessError> {
        // What has no address in normal form cannot be claimed either.
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
        let access = Access::from_sealed_text(&text).map_err(|_| AccessError::Unknown(there.id))?;
        if let Err(error) = self.store.credential_note_use(&there).await {
            warn!(%error, credential = %there.id, "That a credential was used cannot be noted");
        }
        Ok(Some((there.id, there.updated_at, access)))
    }
}

#[async_trait]
impl RepoAccess for Credentials {
    async fn for_api(&self, repo: &RepoId) -> Result<Option<Held>, AccessError> {
        let found = self.in_use(repo, false).await?;
        Ok(found.map(|(id, version, access)| Held {
            id,
            version,
            access,
        }))
    }

    async fn for_ssh(&self, repo: &RepoId) -> Result<Option<SshAccess>, AccessError> {
        match self.in_use(repo, true).await? {
            Some((_, _, Access::Ssh(ssh))) => Ok(Some(ssh)),
            Some((id, _, Access::Token { .. } | Access::App { .. })) => {
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
) -> Result<Kept, CredentialError> {
    match outcome {
        KeepCredential::Kept(claim) => Ok(Kept { id: new.id, claim }),
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

fn read(keys: Option<&Keyring>, there: &SealedCredential) -> Result<Access, CredentialError> {
    let unreadable = |reason| CredentialError::Unreadable {
        id: there.id,
        reason,
    };
    let text = seal::open(keys, &there.sealed, &bound(there)).map_err(unreadable)?;
    // What opens was sealed by a server; only a newer one seals what this one does not know.
    Access::from_sealed_text(&text)
        .map_err(|_| unreadable(OpenError::Refused(there.sealed.key.clone())))
}

fn resealed_with(keys: &Keyring, there: &SealedCredential) -> Result<Sealed, OpenError> {
    let to = bound(there);
    Ok(keys.seal(&keys.open(&there.sealed, &to)?, &to))
}
