//! The table of mirrors: a row per data directory and repository.
//!
//! Only [`crate::model::MirrorState::next`] decides which state follows. A change is read, decided and written back
//! by one conditional UPDATE that compares the row's revision. The revision stands for the state, the lease and
//! anything that may have changed in between. If another writer was faster, the change is read and decided again. A
//! row is removed in the same way.

mod due;
mod row;
mod search;

use std::collections::HashSet;

use chrono::{DateTime, Utc};

pub use due::MirrorsDue;
pub use row::MirrorRow;
pub(crate) use search::like_pattern;
pub use search::{FoundMirrors, MirrorSearch};

use self::row::{RepositorySyncColumns, columns};
use super::news::{News, announce_in_tx};
use super::of_repos::{listed, of_repos_postgres, of_repos_sqlite};
use super::{Result, Store, Tx, execute, on_pool, on_tx};
use crate::model::{
    Cause, Concern, DataDirId, LockEventKind, MirrorEvent, NewLockEvent, NotAllowed, RepoId,
    SyncRequest, SyncState,
};

/// Outcome of an event for a mirror.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorChange {
    /// The mirror changed, and this is its new row.
    Changed(Box<MirrorRow>),
    /// The event is not allowed in the state of the mirror.
    NotAllowed(NotAllowed),
    /// The table does not have such a mirror.
    Unknown,
}

/// Filter for mirrors; `None` in a field: any.
#[derive(Clone, Debug, Default)]
pub struct MirrorQuery {
    /// Data directory of the mirrors.
    pub data_dir_id: Option<DataDirId>,
    /// Repository of the mirrors.
    pub repo: Option<RepoId>,
    /// State of the mirrors.
    pub state: Option<SyncState>,
}

const KNOW: &str = "INSERT INTO repository_syncs (replica, repo, revision, state, pending_at, retry_count, \
     verification, verification_retry_count, created_at) VALUES ($1, $2, 0, 'pending', $3, 0, 'unknown', 0, $3) \
     ON CONFLICT (replica, repo) DO NOTHING";
const KNOWN: [&str; 2] = [
    concat!(
        "SELECT repo FROM repository_syncs WHERE ",
        of_repos_sqlite!(),
        " AND replica = $2"
    ),
    concat!(
        "SELECT repo FROM repository_syncs WHERE ",
        of_repos_postgres!(),
        " AND replica = $2"
    ),
];
const GET: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM repository_syncs WHERE replica = $1 AND repo = $2"
);
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM repository_syncs WHERE ($1 IS NULL OR replica = $1) AND ($2 IS NULL OR repo = $2) \
     AND ($3 IS NULL OR state = $3) ORDER BY replica, repo LIMIT $4"
);
const LIVE_LEASE: &str = "SELECT COUNT(*) FROM leases l JOIN repository_syncs s ON l.key = s.lease_key \
     AND l.holder = s.lease_holder WHERE s.replica = $1 AND s.repo = $2 AND l.until > $3";

impl Store {
    /// Adds a mirror that needs a sync; `false`: the table already has it.
    pub async fn mirror_know(&self, data_dir_id: &DataDirId, repo: &RepoId) -> Result<bool> {
        let mut tx = self.begin_shared().await?;
        let is_new = know_in_tx(&mut tx, data_dir_id, repo, self.now()).await?;
        tx.commit().await.map(|()| is_new)
    }

