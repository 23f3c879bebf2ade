//! Plan files in the database, for replicas that share nothing else. A file is written in the transaction that records
//! its plan, and goes with the record.

use super::{Result, Store, Tx, execute, on_pool};
use crate::model::PlanId;

impl Store {
    /// The file of a plan, if the database has it.
    pub async fn plan_file_get(&self, plan: PlanId) -> Result<Option<Vec<u8>>> {
        on_pool!(self, db => sqlx::query_scalar::<_, Vec<u8>>("SELECT bytes FROM plan_files WHERE plan = $1")
            .bind(plan).fetch_optional(db))
    }

    /// Removes the file of a plan; one that is gone already is fine.
    pub async fn plan_file_remove(&self, plan: PlanId) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(&mut tx, "DELETE FROM plan_files WHERE plan = $1", plan)?;
        tx.commit().await
    }

    /// Removes the files of plans that nobody can apply any more, so many at most; their records stay.
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
    execute!(tx, "INSERT INTO plan_files (plan, bytes) VALUES ($1, $2)", plan, bytes).map(drop)
}
