//! Owners: the teams or tenants of a server.
//!
//! The row of an owner is shared by everything that begins to refer to it, and held alone by its removal: so nothing
//! comes to refer to an owner that is gone.

use chrono::{DateTime, Utc};

use super::{
    Result, Store, Tx, application_count_in_tx, execute, free_text, kept_time, on_pool, on_tx,
};
use crate::model::{Cause, Concern, LockEventKind, NewLockEvent, OwnerId, OwnerName};

macro_rules! owner_sql {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, created_by, created_at FROM owners ",
            $rest
        )
    };
}

/// A team or tenant.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, serde::Serialize)]
pub struct Owner {
    /// Its identifier.
    pub id: OwnerId,
    /// Its name, unique on the server.
    pub name: OwnerName,
    /// Who added it.
    pub created_by: String,
    /// When.
    pub created_at: DateTime<Utc>,
}

/// What came of adding an owner.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateOwner {
    /// It is there from now on.
    Created(Owner),
    /// There was one of this name, which stays as it is.
    AlreadyThere(Owner),
    /// There are as many as there may be, which is this many.
    TooMany(i64),
}

/// What came of removing an owner.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOwner {
    /// It is gone, with claims of it that nothing referred to.
    Deleted(Owner),
    /// It stays, because it has these.
    InUse {
        /// Registered projects.
        applications: i64,
        /// Credentials.
        credentials: i64,
    },
    /// There is none of this name.
    NotThere,
}

impl Store {
    /// Most owners of one server (P12): pages and lists show every one.
    pub const MAX_OWNERS: i64 = 10_000;

    /// Adds an owner, unless there are as many as there may be.
    pub async fn owner_create(&self, name: &OwnerName, cause: &Cause) -> Result<CreateOwner> {
        let mut tx = self.begin().await?;
        let owner = Owner {
            id: OwnerId::next(&*self.ids),
            name: name.clone(),
            created_by: free_text(&cause.actor.login).into_owned(),
            created_at: kept_time(self.now()),
        };
        let added = execute!(
            &mut tx,
            "INSERT INTO owners (id, name, created_by, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING",
            owner.id,
            &owner.name,
            &owner.created_by,
            owner.created_at,
        )?;
        if added == 0 {
            drop(tx);
            let there = self
                .owner_get(name)
                .await?
                .ok_or(sqlx::Error::RowNotFound)?;
            return Ok(CreateOwner::AlreadyThere(there));
        }
        let there = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM owners").fetch_one(db))?;
        if there > Self::MAX_OWNERS {
            return tx
                .roll_back()
                .await
                .map(|()| CreateOwner::TooMany(Self::MAX_OWNERS));
        }
        let event = owner_event(
            LockEventKind::Registered,
            cause,
            name,
            &format!("owner {name}"),
        );
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await.map(|()| CreateOwner::Created(owner))
    }

    /// Every owner, by name.
    pub async fn owner_list(&self) -> Result<Vec<Owner>> {
        on_pool!(self, db => sqlx::query_as::<_, Owner>(owner_sql!("ORDER BY name")).fetch_all(db))
    }

    /// Owners by name; from after the given one.
    pub async fn owner_part(&self, after: Option<&OwnerName>, limit: i64) -> Result<Vec<Owner>> {
        let after = after.map(OwnerName::as_str).unwrap_or_default();
        on_pool!(self, db => sqlx::query_as::<_, Owner>(owner_sql!("WHERE name > $1 ORDER BY name LIMIT $2"))
            .bind(after).bind(limit).fetch_all(db))
    }

    /// The owner of this name.
    pub async fn owner_get(&self, name: &OwnerName) -> Result<Option<Owner>> {
        on_pool!(self, db => sqlx::query_as::<_, Owner>(owner_sql!("WHERE name = $1")).bind(name).fetch_optional(db))
    }

    /// Removes an owner unless something refers to it.
    pub async fn owner_delete(&self, name: &OwnerName, cause: &Cause) -> Result<DeleteOwner> {
        let mut tx = self.begin().await?;
        let Some(owner) = owner_hold_in_tx(&mut tx, name).await? else {
            return Ok(DeleteOwner::NotThere);
        };
        let applications = application_count_in_tx(&mut tx, owner.id).await?;
        let credentials = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM credentials WHERE owner = $1").bind(owner.id).fetch_one(db))?;
        if applications > 0 || credentials > 0 {
            return Ok(DeleteOwner::InUse {
                applications,
                credentials,
            });
        }
        let mut events = self
            .claims_drop_of_owner_in_tx(&mut tx, &owner, cause)
            .await?;
        execute!(&mut tx, "DELETE FROM owners WHERE id = $1", owner.id)?;
        events.push(owner_event(
            LockEventKind::Unregistered,
            cause,
            name,
            &format!("owner {name}"),
        ));
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await.map(|()| DeleteOwner::Deleted(owner))
    }
}

/// The owner, which stays until the transaction ends. `None`: it is gone.
pub(crate) async fn owner_share_in_tx(tx: &mut Tx, id: OwnerId) -> Result<Option<Owner>> {
    let sql = match tx {
        Tx::Sqlite(_) => owner_sql!("WHERE id = $1"),
        Tx::Postgres(_) => owner_sql!("WHERE id = $1 FOR KEY SHARE"),
    };
    on_tx!(tx, db => sqlx::query_as::<_, Owner>(sql).bind(id).fetch_optional(db))
}

/// The same by name.
pub(crate) async fn owner_share_named_in_tx(
    tx: &mut Tx,
    name: &OwnerName,
) -> Result<Option<Owner>> {
    let sql = match tx {
        Tx::Sqlite(_) => owner_sql!("WHERE name = $1"),
        Tx::Postgres(_) => owner_sql!("WHERE name = $1 FOR KEY SHARE"),
    };
    on_tx!(tx, db => sqlx::query_as::<_, Owner>(sql).bind(name).fetch_optional(db))
}

async fn owner_hold_in_tx(tx: &mut Tx, name: &OwnerName) -> Result<Option<Owner>> {
    let sql = match tx {
        Tx::Sqlite(_) => owner_sql!("WHERE name = $1"),
        Tx::Postgres(_) => owner_sql!("WHERE name = $1 FOR UPDATE"),
    };
    on_tx!(tx, db => sqlx::query_as::<_, Owner>(sql).bind(name).fetch_optional(db))
}

/// An event about an owner and what belongs to it: it concerns no lock, so what it is about stands before the reason.
pub(crate) fn owner_event(
    kind: LockEventKind,
    cause: &Cause,
    owner: &OwnerName,
    what: &str,
) -> NewLockEvent {
    let reason = if cause.reason.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {}", cause.reason)
    };
    let concern = Some(Concern::Owner(owner.clone()));
    NewLockEvent {
        kind,
        key: None,
        scope: None,
        pull: None,
        concern,
        cause: Cause {
            reason,
            ..cause.clone()
        },
    }
}
