//! Commands that were requested on pulls.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::of_repos::listed;
use super::one_statement::{Effects, change_sql, execute_change};
use super::people::{NamedAccountRow, account_column};
use super::{
    LockChange, NewJob, Result, StopKind, StopRequest, Store, Tx, execute, free_text, on_pool,
};
use crate::model::{
    Actor, Cause, CommandId, CommandKind, CommandOutcome, CommentId, CommitSha, DeliveryId, Lock,
    NamedAccount, Origin, Person, PullRef, PullState, RepoId, Subject, text_enum,
};

text_enum! {
    /// State of a command.
    pub enum CommandState {
        /// Waiting for its turn in the lane of its pull.
        Queued = "queued",
        Running = "running",
        /// Ended; its comments and statuses are in the outbox.
        Finished = "finished",
    }
}

/// A command to store.
#[derive(Clone, Debug)]
pub struct NewCommand {
    /// Kind of the requested command.
    pub kind: CommandKind,
    /// Pull that the command is for.
    pub pull: PullRef,
    /// Comment that requests the command. The same comment leads to only one command (P2).
    pub comment: Option<CommentId>,
    /// Delivery that led to the command. A delivery that is read again leads to no second command (P2).
    pub delivery: Option<DeliveryId>,
    /// Person or program that requests the command.
    pub actor: Actor,
    /// The parsed command as JSON.
    pub spec: String,
}

/// Outcome of storing a command.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateCommand {
    /// The command is new, and its job is queued.
    Created(CommandId),
    /// The same comment or delivery was handled before; nothing was done.
    Known,
}

/// Stored `spec` of a command that only notifies a pull that nobody has claimed its repository.
pub const UNCLAIMED_SPEC: &str = r#"{"ask":"unclaimed"}"#;

/// A command from the database.
#[derive(Clone, Debug)]
pub struct CommandRow {
    pub id: CommandId,
    /// Kind of the requested command.
    pub kind: CommandKind,
    /// Pull that the command is for.
    pub pull: PullRef,
    /// Address of the pull's page, once it is known.
    pub pull_url: Option<String>,
    /// Title of the application; a pull is named by its number.
    pub title: Option<String>,
    /// Person or program that requested the command, and the way it was requested.
    pub actor: Actor,
    /// Account of that person, with its present name.
    pub account: Option<NamedAccount>,
    /// The parsed command as JSON.
    pub spec: String,
    /// Head commit that the command works on, once known.
    pub head: Option<CommitSha>,
    pub state: CommandState,
    /// Outcome, once the command has ended.
    pub outcome: Option<CommandOutcome>,
    /// Code of the refusal, if the command was refused.
    pub reason: Option<String>,
    /// Request to stop early, if there is one.
    pub stop: Option<StopRequest>,
    /// Time of the request.
    pub created_at: DateTime<Utc>,
    /// Time of the end.
    pub finished_at: Option<DateTime<Utc>>,
}

impl CommandRow {
    /// Returns the person who requested the command, for people.
    pub fn asker(&self) -> Person {
        Person {
            login: self.actor.login.clone(),
            account: self.account.clone(),
        }
    }
}

/// Changes that are due when a command begins to work on an open pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueChanges {
    /// True if the pull is not known to be open at this address.
    pub pull: bool,
    /// True if the command was requested to stop because the pull was closed.
    pub stop: bool,
    /// True if locks of the pull have time limits to restart.
    pub locks: bool,
}

/// Outcome of a command, and the comments and statuses to post about it.
#[derive(Clone, Debug)]
pub struct FinishedCommand {
    pub id: CommandId,
    pub outcome: CommandOutcome,
    /// Code of the refusal, if the command was refused.
    pub reason: Option<String>,
    /// Text that would be a comment on a pull. Only for an application, which has no comments.
    pub result: Option<String>,
    /// Comments and statuses to post, in order.
    pub outbox: Vec<NewJob>,
    /// Number of these comments. Each is one [`ResultPart`].
    pub comments: usize,
}

/// Part of the result of a command, which one comment shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultPart {
    pub command: CommandId,
    /// Number of parts from this one to the last one.
    pub left: i64,
}

impl ResultPart {
    /// Returns all parts of the result of a command, in order.
    pub fn all(command: CommandId, parts: usize) -> impl Iterator<Item = Self> {
        let parts = i64::try_from(parts).unwrap_or(i64::MAX);
        (1..=parts).rev().map(move |left| Self { command, left })
    }
}

