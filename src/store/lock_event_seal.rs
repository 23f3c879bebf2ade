//! Seals the chain of the audit log.
//!
//! The need: many writers add events at once, but in the chain one event must follow the other. So no writer
//! continues the chain. One sealer does so for all of them, a moment later. Only the sealer and `audit prune` lock
//! the chain.
//!
//! *Order*: an event gets its number when the sealer sees it. PostgreSQL assigns the numbers of the inbox before the
//! commit, so a lower one may appear after a higher one was sealed. It simply comes later in the chain. Events of one
//! lock are in order anyway: the writer of the second one has waited for the commit of the first.
//!
//! *Checkpoints*: a batch and the signature of its end are one transaction. So an event beyond the last checkpoint
//! does not come from a sealer. It comes from a server of the previous release, which continued the chain directly,
//! and is signed next.

use chrono::{DateTime, Utc};

use super::lock_events::{EventPayloadRow, event_columns};
use super::people::account_column;
use super::{Result, Store, Tx, execute, free_text, kept_time, on_pool, on_tx};
use crate::model::{ChainedEvent, NewLockEvent, Sha256Digest};
use crate::seal::{Checkpoint, KeyName, Pruned, PublicKey, SealedText, Signature, SigningKey};

/// Number of checkpoints to keep. Each one covers all before it, so older ones prove nothing more.
const CHECKPOINTS: i64 = 1_000;
/// Setting that stores the highest number ever sealed.
const HIGHEST: &str = "audit_highest";

const TAKE: &str = concat!(
    "DELETE FROM lock_event_inbox WHERE id IN (SELECT id FROM lock_event_inbox ORDER BY id LIMIT $1) RETURNING id, ",
    event_columns!()
);
const INSERT: &str = concat!(
    "INSERT INTO lock_events (seq, previous, hash, ",
    event_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
);
const SEALS: &str = "SELECT last_seq, last_hash, last_at, events, actor, sealed_at, key, signature FROM lock_event_seals \
                     ORDER BY last_seq";
const LAST_CHECKPOINT: &str =
    "SELECT seq, hash, signed_at, key, signature FROM audit_checkpoints ORDER BY seq DESC LIMIT 1";

/// Statement that takes the place of removed events.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LockEventSeal {
    /// Number of the last removed event.
    pub last_seq: i64,
    /// Hash of that event, which the next event continues.
    pub last_hash: Sha256Digest,
    /// Time of that event.
    pub last_at: DateTime<Utc>,
    /// Number of removed events.
    pub events: i64,
    /// Login of the person who removed them.
    pub actor: String,
    /// Time of the removal.
    pub sealed_at: DateTime<Utc>,
    /// Key that signed the seal; `None`: the seal is older than checkpoints.
    pub key: Option<PublicKey>,
    /// Signature with that key.
    pub signature: Option<Signature>,
}

impl LockEventSeal {
    /// Returns the statement that is signed.
    pub fn statement(&self) -> Pruned<'_> {
        Pruned {
            last_seq: self.last_seq,
            last_hash: &self.last_hash,
            last_at: self.last_at,
            events: self.events,
            actor: &self.actor,
            at: self.sealed_at,
        }
    }

    /// Returns true if one of these keys has signed the seal.
    pub fn is_signed_by(&self, keys: &[PublicKey]) -> bool {
        match (self.key, &self.signature) {
            (Some(key), Some(signature)) => {
                keys.contains(&key) && self.statement().is_authentic(key, signature)
            }
            (None, _) | (Some(_), None) => false,
        }
    }
}

/// A key that signs checkpoints.
#[derive(Clone, Debug)]
pub struct AuditKey {
    pub public: PublicKey,
    /// Encrypted private key; `None`: it is in the data directory of a server.
    pub sealed: Option<SealedText>,
    /// Time when the key was made.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct KeyRow {
    public: PublicKey,
    key_id: Option<KeyName>,
    secret: Option<Vec<u8>>,
    created_at: DateTime<Utc>,
}

impl From<KeyRow> for AuditKey {
    fn from(row: KeyRow) -> Self {
        let sealed = row
            .key_id
            .zip(row.secret)
            .map(|(key, bytes)| SealedText { key, bytes });
        Self {
            public: row.public,
            sealed,
            created_at: row.created_at,
        }
    }
}

