//! What is known of pulls. A pull that is not open is a tombstone: no lock can be taken for it (P7).

use chrono::{DateTime, Utc};

use super::heads::head_forget_in_tx;
use super::plans::plans_discard_in_tx;
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
    /// Notes the state of a pull as the forge told it. A pull that is open again may take locks again.
    pub async fn pull_seen(&self, pull: &PullRef, state: PullState, url: &str) -> Result<()> {
        let mut tx = self.begin().await?;
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
            pull.number,
            state,
            free_text(url),
            self.now(),
        )
        .map(drop)
    }

    /// Closes a pull: from here on it takes no lock, its plans are discarded, and its locks are given back, but for
    /// those under which an apply is running right now; that apply gives its lock back itself when it ends.
    /// What `outbox` makes of the freed locks is put into the queue in the same transaction.
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
        plans_discard_in_tx(&mut change.tx, pull).await?;
        change.push(outbox(&freed));
        change.commit().await.map(|()| freed)
    }

    /// Closes a pull that the forge does not have any more, as [`Self::pull_close`] does; nobody is there to be told.
    pub async fn pull_gone(&self, pull: &PullRef, cause: &Cause) -> Result<Vec<Lock>> {
        let (mut change, _) = LockChange::begin(self, pull, cause).await?;
        execute!(
            &mut change.tx,
            "UPDATE pulls SET state = $1, updated_at = $2 WHERE repo = $3 AND number = $4",
            PullState::Closed,
            self.now(),
            &pull.repo,
            pull.number,
        )?;
        head_forget_in_tx(&mut change.tx, pull).await?;
        change.leave_all(pull).await?;
        let freed = change.free_all(pull, LockEventKind::Released).await?;
        plans_discard_in_tx(&mut change.tx, pull).await?;
        change.commit().await.map(|()| freed)
    }

    /// Pulls and applications of a repository that hold a lock or wait for one.
    pub async fn pull_list_of_repo(&self, repo: &RepoId) -> Result<Vec<PullRef>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, PullRow>(
            "SELECT repo, pull FROM locks WHERE repo = $1 UNION SELECT repo, pull FROM lock_waiters WHERE repo = $1")
            .bind(repo).fetch_all(db))?;
        let mut pulls: Vec<PullRef> = rows.into_iter().map(PullRef::from).collect();
        pulls.sort();
        Ok(pulls)
    }

    /// The state of a pull, if it was ever seen.
    pub async fn pull_state(&self, pull: &PullRef) -> Result<Option<PullState>> {
        on_pool!(self, db => sqlx::query_scalar::<_, PullState>(state_sql!(""))
            .bind(&pull.repo).bind(pull.number).fetch_optional(db))
    }

    /// Pulls, and no applications, that hold a lock or wait for one, and that no list of open pulls was compared with since a time.
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

/// The pull's state, if it was ever seen; nobody can give back its locks or close it until the transaction ends.
pub(super) async fn pull_share_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Option<PullState>> {
    pull_state_in_tx(tx, pull, state_sql!(" FOR SHARE")).await
}

/// The pull's state, if it was ever seen; nobody can do anything to its locks and plans until the transaction ends.
pub(super) async fn pull_hold_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Option<PullState>> {
    pull_state_in_tx(tx, pull, state_sql!(" FOR UPDATE")).await
}

/// What an application is called.
pub(super) async fn title_in_tx(tx: &mut Tx, pull: &PullRef) -> Result<Option<String>> {
    on_tx!(tx, db => sqlx::query_scalar::<_, Option<String>>("SELECT title FROM pulls WHERE repo = $1 AND number = $2")
        .bind(&pull.repo).bind(pull.number).fetch_optional(db))
    .map(Option::flatten)
}

/// SQLite's only writing transaction needs no lock on a row.
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
        .bind(&pull.repo).bind(pull.number).fetch_optional(db))
}

#[derive(sqlx::FromRow)]
struct PullRow {
    repo: RepoId,
    pull: crate::model::PullNumber,
}

impl From<PullRow> for PullRef {
    fn from(row: PullRow) -> Self {
        Self {
            repo: row.repo,
            number: row.pull,
        }
    }
}
