//! Owners: the teams or tenants of a server.
//!
//! Every transaction that adds a reference to an owner shares the row of the owner. A removal locks it exclusively.
//! So no reference to a removed owner can appear.

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

/// A team or tenant that is responsible for repositories.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, serde::Serialize)]
pub struct Owner {
    pub id: OwnerId,
    /// Name, unique on the server.
    pub name: OwnerName,
    /// Login of the person who added the owner.
    pub created_by: String,
    /// Time of the addition.
    pub created_at: DateTime<Utc>,
}

/// Outcome of adding an owner.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateOwner {
    /// The owner was added.
    Created(Owner),
    /// An owner of this name exists, and stays as it is.
    AlreadyThere(Owner),
    /// The server has the maximum number of owners, which is this number.
    TooMany(i64),
}

/// Outcome of removing an owner.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOwner {
    /// The owner was removed, with its claims that had no references.
    Deleted(Owner),
    /// The owner stays, because it has applications, credentials or namespaces.
    InUse {
        /// Number of registered projects.
        applications: i64,
        /// Number of stored credentials.
        credentials: i64,
        /// Number of namespaces in the registry.
        namespaces: i64,
    },
    /// No owner has this name.
    NotFound,
}

impl Store {
    /// Maximum number of owners of one server (P12), because pages and lists show every one.
    pub const MAX_OWNERS: i64 = 10_000;

    /// Adds an owner, unless the server has the maximum number.
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

    /// Lists all owners by name.
    pub async fn owner_list(&self) -> Result<Vec<Owner>> {
        on_pool!(self, db => sqlx::query_as::<_, Owner>(owner_sql!("ORDER BY name")).fetch_all(db))
    }

    /// Lists owners by name, beginning after the given one.
    pub async fn owner_part(&self, after: Option<&OwnerName>, limit: i64) -> Result<Vec<Owner>> {
        let after = after.map(OwnerName::as_str).unwrap_or_default();
        on_pool!(self, db => sqlx::query_as::<_, Owner>(owner_sql!("WHERE name > $1 ORDER BY name LIMIT $2"))
            .bind(after).bind(limit).fetch_all(db))
    }

    /// Returns the owner of this name.
    pub async fn owner_get(&self, name: &OwnerName) -> Result<Option<Owner>> {
        on_pool!(self, db => sqlx::query_as::<_, Owner>(owner_sql!("WHERE name = $1")).bind(name).fetch_optional(db))
    }

    /// Removes an owner, unless it has applications, credentials or namespaces in the registry.
    pub async fn owner_delete(&self, name: &OwnerName, cause: &Cause) -> Result<DeleteOwner> {
        let mut tx = self.begin().await?;
        let Some(owner) = owner_hold_in_tx(&mut tx, name).await? else {
            return Ok(DeleteOwner::NotFound);
        };
        let applications = application_count_in_tx(&mut tx, owner.id).await?;
        let credentials = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM credentials WHERE owner = $1").bind(owner.id).fetch_one(db))?;
        let namespaces = on_tx!(&mut tx, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM registry_namespaces WHERE owner = $1").bind(owner.id).fetch_one(db))?;
        if applications > 0 || credentials > 0 || namespaces > 0 {
            return Ok(DeleteOwner::InUse {
                applications,
                credentials,
                namespaces,
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

/// Returns the owner and shares its row, so that it stays until the transaction ends. `None`: it was removed.
pub(crate) async fn owner_share_in_tx(tx: &mut Tx, id: OwnerId) -> Result<Option<Owner>> {
    let sql = match tx {
        Tx::Sqlite(_) => owner_sql!("WHERE id = $1"),
        Tx::Postgres(_) => owner_sql!("WHERE id = $1 FOR KEY SHARE"),
    };
    on_tx!(tx, db => sqlx::query_as::<_, Owner>(sql).bind(id).fetch_optional(db))
}

/// Like [`owner_share_in_tx`], but finds the owner by name.
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

/// Makes an event about an owner. The event concerns no lock, so its subject stands before the reason.
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
