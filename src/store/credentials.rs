//! Credentials of repositories. Each credential refers to the claim on its repository, from the transaction that
//! stores the credential to the one that removes it. So the claim exists as long as the credential does.
//!
//! Secrets pass through here sealed. The rows for lists have no column for them.

use chrono::{DateTime, TimeDelta, Utc};

use super::claims::claim_refer_in_tx;
use super::owners::{owner_event, owner_share_in_tx};
use super::{
    Acquired, ClaimUse, JsonText, Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx,
};
use crate::credential::{CredentialKind, PublicParts};
use crate::model::{
    Cause, ClaimId, CredentialId, LockEventKind, NewLockEvent, OwnerId, OwnerName, RepoUrl, Rights,
};
use crate::seal::{KeyName, SealedText};

macro_rules! select_sql {
    ($rest:literal) => {
        concat!(
            "SELECT c.id, c.owner, o.name AS owner_name, c.url, c.kind, c.public, c.key_id, c.created_by, c.created_at, ",
            "c.updated_at, c.used_at FROM credentials c JOIN owners o ON o.id = c.owner ",
            $rest
        )
    };
}

macro_rules! sealed_sql {
    ($rest:literal) => {
        concat!(
            "SELECT c.id, c.owner, c.url, c.kind, c.key_id, c.secret, c.updated_at, c.used_at FROM credentials c ",
            $rest
        )
    };
}

macro_rules! old_sql {
    ($rest:literal) => {
        concat!(
            "SELECT owner, url, updated_at FROM credentials WHERE id = $1",
            $rest
        )
    };
}

const ONE: &str = select_sql!("WHERE c.id = $1");
const LIST: &str = select_sql!("WHERE c.id > $1 ORDER BY c.id LIMIT $2");
const OF_OWNER: &str = select_sql!("WHERE c.owner = $2 AND c.id > $1 ORDER BY c.id LIMIT $3");
const OF_URL: &str = select_sql!("WHERE c.url = $2 AND c.id > $1 ORDER BY c.id LIMIT $3");
const OF_BOTH: &str =
    select_sql!("WHERE c.url = $2 AND c.owner = $3 AND c.id > $1 ORDER BY c.id LIMIT $4");
const SEALED: &str = sealed_sql!("WHERE c.id = $1");
/// Selects the newest credential, so that a new one can be tried before the old one is removed. The claim must also
/// belong to the owner of the credential; the reference to it is not enough.
const IN_USE: &str = sealed_sql!(
    "JOIN claim_credentials r ON r.credential = c.id JOIN repository_claims a ON a.id = r.claim \
     WHERE c.url = $1 AND a.url = c.url AND a.owner = c.owner AND (c.kind = 'ssh') = $2 \
     ORDER BY c.created_at DESC, c.id DESC LIMIT 1"
);
const SEALED_OF_URL: &str = sealed_sql!("WHERE c.url = $1 ORDER BY c.id");
const OF_OTHER_KEYS: &str =
    sealed_sql!("WHERE c.key_id <> $1 AND c.id > $2 ORDER BY c.id LIMIT $3");

/// Minimum time between two updates of `used_at`: credentials are used often, and writes are expensive.
const USE_GRAIN: TimeDelta = TimeDelta::minutes(10);

/// A credential without its secret.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct CredentialRow {
    pub id: CredentialId,
    /// Identifier of the owner.
    pub owner: OwnerId,
    /// Name of the owner.
    pub owner_name: OwnerName,
    /// Repository that the credential is for.
    pub url: RepoUrl,
    pub kind: CredentialKind,
    /// Parts that may be shown.
    pub public: JsonText<PublicParts>,
    /// Name of the key that seals the credential.
    pub key_id: KeyName,
    /// Login of the person who added the credential.
    pub created_by: String,
    /// Time of the addition.
    pub created_at: DateTime<Utc>,
    /// Time of the last change. Sealing with another key does not count as a change.
    pub updated_at: DateTime<Utc>,
    /// Time of the last use, accurate to some minutes.
    pub used_at: Option<DateTime<Utc>>,
}

/// A credential as stored in the database, with the values that its seal is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedCredential {
    pub id: CredentialId,
    /// Identifier of the owner.
    pub owner: OwnerId,
    /// Repository that the credential is for.
    pub url: RepoUrl,
    pub kind: CredentialKind,
    pub sealed: SealedText,
    /// Time of the last change, which serves as the version.
    pub updated_at: DateTime<Utc>,
    /// Time of the last use, accurate to some minutes.
    pub used_at: Option<DateTime<Utc>>,
}

