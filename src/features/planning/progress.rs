//! Tracks how a command proceeds from one group of the order to the next (reference 3.9).

use crate::model::{ProjectKey, ProjectOutcome};
use crate::render::{ProjectReport, UserText};

/// Reports of the projects so far.
pub(super) struct StageProgress {
    /// True if a failure prevents the later groups from running (`abort_on_execution_order_fail`).
    aborts: bool,
    /// First project that failed, and its group.
    failed: Option<(i32, ProjectKey)>,
    reports: Vec<(i32, ProjectReport)>,
}

impl StageProgress {
    pub fn new(aborts: bool) -> Self {
        Self {
            aborts,
            failed: None,
            reports: Vec::new(),
        }
    }

    /// Returns why the projects of a group are not tried. `None`: they are tried.
    pub fn halted(&self, group: i32) -> Option<UserText> {
        let (before, project) = self
            .failed
            .as_ref()
            .filter(|(before, _)| self.aborts && *before < group)?;
        let message = format!(
            "Skipped, because `{}` in group {before} of the execution order did not succeed. This project is in group \
             {group}, and the configuration file sets `abort_on_execution_order_fail: true`.",
            project.status_id()
        );
        Some(UserText::new(message, []))
    }

    /// Adds the reports of a stage of a group. Skipped projects are no failure of their own.
    pub fn add(&mut self, group: i32, mut reports: Vec<ProjectReport>) {
        reports.sort_by(|a, b| a.key.cmp(&b.key));
        if self.failed.is_none() {
            // A plan whose policies did not pass was made, and so can the plans after it.
            let failed = reports.iter().find(|report| {
                !report.outcome.is_success() && report.outcome != ProjectOutcome::PolicyFailed
            });
            self.failed = failed.map(|report| (group, report.key.clone()));
        }
        self.reports
            .extend(reports.into_iter().map(|report| (group, report)));
    }

    /// Returns all reports, sorted by group, directory, workspace and name.
    pub fn into_reports(mut self) -> Vec<ProjectReport> {
        self.reports
            .sort_by(|(a, one), (b, other)| (a, &one.key).cmp(&(b, &other.key)));
        self.reports.into_iter().map(|(_, report)| report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProjectOutcome::{Failed, Locked, Planned, PolicyFailed, Skipped};

    fn report(dir: &str, outcome: ProjectOutcome) -> ProjectReport {
        ProjectReport::new(ProjectKey::of_dir(dir.parse().unwrap()), outcome)
    }

    #[test]
    fn only_later_groups_are_halted_and_only_if_the_file_says_so() {
        for (aborts, outcome, group, halted) in [
            (true, Failed, 1, true),
            (true, Locked, 1, true),
            (true, Failed, 0, false),
            (true, Planned, 1, false),
            (true, PolicyFailed, 1, false),
            (false, Failed, 1, false),
        ] {
            let mut progress = StageProgress::new(aborts);
            progress.add(0, vec![report("a", outcome)]);
            assert_eq!(
                progress.halted(group).is_some(),
                halted,
                "{aborts} {outcome} {group}"
            );
        }
    }

    #[test]
    fn the_first_failure_is_named_and_reports_are_in_order() {
        let mut progress = StageProgress::new(true);
        progress.add(-1, vec![report("c", Planned)]);
        progress.add(0, vec![report("b", Failed), report("a", Failed)]);
        progress.add(0, vec![report("0", Planned)]);
        progress.add(2, vec![report("d", Skipped)]);
        insta::assert_snapshot!(progress.halted(3).unwrap().message, @"Skipped, because `a/default` in group 0 of the execution order did not succeed. This project is in group 3, and the configuration file sets `abort_on_execution_order_fail: true`.");
        let dirs: Vec<_> = progress
            .into_reports()
            .into_iter()
            .map(|report| report.key.dir.to_string())
            .collect();
        assert_eq!(dirs, ["c", "0", "a", "b", "d"]);
    }
}
