//! Statuses that are pending on the forge, each with the command that has to end it.
//!
//! A row is inserted when the forge has accepted a pending status, and deleted when it has accepted the final one. A
//! row is left behind if its command has ended but no queued job will set that status any more.

use chrono::{DateTime, Utc};

use super::one_statement::{Effects, change_sql, execute_change};
use super::{NewJob, Result, Store, execute, free_text, kept_time, on_pool};
use crate::model::{CommandId, CommitSha, RepoId};

/// A status that is pending on the forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingStatus {
    /// Repository of the commit.
    pub repo: RepoId,
    /// Commit with the status.
    pub head: CommitSha,
    /// Name of the status.
    pub context: String,
    /// Command that has to end the status.
    pub command: CommandId,
}

const KEEP: [&str; 3] = change_sql!(
    "INSERT INTO pending_statuses (repo, head, context, command, set_at) SELECT $1, $2, $3, $4, $5 WHERE TRUE",
    " ON CONFLICT (repo, head, context) DO UPDATE SET command = excluded.command, set_at = excluded.set_at"
);
const SETTLE: [&str; 3] =
    change_sql!("DELETE FROM pending_statuses WHERE repo = $1 AND head = $2 AND context = $3");
/// Selects statuses that were left behind. The lane is that of the job that sets statuses.
const LEFT: &str = "SELECT repo, head, context, command FROM pending_statuses \
     WHERE NOT EXISTS (SELECT 1 FROM commands c WHERE c.id = pending_statuses.command AND c.state <> 'finished') \
     AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running') \
     AND j.lane = 'status:' || pending_statuses.repo || '@' || head || ':' || context) \
     ORDER BY set_at, repo, head, context LIMIT $1";
const LOST: &str = "SELECT c.id FROM commands c WHERE c.state <> 'finished' AND NOT EXISTS (SELECT 1 FROM jobs j \
     WHERE j.state IN ('queued', 'running') AND j.payload LIKE '%' || c.id || '%') ORDER BY c.created_at, c.id LIMIT $1";

impl Store {
    /// Stores a pending status that the forge has accepted.
    pub async fn status_promise(&self, status: &PendingStatus) -> Result<()> {
        execute_change!(
            self,
            KEEP,
            Effects::default(),
            &status.repo,
            &status.head,
            free_text(&status.context),
            status.command,
            self.now(),
        )
        .map(drop)
    }

    /// Deletes a pending status after the forge has accepted a status that no command has to end.
    pub async fn status_settle(
        &self,
        repo: &RepoId,
        head: &CommitSha,
        context: &str,
    ) -> Result<()> {
        execute_change!(
            self,
            SETTLE,
            Effects::default(),
            repo,
            head,
            free_text(context),
        )
        .map(drop)
    }

    /// Lists pending statuses that no command or job will end.
    pub async fn status_list_left(&self, limit: i64) -> Result<Vec<PendingStatus>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, PendingStatusColumns>(LEFT).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(PendingStatus::from).collect())
    }

    /// Queues the job that ends a status which was left behind, and deletes the status, so that this happens only
    /// once. `false`: somebody else did it, or a newer command has set the status.
    pub async fn status_end_abandoned(&self, status: &PendingStatus, job: &NewJob) -> Result<bool> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM pending_statuses WHERE repo = $1 AND head = $2 AND context = $3 AND command = $4",
            &status.repo,
            &status.head,
            free_text(&status.context),
            status.command,
        )?;
        if rows == 0 {
            return Ok(false);
        }
        self.job_push_in_tx(&mut tx, job).await?;
        tx.commit().await.map(|()| true)
    }

    /// Deletes pending statuses that were set before the given time.
    pub async fn status_prune(&self, before: DateTime<Utc>) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM pending_statuses WHERE set_at < $1",
            kept_time(before)
        )?;
        tx.commit().await.map(|()| rows)
    }

    /// Lists commands that have not ended although no job will work on them.
    pub async fn command_list_lost(&self, limit: i64) -> Result<Vec<CommandId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, CommandId>(LOST).bind(limit).fetch_all(db))
    }

    /// Returns the payload of the newest failed job of a lane, as JSON.
    pub async fn job_given_up_in(&self, lane: &str) -> Result<Option<String>> {
        on_pool!(self, db => sqlx::query_scalar::<_, String>(
            "SELECT payload FROM jobs WHERE lane = $1 AND state = 'failed' ORDER BY seq DESC LIMIT 1")
            .bind(lane).fetch_optional(db))
    }
}

#[derive(sqlx::FromRow)]
struct PendingStatusColumns {
    repo: RepoId,
    head: CommitSha,
    context: String,
    command: CommandId,
}

impl From<PendingStatusColumns> for PendingStatus {
    fn from(row: PendingStatusColumns) -> Self {
        Self {
            repo: row.repo,
            head: row.head,
            context: row.context,
            command: row.command,
        }
    }
}
