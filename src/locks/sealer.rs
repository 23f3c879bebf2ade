//! The sealer of the audit log, and pruning, which is sealed in the same way.

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use tracing::info;

use super::audit::{Evidence, Verdict, anchored, verify};
use super::audit_files::AuditFiles;
use crate::model::{Actor, Cause, LockEventKind, NewLockEvent, Origin};
use crate::store::{LockEventSeal, PruneLog, SealLog, Store};

/// Events that are sealed in one transaction.
const BATCH: i64 = 500;
/// Batches of one look; the next look takes what is left.
const BATCHES: usize = 40;

/// Seals what was written since the last time, and publishes a checkpoint for each batch. Tells how many events it
/// sealed. A log that does not reach the last checkpoint is not continued: that would cover up what is missing.
pub async fn seal_log(store: &Store, files: &AuditFiles) -> anyhow::Result<u64> {
    let reach = store.audit_reach().await?;
    let mark = files.mark()?;
    let evidence = Evidence {
        checkpoints: mark.iter().cloned().collect(),
        keys: None,
    };
    if let Some((seq, fault)) = anchored(store, &evidence).await? {
        let way_out = if anchored(store, &Evidence::default()).await?.is_some() {
            // No file can help: the database contradicts the checkpoints that it has itself.
            "Restore the database from a backup that was made before that".to_owned()
        } else {
            format!(
                "Only if you know why, as after a backup was restored, move {} away on every server: they go on from what is \
                 there then",
                files.mark_path().display()
            )
        };
        bail!(
            "the audit log is not sealed any further: event {seq} {}. Run `lockkeeper audit verify`. {way_out}",
            fault.says()
        );
    }
    let last = store.audit_checkpoint_last().await?;
    if let Some(last) = last.filter(|last| mark.as_ref().is_none_or(|mark| mark.seq < last.seq)) {
        // Another server signed it, or this one died before it could write it down.
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
                    "the audit log was changed at event {}, of which a checkpoint was signed",
                    checkpoint.seq
                )
            }
        }
    }
    Ok(sealed)
}

/// Removes the events from before a time, if the log is whole and the key that signs it is here. `None`: nothing is that
/// old.
pub async fn prune_log(
    store: &Store,
    files: &AuditFiles,
    before: DateTime<Utc>,
    actor: &str,
) -> anyhow::Result<Option<LockEventSeal>> {
    let evidence = Evidence {
        checkpoints: files.checkpoints()?,
        keys: None,
    };
    if let Verdict::Broken { seq, fault } = verify(store, &evidence, None).await? {
        bail!(
            "nothing was pruned, because the audit log is broken: event {seq} {}",
            fault.says()
        );
    }
    let key = files.key(store).await?.context(
        "pruning is signed, and the key for that is not here: run this on the server with its --data-dir and \
         --encryption-key-file, after the server has sealed the log",
    )?;
    let pruned = store.lock_event_prune(before, actor, &key, |seal| {
        let reason = format!(
            "{} events up to number {} were removed (hash {})",
            seal.events, seal.last_seq, seal.last_hash
        );
        let cause = Cause::new(
            Actor {
                login: actor.to_owned(),
                origin: Origin::Cli,
            },
            reason,
        );
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
