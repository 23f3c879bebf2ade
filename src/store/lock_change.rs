//! One change of locks: what is taken, freed and handed on, the events that tell of it and the jobs it leads to, all in
//! one transaction.
//!
//! Order of what a change holds, always the same, so that no two wait for each other: the *line* of the repository
//! (one change at a time may free locks or touch those who wait), the row of the pull, rows of locks, and lanes of jobs.
//! Events of the audit log are written without waiting for anybody.
//!
//! Invariant *nobody waits for nothing*: pulls wait only for a lock that is held. Whoever frees a lock hands it to the
//! first in line in the same transaction, so that nobody who comes by can be faster than those who waited.

use super::locks::{INSERT_HANDED_ON, LockRow, name_column};
use super::pulls::{pull_hold_in_tx, title_in_tx};
use super::waiters::{WaiterRow, waiter_next_in_tx};
use super::{NewJob, Result, Store, Tx, execute, on_tx};
use crate::model::{
    Actor, Cause, Lock, LockEventKind, LockId, LockKey, NewLockEvent, Origin, ProjectKey, PullRef,
    PullState, RepoId, RepositoryNews, Subject,
};

/// Kind of the job that plans for a pull which was handed a lock. The store itself puts it into the queue, wherever a
/// lock is freed.
pub const TAKE_TURN: &str = "take_turn";

/// A change that is being made. Dropping it undoes it.
pub(crate) struct LockChange<'a> {
    pub(super) store: &'a Store,
    pub(super) tx: Tx,
    cause: &'a Cause,
    events: Vec<NewLockEvent>,
    turns: Vec<PullRef>,
    outbox: Vec<NewJob>,
    /// What is told, beside the number of the pull that had it, to whoever is next in line for a freed lock.
    aside: String,
}

/// A lock under which an apply, an import or a `state rm` is running is not taken away from it. The pull must be held, or
/// one could begin between the look and the deletion.
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
            "RETURNING id, repo, dir, workspace, scope, name, pull, pull_url, holder, reason, taken_at, active_at"
        )
    };
}

const FREE_ONE: &str = free_sql!("id = $1");
const FREE_OF_PULL: &str = free_sql!("repo = $1 AND pull = $2");
const FREE_OF_PROJECT: &str = free_sql!(
    "repo = $1 AND pull = $2 AND dir = $3 AND workspace = $4 AND (scope = '' OR scope = $5)"
);

impl<'a> LockChange<'a> {
    /// Begins a change of the locks of a pull, and holds its row.
    pub(crate) async fn begin(
        store: &'a Store,
        pull: &PullRef,
        cause: &'a Cause,
    ) -> Result<(Self, Option<PullState>)> {
        let mut tx = store.begin().await?;
        line_hold_in_tx(&mut tx, &pull.repo).await?;
        let state = pull_hold_in_tx(&mut tx, pull).await?;
        Ok((Self::of(store, tx, cause), state))
    }

    /// A change in a transaction that holds the line of every repository it changes locks of.
    pub(super) fn of(store: &'a Store, tx: Tx, cause: &'a Cause) -> Self {
        Self {
            store,
            tx,
            cause,
            events: Vec::new(),
            turns: Vec::new(),
            outbox: Vec::new(),
            aside: String::new(),
        }
    }

    /// Makes the change durable, with its jobs and events.
    pub(crate) async fn commit(self) -> Result<()> {
        self.commit_with(&[]).await
    }

    /// The same with news of repositories.
    pub(super) async fn commit_with(mut self, news: &[RepositoryNews]) -> Result<()> {
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

    /// Who makes it.
    pub(crate) fn actor(&self) -> &'a str {
        &self.cause.actor.login
    }

    /// Adds a clause to what is told to those who are handed a lock that this change frees: `, whose lock ada released`.
    pub(crate) fn tell_next(&mut self, aside: String) {
        self.aside = aside;
    }

    /// Discards the plans made under a lock, and tells whether there were any that could have been applied.
    pub(crate) async fn discard_plans(&mut self, lock: &Lock) -> Result<bool> {
        super::plans::plans_discard_of_lock_in_tx(&mut self.tx, lock).await
    }

    /// Jobs to put into the queue with the change.
    pub(crate) fn push(&mut self, jobs: Vec<NewJob>) {
        self.outbox.extend(jobs);
    }

    /// Notes an event of this change.
    pub(crate) fn record(&mut self, kind: LockEventKind, key: &LockKey, pull: &PullRef) {
        self.record_as(kind, key, pull, self.cause.clone());
    }

    /// Notes an event that is about no lock.
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

    /// Gives back every lock of the pull, but for those under which something is being changed.
    pub(crate) async fn free_all(
        &mut self,
        pull: &PullRef,
        kind: LockEventKind,
    ) -> Result<Vec<Lock>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(FREE_OF_PULL)
            .bind(&pull.repo).bind(pull.number).fetch_all(db))?;
        self.freed(rows, kind).await
    }

    /// Gives back the lock of one project of the pull, unless something is being changed under it.
    pub(crate) async fn free_project(
        &mut self,
        pull: &PullRef,
        project: &ProjectKey,
    ) -> Result<Vec<Lock>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(FREE_OF_PROJECT)
            .bind(&pull.repo).bind(pull.number).bind(&project.dir).bind(&project.workspace)
            .bind(name_column(project)).fetch_all(db))?;
        self.freed(rows, LockEventKind::Released).await
    }

    /// Gives back one lock, unless something is being changed under it.
    pub(crate) async fn free_one(
        &mut self,
        id: LockId,
        kind: LockEventKind,
    ) -> Result<Option<Lock>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(FREE_ONE).bind(id).fetch_all(db))?;
        self.freed(rows, kind).await.map(|mut locks| locks.pop())
    }

    /// Frees one lock without a look at who is in line: the caller hands it on itself.
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
        // Not left to the database: PostgreSQL sorts texts by the rules of its locale.
        locks.sort_by(|a, b| a.key.cmp(&b.key));
        for lock in &locks {
            self.record(kind, &lock.key, &lock.pull);
            self.hand_on(&lock.key, &lock.pull).await?;
        }
        Ok(locks)
    }

    /// Gives what became free to whoever is first in line for it. Where projects have locks of their own, one lock of a
    /// whole directory, or a place in line for it, can make way for several of them.
    pub(super) async fn hand_on(&mut self, key: &LockKey, after: &PullRef) -> Result<()> {
        while let Some(waiter) = waiter_next_in_tx(&mut self.tx, key).await? {
            let after = match after.number.subject() {
                Subject::Pull(number) => format!("pull request {number}"),
                Subject::Application(_) => after
                    .number
                    .called(title_in_tx(&mut self.tx, after).await?.as_deref()),
            };
            let reason = format!("next in line after {after}{}", self.aside);
            self.hand_to(waiter, &reason).await?;
        }
        Ok(())
    }

    /// The waiter leaves the line and holds the lock, which must be free.
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
        )?;
        let (key, pull) = (waiter.key(), waiter.pull());
        let cause = Cause::new(
            Actor {
                login: waiter.asker.clone(),
                origin: Origin::Queue,
            },
            reason,
        );
        self.record_as(LockEventKind::Taken, &key, &pull, cause);
        self.turns.push(pull);
        Ok(())
    }
}

/// Nobody else frees locks of the repository or touches its lines until the transaction ends. SQLite has only one
/// writing transaction anyway.
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

/// What [`TAKE_TURN`] works on: the pull alone, because whatever it was handed is on record with its locks.
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