/// Tells since when people can read the result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct ResultTimes {
    /// End of the command. `None`: it has not ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// Number of comments with the result that are not recorded as posted.
    pub comments_left: i64,
    /// Time of the last comment that is, by the clock of the forge.
    pub shown_at: Option<DateTime<Utc>>,
}

macro_rules! select_sql {
    ($($rest:literal),+) => {
        concat!(
            "SELECT c.id, c.kind, c.repo, c.pull, p.url AS pull_url, p.title, c.actor, c.origin, c.spec, c.head, ",
            "c.state, c.outcome, c.reason, c.stop_kind, c.stop_reason, c.created_at, c.finished_at, ",
            crate::store::people::account_columns!("c.account"),
            " FROM commands c ",
            "LEFT JOIN pulls p ON p.repo = c.repo AND p.number = c.pull ",
            $($rest),+
        )
    };
}

pub(super) use select_sql;

const INSERT: [&str; 3] = change_sql!(
    "INSERT INTO commands (id, kind, repo, pull, comment, delivery, actor, origin, spec, state, created_at, account) \
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, 'queued', $10, $11 WHERE TRUE",
    " ON CONFLICT DO NOTHING"
);
const START: [&str; 3] = change_sql!(
    "UPDATE commands SET state = 'running', head = $1 WHERE id = $2 AND state <> 'finished'"
);
const FINISH: [&str; 3] = change_sql!(
    "UPDATE commands SET state = 'finished', outcome = $1, reason = $2, result = $3, finished_at = $4, \
     comments_left = $5 WHERE id = $6 AND state <> 'finished'"
);
/// Parts are shown in their order. One that comes twice, or after a missing one, changes nothing.
const SHOWN: [&str; 3] = change_sql!(
    "UPDATE commands SET comments_left = $1, shown_at = $2 WHERE id = $3 AND comments_left = $4"
);
/// Counts the open pull with its address, a request to stop, and the locks that `lock_renew` would renew.
const DUE: &str = "SELECT (SELECT COUNT(*) FROM pulls WHERE repo = $1 AND number = $2 AND state = $3 AND url = $4), \
     (SELECT COUNT(*) FROM commands WHERE id = $5 AND stop_kind = $6), \
     (SELECT COUNT(*) FROM locks WHERE repo = $1 AND pull = $2 \
     AND (active_at < $7 OR (warned_at IS NOT NULL AND active_at < $8)))";
const BY_ID: &str = select_sql!("WHERE c.id = $1");
const RECENT: &str = select_sql!("ORDER BY c.created_at DESC, c.id DESC LIMIT $1");
const RECENT_OF_REPOS: [&str; 2] = [
    select_sql!(
        "WHERE c.repo IN (SELECT value FROM json_each($1) AS each) ORDER BY c.created_at DESC, c.id DESC LIMIT $2"
    ),
    select_sql!(
        "WHERE c.repo = ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb))) \
         ORDER BY c.created_at DESC, c.id DESC LIMIT $2"
    ),
];

/// Executes the `INSERT` of a command with a macro that takes its parameters.
macro_rules! insert_command {
    ($execute:ident, ($($on:expr),+), $id:expr, $new:expr, $created_at:expr) => {
        $execute!(
            $($on,)+
            $id,
            $new.kind,
            &$new.pull.repo,
            $new.pull.subject,
            $new.comment.as_ref().map(CommentId::number),
            $new.delivery,
            free_text(&$new.actor.login),
            $new.actor.origin,
            free_text(&$new.spec),
            $created_at,
            account_column($new.actor.account),
        )
    };
}

