//! Runs: commands on one project, and their output.

use std::slice;

use chrono::{DateTime, Utc};

use super::locks::{name_column, name_from_column};
use super::news::News;
use super::of_repos::listed;
use super::one_statement::{Effects, change_sql, execute_change};
use super::{NewJob, Result, Store, Tx, execute, free_text, on_pool};
use crate::model::{
    CommandId, CommitSha, ProjectKey, ProjectOutcome, PullRef, RepoId, RepoPath, RunId, RunKind,
    Subject, WorkspaceName, text_enum,
};

text_enum! {
    /// State of a run.
    pub enum RunState {
        /// Waiting for a permit to start.
        Queued = "queued",
        Running = "running",
        Finished = "finished",
    }
}

/// A run to store.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Command that the run belongs to.
    pub command: CommandId,
    /// Kind of the run.
    pub kind: RunKind,
    pub pull: PullRef,
    pub project: ProjectKey,
}

/// A run from the database.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub id: RunId,
    /// Command that the run belongs to.
    pub command: CommandId,
    /// Kind of the run.
    pub kind: RunKind,
    pub pull: PullRef,
    pub project: ProjectKey,
    /// Name of the hook, if the run is one; `project` is then the root of the repository.
    pub hook: Option<String>,
    /// True if parts of the output may appear on pages but not in comments.
    pub private: bool,
    pub state: RunState,
    /// Outcome, once the run has ended.
    pub outcome: Option<ProjectOutcome>,
    /// One line about the end: the summary, or the error.
    pub message: Option<String>,
    /// Time when the run was requested.
    pub created_at: DateTime<Utc>,
    /// Time when the tool started.
    pub started_at: Option<DateTime<Utc>>,
    /// Time when the run ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// True if the run sets the status of its project; false for kinds without statuses, and for commands on too many
    /// projects.
    pub has_status: bool,
}

/// A piece of the output of a run.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct OutputPiece {
    /// Number of the piece, from 1.
    pub seq: i64,
    /// Whole lines, with colour codes.
    pub text: String,
}

const BY_ID: &str = "SELECT id, command, kind, repo, pull, dir, workspace, name, hook, private, state, outcome, \
     message, created_at, started_at, finished_at, has_status FROM runs WHERE id = $1";
const OF_COMMAND: &str = "SELECT id, command, kind, repo, pull, dir, workspace, name, hook, private, state, outcome, \
     message, created_at, started_at, finished_at, has_status FROM runs WHERE command = $1 AND hook IS NULL ORDER BY id";
const OF_HEAD: &str = "SELECT r.id, r.command, r.kind, r.repo, r.pull, r.dir, r.workspace, r.name, r.hook, r.private, \
     r.state, r.outcome, r.message, r.created_at, r.started_at, r.finished_at, r.has_status FROM runs r \
     JOIN commands c ON c.id = r.command WHERE r.repo = $1 AND r.pull = $2 AND c.head = $3 AND r.kind IN ('plan', 'apply') AND r.state = 'finished' AND r.hook IS NULL ORDER BY r.id";
macro_rules! of_commands {
    ($one_of:literal) => {
        concat!(
            "SELECT id, command, kind, repo, pull, dir, workspace, name, hook, private, state, outcome, message, \
             created_at, started_at, finished_at, has_status FROM runs WHERE hook IS NULL AND command ",
            $one_of,
            " ORDER BY created_at DESC, id DESC LIMIT $2"
        )
    };
}

const OF_COMMANDS: [&str; 2] = [
    of_commands!("IN (SELECT value FROM json_each($1) AS each)"),
    of_commands!("= ANY(ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))"),
];

const INSERT: [&str; 3] = change_sql!(
    "INSERT INTO runs (id, command, kind, repo, pull, dir, workspace, name, hook, state, created_at, has_status) \
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, 'queued', $10, $11 WHERE TRUE"
);
const START: [&str; 3] = change_sql!(
    "UPDATE runs SET state = 'running', started_at = $1 WHERE id = $2 AND state <> 'finished'"
);
const FINISH: [&str; 3] = change_sql!(
    "UPDATE runs SET state = 'finished', outcome = $1, message = $2, finished_at = $3 \
     WHERE id = $4 AND state <> 'finished'"
);
const KEEP_PRIVATE: [&str; 3] = change_sql!("UPDATE runs SET private = TRUE WHERE id = $1");
const CUT_OFF_HOOKS: [&str; 3] = change_sql!(
    "UPDATE runs SET state = 'finished', outcome = $1, finished_at = $2 \
     WHERE command = $3 AND hook IS NOT NULL AND state <> 'finished'"
);
const APPEND: [&str; 3] =
    change_sql!("INSERT INTO run_output (run, seq, text) SELECT $1, $2, $3 WHERE TRUE");

