//! Events of repositories, in order, and the position up to which each data directory has processed them.
//!
//! The transaction that stores a delivery also writes its event. Every data directory has its own cursor and
//! processes the events after it. So a delivery to one replica updates the mirrors of all.
//!
//! Numbers are assigned before transactions are committed, and a cursor that has passed a number never returns to it.
//! On PostgreSQL, a transaction that appends events therefore holds a lock until it ends. So a number becomes visible
//! only after all smaller ones. Appending is the last step of such a transaction, so nobody waits for more than a
//! commit. SQLite has only one writing transaction.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::news::{News, announce_in_tx};
use super::repository_syncs::know_in_tx;
use super::{Result, Store, Tx, execute, on_pool, on_tx};
use crate::model::{DataDirId, MirrorEvent, RepoId, RepositoryChange, RepositoryEventKind};

/// A stored event of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryEvent {
    /// Number of the event; later events have larger ones.
    pub seq: i64,
    /// Repository and kind of the event.
    pub event: RepositoryChange,
    /// Time when the event was stored, by the deadline clock.
    pub at: DateTime<Utc>,
}

/// Outcome of processing events.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventWalk {
    /// The data directory has no cursor: it never had one, or was silent for so long that the cursor was dropped.
    NoCursor,
    /// Number of processed events. Their mirrors are marked for a sync.
    Walked(usize),
}

/// Interval at which a cursor without new events is touched, to show that its data directory is still in use.
const SIGN_OF_LIFE: TimeDelta = TimeDelta::minutes(10);

const APPEND: &str = "INSERT INTO repository_events (repo, kind, at) VALUES ($1, $2, $3)";
const AFTER: &str =
    "SELECT seq, repo, kind, at FROM repository_events WHERE seq > $1 ORDER BY seq LIMIT $2";
/// Adds a row for each known repository. A data directory with a cursor has rows for all repositories whose events
/// were removed since, so none is missing here. A repository may be known only by mirrors that were all removed to
/// make room. Its new row is then marked as removed, too, until somebody uses it.
const BEGIN: &str = "INSERT INTO repository_syncs (replica, repo, revision, state, pending_at, retry_count, \
     verification, verification_retry_count, created_at, evicted_at) \
     SELECT $1, known.repo, 0, 'pending', $2, 0, 'unknown', 0, $2, \
     CASE WHEN COUNT(known.evicted_at) = COUNT(*) THEN MAX(known.evicted_at) END FROM (\
     SELECT repo, evicted_at FROM repository_syncs \
     UNION ALL SELECT repo, NULL FROM watched_repos \
     UNION ALL SELECT repo, NULL FROM repository_events) AS known \
     WHERE TRUE GROUP BY known.repo ON CONFLICT (replica, repo) DO NOTHING";
const PRUNE: &str = "DELETE FROM repository_events WHERE seq IN (SELECT seq FROM repository_events WHERE at < $1 \
     AND seq <= COALESCE((SELECT MIN(seq) FROM repository_event_cursors), 9223372036854775807) ORDER BY seq LIMIT $2)";

impl Store {
    /// Stores an event of a repository that did not come from a delivery.
    pub async fn repository_event_append(&self, news: &RepositoryChange) -> Result<()> {
        let mut tx = self.begin().await?;
        self.repository_events_in_tx(&mut tx, std::slice::from_ref(news))
            .await?;
        tx.commit().await
    }

    /// Stores events of repositories. From here on, the transaction may wait for nothing else.
    pub(super) async fn repository_events_in_tx(
        &self,
        tx: &mut Tx,
        news: &[RepositoryChange],
    ) -> Result<()> {
        if news.is_empty() {
            return Ok(());
        }
        announce_in_tx(tx, News::Mirrors).await?;
        append_hold_in_tx(tx).await?;
        let at = self.clock_offset_in_tx(tx).await?.of(self.now());
        for news in news {
            execute!(&mut *tx, APPEND, &news.repo, news.kind, at)?;
        }
        Ok(())
    }

