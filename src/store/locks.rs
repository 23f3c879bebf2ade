//! Project locks. One statement takes a lock, and the unique key on (repository with host, path, workspace, scope)
//! decides who holds it (P4). `lock_change` explains how locks are released and handed over.
//!
//! Races, by name:
//! - *two take at once*: the unique key lets one insert. The other gets no row back and reads who won.
//! - *close meets take*: taking reads the pull's row under a share lock, closing writes it. The second one sees the
//!   first, so a closed pull never ends up with a lock (P7).
//! - *release meets apply*: a release holds the pull's row exclusively, the gate of an apply shares it. So the
//!   release either sees and spares the apply, or the apply finds its lock gone.
//! - *released while we look*: if no row was inserted and no holder was found, the holder has just released the lock.
//!   Try again.
//!
//! Where projects have their own locks (`repo_locks.scope: project`), a lock of the whole directory and one of a
//! project in it exclude each other, too. No unique key can express that, so the statement checks it. Only two
//! servers that disagree about the scope could both win, and only at the very same moment.

use chrono::{DateTime, TimeDelta, Utc};

use super::lock_change::LockChange;
use super::of_repos::{listed, of_repos_postgres, of_repos_sqlite};
use super::people::{NamedAccountRow, account_column};
use super::pulls::pull_share_in_tx;
use super::{Result, Store, Tx, execute, free_text, on_pool, on_tx};
use crate::model::{
    Cause, Lock, LockEventKind, LockId, LockKey, NewLockEvent, ProjectKey, ProjectName, PullRef,
    PullState, RepoId, RepoPath, Subject, WorkspaceName,
};

/// Outcome of trying to take a lock.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeLock {
    /// The lock was free, and the pull holds it now.
    Taken(Lock),
    /// The pull held the lock already.
    AlreadyOurs(Lock),
    /// Another pull holds the lock.
    HeldBy(Lock),
    /// The pull that requests the lock is closed.
    PullClosed,
}

/// Request of a pull for a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockAttempt<'a> {
    /// Key of the lock.
    pub key: &'a LockKey,
    /// Project that the lock is for.
    pub project: &'a ProjectKey,
    /// Pull that requests the lock.
    pub pull: &'a PullRef,
    /// Page of the pull for people.
    pub pull_url: &'a str,
    /// Person or program that requests the lock, and the reason.
    pub cause: &'a Cause,
}

impl LockAttempt<'_> {
    fn contention(&self) -> sqlx::Error {
        sqlx::Error::Protocol(format!(
            "the lock of {} changed hands {TAKE_TRIES} times while {} was taking it",
            self.project, self.pull
        ))
    }

    /// Returns the outcome if one of the found locks excludes the requested one, or covers the project for the same
    /// pull.
    fn outcome(&self, found: Vec<Lock>) -> Option<TakeLock> {
        let (ours, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|lock| lock.pull == *self.pull);
        if let Some(lock) = others.into_iter().next() {
            return Some(TakeLock::HeldBy(lock));
        }
        ours.into_iter()
            .find(|lock| lock.key.covers(self.project))
            .map(TakeLock::AlreadyOurs)
    }
}

macro_rules! columns {
    () => {
        concat!(
            "id, repo, dir, workspace, scope, name, pull, pull_url, holder, reason, taken_at, active_at, \
             (SELECT t.title FROM pulls t WHERE t.repo = locks.repo AND t.number = locks.pull) AS title, ",
            crate::store::people::account_columns!("locks.account")
        )
    };
}

pub(super) use columns;

