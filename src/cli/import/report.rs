//! The report of an import, with the reason for every record that was not imported: as text for people and as JSON
//! for programs.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::atlantis::{FoundLock, NextStep, PlanStatus};
use crate::model::{ProjectName, RepoPath, Subject, WorkspaceName};

/// Outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ImportResult {
    /// Imported by this run.
    Taken,
    /// Present before this import.
    AlreadyThere,
    /// Not imported, because another pull request holds the lock in Lockkeeper and keeps it.
    Conflict,
    /// Left out without a loss.
    Skipped,
    /// Left out because it cannot be used.
    Unusable,
}

/// Report of an import.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ImportReport {
    /// File or URL of Atlantis' database.
    pub from: String,
    /// URL of Lockkeeper's database.
    pub to: String,
    /// `false` for a trial.
    pub written: bool,
    /// `true` if all records were found when they were read back.
    pub verified: Option<bool>,
    /// Records that were not found when they were read back.
    pub wrong: Vec<String>,
    pub locks: Vec<ImportLine>,
    pub pulls: Vec<PullLine>,
    pub apply_lock: Option<ApplyLine>,
}

/// One lock of Atlantis.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ImportLine {
    pub atlantis_key: String,
    #[serde(flatten)]
    pub lock: Option<LockPlace>,
    pub pull: Option<Subject>,
    pub pull_url: Option<String>,
    pub holder: Option<String>,
    pub since: Option<DateTime<Utc>>,
    pub outcome: ImportResult,
    pub reason: Option<String>,
}

impl ImportLine {
    /// Creates the line of a lock if only its key is known.
    pub fn unknown(atlantis_key: String, outcome: ImportResult) -> Self {
        let (lock, pull, pull_url, holder, since, reason) = (None, None, None, None, None, None);
        Self {
            atlantis_key,
            lock,
            pull,
            pull_url,
            holder,
            since,
            outcome,
            reason,
        }
    }
}

/// Project that a lock protects.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LockPlace {
    host: String,
    repo: String,
    dir: RepoPath,
    workspace: WorkspaceName,
    project: Option<ProjectName>,
}

impl LockPlace {
    pub fn new(lock: &FoundLock) -> Self {
        Self {
            host: lock.pull.repo.host().to_string(),
            repo: lock.pull.repo.full_name().to_owned(),
            dir: lock.project.dir.clone(),
            workspace: lock.project.workspace.clone(),
            project: lock.project.name.clone(),
        }
    }
}

/// Outcome of a pull request.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PullLine {
    pub pull: String,
    pub url: Option<String>,
    pub outcome: ImportResult,
    pub reason: Option<String>,
    pub projects: Vec<StatusLine>,
}

/// Status of a project.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct StatusLine {
    pub dir: RepoPath,
    pub workspace: WorkspaceName,
    pub project: Option<ProjectName>,
    pub status: PlanStatus,
    pub then: NextStep,
}

/// Outcome of the apply lock.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ApplyLine {
    pub outcome: ImportResult,
    pub holder: String,
    pub since: DateTime<Utc>,
    pub reason: String,
}

impl ImportReport {
    /// Returns `true` if all records that matter are, or would be, imported.
    pub fn is_complete(&self) -> bool {
        let fates = self
            .locks
            .iter()
            .map(|lock| lock.outcome)
            .chain(self.pulls.iter().map(|pull| pull.outcome));
        self.wrong.is_empty()
            && !fates
                .into_iter()
                .any(|fate| matches!(fate, ImportResult::Conflict | ImportResult::Unusable))
    }