/// A credential to store.
#[derive(Clone, Debug)]
pub struct NewCredential {
    /// Identifier of the credential, to which its seal is bound.
    pub id: CredentialId,
    /// Identifier of the owner.
    pub owner: OwnerId,
    /// Repository that the credential is for.
    pub url: RepoUrl,
    pub kind: CredentialKind,
    /// Parts that may be shown.
    pub public: PublicParts,
    pub sealed: SealedText,
}

/// Outcome of storing a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum KeepCredential {
    /// The credential is stored, and its owner holds the claim on the repository.
    Kept(ClaimId),
    /// Another owner holds the claim, so nothing was stored or changed.
    OwnedBy(OwnerName),
    /// Nobody has claimed the repository, and the caller must not make the first claim. Nothing was stored or
    /// changed.
    Unclaimed,
    /// The owner has the maximum number of credentials.
    TooMany,
    /// The credential does not exist any more, or was changed since it was read.
    Gone,
}

impl Store {
    /// Maximum number of credentials of one owner.
    pub const MAX_CREDENTIALS: i64 = 10_000;

    /// Stores a credential, if its owner holds or gets the claim on the repository. Fails with
    /// [`sqlx::Error::RowNotFound`] if the owner does not exist.
    pub async fn credential_create(
        &self,
        new: &NewCredential,
        (rights, cause): (Rights, &Cause),
    ) -> Result<KeepCredential> {
        let mut tx = self.begin().await?;
        let owner = owner_share_in_tx(&mut tx, new.owner)
            .await?
            .ok_or(sqlx::Error::RowNotFound)?;
        let (claim, mut events) = match self
            .claim_acquire_in_tx(&mut tx, new.owner, &new.url, (rights, cause))
            .await?
        {
            (Acquired::Claimed(claim), events) => (claim, events),
            (Acquired::Unclaimed, _) => {
                return tx.roll_back().await.map(|()| KeepCredential::Unclaimed);
            }
            (Acquired::OwnedBy(name), _) => {
                return tx.roll_back().await.map(|()| KeepCredential::OwnedBy(name));
            }
        };
        let there = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM credentials WHERE owner = $1")
            .bind(new.owner).fetch_one(db))?;
        if there >= Self::MAX_CREDENTIALS {
            return tx.roll_back().await.map(|()| KeepCredential::TooMany);
        }
        self.credential_insert_in_tx(&mut tx, new, &cause.actor.login)
            .await?;
        claim_refer_in_tx(&mut tx, ClaimUse::Credential(new.id), claim).await?;
        events.push(event(
            LockEventKind::Registered,
            cause,
            (&owner.name, new.id, new.kind, &new.url),
        ));
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| KeepCredential::Kept(claim))
    }

    async fn credential_insert_in_tx(
        &self,
        tx: &mut Tx,
        new: &NewCredential,
        by: &str,
    ) -> Result<()> {
        // The order in which credentials were added must not depend on the clocks of several replicas.
        let now = kept_time(self.clock_offset_in_tx(tx).await?.of(self.now()));
        execute!(
            tx,
            "INSERT INTO credentials (id, owner, url, kind, public, key_id, secret, created_by, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)",
            new.id,
            new.owner,
            &new.url,
            new.kind,
            JsonText(&new.public),
            &new.sealed.key,
            new.sealed.bytes.as_slice(),
            free_text(by).as_ref(),
            now,
        )
        .map(drop)
    }

    /// Replaces the values of a credential, perhaps for another repository, if its version is still `version`. Claims
    /// the other repository first. Deletes the claim on the previous one if no other reference is left.
    pub async fn credential_change(
        &self,
        new: &NewCredential,
        version: DateTime<Utc>,
        (rights, cause): (Rights, &Cause),
    ) -> Result<KeepCredential> {
        let mut tx = self.begin().await?;
        let Some(old) = hold_in_tx(&mut tx, new.id)
            .await?
            .filter(|old| old.is(new, version))
        else {
            return tx.roll_back().await.map(|()| KeepCredential::Gone);
        };
        let owner = owner_share_in_tx(&mut tx, new.owner)
            .await?
            .ok_or(sqlx::Error::RowNotFound)?;
        let acquired = if old.url == new.url {
            self.claim_acquire_in_tx(&mut tx, new.owner, &new.url, (rights, cause))
                .await?
        } else {
            self.claim_exchange_in_tx(&mut tx, new.owner, (&old.url, &new.url), (rights, cause))
                .await?
        };
        let (claim, mut events) = match acquired {
            (Acquired::Claimed(claim), events) => (claim, events),
            (Acquired::Unclaimed, _) => {
                return tx.roll_back().await.map(|()| KeepCredential::Unclaimed);
            }
            (Acquired::OwnedBy(name), _) => {
                return tx.roll_back().await.map(|()| KeepCredential::OwnedBy(name));
            }
        };
        self.credential_update_in_tx(&mut tx, new, version).await?;
        claim_refer_in_tx(&mut tx, ClaimUse::Credential(new.id), claim).await?;
        if old.url != new.url {
            events.extend(self.claim_collect_in_tx(&mut tx, &old.url, cause).await?);
        }
        events.push(event(
            LockEventKind::Registered,
            cause,
            (&owner.name, new.id, new.kind, &new.url),
        ));
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| KeepCredential::Kept(claim))
    }

    async fn credential_update_in_tx(
        &self,
        tx: &mut Tx,
        new: &NewCredential,
        version: DateTime<Utc>,
    ) -> Result<()> {
        execute!(
            tx,
            "UPDATE credentials SET url = $1, kind = $2, public = $3, key_id = $4, secret = $5, updated_at = $6 \
             WHERE id = $7",
            &new.url,
            new.kind,
            JsonText(&new.public),
            &new.sealed.key,
            new.sealed.bytes.as_slice(),
            // This makes a new version even if the clock stands still.
            kept_time(self.now()).max(version + TimeDelta::microseconds(1)),
            new.id,
        )
        .map(drop)
    }

    /// Removes a credential, and its claim if no other reference is left. `None`: the credential does not exist.
    pub async fn credential_remove(
        &self,
        id: CredentialId,
        cause: &Cause,
    ) -> Result<Option<CredentialRow>> {
        let mut tx = self.begin().await?;
        let row = on_tx!(&mut tx, db => sqlx::query_as::<_, CredentialRow>(ONE).bind(id).fetch_optional(db))?;
        let (Some(row), Some(old)) = (row, hold_in_tx(&mut tx, id).await?) else {
            return tx.roll_back().await.map(|()| None);
        };
        let collected = self
            .claim_let_go_in_tx(&mut tx, ClaimUse::Credential(id), &old.url, cause)
            .await?;
        execute!(&mut tx, "DELETE FROM credentials WHERE id = $1", id)?;
        let removed = event(
            LockEventKind::Unregistered,
            cause,
            (&row.owner_name, id, row.kind, &old.url),
        );
        let events = std::iter::once(removed).chain(collected).collect();
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| Some(row))
    }

    /// Returns the credential with this identifier.
    pub async fn credential_get(&self, id: CredentialId) -> Result<Option<CredentialRow>> {
        on_pool!(self, db => sqlx::query_as::<_, CredentialRow>(ONE).bind(id).fetch_optional(db))
    }

    /// Lists the credentials of an owner, of a repository, of both, or all of them. They are in the order in which
    /// they were added, beginning after the given one.
    pub async fn credential_list(
        &self,
        owner: Option<OwnerId>,
        url: Option<&RepoUrl>,
        after: Option<CredentialId>,
        limit: i64,
    ) -> Result<Vec<CredentialRow>> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        match (owner, url) {
            (None, None) => on_pool!(self, db => sqlx::query_as::<_, CredentialRow>(LIST)
                .bind(after).bind(limit).fetch_all(db)),
            (Some(owner), None) => {
                on_pool!(self, db => sqlx::query_as::<_, CredentialRow>(OF_OWNER)
                .bind(after).bind(owner).bind(limit).fetch_all(db))
            }
            (None, Some(url)) => on_pool!(self, db => sqlx::query_as::<_, CredentialRow>(OF_URL)
                .bind(after).bind(url).bind(limit).fetch_all(db)),
            (Some(owner), Some(url)) => {
                on_pool!(self, db => sqlx::query_as::<_, CredentialRow>(OF_BOTH)
                .bind(after).bind(url).bind(owner).bind(limit).fetch_all(db))
            }
        }
    }

    /// Returns a credential with its sealed secret.
    pub async fn credential_sealed(&self, id: CredentialId) -> Result<Option<SealedCredential>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, SealedRow>(SEALED).bind(id).fetch_optional(db))?;
        Ok(row.map(SealedCredential::from))
    }

    /// Returns the credential to use for a repository: an SSH key, or one for the API. It belongs to the owner who
    /// holds the claim.
    pub async fn credential_in_use(
        &self,
        url: &RepoUrl,
        ssh: bool,
    ) -> Result<Option<SealedCredential>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, SealedRow>(IN_USE).bind(url).bind(ssh).fetch_optional(db))?;
        Ok(row.map(SealedCredential::from))
    }

    /// Stores that a credential is used now, unless a use was stored some minutes ago.
    pub async fn credential_note_use(&self, credential: &SealedCredential) -> Result<()> {
        let now = kept_time(self.now());
        if credential
            .used_at
            .is_some_and(|used| used > now - USE_GRAIN)
        {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE credentials SET used_at = $1 WHERE id = $2",
            now,
            credential.id
        )?;
        tx.commit().await
    }

    /// Lists the credentials after `after` that are sealed with another key than this one, ordered by identifier.
    pub async fn credential_list_of_other_keys(
        &self,
        key: &KeyName,
        after: Option<CredentialId>,
        limit: i64,
    ) -> Result<Vec<SealedCredential>> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let rows = on_pool!(self, db => sqlx::query_as::<_, SealedRow>(OF_OTHER_KEYS)
            .bind(key).bind(after).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(SealedCredential::from).collect())
    }

    /// Replaces the seals of credentials. Skips those that were changed since they were read. Returns the number of
    /// changed rows.
    pub async fn credential_reseal(
        &self,
        resealed: &[(SealedCredential, SealedText)],
    ) -> Result<u64> {
        let mut tx = self.begin().await?;
        let mut changed = 0;
        for (read, sealed) in resealed {
            changed += execute!(
                &mut tx,
                "UPDATE credentials SET key_id = $1, secret = $2 WHERE id = $3 AND key_id = $4 AND updated_at = $5",
                &sealed.key,
                sealed.bytes.as_slice(),
                read.id,
                &read.sealed.key,
                read.updated_at,
            )?;
        }
        tx.commit().await.map(|()| changed)
    }
}

