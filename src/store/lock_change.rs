//! Changes locks in one transaction: the locks that are taken, released and handed over, their events, and the jobs
//! that follow.
//!
//! A change always locks in the same order, so that no two wait for each other: the *line* of the repository (one
//! change at a time may release locks or touch their queues), the row of the pull, rows of locks, and lanes of jobs.
//! Events of the audit log are written without waiting for anybody.
//!
//! Invariant *nobody waits for nothing*: pulls wait only for a lock that is held. The change that releases a lock
//! hands it over to the first queued pull in the same transaction. So no newcomer can be faster than the pulls that
//! waited.

use super::locks::{INSERT_HANDED_ON, LockRow, columns, name_column};
use super::people::account_of_column;
use super::pulls::{pull_hold_in_tx, title_in_tx};
use super::waiters::{WaiterRow, waiter_next_in_tx};
use super::{NewJob, Result, Store, Tx, execute, on_tx};
use crate::model::{
    Actor, Cause, Lock, LockEventKind, LockId, LockKey, NewLockEvent, Origin, ProjectKey, PullRef,
    PullState, RepoId, RepositoryChange, Subject,
};

/// Kind of the job that plans for a pull after a lock was handed over to it. The store itself queues this job,
/// wherever a lock is released.
pub const TAKE_TURN: &str = "take_turn";

/// A change in progress. Dropping it undoes it.
pub(crate) struct LockChange<'a> {
    pub(super) store: &'a Store,
    pub(super) tx: Tx,
    cause: &'a Cause,
    events: Vec<NewLockEvent>,
    turns: Vec<PullRef>,
    outbox: Vec<NewJob>,
    /// Clause for the next queued pull, added after the number of the pull that had the lock.
    clause: String,
}

/// Deletes locks, except those under which an apply, an import or a `state rm` is running. The row of the pull must
/// be held, or one of them could begin between the check and the deletion.
macro_rules! free_sql {
    ($which:literal) => {
        concat!(
            "DELETE FROM locks WHERE ",
            $which,
            " AND NOT EXISTS (SELECT 1 FROM plans p WHERE p.repo = locks.repo AND p.pull = locks.pull ",
            "AND p.dir = locks.dir AND p.workspace = locks.workspace ",
            "AND (locks.scope = '' OR locks.scope = p.name) AND p.state = 'applying') ",
            "AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.repo = locks.repo AND r.pull = locks.pull ",
            "AND r.dir = locks.dir AND r.workspace = locks.workspace AND r.hook IS NULL ",
            "AND (locks.scope = '' OR locks.scope = r.name) ",
            "AND r.kind IN ('import', 'state_rm') AND r.state = 'running') ",
            "RETURNING ",
            columns!()
        )
    };
}

const FREE_ONE: &str = free_sql!("id = $1");
const FREE_OF_PULL: &str = free_sql!("repo = $1 AND pull = $2");
const FREE_OF_PROJECT: &str = free_sql!(
    "repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 AND (scope = '' OR scope = $5)"
);

impl<'a> LockChange<'a> {
    /// Begins a change of the locks of a pull, and locks its row.
    pub(crate) async fn begin(
        store: &'a Store,
        pull: &PullRef,
        cause: &'a Cause,
    ) -> Result<(Self, Option<PullState>)> {
        Self::begin_in(store.begin().await?, store, pull, cause).await
    }

    /// Begins a change as [`Self::begin`] does, which may share its commit ([`Store::begin_shared`]): the function has to
    /// commit it on every way out.
    pub(super) async fn begin_shared(
        store: &'a Store,
        pull: &PullRef,
        cause: &'a Cause,
    ) -> Result<(Self, Option<PullState>)> {
        Self::begin_in(store.begin_shared().await?, store, pull, cause).await
    }

