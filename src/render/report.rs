//! What a finished command has to say, as plain data. Handlers fill it in; nothing here is Markdown yet.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::machine::{MachineLine, MachineProject};
use super::plan_output::{DiffStyle, StateLock};
use crate::discovery::explain::{Explanation, Warning};
use crate::model::{
    Actor, BranchName, CommandId, CommandKind, CommandOutcome, CommitSha, Distribution,
    PlanChanges, PlanCounts, ProjectKey, ProjectOutcome, PullNumber,
};

/// A finished command.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was asked for.
    pub command: CommandKind,
    /// Which command; ties the comments to it.
    pub id: CommandId,
    /// The pull.
    pub pull: PullNumber,
    /// Newest commit of the pull when the command ran, if it was looked up.
    pub head: Option<CommitSha>,
    /// Word that starts commands, shown in hints (`--executable-name`).
    pub executable: String,
    /// How long it took.
    pub duration: Option<Duration>,
    /// Page with everything about the command.
    pub url: Option<String>,
    /// Addresses and ids that the command was given, repeated in the hint to try again.
    pub operands: Vec<String>,
    /// Arguments after `--` of the command, repeated in the hint to try again.
    pub extra_args: Vec<String>,
    /// How the operator wants comments to look.
    pub style: Style,
    /// What is to be known before the results. Plain text; pairs of backticks mark code.
    pub notes: Vec<String>,
    /// The base branch, if the results lack something of it; a note says what.
    pub behind: Option<BranchName>,
    /// What there is to say.
    pub body: Body,
}

/// How comments look; each field is a setting of the server.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Clone, Debug)]
pub struct Style {
    /// Fold outputs of more than 12 lines (not `--disable-markdown-folding`).
    pub fold: bool,
    /// Leave out the sections of projects without changes (`--hide-unchanged-plan-comments`); the table keeps them.
    pub hide_unchanged: bool,
    /// Which markers of a plan are coloured.
    pub diff: DiffStyle,
    /// Offer to apply a plan (false when apply is switched off).
    pub offer_apply: bool,
    /// Offer to apply all plans (not `--disable-apply-all`).
    pub offer_apply_all: bool,
    /// Offer to give locks back (false when no locks are taken).
    pub offer_unlock: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            fold: true,
            hide_unchanged: false,
            diff: DiffStyle::default(),
            offer_apply: true,
            offer_apply_all: true,
            offer_unlock: true,
        }
    }
}

/// What a command has to say.
#[derive(Clone, Debug)]
pub enum Body {
    /// Something ran on these projects; there is at least one.
    Projects(Vec<ProjectReport>),
    /// The server died during an apply, an import or a `state rm`, which are never repeated (P3). A project whose run was
    /// cut off is `Failed` with the last output that was kept, one that was not begun is `Skipped`.
    Interrupted(Vec<ProjectReport>),
    /// Nothing in the pull concerns a project.
    NoProjects(Option<UserText>),
    /// A rule forbade the whole command.
    Refused(Refusal),
    /// The configuration of the repository has mistakes: the text that `config/` makes, with excerpts.
    ConfigErrors(String),
    /// Something broke that is not for the people at the pull to mend.
    Broken(UserText),
    /// The answer to `explain`.
    Explained(Box<Explanation>, Vec<Warning>),
    /// The answer to `help`: the text that `command/` makes.
    Help(String),
    /// The command could not be read: the text that `command/` makes.
    Mistake(String),
    /// The answer to `unlock`.
    Unlocked {
        /// What was given back; empty when there was nothing.
        released: Vec<Released>,
        /// Something was applied that is not in the base branch.
        applied: bool,
    },
    /// The pull was closed, which gave these back.
    Closed {
        /// Merged, or only closed.
        merged: bool,
        /// What was given back.
        released: Vec<Released>,
    },
    /// Somebody cancelled the command before anything was run.
    Dropped(UserText),
    /// The answer to `cancel`: what it found, in order; empty when nothing waited or ran.
    Cancelled(Vec<CancelLine>),
    /// Everything is applied, and the pull is not merged all the same.
    NotMerged(UserText),
    /// Locks go back soon unless the pull is used.
    LockIdle(IdleNotice),
    /// Locks went back because the pull was not used for so long.
    LockExpired {
        /// What they protected.
        released: Vec<Released>,
        /// How long it may not be used.
        ttl: TimeDelta,
        /// Something was applied under them.
        applied: bool,
    },
    /// Somebody took a lock from the pull, from outside of it.
    LockLost(LockLost),
}