/// Takes a lock, unless a lock of another pull excludes it or another pull is queued for it.
macro_rules! take_sql {
    ($lock:literal) => {
        concat!(
            "INSERT INTO locks (id, repo, dir, workspace, scope, name, pull, pull_url, holder, reason, taken_at, active_at, \
             account) ",
            "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12 WHERE EXISTS ",
            "(SELECT 1 FROM pulls WHERE repo = $2 AND number = $7 AND state = 'open'",
            $lock,
            ") AND NOT EXISTS (SELECT 1 FROM locks o WHERE o.repo = $2 AND o.dir = $3 AND o.workspace = $4 ",
            "AND o.pull <> $7 AND (o.scope = '' OR $5 = '')) ",
            "AND NOT EXISTS (SELECT 1 FROM lock_waiters w WHERE w.repo = $2 AND w.dir = $3 AND w.workspace = $4 ",
            "AND w.pull <> $7 AND (w.scope = $5 OR w.scope = '' OR $5 = '')) ",
            "ON CONFLICT (repo, dir, workspace, scope) DO NOTHING RETURNING ",
            columns!()
        )
    };
}

/// Inserts a lock for a queued pull, in the transaction that released it.
pub(super) const INSERT_HANDED_ON: &str = "INSERT INTO locks (id, repo, dir, workspace, scope, name, pull, pull_url, holder, reason, taken_at, active_at, asks, account) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12, $13)";

macro_rules! insert_lock {
    ($store:expr, $attempt:expr, $sql:expr, $db:expr) => {
        sqlx::query_as::<_, LockRow>($sql)
            .bind(LockId::next(&*$store.ids))
            .bind(&$attempt.key.repo)
            .bind(&$attempt.key.dir)
            .bind(&$attempt.key.workspace)
            .bind(scope_column($attempt.key))
            .bind(name_column($attempt.project))
            .bind($attempt.pull.subject)
            .bind(free_text($attempt.pull_url))
            .bind(free_text(&$attempt.cause.actor.login))
            .bind(free_text(&$attempt.cause.reason))
            .bind($store.now())
            .bind(account_column($attempt.cause.actor.account))
            .fetch_all($db)
            .await
            .map(|mut rows| rows.pop().map(Lock::from))
    };
}

macro_rules! select_sql {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM locks ", $rest)
    };
}

pub(super) const BY_KEY: &str = select_sql!(
    "WHERE repo = $1 AND dir = $2 AND workspace = $3 AND (scope = $4 OR scope = '' OR $4 = '') ORDER BY id"
);
/// Selects what [`BY_KEY`] does while the pull is open.
const OF_OPEN_PULL: &str = select_sql!(
    "WHERE repo = $1 AND dir = $2 AND workspace = $3 AND (scope = $4 OR scope = '' OR $4 = '') \
     AND EXISTS (SELECT 1 FROM pulls p WHERE p.repo = $1 AND p.number = $5 AND p.state = 'open') ORDER BY id"
);
const OF_PLACE: &str = select_sql!(
    "WHERE repo = $1 AND dir = $2 AND workspace = $3 AND pull <> $4 AND EXISTS (SELECT 1 FROM lock_waiters w \
     WHERE w.repo = $1 AND w.dir = $2 AND w.workspace = $3 AND w.pull <> $4) ORDER BY id LIMIT 1"
);
const BY_ID: &str = select_sql!("WHERE id = $1");
const OF_PULL: &str = select_sql!("WHERE repo = $1 AND pull = $2");
pub(super) const OF_REPO: &str = select_sql!("WHERE repo = $1");
const NEWEST: &str = select_sql!("ORDER BY taken_at DESC, id DESC LIMIT $1");
const OLDER: &str =
    select_sql!("WHERE (taken_at, id) < ($1, $2) ORDER BY taken_at DESC, id DESC LIMIT $3");
/// Selects locks of repositories, on SQLite and PostgreSQL.
macro_rules! of_repos_sql {
    ($start:expr, $rest:literal) => {
        [
            concat!($start, " FROM locks WHERE ", of_repos_sqlite!(), $rest),
            concat!($start, " FROM locks WHERE ", of_repos_postgres!(), $rest),
        ]
    };
}

const NEWEST_OF_REPOS: [&str; 2] = of_repos_sql!(
    concat!("SELECT ", columns!()),
    " ORDER BY taken_at DESC, id DESC LIMIT $2"
);
const OLDER_OF_REPOS: [&str; 2] = of_repos_sql!(
    concat!("SELECT ", columns!()),
    " AND (taken_at, id) < ($2, $3) ORDER BY taken_at DESC, id DESC LIMIT $4"
);
const COUNT: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM locks LIMIT $1) AS counted";
const COUNT_OF_REPOS: [&str; 2] =
    of_repos_sql!("SELECT COUNT(*) FROM (SELECT 1", " LIMIT $2) AS counted");
