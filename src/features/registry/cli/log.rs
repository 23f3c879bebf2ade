//! `lockkeeper registry (log | verify | key)`.

use anyhow::Context as _;
use lockkeeper_registry::records::{LogId, Record, RecordChange};
use serde_json::json;

use super::super::service::Registry;
use super::super::view::{key_json, verified_json};
use super::log_key;
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, safe};
use crate::store::Store;

/// Number of records that are read at once.
const PART: i64 = 500;

#[derive(clap::Args)]
pub(in crate::features::registry) struct LogArgs {
    /// Only records after this one
    #[arg(long, value_name = "ID")]
    after: Option<LogId>,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl LogArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let mut next = match self.after {
            Some(after) => following(after),
            None => Some(LogId::FIRST),
        };
        while let Some(from) = next {
            let records = store.registry_records(from, PART).await;
            let records = records.context("the log cannot be read")?;
            for (id, record) in &records {
                let json = || json!({ "id": id.get(), "record": record });
                self.format.print(terminal, json, || line(*id, record))?;
            }
            next = records.last().and_then(|(last, _)| following(*last));
        }
        Ok(ExitStatus::Success)
    }
}

fn following(id: LogId) -> Option<LogId> {
    LogId::new(id.get().checked_add(1)?).ok()
}

/// Returns a record in a line for people.
fn line(id: LogId, text: &str) -> String {
    let Ok(record) = Record::parse(text.as_bytes()) else {
        return format!("{id} cannot be read: `lockkeeper registry verify` says more");
    };
    let change = record.change();
    let end = match change {
        RecordChange::Add(content) => match &content.commit {
            Some(commit) => format!(" from commit {}", commit.as_str()),
            None => String::new(),
        },
        RecordChange::Deprecate(notice) => format!(": {}", notice.reason.as_str()),
        RecordChange::Delete(kind, notice) => format!(" ({kind}): {}", notice.reason.as_str()),
    };
    safe(&format!(
        "{id} {} {} {}{end}",
        record.time(),
        change.action(),
        record.key()
    ))
}

/// Recomputes the log and the state of every version, and prints what was verified.
pub(super) async fn verify(
    registry: &Registry,
    packages: bool,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let verified = registry.verify(packages).await;
    let verified = verified.context("the registry could not be verified")?;
    let json = || verified_json(&verified, packages);
    let report = match &verified {
        Ok(report) => report,
        Err(fault) => {
            if format.is_json() {
                terminal.line(json())?;
            }
            terminal.note(safe(&format!("error: {fault}")));
            return Ok(ExitStatus::Failure);
        }
    };
    let text = || {
        let of_packages = if packages {
            format!("Packages with the right checksums: {}.", report.packages)
        } else {
            "The packages were not read (--packages).".to_owned()
        };
        format!(
            "The log is intact: {} records, with the root {}. The state of {} versions agrees with it. {of_packages}",
            report.head.size, report.head.root, report.versions
        )
    };
    format.print(terminal, json, text)?;
    Ok(ExitStatus::Success)
}

/// Prints the public key of the log.
pub(super) async fn key(
    store: &Store,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let key = log_key(store).await?;
    format.print(terminal, || key_json(&key), || key.to_string())?;
    Ok(ExitStatus::Success)
}