/// Locks that go back soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleNotice {
    /// The projects they are for.
    pub projects: Vec<ProjectKey>,
    /// How long the pull may not be used.
    pub ttl: TimeDelta,
    /// When they go back.
    pub ends_at: DateTime<Utc>,
}

/// A message for people and what they can do about it. Plain text; pairs of backticks mark code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserText {
    /// One or two sentences: the rule and the actual value (P10).
    pub message: String,
    /// Ways out, each with who can go it.
    pub hints: Vec<String>,
}

impl UserText {
    /// A message with its ways out.
    pub fn new(message: impl Into<String>, hints: impl IntoIterator<Item = String>) -> Self {
        Self {
            message: message.into(),
            hints: hints.into_iter().collect(),
        }
    }
}

/// Why a whole command was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable word for programs: `draft`, `fork`, `not_allowlisted` ….
    pub reason: &'static str,
    /// The same for people.
    pub text: UserText,
}

/// How a command went on one project.
#[derive(Clone, Debug)]
pub struct ProjectReport {
    /// Which project.
    pub key: ProjectKey,
    /// How it ended.
    pub outcome: ProjectOutcome,
    /// What the tool printed, raw; empty when nothing was run.
    pub output: String,
    /// The program, for hints that name it.
    pub tool: Distribution,
    /// Everything the run printed, `init` included; only for `--verbose`.
    pub log: Option<String>,
    /// What the plan would do, when that is known.
    pub counts: Option<PlanCounts>,
    /// The resources it would change.
    pub list: PlanList,
    /// More was printed than is kept, so the text was not compared with the list.
    pub uncompared: bool,
    /// Why the plan will not be applied, a clause.
    pub blocked: Option<String>,
    /// Something was changed outside of the code.
    pub changes_outside: bool,
    /// Why it was refused or failed, in our words.
    pub message: Option<UserText>,
    /// The tool's own lock that it left behind when it was killed.
    pub state_lock: Option<StateLock>,
    /// Page of the lock, where it can be discarded.
    pub lock_url: Option<String>,
    /// Page with the whole output.
    pub run_url: Option<String>,
    /// Who holds the lock, for the outcome `Locked`.
    pub held_by: Option<Holder>,
    /// What is worth a try next.
    pub next: Next,
    /// What the status of the commit says, where that is more than the outcome tells.
    pub status: Option<String>,
    /// Whether people are not told of it in a comment; the hidden line tells programs all the same.
    pub silenced: bool,
}

/// The list of resources of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlanList {
    /// There is none to show.
    #[default]
    None,
    /// From the machine-readable form of the plan file.
    Of(PlanChanges),
    /// It cannot be made, and why: a clause.
    Missing(String),
}

/// The command that a section offers for another try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// What follows from the outcome.
    #[default]
    ByOutcome,
    /// A new plan: the old one is of no use any more.
    Plan,
    /// None: it would be refused.
    Nothing,
}

impl ProjectReport {
    /// A project about which nothing but its outcome is known yet.
    pub fn new(key: ProjectKey, outcome: ProjectOutcome) -> Self {
        Self {
            key,
            outcome,
            output: String::new(),
            log: None,
            tool: Distribution::Terraform,
            counts: None,
            list: PlanList::None,
            uncompared: false,
            blocked: None,
            changes_outside: false,
            message: None,
            state_lock: None,
            lock_url: None,
            run_url: None,
            held_by: None,
            next: Next::default(),
            status: None,
            silenced: false,
        }
    }
}

