//! The audit log of locks, which is append-only.
//!
//! An event is written in the transaction of the change that it reports, so that neither exists without the other. It
//! goes to `lock_event_inbox`, where nobody waits for anybody. The sealer (`store::lock_event_seal`) moves events
//! from there to the chain in `lock_events`.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::locks::{name_from_column, scope_column};
use super::people::{account_column, account_of_column, named};
use super::{Result, Store, Tx, execute, free_text, kept_time, on_pool};
use crate::model::{
    Actor, ApplyScope, Cause, ChainLink, ChainedEvent, Concern, LockEvent, LockEventKind, LockKey,
    NewLockEvent, Origin, PullRef, RepoId, RepoPath, Sha256Digest, Subject, WorkspaceName,
};

/// Columns of an event, the same in both tables.
macro_rules! event_columns {
    () => {
        "at, kind, repo, dir, workspace, scope, pull, actor, origin, remote, reason, concern, account"
    };
}

/// Selects the newest events that match `$inbox` and `$chain`, newest first, as [`EventRow`] reads them: at most
/// `$limit`. Events that are not sealed yet have places above all numbers.
macro_rules! newest_sql {
    ($limit:literal, $inbox:expr, $chain:expr) => {
        concat!(
            "SELECT page.*, (SELECT t.title FROM pulls t WHERE t.repo = page.repo AND t.number = page.pull) AS title, ",
            $crate::store::people::account_names!("page.account"),
            " FROM (SELECT * FROM (SELECT 1000000000000000 + id AS place, CAST(NULL AS BIGINT) AS seq, ",
            "CAST(NULL AS TEXT) AS hash, ",
            event_columns!(),
            " FROM lock_event_inbox WHERE ",
            $inbox,
            " ORDER BY id DESC LIMIT ",
            $limit,
            ") AS page_inbox UNION ALL SELECT * FROM (SELECT seq AS place, seq, hash, ",
            event_columns!(),
            " FROM lock_events WHERE ",
            $chain,
            " ORDER BY seq DESC LIMIT ",
            $limit,
            ") AS page_chain) AS page ORDER BY place DESC LIMIT ",
            $limit,
        )
    };
}

macro_rules! of_lock_sql {
    () => {
        "repo = $1 AND dir = $2 AND workspace = $3 AND ($4 = '' OR scope IS NULL OR scope = $4)"
    };
}

const OF_LOCK: &str = newest_sql!("$5", of_lock_sql!(), of_lock_sql!());
const AFTER: &str = concat!(
    "SELECT seq, previous, hash, ",
    event_columns!(),
    " FROM lock_events WHERE seq > $1 ORDER BY seq LIMIT $2"
);

/// Adds the events of a list of objects (`$1`) in its order, with their time (`$2`).
macro_rules! add_listed_sql {
    ($listed:literal) => {
        concat!(
            "INSERT INTO lock_event_inbox (",
            event_columns!(),
            ") SELECT $2, each.value->>'kind', each.value->>'repo', each.value->>'dir', each.value->>'workspace', \
             each.value->>'scope', CAST(each.value->>'pull' AS BIGINT), each.value->>'actor', each.value->>'origin', \
             each.value->>'remote', each.value->>'reason', each.value->>'concern', \
             CAST(each.value->>'account' AS BIGINT) FROM ",
            $listed,
            " ORDER BY each.key"
        )
    };
}

const ADD_LISTED: [&str; 2] = [
    add_listed_sql!("json_each($1) AS each"),
    add_listed_sql!("jsonb_array_elements($1::jsonb) WITH ORDINALITY AS each (value, key)"),
];

/// Progress of a walk that verifies the log.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LockEventWalk {
    /// Name of the walk.
    pub name: String,
    /// Number of the last event that was found to be valid; 0: none yet.
    pub seq: i64,
    /// Hash of that event.
    pub hash: Sha256Digest,
    /// Number of the event that was found to be invalid.
    pub broken_seq: Option<i64>,
    /// Description of the fault of that event.
    pub fault: Option<String>,
    /// Time of the last walk.
    pub walked_at: DateTime<Utc>,
}

