//! Names that belong to owners. Nobody publishes outside of them, and only tokens with a scope for a name publish it (R6).
//!
//! Two namespaces never overlap, so a name is below at most one. Additions and removals hold the log lock, because a
//! publication relies on its namespace.

use chrono::{DateTime, Utc};
use lockkeeper_registry::names::{NameKind, NamePrefix, RegistryName};

use super::state::registry_access_changed_in_tx;
use super::store::{broken, log_hold_in_tx, registry_event};
use crate::model::{Cause, LockEventKind, OwnerName, text_enum};
use crate::store::{
    Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx, owner_share_named_in_tx,
};

text_enum! {
    /// Readers of the versions below a prefix.
    pub enum Visibility {
        /// Everyone who may read the registry.
        Public = "public",
        /// Tokens whose scopes name the prefix or names below it.
        Owner = "owner",
    }
}

/// Names that belong to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryNamespace {
    /// Namespace of Terraform modules, or the beginning of Go module paths.
    pub prefix: NamePrefix,
    /// Owner of all names below the prefix.
    pub owner: OwnerName,
    /// Readers of the versions.
    pub visibility: Visibility,
    /// Login of the person who added the namespace.
    pub created_by: String,
    /// Time of the addition.
    pub created_at: DateTime<Utc>,
}

impl RegistryNamespace {
    /// Returns true if everyone who may read the registry reads the names.
    pub fn is_public(&self) -> bool {
        self.visibility == Visibility::Public
    }
}

/// Treatment of versions below a new namespace that came from another deployment or were fetched (R6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignVersions {
    /// The namespace is not added if there are any.
    Refuse,
    /// The versions become those of the owner, as they are. The audit log has that.
    Adopt,
}

/// Outcome of adding a namespace.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddNamespace {
    /// The namespace was added.
    Added(RegistryNamespace),
    /// The prefix exists, with the same or another owner, and stays as it is.
    AlreadyThere(RegistryNamespace),
    /// The prefix overlaps with this one.
    Overlaps(RegistryNamespace),
    /// Versions of this name came from another deployment or were fetched, and may have been taken down. They must not pass
    /// for those of the owner (R6), unless somebody says so.
    InUse(RegistryName),
    /// No owner has this name.
    NoOwner,
    /// The server has the maximum number of namespaces, which is this number.
    TooMany(usize),
}

/// Outcome of changing a namespace.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeNamespace {
    /// The namespace is like this now.
    Changed(RegistryNamespace),
    /// No owner has this name.
    NoOwner,
    /// No namespace has this prefix.
    NotFound,
}

/// Outcome of removing a namespace.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveNamespace {
    /// The namespace was removed.
    Removed(RegistryNamespace),
    /// The namespace stays, because this name below it has versions.
    InUse(RegistryName),
    /// No namespace has this prefix.
    NotFound,
}

macro_rules! namespace_sql {
    ($rest:expr) => {
        concat!(
            "SELECT n.kind, n.prefix, o.name AS owner, n.visibility, n.created_by, n.created_at \
             FROM registry_namespaces n JOIN owners o ON o.id = n.owner ",
            $rest
        )
    };
}

/// Compares the prefix of a namespace `n` with a JSON list, which [`covering`] returns.
macro_rules! covering_sql {
    (sqlite) => {
        "n.prefix IN (SELECT value FROM json_each($2) AS each)"
    };
    (postgres) => {
        "n.prefix = ANY(ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))"
    };
}

pub(super) use covering_sql;

const OF_NAME_SQLITE: &str = namespace_sql!(concat!(
    "WHERE n.kind = $1 AND ",
    covering_sql!(sqlite),
    " LIMIT 1"
));
const OF_NAME_POSTGRES: &str = namespace_sql!(concat!(
    "WHERE n.kind = $1 AND ",
    covering_sql!(postgres),
    " LIMIT 1"
));
const OF_KIND: &str = namespace_sql!("WHERE n.kind = $1 ORDER BY n.prefix");

/// Selects a name below a prefix, with `$folded` compared by its bytes: a slash follows the prefix, and `0` is the character
/// after a slash. The order of a language may pass over slashes.
macro_rules! below_sql {
    ($folded:literal) => {
        concat!(
            "SELECT name FROM registry_names WHERE kind = $1 AND (",
            $folded,
            " = $2 OR (",
            $folded,
            " >= $3 AND ",
            $folded,
            " < $4)) ORDER BY ",
            $folded,
            " LIMIT 1"
        )
    };
}

const BELOW_SQLITE: &str = below_sql!("folded_name");
const BELOW_POSTGRES: &str = below_sql!("folded_name COLLATE \"C\"");

/// Returns all prefixes of the kind that cover a name, the shortest first.
pub(super) fn beginnings(name: &RegistryName) -> Vec<&str> {
    let text = name.as_str();
    match name {
        RegistryName::Module(_) => text.split('/').take(1).collect(),
        RegistryName::Go(_) => {
            let ends = text.match_indices('/').map(|(end, _)| end);
            ends.chain([text.len()]).map(|end| &text[..end]).collect()
        }
    }
}

