//! Stores apply locks: of the whole server, of a repository, of a directory and everything below it.
//!
//! Every change holds *the switch* (an advisory lock of PostgreSQL), and the gate of an apply shares it. This orders the
//! two: an apply that passed its gate before the change continues, and an apply whose gate comes after the commit of the
//! change obeys it. A transaction holds the switch first, before the row of a pull.
//!
//! An expired apply lock counts as absent when it is read, by the clock of the database. The reconciler removes it and
//! records that in the audit log, but nothing waits for it.

use chrono::{DateTime, Utc};

use crate::model::{
    Actor, ApplyLock, ApplyLockId, ApplyScope, Cause, LockEventKind, NewLockEvent, Origin, Person,
    RepoId, RepoPath, minute,
};
use crate::store::people::{NamedAccountRow, account_column, account_named_in_tx};
use crate::store::{Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};

const ALL: &str = concat!(
    "SELECT id, scope, repo, dir, holder, reason, taken_at, ends_at, ",
    crate::store::people::account_columns!("apply_locks.account"),
    " FROM apply_locks"
);
const INSERT: &str = "INSERT INTO apply_locks (id, scope, repo, dir, holder, reason, taken_at, ends_at, account) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
/// Maximum number of apply locks, because every apply reads all of them (P12).
const MOST: usize = 1000;

/// Result of setting an apply lock.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetApplyLock {
    /// The new apply lock.
    Set(ApplyLock),
    /// The existing apply lock with the same scope, which stays.
    AlreadySet(ApplyLock),
    /// The end is not in the future: now it is this time.
    Over(DateTime<Utc>),
    /// The maximum number of apply locks exists, which is this number.
    TooMany(usize),
}

impl Store {
    /// Stops applies from now on, for the reason in `cause`. An apply that passed its gate before continues.
    pub async fn apply_lock_set(
        &self,
        scope: &ApplyScope,
        ends_at: Option<DateTime<Utc>>,
        cause: &Cause,
    ) -> Result<SetApplyLock> {
        let mut tx = self.begin().await?;
        let (outcome, events) = self
            .apply_lock_set_in_tx(&mut tx, scope, None, ends_at, cause)
            .await?;
        self.lock_events_in_tx(&mut tx, events).await?;
        tx.commit().await?;
        Ok(outcome)
    }

    /// Sets an apply lock since `taken_at` or now. Returns the events to store with it.
    async fn apply_lock_set_in_tx(
        &self,
        tx: &mut Tx,
        scope: &ApplyScope,
        taken_at: Option<DateTime<Utc>>,
        ends_at: Option<DateTime<Utc>>,
        cause: &Cause,
    ) -> Result<(SetApplyLock, Vec<NewLockEvent>)> {
        if let ApplyScope::Unknown(text) = scope {
            return Err(sqlx::Error::Protocol(format!(
                "cannot set an apply lock for the unknown scope `{text}`"
            )));
        }
        switch_hold_in_tx(tx).await?;
        let now = self.deadline_now_in_tx(tx).await?;
        let lock = ApplyLock {
            id: ApplyLockId::next(&*self.ids),
            scope: scope.clone(),
            holder: Person {
                login: free_text(&cause.actor.login).into_owned(),
                account: account_named_in_tx(tx, cause.actor.account).await?,
            },
            reason: free_text(&cause.reason).into_owned(),
            taken_at: taken_at.map_or(now, kept_time),
            ends_at: ends_at.map(kept_time),
        };
        if lock.has_ended(now) {
            return Ok((SetApplyLock::Over(now), Vec::new()));
        }
        let (there, mut events) = (all_in_tx(tx).await?, Vec::new());
        if let Some(old) = there.iter().find(|old| old.scope == *scope) {
            if !old.has_ended(now) {
                return Ok((SetApplyLock::AlreadySet(old.clone()), events));
            }
            remove_in_tx(tx, old).await?;
            events.push(ended_event(old));
        } else if there.len() >= MOST {
            return Ok((SetApplyLock::TooMany(MOST), events));
        }
        insert_in_tx(tx, &lock).await?;
        events.push(set_event(&lock, cause));
        Ok((SetApplyLock::Set(lock), events))
    }

    /// Takes over a lock of another server that stops everything. `None` and the events to store with it if it was set here.
    /// Otherwise one was set here before, and stays.
    pub(crate) async fn apply_lock_take_over_in_tx(
        &self,
        tx: &mut Tx,
        taken_at: DateTime<Utc>,
        cause: &Cause,
    ) -> Result<(Option<ApplyLock>, Vec<NewLockEvent>)> {
        let (set, events) = self
            .apply_lock_set_in_tx(tx, &ApplyScope::Server, Some(taken_at), None, cause)
            .await?;
        match set {
            SetApplyLock::Set(_) => Ok((None, events)),
            SetApplyLock::AlreadySet(lock) => Ok((Some(lock), events)),
            SetApplyLock::Over(_) => Err(sqlx::Error::Protocol(
                "an apply lock without an end has expired".to_owned(),
            )),
            SetApplyLock::TooMany(most) => Err(sqlx::Error::Protocol(format!(
                "there are {most} apply locks, which is the maximum"
            ))),
        }
    }

