//! Requests to stop commands early, with their kinds and reasons.
//!
//! The request is in the row of the command, so that it outlives every process. It also reaches the replica that
//! works on the command. A stronger request replaces a weaker one. A superseded or cancelled command stays so when
//! the pull is closed. But if a pull is closed and opened again before its plan had its turn, it is planned all the
//! same.

use super::news::{News, announce_in_tx};
use super::{
    CreateCommand, HeadUpdate, LockChange, NewCommand, NewJob, Result, Store, Tx, execute,
    free_text, on_pool, on_tx,
};
use crate::model::{CommandId, Origin, PullRef, text_enum};

text_enum! {
    /// Kind of a request to stop a command.
    pub enum StopKind {
        /// The pull was closed. Applies only to plans, and only as long as the pull is closed.
        Closed = "closed",
        /// A newer event of the pull leads to a plan that replaces this command. Applies only to plans.
        Superseded = "superseded",
        /// A person or a program cancelled the command.
        Cancelled = "cancelled",
    }
}

/// Request to stop a command early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// Kind of the request.
    pub kind: StopKind,
    /// Reason, as a clause: `the pull request was closed`.
    pub why: String,
}

impl StopRequest {
    /// Makes a request to stop.
    pub fn new(kind: StopKind, why: impl Into<String>) -> Self {
        Self {
            kind,
            why: why.into(),
        }
    }

    pub(super) fn of_columns(kind: Option<StopKind>, why: Option<String>) -> Option<Self> {
        kind.map(|kind| Self {
            kind,
            why: why.unwrap_or_default(),
        })
    }
}

const STANDS_IN: &str = "SELECT COUNT(*) FROM commands WHERE superseded_by = $1 AND kind = 'plan'";

impl Store {
    /// Requests the plans of a closed pull to stop, and returns them. Never stops an apply.
    pub async fn command_stop_plans(&self, pull: &PullRef, why: &str) -> Result<Vec<CommandId>> {
        let mut tx = self.begin().await?;
        let mut stopped = on_tx!(&mut tx, db => sqlx::query_scalar::<_, CommandId>(
            "UPDATE commands SET stop_kind = $1, stop_reason = $2 WHERE repo = $3 AND pull = $4 \
             AND state <> 'finished' AND kind IN ('plan', 'autoplan') AND stop_kind IS NULL RETURNING id")
            .bind(StopKind::Closed).bind(free_text(why)).bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        stopped.sort();
        announce_in_tx(&mut tx, News::Stops).await?;
        tx.commit().await.map(|()| stopped)
    }

    /// Stores a command that replaces every plan of its pull, and requests those to stop, in one transaction. Returns
    /// the replaced plans. Never stops an apply. Does nothing if the command is already known, or if a reconciler
    /// found the head and an event was faster.
    pub async fn command_create_instead(
        &self,
        new: &NewCommand,
        jobs: impl FnOnce(CommandId) -> Vec<NewJob>,
        why: &str,
        news: HeadUpdate<'_>,
    ) -> Result<(CreateCommand, Vec<CommandId>)> {
        let mut tx = self.begin().await?;
        if !self.head_in_tx(&mut tx, &new.pull, news).await? {
            return Ok((CreateCommand::Known, Vec::new()));
        }
        let CreateCommand::Created(id) = self.command_create_in_tx(&mut tx, new, jobs).await?
        else {
            return Ok((CreateCommand::Known, Vec::new()));
        };
        let mut replaced = supersede_in_tx(&mut tx, &new.pull, id, why).await?;
        replaced.sort();
        if !replaced.is_empty() {
            announce_in_tx(&mut tx, News::Stops).await?;
        }
        tx.commit()
            .await
            .map(|()| (CreateCommand::Created(id), replaced))
    }

    /// Returns true if this command replaced a plan requested by a comment, and the comment waits for its answer.
    pub async fn command_stands_in(&self, id: CommandId) -> Result<bool> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>(STANDS_IN).bind(id).fetch_one(db))
            .map(|count| count > 0)
    }

    /// Lists the `spec` of each replaced command that came from the queue of a lock. This command has to plan under
    /// the locks that were handed over for them, or to hand them over to the next pull.
    pub async fn command_list_turns_of(&self, id: CommandId) -> Result<Vec<String>> {
        on_pool!(self, db => sqlx::query_scalar::<_, String>(
            "SELECT spec FROM commands WHERE superseded_by = $1 AND origin = $2 ORDER BY id")
            .bind(id).bind(Origin::Queue).fetch_all(db))
    }

    /// Withdraws a request to stop of the given kind.
    pub async fn command_go_on(&self, id: CommandId, kind: StopKind) -> Result<()> {
        let is_stopping = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM commands WHERE id = $1 AND stop_kind = $2")
            .bind(id).bind(kind).fetch_one(db))?;
        if is_stopping == 0 {
            return Ok(());
        }
        let mut tx = self.begin_shared().await?;
        execute!(
            &mut tx,
            "UPDATE commands SET stop_kind = NULL, stop_reason = NULL, superseded_by = NULL \
             WHERE id = $1 AND stop_kind = $2",
            id,
            kind,
        )?;
        tx.commit().await
    }

    /// Lists the unfinished commands that are requested to stop, ordered by identifier.
    pub async fn command_list_stopping(&self) -> Result<Vec<CommandId>> {
        // The database does not sort: to sort by identifier, SQLite would walk through all commands ever stored.
        let mut asked = on_pool!(self, db => sqlx::query_scalar::<_, CommandId>(
            "SELECT id FROM commands WHERE state <> 'finished' AND stop_kind IS NOT NULL").fetch_all(db))?;
        asked.sort_unstable();
        Ok(asked)
    }
}

