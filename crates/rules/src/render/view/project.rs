//! Builds the view of `project.md.j2`: one project of a plan, an apply or another command that runs on projects.

use serde::Serialize;

use super::list::ListView;
use super::policies::{PolicyView, policies};
use super::results::is_plan;
use super::{Label, with_words, word};
use crate::model::{CommandKind, ProjectOutcome, Subject};
use crate::render::plan_output::{self, DiffStyle};
use crate::render::report::{Body, LockHolder, ModuleNote, Next, PlanList, ProjectReport, Report};

/// Maximum number of lines of an output that is not folded (reference 9.7).
const FOLD_LINES: usize = 12;
/// Number of last lines to show of a failed run whose output names no error.
const TAIL_LINES: usize = 30;

/// Maximum number of modules that are listed.
const MOST_MODULES: usize = 20;

/// Maximum size of an error in bytes; errors are not folded.
const MAX_ERROR: usize = 6_000;

/// Section of one project in a comment.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a template asks one question at a time"
)]
#[derive(Serialize)]
pub(super) struct ProjectView {
    icon: &'static str,
    label: Label,
    /// `failed`
    outcome: &'static str,
    ok: bool,
    no_changes: bool,
    /// `Plan: 1 to add, 0 to change, 0 to destroy.`
    summary: Option<String>,
    /// Reason why the plan will not be applied.
    blocked: Option<String>,
    list: Option<ListView>,
    /// Reason why there is no list.
    list_missing: Option<String>,
    uncompared: bool,
    changes_outside: bool,
    modules: Vec<ModuleView>,
    /// Number of further modules that are not listed.
    more_modules: usize,
    /// True if one of the modules was taken down, so the plan cannot be applied.
    is_taken_down: bool,
    policies: Option<PolicyView>,
    tool: &'static str,
    program: &'static str,
    message: Option<String>,
    hints: Vec<String>,
    holder: Option<HolderView>,
    state_lock: Option<StateLockView>,
    stale: bool,
    error: Option<Block>,
    output: Option<Block>,
    log: Option<Block>,
    apply: Option<String>,
    approve: Option<String>,
    again: Option<RetryCommand>,
    unlock: String,
    lock_url: Option<String>,
    run_url: Option<String>,
}

/// Module that should not be used any more.
#[derive(Serialize)]
struct ModuleView {
    name: String,
    version: String,
    takedown: Option<String>,
    since: String,
    reason: String,
    instead: Option<(String, String)>,
}

#[derive(Serialize)]
struct HolderView {
    pull: i64,
    /// Name of the application that holds the lock.
    application: Option<String>,
    url: String,
    who: String,
    since: String,
    why: String,
    place: Option<usize>,
}

#[derive(Serialize)]
struct StateLockView {
    id: String,
    who: Option<String>,
    created: Option<String>,
    operation: Option<String>,
    command: String,
}

/// Command with which people can try again.
#[derive(Serialize)]
struct RetryCommand {
    verb: &'static str,
    command: String,
}

/// A block of code.
#[derive(Serialize)]
pub(super) struct Block {
    language: &'static str,
    pub(super) text: String,
    title: &'static str,
    lines: usize,
    fold: bool,
    /// Number of lines that were left out.
    cut: usize,
}