    /// Prevents applies from passing a gate, and changes of apply locks, until the transaction ends.
    pub(crate) async fn apply_switch_hold_in_tx(&self, tx: &mut Tx) -> Result<()> {
        switch_hold_in_tx(tx).await
    }

    /// Ends the apply lock of exactly this scope. `None`: there is none.
    pub async fn apply_lock_clear(
        &self,
        scope: &ApplyScope,
        cause: &Cause,
    ) -> Result<Option<ApplyLock>> {
        self.clear(|lock| lock.scope == *scope, cause).await
    }

    /// Ends one apply lock by its identifier.
    pub async fn apply_lock_clear_one(
        &self,
        id: ApplyLockId,
        cause: &Cause,
    ) -> Result<Option<ApplyLock>> {
        self.clear(|lock| lock.id == id, cause).await
    }

    async fn clear(
        &self,
        is_meant: impl Fn(&ApplyLock) -> bool,
        cause: &Cause,
    ) -> Result<Option<ApplyLock>> {
        let mut tx = self.begin().await?;
        switch_hold_in_tx(&mut tx).await?;
        let Some(lock) = all_in_tx(&mut tx).await?.into_iter().find(is_meant) else {
            return Ok(None);
        };
        let has_ended = lock.has_ended(self.deadline_now_in_tx(&mut tx).await?);
        remove_in_tx(&mut tx, &lock).await?;
        let event = if has_ended {
            ended_event(&lock)
        } else {
            cleared_event(&lock, cause)
        };
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await?;
        Ok(Some(lock).filter(|_| !has_ended))
    }

    /// Removes expired apply locks, and records that in the audit log. They stopped nothing any more.
    pub async fn apply_lock_expire(&self) -> Result<Vec<ApplyLock>> {
        let now = self.deadline_now().await?;
        if !self
            .apply_lock_all()
            .await?
            .iter()
            .any(|lock| lock.has_ended(now))
        {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        switch_hold_in_tx(&mut tx).await?;
        let now = self.deadline_now_in_tx(&mut tx).await?;
        let mut over = all_in_tx(&mut tx).await?;
        over.retain(|lock| lock.has_ended(now));
        for lock in &over {
            remove_in_tx(&mut tx, lock).await?;
        }
        self.lock_events_in_tx(&mut tx, over.iter().map(ended_event).collect())
            .await?;
        tx.commit().await.map(|()| over)
    }

    /// Returns the apply lock of exactly this scope.
    pub async fn apply_lock_get(&self, scope: &ApplyScope) -> Result<Option<ApplyLock>> {
        Ok(self
            .apply_lock_list()
            .await?
            .into_iter()
            .find(|lock| lock.scope == *scope))
    }

    /// Returns the apply lock with this identifier.
    pub async fn apply_lock_find(&self, id: ApplyLockId) -> Result<Option<ApplyLock>> {
        Ok(self
            .apply_lock_list()
            .await?
            .into_iter()
            .find(|lock| lock.id == id))
    }

    /// Returns all apply locks in effect, the widest first, then by repository and directory.
    pub async fn apply_lock_list(&self) -> Result<Vec<ApplyLock>> {
        let (mut locks, now) = (self.apply_lock_all().await?, self.deadline_now().await?);
        locks.retain(|lock| !lock.has_ended(now));
        locks.sort_by(|a, b| a.scope.cmp(&b.scope));
        Ok(locks)
    }

    async fn apply_lock_all(&self) -> Result<Vec<ApplyLock>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, ApplyLockRow>(ALL).fetch_all(db))?;
        Ok(rows.into_iter().map(ApplyLock::from).collect())
    }

    /// Returns the apply locks that stop an apply in this directory, the widest first. No apply lock changes until the
    /// transaction ends.
    pub(crate) async fn apply_locks_in_way_in_tx(
        &self,
        tx: &mut Tx,
        repo: &RepoId,
        dir: &RepoPath,
    ) -> Result<Vec<ApplyLock>> {
        switch_share_in_tx(tx).await?;
        let mut locks = all_in_tx(tx).await?;
        locks.retain(|lock| lock.scope.covers(repo, dir));
        if locks.iter().any(|lock| lock.ends_at.is_some()) {
            let now = self.deadline_now_in_tx(tx).await?;
            locks.retain(|lock| !lock.has_ended(now));
        }
        locks.sort_by(|a, b| a.scope.cmp(&b.scope));
        Ok(locks)
    }

    async fn deadline_now_in_tx(&self, tx: &mut Tx) -> Result<DateTime<Utc>> {
        Ok(self.clock_offset_in_tx(tx).await?.of(self.now()))
    }

    async fn deadline_now(&self) -> Result<DateTime<Utc>> {
        Ok(self.clock_offset().await?.of(self.now()))
    }
}

