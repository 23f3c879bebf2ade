//! The audit log in parts, newest first: all of it, or what concerns some owners and repositories.
//!
//! An event concerns what its column `concern` says, or else its repository; one index has both, and for each of those that
//! are asked for no more of it is read than fits in the part.

use super::lock_events::{EventRow, select_sql};
use super::of_repos::listed;
use super::{Result, Store, on_pool};
use crate::model::{Concern, LockEvent};

const PART: &str = select_sql!("WHERE seq < $1 ORDER BY seq DESC LIMIT $2");

/// `$list` gives a row `whose` for each value of the list in `$1`, and joins to it the events that follow, called `$newest`.
macro_rules! concerning_sql {
    ($list:literal, $newest:literal) => {
        select_sql!(
            "WHERE seq IN (SELECT newest.seq FROM ",
            $list,
            " (SELECT n.seq FROM lock_events n WHERE COALESCE(n.concern, n.repo) = whose.value AND n.seq < $2 \
             ORDER BY n.seq DESC LIMIT $3)",
            $newest,
            " ORDER BY newest.seq DESC LIMIT $3) ORDER BY seq DESC"
        )
    };
}

const CONCERNING: [&str; 2] = [
    concerning_sql!("json_each($1) AS whose JOIN lock_events newest ON newest.seq IN", ""),
    concerning_sql!("jsonb_array_elements_text($1::jsonb) AS whose (value) CROSS JOIN LATERAL", " AS newest"),
];

impl Store {
    /// Every event, or those that concern one of these; from before the given one.
    pub async fn lock_event_part(
        &self,
        of: Option<&[Concern]>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<LockEvent>> {
        let before = before.unwrap_or(i64::MAX);
        let rows = match of {
            None => on_pool!(self, db => sqlx::query_as::<_, EventRow>(PART).bind(before).bind(limit).fetch_all(db))?,
            Some(of) => {
                let (sql, of) = (self.either(CONCERNING[0], CONCERNING[1]), listed(of));
                on_pool!(self, db => sqlx::query_as::<_, EventRow>(sql).bind(of).bind(before).bind(limit).fetch_all(db))?
            }
        };
        Ok(rows.into_iter().map(LockEvent::from).collect())
    }
}