#[derive(sqlx::FromRow)]
struct CheckpointRow {
    seq: i64,
    hash: Sha256Digest,
    signed_at: DateTime<Utc>,
    key: PublicKey,
    signature: Signature,
}

impl From<CheckpointRow> for Checkpoint {
    fn from(row: CheckpointRow) -> Self {
        let CheckpointRow {
            seq,
            hash,
            signed_at,
            key,
            signature,
        } = row;
        Self {
            seq,
            hash,
            signed_at,
            key,
            signature,
        }
    }
}

/// Extent of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct AuditLogRange {
    /// Number of the newest event in the chain; 0: none.
    pub head: i64,
    /// Number of events that wait to be sealed.
    pub waiting: i64,
    /// Number of the event of the last checkpoint; 0: none.
    pub checkpoint: i64,
    /// Highest number that was ever sealed; 0: none.
    pub sealed: i64,
    /// Highest number that a walk of the verification has reached.
    pub walked: i64,
}

/// Outcome of sealing the log.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealLog {
    /// All events are sealed and signed already.
    Nothing,
    /// Events were sealed, and the end of the chain was signed.
    Sealed {
        /// Number of sealed events.
        events: u64,
        /// The new checkpoint at the end of the chain.
        checkpoint: Checkpoint,
    },
    /// The event of this checkpoint is not in the chain as it was signed. Nothing was done.
    Torn(Checkpoint),
}

/// Outcome of pruning the log.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PruneLog {
    /// No event is that old, or none of the old ones is signed yet.
    Nothing,
    /// Events were removed, and this seal takes their place.
    Pruned(LockEventSeal),
}

impl Store {
    /// Lists the seals of the events that were removed from the beginning of the chain, oldest first.
    pub async fn lock_event_seals(&self) -> Result<Vec<LockEventSeal>> {
        on_pool!(self, db => sqlx::query_as::<_, LockEventSeal>(SEALS).fetch_all(db))
    }

    /// Returns the extent of the log, without reading the events.
    pub async fn audit_reach(&self) -> Result<AuditLogRange> {
        on_pool!(self, db => sqlx::query_as::<_, AuditLogRange>(
            "SELECT COALESCE((SELECT MAX(seq) FROM lock_events), 0) AS head, \
             (SELECT COUNT(*) FROM lock_event_inbox) AS waiting, \
             COALESCE((SELECT MAX(seq) FROM audit_checkpoints), 0) AS checkpoint, \
             COALESCE((SELECT CAST(value AS BIGINT) FROM settings WHERE key = $1), 0) AS sealed, \
             COALESCE((SELECT MAX(seq) FROM lock_event_walks), 0) AS walked").bind(HIGHEST).fetch_one(db))
    }

