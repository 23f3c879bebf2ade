//! Who drives a repository: at most one owner, as long as an application or a credential of that owner is there.
//!
//! Invariants, and what holds them:
//!
//! - *One owner*: the unique key on the address. Whoever comes second is told the name of the first, at whatever moment.
//! - *No first claim without the right*: [`Rights`] are looked at where the claim would be inserted, in that transaction.
//! - *No reference without a claim*: foreign keys. A claim that something refers to cannot be deleted.
//! - *No claim without a reference* for longer than a round of the collector: references and claims come and go in the
//!   transaction of what they belong to, and [`Store::claim_collect`] removes what was left over all the same.
//!
//! Order of what a transaction holds on PostgreSQL, always the same, so that no two wait for each other: the row of the
//! application or credential, the row of the owner (shared), rows of claims in the order of their addresses, what is
//! inserted, and last the chain of events. Acquiring shares the row of a claim, so that many use one at once; whoever may
//! delete it holds it alone *before* looking whether something refers to it, so that what it sees stays true.

use chrono::{DateTime, Utc};

use super::owners::{Owner, owner_event, owner_share_in_tx};
use super::{Result, Store, Tx, execute, kept_time, on_pool, on_tx};
use crate::model::{
    Actor, ApplicationId, Cause, ClaimId, CredentialId, LockEventKind, NewLockEvent, Origin,
    OwnerId, OwnerName, RepoId, RepoUrl, Rights,
};

macro_rules! held_sql {
    ($rest:literal) => {
        concat!(
            "SELECT c.id, o.id AS owner, o.name FROM repository_claims c JOIN owners o ON o.id = c.owner WHERE c.url = $1",
            $rest
        )
    };
}

macro_rules! claim_sql {
    ($rest:literal) => {
        concat!(
            "SELECT c.id, c.url, o.name AS owner, c.created_at, ",
            "(SELECT COUNT(*) FROM claim_applications a WHERE a.claim = c.id) AS applications, ",
            "(SELECT COUNT(*) FROM claim_credentials r WHERE r.claim = c.id) AS credentials ",
            "FROM repository_claims c JOIN owners o ON o.id = c.owner ",
            $rest
        )
    };
}

macro_rules! unused {
    () => {
        "NOT EXISTS (SELECT 1 FROM claim_applications a WHERE a.claim = repository_claims.id) \
         AND NOT EXISTS (SELECT 1 FROM claim_credentials r WHERE r.claim = repository_claims.id)"
    };
}

const INSERT: &str = "INSERT INTO repository_claims (id, url, owner, created_at) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (url) DO NOTHING";
const DELETE_UNUSED: &str = concat!(
    "DELETE FROM repository_claims WHERE id = $1 AND ",
    unused!(),
    " RETURNING url"
);
const DELETE_UNUSED_OF_OWNER: &str = concat!(
    "DELETE FROM repository_claims WHERE owner = $1 AND ",
    unused!(),
    " RETURNING url"
);
const LIST_UNUSED: &str = concat!(
    "SELECT id FROM repository_claims WHERE ",
    unused!(),
    " ORDER BY id LIMIT $1"
);
const OWNER: &str =
    "SELECT o.name FROM repository_claims c JOIN owners o ON o.id = c.owner WHERE c.url = $1";
const URLS: &str = "SELECT url FROM repository_claims WHERE owner = $1 ORDER BY url";

/// A claim that is inserted and collected by others again and again between two of our statements: never so often.
const TRIES: usize = 1000;

/// What came of acquiring.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The repository is the owner's, now or already before.
    Claimed(ClaimId),
    /// It is somebody else's.
    OwnedBy(OwnerName),
    /// It is nobody's, and whoever asks must not make the first claim. Nothing was changed.
    Unclaimed,
}

/// A claim, and how much refers to it.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, serde::Serialize)]
pub struct Claim {
    /// Its identifier.
    pub id: ClaimId,
    /// The repository.
    pub url: RepoUrl,
    /// Whose it is.
    pub owner: OwnerName,
    /// Since when.
    pub created_at: DateTime<Utc>,
    /// Applications that refer to it.
    pub applications: i64,
    /// Credentials that refer to it.
    pub credentials: i64,
}