/// Returns all prefixes of the kind that cover a name, as a JSON list.
pub(super) fn covering(name: &RegistryName) -> String {
    serde_json::to_string(&beginnings(name)).expect("texts are JSON")
}

#[derive(sqlx::FromRow)]
struct NamespaceRow {
    kind: NameKind,
    prefix: String,
    owner: OwnerName,
    visibility: Visibility,
    created_by: String,
    created_at: DateTime<Utc>,
}

impl NamespaceRow {
    fn namespace(self) -> Result<RegistryNamespace> {
        let prefix = format!("{} {}", self.kind, self.prefix);
        Ok(RegistryNamespace {
            prefix: prefix.parse().map_err(broken)?,
            owner: self.owner,
            visibility: self.visibility,
            created_by: self.created_by,
            created_at: self.created_at,
        })
    }
}

impl Store {
    /// Maximum number of namespaces of one server (P12), because lists show every one.
    pub const MAX_REGISTRY_NAMESPACES: usize = 10_000;

    /// Adds a namespace, unless it overlaps with another one, or `foreign` refuses it because of versions below it, in any
    /// case of letters.
    pub async fn registry_namespace_add(
        &self,
        prefix: &NamePrefix,
        owner: &OwnerName,
        visibility: Visibility,
        foreign: ForeignVersions,
        cause: &Cause,
    ) -> Result<AddNamespace> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let Some(owner) = owner_share_named_in_tx(&mut tx, owner).await? else {
            return Ok(AddNamespace::NoOwner);
        };
        let there = of_kind_in_tx(&mut tx, prefix.kind()).await?;
        if let Some(same) = there.iter().find(|there| there.prefix == *prefix) {
            return Ok(AddNamespace::AlreadyThere(same.clone()));
        }
        if let Some(other) = there.iter().find(|there| there.prefix.overlaps(prefix)) {
            return Ok(AddNamespace::Overlaps(other.clone()));
        }
        let adopted = name_below_in_tx(&mut tx, prefix).await?;
        if let (Some(name), ForeignVersions::Refuse) = (&adopted, foreign) {
            return Ok(AddNamespace::InUse(name.clone()));
        }
        if there.len() >= Self::MAX_REGISTRY_NAMESPACES {
            return Ok(AddNamespace::TooMany(Self::MAX_REGISTRY_NAMESPACES));
        }
        let namespace = RegistryNamespace {
            prefix: prefix.clone(),
            owner: owner.name,
            visibility,
            created_by: free_text(&cause.actor.login).into_owned(),
            created_at: kept_time(self.now()),
        };
        execute!(
            &mut tx,
            "INSERT INTO registry_namespaces (kind, prefix, owner, visibility, created_by, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6)",
            prefix.kind(),
            prefix.as_str(),
            owner.id,
            visibility,
            &namespace.created_by,
            namespace.created_at,
        )?;
        registry_access_changed_in_tx(&mut tx).await?;
        let what = match adopted {
            Some(name) => format!(
                "{prefix}, {visibility}, with the versions that are there, such as those of {}",
                name.as_str()
            ),
            None => format!("{prefix}, {visibility}"),
        };
        let event = registry_event(
            LockEventKind::RegistryNamespaceAdded,
            Some(namespace.owner.clone()),
            &what,
            cause,
        );
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await.map(|()| AddNamespace::Added(namespace))
    }

    /// Gives a namespace to another owner, or to other readers. `None` leaves that as it is.
    pub async fn registry_namespace_change(
        &self,
        prefix: &NamePrefix,
        owner: Option<&OwnerName>,
        visibility: Option<Visibility>,
        cause: &Cause,
    ) -> Result<ChangeNamespace> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let Some(row) = of_prefix_in_tx(&mut tx, prefix).await? else {
            return Ok(ChangeNamespace::NotFound);
        };
        let old = row.namespace()?;
        let name = owner.unwrap_or(&old.owner);
        let Some(owner) = owner_share_named_in_tx(&mut tx, name).await? else {
            return Ok(ChangeNamespace::NoOwner);
        };
        let namespace = RegistryNamespace {
            owner: owner.name,
            visibility: visibility.unwrap_or(old.visibility),
            ..old.clone()
        };
        if namespace == old {
            return Ok(ChangeNamespace::Changed(namespace));
        }
        execute!(
            &mut tx,
            "UPDATE registry_namespaces SET owner = $3, visibility = $4 WHERE kind = $1 AND prefix = $2",
            prefix.kind(),
            prefix.as_str(),
            owner.id,
            namespace.visibility,
        )?;
        registry_access_changed_in_tx(&mut tx).await?;
        let what = format!(
            "{prefix}, {}, from {}, {}",
            namespace.visibility, old.owner, old.visibility
        );
        let event = registry_event(
            LockEventKind::RegistryNamespaceChanged,
            Some(namespace.owner.clone()),
            &what,
            cause,
        );
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        let changed = ChangeNamespace::Changed(namespace);
        tx.commit().await.map(|()| changed)
    }

    /// Lists all namespaces by kind and prefix.
    pub async fn registry_namespaces(&self) -> Result<Vec<RegistryNamespace>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, NamespaceRow>(
            namespace_sql!("ORDER BY n.kind, n.prefix")).fetch_all(db))?;
        rows.into_iter().map(NamespaceRow::namespace).collect()
    }

    /// Returns the namespace that a name is below.
    pub async fn registry_namespace_of(
        &self,
        name: &RegistryName,
    ) -> Result<Option<RegistryNamespace>> {
        let sql = if self.is_shared() {
            OF_NAME_POSTGRES
        } else {
            OF_NAME_SQLITE
        };
        let row = on_pool!(self, db => sqlx::query_as::<_, NamespaceRow>(sql)
            .bind(name.kind()).bind(covering(name)).fetch_optional(db))?;
        row.map(NamespaceRow::namespace).transpose()
    }

    /// Removes a namespace below which no version was ever published.
    pub async fn registry_namespace_remove(
        &self,
        prefix: &NamePrefix,
        cause: &Cause,
    ) -> Result<RemoveNamespace> {
        let mut tx = self.begin().await?;
        log_hold_in_tx(&mut tx).await?;
        let Some(row) = of_prefix_in_tx(&mut tx, prefix).await? else {
            return Ok(RemoveNamespace::NotFound);
        };
        // A slash follows in all names of the kind but the prefix itself, and `0` is the character after a slash.
        let name = on_tx!(&mut tx, db => sqlx::query_scalar::<_, String>(
            "SELECT name FROM registry_names WHERE kind = $1 AND (name = $2 OR (name > $3 AND name < $4)) \
             ORDER BY name LIMIT 1")
            .bind(prefix.kind()).bind(prefix.as_str()).bind(format!("{}/", prefix.as_str()))
            .bind(format!("{}0", prefix.as_str())).fetch_optional(db))?;
        if let Some(name) = name {
            let name = RegistryName::new(prefix.kind(), &name).map_err(broken)?;
            return Ok(RemoveNamespace::InUse(name));
        }
        let namespace = row.namespace()?;
        execute!(
            &mut tx,
            "DELETE FROM registry_namespaces WHERE kind = $1 AND prefix = $2",
            prefix.kind(),
            prefix.as_str(),
        )?;
        registry_access_changed_in_tx(&mut tx).await?;
        let event = registry_event(
            LockEventKind::RegistryNamespaceRemoved,
            Some(namespace.owner.clone()),
            &prefix.to_string(),
            cause,
        );
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit()
            .await
            .map(|()| RemoveNamespace::Removed(namespace))
    }
}

