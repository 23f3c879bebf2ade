//! Project locks. One statement takes a lock, and the unique key on (repository with host, path, workspace) decides
//! who holds it (P4).
//!
//! Races, by name:
//! - *two take at once*: the unique key lets one insert, the other gets no row back and reads who won;
//! - *close meets take*: taking reads the pull's row under a share lock, closing writes it; whichever comes second
//!   sees the other, so a closed pull never ends up with a lock (P7);
//! - *release meets apply*: giving back holds the pull's row, the gate of an apply shares it; so an apply is either
//!   seen and spared, or finds its lock gone;
//! - *released while we look*: no row inserted and no holder found means the holder just left; take again.

use chrono::{DateTime, Utc};

use super::pulls::{pull_hold_in_tx, pull_share_in_tx};
use super::{NewJob, Pool, Result, Store, Tx, execute, free_text, on_pool, on_tx};
use crate::model::{
    Lock, LockId, LockKey, ProjectKey, ProjectName, PullNumber, PullRef, PullState, RepoId, RepoPath, WorkspaceName,
};

/// What came of trying to take a lock.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeLock {
    /// Free before, ours now.
    Taken(Lock),
    /// The same pull held it already.
    AlreadyOurs(Lock),
    /// Another pull holds it.
    HeldBy(Lock),
    /// The pull that asks is closed.
    PullClosed,
}

/// What is needed to take a lock.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub pull: &'a PullRef,
    pub pull_url: &'a str,
    pub project: &'a ProjectKey,
    pub holder: &'a str,
    pub reason: &'a str,
}

impl Wanted<'_> {
    fn refused_by(&self, lock: Lock) -> TakeLock {
        if lock.pull == *self.pull { TakeLock::AlreadyOurs(lock) } else { TakeLock::HeldBy(lock) }
    }

    fn restless(&self) -> sqlx::Error {
        sqlx::Error::Protocol(format!(
            "the lock of {} changed hands {TAKE_TRIES} times while {} was taking it",
            self.project, self.pull
        ))
    }
}

macro_rules! take_sql {
    ($lock:literal) => {
        concat!(
            "INSERT INTO locks (id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at) ",
            "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 WHERE EXISTS ",
            "(SELECT 1 FROM pulls WHERE repo = $2 AND number = $6 AND state = 'open'",
            $lock,
            ") ON CONFLICT (repo, dir, workspace) DO NOTHING ",
            "RETURNING id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at"
        )
    };
}

/// Reads to the end: SQLite commits a statement of its own only then.
macro_rules! insert_lock {
    ($store:expr, $wanted:expr, $sql:expr, $db:expr) => {
        sqlx::query_as::<_, LockRow>($sql)
            .bind(LockId::next(&*$store.ids))
            .bind(&$wanted.pull.repo)
            .bind(&$wanted.project.dir)
            .bind(&$wanted.project.workspace)
            .bind(name_column($wanted.project))
            .bind($wanted.pull.number)
            .bind(free_text($wanted.pull_url))
            .bind(free_text($wanted.holder))
            .bind(free_text($wanted.reason))
            .bind($store.now())
            .fetch_all($db)
            .await
            .map(|mut rows| rows.pop().map(Lock::from))
    };
}

const BY_KEY: &str = "SELECT id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at FROM locks \
     WHERE repo = $1 AND dir = $2 AND workspace = $3";
const BY_KEY_FOR_OPEN_PULL: &str = "SELECT id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at FROM locks \
     WHERE repo = $1 AND dir = $2 AND workspace = $3 \
     AND EXISTS (SELECT 1 FROM pulls p WHERE p.repo = $1 AND p.number = $4 AND p.state = 'open')";
const BY_ID: &str =
    "SELECT id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at FROM locks WHERE id = $1";
const OF_PULL: &str = "SELECT id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at FROM locks \
     WHERE repo = $1 AND pull = $2";
const ALL: &str = "SELECT id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at FROM locks \
     ORDER BY taken_at DESC, id DESC LIMIT 10000";
/// A lock under which an apply is running is not taken away from it. The pull must be held, or an apply could begin
/// between the look and the deletion.
macro_rules! release_sql {
    ($which:literal) => {
        concat!(
            "DELETE FROM locks WHERE ",
            $which,
            " AND NOT EXISTS (SELECT 1 FROM plans p WHERE p.repo = locks.repo AND p.pull = locks.pull ",
            "AND p.dir = locks.dir AND p.workspace = locks.workspace AND p.state = 'applying') ",
            "RETURNING id, repo, dir, workspace, name, pull, pull_url, holder, reason, taken_at"
        )
    };
}
/// Tries before a holder that comes and goes faster than we can read is reported as an error.
const TAKE_TRIES: usize = 16;

