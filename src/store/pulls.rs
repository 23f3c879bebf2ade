//! State of pulls. A pull that is not open is a tombstone: it takes no lock (P7).

use chrono::{DateTime, Utc};

use super::heads::head_forget_in_tx;
use super::plans::plans_close_in_tx;
use super::{LockChange, NewJob, Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};
use crate::model::{Cause, Lock, LockEventKind, PullRef, PullState, RepoId};

macro_rules! state_sql {
    ($lock:literal) => {
        concat!(
            "SELECT state FROM pulls WHERE repo = $1 AND number = $2",
            $lock
        )
    };
}

impl Store {
    /// Stores the state of a pull as the forge reported it. A pull that is open again may take locks again.
    pub async fn pull_seen(&self, pull: &PullRef, state: PullState, url: &str) -> Result<()> {
        let known = on_pool!(self, db => sqlx::query_as::<_, (PullState, String)>(
            "SELECT state, url FROM pulls WHERE repo = $1 AND number = $2")
            .bind(&pull.repo).bind(pull.subject).fetch_optional(db))?;
        if known.is_some_and(|known| known == (state, free_text(url).into_owned())) {
            return Ok(());
        }
        let mut tx = self.begin_shared().await?;
        self.pull_seen_in_tx(&mut tx, pull, state, url).await?;
        tx.commit().await
    }

    async fn pull_seen_in_tx(
        &self,
        tx: &mut Tx,
        pull: &PullRef,
        state: PullState,
        url: &str,
    ) -> Result<()> {
        execute!(
            tx,
            "INSERT INTO pulls (repo, number, state, url, updated_at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (repo, number) DO UPDATE SET state = excluded.state, url = excluded.url, \
             updated_at = excluded.updated_at",
            &pull.repo,
            pull.subject,
            state,
            free_text(url),
            self.now(),
        )
        .map(drop)
    }

    /// Closes a pull: it takes no lock from now on, its plans are discarded, its approvals of policy violations are
    /// forgotten, and its locks are released. Locks under which an apply is running are kept; that apply releases them
    /// when it ends. The jobs that `outbox` makes for the released locks are queued in the same transaction.
    pub async fn pull_close(
        &self,
        pull: &PullRef,
        state: PullState,
        url: &str,
        cause: &Cause,
        outbox: impl FnOnce(&[Lock]) -> Vec<NewJob>,
    ) -> Result<Vec<Lock>> {
        let (mut change, _) = LockChange::begin(self, pull, cause).await?;
        self.pull_seen_in_tx(&mut change.tx, pull, state, url)
            .await?;
        head_forget_in_tx(&mut change.tx, pull).await?;
        change.leave_all(pull).await?;
        let freed = change.free_all(pull, LockEventKind::Released).await?;
        plans_close_in_tx(&mut change.tx, pull).await?;
        change.push(outbox(&freed));
        change.commit().await.map(|()| freed)
    }

    /// Closes a pull that the forge does not have any more, like [`Self::pull_close`], but posts nothing.
    pub async fn pull_close_missing(&self, pull: &PullRef, cause: &Cause) -> Result<Vec<Lock>> {
        let (mut change, _) = LockChange::begin(self, pull, cause).await?;
        execute!(
            &mut change.tx,
            "UPDATE pulls SET state = $1, updated_at = $2 WHERE repo = $3 AND number = $4",
            PullState::Closed,
            self.now(),
            &pull.repo,
            pull.subject,
        )?;
        head_forget_in_tx(&mut change.tx, pull).await?;
        change.leave_all(pull).await?;
        let freed = change.free_all(pull, LockEventKind::Released).await?;
        plans_close_in_tx(&mut change.tx, pull).await?;
        change.commit().await.map(|()| freed)
    }

    /// Lists pulls and applications of a repository that hold a lock or are queued for one.
    pub async fn pull_list_of_repo(&self, repo: &RepoId) -> Result<Vec<PullRef>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, PullRow>(
            "SELECT repo, pull FROM locks WHERE repo = $1 UNION SELECT repo, pull FROM lock_waiters WHERE repo = $1")
            .bind(repo).fetch_all(db))?;
        let mut pulls: Vec<PullRef> = rows.into_iter().map(PullRef::from).collect();
        pulls.sort();
        Ok(pulls)
    }

    /// Returns the state of a pull, if it was ever seen.
    pub async fn pull_state(&self, pull: &PullRef) -> Result<Option<PullState>> {
        on_pool!(self, db => sqlx::query_scalar::<_, PullState>(state_sql!(""))
            .bind(&pull.repo).bind(pull.subject).fetch_optional(db))
    }

    /// Lists pulls that hold a lock or are queued for one, and that no complete list of open pulls has contained
    /// since a time. Leaves out applications.
    pub async fn pull_list_unseen(&self, since: DateTime<Utc>) -> Result<Vec<PullRef>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, PullRow>(
            "SELECT p.repo, p.pull FROM (SELECT repo, pull FROM locks UNION SELECT repo, pull FROM lock_waiters) p \
             WHERE p.pull > 0 AND NOT EXISTS (SELECT 1 FROM pull_heads h JOIN watched_repos w ON w.repo = h.repo \
             WHERE h.repo = p.repo AND h.number = p.pull AND w.complete_at >= $1)")
            .bind(kept_time(since)).fetch_all(db))?;
        let mut pulls: Vec<PullRef> = rows.into_iter().map(PullRef::from).collect();
        pulls.sort();
        Ok(pulls)
    }
}

/// Returns the state of a pull, if it was ever seen, and shares its row. Nobody can release its locks or close it
/// until the transaction ends.
pub(super) async fn pull_share_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Option<PullState>> {
    pull_state_in_tx(tx, pull, state_sql!(" FOR SHARE")).await
}

/// Returns the state of a pull, if it was ever seen, and locks its row. Nobody can change its locks and plans until
/// the transaction ends.
pub(super) async fn pull_hold_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Option<PullState>> {
    pull_state_in_tx(tx, pull, state_sql!(" FOR UPDATE")).await
}

/// Returns the title of an application.
pub(super) async fn title_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Option<String>> {
    on_tx!(tx, db => sqlx::query_scalar::<_, Option<String>>("SELECT title FROM pulls WHERE repo = $1 AND number = $2")
        .bind(&pull.repo).bind(pull.subject).fetch_optional(db))
    .map(Option::flatten)
}

/// Returns the state of a pull. On PostgreSQL it runs the query that locks the row. The only writing transaction of
/// SQLite needs no row lock.
async fn pull_state_in_tx(
    tx: &mut Tx,
    pull: &PullRef,
    postgres: &'static str,
) -> Result<Option<PullState>> {
    let sql = match tx {
        Tx::Sqlite(_) => state_sql!(""),
        Tx::Postgres(_) => postgres,
    };
    on_tx!(tx, db => sqlx::query_scalar::<_, PullState>(sql)
        .bind(&pull.repo).bind(pull.subject).fetch_optional(db))
}

#[derive(sqlx::FromRow)]
struct PullRow {
    repo: RepoId,
    pull: crate::model::Subject,
}

impl From<PullRow> for PullRef {
    fn from(row: PullRow) -> Self {
        Self {
            repo: row.repo,
            subject: row.pull,
        }
    }
}
