//! `lockkeeper audit (verify | key | list | prune)`: the audit log.

use std::sync::Arc;

use anyhow::Context as _;
use chrono::{DateTime, NaiveDate, Utc};

use super::{files, view};
use crate::config::server::StorageConfig;
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, SubcommandArgs, Terminal, Usage, block_on,
    database, safe, time,
};
use crate::locks::{AuditFiles, AuditVerdict, KnownLogState, WholeLog, prune_log, verify};
use crate::model::{LockEvent, Sha256Digest};
use crate::seal::{PublicKey, keyring};
use crate::store::Store;

/// Show, verify and prune the audit log
#[derive(clap::Parser)]
pub(super) enum AuditArgs {
    /// Prove that no event was changed or removed, or name the first such event
    ///
    /// Reads the whole log and checks that each event continues the one before it. Also checks that the log contains the
    /// events that were signed in checkpoints: those in the database, the last one in the data directory, and those in
    /// --audit-checkpoint-file. A copy of that file from another machine proves that nothing was cut off the end. So
    /// does --contains with the hash of the newest event, which this command prints.
    ///
    /// Exit code 1: the log is broken, or the hash is not in it.
    Verify {
        /// Key that may sign, as `audit key` printed it; the default is the keys in the database
        #[arg(long = "public-key", value_name = "KEY")]
        public_keys: Option<Vec<PublicKey>>,
        /// Hash that was printed earlier, which must still be in the log
        #[arg(long, value_name = "HASH")]
        contains: Option<Sha256Digest>,
        #[command(flatten)]
        log: AuditLogFlags,
    },
    /// Show the public keys that sign the checkpoints of the log
    Key {
        #[command(flatten)]
        log: AuditLogFlags,
    },
    /// Show the newest events
    List {
        /// Maximum number of events
        #[arg(
            long,
            value_name = "NUMBER",
            default_value = "50",
            value_parser = clap::value_parser!(i64).range(1..=100_000)
        )]
        limit: i64,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        log: AuditLogFlags,
    },
    /// Remove old events, and leave a seal that the other events continue
    Prune {
        /// Remove events from before this day, as in 2026-01-31 (UTC)
        #[arg(long, value_name = "DATE", value_parser = date)]
        before: DateTime<Utc>,
        #[command(flatten)]
        log: AuditLogFlags,
    },
}

/// Flags of the server for the database and for the files that prove the log.
#[derive(clap::Args)]
pub(super) struct AuditLogFlags {
    #[command(flatten)]
    database: DatabaseFlags,
    /// Keys of the server, as for `lockkeeper server`
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<String>,
    /// File of exported checkpoints, as for `lockkeeper server`, or a copy of it
    #[arg(long, value_name = "FILE")]
    audit_checkpoint_file: Option<String>,
}

impl AuditLogFlags {
    /// Opens the database, which must exist.
    async fn open(&self) -> anyhow::Result<(Store, StorageConfig)> {
        let raw = self.database.settings_with([
            ("encryption-key-file", self.encryption_key_file.as_ref()),
            ("audit-checkpoint-file", self.audit_checkpoint_file.as_ref()),
        ])?;
        let storage = StorageConfig::from_raw(&raw).map_err(Usage::new)?;
        Ok((database::open(&storage).await?, storage))
    }

    /// Opens the database, and the files with keys and checkpoints.
    async fn open_with_files(&self) -> anyhow::Result<(Store, AuditFiles)> {
        let (store, storage) = self.open().await?;
        let keys = storage
            .encryption_keys
            .as_deref()
            .map(keyring)
            .transpose()?;
        let files = files(&storage, keys.map(Arc::new))?;
        Ok((store, files))
    }
}

fn date(text: &str) -> Result<DateTime<Utc>, String> {
    let day = text
        .parse::<NaiveDate>()
        .map_err(|_| "it is not a day: write it as in 2026-01-31".to_owned())?;
    Ok(day.and_time(chrono::NaiveTime::MIN).and_utc())
}

impl SubcommandArgs for AuditArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        block_on(async {
            match self {
                Self::Verify {
                    public_keys,
                    contains,
                    log,
                } => {
                    let (store, files) = log.open_with_files().await?;
                    let evidence = KnownLogState {
                        checkpoints: files.checkpoints()?,
                        keys: public_keys,
                    };
                    run_verify(&store, &files, &evidence, contains.as_ref(), terminal).await
                }
                Self::Key { log } => {
                    let (store, files) = log.open_with_files().await?;
                    run_key(&store, &files, terminal).await
                }
                Self::List { limit, format, log } => {
                    run_list(&log.open().await?.0, limit, format, terminal).await
                }
                Self::Prune { before, log } => {
                    let (store, files) = log.open_with_files().await?;
                    run_prune(&store, &files, before, terminal).await
                }
            }
        })?
    }
}