impl Store {
    /// Adds an event that comes with no other change.
    pub async fn lock_event_append(&self, event: NewLockEvent) -> Result<()> {
        let mut tx = self.begin().await?;
        self.lock_events_in_tx(&mut tx, vec![event]).await?;
        tx.commit().await
    }

    /// Writes events to the inbox, from which they are sealed soon. Any number of them needs one statement.
    pub(crate) async fn lock_events_in_tx(
        &self,
        tx: &mut Tx,
        events: Vec<NewLockEvent>,
    ) -> Result<()> {
        let at = kept_time(self.now());
        let events: Vec<NewLockEvent> = events.into_iter().map(storable).collect();
        match events.as_slice() {
            [] => Ok(()),
            [event] => event_add_in_tx(tx, event, at).await,
            events => {
                let [sqlite, postgres] = ADD_LISTED;
                let (sql, events) = (self.either(sqlite, postgres), listed(events));
                execute!(tx, sql, events.as_str(), at).map(drop)
            }
        }
    }

    /// Lists the newest events, newest first.
    pub async fn lock_event_list(&self, limit: i64) -> Result<Vec<LockEvent>> {
        self.lock_event_part(None, None, limit).await
    }

    /// Lists the events of a lock and of the locks that exclude it, newest first.
    pub async fn lock_event_list_of(&self, key: &LockKey, limit: i64) -> Result<Vec<LockEvent>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, EventRow>(OF_LOCK)
            .bind(&key.repo).bind(&key.dir).bind(&key.workspace).bind(scope_column(key)).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(LockEvent::from).collect())
    }

    /// Lists the sealed events after a place in the chain, in order. For callers that read the whole chain piece by
    /// piece.
    pub async fn lock_event_after(&self, seq: i64, limit: i64) -> Result<Vec<ChainedEvent>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, ChainRow>(AFTER).bind(seq).bind(limit).fetch_all(db))?;
        Ok(rows.into_iter().map(ChainedEvent::from).collect())
    }

    /// Lists the progress of all walks through the log.
    pub async fn lock_event_walks(&self) -> Result<Vec<LockEventWalk>> {
        on_pool!(self, db => sqlx::query_as::<_, LockEventWalk>(
            "SELECT name, seq, hash, broken_seq, fault, walked_at FROM lock_event_walks ORDER BY name").fetch_all(db))
    }

    /// Stores the progress of a walk; `walked_at` is now.
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
}

async fn event_add_in_tx(tx: &mut Tx, event: &NewLockEvent, at: DateTime<Utc>) -> Result<()> {
    let NewLockEvent {
        kind,
        key,
        pull,
        concern,
        cause,
        scope: _,
    } = event;
    execute!(
        tx,
        concat!(
            "INSERT INTO lock_event_inbox (",
            event_columns!(),
            ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
        ),
        at,
        *kind,
        event.repo(),
        event.dir(),
        key.as_ref().map(|key| &key.workspace),
        key.as_ref().and_then(|key| key.project.as_ref()),
        pull.as_ref().map(|pull| pull.subject),
        &cause.actor.login,
        cause.actor.origin,
        cause.remote.as_deref(),
        &cause.reason,
        concern.as_ref(),
        account_column(cause.actor.account),
    )
    .map(drop)
}

/// Formats events as the list for [`ADD_LISTED`].
fn listed(events: &[NewLockEvent]) -> String {
    let rows = events.iter().map(|event| {
        let NewLockEvent {
            kind,
            key,
            pull,
            concern,
            cause,
            scope: _,
        } = event;
        json!({
            "kind": kind,
            "repo": event.repo(),
            "dir": event.dir(),
            "workspace": key.as_ref().map(|key| &key.workspace),
            "scope": key.as_ref().and_then(|key| key.project.as_ref()),
            "pull": pull.as_ref().map(|pull| pull.subject.stored()),
            "actor": cause.actor.login,
            "origin": cause.actor.origin,
            "remote": cause.remote,
            "reason": cause.reason,
            "concern": concern,
            "account": account_column(cause.actor.account),
        })
    });
    rows.collect::<Value>().to_string()
}