/// Who holds a lock that was wanted.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The pull that holds it.
    pub pull: PullNumber,
    /// What it is called, if it is an application.
    pub application: Option<String>,
    /// Page of that pull.
    pub pull_url: String,
    /// Who caused it to be taken.
    pub who: String,
    /// Since when.
    pub since: DateTime<Utc>,
    /// Why, one clause.
    pub why: String,
    /// Which place the pull that wants it has in the line, from 1, if it has one.
    pub place: Option<usize>,
}

/// What was given back for a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Which project.
    pub key: ProjectKey,
    /// Its lock was.
    pub lock: bool,
    /// Its plan was discarded.
    pub plan: bool,
    /// The place in the line for it was.
    pub line: bool,
}

impl Released {
    /// Nothing of a project, yet.
    pub fn nothing(key: ProjectKey) -> Self {
        Self {
            key,
            lock: false,
            plan: false,
            line: false,
        }
    }

    /// The lock of a project and the plan made under it.
    pub fn lock_and_plan(key: ProjectKey) -> Self {
        Self {
            lock: true,
            plan: true,
            ..Self::nothing(key)
        }
    }
}

/// A lock that somebody took from a pull. Kept with the job that tells the pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockLost {
    /// The project it was taken for.
    pub key: ProjectKey,
    /// How it was taken.
    pub how: Loss,
    /// Who took it.
    pub by: Actor,
    /// Why, if anything was said.
    pub reason: Option<String>,
    /// A plan under it that could have been applied is discarded.
    pub plan: bool,
    /// A plan under it was being made, and is interrupted.
    pub interrupted: bool,
    /// Something was applied under it.
    pub applied: bool,
    /// The pull that has it now, and its page.
    pub now: Option<(PullNumber, String)>,
}

/// How a pull lost a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Nothing went on under it.
    Released,
    /// By force.
    TakenAway,
    /// To be given to another pull.
    HandedOver,
}

/// A command that `cancel` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelLine {
    /// As it was typed, without the word that opens commands; `None` for a plan that a push led to.
    pub what: Option<String>,
    /// Who asked for it.
    pub who: String,
    /// What became of it.
    pub fate: Fate,
}

/// What `cancel` did to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was waiting and has ended.
    Dropped,
    /// It is under way and was asked to stop.
    Interrupted,
    /// It is an apply under way and goes on.
    Spared,
}

fn cancel_outcome(lines: &[CancelLine]) -> CommandOutcome {
    let spared = lines
        .iter()
        .filter(|line| line.fate == Fate::Spared)
        .count();
    match lines.len() - spared {
        _ if spared == 0 => CommandOutcome::Success,
        0 => CommandOutcome::Refused,
        _ => CommandOutcome::Partial,
    }
}

impl Body {
    /// How a command ended that is told so.
    pub fn outcome(&self) -> CommandOutcome {
        match self {
            Self::Projects(projects) => {
                CommandOutcome::of(projects.iter().map(|project| project.outcome))
            }
            Self::Interrupted(_) | Self::ConfigErrors(_) | Self::Broken(_) => {
                CommandOutcome::Failure
            }
            Self::Refused(_) | Self::Mistake(_) | Self::Dropped(_) | Self::NotMerged(_) => {
                CommandOutcome::Refused
            }
            Self::Cancelled(lines) => cancel_outcome(lines),
            Self::NoProjects(_)
            | Self::Explained(..)
            | Self::Help(_)
            | Self::Unlocked { .. }
            | Self::Closed { .. }
            | Self::LockIdle(_)
            | Self::LockExpired { .. }
            | Self::LockLost(_) => CommandOutcome::Success,
        }
    }
}

