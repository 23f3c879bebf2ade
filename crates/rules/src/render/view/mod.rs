//! Builds the values of each template: one typed struct per template. Templates only lay out; this module decides.

mod explained;
mod list;
mod policies;
mod project;
mod results;

use chrono::TimeDelta;
use serde::Serialize;

pub(super) use explained::explained;
pub use policies::{approval_sentence, has_way_out, owner_sentence};
pub(super) use results::results;

use super::report::{
    Body, CancelEffect, CancelLine, CommandRefusal, IdleNotice, LockLossKind, LostLock, Released,
    Report, UserText,
};
use crate::model::{CommandKind, CommitSha, ProjectKey, Subject};

/// Name, directory and workspace of a project.
#[derive(Serialize)]
pub(super) struct Label {
    name: Option<String>,
    dir: String,
    workspace: String,
}

impl Label {
    pub(super) fn of(key: &ProjectKey) -> Self {
        Self {
            name: key.name.as_ref().map(ToString::to_string),
            dir: key.dir.to_string(),
            workspace: key.workspace.to_string(),
        }
    }
}

/// Small print at the end of a comment.
#[derive(Serialize)]
pub(super) struct Footer {
    commit: Option<String>,
    took: Option<String>,
    url: Option<String>,
}

impl Footer {
    pub(super) fn of(report: &Report) -> Self {
        Self {
            commit: report
                .head
                .as_ref()
                .map(|head: &CommitSha| head.short().to_owned()),
            took: report.duration.map(|time| took(time.as_secs())),
            url: report.url.clone(),
        }
    }
}

/// Formats a duration: `8 s`, `2 min 5 s`, `1 h 2 min`.
fn took(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// View of `refusal.md.j2` and `broken.md.j2`.
#[derive(Serialize)]
pub(super) struct RefusalView<'a> {
    title: &'static str,
    message: &'a str,
    hints_list: &'a [String],
    footer: Footer,
}

/// View of `help.md.j2` and `mistake.md.j2`.
#[derive(Serialize)]
pub(super) struct HelpView<'a> {
    text: &'a str,
}

/// View of the template `config_errors.md.j2`.
#[derive(Serialize)]
pub(super) struct ConfigErrorsView<'a> {
    title: &'static str,
    text: &'a str,
    /// True if nothing runs automatically after a push.
    is_application: bool,
    footer: Footer,
}

/// View of the template `no_projects.md.j2`.
#[derive(Serialize)]
pub(super) struct NoProjectsView<'a> {
    title: &'static str,
    message: Option<&'a str>,
    hints_list: &'a [String],
    /// Verb phrase for the command on a named project: `plan`.
    verb: &'static str,
    /// Example command for a project without changes.
    example: String,
    footer: Footer,
}

/// View of `released.md.j2`: the answer to `unlock`, and the locks that closing a pull request released.
#[derive(Serialize)]
pub(super) struct ReleasedView {
    /// `unlock`, `merged` or `closed`.
    cause: &'static str,
    projects: Vec<ReleasedRow>,
    /// True if the next plan of another pull request would undo applied changes.
    applied: bool,
    plan: String,
}

#[derive(Serialize)]
struct ReleasedRow {
    label: Label,
    what: &'static str,
}

/// View of `lock_idle.md.j2` and `lock_expired.md.j2`.
#[derive(Serialize)]
pub(super) struct ByTimeView {
    projects: Vec<Label>,
    ttl: String,
    ends_at: Option<String>,
    applied: bool,
    plan: String,
    unlock: String,
}

impl ByTimeView {
    /// Sets whether changes were applied under the locks.
    pub(super) fn with_applied(self, applied: bool) -> Self {
        Self { applied, ..self }
    }
}

/// View of the template `lock_lost.md.j2`.
#[derive(Serialize)]
pub(super) struct LockLostView<'a> {
    /// `released`, `taken away` or `handed over`.
    title: &'static str,
    how: LockLossKind,
    by: &'a str,
    way: &'static str,
    reason: Option<&'a str>,
    it: Label,
    plan: bool,
    interrupted: bool,
    applied: bool,
    now: Option<NewHolder<'a>>,
    again: String,
}

#[derive(Serialize)]
struct NewHolder<'a> {
    pull: Subject,
    url: &'a str,
}

