//! Claims: a repository has at most one owner, as long as that owner has an application or a credential for it.
//!
//! Invariants, and how they are kept:
//!
//! - *One owner*: the unique key on the address. The second owner who asks always gets the name of the first.
//! - *No first claim without the right*: [`Rights`] are checked in the transaction that would insert the claim.
//! - *No reference without a claim*: foreign keys. A claim with a reference cannot be deleted.
//! - *No claim without a reference* for longer than a round of the collector. References and claims are inserted and
//!   deleted in the transaction of their application or credential. [`Store::claim_collect`] removes any that are
//!   still left over.
//!
//! On PostgreSQL, a transaction always locks in the same order, so that no two wait for each other: the row of the
//! application or credential, the row of the owner (shared), rows of claims ordered by address, inserted rows, and
//! last the chain of events. Acquiring shares the row of a claim, so that many can use it at once. A transaction that
//! may delete a claim holds its row exclusively *before* it looks for references, so that the answer stays true.

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

/// Maximum number of attempts to acquire a claim that others insert and collect between two of our statements. In
/// practice this never happens so often.
const TRIES: usize = 1000;

/// Outcome of acquiring a claim.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner has the repository, now or already before.
    Claimed(ClaimId),
    /// Another owner has the repository.
    OwnedBy(OwnerName),
    /// Nobody has the repository, and the caller must not make the first claim. Nothing was changed.
    Unclaimed,
}

/// A claim, and the number of its references.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, serde::Serialize)]
pub struct Claim {
    pub id: ClaimId,
    /// Address of the claimed repository.
    pub url: RepoUrl,
    /// Name of the owner.
    pub owner: OwnerName,
    /// Time of the claim.
    pub created_at: DateTime<Utc>,
    /// Number of applications that refer to the claim.
    pub applications: i64,
    /// Number of credentials that refer to the claim.
    pub credentials: i64,
}

/// Reference to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimUse {
    Application(ApplicationId),
    Credential(CredentialId),
}

/// Outcome of collecting one claim.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimCollection {
    /// The claim was deleted.
    Gone,
    /// The claim stays because of a new reference, or somebody else removed it. Neither is an error.
    Kept,
}

#[derive(sqlx::FromRow)]
pub(super) struct HeldClaim {
    pub(super) id: ClaimId,
    pub(super) owner: OwnerId,
    pub(super) name: OwnerName,
}

impl HeldClaim {
    fn answer(self, asking: OwnerId) -> Acquired {
        if self.owner == asking {
            Acquired::Claimed(self.id)
        } else {
            Acquired::OwnedBy(self.name)
        }
    }
}

