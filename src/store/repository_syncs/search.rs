//! Mirrors as people look for them: those of all data directories, what is in trouble first.

use super::super::{Result, Store, on_pool};
use super::MirrorRow;
use super::row::{Row, columns};
use crate::model::SyncState;

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundMirrors {
    /// The first of them: failed, under way, waiting, in step; by repository.
    pub rows: Vec<MirrorRow>,
    /// How many there are in all.
    pub count: i64,
}

macro_rules! wanted {
    () => {
        " FROM repository_syncs WHERE ($1 = '' OR state = $1) AND ($2 = '' OR lower(repo) LIKE $2 ESCAPE '!')"
    };
}

const SEARCH: &str = concat!(
    "SELECT ",
    columns!(),
    wanted!(),
    " ORDER BY CASE state WHEN 'failed' THEN 0 WHEN 'started' THEN 1 WHEN 'pending' THEN 2 ELSE 3 END, repo, replica \
     LIMIT $3"
);
const COUNT: &str = concat!("SELECT COUNT(*)", wanted!());

impl Store {
    /// Mirrors that stand so (`None`: in any way) and whose repository's name has the text in it, so many at most.
    pub async fn mirror_search(&self, state: Option<SyncState>, text: &str, limit: i64) -> Result<FoundMirrors> {
        let (state, pattern) = (state.map_or("", |state| state.as_str()), pattern(text));
        let rows = on_pool!(self, db => sqlx::query_as::<_, Row>(SEARCH)
            .bind(state).bind(&pattern).bind(limit).fetch_all(db))?;
        let count = on_pool!(self, db => sqlx::query_scalar::<_, i64>(COUNT).bind(state).bind(&pattern).fetch_one(db))?;
        Ok(FoundMirrors { rows: rows.into_iter().map(MirrorRow::from).collect(), count })
    }

    /// How many mirrors there are in each state, on all disks together.
    pub async fn mirror_count_all(&self) -> Result<Vec<(SyncState, i64)>> {
        on_pool!(self, db => sqlx::query_as::<_, (SyncState, i64)>(
            "SELECT state, COUNT(*) FROM repository_syncs GROUP BY state ORDER BY state").fetch_all(db))
    }
}

/// The text anywhere, in any case; empty: anything.
fn pattern(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let quoted: String = text
        .replace('\0', "\u{fffd}")
        .to_lowercase()
        .chars()
        .flat_map(|c| matches!(c, '!' | '%' | '_').then_some('!').into_iter().chain([c]))
        .collect();
    format!("%{quoted}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_to_the_database_means_itself() {
        assert_eq!(pattern(""), "");
        assert_eq!(pattern("Acme/a_b%!"), "%acme/a!_b!%!!%");
    }
}
