//! Commands that are to end before their time: what asks for it, and why.
//!
//! The wish stands in the row of the command, so that it outlives every process and reaches the replica that works on
//! the command. A stronger wish takes the place of a weaker one: what was superseded or cancelled stays so when the
//! pull is closed, but a pull that is closed and opened again before its plan had its turn is planned all the same.

use super::news::{News, announce_in_tx};
use super::{
    CreateCommand, HeadNews, LockChange, NewCommand, NewJob, Result, Store, Tx, execute, free_text,
    on_pool, on_tx,
};
use crate::model::{CommandId, Origin, PullRef, text_enum};

text_enum! {
    /// What asks a command to stop.
    pub enum StopKind {
        /// Its pull was closed; only plans are asked, and only as long as it is closed.
        Closed = "closed",
        /// A newer event of its pull leads to a plan that takes its place; only plans are asked.
        Superseded = "superseded",
        /// Somebody asked for it.
        Cancelled = "cancelled",
    }
}

/// Why a command is to stop early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// What asks.
    pub kind: StopKind,
    /// The reason, a clause: `the pull request was closed`.
    pub why: String,
}

impl Stop {
    /// A reason to stop.
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
    /// Asks the plans of a pull that was closed to stop, and tells which they are. An apply is never asked.
    pub async fn command_stop_plans(&self, pull: &PullRef, why: &str) -> Result<Vec<CommandId>> {
        let mut tx = self.begin().await?;
        let mut stopped = on_tx!(&mut tx, db => sqlx::query_scalar::<_, CommandId>(
            "UPDATE commands SET stop_kind = $1, stop_reason = $2 WHERE repo = $3 AND pull = $4 \
             AND state <> 'finished' AND kind IN ('plan', 'autoplan') AND stop_kind IS NULL RETURNING id")
            .bind(StopKind::Closed).bind(free_text(why)).bind(&pull.repo).bind(pull.number).fetch_all(db))?;
        stopped.sort();
        announce_in_tx(&mut tx, News::Stops).await?;
        tx.commit().await.map(|()| stopped)
    }

    /// Keeps a command that takes the place of every plan of its pull, and asks those to stop, in one transaction; tells
    /// which they are. An apply is never asked. Of a command that is known already nothing is done, nor if the news that
    /// it answers were found and an event was faster.
    pub async fn command_create_instead(
        &self,
        new: &NewCommand,
        jobs: impl FnOnce(CommandId) -> Vec<NewJob>,
        why: &str,
        news: HeadNews<'_>,
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

    /// Whether a comment that asked for a plan waits for the answer of this command, which took that plan's place.
    pub async fn command_stands_in(&self, id: CommandId) -> Result<bool> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>(STANDS_IN).bind(id).fetch_one(db))
            .map(|count| count > 0)
    }

    /// What the turns asked for whose place this command took: it has to plan under the locks that were handed over for
    /// them, or to pass those on. As `spec` of each.
    pub async fn command_list_turns_of(&self, id: CommandId) -> Result<Vec<String>> {
        on_pool!(self, db => sqlx::query_scalar::<_, String>(
            "SELECT spec FROM commands WHERE superseded_by = $1 AND origin = $2 ORDER BY id")
            .bind(id).bind(Origin::Queue).fetch_all(db))
    }

    /// A reason to stop does not hold any more.
    pub async fn command_go_on(&self, id: CommandId, kind: StopKind) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE commands SET stop_kind = NULL, stop_reason = NULL, superseded_by = NULL \
             WHERE id = $1 AND stop_kind = $2",
            id,
            kind,
        )?;
        tx.commit().await
    }

    /// Which of the unfinished commands are asked to stop, in the order of their ids.
    pub async fn command_list_stopping(&self) -> Result<Vec<CommandId>> {
        // The database does not sort: for an order by id SQLite would walk all commands there ever were.
        let mut asked = on_pool!(self, db => sqlx::query_scalar::<_, CommandId>(
            "SELECT id FROM commands WHERE state <> 'finished' AND stop_kind IS NOT NULL").fetch_all(db))?;
        asked.sort_unstable();
        Ok(asked)
    }
}

/// The first statement finds the plans that have not ended; the second those that ended before because of one of them:
/// what they were asked is now asked of the newest.
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
        .bind(StopKind::Superseded).bind(free_text(why)).bind(by).bind(&pull.repo).bind(pull.number)
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
    /// Asks the plans among these commands to stop.
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