    async fn begin_in(
        mut tx: Tx,
        store: &'a Store,
        pull: &PullRef,
        cause: &'a Cause,
    ) -> Result<(Self, Option<PullState>)> {
        line_hold_in_tx(&mut tx, &pull.repo).await?;
        let state = pull_hold_in_tx(&mut tx, pull).await?;
        Ok((Self::of(store, tx, cause), state))
    }

    /// Makes a change in a transaction that already holds the line of every repository whose locks it changes.
    pub(super) fn of(store: &'a Store, tx: Tx, cause: &'a Cause) -> Self {
        Self {
            store,
            tx,
            cause,
            events: Vec::new(),
            turns: Vec::new(),
            outbox: Vec::new(),
            clause: String::new(),
        }
    }

    /// Commits the change, with its jobs and events.
    pub(crate) async fn commit(self) -> Result<()> {
        self.commit_with(&[]).await
    }

    /// Commits the change with news of repositories.
    pub(super) async fn commit_with(mut self, news: &[RepositoryChange]) -> Result<()> {
        self.turns.sort();
        self.turns.dedup();
        let turns = self.turns.iter().map(turn_job);
        let outbox: Vec<NewJob> = turns.chain(self.outbox).collect();
        self.store.outbox_in_tx(&mut self.tx, &outbox).await?;
        self.store
            .lock_events_in_tx(&mut self.tx, self.events)
            .await?;
        self.store
            .repository_events_in_tx(&mut self.tx, news)
            .await?;
        self.tx.commit().await
    }

