//! The audit log in parts, newest first: all of it, or what concerns some owners and repositories.
//!
//! An event concerns what its column `concern` says, or else its repository; one index of the chain has both, and for each
//! of those that are asked for no more of it is read than fits in the part. The inbox is small and has no such index.

use super::lock_events::{EventRow, event_columns, newest_sql};
use super::of_repos::listed;
use super::{Result, Store, on_pool};
use crate::model::{Concern, LockEvent};

const PART: &str = newest_sql!("$2", "id < $1 - 1000000000000000", "seq < $1");

/// `$list` gives a row `whose` for each value of the list in `$1`, and joins to it the events that follow, called `$newest`;
/// `$one_of` is the condition that something is in that list.
macro_rules! concerning_sql {
    ($one_of:literal, $list:literal, $newest:literal) => {
        newest_sql!(
            "$3",
            concat!("COALESCE(concern, repo) ", $one_of, " AND id < $2 - 1000000000000000"),
            concat!(
                "seq IN (SELECT newest.seq FROM ",
                $list,
                " (SELECT n.seq FROM lock_events n WHERE COALESCE(n.concern, n.repo) = whose.value AND n.seq < $2 \
                 ORDER BY n.seq DESC LIMIT $3)",
                $newest,
                " ORDER BY newest.seq DESC LIMIT $3)"
            )
        )
    };
}

const CONCERNING: [&str; 2] = [
    concerning_sql!(
        "IN (SELECT value FROM json_each($1) AS each)",
        "json_each($1) AS whose JOIN lock_events newest ON newest.seq IN",
        ""
    ),
    concerning_sql!(
        "= ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))",
        "jsonb_array_elements_text($1::jsonb) AS whose (value) CROSS JOIN LATERAL",
        " AS newest"
    ),
];

impl Store {
    /// Every event, or those that concern one of these; from before the given place.
    pub async fn lock_event_part(
        &self,
        of: Option<&[Concern]>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<LockEvent>> {
        // A place far below zero would not fit once the offset of the inbox is taken off.
        let before = before.unwrap_or(i64::MAX).max(0);
        let rows = match of {
            None => {
                on_pool!(self, db => sqlx::query_as::<_, EventRow>(PART).bind(before).bind(limit).fetch_all(db))?
            }
            Some(of) => {
                let (sql, of) = (self.either(CONCERNING[0], CONCERNING[1]), listed(of));
                on_pool!(self, db => sqlx::query_as::<_, EventRow>(sql).bind(of).bind(before).bind(limit).fetch_all(db))?
            }
        };
        Ok(rows.into_iter().map(LockEvent::from).collect())
    }
}