/// Makes the texts of an event storable before hashing, because the hash covers the stored texts.
fn storable(event: NewLockEvent) -> NewLockEvent {
    let Cause {
        actor,
        remote,
        reason,
    } = event.cause;
    let actor = Actor {
        login: free_text(&actor.login).into_owned(),
        ..actor
    };
    let remote = remote.map(|remote| free_text(&remote).into_owned());
    NewLockEvent {
        cause: Cause {
            actor,
            remote,
            reason: free_text(&reason).into_owned(),
        },
        ..event
    }
}

pub(super) use {event_columns, newest_sql};

/// An event as both tables store it.
#[derive(sqlx::FromRow)]
pub(super) struct EventPayloadRow {
    pub at: DateTime<Utc>,
    kind: LockEventKind,
    repo: Option<RepoId>,
    dir: Option<RepoPath>,
    workspace: Option<WorkspaceName>,
    scope: Option<String>,
    pull: Option<Subject>,
    actor: String,
    origin: Origin,
    remote: Option<String>,
    reason: String,
    concern: Option<Concern>,
    account: Option<i64>,
}

impl EventPayloadRow {
    /// Returns the scope of an event about applies. An event about a lock has a workspace, one about a pull has its
    /// number.
    fn applies(&self) -> Option<ApplyScope> {
        if self.workspace.is_some() || self.pull.is_some() {
            return None;
        }
        match (&self.repo, &self.dir) {
            (Some(repo), Some(dir)) => Some(ApplyScope::Path {
                repo: repo.clone(),
                dir: dir.clone(),
            }),
            (Some(repo), None) => Some(ApplyScope::Repo(repo.clone())),
            (None, _) => self.kind.is_of_applies().then_some(ApplyScope::Server),
        }
    }
}

impl From<EventPayloadRow> for NewLockEvent {
    fn from(row: EventPayloadRow) -> Self {
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
        let pull = row.repo.zip(row.pull).map(|(repo, number)| PullRef {
            repo,
            subject: number,
        });
        let actor = Actor::new(row.actor, row.origin).with_account(account_of_column(row.account));
        let cause = Cause {
            actor,
            remote: row.remote,
            reason: row.reason,
        };
        Self {
            kind: row.kind,
            key,
            scope: applies,
            pull,
            concern: row.concern,
            cause,
        }
    }
}

#[derive(sqlx::FromRow)]
pub(super) struct EventRow {
    place: i64,
    seq: Option<i64>,
    hash: Option<Sha256Digest>,
    title: Option<String>,
    account_name: Option<String>,
    account_status: Option<String>,
    #[sqlx(flatten)]
    what: EventPayloadRow,
}

impl From<EventRow> for LockEvent {
    fn from(row: EventRow) -> Self {
        let EventRow {
            place,
            seq,
            hash,
            title,
            account_name,
            account_status,
            what,
        } = row;
        let account = named(what.account, account_name, account_status);
        let link = seq.zip(hash).map(|(seq, hash)| ChainLink { seq, hash });
        Self {
            place,
            at: what.at,
            event: what.into(),
            link,
            title,
            account,
        }
    }
}

#[derive(sqlx::FromRow)]
struct ChainRow {
    seq: i64,
    previous: Sha256Digest,
    hash: Sha256Digest,
    #[sqlx(flatten)]
    what: EventPayloadRow,
}

impl From<ChainRow> for ChainedEvent {
    fn from(row: ChainRow) -> Self {
        let ChainRow {
            seq,
            previous,
            hash,
            what,
        } = row;
        Self {
            seq,
            at: what.at,
            event: what.into(),
            previous,
            hash,
        }
    }
}