impl Store {
    /// Stores a new run, which is queued.
    pub async fn run_create(&self, new: &NewRun) -> Result<RunId> {
        self.run_create_with(new, |_| None).await
    }

    /// Stores a new run, which is queued, and the job that sets its first status.
    pub async fn run_create_with(
        &self,
        new: &NewRun,
        status: impl FnOnce(RunId) -> Option<NewJob>,
    ) -> Result<RunId> {
        let id = RunId::next(&*self.ids);
        self.run_insert(id, new, None, true, status(id).as_slice())
            .await
    }

    /// Stores a new run, which is queued and sets no status.
    pub async fn run_create_without_status(&self, new: &NewRun) -> Result<RunId> {
        let id = RunId::next(&*self.ids);
        self.run_insert(id, new, None, false, &[]).await
    }

    /// Stores a hook of a command as a run, which is queued. It counts as a run only for its output, and not for the
    /// status of projects.
    pub async fn hook_create(&self, new: &NewRun, called: &str) -> Result<RunId> {
        let (id, called) = (RunId::next(&*self.ids), free_text(called));
        self.run_insert(id, new, Some(called.as_ref()), false, &[])
            .await
    }

    /// Ends the hooks of a command that were interrupted.
    pub async fn hooks_cut_off(&self, command: CommandId) -> Result<()> {
        execute_change!(
            self,
            CUT_OFF_HOOKS,
            Effects::default(),
            ProjectOutcome::Cancelled,
            self.now(),
            command,
        )
        .map(drop)
    }

    /// Marks a run as private, before it begins to print output that must not appear in comments.
    pub async fn run_keep_private(&self, id: RunId) -> Result<()> {
        execute_change!(self, KEEP_PRIVATE, Effects::default(), id).map(drop)
    }

    async fn run_insert(
        &self,
        id: RunId,
        new: &NewRun,
        hook: Option<&str>,
        has_status: bool,
        outbox: &[NewJob],
    ) -> Result<RunId> {
        execute_change!(
            self,
            INSERT,
            Effects::jobs(outbox),
            id,
            new.command,
            new.kind,
            &new.pull.repo,
            new.pull.subject,
            &new.project.dir,
            &new.project.workspace,
            name_column(&new.project),
            hook,
            self.now(),
            has_status,
        )
        .map(|_| id)
    }

    /// Marks a run as running when the tool starts. A run that has ended stays ended.
    pub async fn run_start(&self, id: RunId) -> Result<()> {
        let effects = Effects::news(News::Run(id));
        execute_change!(self, START, effects, self.now(), id).map(drop)
    }

    /// Ends a run; `false`: it had ended before.
    pub async fn run_finish(
        &self,
        id: RunId,
        outcome: ProjectOutcome,
        message: Option<&str>,
    ) -> Result<bool> {
        self.run_finish_with(id, outcome, message, None).await
    }

    /// Ends a run, and adds the job that sets its last status; `false`: it had ended before, and nothing was added.
    pub async fn run_finish_with(
        &self,
        id: RunId,
        outcome: ProjectOutcome,
        message: Option<&str>,
        status: Option<&NewJob>,
    ) -> Result<bool> {
        let outbox = status.map(slice::from_ref).unwrap_or_default();
        let news = Some(News::Run(id));
        execute_change!(
            self,
            FINISH,
            Effects { outbox, news },
            outcome,
            message.map(free_text),
            self.now(),
            id,
        )
    }

    /// Returns the run with this identifier.
    pub async fn run_get(&self, id: RunId) -> Result<Option<RunRow>> {
        on_pool!(self, db => sqlx::query_as::<_, RunColumns>(BY_ID).bind(id).fetch_optional(db))
            .map(|row| row.map(RunRow::from))
    }

    /// Lists the runs of a command, in the order in which they were created.
    pub async fn run_list(&self, command: CommandId) -> Result<Vec<RunRow>> {
        on_pool!(self, db => sqlx::query_as::<_, RunColumns>(OF_COMMAND).bind(command).fetch_all(db))
            .map(|rows| rows.into_iter().map(RunRow::from).collect())
    }

    /// Lists the finished plans and applies of a pull at one head commit, oldest first. The statuses of the pull are
    /// summed up from them.
    pub async fn run_list_of_head(&self, pull: &PullRef, head: &CommitSha) -> Result<Vec<RunRow>> {
        on_pool!(self, db => sqlx::query_as::<_, RunColumns>(OF_HEAD)
            .bind(&pull.repo).bind(pull.subject).bind(head).fetch_all(db))
        .map(|rows| rows.into_iter().map(RunRow::from).collect())
    }