/// View of the template `cancelled.md.j2`.
#[derive(Serialize)]
pub(super) struct CancelledView<'a> {
    lines: Vec<CancelledRow<'a>>,
    /// Command that interrupts an apply, if one continues.
    force: Option<String>,
}

#[derive(Serialize)]
struct CancelledRow<'a> {
    what: Option<&'a str>,
    who: &'a str,
    fate: &'static str,
}

/// Returns the title of a command. `autoplan` has the title `Plan`, so that both have the same first line (reference
/// 9.8).
pub(super) fn title(command: CommandKind) -> &'static str {
    match command {
        CommandKind::Plan | CommandKind::Autoplan => "Plan",
        CommandKind::Apply => "Apply",
        CommandKind::Unlock => "Unlock",
        CommandKind::Cancel => "Cancel",
        CommandKind::Explain => "Explain",
        CommandKind::Version => "Version",
        CommandKind::Import => "Import",
        CommandKind::StateRm => "State `rm`",
        CommandKind::ApprovePolicies => "Approve Policies",
        CommandKind::Help => "Command",
    }
}

pub(super) fn refusal<'a>(report: &Report, refusal: &'a CommandRefusal) -> RefusalView<'a> {
    broken(report, &refusal.text)
}

pub(super) fn help(text: &str) -> HelpView<'_> {
    HelpView { text }
}

pub(super) fn config_errors<'a>(report: &Report, text: &'a str) -> ConfigErrorsView<'a> {
    let is_application = report.pull.is_application();
    ConfigErrorsView {
        title: title(report.command),
        text,
        is_application,
        footer: Footer::of(report),
    }
}

pub(super) fn broken<'a>(report: &Report, text: &'a UserText) -> RefusalView<'a> {
    RefusalView {
        title: title(report.command),
        message: &text.message,
        hints_list: &text.hints,
        footer: Footer::of(report),
    }
}

pub(super) fn no_projects<'a>(report: &Report, text: Option<&'a UserText>) -> NoProjectsView<'a> {
    NoProjectsView {
        title: title(report.command),
        message: text.map(|text| text.message.as_str()),
        hints_list: text.map_or(&[], |text| &text.hints),
        verb: verb(report.command),
        example: example(report),
        footer: Footer::of(report),
    }
}

fn verb(command: CommandKind) -> &'static str {
    match command {
        CommandKind::Version => "show the version of",
        CommandKind::Import | CommandKind::StateRm => "change the state of",
        CommandKind::ApprovePolicies => "approve the policies of",
        CommandKind::Plan
        | CommandKind::Autoplan
        | CommandKind::Apply
        | CommandKind::Unlock
        | CommandKind::Cancel
        | CommandKind::Explain
        | CommandKind::Help => "plan",
    }
}

fn example(report: &Report) -> String {
    let word = word(report.command).unwrap_or("plan");
    with_words(
        format!("{} {word} -d path/of/the/project", report.executable),
        report,
    )
}

/// Returns the name of a command in comments, if it can be tried again with the same arguments.
fn word(command: CommandKind) -> Option<&'static str> {
    match command {
        CommandKind::Version => Some("version"),
        CommandKind::Import => Some("import"),
        CommandKind::StateRm => Some("state rm"),
        CommandKind::Plan
        | CommandKind::Autoplan
        | CommandKind::Apply
        | CommandKind::Unlock
        | CommandKind::Cancel
        | CommandKind::Explain
        | CommandKind::ApprovePolicies
        | CommandKind::Help => None,
    }
}

/// Adds the operands and further arguments of the command to the line, unless one line cannot hold them.
fn with_words(mut line: String, report: &Report) -> String {
    let joined = |words: &[String]| {
        shlex::try_join(words.iter().map(String::as_str))
            .ok()
            .filter(|text| !text.is_empty())
    };
    for text in [
        joined(&report.operands),
        joined(&report.extra_args).map(|text| format!("-- {text}")),
    ]
    .into_iter()
    .flatten()
    {
        line.push(' ');
        line.push_str(&text);
    }
    line
}

