//! Owners with how much each has, for the pages.

use chrono::{DateTime, Utc};

use super::{Result, Store, on_pool};
use crate::model::OwnerName;

/// An owner, and how much of it there is.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct OwnerOverview {
    /// Its name.
    pub name: OwnerName,
    /// Who added it.
    pub created_by: String,
    /// When.
    pub created_at: DateTime<Utc>,
    /// Repositories it has claimed.
    pub claims: i64,
    /// Applications it has registered.
    pub applications: i64,
    /// Credentials it has given.
    pub credentials: i64,
}

macro_rules! overview_sql {
    ($rest:literal) => {
        concat!(
            "SELECT o.name, o.created_by, o.created_at, ",
            "(SELECT COUNT(*) FROM repository_claims c WHERE c.owner = o.id) AS claims, ",
            "(SELECT COUNT(*) FROM applications a WHERE a.owner = o.id) AS applications, ",
            "(SELECT COUNT(*) FROM credentials r WHERE r.owner = o.id) AS credentials FROM owners o ",
            $rest
        )
    };
}

impl Store {
    /// Owners by name, with how much each has.
    pub async fn owner_overview(&self, limit: i64) -> Result<Vec<OwnerOverview>> {
        on_pool!(self, db => sqlx::query_as::<_, OwnerOverview>(overview_sql!("ORDER BY o.name LIMIT $1"))
            .bind(limit).fetch_all(db))
    }

    /// The same of these owners.
    pub async fn owner_overview_of(&self, names: &[OwnerName]) -> Result<Vec<OwnerOverview>> {
        let mut owners = Vec::new();
        for name in names {
            owners.extend(on_pool!(self, db => sqlx::query_as::<_, OwnerOverview>(overview_sql!("WHERE o.name = $1"))
                .bind(name).fetch_optional(db))?);
        }
        Ok(owners)
    }
}
