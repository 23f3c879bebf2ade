//! Defines the reply of a handler, and turns it into rows of the outbox in one place.

use chrono::{DateTime, Utc};

use super::{PostComment, SetStatus};
use crate::command::Command;
use crate::context::Ctx;
use crate::features::planning::CommandSpec;
use crate::model::{
    BranchName, CommandId, CommandKind, CommandOutcome, CommitSha, CommitState, CommitStatus,
    PullRef,
};
use crate::queue::Job;
use crate::render::{self, Body, CommandRefusal, Report, ReportStyle, UserText};
use crate::store::{CommandRow, FinishedCommand, NewJob, ResultPart};

/// Reply of a handler, which ends the command.
pub(crate) struct Reply {
    /// Comment on the pull request, or silence.
    pub told: CommandEnd,
    /// Statuses of the head commit.
    pub statuses: Vec<CommitStatus>,
    /// Head commit that the command worked on.
    pub head: Option<CommitSha>,
    /// Notes above the results.
    pub notes: Vec<String>,
    /// Base branch, if the results lack changes of it.
    pub behind: Option<BranchName>,
    /// Jobs that follow, in the transaction that ends the command.
    pub jobs: Vec<NewJob>,
}

/// Comment or silence at the end of a command.
pub(crate) enum CommandEnd {
    /// A comment on the pull request.
    Comment(Box<Body>),
    /// No comment; the outcome and its reason are stored.
    Nothing(CommandOutcome, Option<String>),
}

impl Reply {
    /// Builds a reply without statuses, notes and jobs.
    fn telling(told: CommandEnd) -> Self {
        Self {
            told,
            statuses: Vec::new(),
            head: None,
            notes: Vec::new(),
            behind: None,
            jobs: Vec::new(),
        }
    }

    /// Builds a reply with a comment.
    pub fn new(body: Body) -> Self {
        Self::telling(CommandEnd::Comment(Box::new(body)))
    }

    /// Builds the reply of a command that a rule forbids.
    pub fn refused(reason: &'static str, message: String, hints: Vec<String>) -> Self {
        Self::new(Body::Refused(CommandRefusal {
            reason,
            text: UserText { message, hints },
        }))
    }

    /// Builds a reply without a comment.
    pub fn silent(outcome: CommandOutcome) -> Self {
        Self::telling(CommandEnd::Nothing(outcome, None))
    }

    /// Builds the reply of a command that is refused without a comment; the dashboard shows the reason.
    pub fn silent_for(reason: String) -> Self {
        Self::telling(CommandEnd::Nothing(CommandOutcome::Refused, Some(reason)))
    }

    /// Builds a reply without a comment because another command replies. The reason is for pages and programs.
    pub fn given_over(reason: &str) -> Self {
        Self::silent_for(reason.to_owned())
    }

    /// Adds statuses for the head commit.
    pub fn with_statuses(mut self, head: &CommitSha, statuses: Vec<CommitStatus>) -> Self {
        self.head = Some(head.clone());
        self.statuses = statuses;
        self
    }

    /// Returns true if any part of the command failed or was refused, or if policies need more approvals. Hooks that go on
    /// with an apply if there are no errors wait for all approvals, as they do with Atlantis.
    pub fn has_errors(&self) -> bool {
        match &self.told {
            CommandEnd::Nothing(outcome, _) => *outcome != CommandOutcome::Success,
            CommandEnd::Comment(body) => {
                body.outcome() != CommandOutcome::Success || body.has_pending_policies()
            }
        }
    }

    /// Builds the end of a command with all its comments and statuses.
    pub fn into_end(self, ctx: &Ctx, row: &CommandRow) -> FinishedCommand {
        let head = self.head.or_else(|| row.head.clone());
        let statuses = self.statuses.into_iter();
        let statuses: Vec<NewJob> = match &head {
            // Statuses that are pending at the end wait for people, as an apply does.
            Some(head) => statuses
                .filter_map(|status| set_status(row, head, status, None))
                .collect(),
            None => Vec::new(),
        };
        let (outcome, reason, result, comments) = match self.told {
            CommandEnd::Nothing(outcome, reason) => (outcome, reason, None, Vec::new()),
            CommandEnd::Comment(body) => {
                let report = Report {
                    notes: self.notes,
                    behind: self.behind,
                    ..report(ctx, row, head, *body)
                };
                let reason = report.machine_line().reason;
                let comments = if report.is_silenced() {
                    Vec::new()
                } else {
                    posts(ctx, &report, &row.pull, row.created_at)
                };
                let result = row
                    .pull
                    .subject
                    .is_application()
                    .then(|| page_text(ctx, &report));
                (report.outcome(), reason, result, comments)
            }
        };
        let count = comments.len();
        let mut outbox: Vec<NewJob> = ResultPart::all(row.id, count)
            .zip(comments)
            .map(|(part, comment)| {
                let shows = Some(part);
                PostComment { shows, ..comment }.to_new()
            })
            .collect();
        outbox.extend(statuses);
        outbox.extend(self.jobs);
        FinishedCommand {
            id: row.id,
            outcome,
            reason,
            result,
            outbox,
            comments: count,
        }
    }
}

