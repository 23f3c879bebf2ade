//! Warns about and expires locks whose pulls are not active. A lock stays as it is while a command of its pull is
//! unfinished, or if the pull was active since the caller read it. The transaction that changes the lock checks both.

use chrono::{DateTime, Utc};

use super::lock_change::LockChange;
use super::locks::{LockRow, columns};
use super::{NewJob, Result, Store, on_pool, on_tx};
use crate::model::{Cause, Lock, LockEventKind, LockId, ProjectKey, PullRef};

const PAGE: &str = concat!(
    "SELECT warned_at, ",
    columns!(),
    " FROM locks WHERE active_at <= $1 AND (active_at > $2 OR (active_at = $2 AND id > $3)) ORDER BY active_at, id LIMIT 500"
);
const WARN: &str = concat!(
    "UPDATE locks SET warned_at = $1 WHERE id = $2 AND active_at <= $3 AND warned_at IS NULL \
     AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.repo = locks.repo AND c.pull = locks.pull AND c.state <> 'finished') \
     RETURNING ",
    columns!()
);
const STILL_IDLE: &str = "SELECT COUNT(*) FROM locks WHERE id = $1 AND active_at <= $2 AND warned_at IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.repo = locks.repo AND c.pull = locks.pull AND c.state <> 'finished')";

/// A lock, and the warning that it will expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleLock {
    pub lock: Lock,
    /// Time when the pull was warned.
    pub warned_at: Option<DateTime<Utc>>,
}

/// A lock that was released because its pull was not active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredLock {
    pub lock: Lock,
    /// True if something was applied under the lock.
    pub applied: bool,
}

impl Store {
    /// Lists locks whose pulls were not active after `until`, the longest idle first. Returns one page, beginning
    /// after `after` if it is given. An empty page is the last one.
    pub async fn lock_list_idle(
        &self,
        until: DateTime<Utc>,
        after: Option<&Lock>,
    ) -> Result<Vec<IdleLock>> {
        let from = after.map_or(DateTime::UNIX_EPOCH, |lock| lock.active_at);
        let id = after.map_or(LockId::from(uuid::Uuid::nil()), |lock| lock.id);
        on_pool!(self, db => sqlx::query_as::<_, IdleRow>(PAGE).bind(until).bind(from).bind(id).fetch_all(db))
            .map(|rows| rows.into_iter().map(IdleLock::from).collect())
    }

    /// Marks locks as warned if they are still as idle as in `seen`, and returns them. The jobs that `outbox` makes
    /// for them are queued in the same transaction.
    pub async fn lock_warn(
        &self,
        pull: &PullRef,
        seen: &[Lock],
        cause: &Cause,
        outbox: impl FnOnce(&[Lock]) -> Vec<NewJob>,
    ) -> Result<Vec<Lock>> {
        let (mut change, _) = LockChange::begin(self, pull, cause).await?;
        let mut warned = Vec::new();
        for lock in seen {
            let row = on_tx!(&mut change.tx, db => sqlx::query_as::<_, LockRow>(WARN)
                .bind(self.now()).bind(lock.id).bind(lock.active_at).fetch_optional(db))?;
            warned.extend(row.map(Lock::from));
        }
        if !warned.is_empty() {
            change.push(outbox(&warned));
        }
        change.commit().await.map(|()| warned)
    }

    /// Releases locks and discards the plans made under them, if they are still as idle as in `seen` and the pull was
    /// warned. The jobs that `outbox` makes for them are queued in the same transaction.
    pub async fn lock_expire(
        &self,
        pull: &PullRef,
        seen: &[Lock],
        cause: &Cause,
        outbox: impl FnOnce(&[ExpiredLock]) -> Vec<NewJob>,
    ) -> Result<Vec<ExpiredLock>> {
        let (mut change, _) = LockChange::begin(self, pull, cause).await?;
        let applied = change.applied(pull).await?;
        let mut expired = Vec::new();
        for lock in seen {
            expired.extend(change.expire(lock, &applied).await?);
        }
        if !expired.is_empty() {
            change.push(outbox(&expired));
        }
        change.commit().await.map(|()| expired)
    }
}

impl LockChange<'_> {
    async fn expire(&mut self, seen: &Lock, applied: &[ProjectKey]) -> Result<Option<ExpiredLock>> {
        let idle = on_tx!(&mut self.tx, db => sqlx::query_scalar::<_, i64>(STILL_IDLE)
            .bind(seen.id).bind(seen.active_at).fetch_one(db))?;
        if idle == 0 {
            return Ok(None);
        }
        let Some(lock) = self.free_one(seen.id, LockEventKind::Expired).await? else {
            return Ok(None);
        };
        self.discard_plans(&lock).await?;
        let applied = applied.iter().any(|project| lock.key.covers(project));
        Ok(Some(ExpiredLock { lock, applied }))
    }
}

#[derive(sqlx::FromRow)]
struct IdleRow {
    #[sqlx(flatten)]
    lock: LockRow,
    warned_at: Option<DateTime<Utc>>,
}

impl From<IdleRow> for IdleLock {
    fn from(row: IdleRow) -> Self {
        Self {
            lock: row.lock.into(),
            warned_at: row.warned_at,
        }
    }
}
