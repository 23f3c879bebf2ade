//! Which mirrors are to be looked at, by an index each.

use chrono::{DateTime, Utc};

use super::super::{Result, Store, kept_time, on_pool};
use crate::model::{HomeId, RepoId};

/// Mirrors that an attempt may begin for, those of each sort that wait longest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorsDue {
    /// Somebody asked.
    pub asked: Vec<RepoId>,
    /// They were changed since their last success, or their time to be looked at has come.
    pub updated: Vec<RepoId>,
    /// The wait after a failure is over.
    pub retries: Vec<RepoId>,
    /// They were never brought in step, and something has happened to them.
    pub never: Vec<RepoId>,
    /// They were never brought in step, and nobody waits for that.
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
    /// Mirrors of a data directory that an attempt may begin for, so many of each sort at most.
    pub async fn mirror_list_due(&self, home: &HomeId, limit: i64) -> Result<MirrorsDue> {
        let now = kept_time(self.now());
        Ok(MirrorsDue {
            asked: self.mirrors(ASKED, home, limit, None).await?,
            updated: self.mirrors(UPDATED, home, limit, None).await?,
            retries: self.mirrors(RETRIES, home, limit, Some(now)).await?,
            never: self.mirrors(NEVER, home, limit, None).await?,
            backfill: self.mirrors(BACKFILL, home, limit, None).await?,
        })
    }

    /// Mirrors of which nobody has told for so long that they are looked at all the same.
    pub async fn mirror_list_stale(&self, home: &HomeId, limit: i64) -> Result<Vec<RepoId>> {
        self.mirrors(STALE, home, limit, Some(kept_time(self.now())))
            .await
    }

    /// Mirrors of any data directory with an attempt under way whose lease is over.
    pub async fn mirror_list_orphaned(&self, limit: i64) -> Result<Vec<(HomeId, RepoId)>> {
        let now = self.skew().await?.of(self.now());
        on_pool!(self, db => sqlx::query_as::<_, (HomeId, RepoId)>(ORPHANED).bind(now).bind(limit).fetch_all(db))
    }

    async fn mirrors(
        &self,
        sql: &'static str,
        home: &HomeId,
        limit: i64,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<RepoId>> {
        on_pool!(self, db => {
            let query = sqlx::query_scalar::<_, RepoId>(sql).bind(home);
            match now {
                Some(now) => query.bind(now),
                None => query,
            }
            .bind(limit)
            .fetch_all(db)
        })
    }
}