    fn word(&self, fate: ImportResult) -> &'static str {
        match (fate, self.written) {
            (ImportResult::Taken, true) => "imported",
            (ImportResult::Taken, false) => "would be imported",
            (ImportResult::AlreadyThere, _) => "already there",
            (ImportResult::Conflict, _) => "CONFLICT",
            (ImportResult::Skipped, _) => "skipped",
            (ImportResult::Unusable, _) => "NOT IMPORTED",
        }
    }

    fn summary(&self) -> String {
        let count = |fate| {
            self.locks
                .iter()
                .filter(|lock| lock.outcome == fate)
                .count()
        };
        let parts = [
            ImportResult::Taken,
            ImportResult::AlreadyThere,
            ImportResult::Conflict,
            ImportResult::Unusable,
            ImportResult::Skipped,
        ];
        let parts = parts.map(|fate| (count(fate), self.word(fate)));
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(", ")
        }
    }

    fn write_pulls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nPull requests: {}", self.pulls.len())?;
        for pull in &self.pulls {
            let reason = pull
                .reason
                .as_ref()
                .map(|reason| format!(": {reason}"))
                .unwrap_or_default();
            writeln!(
                f,
                "  {:17}  {}",
                self.word(pull.outcome),
                shown(&format!("{}{reason}", pull.pull))
            )?;
            for project in &pull.projects {
                let then = match project.then {
                    NextStep::PlanAgain => "plan again",
                    NextStep::Nothing => "nothing to do",
                };
                let name = project
                    .project
                    .as_ref()
                    .map(|name| format!(" project {name}"))
                    .unwrap_or_default();
                let place = format!("dir {} workspace {}{name}", project.dir, project.workspace);
                writeln!(
                    f,
                    "                       {then:13}  {}: {}",
                    shown(&place),
                    project.status
                )?;
            }
        }
        Ok(())
    }

    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self
            .pulls
            .iter()
            .flat_map(|pull| &pull.projects)
            .any(|project| project.then == NextStep::PlanAgain)
        {
            writeln!(
                f,
                "\nPlan files are not imported. Plan projects that are marked \"plan again\" before you apply them."
            )?;
        }
        for wrong in &self.wrong {
            writeln!(f, "\nWRONG: {}", shown(wrong))?;
        }
        if !self.is_complete() {
            writeln!(
                f,
                "\nSome records cannot be imported. The reasons are above."
            )?;
        }
        match self.verified {
            None => write!(
                f,
                "\nNothing was written. To write it, run the same command with --write."
            ),
            Some(true) => write!(
                f,
                "\nEverything was written, and read back without a difference."
            ),
            Some(false) => write!(
                f,
                "\nEverything was written, but there were differences when it was read back. They are listed above."
            ),
        }
    }
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "From  {}\nTo    {}\n\nLocks: {}",
            shown(&self.from),
            shown(&self.to),
            self.summary()
        )?;
        let rows: Vec<[String; 5]> = self.locks.iter().map(|lock| self.row(lock)).collect();
        let width = |column: usize| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: [usize; 5] = std::array::from_fn(width);
        for (row, lock) in rows.iter().zip(&self.locks) {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("  {cell:width$}"));
            writeln!(f, "{}", cells.collect::<String>().trim_end())?;
            if let Some(reason) = &lock.reason {
                writeln!(f, "  {:width$}  {}", "", shown(reason), width = widths[0])?;
            }
        }
        if let Some(lock) = &self.apply_lock {
            let (word, since) = (self.word(lock.outcome), minute(lock.since));
            let who = shown(&format!("{}: {}", lock.holder, lock.reason));
            writeln!(
                f,
                "\nApply lock: all applies are stopped\n  {word}  since {since}, by {who}"
            )?;
        }
        self.write_pulls(f)?;
        self.write_end(f)
    }
}

impl ImportReport {
    fn row(&self, line: &ImportLine) -> [String; 5] {
        let place = |lock: &LockPlace| {
            let name = lock
                .project
                .as_ref()
                .map(|name| format!(" ({name})"))
                .unwrap_or_default();
            format!(
                "{}/{}/{}/{}{name}",
                lock.host, lock.repo, lock.dir, lock.workspace
            )
        };
        [
            self.word(line.outcome).to_owned(),
            shown(
                &line
                    .lock
                    .as_ref()
                    .map_or_else(|| line.atlantis_key.clone(), place),
            ),
            line.pull
                .map(|number| format!("#{number}"))
                .unwrap_or_default(),
            shown(line.holder.as_deref().unwrap_or_default()),
            line.since.map(minute).unwrap_or_default(),
        ]
    }
}

fn minute(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

/// Replaces characters that move the cursor or change the direction of writing: records contain text that people typed
/// on the forge.
fn shown(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if is_hidden(c) { '\u{fffd}' } else { c })
        .collect()
}