const TURNS: &str = concat!(
    "SELECT asks, ",
    columns!(),
    " FROM locks WHERE repo = $1 AND pull = $2 AND asks IS NOT NULL ORDER BY taken_at, id"
);
const RENEWABLE: &str = "SELECT COUNT(*) FROM locks WHERE repo = $2 AND pull = $3 \
     AND (active_at < $4 OR (warned_at IS NOT NULL AND active_at < $1))";
const RENEW: &str = concat!(
    "UPDATE locks SET active_at = $1, warned_at = NULL WHERE repo = $2 AND pull = $3 \
     AND (active_at < $4 OR (warned_at IS NOT NULL AND active_at < $1)) RETURNING ",
    columns!()
);

/// Number of locks that are read at once when all are listed.
const PART: i64 = 5_000;
/// Maximum number of locks in a list, which strangers may request where the pages need no password.
pub const MOST_LISTED: usize = 50_000;

/// Number of tries before a holder that changes faster than we can read it is reported as an error.
const TAKE_TRIES: usize = 16;

impl Store {
    /// Takes the lock of a project for a pull, or returns its holder. Re-entrant for the same pull.
    pub async fn lock_take(&self, attempt: &LockAttempt<'_>) -> Result<TakeLock> {
        // A file is read as fast in the transaction.
        if self.is_shared()
            && let Some(lock) = self.lock_ours(attempt).await?
        {
            return Ok(TakeLock::AlreadyOurs(lock));
        }
        let mut tx = self.begin_shared().await?;
        let taken = self.lock_take_in_tx(&mut tx, attempt).await?;
        if let TakeLock::Taken(lock) = &taken {
            self.lock_events_in_tx(&mut tx, vec![taken_event(lock, attempt.cause)])
                .await?;
            tx.commit().await?;
        } else {
            tx.roll_back().await?;
        }
        Ok(taken)
    }

    /// Returns the lock if the pull is open and holds it already, as after every plan but the first. Then there is
    /// nothing to write, and one query answers as well as a transaction. A lock of another scope, from before the scope of
    /// locks was changed, does not count.
    async fn lock_ours(&self, attempt: &LockAttempt<'_>) -> Result<Option<Lock>> {
        let found = on_pool!(self, db => sqlx::query_as::<_, LockRow>(OF_OPEN_PULL)
            .bind(&attempt.key.repo).bind(&attempt.key.dir).bind(&attempt.key.workspace).bind(scope_column(attempt.key))
            .bind(attempt.pull.subject).fetch_all(db))?;
        Ok(
            match attempt.outcome(found.into_iter().map(Lock::from).collect()) {
                Some(TakeLock::AlreadyOurs(lock)) => {
                    Some(lock).filter(|lock| lock.key == *attempt.key)
                }
                Some(TakeLock::Taken(_) | TakeLock::HeldBy(_) | TakeLock::PullClosed) | None => {
                    None
                }
            },
        )
    }

    /// Takes a lock as a part of a transaction. The pull stays open and keeps its locks until the transaction ends.
    /// The caller stores the event.
    pub(super) async fn lock_take_in_tx(
        &self,
        tx: &mut Tx,
        attempt: &LockAttempt<'_>,
    ) -> Result<TakeLock> {
        for _ in 0..TAKE_TRIES {
            let inserted = match tx {
                Tx::Sqlite(tx) => insert_lock!(self, attempt, take_sql!(""), &mut **tx),
                Tx::Postgres(tx) => insert_lock!(self, attempt, take_sql!(" FOR SHARE"), &mut **tx),
            };
            if let Some(lock) = inserted? {
                return Ok(TakeLock::Taken(lock));
            }
            if pull_share_in_tx(tx, attempt.pull).await? != Some(PullState::Open) {
                return Ok(TakeLock::PullClosed);
            }
            let found = on_tx!(tx, db => sqlx::query_as::<_, LockRow>(BY_KEY)
                .bind(&attempt.key.repo).bind(&attempt.key.dir).bind(&attempt.key.workspace).bind(scope_column(attempt.key))
                .fetch_all(db))?;
            if let Some(outcome) = attempt.outcome(found.into_iter().map(Lock::from).collect()) {
                return Ok(outcome);
            }
            if let Some(before) = self.lock_before_in_tx(tx, attempt).await? {
                return Ok(TakeLock::HeldBy(before));
            }
        }
        Err(attempt.contention())
    }