async fn run_verify(
    store: &Store,
    files: &AuditFiles,
    evidence: &KnownLogState,
    contains: Option<&Sha256Digest>,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match verify(store, evidence, contains)
        .await
        .context("the log could not be read")?
    {
        AuditVerdict::Whole(whole) => {
            let before = if whole.removed > 0 {
                format!(" after {} that were pruned", whole.removed)
            } else {
                String::new()
            };
            terminal.line(format_args!(
                "The log is intact: {} events{before}. The newest has the hash {}.",
                whole.events, whole.head
            ))?;
            for line in about_signature(store, files, evidence, &whole).await {
                terminal.line(line)?;
            }
            if !whole.known {
                terminal
                    .note("error: the hash of --contains is not in the log: events were removed");
                return Ok(ExitStatus::Failure);
            }
            Ok(ExitStatus::Success)
        }
        AuditVerdict::Broken { seq, fault } => {
            terminal.note(format_args!(
                "error: the log is broken: event {seq} {}",
                fault.says()
            ));
            Ok(ExitStatus::Failure)
        }
    }
}

/// Describes how far the log is signed, and if the signature can be trusted.
async fn about_signature(
    store: &Store,
    files: &AuditFiles,
    evidence: &KnownLogState,
    whole: &WholeLog,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(last) = &whole.checkpoint {
        // A user who verifies the log may not be able to read the private key.
        let ours = files
            .key(store)
            .await
            .ok()
            .flatten()
            .map(|key| key.public());
        let trust = if ours == Some(last.key) {
            "the key of this server"
        } else if evidence.keys.is_some() {
            "a key that you named"
        } else {
            "a key that only the database names: compare it with the output of `lockkeeper audit key` on the server, or name \
             the right key with --public-key"
        };
        lines.push(format!(
            "The last checkpoint is of event {}, signed with {}, {trust}.",
            last.seq, last.key
        ));
    }
    if whole.unsigned > 0 {
        lines.push(format!(
            "{} events are not signed yet. A running server signs them within seconds.",
            whole.unsigned
        ));
    }
    lines
}

async fn run_key(store: &Store, files: &AuditFiles, terminal: &mut Terminal<'_>) -> ExitResult {
    let known = store
        .audit_keys()
        .await
        .context("the keys could not be read")?;
    if known.is_empty() {
        terminal.note("There is no key yet. A server creates it when it seals the first event.");
        return Ok(ExitStatus::Failure);
    }
    let ours = files
        .key(store)
        .await
        .ok()
        .flatten()
        .map(|key| key.public());
    for key in known {
        let kept = match &key.sealed {
            Some(sealed) => format!("in the database, encrypted with {}", sealed.key),
            None => "in the data directory of a server".to_owned(),
        };
        let here = if ours == Some(key.public) {
            "; this server signs with it"
        } else {
            ""
        };
        terminal.line(format_args!(
            "{} since {} ({kept}{here})",
            key.public,
            time(key.created_at)
        ))?;
    }
    Ok(ExitStatus::Success)
}

async fn run_list(
    store: &Store,
    limit: i64,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let events = store
        .lock_event_list(limit)
        .await
        .context("the log could not be read")?;
    for event in events.iter().rev() {
        format.print(terminal, || view(event), || as_text(event))?;
    }
    Ok(ExitStatus::Success)
}

fn as_text(kept: &LockEvent) -> String {
    let cause = &kept.event.cause;
    let lock = kept.event.key.as_ref().map(|key| format!(" {key}"));
    let lock = lock
        .or_else(|| kept.event.scope.as_ref().map(|scope| format!(" {scope}")))
        .unwrap_or_default();
    let pull = kept
        .of_whom()
        .map(|whom| format!(" {whom}"))
        .unwrap_or_default();
    let remote = cause
        .remote
        .as_ref()
        .map(|remote| format!(" from {remote}"))
        .unwrap_or_default();
    let kind = kept.event.kind;
    let number = kept
        .seq()
        .map_or_else(|| "-".to_owned(), |seq| seq.to_string());
    let line = format!(
        "{number} {} {kind}{lock}{pull} by {} ({}{remote}): {}",
        time(kept.at),
        kept.who(),
        cause.actor.origin,
        cause.reason
    );
    safe(&line)
}

