//! Builds the view of `explained.md.j2`: the projects that a plan would cover.

use serde::Serialize;

use super::{Footer, Label};
use crate::discovery::explain::{
    ConfigWarning, FileExclusion, FileVerdict, PlanExplanation, Planned, PlannedGroup,
    SkippedGroup, groups, hooks_not_run, skipped_groups,
};
use crate::render::report::Report;

/// Maximum number of entries of a list to show.
const SHOWN: usize = 50;

/// Maximum number of groups of projects with the same facts.
const SHOWN_GROUPS: usize = 20;

/// Maximum number of directories that are named for one reason.
const NAMED: usize = 10;

/// View of the answer to `explain`.
#[derive(Serialize)]
pub(in crate::render) struct ExplainedView {
    summary: String,
    /// Note that hooks were not run.
    hooks: Option<String>,
    groups: Vec<GroupView>,
    /// Number of projects in groups that are not shown.
    unseen: usize,
    skipped_count: String,
    skipped: Vec<SkippedView>,
    files_count: usize,
    files: Vec<ExplainedFile>,
    warnings_count: usize,
    warnings: Vec<WarningView>,
    footer: Footer,
}

#[derive(Serialize)]
struct GroupView {
    projects: Vec<PlannedView>,
    count: usize,
    more: usize,
    rows: Vec<RowView>,
}

#[derive(Serialize)]
struct PlannedView {
    it: Label,
    why: String,
}

#[derive(Serialize)]
struct RowView {
    label: &'static str,
    text: String,
}

#[derive(Serialize)]
struct SkippedView {
    reason: String,
    projects: Vec<String>,
    more: usize,
}

#[derive(Serialize)]
struct ExplainedFile {
    path: String,
    reason: String,
}

#[derive(Serialize)]
struct WarningView {
    /// Name of the file, and the line if the warning is about one.
    place: String,
    what: String,
    help: String,
}

/// Builds the view of all facts about a change.
pub(in crate::render) fn explained(
    report: &Report,
    explanation: &PlanExplanation,
    warnings: &[ConfigWarning],
) -> ExplainedView {
    let skipped = skipped_groups(&explanation.skipped);
    let idle = explanation.idle_files();
    let file = |(file, reason): (&FileVerdict, &FileExclusion)| ExplainedFile {
        path: file.path.to_string(),
        reason: reason.to_string(),
    };
    let all = groups(&explanation.planned);
    ExplainedView {
        summary: explanation.summary(),
        hooks: hooks_not_run(explanation.hooks),
        groups: all.iter().take(SHOWN_GROUPS).map(group).collect(),
        unseen: all
            .iter()
            .skip(SHOWN_GROUPS)
            .map(|group| group.projects.len())
            .sum(),
        skipped_count: plural(explanation.skipped.len(), "project"),
        skipped: skipped.iter().take(SHOWN).map(left_out).collect(),
        files_count: explanation.idle_files().count(),
        files: idle.take(SHOWN).map(file).collect(),
        warnings_count: warnings.len(),
        warnings: warnings.iter().take(SHOWN).map(warning).collect(),
        footer: Footer::of(report),
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn group(group: &PlannedGroup<'_>) -> GroupView {
    let count = group.projects.len();
    GroupView {
        projects: group
            .projects
            .iter()
            .take(SHOWN)
            .map(|planned| project(planned))
            .collect(),
        count,
        more: count.saturating_sub(SHOWN),
        rows: group
            .rows
            .iter()
            .map(|row| RowView {
                label: row.label,
                text: row.to_string(),
            })
            .collect(),
    }
}

fn project(planned: &Planned) -> PlannedView {
    PlannedView {
        it: Label::of(&planned.key),
        why: planned.because(),
    }
}

fn warning(warning: &ConfigWarning) -> WarningView {
    let ConfigWarning {
        file,
        line,
        what,
        help,
    } = warning;
    let place = line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"));
    WarningView {
        place,
        what: what.clone(),
        help: help.clone(),
    }
}

fn left_out(group: &SkippedGroup<'_>) -> SkippedView {
    SkippedView {
        reason: group.reason.clone(),
        projects: group
            .projects
            .iter()
            .take(NAMED)
            .map(|skipped| skipped.key.status_id())
            .collect(),
        more: group.projects.len().saturating_sub(NAMED),
    }
}
