//! Transactions of one statement.
//!
//! Most writes of a job are one change, with the jobs and the news that follow from it. PostgreSQL gets all of that in
//! one statement, which is a transaction of its own. So it takes one round trip instead of one each for the beginning,
//! the lease, the change, the lanes, the jobs, the news and the end. The order is the same, because each part of the
//! statement reads the one before. Only the foreign keys of the change are checked at its end, after the lanes were
//! locked: who locks a row that others refer to, and then a lane, has to lock it `FOR NO KEY UPDATE`. SQLite executes
//! the same change in a transaction.
//!
//! The last change of a job can end the job as well ([`Store::last_of_job`]). The end of the job then takes the place
//! of the check of its lease, because it also requires the lease.

use sqlx_postgres::{PgArguments, PgPool};

use super::jobs::{add, has_time};
use super::news::News;
use super::time::ClockOffset;
use super::{NewJob, Result, Store};
use crate::model::JobId;

/// Jobs and news that follow from a change. If nothing was changed, nothing follows.
#[derive(Clone, Copy, Default)]
pub(super) struct Effects<'a> {
    /// Jobs to put into the queue, in order.
    pub outbox: &'a [NewJob],
    /// News for other replicas, beside those of the jobs.
    pub news: Option<News>,
}

impl<'a> Effects<'a> {
    /// Only these jobs follow.
    pub fn jobs(outbox: &'a [NewJob]) -> Self {
        Self { outbox, news: None }
    }

    /// Only this piece of news follows.
    pub fn news(news: News) -> Self {
        Self {
            outbox: &[],
            news: Some(news),
        }
    }
}

/// Makes the SQL of a change: for SQLite, for PostgreSQL, and for PostgreSQL if the change ends the job. The first part
/// is an `INSERT`, `UPDATE` or `DELETE` that ends with its conditions, and the second part comes after them. It has at
/// most 20 parameters, from `$1`.
macro_rules! change_sql {
    ($change:literal $(, $rest:literal)?) => {
        [
            concat!($change $(, $rest)?),
            $crate::store::one_statement::on_postgres!(
                "SELECT 1 FROM (SELECT 1 FROM jobs WHERE id = $33 AND lease_holder = $34 AND attempt = $35 \
                 AND state = 'running' FOR SHARE) AS own UNION ALL SELECT 1 WHERE $33 IS NULL",
                $change $(, $rest)?
            ),
            $crate::store::one_statement::on_postgres!(
                "UPDATE jobs SET state = 'done', finished_at = $31, lease_until = NULL WHERE id = $33 \
                 AND lease_holder = $34 AND attempt = $35 AND state = 'running' RETURNING 1",
                $change $(, $rest)?
            ),
        ]
    };
}

/// Makes the SQL of a change for PostgreSQL. The query `$held` finds a row if the lease is held.
macro_rules! on_postgres {
    ($held:literal, $change:literal $(, $rest:literal)?) => {
        concat!(
            "WITH held AS (",
            $held,
            "), changed AS (",
            $change,
            " AND EXISTS (SELECT 1 FROM held)",
            $($rest,)?
            " RETURNING 1), told AS (SELECT pg_notify($21, $32) FROM changed WHERE $32 IS NOT NULL), lanes AS (",
            $crate::store::jobs::hold_lanes_sql!("changed, "),
            "), pushed AS (",
            $crate::store::jobs::push_sql!(),
            ") SELECT (SELECT COUNT(*) FROM held), (SELECT COUNT(*) FROM changed), (SELECT COUNT(*) FROM told)"
        )
    };
}

/// Executes a change as a transaction of its own, and returns true if it changed a row. Fails if the store works under
/// a lease and that lease was lost.
macro_rules! execute_change {
    ($store:expr, $sql:expr, $effects:expr $(, $bind:expr)* $(,)?) => {{
        let effects = $effects;
        let jobs = $store.identified(effects.outbox);
        match &$store.pool {
            $crate::store::DbPool::Postgres(pool) => {
                let mut arguments = sqlx_postgres::PgArguments::default();
                $($crate::store::jobs::add(&mut arguments, $bind)?;)*
                let sql = if $store.ends_job() { $sql[2] } else { $sql[1] };
                $crate::boxed::boxed(|| $store.change_on_postgres(pool, sql, arguments, &jobs, effects.news)).await
            }
            $crate::store::DbPool::Sqlite { .. } => {
                let mut tx = $store.begin_shared().await?;
                let rows = $crate::store::execute!(&mut tx, $sql[0] $(, $bind)*)?;
                if rows > 0 {
                    $store.jobs_push_in_tx(&mut tx, &jobs).await?;
                }
                $store.job_end_in_tx(&mut tx).await?;
                tx.commit().await?;
                $store.note_end_of_job();
                Ok(rows > 0)
            }
        }
    }};
}

pub(super) use {change_sql, execute_change, on_postgres};

impl Store {
    /// Executes the statement of a change on PostgreSQL. `arguments` has the parameters of the change itself.
    pub(super) async fn change_on_postgres(
        &self,
        pool: &PgPool,
        sql: &'static str,
        mut arguments: PgArguments,
        jobs: &[(JobId, &NewJob)],
        news: Option<News>,
    ) -> Result<bool> {
        let offset = if has_time(jobs) {
            self.clock_offset().await?
        } else {
            ClockOffset::NONE
        };
        self.outbox_arguments(&mut arguments, jobs, offset)?;
        add(&mut arguments, news.map(|news| news.to_string()))?;
        self.fence_arguments(&mut arguments)?;
        let (held, changed, _told): (i64, i64, i64) =
            sqlx::query_as_with(sql, arguments).fetch_one(pool).await?;
        self.fence_check(held > 0)?;
        self.note_end_of_job();
        Ok(changed > 0)
    }
}