/// What refers to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimUse {
    /// A registered project.
    Application(ApplicationId),
    /// A credential.
    Credential(CredentialId),
}

/// What came of collecting one claim.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// It is gone.
    Gone,
    /// It stays, or somebody else removed it: a reference came in between, which is nobody's fault.
    Kept,
}

#[derive(sqlx::FromRow)]
pub(super) struct Held {
    pub(super) id: ClaimId,
    pub(super) owner: OwnerId,
    pub(super) name: OwnerName,
}

impl Held {
    fn answer(self, asking: OwnerId) -> Acquired {
        if self.owner == asking {
            Acquired::Claimed(self.id)
        } else {
            Acquired::OwnedBy(self.name)
        }
    }
}

impl Store {
    /// Claims a repository for an owner by itself, with all rights. Unless something comes to refer to the claim, the next round of the
    /// collector removes it. An owner who is gone is [`sqlx::Error::RowNotFound`].
    pub async fn claim_acquire(
        &self,
        owner: OwnerId,
        url: &RepoUrl,
        cause: &Cause,
    ) -> Result<Acquired> {
        // Nothing is to refer to the claim, so a look is as good as a lock.
        let held = on_pool!(self, db => sqlx::query_as::<_, Held>(held_sql!("")).bind(url).fetch_optional(db))?;
        if let Some(held) = held {
            return Ok(held.answer(owner));
        }
        let mut tx = self.begin().await?;
        let (acquired, events) = self
            .claim_acquire_in_tx(&mut tx, owner, url, (Rights::Whole, cause))
            .await?;
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| acquired)
    }

    /// Claims a repository for an owner, in the transaction that makes something refer to the claim. The events are to be
    /// kept with it. On anything but [`Acquired::Claimed`] nothing was changed. An owner who is gone is
    /// [`sqlx::Error::RowNotFound`].
    pub(crate) async fn claim_acquire_in_tx(
        &self,
        tx: &mut Tx,
        owner: OwnerId,
        url: &RepoUrl,
        by: (Rights, &Cause),
    ) -> Result<(Acquired, Vec<NewLockEvent>)> {
        let owner = owner_share_in_tx(tx, owner)
            .await?
            .ok_or(sqlx::Error::RowNotFound)?;
        self.acquire_in_tx(tx, &owner, url, by).await
    }

    /// As [`Self::claim_acquire_in_tx`], for something that refers to the claim on `old` until now and is to refer to that
    /// on `new`. Nobody comes to refer to the claim on `old`, or deletes it, until the transaction ends; when the
    /// reference is moved ([`claim_refer_in_tx`]), `old` is to be given to [`Self::claim_collect_in_tx`].
    pub(crate) async fn claim_exchange_in_tx(
        &self,
        tx: &mut Tx,
        owner: OwnerId,
        (old, new): (&RepoUrl, &RepoUrl),
        by: (Rights, &Cause),
    ) -> Result<(Acquired, Vec<NewLockEvent>)> {
        let owner = owner_share_in_tx(tx, owner)
            .await?
            .ok_or(sqlx::Error::RowNotFound)?;
        if old < new {
            claim_hold_in_tx(tx, old).await?;
        }
        let acquired = self.acquire_in_tx(tx, &owner, new, by).await?;
        if new < old {
            claim_hold_in_tx(tx, old).await?;
        }
        Ok(acquired)
    }

    /// The row is shared until the transaction ends, so that nobody deletes the claim before something refers to it.
    async fn acquire_in_tx(
        &self,
        tx: &mut Tx,
        owner: &Owner,
        url: &RepoUrl,
        (rights, cause): (Rights, &Cause),
    ) -> Result<(Acquired, Vec<NewLockEvent>)> {
        let id = ClaimId::next(&*self.ids);
        for _ in 0..TRIES {
            if let Some(held) = claim_share_in_tx(tx, url).await? {
                return Ok((held.answer(owner.id), Vec::new()));
            }
            if rights == Rights::Limited {
                return Ok((Acquired::Unclaimed, Vec::new()));
            }
            // Waits for those who insert the same at this moment. If they do, the claim is theirs, and the next look
            // finds it, unless it is collected by then.
            if execute!(tx, INSERT, id, url, owner.id, kept_time(self.now()))? > 0 {
                let event = owner_event(
                    LockEventKind::Claimed,
                    cause,
                    &owner.name,
                    &format!("{url} for {}", owner.name),
                );
                return Ok((Acquired::Claimed(id), vec![event]));
            }
        }
        Err(sqlx::Error::Protocol(format!(
            "the claim on {url} came and went {TRIES} times within one transaction"
        )))
    }

    /// Deletes the claim on an address if nothing refers to it.
    pub(crate) async fn claim_collect_in_tx(
        &self,
        tx: &mut Tx,
        url: &RepoUrl,
        cause: &Cause,
    ) -> Result<Option<NewLockEvent>> {
        let Some(held) = claim_hold_in_tx(tx, url).await? else {
            return Ok(None);
        };
        let gone = delete_unused_in_tx(tx, held.id).await?;
        Ok(gone.map(|url| unclaimed(cause, &url, &held.name)))
    }

    /// Deletes the reference and, if nothing else refers to the claim, the claim.
    pub(crate) async fn claim_let_go_in_tx(
        &self,
        tx: &mut Tx,
        what: ClaimUse,
        url: &RepoUrl,
        cause: &Cause,
    ) -> Result<Option<NewLockEvent>> {
        claim_hold_in_tx(tx, url).await?;
        match what {
            ClaimUse::Application(id) => execute!(
                tx,
                "DELETE FROM claim_applications WHERE application = $1",
                id
            )?,
            ClaimUse::Credential(id) => execute!(
                tx,
                "DELETE FROM claim_credentials WHERE credential = $1",
                id
            )?,
        };
        self.claim_collect_in_tx(tx, url, cause).await
    }

    /// The claims of an owner that is held, and that has neither applications nor credentials.
    pub(super) async fn claims_drop_of_owner_in_tx(
        &self,
        tx: &mut Tx,
        owner: &Owner,
        cause: &Cause,
    ) -> Result<Vec<NewLockEvent>> {
        let urls = on_tx!(tx, db => sqlx::query_scalar::<_, RepoUrl>(DELETE_UNUSED_OF_OWNER)
            .bind(owner.id).fetch_all(db))?;
        Ok(urls
            .iter()
            .map(|url| unclaimed(cause, url, &owner.name))
            .collect())
    }

    /// Claims that nothing refers to.
    pub async fn claim_list_unused(&self, limit: i64) -> Result<Vec<ClaimId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, ClaimId>(LIST_UNUSED).bind(limit).fetch_all(db))
    }

    /// Deletes a claim that nothing refers to. On PostgreSQL something may come to refer to it between the look and the
    /// deletion; then the foreign key refuses, and the claim stays, as it should.
    pub async fn claim_collect(&self, id: ClaimId) -> Result<Collected> {
        let mut tx = self.begin().await?;
        let owner = on_tx!(&mut tx, db => sqlx::query_scalar::<_, OwnerName>(
            "SELECT o.name FROM repository_claims c JOIN owners o ON o.id = c.owner WHERE c.id = $1")
            .bind(id).fetch_optional(db))?;
        let gone = match delete_unused_in_tx(&mut tx, id).await {
            Err(sqlx::Error::Database(refused)) if refused.is_foreign_key_violation() => None,
            gone => gone?,
        };
        let (Some(url), Some(owner)) = (gone, owner) else {
            return tx.roll_back().await.map(|()| Collected::Kept);
        };
        let cause = Cause::new(
            Actor::lockkeeper(Origin::Reconciler),
            "nothing refers to the claim",
        );
        self.lock_events_in_tx(&mut tx, vec![unclaimed(&cause, &url, &owner)])
            .await?;
        tx.commit().await.map(|()| Collected::Gone)
    }

    /// The claim on a repository.
    pub async fn claim_get(&self, url: &RepoUrl) -> Result<Option<Claim>> {
        on_pool!(self, db => sqlx::query_as::<_, Claim>(claim_sql!("WHERE c.url = $1")).bind(url).fetch_optional(db))
    }

    /// Whose a repository is; `None`: nobody's.
    pub async fn claim_owner(&self, url: &RepoUrl) -> Result<Option<OwnerName>> {
        on_pool!(self, db => sqlx::query_scalar::<_, OwnerName>(OWNER).bind(url).fetch_optional(db))
    }

    /// Whose a repository of a forge is; `None`: nobody's. What has no address in normal form cannot be claimed.
    pub async fn claim_owner_of(&self, repo: &RepoId) -> Result<Option<OwnerName>> {
        match RepoUrl::of(repo) {
            Ok(url) => self.claim_owner(&url).await,
            Err(_) => Ok(None),
        }
    }

    /// The repositories that an owner has claimed, by address; what is no repository of a forge is left out.
    pub async fn claim_repos(&self, owner: OwnerId) -> Result<Vec<RepoId>> {
        let urls =
            on_pool!(self, db => sqlx::query_scalar::<_, RepoUrl>(URLS).bind(owner).fetch_all(db))?;
        // Of two addresses that differ by case alone, only one is that of the repository.
        let own = |url: &RepoUrl| {
            url.repo_id()
                .filter(|repo| RepoUrl::of(repo).as_ref() == Ok(url))
        };
        Ok(urls.iter().filter_map(own).collect())
    }

    /// Every claim, or those of one owner, by address; from after the given one.
    pub async fn claim_list(
        &self,
        owner: Option<OwnerId>,
        after: Option<&RepoUrl>,
        limit: i64,
    ) -> Result<Vec<Claim>> {
        let after = after.map(RepoUrl::as_str).unwrap_or_default();
        match owner {
            Some(owner) => on_pool!(self, db => sqlx::query_as::<_, Claim>(
                claim_sql!("WHERE c.owner = $1 AND c.url > $2 ORDER BY c.url LIMIT $3"))
                .bind(owner).bind(after).bind(limit).fetch_all(db)),
            None => on_pool!(self, db => sqlx::query_as::<_, Claim>(
                claim_sql!("WHERE c.url > $1 ORDER BY c.url LIMIT $2"))
                .bind(after).bind(limit).fetch_all(db)),
        }
    }
}