    /// Lists the keys that signed checkpoints, newest first.
    pub async fn audit_keys(&self) -> Result<Vec<AuditKey>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, KeyRow>(
            "SELECT public, key_id, secret, created_at FROM audit_keys ORDER BY created_at DESC, public")
            .fetch_all(db))?;
        Ok(rows.into_iter().map(AuditKey::from).collect())
    }

    /// Stores a key, and an event if one is given. `false`: the key was stored already.
    pub async fn audit_key_add(
        &self,
        public: PublicKey,
        sealed: Option<&SealedText>,
        event: Option<NewLockEvent>,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        let added = execute!(
            &mut tx,
            "INSERT INTO audit_keys (public, key_id, secret, created_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (public) DO NOTHING",
            public,
            sealed.map(|sealed| &sealed.key),
            sealed.map(|sealed| sealed.bytes.as_slice()),
            kept_time(self.now()),
        )?;
        if added > 0 {
            self.lock_events_in_tx(&mut tx, event.into_iter().collect())
                .await?;
        }
        tx.commit().await.map(|()| added > 0)
    }

    /// Replaces the encrypted private key after its encryption key changed.
    pub async fn audit_key_reseal(&self, public: PublicKey, sealed: &SealedText) -> Result<()> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "UPDATE audit_keys SET key_id = $1, secret = $2 WHERE public = $3",
            &sealed.key,
            sealed.bytes.as_slice(),
            public,
        )?;
        tx.commit().await
    }

    /// Lists the stored checkpoints, oldest first.
    pub async fn audit_checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let rows = on_pool!(self, db => sqlx::query_as::<_, CheckpointRow>(
            "SELECT seq, hash, signed_at, key, signature FROM audit_checkpoints ORDER BY seq").fetch_all(db))?;
        Ok(rows.into_iter().map(Checkpoint::from).collect())
    }

    /// Returns the last checkpoint.
    pub async fn audit_checkpoint_last(&self) -> Result<Option<Checkpoint>> {
        let row = on_pool!(self, db => sqlx::query_as::<_, CheckpointRow>(LAST_CHECKPOINT).fetch_optional(db))?;
        Ok(row.map(Checkpoint::from))
    }

    /// Moves the oldest events of the inbox to the chain, at most `limit` of them, and signs its new end. `mark` is a
    /// checkpoint that is known from outside the database. Nobody can have rewritten the log before `mark` was known.
    pub async fn lock_event_seal(
        &self,
        key: &SigningKey,
        mark: Option<&Checkpoint>,
        limit: i64,
    ) -> Result<SealLog> {
        let mut tx = self.begin().await?;
        chain_hold_in_tx(&mut tx).await?;
        let last = on_tx!(&mut tx, db => sqlx::query_as::<_, CheckpointRow>(LAST_CHECKPOINT).fetch_optional(db))?;
        let last = last.map(Checkpoint::from);
        if let Some(last) = &last
            && !has_event_in_tx(&mut tx, last).await?
        {
            return Ok(SealLog::Torn(last.clone()));
        }
        if let Some(mark) = mark
            && !has_event_in_tx(&mut tx, mark).await?
            && !has_pruned_in_tx(&mut tx, mark).await?
        {
            return Ok(SealLog::Torn(mark.clone()));
        }
        let head = on_tx!(&mut tx, db => sqlx::query_as::<_, (i64, Sha256Digest)>(
            "SELECT seq, hash FROM lock_events ORDER BY seq DESC LIMIT 1").fetch_optional(db))?;
        let (mut seq, mut hash) = head.unwrap_or_else(|| (0, ChainedEvent::genesis()));
        let mut taken =
            on_tx!(&mut tx, db => sqlx::query_as::<_, InboxRow>(TAKE).bind(limit).fetch_all(db))?;
        taken.sort_by_key(|row| row.id);
        let events = taken.len() as u64;
        for row in taken {
            seq += 1;
            let (at, event) = (row.what.at, NewLockEvent::from(row.what));
            let next = ChainedEvent::hash_of(seq, at, &event, &hash);
            insert_in_tx(
                &mut tx,
                &ChainedEvent {
                    seq,
                    at,
                    event,
                    previous: hash,
                    hash: next.clone(),
                },
            )
            .await?;
            hash = next;
        }
        if events == 0 && last.map_or(0, |last| last.seq) == seq {
            return Ok(SealLog::Nothing);
        }
        let checkpoint = Checkpoint::sign(key, seq, hash, kept_time(self.now()));
        checkpoint_insert_in_tx(&mut tx, &checkpoint).await?;
        tx.commit()
            .await
            .map(|()| SealLog::Sealed { events, checkpoint })
    }

    /// Removes the events from before a time and puts a signed seal in their place. `event` makes the event about the
    /// removal from that seal. Keeps the event of the last checkpoint and all after it.
    pub async fn lock_event_prune(
        &self,
        before: DateTime<Utc>,
        actor: &str,
        key: &SigningKey,
        event: impl FnOnce(&LockEventSeal) -> NewLockEvent,
    ) -> Result<PruneLog> {
        let mut tx = self.begin().await?;
        chain_hold_in_tx(&mut tx).await?;
        // Times need not grow with the numbers, so an event stays if an earlier one in the chain is too young to be
        // removed.
        let last = on_tx!(&mut tx, db => sqlx::query_as::<_, (i64, Sha256Digest, DateTime<Utc>)>(
            "SELECT seq, hash, at FROM lock_events WHERE seq < COALESCE((SELECT MAX(seq) FROM audit_checkpoints), 0) \
             AND seq < COALESCE((SELECT MIN(n.seq) FROM lock_events n WHERE n.at >= $1), 9223372036854775807) \
             ORDER BY seq DESC LIMIT 1").bind(kept_time(before)).fetch_optional(db))?;
        let Some((last_seq, last_hash, last_at)) = last else {
            return Ok(PruneLog::Nothing);
        };
        let removed = execute!(&mut tx, "DELETE FROM lock_events WHERE seq <= $1", last_seq)?;
        let mut seal = LockEventSeal {
            last_seq,
            last_hash,
            last_at,
            events: i64::try_from(removed).unwrap_or(i64::MAX),
            actor: free_text(actor).into_owned(),
            sealed_at: kept_time(self.now()),
            key: Some(key.public()),
            signature: None,
        };
        seal.signature = Some(seal.statement().sign(key));
        execute!(
            &mut tx,
            "INSERT INTO lock_event_seals (last_seq, last_hash, last_at, events, actor, sealed_at, key, signature) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            seal.last_seq,
            &seal.last_hash,
            seal.last_at,
            seal.events,
            &seal.actor,
            seal.sealed_at,
            seal.key,
            seal.signature,
        )?;
        self.lock_events_in_tx(&mut tx, vec![event(&seal)]).await?;
        tx.commit().await.map(|()| PruneLog::Pruned(seal))
    }
}

