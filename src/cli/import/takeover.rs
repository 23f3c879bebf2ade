//! Turns Atlantis' records into records of Lockkeeper and reports the outcome.

use super::report::{
    ApplyLine, ImportLine, ImportReport, ImportResult, LockPlace, PullLine, StatusLine,
};
use crate::atlantis::{
    AtlantisRecords, FoundApplyLock, FoundLock, FoundPull, PlanStatus, RecordKind, Unusable,
};
use crate::command::{ApplyCommand, Command};
use crate::features::planning::CommandSpec;
use crate::model::{Lock, PullState};
use crate::store::{
    ImportApplyLock, ImportBatch, ImportLock, ImportMode, ImportStatus, ImportStatuses, Imported,
    ImportedApplyLock, ImportedLock, ImportedPull, Store,
};

/// Reason of a lock that was taken over; pages and comments show it with the holder.
const REASON: &str = "taken over from Atlantis";

/// Writes the records, or tries to; then reads them back.
pub(super) async fn takeover(
    store: &Store,
    found: AtlantisRecords,
    mode: ImportMode,
) -> anyhow::Result<ImportReport> {
    let batch = batch(&found);
    let imported = store.import(&batch, mode).await?;
    let mut report = report(&found, &imported);
    if mode == ImportMode::Write {
        report.written = true;
        report.wrong = store.import_verify(&batch, &imported).await?;
        report.verified = Some(report.wrong.is_empty());
    }
    Ok(report)
}

fn batch(found: &AtlantisRecords) -> ImportBatch {
    let lock = |lock: &FoundLock| ImportLock {
        pull: lock.pull.clone(),
        pull_url: lock.pull_url.clone(),
        project: lock.project.clone(),
        holder: lock.holder.clone(),
        reason: REASON.to_owned(),
        taken_at: lock.taken_at,
    };
    ImportBatch {
        pulls: found
            .pulls
            .iter()
            .map(|pull| (pull.pull.clone(), pull.url.clone()))
            .collect(),
        locks: found.locks.iter().map(lock).collect(),
        apply_lock: found.apply_lock.as_ref().map(apply_lock),
        statuses: found.pulls.iter().filter_map(statuses).collect(),
    }
}

/// Returns the statuses of a pull request. Without a commit or base branch, it is not known what the record is about.
fn statuses(pull: &FoundPull) -> Option<ImportStatuses> {
    let (head, base_branch) = pull.at.clone()?;
    let status = |status: PlanStatus| match status {
        PlanStatus::Applied => ImportStatus::Applied,
        PlanStatus::PlannedNoChanges => ImportStatus::NoChanges,
        PlanStatus::Planned
        | PlanStatus::PlanErrored
        | PlanStatus::ApplyErrored
        | PlanStatus::PlanDiscarded
        | PlanStatus::PolicyCheckErrored
        | PlanStatus::PolicyCheckPassed
        | PlanStatus::Unknown => ImportStatus::Unplanned,
    };
    Some(ImportStatuses {
        pull: pull.pull.clone(),
        head,
        base_branch,
        holder: "Atlantis".to_owned(),
        reason: REASON.to_owned(),
        spec: CommandSpec::Command(Command::Apply(ApplyCommand::default())).to_json(),
        projects: pull
            .projects
            .iter()
            .map(|found| (found.project.clone(), status(found.status)))
            .collect(),
    })
}

fn apply_lock(lock: &FoundApplyLock) -> ImportApplyLock {
    ImportApplyLock {
        holder: lock.holder.clone(),
        reason: lock.reason.clone(),
        taken_at: lock.taken_at,
    }
}

