//! Lists owners with their numbers of claims, applications and credentials, for the pages.

use super::{Owner, Result, Store, on_pool};
use crate::model::OwnerName;

/// An owner, with numbers of its claims, applications and credentials.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct OwnerOverview {
    #[sqlx(flatten)]
    pub owner: Owner,
    /// Number of claimed repositories.
    pub claims: i64,
    /// Number of registered applications.
    pub applications: i64,
    /// Number of added credentials.
    pub credentials: i64,
}

macro_rules! overview_sql {
    ($rest:literal) => {
        concat!(
            "SELECT o.id, o.name, o.created_by, o.created_at, ",
            "(SELECT COUNT(*) FROM repository_claims c WHERE c.owner = o.id) AS claims, ",
            "(SELECT COUNT(*) FROM applications a WHERE a.owner = o.id) AS applications, ",
            "(SELECT COUNT(*) FROM credentials r WHERE r.owner = o.id) AS credentials FROM owners o ",
            $rest
        )
    };
}

impl Store {
    /// Lists owners by name, with their numbers.
    pub async fn owner_overview(&self, limit: i64) -> Result<Vec<OwnerOverview>> {
        on_pool!(self, db => sqlx::query_as::<_, OwnerOverview>(overview_sql!("ORDER BY o.name LIMIT $1"))
            .bind(limit).fetch_all(db))
    }

    /// Returns the overview of each of these owners.
    pub async fn owner_overview_of(&self, names: &[OwnerName]) -> Result<Vec<OwnerOverview>> {
        let mut owners = Vec::new();
        for name in names {
            owners.extend(on_pool!(self, db => sqlx::query_as::<_, OwnerOverview>(overview_sql!("WHERE o.name = $1"))
                .bind(name).fetch_optional(db))?);
        }
        Ok(owners)
    }
}