#[derive(sqlx::FromRow)]
struct InboxRow {
    id: i64,
    #[sqlx(flatten)]
    what: EventPayloadRow,
}

/// Locks the chain, so that nobody else continues it until the transaction ends. SQLite has only one writing
/// transaction anyway.
async fn chain_hold_in_tx(tx: &mut Tx) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => {
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('lock_events', 0))")
                .execute(&mut **tx)
                .await
                .map(drop)
        }
    }
}

async fn insert_in_tx(tx: &mut Tx, kept: &ChainedEvent) -> Result<()> {
    let NewLockEvent {
        kind,
        key,
        pull,
        concern,
        cause,
        scope: _,
    } = &kept.event;
    execute!(
        tx,
        INSERT,
        kept.seq,
        &kept.previous,
        &kept.hash,
        kept.at,
        *kind,
        kept.event.repo(),
        kept.event.dir(),
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

async fn checkpoint_insert_in_tx(tx: &mut Tx, new: &Checkpoint) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO audit_checkpoints (seq, hash, signed_at, key, signature) VALUES ($1, $2, $3, $4, $5)",
        new.seq,
        &new.hash,
        new.signed_at,
        new.key,
        new.signature,
    )?;
    execute!(
        tx,
        "DELETE FROM audit_checkpoints WHERE seq <= (SELECT seq FROM audit_checkpoints ORDER BY seq DESC LIMIT 1 OFFSET $1)",
        CHECKPOINTS,
    )?;
    execute!(
        tx,
        "INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        HIGHEST,
        new.seq.to_string(),
    )
    .map(drop)
}

/// Returns true if the log still has the event of a checkpoint as it was signed. Pruning never removes that of the
/// last one.
async fn has_event_in_tx(tx: &mut Tx, checkpoint: &Checkpoint) -> Result<bool> {
    let hash = on_tx!(tx, db => sqlx::query_scalar::<_, Sha256Digest>(
        "SELECT hash FROM lock_events WHERE seq = $1").bind(checkpoint.seq).fetch_optional(db))?;
    Ok(hash.is_some_and(|hash| hash == checkpoint.hash))
}

/// Returns true if the event of a checkpoint was pruned since. An attacker may have written a seal to make it look
/// so. Therefore every seal must be signed.
async fn has_pruned_in_tx(tx: &mut Tx, checkpoint: &Checkpoint) -> Result<bool> {
    let seals = on_tx!(&mut *tx, db => sqlx::query_as::<_, LockEventSeal>(SEALS).fetch_all(db))?;
    let keys = on_tx!(tx, db => sqlx::query_scalar::<_, PublicKey>("SELECT public FROM audit_keys").fetch_all(db))?;
    if !seals.iter().all(|seal| seal.is_signed_by(&keys)) {
        return Ok(false);
    }
    Ok(match seals.last() {
        Some(last) if last.last_seq == checkpoint.seq => last.last_hash == checkpoint.hash,
        Some(last) => last.last_seq > checkpoint.seq,
        None => checkpoint.seq == 0,
    })
}
