//! The audit log of locks: append-only, one chain for the whole database.
//!
//! An event is written in the transaction of the change it tells of, so that neither is there without the other. The
//! chain is the last thing that such a transaction locks; whoever waits for it therefore waits for somebody who only
//! has to commit.

use chrono::{DateTime, Utc};

use super::locks::{name_from_column, scope_column};
use super::{Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};
use crate::model::{
    Actor, ApplyScope, Cause, Concern, LockEvent, LockEventKind, LockKey, NewLockEvent, Origin, PullNumber, PullRef,
    RepoId, RepoPath, Sha256Digest, WorkspaceName,
};

/// Rows as [`EventRow`] reads them.
macro_rules! select_sql {
    ($($rest:literal),+ $(,)?) => {
        concat!(
            "SELECT seq, at, kind, repo, dir, workspace, scope, pull, actor, origin, remote, reason, concern, previous, ",
            "hash, ",
            "(SELECT t.title FROM pulls t WHERE t.repo = lock_events.repo AND t.number = lock_events.pull) AS title ",
            "FROM lock_events ",
            $($rest),+
        )
    };
}

const RECENT: &str = select_sql!("ORDER BY seq DESC LIMIT $1");
const AFTER: &str = select_sql!("WHERE seq > $1 ORDER BY seq LIMIT $2");
const OF_LOCK: &str = select_sql!(
    "WHERE repo = $1 AND dir = $2 AND workspace = $3 AND ($4 = '' OR scope IS NULL OR scope = $4) ORDER BY seq DESC \
     LIMIT $5"
);
const HEAD: &str = "SELECT seq, hash FROM lock_events ORDER BY seq DESC LIMIT 1";

/// How far somebody has looked through the log.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LockEventWalk {
    /// Which walk.
    pub name: String,
    /// The last event that was found to be in order; 0: none yet.
    pub seq: i64,
    /// Its hash.
    pub hash: Sha256Digest,
    /// The event that was found not to be.
    pub broken_seq: Option<i64>,
    /// What is wrong with it.
    pub fault: Option<String>,
    /// When somebody looked last.
    pub walked_at: DateTime<Utc>,
}

/// What stands in place of events that were removed.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LockEventSeal {
    /// The last event that was removed.
    pub last_seq: i64,
    /// Its hash, which the next event continues.
    pub last_hash: Sha256Digest,
    /// When it happened.
    pub last_at: DateTime<Utc>,
    /// How many events were removed with it.
    pub events: i64,
    /// Who removed them.
    pub actor: String,
    /// When.
    pub sealed_at: DateTime<Utc>,
}

impl Store {
    /// Keeps an event that comes with no other change.
    pub async fn lock_event_append(&self, event: NewLockEvent) -> Result<()> {
        let mut tx = self.begin().await?;
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await
    }

    /// Continues the chain; the last thing that a transaction does.
    pub(crate) async fn lock_events_in_tx(&self, tx: &mut Tx, events: Vec<NewLockEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        chain_hold_in_tx(tx).await?;
        let head = on_tx!(tx, db => sqlx::query_as::<_, (i64, Sha256Digest)>(HEAD).fetch_optional(db))?;
        let (mut seq, mut previous) = head.unwrap_or_else(|| (0, LockEvent::genesis()));
        let at = kept_time(self.now());
        for event in events {
            seq += 1;
            let event = storable(event);
            let hash = LockEvent::hash_of(seq, at, &event, &previous);
            let kept = LockEvent { seq, at, event, previous, hash, title: None };
            insert_in_tx(tx, &kept).await?;
            previous = kept.hash;
        }
        Ok(())
    }

    /// The newest events, newest first.
    pub async fn lock_event_list(&self, limit: i64) -> Result<Vec<LockEvent>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, EventRow>(RECENT).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(LockEvent::from).collect())
    }

    /// What happened to a lock and to those that exclude it, newest first.
    pub async fn lock_event_list_of(&self, key: &LockKey, limit: i64) -> Result<Vec<LockEvent>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, EventRow>(OF_LOCK)
            .bind(&key.repo).bind(&key.dir).bind(&key.workspace).bind(scope_column(key)).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(LockEvent::from).collect())
    }

    /// The events after a place in the chain, in order: for those who read all of it piece by piece.
    pub async fn lock_event_after(&self, seq: i64, limit: i64) -> Result<Vec<LockEvent>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, EventRow>(AFTER).bind(seq).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(LockEvent::from).collect())
    }

    /// What was removed from the beginning of the chain, oldest first.
    pub async fn lock_event_seals(&self) -> Result<Vec<LockEventSeal>> {
        on_pool!(self, db => sqlx::query_as::<_, LockEventSeal>(
            "SELECT last_seq, last_hash, last_at, events, actor, sealed_at FROM lock_event_seals ORDER BY last_seq")
            .fetch_all(db))
    }

    /// How far the log was looked through.
    pub async fn lock_event_walks(&self) -> Result<Vec<LockEventWalk>> {
        on_pool!(self, db => sqlx::query_as::<_, LockEventWalk>(
            "SELECT name, seq, hash, broken_seq, fault, walked_at FROM lock_event_walks ORDER BY name").fetch_all(db))
    }

    /// Keeps how far it was; `walked_at` is now.
    pub async fn lock_event_walk_set(&self, walk: &LockEventWalk) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO lock_event_walks (name, seq, hash, broken_seq, fault, walked_at) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, \
             broken_seq = excluded.broken_seq, fault = excluded.fault, walked_at = excluded.walked_at",
            &walk.name,
            walk.seq,
            &walk.hash,
            walk.broken_seq,
            walk.fault.as_deref(),
            kept_time(self.now()),
        )?;
        tx.commit().await
    }

    /// Removes the events from before a time and leaves a seal in their place. The newest event always stays: the next
    /// one continues it. `None`: nothing was that old.
    pub async fn lock_event_prune(&self, before: DateTime<Utc>, actor: &str) -> Result<Option<LockEventSeal>> {
        let mut tx = self.begin().await?;
        chain_hold_in_tx(&mut tx).await?;
        let last = on_tx!(&mut tx, db => sqlx::query_as::<_, (i64, Sha256Digest, DateTime<Utc>)>(
            "SELECT seq, hash, at FROM lock_events WHERE at < $1 AND seq < (SELECT MAX(seq) FROM lock_events) \
             ORDER BY seq DESC LIMIT 1").bind(kept_time(before)).fetch_optional(db))?;
        let Some((last_seq, last_hash, last_at)) = last else { return Ok(None) };
        let removed = execute!(&mut tx, "DELETE FROM lock_events WHERE seq <= $1", last_seq)?;
        let seal = LockEventSeal {
            last_seq,
            last_hash,
            last_at,
            events: i64::try_from(removed).unwrap_or(i64::MAX),
            actor: free_text(actor).into_owned(),
            sealed_at: kept_time(self.now()),
        };
        execute!(
            &mut tx,
            "INSERT INTO lock_event_seals (last_seq, last_hash, last_at, events, actor, sealed_at) \
             VALUES ($1, $2, $3, $4, $5, $6)",
            seal.last_seq,
            &seal.last_hash,
            seal.last_at,
            seal.events,
            &seal.actor,
            seal.sealed_at,
        )?;
        tx.commit().await.map(|()| Some(seal))
    }
}

