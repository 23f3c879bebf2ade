//! Commands that are to end before their time: what asks for it, and why.
//!
//! The wish stands in the row of the command, so that it outlives every process and reaches the replica that works on
//! the command. A stronger wish takes the place of a weaker one: what was superseded or cancelled stays so when the
//! pull is closed, but a pull that is closed and opened again before its plan had its turn is planned all the same.

use std::collections::BTreeSet;

use super::commands::select_sql;
use super::news::{News, announce_in_tx};
use super::{
    CommandRow, CommandState, CreateCommand, FinishedCommand, HeadNews, LockChange, NewCommand, NewJob, Result, Store,
    Tx, execute, free_text, on_pool, on_tx,
};
use crate::model::{CommandId, CommandKind, Origin, PullRef, text_enum};

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
        Self { kind, why: why.into() }
    }

    pub(super) fn of_columns(kind: Option<StopKind>, why: Option<String>) -> Option<Self> {
        kind.map(|kind| Self { kind, why: why.unwrap_or_default() })
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
        let CreateCommand::Created(id) = self.command_create_in_tx(&mut tx, new, jobs).await? else {
            return Ok((CreateCommand::Known, Vec::new()));
        };
        let mut replaced = supersede_in_tx(&mut tx, &new.pull, id, why).await?;
        replaced.sort();
        if !replaced.is_empty() {
            announce_in_tx(&mut tx, News::Stops).await?;
        }
        tx.commit().await.map(|()| (CreateCommand::Created(id), replaced))
    }

    /// Whether a comment that asked for a plan waits for the answer of this command, which took that plan's place.
    pub async fn command_stands_in(&self, id: CommandId) -> Result<bool> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>(STANDS_IN).bind(id).fetch_one(db)).map(|count| count > 0)
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

    /// Which of the unfinished commands are asked to stop.
    pub async fn command_list_stopping(&self) -> Result<Vec<CommandId>> {
        on_pool!(self, db => sqlx::query_scalar::<_, CommandId>(
            "SELECT id FROM commands WHERE state <> 'finished' AND stop_kind IS NOT NULL ORDER BY id").fetch_all(db))
    }
}