    /// Returns the lock that another pull is queued for, in the same directory and workspace. Where projects have
    /// their own locks, a pull may be queued for the lock of the whole directory while locks in it are free. Nobody
    /// overtakes it.
    async fn lock_before_in_tx(
        &self,
        tx: &mut Tx,
        attempt: &LockAttempt<'_>,
    ) -> Result<Option<Lock>> {
        on_tx!(tx, db => sqlx::query_as::<_, LockRow>(OF_PLACE)
            .bind(&attempt.key.repo).bind(&attempt.key.dir).bind(&attempt.key.workspace).bind(attempt.pull.subject)
            .fetch_optional(db))
        .map(|row| row.map(Lock::from))
    }

    /// Releases the lock of a project, if the pull still holds it and no apply is running under it.
    pub async fn lock_release(
        &self,
        pull: &PullRef,
        project: &ProjectKey,
        cause: &Cause,
    ) -> Result<bool> {
        let (mut change, _) = LockChange::begin_shared(self, pull, cause).await?;
        let freed = change.free_project(pull, project).await?;
        change.commit().await.map(|()| !freed.is_empty())
    }

    /// Releases all locks of a pull, except those under which an apply is running. Also removes the pull from every
    /// queue, and discards its plans.
    pub async fn lock_release_all(&self, pull: &PullRef, cause: &Cause) -> Result<Vec<Lock>> {
        let (mut change, _) = LockChange::begin_shared(self, pull, cause).await?;
        change.leave_all(pull).await?;
        let freed = change.free_all(pull, LockEventKind::Released).await?;
        super::plans::plans_discard_in_tx(&mut change.tx, pull).await?;
        change.commit().await.map(|()| freed)
    }

    /// Restarts the time limits of the locks of a pull, because the pull was active. Skips a lock that was active
    /// less than `renew_interval` ago, unless its pull was warned.
    pub async fn lock_renew(
        &self,
        pull: &PullRef,
        renew_interval: TimeDelta,
        cause: &Cause,
    ) -> Result<Vec<Lock>> {
        let now = self.now();
        let due = on_pool!(self, db => sqlx::query_scalar::<_, i64>(RENEWABLE)
            .bind(now).bind(&pull.repo).bind(pull.subject).bind(now - renew_interval).fetch_one(db))?;
        if due == 0 {
            return Ok(Vec::new());
        }
        let (mut change, _) = LockChange::begin(self, pull, cause).await?;
        let rows = on_tx!(&mut change.tx, db => sqlx::query_as::<_, LockRow>(RENEW)
            .bind(now).bind(&pull.repo).bind(pull.subject).bind(now - renew_interval).fetch_all(db))?;
        let mut renewed: Vec<Lock> = rows.into_iter().map(Lock::from).collect();
        sort_by_key(&mut renewed);
        for lock in &renewed {
            change.record(LockEventKind::Renewed, &lock.key, &lock.pull);
        }
        change.commit().await.map(|()| renewed)
    }

    /// Returns the lock with this identifier.
    pub async fn lock_get(&self, id: LockId) -> Result<Option<Lock>> {
        on_pool!(self, db => sqlx::query_as::<_, LockRow>(BY_ID).bind(id).fetch_optional(db))
            .map(|row| row.map(Lock::from))
    }

