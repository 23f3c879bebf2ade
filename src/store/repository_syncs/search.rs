//! Searches the mirrors of all data directories for people, those with problems first.

use super::super::of_repos::listed;
use super::super::{Result, Store, on_pool};
use super::MirrorRow;
use super::row::{RepositorySyncColumns, columns};
use crate::model::{RepoId, SyncState};

/// Result of a search for mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundMirrors {
    /// Requested part of the mirrors, by state (failed, under way, waiting, in sync) and repository.
    pub rows: Vec<MirrorRow>,
    /// Total number of matching mirrors.
    pub count: i64,
}

/// Parameters of a search for mirrors.
#[derive(Clone, Copy, Debug, Default)]
pub struct MirrorSearch<'a> {
    /// State of the mirrors; `None`: any.
    pub state: Option<SyncState>,
    /// Text that the name of the repository contains.
    pub text: &'a str,
    /// Repositories of the mirrors; `None`: any.
    pub repos: Option<&'a [RepoId]>,
    /// Number of mirrors to skip.
    pub skip: i64,
    /// Maximum number of mirrors to return.
    pub limit: i64,
}

macro_rules! wanted {
    ($which:literal) => {
        concat!(
            " FROM repository_syncs WHERE ",
            $which,
            " AND ($2 = '' OR state = $2) AND ($3 = '' OR lower(repo) LIKE $3 ESCAPE '!')"
        )
    };
}

macro_rules! search_sql {
    ($which:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            wanted!($which),
            " ORDER BY CASE state WHEN 'failed' THEN 0 WHEN 'started' THEN 1 WHEN 'pending' THEN 2 ELSE 3 END, repo, \
             replica LIMIT $5 OFFSET $4"
        )
    };
}

macro_rules! count_sql {
    ($which:literal) => {
        concat!("SELECT COUNT(*)", wanted!($which))
    };
}

macro_rules! states_sql {
    ($which:literal) => {
        concat!(
            "SELECT state, COUNT(*) FROM repository_syncs WHERE ",
            $which,
            " GROUP BY state ORDER BY state"
        )
    };
}

/// Makes a statement in three variants: for any repository, and for a list of repositories in the dialects of SQLite
/// and PostgreSQL.
macro_rules! in_three_ways {
    ($sql:ident) => {
        [
            $sql!("$1 = ''"),
            $sql!("repo IN (SELECT value FROM json_each($1) AS each)"),
            $sql!("repo = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))"),
        ]
    };
}

const SEARCH: [&str; 3] = in_three_ways!(search_sql);
const COUNT: [&str; 3] = in_three_ways!(count_sql);
const STATES: [&str; 3] = in_three_ways!(states_sql);

impl Store {
    /// Searches for mirrors, and returns those with problems first.
    pub async fn mirror_search(&self, filter: MirrorSearch<'_>) -> Result<FoundMirrors> {
        let state = filter.state.map_or("", |state| state.as_str());
        let (repos, pattern) = (
            filter.repos.map_or_else(String::new, listed),
            like_pattern(filter.text),
        );
        let (search, count) = (
            self.way(&SEARCH, filter.repos),
            self.way(&COUNT, filter.repos),
        );
        let rows = on_pool!(self, db => sqlx::query_as::<_, RepositorySyncColumns>(search)
            .bind(&repos).bind(state).bind(&pattern).bind(filter.skip).bind(filter.limit).fetch_all(db))?;
        let count = on_pool!(self, db => sqlx::query_scalar::<_, i64>(count)
            .bind(&repos).bind(state).bind(&pattern).fetch_one(db))?;
        Ok(FoundMirrors {
            rows: rows.into_iter().map(MirrorRow::from).collect(),
            count,
        })
    }

    /// Counts the mirrors of these repositories (`None`: of any) by state, in all data directories together.
    pub async fn mirror_count_all(
        &self,
        repos: Option<&[RepoId]>,
    ) -> Result<Vec<(SyncState, i64)>> {
        let sql = self.way(&STATES, repos);
        on_pool!(self, db => sqlx::query_as::<_, (SyncState, i64)>(sql)
            .bind(repos.map_or_else(String::new, listed)).fetch_all(db))
    }

    fn way(&self, sql: &[&'static str; 3], repos: Option<&[RepoId]>) -> &'static str {
        if repos.is_none() {
            sql[0]
        } else {
            self.either(sql[1], sql[2])
        }
    }
}

/// Returns a pattern of `LIKE … ESCAPE '!'` for a text anywhere in lower case. Empty for an empty text, which matches
/// anything.
pub(crate) fn like_pattern(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let quoted: String = text
        .replace('\0', "\u{fffd}")
        .to_lowercase()
        .chars()
        .flat_map(|c| {
            matches!(c, '!' | '%' | '_')
                .then_some('!')
                .into_iter()
                .chain([c])
        })
        .collect();
    format!("%{quoted}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_to_the_database_means_itself() {
        assert_eq!(like_pattern(""), "");
        assert_eq!(like_pattern("Acme/a_b%!"), "%acme/a!_b!%!!%");
    }
}