impl Body {
    /// What it tells of, if it is the answer to nothing.
    fn event(&self) -> Option<&'static str> {
        match self {
            Self::Closed { .. } => Some("closed"),
            Self::LockLost(_) => Some("lock_lost"),
            Self::LockIdle(_) => Some("lock_idle"),
            Self::LockExpired { .. } => Some("lock_expired"),
            Self::NotMerged(_) => Some("not_merged"),
            Self::Projects(_)
            | Self::Interrupted(_)
            | Self::NoProjects(_)
            | Self::Refused(_)
            | Self::ConfigErrors(_)
            | Self::Broken(_)
            | Self::Explained(..)
            | Self::Help(_)
            | Self::Mistake(_)
            | Self::Unlocked { .. }
            | Self::Dropped(_)
            | Self::Cancelled(_) => None,
        }
    }
}

impl Report {
    /// Whether there are results, and people are told of none of them.
    pub fn is_silenced(&self) -> bool {
        matches!(&self.body, Body::Projects(all) if !all.is_empty() && all.iter().all(|project| project.silenced))
    }

    /// How the whole command ended.
    pub fn outcome(&self) -> CommandOutcome {
        self.body.outcome()
    }

    /// The hidden line that says the same to programs.
    pub fn machine_line(&self) -> MachineLine {
        let event = self.body.event();
        MachineLine {
            command: event.is_none().then_some(self.command),
            event: event.map(str::to_owned),
            head: self.head.clone(),
            reason: self.reason().map(str::to_owned),
            projects: self.machine_projects(),
            ..MachineLine::new(self.command, self.id, self.pull, self.outcome())
        }
    }

    fn reason(&self) -> Option<&'static str> {
        match &self.body {
            Body::Refused(refusal) => Some(refusal.reason),
            Body::Mistake(_) => Some("not_understood"),
            Body::Dropped(_) => Some("cancelled"),
            Body::Cancelled(_) => {
                (self.outcome() == CommandOutcome::Refused).then_some("apply_running")
            }
            Body::Interrupted(_) => Some("interrupted"),
            Body::ConfigErrors(_) => Some("config"),
            Body::Broken(_) => Some("broken"),
            Body::NotMerged(_) => Some("not_merged"),
            Body::LockIdle(_)
            | Body::LockExpired { .. }
            | Body::Projects(_)
            | Body::NoProjects(_)
            | Body::Explained(..)
            | Body::Help(_)
            | Body::Unlocked { .. }
            | Body::Closed { .. }
            | Body::LockLost(_) => None,
        }
    }

    fn machine_projects(&self) -> Vec<MachineProject> {
        let discarded = |released: &Released| {
            MachineProject::new(&released.key, ProjectOutcome::Discarded, None)
        };
        match &self.body {
            Body::Projects(projects) | Body::Interrupted(projects) => {
                projects.iter().map(machine_project).collect()
            }
            Body::Unlocked { released, .. }
            | Body::Closed { released, .. }
            | Body::LockExpired { released, .. } => released.iter().map(discarded).collect(),
            Body::Explained(explanation, _) => explanation
                .planned
                .iter()
                .map(|planned| MachineProject::concerned(&planned.key))
                .collect(),
            Body::LockLost(lost) => vec![MachineProject::new(
                &lost.key,
                ProjectOutcome::Discarded,
                None,
            )],
            Body::NoProjects(_)
            | Body::Refused(_)
            | Body::ConfigErrors(_)
            | Body::Broken(_)
            | Body::Help(_)
            | Body::Mistake(_)
            | Body::Dropped(_)
            | Body::NotMerged(_)
            | Body::LockIdle(_)
            | Body::Cancelled(_) => Vec::new(),
        }
    }
}

/// A plan without changes is one of zeros, also where the tool printed no numbers.
fn machine_project(project: &ProjectReport) -> MachineProject {
    let none = (project.outcome == ProjectOutcome::NoChanges).then(PlanCounts::default);
    MachineProject::new(&project.key, project.outcome, project.counts.or(none))
}