    /// Returns the holder of a lock, or of one that excludes it.
    pub async fn lock_holder(&self, key: &LockKey) -> Result<Option<Lock>> {
        on_pool!(self, db => sqlx::query_as::<_, LockRow>(BY_KEY)
            .bind(&key.repo).bind(&key.dir).bind(&key.workspace).bind(scope_column(key)).fetch_all(db))
        .map(|rows| rows.into_iter().next().map(Lock::from))
    }

    /// Lists all locks, newest first, at most [`MOST_LISTED`].
    pub async fn lock_list(&self) -> Result<Vec<Lock>> {
        self.lock_list_in_parts(None).await
    }

    /// Lists the locks of these repositories, newest first, at most [`MOST_LISTED`].
    pub async fn lock_list_of_repos(&self, repos: &[RepoId]) -> Result<Vec<Lock>> {
        self.lock_list_in_parts(Some(repos)).await
    }

    async fn lock_list_in_parts(&self, repos: Option<&[RepoId]>) -> Result<Vec<Lock>> {
        let mut locks: Vec<Lock> = Vec::new();
        loop {
            let part = self.lock_part(repos, locks.last(), PART).await?;
            let is_last = usize::try_from(PART).is_ok_and(|full| part.len() < full);
            locks.extend(part);
            if is_last || locks.len() >= MOST_LISTED {
                return Ok(locks);
            }
        }
    }

    /// Lists the newest locks, or those older than `before`: of these repositories or of all, newest first.
    pub async fn lock_part(
        &self,
        repos: Option<&[RepoId]>,
        before: Option<&Lock>,
        limit: i64,
    ) -> Result<Vec<Lock>> {
        let rows = match (repos.map(listed), before) {
            (None, None) => {
                on_pool!(self, db => sqlx::query_as::<_, LockRow>(NEWEST).bind(limit).fetch_all(db))
            }
            (None, Some(before)) => on_pool!(self, db => sqlx::query_as::<_, LockRow>(OLDER)
                .bind(before.taken_at).bind(before.id).bind(limit).fetch_all(db)),
            (Some(repos), None) => {
                let sql = self.either(NEWEST_OF_REPOS[0], NEWEST_OF_REPOS[1]);
                on_pool!(self, db => sqlx::query_as::<_, LockRow>(sql).bind(repos).bind(limit).fetch_all(db))
            }
            (Some(repos), Some(before)) => {
                let sql = self.either(OLDER_OF_REPOS[0], OLDER_OF_REPOS[1]);
                on_pool!(self, db => sqlx::query_as::<_, LockRow>(sql)
                    .bind(repos).bind(before.taken_at).bind(before.id).bind(limit).fetch_all(db))
            }
        };
        rows.map(|rows| rows.into_iter().map(Lock::from).collect())
    }

    /// Counts the locks of these repositories or of all, but not beyond `limit`.
    pub async fn lock_count(&self, repos: Option<&[RepoId]>, limit: i64) -> Result<i64> {
        match repos.map(listed) {
            None => {
                on_pool!(self, db => sqlx::query_scalar::<_, i64>(COUNT).bind(limit).fetch_one(db))
            }
            Some(repos) => {
                let sql = self.either(COUNT_OF_REPOS[0], COUNT_OF_REPOS[1]);
                on_pool!(self, db => sqlx::query_scalar::<_, i64>(sql).bind(repos).bind(limit).fetch_one(db))
            }
        }
    }

    /// Lists the locks of one pull, by directory and workspace.
    pub async fn lock_list_of_pull(&self, pull: &PullRef) -> Result<Vec<Lock>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, LockRow>(OF_PULL)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        let mut locks: Vec<Lock> = rows.into_iter().map(Lock::from).collect();
        sort_by_key(&mut locks);
        Ok(locks)
    }
}

/// Returns one of the locks of a pull, as a part of a transaction.
pub(super) async fn lock_of_pull_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Option<Lock>> {
    on_tx!(tx, db => sqlx::query_as::<_, LockRow>(OF_PULL).bind(&pull.repo).bind(pull.subject).fetch_optional(db))
        .map(|row| row.map(Lock::from))
}

