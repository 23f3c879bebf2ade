//! Cancels commands: those that wait end, those under way are requested to stop.

use std::collections::BTreeSet;

use super::commands::select_sql;
use super::news::{News, announce_in_tx};
use super::{
    CommandRow, CommandState, FinishedCommand, Result, StopKind, Store, Tx, execute, free_text,
    on_tx,
};
use crate::model::{CommandId, CommandKind, Origin, PullRef};

/// Selection of commands to cancel.
#[derive(Clone, Copy, Debug)]
pub enum CancelTarget<'a> {
    /// All commands of a pull.
    OfPull(&'a PullRef),
    /// One command, by identifier.
    One(CommandId),
}

/// Outcome of a request to cancel commands.
#[derive(Clone, Debug, Default)]
pub struct Cancelled {
    /// Commands that were waiting and have ended.
    pub dropped: Vec<CommandRow>,
    /// Dropped commands that replaced a plan requested by a comment, and owe the answer to that comment.
    pub awaited: BTreeSet<CommandId>,
    /// Commands that are requested to stop: they are under way, or have to hand over locks.
    pub interrupted: Vec<CommandRow>,
    /// Commands under way that change something, and that are not interrupted without `force`.
    pub spared: Vec<CommandRow>,
}

/// Duties that a command has because of the commands that it replaced.
#[derive(Clone, Copy, Debug, Default)]
struct InheritedDuties {
    /// The command owes an answer to a comment.
    answer: bool,
    /// The command has to plan under locks that were handed over, or to hand them over to the next pull.
    turn: bool,
}

impl InheritedDuties {
    fn of(replaced: &[(CommandKind, Origin)]) -> Self {
        Self {
            answer: replaced.iter().any(|(kind, _)| *kind == CommandKind::Plan),
            turn: replaced.iter().any(|(_, origin)| *origin == Origin::Queue),
        }
    }
}

const REPLACED: &str = "SELECT kind, origin FROM commands WHERE superseded_by = $1";

impl Cancelled {
    fn add(&mut self, row: CommandRow, duties: InheritedDuties, force: bool) {
        match (row.state, row.kind) {
            // Locks were handed over for this command. Ending it also hands them over to the next pull, which is a
            // job of its own.
            (CommandState::Queued, _) if row.actor.origin == Origin::Queue || duties.turn => {
                self.interrupted.push(row);
            }
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
            // These commands end before anybody could stop them.
            (
                CommandState::Running,
                CommandKind::Unlock
                | CommandKind::Cancel
                | CommandKind::Explain
                | CommandKind::ApprovePolicies
                | CommandKind::Help,
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
    /// Ends commands that wait, and requests those under way to stop. A running command that changes something is
    /// stopped only with `force`. `ends` makes the ends of the dropped commands and of the cancelling command; they
    /// are written in the same transaction.
    pub async fn command_cancel(
        &self,
        target: CancelTarget<'_>,
        why: &str,
        force: bool,
        ends: impl FnOnce(&Cancelled) -> Vec<FinishedCommand>,
    ) -> Result<Cancelled> {
        let mut tx = self.begin().await?;
        let cancelled = sorted_in_tx(&mut tx, target, force).await?;
        interrupt_in_tx(&mut tx, &cancelled.interrupted, why).await?;
        for end in ends(&cancelled) {
            self.command_finish_in_tx(&mut tx, &end).await?;
        }
        tx.commit().await.map(|()| cancelled)
    }

    /// Requests one command to stop, on behalf of a caller that cannot write the end of a command. A server writes
    /// it, for a waiting command as soon as it has its turn. A running command that changes something is stopped only
    /// with `force`.
    pub async fn command_stop(&self, id: CommandId, why: &str, force: bool) -> Result<Cancelled> {
        let mut tx = self.begin().await?;
        let mut cancelled = sorted_in_tx(&mut tx, CancelTarget::One(id), force).await?;
        let waiting = std::mem::take(&mut cancelled.dropped);
        cancelled.interrupted.extend(waiting);
        interrupt_in_tx(&mut tx, &cancelled.interrupted, why).await?;
        tx.commit().await.map(|()| cancelled)
    }
}

/// Sorts the unfinished commands into those to drop, to interrupt and to spare.
async fn sorted_in_tx(tx: &mut Tx, target: CancelTarget<'_>, force: bool) -> Result<Cancelled> {
    let mut cancelled = Cancelled::default();
    for row in unfinished_in_tx(tx, target).await? {
        let replaced = on_tx!(tx, db => sqlx::query_as::<_, (CommandKind, Origin)>(REPLACED)
            .bind(row.id).fetch_all(db))?;
        cancelled.add(row, InheritedDuties::of(&replaced), force);
    }
    Ok(cancelled)
}

async fn interrupt_in_tx(tx: &mut Tx, commands: &[CommandRow], why: &str) -> Result<()> {
    for row in commands {
        execute!(
            tx,
            "UPDATE commands SET stop_kind = $1, stop_reason = $2 WHERE id = $3 \
             AND (stop_kind IS NULL OR stop_kind <> 'cancelled')",
            StopKind::Cancelled,
            free_text(why),
            row.id,
        )?;
    }
    if !commands.is_empty() {
        announce_in_tx(tx, News::Stops).await?;
    }
    Ok(())
}

/// Returns unfinished commands and locks their rows, so that nobody begins or ends them until the transaction is
/// over.
async fn unfinished_in_tx(tx: &mut Tx, target: CancelTarget<'_>) -> Result<Vec<CommandRow>> {
    let (pull, one) = match target {
        CancelTarget::OfPull(pull) => (Some(pull), None),
        CancelTarget::One(id) => (None, Some(id)),
    };
    let sql = match tx {
        Tx::Sqlite(_) => unfinished_sql!(""),
        Tx::Postgres(_) => unfinished_sql!(" FOR NO KEY UPDATE OF c"),
    };
    let rows = on_tx!(tx, db => sqlx::query_as::<_, super::commands::CommandColumns>(sql)
        .bind(pull.map(|pull| &pull.repo)).bind(pull.map(|pull| pull.subject)).bind(one).fetch_all(db))?;
    Ok(rows.into_iter().map(CommandRow::from).collect())
}