impl Store {
    /// Takes the lock of a project for a pull, or says who holds it. Re-entrant for the same pull.
    pub async fn lock_take(
        &self,
        pull: &PullRef,
        pull_url: &str,
        project: &ProjectKey,
        holder: &str,
        reason: &str,
    ) -> Result<TakeLock> {
        let wanted = Wanted { pull, pull_url, project, holder, reason };
        if self.is_fenced() {
            let mut tx = self.begin().await?;
            let taken = self.lock_take_in_tx(&mut tx, &wanted).await?;
            return tx.commit().await.map(|()| taken);
        }
        for _ in 0..TAKE_TRIES {
            if let Some(lock) = self.lock_insert(&wanted).await? {
                return Ok(TakeLock::Taken(lock));
            }
            if let Some(refused) = self.lock_look(&wanted).await? {
                return Ok(refused);
            }
        }
        Err(wanted.restless())
    }

    /// The one statement, as a transaction of its own.
    async fn lock_insert(&self, wanted: &Wanted<'_>) -> Result<Option<Lock>> {
        match &self.pool {
            Pool::Sqlite { write, .. } => insert_lock!(self, wanted, take_sql!(""), write),
            Pool::Postgres(pool) => insert_lock!(self, wanted, take_sql!(" FOR SHARE"), pool),
        }
    }

    /// Why the lock could not be taken. `None`: whoever had it just left.
    async fn lock_look(&self, wanted: &Wanted<'_>) -> Result<Option<TakeLock>> {
        let held = on_pool!(self, db => sqlx::query_as::<_, LockRow>(BY_KEY_FOR_OPEN_PULL)
            .bind(&wanted.pull.repo).bind(&wanted.project.dir).bind(&wanted.project.workspace)
            .bind(wanted.pull.number).fetch_optional(db))?;
        match held {
            Some(row) => Ok(Some(wanted.refused_by(row.into()))),
            None if self.pull_state(wanted.pull).await? == Some(PullState::Open) => Ok(None),
            None => Ok(Some(TakeLock::PullClosed)),
        }
    }

    /// The same as a part of a transaction, in which the pull stays open and keeps its locks until the end.
    pub(super) async fn lock_take_in_tx(&self, tx: &mut Tx, wanted: &Wanted<'_>) -> Result<TakeLock> {
        for _ in 0..TAKE_TRIES {
            let inserted = match tx {
                Tx::Sqlite(tx) => insert_lock!(self, wanted, take_sql!(""), &mut **tx),
                Tx::Postgres(tx) => insert_lock!(self, wanted, take_sql!(" FOR SHARE"), &mut **tx),
            };
            if let Some(lock) = inserted? {
                return Ok(TakeLock::Taken(lock));
            }
            if pull_share_in_tx(tx, wanted.pull).await? != Some(PullState::Open) {
                return Ok(TakeLock::PullClosed);
            }
            let held = on_tx!(tx, db => sqlx::query_as::<_, LockRow>(BY_KEY)
                .bind(&wanted.pull.repo).bind(&wanted.project.dir).bind(&wanted.project.workspace)
                .fetch_optional(db))?;
            if let Some(row) = held {
                return Ok(wanted.refused_by(row.into()));
            }
        }
        Err(wanted.restless())
    }