    /// Lists the events after a number, at most `limit` of them.
    pub async fn repository_event_list(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<RepositoryEvent>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, RepositoryEventColumns>(AFTER).bind(after).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(RepositoryEvent::from).collect())
    }

    /// Returns the position of a data directory.
    pub async fn repository_event_cursor(&self, data_dir_id: &DataDirId) -> Result<Option<i64>> {
        on_pool!(self, db => sqlx::query_scalar::<_, i64>("SELECT seq FROM repository_event_cursors WHERE replica = $1")
            .bind(data_dir_id).fetch_optional(db))
    }

    /// Creates the cursor of a data directory that is new or was dropped. To make up for the missed events, marks
    /// every known repository for a sync: known by its pulls, by a stored event, or by the mirror of another data
    /// directory. Returns the number of these repositories.
    pub async fn repository_event_begin(&self, data_dir_id: &DataDirId) -> Result<u64> {
        let mut tx = self.begin().await?;
        let now = self.clock_offset_in_tx(&mut tx).await?.of(self.now());
        // The cursor comes first, so that events during the following steps are processed later.
        let begun = execute!(
            &mut tx,
            "INSERT INTO repository_event_cursors (replica, seq, moved_at) \
             VALUES ($1, COALESCE((SELECT MAX(seq) FROM repository_events), 0), $2) ON CONFLICT (replica) DO NOTHING",
            data_dir_id,
            now,
        )?;
        if begun == 0 {
            return Ok(0);
        }
        let known = on_tx!(&mut tx, db => sqlx::query_scalar::<_, RepoId>(
            "SELECT repo FROM repository_syncs WHERE replica = $1 ORDER BY repo").bind(data_dir_id).fetch_all(db))?;
        for repo in &known {
            let updated = MirrorEvent::Updated { at: self.now() };
            let _changed = self
                .mirror_change_in_tx(&mut tx, data_dir_id, repo, &updated)
                .await?;
        }
        let new = execute!(&mut tx, BEGIN, data_dir_id, self.now())?;
        tx.commit().await.map(|()| known.len() as u64 + new)
    }

    /// Processes at most `limit` events. Marking their repositories for a sync and moving the cursor are one
    /// transaction.
    pub async fn repository_event_walk(
        &self,
        data_dir_id: &DataDirId,
        limit: i64,
    ) -> Result<EventWalk> {
        let Some(seq) = self.repository_event_cursor(data_dir_id).await? else {
            return Ok(EventWalk::NoCursor);
        };
        let events = self.repository_event_list(seq, limit).await?;
        let Some(last) = events.last().map(|event| event.seq) else {
            return self.alive(data_dir_id).await.map(|()| EventWalk::Walked(0));
        };
        let mut tx = self.begin().await?;
        let now = self.clock_offset_in_tx(&mut tx).await?.of(self.now());
        let moved = execute!(
            &mut tx,
            "UPDATE repository_event_cursors SET seq = $1, moved_at = $2 WHERE replica = $3 AND seq = $4",
            last,
            now,
            data_dir_id,
            seq,
        )?;
        if moved == 0 {
            return Ok(EventWalk::Walked(0));
        }
        for (repo, told) in by_repo(&events) {
            self.record_event_in_tx(&mut tx, data_dir_id, repo, told)
                .await?;
        }
        tx.commit().await.map(|()| EventWalk::Walked(events.len()))
    }

    /// Marks the mirror of a repository for a sync. If the repository was only created or added to the forge's app,
    /// nobody waits for it yet. Its first mirror then comes after those of others. A repository that is only deleted
    /// gets no mirror.
    async fn record_event_in_tx(
        &self,
        tx: &mut Tx,
        data_dir_id: &DataDirId,
        repo: &RepoId,
        told: EventSummary,
    ) -> Result<()> {
        let EventSummary {
            is_there,
            is_only_there,
        } = told;
        let is_new = is_there && know_in_tx(tx, data_dir_id, repo, self.now()).await?;
        if !(is_new && is_only_there) {
            let _changed = self
                .mirror_change_in_tx(
                    tx,
                    data_dir_id,
                    repo,
                    &MirrorEvent::Updated { at: self.now() },
                )
                .await?;
        }
        Ok(())
    }

    async fn alive(&self, data_dir_id: &DataDirId) -> Result<()> {
        let now = self.clock_offset().await?.of(self.now());
        let silent = on_pool!(self, db => sqlx::query_scalar::<_, i64>(
            "SELECT seq FROM repository_event_cursors WHERE replica = $1 AND moved_at < $2")
            .bind(data_dir_id).bind(now - SIGN_OF_LIFE).fetch_optional(db))?;
        if silent.is_some() {
            let mut tx = self.begin().await?;
            execute!(
                &mut tx,
                "UPDATE repository_event_cursors SET moved_at = $1 WHERE replica = $2",
                now,
                data_dir_id
            )?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Drops the cursors of data directories that were silent since a time, with the rows of their mirrors. A data
    /// directory that returns starts again. Returns the dropped ones.
    pub async fn repository_event_drop_cursors(
        &self,
        before: DateTime<Utc>,
    ) -> Result<Vec<DataDirId>> {
        let mut tx = self.begin().await?;
        let before = self.clock_offset_in_tx(&mut tx).await?.of(before);
        let mut data_dir_ids = on_tx!(&mut tx, db => sqlx::query_scalar::<_, DataDirId>(
            "DELETE FROM repository_event_cursors WHERE moved_at < $1 RETURNING replica").bind(before).fetch_all(db))?;
        data_dir_ids.sort();
        for data_dir_id in &data_dir_ids {
            execute!(
                &mut tx,
                "DELETE FROM repository_syncs WHERE replica = $1",
                data_dir_id
            )?;
        }
        tx.commit().await.map(|()| data_dir_ids)
    }

    /// Deletes events from before a time that every cursor has passed, at most `limit` of them. The time must leave
    /// [`Self::repository_event_begin`] long enough to end.
    pub async fn repository_event_prune(&self, before: DateTime<Utc>, limit: i64) -> Result<u64> {
        let mut tx = self.begin().await?;
        let before = self.clock_offset_in_tx(&mut tx).await?.of(before);
        let rows = execute!(&mut tx, PRUNE, before, limit)?;
        tx.commit().await.map(|()| rows)
    }
}

/// Summary of several events of one repository.
#[derive(Clone, Copy)]
struct EventSummary {
    /// True if the repository existed at any of the events.
    is_there: bool,
    /// True if the events say only that the repository exists.
    is_only_there: bool,
}

/// Summarizes the events of each repository, ordered by repository.
fn by_repo(events: &[RepositoryEvent]) -> BTreeMap<&RepoId, EventSummary> {
    let mut repos = BTreeMap::new();
    for RepositoryEvent { event, .. } in events {
        let nothing = EventSummary {
            is_there: false,
            is_only_there: true,
        };
        let told: &mut EventSummary = repos.entry(&event.repo).or_insert(nothing);
        match event.kind {
            RepositoryEventKind::Deleted => {}
            RepositoryEventKind::Changed => told.is_there = true,
            RepositoryEventKind::Push
            | RepositoryEventKind::Pull
            | RepositoryEventKind::Renamed
            | RepositoryEventKind::Found => (told.is_there, told.is_only_there) = (true, false),
        }
    }
    repos
}

/// Locks the list of events, so that nobody else appends until the transaction ends.
async fn append_hold_in_tx(tx: &mut Tx) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => {
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('repository_events', 0))")
                .execute(&mut **tx)
                .await
                .map(drop)
        }
    }
}

#[derive(sqlx::FromRow)]
struct RepositoryEventColumns {
    seq: i64,
    repo: RepoId,
    kind: RepositoryEventKind,
    at: DateTime<Utc>,
}

impl From<RepositoryEventColumns> for RepositoryEvent {
    fn from(row: RepositoryEventColumns) -> Self {
        let event = RepositoryChange {
            repo: row.repo,
            kind: row.kind,
        };
        Self {
            seq: row.seq,
            event,
            at: row.at,
        }
    }
}
