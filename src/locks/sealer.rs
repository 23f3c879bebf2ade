//! The sealer of the audit log, and pruning, which is sealed in the same way.

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use tracing::info;

use super::audit::{AuditVerdict, KnownLogState, anchored, verify};
use super::audit_files::AuditFiles;
use crate::model::{Actor, Cause, LockEventKind, NewLockEvent, Origin};
use crate::store::{LockEventSeal, PruneLog, SealLog, Store};

/// Number of events that are sealed in one transaction.
const BATCH: i64 = 500;
/// Maximum number of batches per call. The next call seals the rest.
const BATCHES: usize = 40;

/// Seals the new events, and publishes a checkpoint for each batch. Returns the number of sealed events. Does not continue
/// a log that does not reach the last checkpoint, because that would hide the missing events.
pub async fn seal_log(store: &Store, files: &AuditFiles) -> anyhow::Result<u64> {
    let reach = store.audit_reach().await?;
    let mark = files.mark()?;
    let evidence = KnownLogState {
        checkpoints: mark.iter().cloned().collect(),
        keys: None,
    };
    if let Some((seq, fault)) = anchored(store, &evidence).await? {
        let way_out = if anchored(store, &KnownLogState::default()).await?.is_some() {
            // No file can help: the database contradicts its own checkpoints.
            "Restore a backup of the database from before the damage".to_owned()
        } else {
            format!(
                "If you know the cause, such as a restored backup, move {} away on every server: the servers then continue \
                 the log as it is",
                files.mark_path().display()
            )
        };
        bail!(
            "cannot continue the audit log: event {seq} {}. Run `lockkeeper audit verify`. {way_out}",
            fault.says()
        );
    }
    let last = store.audit_checkpoint_last().await?;
    if let Some(last) = last.filter(|last| mark.as_ref().is_none_or(|mark| mark.seq < last.seq)) {
        // Another server signed it, or this one stopped before it could write it.
        files.publish(&last)?;
    }
    if reach.waiting == 0 && reach.head == reach.checkpoint {
        return Ok(0);
    }
    let key = files.key_or_new(store).await?;
    let mut sealed = 0;
    for _ in 0..BATCHES {
        match store.lock_event_seal(&key, mark.as_ref(), BATCH).await? {
            SealLog::Nothing => break,
            SealLog::Sealed { events, checkpoint } => {
                sealed += events;
                info!(seq = checkpoint.seq, events, %checkpoint, "Sealed the audit log");
                files.publish(&checkpoint)?;
            }
            SealLog::Torn(checkpoint) => {
                bail!(
                    "the audit log was changed at event {}, which has a signed checkpoint",
                    checkpoint.seq
                )
            }
        }
    }
    Ok(sealed)
}

/// Removes the events before a time, if the log is intact and its signing key is here. `None`: no event is that old.
pub async fn prune_log(
    store: &Store,
    files: &AuditFiles,
    before: DateTime<Utc>,
    actor: &str,
) -> anyhow::Result<Option<LockEventSeal>> {
    let evidence = KnownLogState {
        checkpoints: files.checkpoints()?,
        keys: None,
    };
    if let AuditVerdict::Broken { seq, fault } = verify(store, &evidence, None).await? {
        bail!(
            "cannot prune the audit log, because it is broken: event {seq} {}",
            fault.says()
        );
    }
    let key = files.key(store).await?.context(
        "cannot prune the audit log, because the key that signs it is not here. Run this on the server with its --data-dir \
         and --encryption-key-file, after the server has sealed the log",
    )?;
    let pruned = store.lock_event_prune(before, actor, &key, |seal| {
        let reason = format!(
            "{} events up to number {} were removed (hash {})",
            seal.events, seal.last_seq, seal.last_hash
        );
        let cause = Cause::new(Actor::new(actor, Origin::Cli), reason);
        NewLockEvent {
            kind: LockEventKind::Pruned,
            key: None,
            scope: None,
            pull: None,
            concern: None,
            cause,
        }
    });
    match pruned.await? {
        PruneLog::Pruned(seal) => Ok(Some(seal)),
        PruneLog::Nothing => Ok(None),
    }
}