/// Returns the credentials for an address, with their sealed secrets.
pub(super) async fn sealed_of_url_in_tx(
    tx: &mut Tx,
    url: &RepoUrl,
) -> Result<Vec<SealedCredential>> {
    let rows =
        on_tx!(tx, db => sqlx::query_as::<_, SealedRow>(SEALED_OF_URL).bind(url).fetch_all(db))?;
    Ok(rows.into_iter().map(SealedCredential::from).collect())
}

/// Values of a credential when its row was locked.
#[derive(sqlx::FromRow)]
struct PreviousCredential {
    owner: OwnerId,
    url: RepoUrl,
    updated_at: DateTime<Utc>,
}

impl PreviousCredential {
    fn is(&self, new: &NewCredential, version: DateTime<Utc>) -> bool {
        self.owner == new.owner && self.updated_at == version
    }
}

/// Returns the credential and locks its row until the transaction ends. SQLite has only one writing transaction.
async fn hold_in_tx(tx: &mut Tx, id: CredentialId) -> Result<Option<PreviousCredential>> {
    let sql = match tx {
        Tx::Sqlite(_) => old_sql!(""),
        Tx::Postgres(_) => old_sql!(" FOR UPDATE"),
    };
    on_tx!(tx, db => sqlx::query_as::<_, PreviousCredential>(sql).bind(id).fetch_optional(db))
}

/// Subject of an event: owner, identifier, kind and repository of a credential.
type EventSubject<'a> = (&'a OwnerName, CredentialId, CredentialKind, &'a RepoUrl);

fn event(
    kind: LockEventKind,
    cause: &Cause,
    (owner, id, what, url): EventSubject<'_>,
) -> NewLockEvent {
    owner_event(
        kind,
        cause,
        owner,
        &format!("{} for {url}, credential {id}", what.words()),
    )
}

#[derive(sqlx::FromRow)]
struct SealedRow {
    id: CredentialId,
    owner: OwnerId,
    url: RepoUrl,
    kind: CredentialKind,
    key_id: KeyName,
    secret: Vec<u8>,
    updated_at: DateTime<Utc>,
    used_at: Option<DateTime<Utc>>,
}

impl From<SealedRow> for SealedCredential {
    fn from(row: SealedRow) -> Self {
        let SealedRow {
            id,
            owner,
            url,
            kind,
            key_id,
            secret,
            updated_at,
            used_at,
        } = row;
        Self {
            id,
            owner,
            url,
            kind,
            sealed: SealedText {
                key: key_id,
                bytes: secret,
            },
            updated_at,
            used_at,
        }
    }
}