pub(super) fn released(report: &Report, released: &[Released]) -> ReleasedView {
    let cause = match &report.body {
        Body::Closed { merged: true, .. } => "merged",
        Body::Closed { merged: false, .. } => "closed",
        Body::Unlocked { .. }
        | Body::LockLost(_)
        | Body::LockIdle(_)
        | Body::LockExpired { .. }
        | Body::Projects(_)
        | Body::Interrupted(_)
        | Body::NoProjects(_)
        | Body::Refused(_)
        | Body::ConfigErrors(_)
        | Body::Broken(_)
        | Body::Explained(..)
        | Body::Help(_)
        | Body::Mistake(_)
        | Body::Dropped(_)
        | Body::NotMerged(_)
        | Body::Cancelled(_) => "unlock",
    };
    let row = |released: &Released| ReleasedRow {
        label: Label::of(&released.key),
        what: what(released),
    };
    let applied = matches!(&report.body, Body::Unlocked { applied: true, .. });
    let projects = released.iter().map(row).collect();
    ReleasedView {
        cause,
        projects,
        applied,
        plan: format!("{} plan", report.executable),
    }
}

fn what(released: &Released) -> &'static str {
    match (released.lock, released.plan, released.line) {
        (true, true, _) => "lock released, plan discarded",
        (true, false, _) => "lock released",
        (false, true, true) => "plan discarded, no longer queued for the lock",
        (false, true, false) => "plan discarded",
        (false, false, true) => "no longer queued for the lock",
        (false, false, false) => "nothing to release",
    }
}

pub(super) fn cancelled<'a>(report: &Report, lines: &'a [CancelLine]) -> CancelledView<'a> {
    let row = |line: &'a CancelLine| CancelledRow {
        what: line.what.as_deref(),
        who: &line.who,
        fate: fate(line.fate),
    };
    let spared = lines.iter().any(|line| line.fate == CancelEffect::Spared);
    CancelledView {
        lines: lines.iter().map(row).collect(),
        force: spared.then(|| format!("{} cancel --force", report.executable)),
    }
}

fn fate(fate: CancelEffect) -> &'static str {
    match fate {
        CancelEffect::Dropped => ": it was queued and will not run.",
        CancelEffect::Interrupted => {
            ": it was running and is being interrupted. Its own comment shows how far it got."
        }
        CancelEffect::Spared => ": it is running and was not interrupted.",
    }
}

/// Builds the view of locks that expire soon or have expired.
pub(super) fn by_time<'a>(
    report: &Report,
    projects: impl IntoIterator<Item = &'a ProjectKey>,
    ttl: TimeDelta,
) -> ByTimeView {
    let [plan, unlock] = ["plan", "unlock"].map(|word| format!("{} {word}", report.executable));
    let projects = projects.into_iter().map(Label::of).collect();
    ByTimeView {
        projects,
        ttl: span(ttl),
        ends_at: None,
        applied: false,
        plan,
        unlock,
    }
}

/// Builds the view of locks that expire soon.
pub(super) fn lock_idle(report: &Report, notice: &IdleNotice) -> ByTimeView {
    let ends_at = Some(notice.ends_at.format("%Y-%m-%d %H:%M UTC").to_string());
    ByTimeView {
        ends_at,
        ..by_time(report, &notice.projects, notice.ttl)
    }
}

/// Formats a duration in the largest unit that fits: `3 days`, `36 hours`, `45 minutes`.
pub fn span(time: TimeDelta) -> String {
    let seconds = time.num_seconds();
    let (n, unit) = [(86_400, "day"), (3600, "hour"), (60, "minute")]
        .into_iter()
        .find(|(length, _)| seconds % length == 0)
        .map_or((seconds, "second"), |(length, unit)| {
            (seconds / length, unit)
        });
    format!("{n} {unit}{}", if n == 1 { "" } else { "s" })
}

pub(super) fn lock_lost<'a>(report: &Report, lost: &'a LostLock) -> LockLostView<'a> {
    let title = match lost.how {
        LockLossKind::Released => "released",
        LockLossKind::TakenAway => "taken away",
        LockLossKind::HandedOver => "handed over",
    };
    LockLostView {
        title,
        how: lost.how,
        by: &lost.by.login,
        way: lost.by.origin.way(),
        reason: lost.reason.as_deref(),
        it: Label::of(&lost.key),
        plan: lost.plan,
        interrupted: lost.interrupted,
        applied: lost.applied,
        now: lost
            .now
            .as_ref()
            .map(|(pull, url)| NewHolder { pull: *pull, url }),
        again: format!(
            "{} plan {}",
            report.executable,
            lost.key.flags().unwrap_or_default()
        )
        .trim_end()
        .to_owned(),
    }
}