/// Nobody else continues the chain until the transaction ends. SQLite has only one writing transaction anyway.
async fn chain_hold_in_tx(tx: &mut Tx) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('lock_events', 0))")
            .execute(&mut **tx)
            .await
            .map(drop),
    }
}

/// The hash covers what is kept, so texts are made storable first.
fn storable(event: NewLockEvent) -> NewLockEvent {
    let Cause { actor, remote, reason } = event.cause;
    let actor = Actor { login: free_text(&actor.login).into_owned(), origin: actor.origin };
    let remote = remote.map(|remote| free_text(&remote).into_owned());
    NewLockEvent { cause: Cause { actor, remote, reason: free_text(&reason).into_owned() }, ..event }
}

async fn insert_in_tx(tx: &mut Tx, kept: &LockEvent) -> Result<()> {
    let NewLockEvent { kind, key, pull, concern, cause, scope: _ } = &kept.event;
    execute!(
        tx,
        "INSERT INTO lock_events (seq, at, kind, repo, dir, workspace, scope, pull, actor, origin, remote, reason, \
         concern, previous, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        kept.seq,
        kept.at,
        *kind,
        kept.event.repo(),
        kept.event.dir(),
        key.as_ref().map(|key| &key.workspace),
        key.as_ref().and_then(|key| key.project.as_ref()),
        pull.as_ref().map(|pull| pull.number),
        &cause.actor.login,
        cause.actor.origin,
        cause.remote.as_deref(),
        &cause.reason,
        concern.as_ref(),
        &kept.previous,
        &kept.hash,
    )
    .map(drop)
}

pub(super) use select_sql;

#[derive(sqlx::FromRow)]
pub(super) struct EventRow {
    seq: i64,
    at: DateTime<Utc>,
    kind: LockEventKind,
    repo: Option<RepoId>,
    dir: Option<RepoPath>,
    workspace: Option<WorkspaceName>,
    scope: Option<String>,
    pull: Option<PullNumber>,
    actor: String,
    origin: Origin,
    remote: Option<String>,
    reason: String,
    concern: Option<Concern>,
    previous: Sha256Digest,
    hash: Sha256Digest,
    title: Option<String>,
}

impl EventRow {
    /// Which applies it is about. What is about a lock has a workspace, what is about a pull has its number.
    fn applies(&self) -> Option<ApplyScope> {
        if self.workspace.is_some() || self.pull.is_some() {
            return None;
        }
        match (&self.repo, &self.dir) {
            (Some(repo), Some(dir)) => Some(ApplyScope::Path { repo: repo.clone(), dir: dir.clone() }),
            (Some(repo), None) => Some(ApplyScope::Repo(repo.clone())),
            (None, _) => self.kind.is_of_applies().then_some(ApplyScope::Server),
        }
    }
}

impl From<EventRow> for LockEvent {
    fn from(row: EventRow) -> Self {
        let applies = row.applies();
        let key = match (&row.repo, row.dir, row.workspace) {
            (Some(repo), Some(dir), Some(workspace)) => Some(LockKey {
                repo: repo.clone(),
                dir,
                workspace,
                project: row.scope.as_deref().and_then(name_from_column),
            }),
            _ => None,
        };
        let pull = row.repo.zip(row.pull).map(|(repo, number)| PullRef { repo, number });
        let actor = Actor { login: row.actor, origin: row.origin };
        let cause = Cause { actor, remote: row.remote, reason: row.reason };
        let event = NewLockEvent { kind: row.kind, key, scope: applies, pull, concern: row.concern, cause };
        Self { seq: row.seq, at: row.at, event, previous: row.previous, hash: row.hash, title: row.title }
    }
}
