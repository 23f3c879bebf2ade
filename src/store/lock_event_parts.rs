//! Reads the audit log in parts, newest first: all of it, or the events that concern some owners and repositories.
//!
//! The column `concern` says whom an event concerns, or else its repository does. One index of the chain covers both.
//! For each requested owner or repository, it reads no more events than fit in the part. The inbox is small and has
//! no such index.

use super::lock_events::{EventRow, event_columns, newest_sql};
use super::of_repos::listed;
use super::{Result, Store, on_pool};
use crate::model::{Concern, LockEvent};

const PART: &str = newest_sql!("$2", "id < $1 - 1000000000000000", "seq < $1");

/// Selects the events that concern one of the values of the list in `$1`. `$list` makes a row `whose` of each value
/// and joins the events that follow, under the name `$newest`. `$one_of` is the condition that a value is in the
/// list.
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
    /// Returns all events, or those that concern one of these owners and repositories, from before the given place.
    pub async fn lock_event_part(
        &self,
        of: Option<&[Concern]>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<LockEvent>> {
        // A place far below zero would overflow when the offset of the inbox is subtracted.
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