/// The first statement finds the plans that have not ended; the second those that ended before because of one of them:
/// what they were asked is now asked of the newest.
async fn supersede_in_tx(tx: &mut Tx, pull: &PullRef, by: CommandId, why: &str) -> Result<Vec<CommandId>> {
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

/// What somebody wants to end.
#[derive(Clone, Copy, Debug)]
pub enum CancelWhat<'a> {
    /// Everything of a pull.
    OfPull(&'a PullRef),
    /// One command.
    One(CommandId),
}

/// What came of the wish to end commands.
#[derive(Clone, Debug, Default)]
pub struct Cancelled {
    /// They were waiting and have ended.
    pub dropped: Vec<CommandRow>,
    /// Those of them that took the place of a plan which a comment had asked for, and owe its answer.
    pub awaited: BTreeSet<CommandId>,
    /// They are under way, or hold locks that have to be passed on, and are asked to stop.
    pub interrupted: Vec<CommandRow>,
    /// What is under way, changes something, and nobody asked to interrupt.
    pub spared: Vec<CommandRow>,
}

/// What a command owes because of those whose place it took.
#[derive(Clone, Copy, Debug, Default)]
struct Duties {
    /// An answer to a comment.
    answer: bool,
    /// To plan under locks that were handed over, or to pass them on.
    turn: bool,
}

impl Duties {
    fn of(replaced: &[(CommandKind, Origin)]) -> Self {
        Self {
            answer: replaced.iter().any(|(kind, _)| *kind == CommandKind::Plan),
            turn: replaced.iter().any(|(_, origin)| *origin == Origin::Queue),
        }
    }
}

const REPLACED: &str = "SELECT kind, origin FROM commands WHERE superseded_by = $1";

impl Cancelled {
    fn add(&mut self, row: CommandRow, duties: Duties, force: bool) {
        match (row.state, row.kind) {
            // Locks were handed over for it: ending it is also passing them on, which is work of its own.
            (CommandState::Queued, _) if row.actor.origin == Origin::Queue || duties.turn => self.interrupted.push(row),
            (CommandState::Queued, _) => {
                self.awaited.extend(duties.answer.then_some(row.id));
                self.dropped.push(row);
            }
            (CommandState::Running, kind) if kind.changes() && !force => self.spared.push(row),
            (
                CommandState::Running,
                CommandKind::Apply
                | CommandKind::Import
                | CommandKind::StateRm
                | CommandKind::Plan
                | CommandKind::Autoplan
                | CommandKind::Version,
            ) => self.interrupted.push(row),
            // The others are over before anybody could stop them.
            (
                CommandState::Running,
                CommandKind::Unlock | CommandKind::Cancel | CommandKind::Explain | CommandKind::Help,
            )
            | (CommandState::Finished, _) => {}
        }
    }
}

macro_rules! unfinished_sql {
    ($lock:literal) => {
        select_sql!(
            "WHERE c.state <> 'finished' AND \
             c.kind IN ('plan', 'autoplan', 'apply', 'import', 'state_rm', 'version', 'unlock') \
             AND ((c.repo = $1 AND c.pull = $2) OR c.id = $3) ORDER BY c.created_at, c.id",
            $lock
        )
    };
}

impl Store {
    /// Ends commands that wait, and asks those under way to stop; what changes something only with `force`. What `ends`
    /// makes of it, the ends of what was dropped and of the command that asked, is written in the same transaction.
    pub async fn command_cancel(
        &self,
        what: CancelWhat<'_>,
        why: &str,
        force: bool,
        ends: impl FnOnce(&Cancelled) -> Vec<FinishedCommand>,
    ) -> Result<Cancelled> {
        let mut tx = self.begin().await?;
        let mut cancelled = Cancelled::default();
        for row in unfinished_in_tx(&mut tx, what).await? {
            let replaced = on_tx!(&mut tx, db => sqlx::query_as::<_, (CommandKind, Origin)>(REPLACED)
                .bind(row.id).fetch_all(db))?;
            cancelled.add(row, Duties::of(&replaced), force);
        }
        for row in &cancelled.interrupted {
            execute!(
                &mut tx,
                "UPDATE commands SET stop_kind = $1, stop_reason = $2 WHERE id = $3 \
                 AND (stop_kind IS NULL OR stop_kind <> 'cancelled')",
                StopKind::Cancelled,
                free_text(why),
                row.id,
            )?;
        }
        for end in ends(&cancelled) {
            self.command_finish_in_tx(&mut tx, &end).await?;
        }
        if !cancelled.interrupted.is_empty() {
            announce_in_tx(&mut tx, News::Stops).await?;
        }
        tx.commit().await.map(|()| cancelled)
    }
}

impl LockChange<'_> {
    /// Asks the plans among these commands to stop.
    pub(crate) async fn interrupt_plans(&mut self, commands: &[CommandId], why: &str) -> Result<Vec<CommandId>> {
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

/// Nobody else begins or ends them until the transaction is over.
async fn unfinished_in_tx(tx: &mut Tx, what: CancelWhat<'_>) -> Result<Vec<CommandRow>> {
    let (pull, one) = match what {
        CancelWhat::OfPull(pull) => (Some(pull), None),
        CancelWhat::One(id) => (None, Some(id)),
    };
    let sql = match tx {
        Tx::Sqlite(_) => unfinished_sql!(""),
        Tx::Postgres(_) => unfinished_sql!(" FOR UPDATE OF c"),
    };
    let rows = on_tx!(tx, db => sqlx::query_as::<_, super::commands::Row>(sql)
        .bind(pull.map(|pull| &pull.repo)).bind(pull.map(|pull| pull.number)).bind(one).fetch_all(db))?;
    Ok(rows.into_iter().map(CommandRow::from).collect())
}
