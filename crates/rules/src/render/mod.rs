//! Renders the texts that a pull request sees: comments and statuses. The module only works on text and uses no
//! network and no clock.
//!
//! A handler fills in a [`Report`]. [`comments`] makes the comments to post, in order, each with the marker that
//! finds it again. On the way, `view` decides what to show, and `templates/comments/` lays it out. `escape` makes
//! sure that hostile text stays text, `split` keeps the forge's limit, and `machine` adds the hidden line for
//! programs. [`annotations()`] makes the remarks about lines of the code.

mod annotations;
pub mod escape;
pub mod machine;
pub mod plan_output;
mod refusals;
pub mod report;
#[cfg(test)]
mod samples;
pub mod split;
pub mod status;
mod templates;
mod view;

pub use annotations::{CheckedProject, annotations};
pub use machine::{MachineLine, MachineProject, PartLine, has_marker, marker};
pub use plan_output::{DiffStyle, StateLock};
pub use report::{
    Body, CancelEffect, CancelLine, CommandRefusal, IdleNotice, LockHolder, LockLossKind, LostLock,
    ModuleNote, Next, PlanList, PolicyReport, PolicySetReport, ProjectReport, Released, Report,
    ReportStyle, UserText, approvers,
};

pub use view::{approval_sentence, has_way_out, owner_sentence, span};

/// Limits on the posted comments; a comment shows when one is reached (P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of one comment in bytes. GitHub accepts 65,536 characters, which that many bytes never exceed.
    pub comment: usize,
    /// Maximum number of comments of one command, 0 for no limit (`--max-comments-per-command`).
    pub comments: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            comment: 65_536,
            comments: 100,
        }
    }
}

/// A comment to post on a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// Text as Markdown. The last comment of a command ends with the machine line; those before it end with a line
    /// that only says which part they are. Without `machine_lines` of the style, there are no such lines.
    pub body: String,
    /// Text of the line at the end, which no other comment contains.
    pub marker: String,
}

/// Maximum size of the machine line in bytes. The line may also take no more than a quarter of a comment.
const MAX_MACHINE_LINE: usize = 16_384;
/// Minimum size of a comment in bytes. The machine line takes up to a quarter, but never less than its 600 bytes
/// without projects.
const MIN_COMMENT: usize = 2 * split::MIN_LIMIT + 600;

/// Returns the comments that a finished command posts, in order.
pub fn comments(report: &Report, limits: &Limits) -> Vec<Comment> {
    let limit = limits.comment.max(MIN_COMMENT);
    let most = (limit / 4).clamp(600, MAX_MACHINE_LINE);
    let line = report
        .machine_line()
        .of_part(u32::MAX, u32::MAX)
        .within(most);
    let room = limit - line.to_string().len() - 2;
    let dropped = |n: usize| dropped(report, n);
    let bodies = split::split_at_most(&body(report), room, limits.comments, dropped);
    let parts = u32::try_from(bodies.len()).unwrap_or(u32::MAX);
    (1..)
        .zip(bodies)
        .map(|(part, body)| comment(report, &line, part, parts, &body))
        .collect()
}

fn comment(report: &Report, line: &MachineLine, part: u32, parts: u32, body: &str) -> Comment {
    let body = body.trim_end();
    let text = if !report.style.machine_lines {
        body.to_owned()
    } else if part == parts {
        format!("{body}\n\n{}", line.of_part(part, parts))
    } else {
        format!("{body}\n\n{}", PartLine::new(report.id, part, parts))
    };
    Comment {
        body: text,
        marker: marker(report.id, part, parts),
    }
}

fn dropped(report: &Report, comments: usize) -> String {
    let place = report
        .url
        .as_deref()
        .and_then(escape::link_target)
        .filter(|url| url.len() < 300);
    let place = place
        .map(|url| format!(": [see the full output]({url})"))
        .unwrap_or_default();
    let noun = if comments == 1 {
        "comment was"
    } else {
        "comments were"
    };
    format!(
        "**About {comments} {noun} left out here**, because a command may post only a limited number of \
         comments{place}."
    )
}

/// Renders the text above the machine line, in one piece.
fn body(report: &Report) -> String {
    match &report.body {
        Body::Projects(projects) | Body::Interrupted(projects) => {
            templates::render("results.md.j2", &view::results(report, projects))
        }
        Body::NoProjects(text) => templates::render(
            "no_projects.md.j2",
            &view::no_projects(report, text.as_ref()),
        ),
        Body::Refused(refusal) => {
            templates::render("refusal.md.j2", &view::refusal(report, refusal))
        }
        Body::ConfigErrors(text) => {
            templates::render("config_errors.md.j2", &view::config_errors(report, text))
        }
        Body::Broken(text) => templates::render("broken.md.j2", &view::broken(report, text)),
        Body::Explained(explanation, warnings) => templates::render(
            "explained.md.j2",
            &view::explained(report, explanation, warnings),
        ),
        Body::Help(text) => templates::render("help.md.j2", &view::help(text)),
        Body::Mistake(text) => templates::render("mistake.md.j2", &view::help(text)),
        Body::Unlocked { released, .. } | Body::Closed { released, .. } => {
            templates::render("released.md.j2", &view::released(report, released))
        }
        Body::Dropped(text) => templates::render("dropped.md.j2", &view::broken(report, text)),
        Body::Cancelled(lines) => {
            templates::render("cancelled.md.j2", &view::cancelled(report, lines))
        }
        Body::NotMerged(text) => templates::render("not_merged.md.j2", &view::broken(report, text)),
        Body::LockIdle(notice) => {
            templates::render("lock_idle.md.j2", &view::lock_idle(report, notice))
        }
        Body::LockExpired {
            released,
            ttl,
            applied,
        } => {
            let projects = released.iter().map(|released| &released.key);
            let view = view::by_time(report, projects, *ttl).with_applied(*applied);
            templates::render("lock_expired.md.j2", &view)
        }
        Body::LockLost(lost) => {
            templates::render("lock_lost.md.j2", &view::lock_lost(report, lost))
        }
    }
}