impl ProjectView {
    pub(super) fn of(report: &Report, project: &ProjectReport) -> Self {
        let failed = project.outcome == ProjectOutcome::Failed;
        let (error, output) = if failed {
            failure(report, project)
        } else {
            (None, output(report, project))
        };
        let (list, list_missing) = match &project.list {
            PlanList::None => (None, None),
            PlanList::Of(changes) => (ListView::of(changes), None),
            PlanList::Missing(why) => (None, Some(why.clone())),
        };
        // Readers who want more than the list can unfold the text.
        let folds = report.style.fold && list.as_ref().is_some_and(ListView::has_lines);
        let output = output.map(|block| Block {
            fold: block.fold || folds,
            ..block
        });
        let text = project.message.clone().unwrap_or_default();
        Self {
            icon: icon(project.outcome),
            label: Label::of(&project.key),
            outcome: phrase(project.outcome),
            // The section about policies says what they lack.
            ok: project.outcome.is_success() || project.outcome == ProjectOutcome::PolicyFailed,
            no_changes: project.outcome == ProjectOutcome::NoChanges,
            summary: summary(report, project),
            blocked: project.blocked.clone(),
            list,
            list_missing,
            uncompared: project.uncompared,
            changes_outside: project.changes_outside,
            modules: project
                .modules
                .iter()
                .take(MOST_MODULES)
                .map(module)
                .collect(),
            more_modules: project.modules.len().saturating_sub(MOST_MODULES),
            is_taken_down: is_taken_down(project),
            policies: project
                .policies
                .as_ref()
                .and_then(|found| policies(report, found)),
            tool: project.tool.title(),
            program: project.tool.program(),
            message: Some(text.message).filter(|message| !message.trim().is_empty()),
            hints: text.hints,
            holder: project.held_by.as_ref().map(holder),
            state_lock: if failed || project.outcome == ProjectOutcome::Cancelled {
                state_lock(project)
            } else {
                None
            },
            stale: failed && plan_output::plan_is_stale(&project.output),
            error,
            output,
            log: log(report, project),
            apply: apply(report, project),
            approve: approve(report, project),
            again: again(report, project),
            unlock: format!("{} unlock", report.executable),
            lock_url: project
                .lock_url
                .clone()
                .filter(|_| report.style.offer_unlock),
            run_url: project.run_url.clone(),
        }
    }
}

/// Returns the words for an outcome in the table.
pub(super) fn phrase(outcome: ProjectOutcome) -> &'static str {
    match outcome {
        ProjectOutcome::Planned => "planned",
        ProjectOutcome::NoChanges => "no changes",
        ProjectOutcome::Applied => "applied",
        ProjectOutcome::UpToDate => "nothing to apply",
        ProjectOutcome::Imported => "imported",
        ProjectOutcome::StateRemoved => "removed from the state",
        ProjectOutcome::Told => "reported",
        ProjectOutcome::Discarded => "discarded",
        ProjectOutcome::Waiting => "waiting",
        ProjectOutcome::Locked => "locked",
        ProjectOutcome::Refused => "refused",
        ProjectOutcome::Failed => "failed",
        ProjectOutcome::Cancelled => "cancelled",
        ProjectOutcome::Skipped => "skipped",
        ProjectOutcome::PolicyPassed => "policies passed",
        ProjectOutcome::PolicyPending => "policies do not pass yet",
        ProjectOutcome::PolicyFailed => "policies did not pass",
    }
}

/// Returns a sign next to the word, never in place of it.
pub(super) fn icon(outcome: ProjectOutcome) -> &'static str {
    match outcome {
        ProjectOutcome::Planned => "📝",
        ProjectOutcome::NoChanges | ProjectOutcome::UpToDate => "➖",
        ProjectOutcome::Told => "ℹ️",
        ProjectOutcome::Applied
        | ProjectOutcome::Imported
        | ProjectOutcome::StateRemoved
        | ProjectOutcome::PolicyPassed => "✅",
        ProjectOutcome::Discarded => "🗑️",
        ProjectOutcome::Waiting | ProjectOutcome::PolicyPending => "⏳",
        ProjectOutcome::Locked => "🔒",
        ProjectOutcome::Refused => "⛔",
        ProjectOutcome::Failed | ProjectOutcome::PolicyFailed => "❌",
        ProjectOutcome::Cancelled => "🚫",
        ProjectOutcome::Skipped => "⏭️",
    }
}

/// Returns the rank in the comment: results that need a person come first.
pub(super) fn rank(outcome: ProjectOutcome) -> u8 {
    match outcome {
        ProjectOutcome::Failed => 0,
        ProjectOutcome::PolicyFailed => 1,
        ProjectOutcome::Cancelled => 2,
        ProjectOutcome::Refused => 3,
        ProjectOutcome::Locked => 4,
        ProjectOutcome::PolicyPending => 5,
        ProjectOutcome::Waiting => 6,
        ProjectOutcome::Skipped => 7,
        ProjectOutcome::Planned => 8,
        ProjectOutcome::Applied => 9,
        ProjectOutcome::Imported => 10,
        ProjectOutcome::StateRemoved => 11,
        ProjectOutcome::PolicyPassed => 12,
        ProjectOutcome::Discarded => 13,
        ProjectOutcome::UpToDate => 14,
        ProjectOutcome::NoChanges => 15,
        ProjectOutcome::Told => 16,
    }
}

