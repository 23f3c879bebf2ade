//! Lists the mirrors that need attention, each list by its own index.

use chrono::{DateTime, Utc};

use super::super::{Result, Store, kept_time, on_pool};
use crate::model::{DataDirId, RepoId};

/// Mirrors that an attempt may begin for. In each list, those that wait longest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorsDue {
    /// A person requested the sync.
    pub asked: Vec<RepoId>,
    /// The repository changed since the last success, or the regular check is due.
    pub updated: Vec<RepoId>,
    /// The wait after a failure is over.
    pub retries: Vec<RepoId>,
    /// Never in sync, and the repository has changed or was used.
    pub never: Vec<RepoId>,
    /// Never in sync, and nobody waits for that.
    pub backfill: Vec<RepoId>,
}

const ASKED: &str = "SELECT repo FROM repository_syncs WHERE replica = $1 AND state = 'pending' AND evicted_at IS NULL \
     AND asked_at IS NOT NULL ORDER BY pending_at, repo LIMIT $2";
const UPDATED: &str = "SELECT repo FROM repository_syncs WHERE replica = $1 AND state = 'pending' AND evicted_at IS NULL \
     AND asked_at IS NULL AND succeeded_at IS NOT NULL ORDER BY pending_at, repo LIMIT $2";
const NEVER: &str = "SELECT repo FROM repository_syncs WHERE replica = $1 AND state = 'pending' AND evicted_at IS NULL \
     AND asked_at IS NULL AND succeeded_at IS NULL AND COALESCE(updated_at, used_at) IS NOT NULL \
     ORDER BY pending_at, repo LIMIT $2";
const BACKFILL: &str = "SELECT repo FROM repository_syncs WHERE replica = $1 AND state = 'pending' AND evicted_at IS NULL \
     AND asked_at IS NULL AND succeeded_at IS NULL AND COALESCE(updated_at, used_at) IS NULL \
     ORDER BY pending_at, repo LIMIT $2";
const RETRIES: &str = "SELECT repo FROM repository_syncs WHERE replica = $1 AND state = 'failed' AND retry_at <= $2 \
     ORDER BY retry_at, repo LIMIT $3";
const STALE: &str = "SELECT repo FROM repository_syncs WHERE replica = $1 AND state = 'synced' AND refresh_at <= $2 \
     ORDER BY refresh_at, repo LIMIT $3";
const ORPHANED: &str = "SELECT replica, repo FROM repository_syncs WHERE state = 'started' AND NOT EXISTS (\
     SELECT 1 FROM leases l WHERE l.key = repository_syncs.lease_key AND l.holder = repository_syncs.lease_holder \
     AND l.until > $1) ORDER BY started_at, repo LIMIT $2";

impl Store {
    /// Lists the mirrors of a data directory that an attempt may begin for, at most `limit` in each list.
    pub async fn mirror_list_due(&self, data_dir_id: &DataDirId, limit: i64) -> Result<MirrorsDue> {
        let now = kept_time(self.now());
        Ok(MirrorsDue {
            asked: self.mirrors(ASKED, data_dir_id, limit, None).await?,
            updated: self.mirrors(UPDATED, data_dir_id, limit, None).await?,
            retries: self.mirrors(RETRIES, data_dir_id, limit, Some(now)).await?,
            never: self.mirrors(NEVER, data_dir_id, limit, None).await?,
            backfill: self.mirrors(BACKFILL, data_dir_id, limit, None).await?,
        })
    }

    /// Lists mirrors without news for so long that they are checked anyway.
    pub async fn mirror_list_stale(
        &self,
        data_dir_id: &DataDirId,
        limit: i64,
    ) -> Result<Vec<RepoId>> {
        self.mirrors(STALE, data_dir_id, limit, Some(kept_time(self.now())))
            .await
    }

    /// Lists mirrors of any data directory with an attempt under way whose lease has ended.
    pub async fn mirror_list_orphaned(&self, limit: i64) -> Result<Vec<(DataDirId, RepoId)>> {
        let now = self.clock_offset().await?.of(self.now());
        on_pool!(self, db => sqlx::query_as::<_, (DataDirId, RepoId)>(ORPHANED).bind(now).bind(limit).fetch_all(db))
    }

    async fn mirrors(
        &self,
        sql: &'static str,
        data_dir_id: &DataDirId,
        limit: i64,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<RepoId>> {
        on_pool!(self, db => {
            let query = sqlx::query_scalar::<_, RepoId>(sql).bind(data_dir_id);
            match now {
                Some(now) => query.bind(now),
                None => query,
            }
            .bind(limit)
            .fetch_all(db)
        })
    }
}