    /// Gives back one lock of a pull, if that pull still holds it and no apply is running under it.
    pub async fn lock_release(&self, pull: &PullRef, project: &ProjectKey) -> Result<bool> {
        let mut tx = self.begin().await?;
        pull_hold_in_tx(&mut tx, pull).await?;
        let rows = execute!(
            &mut tx,
            release_sql!("repo = $1 AND dir = $2 AND workspace = $3 AND pull = $4"),
            &pull.repo,
            &project.dir,
            &project.workspace,
            pull.number,
        )?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Gives back every lock of a pull, but for those under which an apply is running, and discards its plans.
    pub async fn lock_release_all(&self, pull: &PullRef) -> Result<Vec<Lock>> {
        let mut tx = self.begin().await?;
        pull_hold_in_tx(&mut tx, pull).await?;
        let freed = locks_release_in_tx(&mut tx, pull).await?;
        super::plans::plans_discard_in_tx(&mut tx, pull).await?;
        tx.commit().await.map(|()| freed)
    }

    /// Gives back one lock, whoever holds it, and discards the plans made under it. `None`: it is not held any more, or
    /// an apply is running under it. What `outbox` makes of the lock is put into the queue in the same transaction.
    pub async fn lock_discard(&self, id: LockId, outbox: impl FnOnce(&Lock) -> Vec<NewJob>) -> Result<Option<Lock>> {
        let Some(held) = self.lock_get(id).await? else {
            return Ok(None);
        };
        let mut tx = self.begin().await?;
        pull_hold_in_tx(&mut tx, &held.pull).await?;
        let row = on_tx!(&mut tx, db => sqlx::query_as::<_, LockRow>(release_sql!("id = $1"))
            .bind(id).fetch_optional(db))?;
        let lock = row.map(Lock::from);
        if let Some(lock) = &lock {
            super::plans::plans_discard_of_lock_in_tx(&mut tx, lock).await?;
            self.outbox_in_tx(&mut tx, &outbox(lock)).await?;
        }
        tx.commit().await.map(|()| lock)
    }

    /// One lock.
    pub async fn lock_get(&self, id: LockId) -> Result<Option<Lock>> {
        on_pool!(self, db => sqlx::query_as::<_, LockRow>(BY_ID).bind(id).fetch_optional(db))
            .map(|row| row.map(Lock::from))
    }

    /// Who holds a lock.
    pub async fn lock_holder(&self, key: &LockKey) -> Result<Option<Lock>> {
        on_pool!(self, db => sqlx::query_as::<_, LockRow>(BY_KEY)
            .bind(&key.repo).bind(&key.dir).bind(&key.workspace).fetch_optional(db))
        .map(|row| row.map(Lock::from))
    }

    /// Every lock, newest first.
    pub async fn lock_list(&self) -> Result<Vec<Lock>> {
        on_pool!(self, db => sqlx::query_as::<_, LockRow>(ALL).fetch_all(db))
            .map(|rows| rows.into_iter().map(Lock::from).collect())
    }

    /// The locks of one pull, by directory and workspace.
    pub async fn lock_list_of_pull(&self, pull: &PullRef) -> Result<Vec<Lock>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, LockRow>(OF_PULL)
            .bind(&pull.repo).bind(pull.number).fetch_all(db))?;
        let mut locks: Vec<Lock> = rows.into_iter().map(Lock::from).collect();
        sort_by_key(&mut locks);
        Ok(locks)
    }
}

/// Gives back what it may; the caller holds the pull.
pub(super) async fn locks_release_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Vec<Lock>> {
    let rows = on_tx!(tx, db => sqlx::query_as::<_, LockRow>(release_sql!("repo = $1 AND pull = $2"))
        .bind(&pull.repo).bind(pull.number).fetch_all(db))?;
    let mut freed: Vec<Lock> = rows.into_iter().map(Lock::from).collect();
    sort_by_key(&mut freed);
    Ok(freed)
}

/// Not left to the database: PostgreSQL sorts texts by the rules of its locale.
fn sort_by_key(locks: &mut [Lock]) {
    locks.sort_by(|a, b| a.key.cmp(&b.key));
}

/// A project without a name is kept as the empty text, so that it takes part in unique keys.
pub(super) fn name_column(project: &ProjectKey) -> String {
    project.name.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The way back from [`name_column`].
pub(super) fn name_from_column(name: &str) -> Option<ProjectName> {
    name.parse().ok()
}

#[derive(sqlx::FromRow)]
struct LockRow {
    id: LockId,
    repo: RepoId,
    dir: RepoPath,
    workspace: WorkspaceName,
    name: String,
    pull: PullNumber,
    pull_url: String,
    holder: String,
    reason: String,
    taken_at: DateTime<Utc>,
}

impl From<LockRow> for Lock {
    fn from(row: LockRow) -> Self {
        let name = name_from_column(&row.name);
        let project = ProjectKey { dir: row.dir, workspace: row.workspace, name };
        Self {
            id: row.id,
            key: LockKey::of(&row.repo, &project),
            project,
            pull: PullRef { repo: row.repo, number: row.pull },
            pull_url: row.pull_url,
            holder: row.holder,
            reason: row.reason,
            taken_at: row.taken_at,
        }
    }
}