impl LockChange<'_> {
    /// Takes a lock as a part of this change.
    pub(crate) async fn take(&mut self, attempt: &LockAttempt<'_>) -> Result<TakeLock> {
        let taken = self.store.lock_take_in_tx(&mut self.tx, attempt).await?;
        if let TakeLock::Taken(lock) = &taken {
            self.record(LockEventKind::Taken, &lock.key, &lock.pull);
        }
        Ok(taken)
    }

    /// Returns the locks that were handed over to the pull and are not used yet, each with the plans that were
    /// requested. Marks them as used.
    pub(crate) async fn turns(&mut self, pull: &PullRef) -> Result<Vec<(Lock, String)>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, TurnRow>(TURNS)
            .bind(&pull.repo).bind(pull.subject).fetch_all(db))?;
        execute!(
            &mut self.tx,
            "UPDATE locks SET asks = NULL WHERE repo = $1 AND pull = $2 AND asks IS NOT NULL",
            &pull.repo,
            pull.subject,
        )?;
        Ok(rows
            .into_iter()
            .map(|row| (row.lock.into(), row.asks))
            .collect())
    }

    /// Returns the lock with this identifier.
    pub(crate) async fn lock(&mut self, id: LockId) -> Result<Option<Lock>> {
        on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(BY_ID).bind(id).fetch_optional(db))
            .map(|row| row.map(Lock::from))
    }

    /// Lists all locks of a repository.
    pub(crate) async fn locks(&mut self, repo: &RepoId) -> Result<Vec<Lock>> {
        let rows = on_tx!(&mut self.tx, db => sqlx::query_as::<_, LockRow>(OF_REPO).bind(repo).fetch_all(db))?;
        let mut locks: Vec<Lock> = rows.into_iter().map(Lock::from).collect();
        sort_by_key(&mut locks);
        Ok(locks)
    }
}

pub(super) fn taken_event(lock: &Lock, cause: &Cause) -> NewLockEvent {
    NewLockEvent {
        kind: LockEventKind::Taken,
        key: Some(lock.key.clone()),
        scope: None,
        pull: Some(lock.pull.clone()),
        concern: None,
        cause: cause.clone(),
    }
}

/// Sorts locks here and not in the database, because PostgreSQL sorts texts by the rules of its locale.
fn sort_by_key(locks: &mut [Lock]) {
    locks.sort_by(|a, b| a.key.cmp(&b.key));
}

/// Returns the name of a project, or the empty text, so that projects without a name take part in unique keys.
pub(super) fn name_column(project: &ProjectKey) -> String {
    project
        .name
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Returns the name of the only project that a lock is for, or the empty text.
pub(super) fn scope_column(key: &LockKey) -> String {
    key.project
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Reverses [`name_column`] and [`scope_column`].
pub(super) fn name_from_column(name: &str) -> Option<ProjectName> {
    name.parse().ok()
}

#[derive(sqlx::FromRow)]
pub(super) struct LockRow {
    id: LockId,
    repo: RepoId,
    dir: RepoPath,
    workspace: WorkspaceName,
    scope: String,
    name: String,
    pull: Subject,
    pull_url: String,
    holder: String,
    reason: String,
    taken_at: DateTime<Utc>,
    active_at: DateTime<Utc>,
    title: Option<String>,
    #[sqlx(flatten)]
    account: NamedAccountRow,
}

#[derive(sqlx::FromRow)]
struct TurnRow {
    #[sqlx(flatten)]
    lock: LockRow,
    asks: String,
}

impl From<LockRow> for Lock {
    fn from(row: LockRow) -> Self {
        let project = ProjectKey {
            dir: row.dir,
            workspace: row.workspace,
            name: name_from_column(&row.name),
        };
        let scope = name_from_column(&row.scope);
        Self {
            id: row.id,
            key: LockKey {
                project: scope,
                ..LockKey::of(&row.repo, &project)
            },
            project,
            pull: PullRef {
                repo: row.repo,
                subject: row.pull,
            },
            title: row.title,
            pull_url: row.pull_url,
            holder: row.account.person(row.holder),
            reason: row.reason,
            taken_at: row.taken_at,
            active_at: row.active_at,
        }
    }
}