fn report(found: &AtlantisRecords, imported: &Imported) -> ImportReport {
    let mut report = ImportReport::default();
    report.locks.extend(
        found
            .locks
            .iter()
            .zip(&imported.locks)
            .map(|(lock, outcome)| lock_line(lock, outcome)),
    );
    report.pulls.extend(
        found
            .pulls
            .iter()
            .zip(&imported.pulls)
            .map(|(pull, outcome)| pull_line(pull, *outcome)),
    );
    report.apply_lock = found
        .apply_lock
        .as_ref()
        .zip(imported.apply_lock.as_ref())
        .map(|(lock, outcome)| {
            let (outcome, holder, since, reason) = match outcome {
                ImportedApplyLock::Taken => (
                    ImportResult::Taken,
                    &lock.holder,
                    lock.taken_at,
                    &lock.reason,
                ),
                ImportedApplyLock::AlreadyThere(lock) => (
                    ImportResult::AlreadyThere,
                    &lock.holder.login,
                    lock.taken_at,
                    &lock.reason,
                ),
            };
            ApplyLine {
                outcome,
                holder: holder.clone(),
                since,
                reason: reason.clone(),
            }
        });
    for unusable in &found.unusable {
        add_unusable(&mut report, unusable);
    }
    report
}

fn lock_line(lock: &FoundLock, imported: &ImportedLock) -> ImportLine {
    let (outcome, reason) = match imported {
        ImportedLock::Taken => (ImportResult::Taken, None),
        ImportedLock::AlreadyThere(held) => (ImportResult::AlreadyThere, shared(lock, held)),
        ImportedLock::HeldBy(held) => (ImportResult::Conflict, Some(held_by(lock, held))),
        ImportedLock::PullClosed(PullState::Merged) => (
            ImportResult::Skipped,
            Some("the pull request was merged".to_owned()),
        ),
        ImportedLock::PullClosed(_) => (
            ImportResult::Skipped,
            Some("the pull request was closed".to_owned()),
        ),
    };
    ImportLine {
        atlantis_key: lock.key.clone(),
        lock: Some(LockPlace::new(lock)),
        pull: Some(lock.pull.subject),
        pull_url: Some(lock.pull_url.clone()),
        holder: Some(lock.holder.clone()),
        since: lock.taken_at,
        outcome,
        reason,
    }
}

/// Explains that projects of one directory and workspace share their lock here (reference 7.1).
fn shared(lock: &FoundLock, held: &Lock) -> Option<String> {
    (lock.project.name != held.project.name)
        .then(|| "projects of one directory and workspace share their lock here".to_owned())
}

fn held_by(lock: &FoundLock, held: &Lock) -> String {
    let since = held.taken_at.format("%Y-%m-%d %H:%M UTC");
    let both = format!(
        "{} has held the lock since {since}, for {} ({})",
        held.pull, held.holder, held.reason
    );
    if lock.project.name == held.project.name {
        both
    } else {
        format!("{both}; projects of one directory and workspace share their lock here")
    }
}

fn pull_line(pull: &FoundPull, imported: ImportedPull) -> PullLine {
    let (outcome, reason) = match imported {
        ImportedPull::Taken => (ImportResult::Taken, None),
        ImportedPull::AlreadyThere(PullState::Open) => (ImportResult::AlreadyThere, None),
        ImportedPull::AlreadyThere(PullState::Merged) => (
            ImportResult::Skipped,
            Some("the pull request was merged".to_owned()),
        ),
        ImportedPull::AlreadyThere(PullState::Closed) => (
            ImportResult::Skipped,
            Some("the pull request was closed".to_owned()),
        ),
    };
    let projects = pull.projects.iter().map(|project| StatusLine {
        dir: project.project.dir.clone(),
        workspace: project.project.workspace.clone(),
        project: project.project.name.clone(),
        status: project.status,
        then: project.then(),
    });
    PullLine {
        pull: pull.pull.to_string(),
        url: Some(pull.url.clone()),
        outcome,
        reason,
        projects: projects.collect(),
    }
}

fn add_unusable(report: &mut ImportReport, unusable: &Unusable) {
    let outcome = if unusable.why.is_harmless() {
        ImportResult::Skipped
    } else {
        ImportResult::Unusable
    };
    let reason = Some(unusable.why.to_string());
    let key = unusable.key.clone();
    match unusable.kind {
        RecordKind::Lock => report.locks.push(ImportLine {
            reason,
            ..ImportLine::unknown(key, outcome)
        }),
        RecordKind::Pull => {
            report.pulls.push(PullLine {
                pull: key,
                url: None,
                outcome,
                reason,
                projects: Vec::new(),
            });
        }
    }
}