impl Store {
    /// Claims a repository for an owner without a reference, with all rights. The next round of the collector removes
    /// the claim unless a reference appears. Fails with [`sqlx::Error::RowNotFound`] if the owner does not exist.
    ///
    /// Only tests and benchmarks call this method: in the product, a claim comes with its first reference. It cannot
    /// move to them, because transactions are private to the crate.
    pub async fn claim_acquire(
        &self,
        owner: OwnerId,
        url: &RepoUrl,
        cause: &Cause,
    ) -> Result<Acquired> {
        // No reference is made to the claim, so a read is as good as a lock.
        let held = on_pool!(self, db => sqlx::query_as::<_, HeldClaim>(held_sql!("")).bind(url).fetch_optional(db))?;
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

    /// Claims a repository for an owner, in the transaction that inserts a reference to the claim. The caller stores
    /// the returned events. Unless the outcome is [`Acquired::Claimed`], nothing was changed. Fails with
    /// [`sqlx::Error::RowNotFound`] if the owner does not exist.
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

    /// Like [`Self::claim_acquire_in_tx`], for a reference that moves from the claim on `old` to that on `new`. Until
    /// the transaction ends, nobody can add a reference to the claim on `old` or delete it. After moving the
    /// reference ([`claim_refer_in_tx`]), the caller passes `old` to [`Self::claim_collect_in_tx`].
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

    /// Acquires a claim and shares its row, so that nobody deletes it before the caller has inserted a reference.
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
            // Waits for others who insert the same claim at this moment. If they commit, the claim is theirs. The
            // next read then finds it, unless it was collected meanwhile.
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
            "the claim on {url} was created and removed {TRIES} times during one transaction"
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

    /// Deletes a reference and, if it was the last one, the claim.
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

    /// Deletes the claims of an owner who has neither applications nor credentials. The caller holds the row of the
    /// owner.
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

    /// Lists claims without a reference.
    pub async fn claim_list_unused(&self, limit: i64) -> Result<Vec<ClaimId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, ClaimId>(LIST_UNUSED).bind(limit).fetch_all(db))
    }

    /// Deletes a claim without a reference. On PostgreSQL a reference may appear between the read and the deletion.
    /// Then the foreign key refuses the deletion, and the claim rightly stays.
    pub async fn claim_collect(&self, id: ClaimId) -> Result<ClaimCollection> {
        let mut tx = self.begin().await?;
        let owner = on_tx!(&mut tx, db => sqlx::query_scalar::<_, OwnerName>(
            "SELECT o.name FROM repository_claims c JOIN owners o ON o.id = c.owner WHERE c.id = $1")
            .bind(id).fetch_optional(db))?;
        let gone = match delete_unused_in_tx(&mut tx, id).await {
            Err(sqlx::Error::Database(refused)) if refused.is_foreign_key_violation() => None,
            gone => gone?,
        };
        let (Some(url), Some(owner)) = (gone, owner) else {
            return tx.roll_back().await.map(|()| ClaimCollection::Kept);
        };
        let cause = Cause::new(
            Actor::lockkeeper(Origin::Reconciler),
            "nothing refers to the claim",
        );
        self.lock_events_in_tx(&mut tx, vec![unclaimed(&cause, &url, &owner)])
            .await?;
        tx.commit().await.map(|()| ClaimCollection::Gone)
    }

    /// Returns the claim on a repository.
    pub async fn claim_get(&self, url: &RepoUrl) -> Result<Option<Claim>> {
        on_pool!(self, db => sqlx::query_as::<_, Claim>(claim_sql!("WHERE c.url = $1")).bind(url).fetch_optional(db))
    }

    /// Returns the owner of a repository; `None` if nobody has claimed it.
    pub async fn claim_owner(&self, url: &RepoUrl) -> Result<Option<OwnerName>> {
        on_pool!(self, db => sqlx::query_scalar::<_, OwnerName>(OWNER).bind(url).fetch_optional(db))
    }

    /// Returns the owner of a repository on a forge; `None` if nobody has claimed it. A repository without an address
    /// in normal form cannot be claimed.
    pub async fn claim_owner_of(&self, repo: &RepoId) -> Result<Option<OwnerName>> {
        match RepoUrl::of(repo) {
            Ok(url) => self.claim_owner(&url).await,
            Err(_) => Ok(None),
        }
    }

    /// Lists the repositories that an owner has claimed, by address. Leaves out addresses that are no repository of a
    /// forge.
    pub async fn claim_repos(&self, owner: OwnerId) -> Result<Vec<RepoId>> {
        let urls =
            on_pool!(self, db => sqlx::query_scalar::<_, RepoUrl>(URLS).bind(owner).fetch_all(db))?;
        // If two addresses differ only by case, one of them is that of the repository.
        let own = |url: &RepoUrl| {
            url.repo_id()
                .filter(|repo| RepoUrl::of(repo).as_ref() == Ok(url))
        };
        Ok(urls.iter().filter_map(own).collect())
    }

    /// Lists all claims, or those of one owner, ordered by address and beginning after the given one.
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

/// Makes an application or credential refer to the claim that was acquired in this transaction, in place of its
/// previous reference.
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

/// Returns the claim and shares its row, so that nobody deletes it until the transaction ends.
async fn claim_share_in_tx(tx: &mut Tx, url: &RepoUrl) -> Result<Option<HeldClaim>> {
    held_in_tx(tx, url, held_sql!(" FOR KEY SHARE OF c")).await
}

/// Returns the claim and locks its row, so that nobody deletes it or adds a reference until the transaction ends.
pub(super) async fn claim_hold_in_tx(tx: &mut Tx, url: &RepoUrl) -> Result<Option<HeldClaim>> {
    held_in_tx(tx, url, held_sql!(" FOR UPDATE OF c")).await
}

/// Returns the claim. On PostgreSQL it runs the query that locks the row. The only writing transaction of SQLite
/// needs no row lock.
async fn held_in_tx(
    tx: &mut Tx,
    url: &RepoUrl,
    postgres: &'static str,
) -> Result<Option<HeldClaim>> {
    let sql = match tx {
        Tx::Sqlite(_) => held_sql!(""),
        Tx::Postgres(_) => postgres,
    };
    on_tx!(tx, db => sqlx::query_as::<_, HeldClaim>(sql).bind(url).fetch_optional(db))
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