    /// Returns the person who makes the change.
    pub(crate) fn actor(&self) -> &'a Actor {
        &self.cause.actor
    }

    /// Sets a clause for the pulls that get a lock released by this change, such as `, whose lock ada released`.
    pub(crate) fn set_clause(&mut self, clause: String) {
        self.clause = clause;
    }

    /// Discards the plans made under a lock. Returns true if any of them could have been applied.
    pub(crate) async fn discard_plans(&mut self, lock: &Lock) -> Result<bool> {
        super::plans::plans_discard_of_lock_in_tx(&mut self.tx, lock).await
    }

    /// Adds jobs that are queued with the change.
    pub(crate) fn push(&mut self, jobs: Vec<NewJob>) {
        self.outbox.extend(jobs);
    }

    /// Adds an event for a lock of this change.
    pub(crate) fn record(&mut self, kind: LockEventKind, key: &LockKey, pull: &PullRef) {
        self.record_as(kind, key, pull, self.cause.clone());
    }

    /// Adds an event that is about no lock.
    pub(super) fn note(&mut self, event: NewLockEvent) {
        self.events.push(event);
    }

    fn record_as(&mut self, kind: LockEventKind, key: &LockKey, pull: &PullRef, cause: Cause) {
        let (key, pull) = (Some(key.clone()), Some(pull.clone()));
        self.events.push(NewLockEvent {
            kind,
            key,
            scope: None,
            pull,
            concern: None,
            cause,
        });
    }

    /// Releases all locks of the pull, except those under which an apply, an import or a `state rm` is running.
    pub(crate) async fn free_all(
        &mut self,
        pull: &PullRef,
        kind: LockEventKind,
    ) -> Result<Vec<Lock>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(FREE_OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        self.freed(rows, kind).await
    }

    /// Releases the lock of one project of the pull, unless an apply, an import or a `state rm` is running under it.
    pub(crate) async fn free_project(
        &mut self,
        pull: &PullRef,
        project: &ProjectKey,
    ) -> Result<Vec<Lock>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(FREE_OF_PROJECT)
            .bind(&pull.repo).bind(pull.subject).bind(&project.dir).bind(&project.workspace)
            .bind(name_column(project)).fetch_all(db))?;
        self.freed(rows, LockEventKind::Released).await
    }

    /// Releases one lock, unless an apply, an import or a `state rm` is running under it.
    pub(crate) async fn free_one(
        &mut self,
        id: LockId,
        kind: LockEventKind,
    ) -> Result<Option<Lock>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(FREE_ONE).bind(id).fetch_all(db))?;
        self.freed(rows, kind).await.map(|mut locks| locks.pop())
    }

    /// Releases one lock without handing it over to the queue: the caller hands it over.
    pub(crate) async fn free_for(
        &mut self,
        id: LockId,
        kind: LockEventKind,
    ) -> Result<Option<Lock>> {
        let row = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(FREE_ONE).bind(id).fetch_optional(db))?;
        let lock = row.map(Lock::from);
        if let Some(lock) = &lock {
            self.record(kind, &lock.key, &lock.pull);
        }
        Ok(lock)
    }

    async fn freed(&mut self, rows: Vec<LockRow>, kind: LockEventKind) -> Result<Vec<Lock>> {
        let mut locks: Vec<Lock> = rows.into_iter().map(Lock::from).collect();
        // The database does not sort, because PostgreSQL sorts texts by the rules of its locale.
        locks.sort_by(|a, b| a.key.cmp(&b.key));
        for lock in &locks {
            self.record(kind, &lock.key, &lock.pull);
            self.hand_on(&lock.key, &lock.pull).await?;
        }
        Ok(locks)
    }

    /// Hands a released lock over to the first queued pull. Where projects have their own locks, this may be several:
    /// the release of one lock of a whole directory, or of its place in the queue, can make way for several projects.
    pub(super) async fn hand_on(&mut self, key: &LockKey, after: &PullRef) -> Result<()> {
        while let Some(waiter) = waiter_next_in_tx(&mut self.tx, key).await? {
            let after = match after.subject {
                Subject::Pull(number) => format!("pull request {number}"),
                Subject::Application(_) => after
                    .subject
                    .display_name(title_in_tx(&mut self.tx, after).await?.as_deref()),
            };
            let reason = format!("next in the queue after {after}{}", self.clause);
            self.hand_to(waiter, &reason).await?;
        }
        Ok(())
    }

    /// Removes the waiter from the queue and gives it the lock, which must be free.
    pub(crate) async fn hand_to(&mut self, waiter: WaiterRow, reason: &str) -> Result<()> {
        execute!(
            &mut self.tx,
            "DELETE FROM lock_waiters WHERE seq = $1",
            waiter.seq
        )?;
        let (id, now) = (LockId::next(&*self.store.ids), self.store.now());
        execute!(
            &mut self.tx,
            INSERT_HANDED_ON,
            id,
            &waiter.repo,
            &waiter.dir,
            &waiter.workspace,
            &waiter.scope,
            &waiter.name,
            waiter.pull,
            &waiter.pull_url,
            &waiter.asker,
            reason,
            now,
            &waiter.asks,
            waiter.account.account,
        )?;
        let (key, pull) = (waiter.key(), waiter.pull());
        let cause = Cause::new(
            Actor::new(&waiter.asker, Origin::Queue)
                .with_account(account_of_column(waiter.account.account)),
            reason,
        );
        self.record_as(LockEventKind::Taken, &key, &pull, cause);
        self.turns.push(pull);
        Ok(())
    }
}

/// Locks the line of a repository: nobody else releases its locks or touches their queues until the transaction ends.
/// SQLite has only one writing transaction anyway.
pub(super) async fn line_hold_in_tx(tx: &mut Tx, repo: &RepoId) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => {
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('line:' || $1, 0))")
                .bind(repo)
                .execute(&mut **tx)
                .await
                .map(drop)
        }
    }
}

/// Makes the [`TAKE_TURN`] job of a pull. It needs only the pull, because the locks of the pull say what was
/// requested.
fn turn_job(pull: &PullRef) -> NewJob {
    NewJob {
        kind: TAKE_TURN,
        payload: serde_json::json!({ "pull": pull }).to_string(),
        lane: format!("turn:{pull}"),
        share: String::new(),
        priority: 20,
        run_after: None,
    }
}