async fn of_prefix_in_tx(tx: &mut Tx, prefix: &NamePrefix) -> Result<Option<NamespaceRow>> {
    on_tx!(tx, db => sqlx::query_as::<_, NamespaceRow>(
        namespace_sql!("WHERE n.kind = $1 AND n.prefix = $2"))
        .bind(prefix.kind()).bind(prefix.as_str()).fetch_optional(db))
}

/// Returns a known name below a prefix, in any case. Names in no namespace come from other deployments, or were fetched.
async fn name_below_in_tx(tx: &mut Tx, prefix: &NamePrefix) -> Result<Option<RegistryName>> {
    let folded = prefix.as_str().to_ascii_lowercase();
    let sql = match tx {
        Tx::Sqlite(_) => BELOW_SQLITE,
        Tx::Postgres(_) => BELOW_POSTGRES,
    };
    let name = on_tx!(tx, db => sqlx::query_scalar::<_, String>(sql)
        .bind(prefix.kind()).bind(&folded).bind(format!("{folded}/")).bind(format!("{folded}0")).fetch_optional(db))?;
    name.map(|name| RegistryName::new(prefix.kind(), &name).map_err(broken))
        .transpose()
}

pub(super) async fn of_kind_in_tx(tx: &mut Tx, kind: NameKind) -> Result<Vec<RegistryNamespace>> {
    let rows =
        on_tx!(tx, db => sqlx::query_as::<_, NamespaceRow>(OF_KIND).bind(kind).fetch_all(db))?;
    rows.into_iter().map(NamespaceRow::namespace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_below_each_of_its_beginnings() {
        let covering = |name: &str| covering(&name.parse().unwrap());
        assert_eq!(covering("module acme/vpc/aws"), r#"["acme"]"#);
        assert_eq!(
            covering("go example.com/net/v2"),
            r#"["example.com","example.com/net","example.com/net/v2"]"#
        );
        assert_eq!(covering("go example.com"), r#"["example.com"]"#);
    }
}