impl Store {
    /// Returns true if a pull was already notified that nobody has claimed its repository.
    pub async fn command_has_unclaimed_notice(&self, pull: &PullRef) -> Result<bool> {
        // The literal in the SQL lets the partial index for exactly this text be used.
        let told = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            r#"SELECT COUNT(*) FROM commands WHERE repo = $1 AND pull = $2 AND spec = '{"ask":"unclaimed"}'"#)
            .bind(&pull.repo).bind(pull.subject).fetch_one(db))?;
        Ok(told > 0)
    }
    /// Stores a command and its jobs in one transaction. `jobs` receives the command's identifier.
    pub async fn command_create(
        &self,
        new: &NewCommand,
        jobs: impl FnOnce(CommandId) -> Vec<NewJob>,
    ) -> Result<CreateCommand> {
        let id = CommandId::next(&*self.ids);
        let outbox = jobs(id);
        // This time is compared with the time of a plan, which another replica may have made.
        let created_at = self.clock_offset().await?.of(self.now());
        let effects = Effects::jobs(&outbox);
        let is_new = insert_command!(execute_change, (self, INSERT, effects), id, new, created_at)?;
        Ok(if is_new {
            CreateCommand::Created(id)
        } else {
            CreateCommand::Known
        })
    }

    pub(super) async fn command_create_in_tx(
        &self,
        tx: &mut Tx,
        new: &NewCommand,
        jobs: impl FnOnce(CommandId) -> Vec<NewJob>,
    ) -> Result<CreateCommand> {
        let id = CommandId::next(&*self.ids);
        if !self.command_insert_in_tx(tx, id, new).await? {
            return Ok(CreateCommand::Known);
        }
        self.outbox_in_tx(tx, &jobs(id)).await?;
        Ok(CreateCommand::Created(id))
    }

    /// Stores a command. `false`: the same comment or delivery was handled before.
    async fn command_insert_in_tx(
        &self,
        tx: &mut Tx,
        id: CommandId,
        new: &NewCommand,
    ) -> Result<bool> {
        // This time is compared with the time of a plan, which another replica may have made.
        let created_at = self.clock_offset_in_tx(tx).await?.of(self.now());
        insert_command!(execute, (tx, INSERT[0]), id, new, created_at).map(|rows| rows == 1)
    }

    /// Makes one command for all locks that were handed over to a queued pull. `make` receives the locks, each with
    /// the plans that were requested. `None`: nothing is left to do.
    pub async fn command_create_for_turn(
        &self,
        pull: &PullRef,
        make: impl FnOnce(Vec<(Lock, String)>) -> Option<NewCommand>,
        job: impl FnOnce(CommandId) -> NewJob,
    ) -> Result<Option<CommandId>> {
        let cause = Cause::new(Actor::new("", Origin::Queue), "");
        let (mut change, _) = LockChange::begin(self, pull, &cause).await?;
        let turns = change.turns(pull).await?;
        let Some(new) = make(turns) else {
            return Ok(None);
        };
        let id = CommandId::next(&*self.ids);
        self.command_insert_in_tx(&mut change.tx, id, &new).await?;
        change.push(vec![job(id)]);
        change.commit().await.map(|()| Some(id))
    }

    /// Returns the command with this identifier.
    pub async fn command_get(&self, id: CommandId) -> Result<Option<CommandRow>> {
        on_pool!(self, db => sqlx::query_as::<_, CommandColumns>(BY_ID).bind(id).fetch_optional(db))
            .map(|row| row.map(CommandRow::from))
    }

    /// Returns the changes that are due when a command begins to work on an open pull. Usually there are none, so one
    /// query looks for all of them.
    pub async fn command_due(
        &self,
        id: CommandId,
        pull: &PullRef,
        url: &str,
        renew_interval: TimeDelta,
    ) -> Result<DueChanges> {
        let now = self.now();
        let (known, stop, locks) = on_pool!(self, db => sqlx::query_as::<_, (i64, i64, i64)>(DUE)
            .bind(&pull.repo).bind(pull.subject).bind(PullState::Open).bind(free_text(url))
            .bind(id).bind(StopKind::Closed).bind(now - renew_interval).bind(now).fetch_one(db))?;
        Ok(DueChanges {
            pull: known == 0,
            stop: stop > 0,
            locks: locks > 0,
        })
    }

    /// Lists the newest commands.
    pub async fn command_list(&self, limit: i64) -> Result<Vec<CommandRow>> {
        on_pool!(self, db => sqlx::query_as::<_, CommandColumns>(RECENT).bind(limit).fetch_all(db))
            .map(|rows| rows.into_iter().map(CommandRow::from).collect())
    }

    /// Lists the newest commands on pulls of these repositories.
    pub async fn command_list_of_repos(
        &self,
        repos: &[RepoId],
        limit: i64,
    ) -> Result<Vec<CommandRow>> {
        let (sql, repos) = (
            self.either(RECENT_OF_REPOS[0], RECENT_OF_REPOS[1]),
            listed(repos),
        );
        on_pool!(self, db => sqlx::query_as::<_, CommandColumns>(sql).bind(repos).bind(limit).fetch_all(db))
            .map(|rows| rows.into_iter().map(CommandRow::from).collect())
    }

    /// Marks a command as running on a head commit, and adds the statuses that say so to the outbox. `false`: the
    /// command has ended, and nothing more is posted about it.
    pub async fn command_start(
        &self,
        id: CommandId,
        head: Option<&CommitSha>,
        outbox: &[NewJob],
    ) -> Result<bool> {
        execute_change!(self, START, Effects::jobs(outbox), head, id)
    }

    /// Ends a command. Its end and everything to post about it are written in one transaction. `false`: it had ended
    /// before, and nothing is posted again.
    pub async fn command_finish(&self, end: &FinishedCommand) -> Result<bool> {
        // Approvals are compared with this time, and another replica may have received them.
        let finished_at = self.clock_offset().await?.of(self.now());
        execute_change!(
            self,
            FINISH,
            Effects::jobs(&end.outbox),
            end.outcome,
            end.reason.as_deref().map(free_text),
            end.result.as_deref().map(free_text),
            finished_at,
            comments_left(end),
            end.id,
        )
    }

    pub(super) async fn command_finish_in_tx(
        &self,
        tx: &mut Tx,
        end: &FinishedCommand,
    ) -> Result<bool> {
        // Approvals are compared with this time, and another replica may have received them.
        let finished_at = self.clock_offset_in_tx(tx).await?.of(self.now());
        let rows = execute!(
            tx,
            FINISH[0],
            end.outcome,
            end.reason.as_deref().map(free_text),
            end.result.as_deref().map(free_text),
            finished_at,
            comments_left(end),
            end.id,
        )?;
        if rows == 0 {
            return Ok(false);
        }
        self.outbox_in_tx(tx, &end.outbox).await?;
        Ok(true)
    }

    /// Records that a comment shows a part of a result since this time, by the clock of the forge. `false`: it was known
    /// before, or an earlier part is not shown.
    pub async fn command_shown(&self, part: &ResultPart, at: DateTime<Utc>) -> Result<bool> {
        let left = part.left - 1;
        execute_change!(
            self,
            SHOWN,
            Effects::default(),
            left,
            at,
            part.command,
            part.left
        )
    }

    /// Returns since when people can read the result of a command. `None`: there is no such command.
    pub async fn command_result_times(&self, id: CommandId) -> Result<Option<ResultTimes>> {
        let times = "SELECT finished_at, comments_left, shown_at FROM commands WHERE id = $1";
        on_pool!(self, db => sqlx::query_as::<_, ResultTimes>(times).bind(id).fetch_optional(db))
    }

    /// Lists the plans and applies of a pull that have ended on this head commit.
    pub async fn command_list_ended_at(
        &self,
        pull: &PullRef,
        head: &CommitSha,
    ) -> Result<Vec<CommandId>> {
        let ended = "SELECT id FROM commands WHERE repo = $1 AND pull = $2 AND head = $3 AND state = 'finished' \
                     AND kind IN ('plan', 'autoplan', 'apply')";
        on_pool!(self, db => sqlx::query_scalar::<_, CommandId>(ended)
            .bind(&pull.repo).bind(pull.subject).bind(head).fetch_all(db))
    }

    /// Counts the running commands.
    pub async fn command_count_running(&self) -> Result<i64> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM commands WHERE state <> 'finished' AND state = 'running'")
            .fetch_one(db))
    }
}