/// Marks the plans of a pull as superseded by a newer command. The first statement finds the plans that have not
/// ended. The second one finds those that were superseded by one of them before: the newest command now replaces
/// them, too.
async fn supersede_in_tx(
    tx: &mut Tx,
    pull: &PullRef,
    by: CommandId,
    why: &str,
) -> Result<Vec<CommandId>> {
    let replaced = on_tx!(tx, db => sqlx::query_scalar::<_, CommandId>(
        "UPDATE commands SET stop_kind = $1, stop_reason = $2, superseded_by = $3 WHERE repo = $4 AND pull = $5 \
         AND state <> 'finished' AND kind IN ('plan', 'autoplan') AND (stop_kind IS NULL OR stop_kind = 'closed') \
         AND id <> $3 RETURNING id")
        .bind(StopKind::Superseded).bind(free_text(why)).bind(by).bind(&pull.repo).bind(pull.subject)
        .fetch_all(db))?;
    execute!(
        tx,
        "UPDATE commands SET superseded_by = $1 WHERE superseded_by IN \
         (SELECT c.id FROM commands c WHERE c.superseded_by = $1 AND c.kind = 'autoplan')",
        by,
    )?;
    Ok(replaced)
}

impl LockChange<'_> {
    /// Requests the plans among these commands to stop.
    pub(crate) async fn interrupt_plans(
        &mut self,
        commands: &[CommandId],
        why: &str,
    ) -> Result<Vec<CommandId>> {
        let mut asked = Vec::new();
        for id in commands {
            let rows = execute!(
                &mut self.tx,
                "UPDATE commands SET stop_kind = $1, stop_reason = $2 WHERE id = $3 AND state <> 'finished' \
                 AND kind IN ('plan', 'autoplan') AND (stop_kind IS NULL OR stop_kind <> 'cancelled')",
                StopKind::Cancelled,
                free_text(why),
                id,
            )?;
            asked.extend((rows > 0).then_some(*id));
        }
        if !asked.is_empty() {
            announce_in_tx(&mut self.tx, News::Stops).await?;
        }
        Ok(asked)
    }
}