async fn run_prune(
    store: &Store,
    files: &AuditFiles,
    before: DateTime<Utc>,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let who = crate::kit::term::environment::user();
    match prune_log(store, files, before, &who)
        .await
        .context("the log could not be pruned")?
    {
        Some(seal) => terminal.line(format_args!(
            "Removed {} events. The last of them was number {} of {}. The log continues its hash {}.",
            seal.events,
            seal.last_seq,
            time(seal.last_at),
            seal.last_hash
        ))?,
        None => terminal.line("No event in the log is that old.")?,
    }
    Ok(ExitStatus::Success)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use insta::assert_snapshot;
    use sqlx::Connection as _;

    use super::*;
    use crate::cli::tests::call;
    use crate::clock::{RandomIds, SystemClock};
    use crate::locks::seal_log;
    use crate::model::{Actor, ApplyScope, Cause, Origin};
    use crate::store::DatabaseUrl;

    fn url(dir: &Path) -> DatabaseUrl {
        DatabaseUrl::Sqlite(dir.join("lockkeeper.db"))
    }

    /// Adds four events, and seals them as a server does.
    async fn fill(dir: &Path) {
        let store = Store::open(&url(dir), Arc::new(SystemClock), Arc::new(RandomIds))
            .await
            .unwrap();
        let cause = Cause::new(Actor::new("ops", Origin::Cli), "the database moves");
        for _ in 0..2 {
            let _set = store
                .apply_lock_set(&ApplyScope::Server, None, &cause)
                .await
                .unwrap();
            store
                .apply_lock_clear(&ApplyScope::Server, &cause)
                .await
                .unwrap();
        }
        let files = AuditFiles::new(
            dir,
            &url(dir).to_string(),
            Some(dir.join("checkpoints")),
            None,
        );
        assert_eq!(seal_log(&store, &files).await.unwrap(), 4);
        store.close().await;
    }

    async fn execute(dir: &Path, sql: &'static str) {
        let file = dir.join("lockkeeper.db").display().to_string();
        let mut connection = sqlx_sqlite::SqliteConnection::connect(&format!("sqlite:{file}"))
            .await
            .unwrap();
        sqlx::query(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Returns the exit code and the output, without keys and hashes.
    fn audit(dir: &Path, args: &[&str]) -> (ExitStatus, String) {
        let data = dir.display().to_string();
        let (exit, out, err) = call(&[&["audit"], args, &["--data-dir", &data]].concat());
        let secret =
            regex::Regex::new(r"[0-9a-f]{64}|[A-Za-z0-9+/]{43}=|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
                .unwrap();
        (
            exit,
            secret.replace_all(&format!("{out}{err}"), "…").into_owned(),
        )
    }

    #[test]
    fn a_log_is_verified_and_what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        block_on(fill(dir.path())).unwrap();
        let (exit, said) = audit(dir.path(), &["verify"]);
        assert_eq!(exit, ExitStatus::Success, "{said}");
        assert_snapshot!(said, @"
        The log is intact: 4 events. The newest has the hash ….
        The last checkpoint is of event 4, signed with …, the key of this server.
        ");
        let (exit, said) = audit(dir.path(), &["key"]);
        assert_eq!(exit, ExitStatus::Success);
        assert_snapshot!(said, @"… since … (in the data directory of a server; this server signs with it)");
        block_on(execute(dir.path(), "DELETE FROM lock_events WHERE seq > 1")).unwrap();
        block_on(execute(dir.path(), "DELETE FROM audit_checkpoints")).unwrap();
        block_on(execute(dir.path(), "DELETE FROM settings")).unwrap();
        let (exit, said) = audit(dir.path(), &["verify"]);
        assert_eq!(exit, ExitStatus::Failure);
        assert_snapshot!(said, @"error: the log is broken: event 2 and all after it up to event 4 are missing");
        // The exported checkpoint alone proves the same.
        let file = dir.path().join("checkpoints").display().to_string();
        std::fs::remove_dir_all(dir.path().join("audit")).unwrap();
        assert_eq!(audit(dir.path(), &["verify"]).0, ExitStatus::Success);
        let (exit, said) = audit(dir.path(), &["verify", "--audit-checkpoint-file", &file]);
        assert_eq!(exit, ExitStatus::Failure);
        assert!(
            said.contains("event 2 and all after it up to event 4 are missing"),
            "{said}"
        );
    }
}