fn comments_left(end: &FinishedCommand) -> i64 {
    i64::try_from(end.comments).unwrap_or(i64::MAX)
}

#[derive(sqlx::FromRow)]
pub(super) struct CommandColumns {
    id: CommandId,
    kind: CommandKind,
    repo: RepoId,
    pull: Subject,
    pull_url: Option<String>,
    title: Option<String>,
    actor: String,
    origin: Origin,
    spec: String,
    head: Option<CommitSha>,
    state: CommandState,
    outcome: Option<CommandOutcome>,
    reason: Option<String>,
    stop_kind: Option<StopKind>,
    stop_reason: Option<String>,
    created_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    #[sqlx(flatten)]
    account: NamedAccountRow,
}

impl From<CommandColumns> for CommandRow {
    fn from(row: CommandColumns) -> Self {
        let account = row.account.named();
        Self {
            id: row.id,
            kind: row.kind,
            pull: PullRef {
                repo: row.repo,
                subject: row.pull,
            },
            pull_url: row.pull_url,
            title: row.title,
            actor: Actor::new(row.actor, row.origin)
                .with_account(account.as_ref().map(|account| account.number)),
            account,
            spec: row.spec,
            head: row.head,
            state: row.state,
            outcome: row.outcome,
            reason: row.reason,
            stop: StopRequest::of_columns(row.stop_kind, row.stop_reason),
            created_at: row.created_at,
            finished_at: row.finished_at,
        }
    }
}