fn summary(report: &Report, project: &ProjectReport) -> Option<String> {
    if is_plan(report) {
        return project.counts.map(|counts| counts.to_string());
    }
    plan_output::apply_summary(&project.output).map(|counts| format!("{counts}."))
}

fn is_taken_down(project: &ProjectReport) -> bool {
    project.modules.iter().any(|note| note.takedown.is_some())
}

fn module(note: &ModuleNote) -> ModuleView {
    let reason = note.reason.trim();
    let end = if reason.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    ModuleView {
        name: note.name.clone(),
        version: note.version.clone(),
        takedown: note.takedown.clone(),
        since: note.since.format("%Y-%m-%d").to_string(),
        reason: format!("{reason}{end}"),
        instead: note.instead.clone(),
    }
}

fn holder(holder: &LockHolder) -> HolderView {
    HolderView {
        pull: holder.pull.stored(),
        application: match holder.pull {
            Subject::Pull(_) => None,
            Subject::Application(serial) => Some(
                holder
                    .application
                    .clone()
                    .unwrap_or_else(|| serial.to_string()),
            ),
        },
        url: holder.pull_url.clone(),
        who: holder.who.clone(),
        since: holder.since.format("%Y-%m-%d %H:%M UTC").to_string(),
        why: holder.why.clone(),
        place: holder.place,
    }
}

fn state_lock(project: &ProjectReport) -> Option<StateLockView> {
    let lock = project
        .state_lock
        .clone()
        .or_else(|| plan_output::state_lock(&project.output))?;
    let command = format!("{} force-unlock {}", project.tool.program(), lock.id);
    Some(StateLockView {
        id: lock.id,
        who: lock.who,
        created: lock.created,
        operation: lock.operation,
        command,
    })
}

fn apply(report: &Report, project: &ProjectReport) -> Option<String> {
    let offered = project.is_ready() && report.style.offer_apply && !report.pull.is_application();
    let flags = project.key.flags().filter(|_| offered)?;
    Some(format!("{} apply {flags}", report.executable))
}

/// Returns the command that approves what is violated.
fn approve(report: &Report, project: &ProjectReport) -> Option<String> {
    let offered =
        project.awaits_approval() && report.style.offer_approval && !report.pull.is_application();
    let flags = project.key.flags().filter(|_| offered)?;
    Some(format!("{} approve_policies {flags}", report.executable))
}

/// Returns the command to try again: a new plan after a plan, after a command that changed a state, and after an
/// apply that failed; the same command again if it did not begin.
fn again(report: &Report, project: &ProjectReport) -> Option<RetryCommand> {
    if report.pull.is_application() {
        // Nobody reads comments about an application; its page has the buttons.
        return None;
    }
    let (flags, word) = (project.key.flags()?, &report.executable);
    Some(match again_by(report, project)? {
        Retry::Plan if is_plan(report) => RetryCommand {
            verb: "plan",
            command: with_words(format!("{word} plan {flags}"), report),
        },
        Retry::Plan => RetryCommand {
            verb: "plan",
            command: format!("{word} plan {flags}"),
        },
        Retry::Apply => RetryCommand {
            verb: "apply",
            command: format!("{word} apply {flags}"),
        },
        Retry::Same(same) => RetryCommand {
            verb: "try",
            command: with_words(format!("{word} {same} {flags}"), report),
        },
    })
}

