//! Pulls that are queued for a lock of another pull. Only a `LockChange` changes the queues; everybody may read them.

use chrono::{DateTime, Utc};

use super::lock_change::LockChange;
use super::locks::{name_column, name_from_column, scope_column};
use super::people::{NamedAccountRow, account_column};
use super::{Result, Store, Tx, execute, free_text, on_pool, on_tx};
use crate::model::{
    Actor, LockEventKind, LockKey, ProjectKey, PullRef, RepoId, RepoPath, Subject, Waiter,
    WorkspaceName,
};

macro_rules! select_sql {
    ($rest:literal) => {
        concat!(
            "SELECT w.seq, w.repo, w.dir, w.workspace, w.scope, w.name, w.pull, w.pull_url, w.asker, w.asks, w.since, ",
            crate::store::people::account_columns!("w.account"),
            " FROM lock_waiters w ",
            $rest
        )
    };
}

const OF_LOCK: &str = select_sql!(
    "WHERE w.repo = $1 AND w.dir = $2 AND w.workspace = $3 AND (w.scope = $4 OR w.scope = '' OR $4 = '') ORDER BY w.seq \
     LIMIT 10000"
);
const OF_PULL: &str = select_sql!("WHERE w.repo = $1 AND w.pull = $2 ORDER BY w.seq");
const OF_REPO: &str = select_sql!("WHERE w.repo = $1 ORDER BY w.seq");
/// Selects the first waiter whose lock no other pull holds, and who overtakes nobody.
const NEXT: &str = select_sql!(
    "WHERE w.repo = $1 AND w.dir = $2 AND w.workspace = $3 AND NOT EXISTS (SELECT 1 FROM locks l WHERE l.repo = w.repo \
     AND l.dir = w.dir AND l.workspace = w.workspace AND l.pull <> w.pull AND (l.scope = w.scope OR l.scope = '' OR w.scope = '')) \
     AND NOT EXISTS (SELECT 1 FROM lock_waiters e WHERE e.repo = w.repo AND e.dir = w.dir AND e.workspace = w.workspace \
     AND e.seq < w.seq AND e.pull <> w.pull AND (e.scope = w.scope OR e.scope = '' OR w.scope = '')) \
     ORDER BY w.seq LIMIT 1"
);

/// A stored place in a queue.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct WaiterRow {
    pub seq: i64,
    pub repo: RepoId,
    pub dir: RepoPath,
    pub workspace: WorkspaceName,
    pub scope: String,
    pub name: String,
    pub pull: Subject,
    pub pull_url: String,
    pub asker: String,
    pub asks: String,
    pub since: DateTime<Utc>,
    #[sqlx(flatten)]
    pub account: NamedAccountRow,
}

impl WaiterRow {
    pub(crate) fn key(&self) -> LockKey {
        LockKey {
            repo: self.repo.clone(),
            dir: self.dir.clone(),
            workspace: self.workspace.clone(),
            project: name_from_column(&self.scope),
        }
    }

    pub(crate) fn pull(&self) -> PullRef {
        PullRef {
            repo: self.repo.clone(),
            subject: self.pull,
        }
    }
}

/// A new place in a queue.
pub(crate) struct NewWaiter<'a> {
    pub key: &'a LockKey,
    pub project: &'a ProjectKey,
    pub pull: &'a PullRef,
    pub pull_url: &'a str,
    pub asker: &'a Actor,
    /// Plans to make when the turn comes, as JSON.
    pub asks: &'a str,
}

impl Store {
    /// Lists the pulls that are queued for a lock, in order.
    pub async fn waiter_list(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, WaiterRow>(OF_LOCK)
            .bind(&key.repo).bind(&key.dir).bind(&key.workspace).bind(scope_column(key)).fetch_all(db))?;
        Ok(rows.into_iter().map(Waiter::from).collect())
    }

    /// Lists the locks that a pull is queued for, in the order of its requests.
    pub async fn waiter_list_of_pull(&self, pull: &PullRef) -> Result<Vec<Waiter>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, WaiterRow>(OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        Ok(rows.into_iter().map(Waiter::from).collect())
    }
}

impl LockChange<'_> {
    /// Lists all waiters in a repository of this change, in order.
    pub(crate) async fn waiters(&mut self, repo: &RepoId) -> Result<Vec<WaiterRow>> {
        on_tx!(&mut self.tx, db => sqlx::query_as::<_, WaiterRow>(OF_REPO).bind(repo).fetch_all(db))
    }

    /// Adds a pull to the end of the queue. A pull that is already queued keeps its place, with the new request.
    pub(crate) async fn line_up(&mut self, new: &NewWaiter<'_>) -> Result<()> {
        let known = execute!(
            &mut self.tx,
            "UPDATE lock_waiters SET asks = $1, asker = $2, name = $3, account = $9 \
             WHERE repo = $4 AND dir = $5 AND workspace = $6 AND scope = $7 AND pull = $8",
            free_text(new.asks),
            free_text(&new.asker.login),
            name_column(new.project),
            &new.key.repo,
            &new.key.dir,
            &new.key.workspace,
            scope_column(new.key),
            new.pull.subject,
            account_column(new.asker.account),
        )?;
        if known > 0 {
            return Ok(());
        }
        execute!(
            &mut self.tx,
            "INSERT INTO lock_waiters (repo, dir, workspace, scope, name, pull, pull_url, asker, asks, since, \
             account) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &new.key.repo,
            &new.key.dir,
            &new.key.workspace,
            scope_column(new.key),
            name_column(new.project),
            new.pull.subject,
            free_text(new.pull_url),
            free_text(&new.asker.login),
            free_text(new.asks),
            self.store.now(),
            account_column(new.asker.account),
        )?;
        self.record(LockEventKind::Queued, new.key, new.pull);
        Ok(())
    }

    /// Removes a pull from one queue.
    pub(crate) async fn leave(&mut self, key: &LockKey, pull: &PullRef) -> Result<bool> {
        let rows = execute!(
            &mut self.tx,
            "DELETE FROM lock_waiters WHERE repo = $1 AND dir = $2 AND workspace = $3 AND scope = $4 AND pull = $5",
            &key.repo,
            &key.dir,
            &key.workspace,
            scope_column(key),
            pull.subject,
        )?;
        if rows > 0 {
            self.record(LockEventKind::Left, key, pull);
            self.hand_on(key, pull).await?;
        }
        Ok(rows > 0)
    }

    /// Removes a pull from all queues.
    pub(crate) async fn leave_all(&mut self, pull: &PullRef) -> Result<()> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, WaiterRow>(OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        for row in rows {
            self.leave(&row.key(), pull).await?;
        }
        Ok(())
    }
}

pub(super) async fn waiter_next_in_tx(tx: &mut Tx, freed: &LockKey) -> Result<Option<WaiterRow>> {
    on_tx!(tx, db => sqlx::query_as::<_, WaiterRow>(NEXT)
        .bind(&freed.repo).bind(&freed.dir).bind(&freed.workspace).fetch_optional(db))
}

impl From<WaiterRow> for Waiter {
    fn from(row: WaiterRow) -> Self {
        Self {
            key: row.key(),
            pull: row.pull(),
            project: ProjectKey {
                dir: row.dir.clone(),
                workspace: row.workspace.clone(),
                name: name_from_column(&row.name),
            },
            pull_url: row.pull_url,
            asker: row.account.person(row.asker),
            since: row.since,
        }
    }
}
