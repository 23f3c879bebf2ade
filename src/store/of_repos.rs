//! Limits lists to some repositories, such as those of an owner.
//!
//! The repositories are one parameter, a list in JSON. Both databases look up its values one by one in the index that
//! begins with the repository. The number of repositories has no limit of its own.

use super::{DbPool, Store};

/// Condition for SQLite that `repo` is in the list `$1`.
macro_rules! of_repos_sqlite {
    () => {
        "repo IN (SELECT value FROM json_each($1) AS each)"
    };
}

/// Condition for PostgreSQL that `repo` is in the list `$1`. PostgreSQL uses the index only for an array.
macro_rules! of_repos_postgres {
    () => {
        "repo = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))"
    };
}

pub(super) use {of_repos_postgres, of_repos_sqlite};

/// Formats the list for `$1` as JSON.
pub(super) fn listed(all: &[impl ToString]) -> String {
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    serde_json::to_string(&names).expect("texts are always JSON")
}

impl Store {
    /// Returns the statement for the open database.
    pub(crate) const fn either(
        &self,
        sqlite: &'static str,
        postgres: &'static str,
    ) -> &'static str {
        match self.pool {
            DbPool::Sqlite { .. } => sqlite,
            DbPool::Postgres(_) => postgres,
        }
    }
}