/// Makes something refer to the claim that was acquired in this transaction, whatever it referred to before.
pub(crate) async fn claim_refer_in_tx(tx: &mut Tx, what: ClaimUse, claim: ClaimId) -> Result<()> {
    match what {
        ClaimUse::Application(id) => execute!(
            tx,
            "INSERT INTO claim_applications (application, claim) VALUES ($1, $2) \
             ON CONFLICT (application) DO UPDATE SET claim = excluded.claim",
            id,
            claim
        ),
        ClaimUse::Credential(id) => execute!(
            tx,
            "INSERT INTO claim_credentials (credential, claim) VALUES ($1, $2) \
             ON CONFLICT (credential) DO UPDATE SET claim = excluded.claim",
            id,
            claim
        ),
    }
    .map(drop)
}

/// Nobody deletes the claim until the transaction ends.
async fn claim_share_in_tx(tx: &mut Tx, url: &RepoUrl) -> Result<Option<Held>> {
    held_in_tx(tx, url, held_sql!(" FOR KEY SHARE OF c")).await
}

/// Nobody deletes the claim or comes to refer to it until the transaction ends.
pub(super) async fn claim_hold_in_tx(tx: &mut Tx, url: &RepoUrl) -> Result<Option<Held>> {
    held_in_tx(tx, url, held_sql!(" FOR UPDATE OF c")).await
}

/// SQLite's only writing transaction needs no lock on a row.
async fn held_in_tx(tx: &mut Tx, url: &RepoUrl, postgres: &'static str) -> Result<Option<Held>> {
    let sql = match tx {
        Tx::Sqlite(_) => held_sql!(""),
        Tx::Postgres(_) => postgres,
    };
    on_tx!(tx, db => sqlx::query_as::<_, Held>(sql).bind(url).fetch_optional(db))
}

async fn delete_unused_in_tx(tx: &mut Tx, id: ClaimId) -> Result<Option<RepoUrl>> {
    on_tx!(tx, db => sqlx::query_scalar::<_, RepoUrl>(DELETE_UNUSED).bind(id).fetch_optional(db))
}

fn unclaimed(cause: &Cause, url: &RepoUrl, owner: &OwnerName) -> NewLockEvent {
    owner_event(
        LockEventKind::Unclaimed,
        cause,
        owner,
        &format!("{url} of {owner}"),
    )
}
