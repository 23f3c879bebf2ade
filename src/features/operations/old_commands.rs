//! Removes old commands with their runs and output.
//!
//! Some commands stay however old they are: those that have not ended, and those whose run made a plan that is still
//! stored. If a pull has a plan that is not discarded, its applies and all commands at the commit of that plan stay
//! as well. The statuses of the pull are summed up from them. The audit log of locks is another table, and is never
//! touched.

use chrono::{DateTime, Utc};

use crate::model::CommandId;
use crate::store::{Result, Store, execute, kept_time, on_pool};

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
    /// Lists the commands that ended before the given time and are not needed any more, the oldest first.
    pub async fn command_list_over(
        &self,
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<CommandId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, CommandId>(concat!(
            "SELECT c.id FROM commands c WHERE ", is_over!(), " ORDER BY c.created_at, c.id LIMIT $2"))
            .bind(kept_time(before)).bind(limit).fetch_all(db))
    }

    /// Removes a command that [`Self::command_list_over`] returned, with its runs and their output. One transaction
    /// removes at most `batch` pieces of output. Returns the number of removed rows; 0: the command is needed again.
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