    /// Lists the runs of some commands, newest first.
    pub async fn run_list_of_commands(
        &self,
        commands: &[CommandId],
        limit: i64,
    ) -> Result<Vec<RunRow>> {
        let (sql, commands) = (
            self.either(OF_COMMANDS[0], OF_COMMANDS[1]),
            listed(commands),
        );
        on_pool!(self, db => sqlx::query_as::<_, RunColumns>(sql).bind(commands).bind(limit).fetch_all(db))
            .map(|rows| rows.into_iter().map(RunRow::from).collect())
    }

    /// Appends a piece of output. Each run has one writer, which numbers the pieces.
    pub async fn run_output_append(&self, run: RunId, piece: &OutputPiece) -> Result<()> {
        execute_change!(
            self,
            APPEND,
            Effects::news(News::Run(run)),
            run,
            piece.seq,
            free_text(&piece.text),
        )
        .map(drop)
    }

    /// Lists the pieces after `seq`, in order, at most `limit` of them.
    pub async fn run_output_after(
        &self,
        run: RunId,
        seq: i64,
        limit: i64,
    ) -> Result<Vec<OutputPiece>> {
        on_pool!(self, db => sqlx::query_as::<_, OutputPiece>(
            "SELECT seq, text FROM run_output WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3")
            .bind(run).bind(seq).bind(limit).fetch_all(db))
    }

    /// Returns the end of the output of a run, at most `pieces` pieces.
    pub async fn run_output_tail(&self, run: RunId, pieces: i64) -> Result<String> {
        let mut last = on_pool!(self, db => sqlx::query_as::<_, OutputPiece>(
            "SELECT seq, text FROM run_output WHERE run = $1 ORDER BY seq DESC LIMIT $2")
            .bind(run).bind(pieces).fetch_all(db))?;
        last.reverse();
        Ok(last.into_iter().map(|piece| piece.text).collect())
    }

    /// Returns the whole output of a run.
    pub async fn run_output(&self, run: RunId) -> Result<String> {
        let pieces = self.run_output_after(run, 0, i64::MAX).await?;
        Ok(pieces.into_iter().map(|piece| piece.text).collect())
    }
}

/// Marks a run as running. `false`: it has ended before, or is not known.
pub(super) async fn run_start_in_tx(tx: &mut Tx, id: RunId, now: DateTime<Utc>) -> Result<bool> {
    execute!(tx, START[0], now, id).map(|rows| rows == 1)
}

/// Ends a run. `false`: it had ended before, or is not known.
pub(super) async fn run_finish_in_tx(
    tx: &mut Tx,
    id: RunId,
    outcome: ProjectOutcome,
    message: Option<&str>,
    now: DateTime<Utc>,
) -> Result<bool> {
    execute!(tx, FINISH[0], outcome, message.map(free_text), now, id,).map(|rows| rows == 1)
}

/// Locks the row of a run, so that nobody else ends it before the transaction is over. `false`: the run or its
/// command has ended already.
pub(super) async fn run_hold_in_tx(tx: &mut Tx, id: RunId) -> Result<bool> {
    execute!(
        tx,
        "UPDATE runs SET state = state WHERE id = $1 AND state <> 'finished' \
         AND EXISTS (SELECT 1 FROM commands c WHERE c.id = runs.command AND c.state <> 'finished')",
        id,
    )
    .map(|rows| rows == 1)
}

#[derive(sqlx::FromRow)]
struct RunColumns {
    id: RunId,
    command: CommandId,
    kind: RunKind,
    repo: RepoId,
    pull: Subject,
    dir: RepoPath,
    workspace: WorkspaceName,
    name: String,
    hook: Option<String>,
    private: bool,
    state: RunState,
    outcome: Option<ProjectOutcome>,
    message: Option<String>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    has_status: bool,
}

impl From<RunColumns> for RunRow {
    fn from(row: RunColumns) -> Self {
        let name = name_from_column(&row.name);
        Self {
            id: row.id,
            command: row.command,
            kind: row.kind,
            pull: PullRef {
                repo: row.repo,
                subject: row.pull,
            },
            project: ProjectKey {
                dir: row.dir,
                workspace: row.workspace,
                name,
            },
            hook: row.hook,
            private: row.private,
            state: row.state,
            outcome: row.outcome,
            message: row.message,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            has_status: row.has_status && row.kind.has_status(),
        }
    }
}