/// Renders the comments of a command as text for the page of an application. The text has no parts that only programs
/// read, and no folds, because only a forge would fold them.
fn page_text(ctx: &Ctx, report: &Report) -> String {
    let mut report = Report {
        style: ReportStyle {
            fold: false,
            machine_lines: false,
            ..report.style.clone()
        },
        ..report.clone()
    };
    if let Body::Projects(projects) = &mut report.body {
        // Comments leave parts out to disturb nobody. A page disturbs nobody.
        for project in projects {
            project.silenced = false;
        }
    }
    let bodies = render::comments(&report, &ctx.settings.comment_limits())
        .into_iter()
        .map(|comment| comment.body);
    bodies.collect::<Vec<_>>().join("\n\n").trim().to_owned()
}

fn report(ctx: &Ctx, row: &CommandRow, head: Option<CommitSha>, body: Body) -> Report {
    let (operands, extra_args) = words(CommandSpec::from_json(&row.spec).ok());
    Report {
        head,
        duration: (ctx.clock.now() - row.created_at).to_std().ok(),
        operands,
        extra_args,
        ..notice(ctx, row.kind, row.id, &row.pull, body)
    }
}

/// Returns the operands and further arguments of a command, which hints to try again repeat.
fn words(spec: Option<CommandSpec>) -> (Vec<String>, Vec<String>) {
    match spec {
        Some(CommandSpec::Command(Command::Plan(plan))) => (Vec::new(), plan.extra_args),
        Some(CommandSpec::Command(Command::Import(import))) => {
            (vec![import.address, import.id], import.extra_args)
        }
        Some(CommandSpec::Command(Command::StateRm(state_rm))) => {
            (state_rm.addresses, state_rm.extra_args)
        }
        Some(CommandSpec::Turn(mut turn)) if turn.asks.len() == 1 => {
            (Vec::new(), turn.asks.remove(0).extra_args)
        }
        _ => (Vec::new(), Vec::new()),
    }
}

/// Builds a report about an event that no command requested.
pub(crate) fn notice(
    ctx: &Ctx,
    command: CommandKind,
    id: crate::model::CommandId,
    pull: &PullRef,
    body: Body,
) -> Report {
    Report {
        command,
        id,
        pull: pull.subject,
        head: None,
        executable: ctx.settings.comments.executable().to_owned(),
        duration: None,
        url: None,
        operands: Vec::new(),
        extra_args: Vec::new(),
        style: ctx.settings.report_style(),
        notes: Vec::new(),
        behind: None,
        body,
    }
}

/// Builds the jobs that post a report.
pub(crate) fn comment_jobs(
    ctx: &Ctx,
    report: &Report,
    pull: &PullRef,
    since: DateTime<Utc>,
) -> Vec<NewJob> {
    posts(ctx, report, pull, since)
        .iter()
        .map(Job::to_new)
        .collect()
}

/// Builds the comments of a report. An application has none, because it has no page on the forge. The results of its
/// commands are stored with them, and the fate of its locks is on their pages and in the audit log.
pub(crate) fn posts(
    ctx: &Ctx,
    report: &Report,
    pull: &PullRef,
    since: DateTime<Utc>,
) -> Vec<PostComment> {
    if pull.subject.is_application() {
        return Vec::new();
    }
    let post = |comment: render::Comment| PostComment {
        pull: pull.clone(),
        body: comment.body,
        marker: comment.marker,
        since,
        shows: None,
    };
    render::comments(report, &limits(ctx, pull))
        .into_iter()
        .map(post)
        .collect()
}

/// Returns the limits for the comments of a pull. A forge that is not configured any more gets no comments.
fn limits(ctx: &Ctx, pull: &PullRef) -> render::Limits {
    let usual = ctx.settings.comment_limits();
    match ctx.forges.of(&pull.repo) {
        Ok(forge) => render::Limits {
            comment: forge.capabilities().comment_bytes,
            ..usual
        },
        Err(_) => usual,
    }
}

/// Builds the job that sets a status on the head commit of a running command. The command will end a pending status.
/// An application has no statuses: a status on a commit of its branch would be visible in every pull request.
pub(crate) fn status_job(
    row: &CommandRow,
    head: &CommitSha,
    status: CommitStatus,
) -> Option<NewJob> {
    let promised = (status.state == CommitState::Pending).then_some(row.id);
    set_status(row, head, status, promised)
}

/// Builds the job that sets the last status of a command.
pub(crate) fn last_status_job(
    row: &CommandRow,
    head: &CommitSha,
    status: CommitStatus,
) -> Option<NewJob> {
    set_status(row, head, status, None)
}

fn set_status(
    row: &CommandRow,
    head: &CommitSha,
    status: CommitStatus,
    promised: Option<CommandId>,
) -> Option<NewJob> {
    let job = SetStatus::of_pull(&row.pull, head, status)?;
    Some(SetStatus { promised, ..job }.to_new())
}
