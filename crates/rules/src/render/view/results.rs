//! Builds the view of `results.md.j2`: a plan, an apply or another command that runs on projects.

use serde::Serialize;

use super::project::{ProjectView, phrase, rank};
use super::{Footer, Label, title, word};
use crate::model::{CommandKind, PlanCounts, ProjectOutcome};
use crate::render::report::{Body, ProjectReport, Report};

/// View of the whole comment.
#[derive(Serialize)]
pub(in crate::render) struct ResultsView {
    title: &'static str,
    single: bool,
    total: usize,
    /// Numbers such as `1 failed, 2 planned`; `None` if they are obvious.
    tally: Option<String>,
    /// Name of the command that the server stopped in the middle of, if it did: `apply`.
    interrupted: Option<&'static str>,
    notes: Vec<String>,
    behind: Option<String>,
    table: ResultTable,
    projects: Vec<ProjectView>,
    /// Number of sections that were left out because nothing changes there.
    hidden: usize,
    /// True if no project has a section of its own to say that there is nothing to apply.
    nothing_to_apply: bool,
    apply_all: Option<String>,
    approve_all: Option<String>,
    unlock: Option<String>,
    footer: Footer,
}

/// Overview table of several projects.
#[derive(Serialize)]
struct ResultTable {
    /// True if the table shows the numbers of plans.
    counts: bool,
    import: bool,
    forget: bool,
    rows: Vec<ResultRow>,
}

#[derive(Serialize)]
struct ResultRow {
    icon: &'static str,
    label: Label,
    default_workspace: bool,
    outcome: &'static str,
    counts: Option<PlanCounts>,
    run_url: Option<String>,
}

/// Builds the view. Projects with errors come first; silenced projects are left out.
pub(in crate::render) fn results(report: &Report, projects: &[ProjectReport]) -> ResultsView {
    let mut sorted: Vec<&ProjectReport> = projects
        .iter()
        .filter(|project| !project.silenced)
        .collect();
    sorted.sort_by_key(|project| rank(project.outcome));
    let single = sorted.len() == 1;
    let hide = |p: &&ProjectReport| {
        report.style.hide_unchanged && !single && p.outcome == ProjectOutcome::NoChanges
    };
    let shown: Vec<ProjectView> = sorted
        .iter()
        .filter(|p| !hide(p))
        .map(|p| ProjectView::of(report, p))
        .collect();
    ResultsView {
        title: title(report.command),
        single,
        total: sorted.len(),
        tally: (!sorted
            .iter()
            .all(|project| project.outcome == ProjectOutcome::Told))
        .then(|| tally(&sorted)),
        notes: report.notes.clone(),
        behind: report.behind.as_ref().map(ToString::to_string),
        interrupted: matches!(report.body, Body::Interrupted(_))
            .then(|| word(report.command).unwrap_or("apply")),
        table: table(&sorted),
        hidden: sorted.len() - shown.len(),
        nothing_to_apply: shown.is_empty(),
        projects: shown,
        apply_all: apply_all(report, &sorted),
        approve_all: approve_all(report, &sorted),
        unlock: unlock(report, &sorted),
        footer: Footer::of(report),
    }
}

pub(super) fn is_plan(report: &Report) -> bool {
    matches!(report.command, CommandKind::Plan | CommandKind::Autoplan)
}

fn apply_all(report: &Report, projects: &[&ProjectReport]) -> Option<String> {
    let planned = projects.iter().any(|p| p.is_ready());
    let offered = report.style.offer_apply && report.style.offer_apply_all;
    // A single project says itself how to apply it. A second way to say the same would only confuse people.
    (planned && offered && projects.len() > 1).then(|| format!("{} apply", report.executable))
}

fn approve_all(report: &Report, projects: &[&ProjectReport]) -> Option<String> {
    let awaits = projects.iter().filter(|p| p.awaits_approval()).count();
    (awaits > 1 && report.style.offer_approval)
        .then(|| format!("{} approve_policies", report.executable))
}

fn unlock(report: &Report, projects: &[&ProjectReport]) -> Option<String> {
    let holds = is_plan(report)
        && projects
            .iter()
            .any(|p| p.outcome.is_success() || p.outcome == ProjectOutcome::PolicyFailed);
    (holds && report.style.offer_unlock && projects.len() > 1)
        .then(|| format!("{} unlock", report.executable))
}

/// Returns the number of projects for each outcome, errors first.
fn tally(sorted: &[&ProjectReport]) -> String {
    if let [only] = sorted {
        return phrase(only.outcome).to_owned();
    }
    let mut counted: Vec<(ProjectOutcome, usize)> = Vec::new();
    for project in sorted {
        match counted.last_mut() {
            Some((outcome, count)) if *outcome == project.outcome => *count += 1,
            _ => counted.push((project.outcome, 1)),
        }
    }
    let words: Vec<String> = counted
        .iter()
        .map(|(outcome, count)| format!("{count} {}", many(*outcome)))
        .collect();
    words.join(", ")
}

fn many(outcome: ProjectOutcome) -> &'static str {
    if outcome == ProjectOutcome::NoChanges {
        "without changes"
    } else if outcome == ProjectOutcome::PolicyFailed {
        "with policies that did not pass"
    } else if outcome == ProjectOutcome::PolicyPassed {
        "with policies that passed"
    } else if outcome == ProjectOutcome::PolicyPending {
        "with policies that do not pass yet"
    } else {
        phrase(outcome)
    }
}

fn table(sorted: &[&ProjectReport]) -> ResultTable {
    let any = |number: fn(&PlanCounts) -> u32| {
        sorted
            .iter()
            .filter_map(|p| p.counts.as_ref())
            .any(|c| number(c) > 0)
    };
    ResultTable {
        counts: sorted.iter().any(|p| p.counts.is_some()),
        import: any(|c| c.import),
        forget: any(|c| c.forget),
        rows: sorted.iter().map(|project| row(project)).collect(),
    }
}

fn row(project: &ProjectReport) -> ResultRow {
    ResultRow {
        icon: super::project::icon(project.outcome),
        label: Label::of(&project.key),
        default_workspace: project.key.workspace.is_default(),
        outcome: phrase(project.outcome),
        counts: project.counts,
        run_url: project.run_url.clone(),
    }
}