    /// Returns the row of a mirror.
    pub async fn mirror_get(
        &self,
        data_dir_id: &DataDirId,
        repo: &RepoId,
    ) -> Result<Option<MirrorRow>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, RepositorySyncColumns>(GET).bind(data_dir_id).bind(repo).fetch_optional(db))?;
        Ok(row.map(MirrorRow::from))
    }

    /// Lists mirrors by data directory and repository, at most `limit` of them.
    pub async fn mirror_list(&self, filter: &MirrorQuery, limit: i64) -> Result<Vec<MirrorRow>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, RepositorySyncColumns>(LIST)
            .bind(&filter.data_dir_id).bind(&filter.repo).bind(filter.state).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(MirrorRow::from).collect())
    }

    /// Counts the mirrors of a data directory by state. Leaves out those that were removed to make room.
    pub async fn mirror_count(&self, data_dir_id: &DataDirId) -> Result<Vec<(SyncState, i64)>> {
        on_pool!(self, db => sqlx::query_as::<_, (SyncState, i64)>(
            "SELECT state, COUNT(*) FROM repository_syncs WHERE replica = $1 AND evicted_at IS NULL \
             GROUP BY state ORDER BY state").bind(data_dir_id).fetch_all(db))
    }

    /// Applies an event to a mirror.
    pub async fn mirror_change(
        &self,
        data_dir_id: &DataDirId,
        repo: &RepoId,
        event: &MirrorEvent,
    ) -> Result<MirrorChange> {
        let mut tx = self.begin_shared().await?;
        let change = self
            .mirror_change_in_tx(&mut tx, data_dir_id, repo, event)
            .await?;
        tx.commit().await.map(|()| change)
    }

    /// Returns those of the repositories that have no row for a data directory.
    pub async fn mirror_list_unknown(
        &self,
        data_dir_id: &DataDirId,
        mut repos: Vec<RepoId>,
    ) -> Result<Vec<RepoId>> {
        let (sql, names) = (self.either(KNOWN[0], KNOWN[1]), listed(&repos));
        let known = on_pool!(self, db => sqlx::query_scalar::<_, RepoId>(sql).bind(&names).bind(data_dir_id).fetch_all(db))?;
        let known: HashSet<RepoId> = known.into_iter().collect();
        repos.retain(|repo| !known.contains(repo));
        Ok(repos)
    }

    /// Requests a sync of all mirrors of a repository, in all data directories, and adds an event to the audit log.
    /// Returns the number of mirrors.
    pub async fn mirror_request_sync(&self, repo: &RepoId, cause: &Cause) -> Result<u64> {
        let mut tx = self.begin().await?;
        let many = self.mirror_request_sync_in_tx(&mut tx, repo, cause).await?;
        tx.commit().await.map(|()| many)
    }

    /// Like [`Self::mirror_request_sync`], but first adds a mirror in every data directory that has none.
    pub async fn mirror_request_sync_anywhere(&self, repo: &RepoId, cause: &Cause) -> Result<u64> {
        let mut tx = self.begin().await?;
        let data_dir_ids = on_tx!(&mut tx, db => sqlx::query_scalar::<_, DataDirId>(
            "SELECT replica FROM repository_event_cursors ORDER BY replica").fetch_all(db))?;
        for data_dir_id in data_dir_ids {
            know_in_tx(&mut tx, &data_dir_id, repo, self.now()).await?;
        }
        let many = self.mirror_request_sync_in_tx(&mut tx, repo, cause).await?;
        tx.commit().await.map(|()| many)
    }

    async fn mirror_request_sync_in_tx(
        &self,
        tx: &mut Tx,
        repo: &RepoId,
        cause: &Cause,
    ) -> Result<u64> {
        let reason = Some(cause.reason.clone()).filter(|reason| !reason.is_empty());
        let asked = SyncRequest {
            at: self.now(),
            by: cause.actor.login.clone(),
            reason,
        };
        let data_dir_ids = on_tx!(&mut *tx, db => sqlx::query_scalar::<_, DataDirId>(
            "SELECT replica FROM repository_syncs WHERE repo = $1 ORDER BY replica").bind(repo).fetch_all(db))?;
        let (mut many, event) = (0, MirrorEvent::Asked(asked));
        for data_dir_id in data_dir_ids {
            let change = self
                .mirror_change_in_tx(tx, &data_dir_id, repo, &event)
                .await?;
            many += u64::from(matches!(change, MirrorChange::Changed(_)));
        }
        if many > 0 {
            announce_in_tx(tx, News::Mirrors).await?;
            self.lock_events_in_tx(tx, vec![sync_request_event(repo, cause)])
                .await?;
        }
        Ok(many)
    }

    /// Deletes the row of a mirror that nobody needs any more, unless the row changed since it was read. A caller
    /// that read the row before checking the need therefore loses no newer event. `false`: the row stays, or is gone
    /// already.
    pub async fn mirror_forget(&self, row: &MirrorRow) -> Result<bool> {
        let mut tx = self.begin().await?;
        let rows = execute!(
            &mut tx,
            "DELETE FROM repository_syncs WHERE replica = $1 AND repo = $2 AND revision = $3",
            &row.data_dir_id,
            &row.repo,
            row.revision,
        )?;
        tx.commit().await.map(|()| rows == 1)
    }

    /// Applies an event to a mirror, as a part of a transaction. A transaction that changes several mirrors of a data
    /// directory does so in the order of their repositories.
    pub(super) async fn mirror_change_in_tx(
        &self,
        tx: &mut Tx,
        data_dir_id: &DataDirId,
        repo: &RepoId,
        event: &MirrorEvent,
    ) -> Result<MirrorChange> {
        loop {
            let row = on_tx!(&mut *tx, db => sqlx::query_as::<_, RepositorySyncColumns>(GET).bind(data_dir_id).bind(repo).fetch_optional(db))?;
            let Some(mut row) = row.map(MirrorRow::from) else {
                return Ok(MirrorChange::Unknown);
            };
            if matches!(event, MirrorEvent::Orphaned { .. })
                && self.is_leased_in_tx(tx, data_dir_id, repo).await?
            {
                return Ok(MirrorChange::NotAllowed(NotAllowed::UnderWay));
            }
            row.state = match row.state.next(event) {
                Ok(state) => state,
                Err(why) => return Ok(MirrorChange::NotAllowed(why)),
            };
            if self.write_in_tx(tx, &row, event).await? {
                row.revision += 1;
                return Ok(MirrorChange::Changed(Box::new(row)));
            }
        }
    }

    /// Writes a changed row. `false`: another writer was faster.
    async fn write_in_tx(&self, tx: &mut Tx, row: &MirrorRow, event: &MirrorEvent) -> Result<bool> {
        let unless_leased_at = match event {
            MirrorEvent::Orphaned { .. } => Some(self.clock_offset_in_tx(tx).await?.of(self.now())),
            MirrorEvent::Updated { .. }
            | MirrorEvent::Asked(_)
            | MirrorEvent::Due { .. }
            | MirrorEvent::Started { .. }
            | MirrorEvent::Succeeded { .. }
            | MirrorEvent::Failed { .. }
            | MirrorEvent::Used { .. }
            | MirrorEvent::Evicted { .. } => None,
        };
        row::write_in_tx(tx, row, unless_leased_at).await
    }

    async fn is_leased_in_tx(
        &self,
        tx: &mut Tx,
        data_dir_id: &DataDirId,
        repo: &RepoId,
    ) -> Result<bool> {
        let now = self.clock_offset_in_tx(tx).await?.of(self.now());
        let live = on_tx!(tx, db => sqlx::query_scalar::<_, i64>(LIVE_LEASE)
            .bind(data_dir_id).bind(repo).bind(now).fetch_one(db))?;
        Ok(live > 0)
    }
}

fn sync_request_event(repo: &RepoId, cause: &Cause) -> NewLockEvent {
    let reason = format!("{repo}: {}", cause.reason);
    NewLockEvent {
        kind: LockEventKind::SyncAsked,
        key: None,
        scope: None,
        pull: None,
        concern: Some(Concern::Repo(repo.clone())),
        cause: Cause {
            reason,
            ..cause.clone()
        },
    }
}

/// Adds a mirror; `false`: the table already has it.
pub(super) async fn know_in_tx(
    tx: &mut Tx,
    data_dir_id: &DataDirId,
    repo: &RepoId,
    now: DateTime<Utc>,
) -> Result<bool> {
    execute!(tx, KNOW, data_dir_id, repo, now).map(|rows| rows == 1)
}
