//! Plan files in the database, for replicas that share no files. The transaction that stores a plan record also
//! writes its file. Deleting the record deletes the file.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::of_repos::listed;
use super::{Result, Store, Tx, execute, on_pool};
use crate::model::PlanId;

const RECORDED: [&str; 2] = [
    "SELECT id FROM plans WHERE id IN (SELECT value FROM json_each($1) AS each)",
    "SELECT id FROM plans WHERE id = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))",
];

impl Store {
    /// Returns the file of a plan, if the database has it.
    pub async fn plan_file_get(&self, plan: PlanId) -> Result<Option<Vec<u8>>> {
        on_pool!(self, db => sqlx::query_scalar::<_, Vec<u8>>("SELECT bytes FROM plan_files WHERE plan = $1")
            .bind(plan).fetch_optional(db))
    }

    /// Removes the file of a plan, if there is one.
    pub async fn plan_file_remove(&self, plan: PlanId) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(&mut tx, "DELETE FROM plan_files WHERE plan = $1", plan)?;
        tx.commit().await
    }

    /// Returns those of the plans that have a record.
    pub async fn plan_list_recorded(&self, plans: &[PlanId]) -> Result<BTreeSet<PlanId>> {
        let (sql, plans) = (self.either(RECORDED[0], RECORDED[1]), listed(plans));
        let known =
            on_pool!(self, db => sqlx::query_scalar::<_, PlanId>(sql).bind(&plans).fetch_all(db))?;
        Ok(known.into_iter().collect())
    }

    /// Returns the creation time of the oldest run that has not ended; `None`: no run is queued or under way.
    pub async fn run_oldest_open(&self) -> Result<Option<DateTime<Utc>>> {
        on_pool!(self, db => sqlx::query_scalar::<_, Option<DateTime<Utc>>>(
            "SELECT MIN(created_at) FROM runs WHERE state <> 'finished'").fetch_one(db))
    }

    /// Removes the files of plans that can never be applied again, at most `limit` of them. Their records stay.
    pub async fn plan_file_prune(&self, limit: i64) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM plan_files WHERE plan IN (SELECT f.plan FROM plan_files f JOIN plans p ON p.id = f.plan \
             WHERE p.state IN ('applied', 'discarded') LIMIT $1)",
            limit,
        )?;
        tx.commit().await.map(|()| rows)
    }
}

pub(super) async fn plan_file_put_in_tx(tx: &mut Tx, plan: PlanId, bytes: &[u8]) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO plan_files (plan, bytes) VALUES ($1, $2)",
        plan,
        bytes
    )
    .map(drop)
}
