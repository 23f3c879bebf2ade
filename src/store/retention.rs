//! Commands that nobody will ask for any more, with their runs and what those printed.
//!
//! What stays however old it is: commands that have not ended; those whose run made a plan that is still on record; and,
//! of a pull with a plan that counts, its applies and everything at the commit of that plan, which its statuses are
//! added up from. The audit log of locks is another table, and is never touched.

use chrono::{DateTime, Utc};

use super::{Result, Store, execute, kept_time, on_pool};
use crate::model::CommandId;

macro_rules! is_over {
    () => {
        "c.state = 'finished' AND c.finished_at < $1 AND c.created_at < $1 \
         AND NOT EXISTS (SELECT 1 FROM runs r JOIN plans p ON p.run = r.id WHERE r.command = c.id) \
         AND NOT EXISTS (SELECT 1 FROM plans p WHERE p.repo = c.repo AND p.pull = c.pull AND p.state <> 'discarded' \
         AND (c.kind = 'apply' OR p.head = c.head)) \
         AND NOT EXISTS (SELECT 1 FROM commands s WHERE s.superseded_by = c.id AND s.state <> 'finished')"
    };
}

impl Store {
    /// Commands that ended before the given time and that nothing needs any more, the oldest first.
    pub async fn command_list_over(
        &self,
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<CommandId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, CommandId>(concat!(
            "SELECT c.id FROM commands c WHERE ", is_over!(), " ORDER BY c.created_at, c.id LIMIT $2"))
            .bind(kept_time(before)).bind(limit).fetch_all(db))
    }

    /// Removes a command that [`Self::command_list_over`] named, with its runs and what they printed: not more than
    /// `batch` pieces of output in one transaction. Tells how many rows that were; 0: something needs it again.
    pub async fn command_remove(
        &self,
        id: CommandId,
        before: DateTime<Utc>,
        batch: i64,
    ) -> Result<u64> {
        let mut removed = 0;
        loop {
            let pieces = self.command_output_remove(id, before, batch).await?;
            removed += pieces;
            if pieces < batch.cast_unsigned() {
                break;
            }
        }
        let mut tx = self.begin().await?;
        removed += execute!(
            &mut tx,
            concat!(
                "DELETE FROM runs WHERE command IN (SELECT c.id FROM commands c WHERE ",
                is_over!(),
                " AND c.id = $2)"
            ),
            kept_time(before),
            id,
        )?;
        removed += execute!(
            &mut tx,
            concat!(
                "DELETE FROM commands WHERE id IN (SELECT c.id FROM commands c WHERE ",
                is_over!(),
                " AND c.id = $2)"
            ),
            kept_time(before),
            id,
        )?;
        tx.commit().await.map(|()| removed)
    }

    async fn command_output_remove(
        &self,
        id: CommandId,
        before: DateTime<Utc>,
        batch: i64,
    ) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            concat!(
                "DELETE FROM run_output WHERE (run, seq) IN (SELECT o.run, o.seq FROM run_output o ",
                "JOIN runs r ON r.id = o.run JOIN commands c ON c.id = r.command WHERE ",
                is_over!(),
                " AND c.id = $2 LIMIT $3)"
            ),
            kept_time(before),
            id,
            batch,
        )?;
        tx.commit().await.map(|()| rows)
    }
}