async fn all_in_tx(tx: &mut Tx) -> Result<Vec<ApplyLock>> {
    let rows = on_tx!(tx, db => sqlx::query_as::<_, ApplyLockRow>(ALL).fetch_all(db))?;
    Ok(rows.into_iter().map(ApplyLock::from).collect())
}

/// Prevents applies from passing a gate, and changes of apply locks, until the transaction ends. SQLite has only one
/// writing transaction anyway.
async fn switch_hold_in_tx(tx: &mut Tx) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => {
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('apply_locks', 0))")
                .execute(&mut **tx)
                .await
                .map(drop)
        }
    }
}

/// Prevents changes of apply locks until the transaction ends; other applies may pass their gates.
async fn switch_share_in_tx(tx: &mut Tx) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => {
            sqlx::query("SELECT pg_advisory_xact_lock_shared(hashtextextended('apply_locks', 0))")
                .execute(&mut **tx)
                .await
                .map(drop)
        }
    }
}

async fn insert_in_tx(tx: &mut Tx, lock: &ApplyLock) -> Result<()> {
    let text = |part: Option<String>| part.unwrap_or_default();
    execute!(
        tx,
        INSERT,
        lock.id,
        lock.scope.kind(),
        text(lock.scope.repo().map(ToString::to_string)),
        text(lock.scope.dir().map(ToString::to_string)),
        &lock.holder.login,
        &lock.reason,
        lock.taken_at,
        lock.ends_at,
        account_column(lock.holder.account.as_ref().map(|account| account.number)),
    )
    .map(drop)
}

async fn remove_in_tx(tx: &mut Tx, lock: &ApplyLock) -> Result<()> {
    execute!(tx, "DELETE FROM apply_locks WHERE id = $1", lock.id).map(drop)
}

fn event(kind: LockEventKind, lock: &ApplyLock, cause: Cause) -> NewLockEvent {
    NewLockEvent {
        kind,
        key: None,
        scope: Some(lock.scope.clone()),
        pull: None,
        concern: None,
        cause,
    }
}

fn set_event(lock: &ApplyLock, cause: &Cause) -> NewLockEvent {
    let until = lock
        .ends_at
        .map(|end| format!(" (until {})", minute(end)))
        .unwrap_or_default();
    let reason = format!("{}{until}", cause.reason);
    event(
        LockEventKind::ApplyLocked,
        lock,
        Cause {
            reason,
            ..cause.clone()
        },
    )
}

fn cleared_event(lock: &ApplyLock, cause: &Cause) -> NewLockEvent {
    let reason = format!("{}; {}", cause.reason, story(lock));
    event(
        LockEventKind::ApplyUnlocked,
        lock,
        Cause {
            reason,
            ..cause.clone()
        },
    )
}

fn ended_event(lock: &ApplyLock) -> NewLockEvent {
    let reason = format!("it expired; {}", story(lock));
    event(
        LockEventKind::ApplyUnlocked,
        lock,
        Cause::new(Actor::lockkeeper(Origin::Reconciler), reason),
    )
}

/// Describes who had set an apply lock, since when and why, because nothing else keeps it.
fn story(lock: &ApplyLock) -> String {
    let unknown = match &lock.scope {
        ApplyScope::Unknown(text) => format!(" for the unknown scope \"{text}\","),
        ApplyScope::Server | ApplyScope::Repo(_) | ApplyScope::Path { .. } => String::new(),
    };
    format!(
        "set{unknown} by {} on {}: {}",
        lock.holder.login,
        minute(lock.taken_at),
        lock.reason
    )
}

#[derive(sqlx::FromRow)]
struct ApplyLockRow {
    id: ApplyLockId,
    scope: String,
    repo: String,
    dir: String,
    holder: String,
    reason: String,
    taken_at: DateTime<Utc>,
    ends_at: Option<DateTime<Utc>>,
    #[sqlx(flatten)]
    account: NamedAccountRow,
}

impl From<ApplyLockRow> for ApplyLock {
    fn from(row: ApplyLockRow) -> Self {
        Self {
            id: row.id,
            scope: ApplyScope::from_columns(&row.scope, &row.repo, &row.dir),
            holder: row.account.person(row.holder),
            reason: row.reason,
            taken_at: row.taken_at,
            ends_at: row.ends_at,
        }
    }
}
