//! Lists that are limited to some repositories: those of an owner.
//!
//! Which they are is one parameter, a list in JSON, that both databases look up one by one in the index that begins with the
//! repository. The number of repositories has no limit of its own.

use super::{Pool, Store};

/// `repo` is one of the list in `$1`, in the words of SQLite.
macro_rules! of_repos_sqlite {
    () => {
        "repo IN (SELECT value FROM json_each($1) AS each)"
    };
}

/// The same in the words of PostgreSQL, which takes the index only for an array.
macro_rules! of_repos_postgres {
    () => {
        "repo = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))"
    };
}

pub(super) use {of_repos_postgres, of_repos_sqlite};

/// The value of `$1`.
pub(super) fn listed(all: &[impl ToString]) -> String {
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    serde_json::to_string(&names).expect("texts are always JSON")
}

impl Store {
    /// The statement for the database that is open.
    pub(super) const fn either(
        &self,
        sqlite: &'static str,
        postgres: &'static str,
    ) -> &'static str {
        match self.pool {
            Pool::Sqlite { .. } => sqlite,
            Pool::Postgres(_) => postgres,
        }
    }
}