/// Kind of the command to try again.
enum Retry {
    Plan,
    Apply,
    /// The same command again, by name.
    Same(&'static str),
}

fn again_by(report: &Report, project: &ProjectReport) -> Option<Retry> {
    let interrupted = matches!(report.body, Body::Interrupted(_));
    let ok = project.outcome.is_success();
    let broke = matches!(
        project.outcome,
        ProjectOutcome::Failed | ProjectOutcome::Cancelled
    );
    let by_outcome = match (is_plan(report), word(report.command), ok) {
        // The section about policies says what is left to do.
        (false, _, _) if report.command == CommandKind::ApprovePolicies => None,
        (true, _, _) => Some(Retry::Plan),
        (false, _, true) => None,
        (false, _, false) if interrupted => Some(Retry::Plan),
        (false, Some(word), false) => Some(Retry::Same(word)),
        (false, None, false) if broke => Some(Retry::Plan),
        (false, None, false) => Some(Retry::Apply),
    };
    match project.next {
        Next::Nothing => None,
        Next::Plan => Some(Retry::Plan),
        Next::ByOutcome => by_outcome,
    }
}

fn output(report: &Report, project: &ProjectReport) -> Option<Block> {
    let text = if is_plan(report) {
        plan_output::plan_text(&project.output, report.style.diff)
    } else {
        plan_output::without_progress(&project.output)
    };
    let language = if report.command == CommandKind::Version {
        "text"
    } else {
        "diff"
    };
    block(report, language, "Output", &text)
}

/// Returns the whole output of the run, always folded.
fn log(report: &Report, project: &ProjectReport) -> Option<Block> {
    let text = plan_output::clean(project.log.as_deref()?);
    block(report, "text", "Log", &text).map(|log| Block { fold: true, ..log })
}

/// Returns the error unfolded, and the whole output folded unless the error is all of it.
fn failure(report: &Report, project: &ProjectReport) -> (Option<Block>, Option<Block>) {
    let whole = plan_output::plan_text(&project.output, DiffStyle::Resources);
    let error = plan_output::error_part(&project.output).unwrap_or_else(|| tail(&whole));
    let repeats = error.lines().count() + 3 >= whole.lines().count() && error.len() <= MAX_ERROR;
    let (error, cut) = cut_middle(error.trim_matches('\n'), MAX_ERROR);
    let shown = block(report, "text", "Error", &error).map(|error| Block {
        fold: false,
        cut,
        ..error
    });
    let rest = if repeats {
        None
    } else {
        block(report, "diff", "Whole output", &whole)
    };
    (
        shown,
        rest.map(|output| Block {
            fold: report.style.fold,
            ..output
        }),
    )
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn block(
    report: &Report,
    language: &'static str,
    title: &'static str,
    text: &str,
) -> Option<Block> {
    let text = text.trim_matches('\n').to_owned();
    let lines = text.lines().count();
    let fold = report.style.fold && lines > FOLD_LINES;
    (!text.is_empty()).then_some(Block {
        language,
        text,
        title,
        lines,
        fold,
        cut: 0,
    })
}

/// Returns a folded block, without the middle of a text that is too long.
pub(super) fn folded(
    report: &Report,
    language: &'static str,
    title: &'static str,
    text: &str,
    most: usize,
) -> Option<Block> {
    let text = plan_output::clean(text);
    let (text, cut) = cut_middle(text.trim_matches('\n'), most);
    block(report, language, title, &text).map(|block| Block {
        fold: report.style.fold,
        cut,
        ..block
    })
}

/// Cuts whole lines out of the middle of a text that is too long, and returns their number.
fn cut_middle(text: &str, most: usize) -> (String, usize) {
    if text.len() <= most {
        return (text.to_owned(), 0);
    }
    let head = &text[..text.floor_char_boundary(most / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 2)..];
    let head = head.rfind('\n').map_or(head, |end| &head[..end]);
    let tail = tail.find('\n').map_or(tail, |start| &tail[start + 1..]);
    let all = text.lines().count();
    let cut = all
        .saturating_sub(head.lines().count() + tail.lines().count())
        .max(1);
    (
        format!("{head}\n\n… {cut} lines left out here …\n\n{tail}"),
        cut,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_loses_its_middle_visibly() {
        let text = (0..100)
            .map(|n| format!("line {n} é\n"))
            .collect::<Vec<_>>()
            .concat();
        let (shown, cut) = cut_middle(&text, 60);
        assert_eq!(cut, 95);
        assert_eq!(
            shown,
            "line 0 é\nline 1 é\nline 2 é\n\n… 95 lines left out here …\n\nline 98 é\nline 99 é\n"
        );
        assert_eq!(cut_middle("é", 10), ("é".to_owned(), 0));
        assert_eq!(cut_middle(&"é".repeat(50), 9).1, 1);
    }
}
