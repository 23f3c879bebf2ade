//! Holds the results of a finished command as plain data. Handlers fill it in; nothing in this module is Markdown
//! yet.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lockkeeper_policy::decision::SetDecision;
use lockkeeper_policy::findings::FindingLevel;
use lockkeeper_policy::sets::{PolicyOwners, SetName};
use lockkeeper_policy::verdict::Verdict;
use serde::{Deserialize, Serialize};

use super::machine::{MachineLine, MachineProject};
use super::plan_output::{DiffStyle, StateLock};
use crate::discovery::explain::{ConfigWarning, PlanExplanation};
use crate::model::{
    Actor, BranchName, CommandId, CommandKind, CommandOutcome, CommitSha, Distribution,
    PlanChanges, PlanCounts, ProjectKey, ProjectOutcome, Subject,
};

/// Results of a finished command.
#[derive(Clone, Debug)]
pub struct Report {
    /// Kind of the requested command.
    pub command: CommandKind,
    /// Id of the command, which ties the comments to it.
    pub id: CommandId,
    /// Number of the pull request.
    pub pull: Subject,
    /// Newest commit of the pull request when the command ran, if it was looked up.
    pub head: Option<CommitSha>,
    /// Word that starts commands, shown in hints (`--executable-name`).
    pub executable: String,
    /// Time that the command took.
    pub duration: Option<Duration>,
    /// Page with all details of the command.
    pub url: Option<String>,
    /// Addresses and ids that the command was given, repeated in the hint to try again.
    pub operands: Vec<String>,
    /// Arguments after `--` of the command, repeated in the hint to try again.
    pub extra_args: Vec<String>,
    /// Settings of the administrator for the look of comments.
    pub style: ReportStyle,
    /// Notes to read before the results. Plain text; pairs of backticks mark code.
    pub notes: Vec<String>,
    /// Base branch, if the results lack commits of it; a note says which ones.
    pub behind: Option<BranchName>,
    /// Content of the report.
    pub body: Body,
}

/// Look of comments; each field but the last is a setting of the server.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Clone, Debug)]
pub struct ReportStyle {
    /// Fold outputs of more than 12 lines (not `--disable-markdown-folding`).
    pub fold: bool,
    /// Leave out the sections of projects without changes (`--hide-unchanged-plan-comments`); the table keeps them.
    pub hide_unchanged: bool,
    /// Selection of the markers of a plan that are coloured.
    pub diff: DiffStyle,
    /// Offer to apply a plan (false if apply is disabled).
    pub offer_apply: bool,
    /// Offer to apply all plans (not `--disable-apply-all`).
    pub offer_apply_all: bool,
    /// Offer to release locks (false if no locks are taken).
    pub offer_unlock: bool,
    /// Offer to approve violations of policies (false if `approve_policies` is disabled).
    pub offer_approval: bool,
    /// Leave out policy sets that passed (`--quiet-policy-checks`).
    pub quiet_policies: bool,
    /// End each comment with a line for programs (false for a text that is no comment on a forge).
    pub machine_lines: bool,
}

impl Default for ReportStyle {
    fn default() -> Self {
        Self {
            fold: true,
            hide_unchanged: false,
            diff: DiffStyle::default(),
            offer_apply: true,
            offer_apply_all: true,
            offer_unlock: true,
            offer_approval: true,
            quiet_policies: false,
            machine_lines: true,
        }
    }
}

/// Content of a report, by kind of result.
#[derive(Clone, Debug)]
pub enum Body {
    /// The command ran on these projects, at least one.
    Projects(Vec<ProjectReport>),
    /// The server died during an apply, an import or a `state rm`, which are never repeated (P3). A project whose run
    /// was cut off is `Failed` with the last output that was stored; a project that had not started is `Skipped`.
    Interrupted(Vec<ProjectReport>),
    /// The changes of the pull request concern no project.
    NoProjects(Option<UserText>),
    /// A rule refused the whole command.
    Refused(CommandRefusal),
    /// The configuration of the repository has mistakes: the text that `config/` makes, with excerpts.
    ConfigErrors(String),
    /// An error occurred that the people at the pull request cannot fix.
    Broken(UserText),
    /// The answer to `explain`.
    Explained(Box<PlanExplanation>, Vec<ConfigWarning>),
    /// The answer to `help`: the text that `command/` makes.
    Help(String),
    /// The command could not be read: the text that `command/` makes.
    Mistake(String),
    /// The answer to `unlock`.
    Unlocked {
        /// Released locks and plans; empty if there were none.
        released: Vec<Released>,
        /// True if changes were applied that are not in the base branch.
        applied: bool,
    },
    /// The pull request was closed, which released these locks.
    Closed {
        /// True if merged, false if only closed.
        merged: bool,
        /// Released locks and plans.
        released: Vec<Released>,
    },
    /// A person cancelled the command before anything ran.
    Dropped(UserText),
    /// The answer to `cancel`: the commands that it found, in order; empty if none were queued or running.
    Cancelled(Vec<CancelLine>),
    /// Everything is applied, but the pull request is not merged.
    NotMerged(UserText),
    /// Locks expire soon unless the pull request is used.
    LockIdle(IdleNotice),
    /// Locks expired because the pull request was not used.
    LockExpired {
        /// Released locks and plans.
        released: Vec<Released>,
        /// Time that a pull request may be unused.
        ttl: TimeDelta,
        /// True if changes were applied under these locks.
        applied: bool,
    },
    /// A person outside the pull request took a lock from it.
    LockLost(LostLock),
}

/// Locks that expire soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleNotice {
    /// Projects of the locks.
    pub projects: Vec<ProjectKey>,
    /// Time that a pull request may be unused.
    pub ttl: TimeDelta,
    /// Time at which the locks expire.
    pub ends_at: DateTime<Utc>,
}

/// A message for people and their ways out. Plain text; pairs of backticks mark code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserText {
    /// One or two sentences: the rule and the actual value (P10).
    pub message: String,
    /// Ways out, each with the people who can take it.
    pub hints: Vec<String>,
}

impl UserText {
    /// Creates a message with its ways out.
    pub fn new(message: impl Into<String>, hints: impl IntoIterator<Item = String>) -> Self {
        Self {
            message: message.into(),
            hints: hints.into_iter().collect(),
        }
    }
}

/// Reason why a whole command was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRefusal {
    /// Stable word for programs: `draft`, `fork`, `not_allowlisted` ….
    pub reason: &'static str,
    /// The same reason as text for people.
    pub text: UserText,
}

/// Result of a command on one project.
#[derive(Clone, Debug)]
pub struct ProjectReport {
    /// Project of the result.
    pub key: ProjectKey,
    /// Outcome of the command.
    pub outcome: ProjectOutcome,
    /// Raw output of the tool; empty if nothing ran.
    pub output: String,
    /// Program that ran, for hints that name it.
    pub tool: Distribution,
    /// Whole output of the run, `init` included; only for `--verbose`.
    pub log: Option<String>,
    /// Numbers of the plan, if known.
    pub counts: Option<PlanCounts>,
    /// Resources that the plan would change.
    pub list: PlanList,
    /// True if more was printed than is stored, so the text was not compared with the list.
    pub uncompared: bool,
    /// Reason why the plan will not be applied, a clause.
    pub blocked: Option<String>,
    /// True if resources were changed outside of the code.
    pub changes_outside: bool,
    /// Modules of the registry that the plan uses and that are deprecated or taken down.
    pub modules: Vec<ModuleNote>,
    /// Results of the policy sets, if the policies of the project are checked.
    pub policies: Option<PolicyReport>,
    /// Reason of a refusal or failure, in our words.
    pub message: Option<UserText>,
    /// State lock that the tool left behind when it was killed.
    pub state_lock: Option<StateLock>,
    /// Page of the lock, where people can discard it.
    pub lock_url: Option<String>,
    /// Page with the whole output.
    pub run_url: Option<String>,
    /// Holder of the lock, for the outcome `Locked`.
    pub held_by: Option<LockHolder>,
    /// Command to suggest next.
    pub next: Next,
    /// Text for the commit status, if it says more than the outcome.
    pub status: Option<String>,
    /// True if no comment reports this result; the hidden line still reports it to programs.
    pub silenced: bool,
}

/// A module of the registry that plans should not use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleNote {
    /// Name of the module.
    pub name: String,
    /// Version that the plan uses.
    pub version: String,
    /// Kind of the takedown; `None` if the version is only deprecated.
    pub takedown: Option<String>,
    /// Time of the deprecation or takedown.
    pub since: DateTime<Utc>,
    /// Reason of the deprecation or takedown.
    pub reason: String,
    /// Name and version to use instead, if there is a recommendation.
    pub instead: Option<(String, String)>,
}

/// Results of the policy sets that concern a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReport {
    /// Results in the order of the configuration.
    pub sets: Vec<PolicySetReport>,
}

/// Result of one policy set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySetReport {
    /// Name of the set.
    pub name: SetName,
    /// Consequence for the apply.
    pub decision: SetDecision,
    /// Verdict on the plan, if there is one.
    pub verdict: Option<Verdict>,
    /// Owners of the set. They may approve violations.
    pub owners: PolicyOwners,
    /// True if the author of the pull request may not approve.
    pub prevent_self_approve: bool,
}

impl PolicyReport {
    /// Returns true if no set prevents the apply.
    pub fn is_met(&self) -> bool {
        self.sets.iter().all(PolicySetReport::is_met)
    }

    /// Returns true if approvals alone would let the plan be applied: they are missing, nothing else is, and somebody can
    /// give them.
    pub fn awaits_approval(&self) -> bool {
        let mut unmet = self.sets.iter().filter(|set| !set.is_met()).peekable();
        unmet.peek().is_some() && unmet.all(PolicySetReport::awaits_approval)
    }
}

impl PolicySetReport {
    /// Returns true if the set does not prevent the apply.
    pub fn is_met(&self) -> bool {
        self.decision.lets_pass()
    }

    /// Returns true if the set is violated, and somebody can approve that.
    fn awaits_approval(&self) -> bool {
        matches!(self.decision, SetDecision::NeedsApproval { .. }) && self.approvers().is_some()
    }

    /// Returns the people who can approve the violations; `None`: nobody can.
    pub fn approvers(&self) -> Option<PolicyOwners> {
        approvers(&self.owners, self.verdict.as_ref())
    }
}

/// Returns the owners of a set with the teams that its violated rules name. `None`: nobody can approve all violations,
/// because one of them needs owners, and there are none.
pub fn approvers(owners: &PolicyOwners, verdict: Option<&Verdict>) -> Option<PolicyOwners> {
    let mut all = owners.clone();
    let mut needs_owners = verdict.is_none();
    for finding in verdict.into_iter().flat_map(Verdict::violations) {
        match &finding.level {
            FindingLevel::RequireApproval { teams, .. } if !teams.is_empty() => {
                for team in teams {
                    if !all.teams.iter().any(|own| own.eq_ignore_ascii_case(team)) {
                        all.teams.push(team.clone());
                    }
                }
            }
            FindingLevel::Deny | FindingLevel::RequireApproval { .. } => needs_owners = true,
            FindingLevel::Warn => {}
        }
    }
    let has_owners = !owners.users.is_empty() || !owners.teams.is_empty();
    let is_possible = has_owners || (!needs_owners && !all.teams.is_empty());
    is_possible.then_some(all)
}

/// The list of resources of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlanList {
    /// No list to show.
    #[default]
    None,
    /// The list from the machine-readable form of the plan file.
    Of(PlanChanges),
    /// No list could be made, with the reason as a clause.
    Missing(String),
}

/// The command that a section offers for another try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// The command that follows from the outcome.
    #[default]
    ByOutcome,
    /// A new plan, because the old one is no longer of use.
    Plan,
    /// No command, because it would be refused.
    Nothing,
}

impl ProjectReport {
    /// Returns true if nothing about the plan prevents its apply.
    pub fn may_be_applied(&self) -> bool {
        self.blocked.is_none() && self.modules.iter().all(|note| note.takedown.is_none())
    }

    /// Returns true if the result leaves a plan that waits for its apply.
    pub fn is_ready(&self) -> bool {
        let has_plan = match self.outcome {
            ProjectOutcome::Planned => true,
            ProjectOutcome::PolicyPassed => self.next == Next::ByOutcome,
            ProjectOutcome::NoChanges
            | ProjectOutcome::Applied
            | ProjectOutcome::UpToDate
            | ProjectOutcome::Imported
            | ProjectOutcome::StateRemoved
            | ProjectOutcome::Told
            | ProjectOutcome::Discarded
            | ProjectOutcome::Waiting
            | ProjectOutcome::Locked
            | ProjectOutcome::Refused
            | ProjectOutcome::Failed
            | ProjectOutcome::Cancelled
            | ProjectOutcome::Skipped
            | ProjectOutcome::PolicyPending
            | ProjectOutcome::PolicyFailed => false,
        };
        has_plan && self.may_be_applied()
    }

    /// Returns true if the plan could be applied, except that approvals are missing.
    pub fn awaits_approval(&self) -> bool {
        let unmet = self
            .policies
            .as_ref()
            .is_some_and(PolicyReport::awaits_approval);
        unmet && self.may_be_applied()
    }

    /// Creates the result of a project whose outcome alone is known yet.
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
            modules: Vec::new(),
            policies: None,
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

/// Holder of a lock that the command needs.
#[derive(Clone, Debug)]
pub struct LockHolder {
    /// Pull request that holds the lock.
    pub pull: Subject,
    /// Name of the application, if one holds the lock.
    pub application: Option<String>,
    /// Page of that pull request.
    pub pull_url: String,
    /// Person who caused the lock to be taken.
    pub who: String,
    /// Time at which the lock was taken.
    pub since: DateTime<Utc>,
    /// Reason for the lock, one clause.
    pub why: String,
    /// Position of the waiting pull request in the queue, from 1, if it is queued.
    pub place: Option<usize>,
}

/// Things that were released for one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Project of the lock.
    pub key: ProjectKey,
    /// True if its lock was released.
    pub lock: bool,
    /// True if its plan was discarded.
    pub plan: bool,
    /// True if its position in the queue was released.
    pub line: bool,
}

impl Released {
    /// Creates an entry of a project for which nothing is released yet.
    pub fn nothing(key: ProjectKey) -> Self {
        Self {
            key,
            lock: false,
            plan: false,
            line: false,
        }
    }

    /// Creates an entry with the lock of a project and the plan made under it.
    pub fn lock_and_plan(key: ProjectKey) -> Self {
        Self {
            lock: true,
            plan: true,
            ..Self::nothing(key)
        }
    }
}

/// A lock that a person took from a pull request. The job that notifies the pull request stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLock {
    /// Project of the lock.
    pub key: ProjectKey,
    /// Way in which the lock was taken.
    pub how: LockLossKind,
    /// Person or program that took the lock.
    pub by: Actor,
    /// Reason, if one was given.
    pub reason: Option<String>,
    /// True if a plan under the lock that could have been applied is discarded.
    pub plan: bool,
    /// True if a plan under the lock was running and is interrupted.
    pub interrupted: bool,
    /// True if changes were applied under the lock.
    pub applied: bool,
    /// Pull request that has the lock now, and its page.
    pub now: Option<(Subject, String)>,
}

/// Way in which a pull request lost a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockLossKind {
    /// The lock was released while nothing ran under it.
    Released,
    /// The lock was taken by force.
    TakenAway,
    /// The lock was handed over to another pull request.
    HandedOver,
}

/// A command that `cancel` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelLine {
    /// Command as typed, without the word that starts commands; `None` for a plan that a push caused.
    pub what: Option<String>,
    /// Person who requested the command.
    pub who: String,
    /// Effect of `cancel` on the command.
    pub fate: CancelEffect,
}

/// Effect of `cancel` on a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelEffect {
    /// The command was queued and has ended.
    Dropped,
    /// The command is running and was asked to stop.
    Interrupted,
    /// The command is a running apply and continues.
    Spared,
}

fn cancel_outcome(lines: &[CancelLine]) -> CommandOutcome {
    let spared = lines
        .iter()
        .filter(|line| line.fate == CancelEffect::Spared)
        .count();
    match lines.len() - spared {
        _ if spared == 0 => CommandOutcome::Success,
        0 => CommandOutcome::Refused,
        _ => CommandOutcome::Partial,
    }
}

impl Body {
    /// Returns the outcome of a command with this content.
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

    /// Returns true if approvals were given or withdrawn, and the policies of a project do not pass yet.
    pub fn has_pending_policies(&self) -> bool {
        matches!(self, Self::Projects(projects)
            if projects.iter().any(|project| project.outcome == ProjectOutcome::PolicyPending))
    }
}

impl Body {
    /// Returns the event that the comment reports, if it answers no command.
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
    /// Returns true if there are results and all of them are silenced.
    pub fn is_silenced(&self) -> bool {
        matches!(&self.body, Body::Projects(all) if !all.is_empty() && all.iter().all(|project| project.silenced))
    }

    /// Returns the outcome of the whole command.
    pub fn outcome(&self) -> CommandOutcome {
        self.body.outcome()
    }

    /// Returns the hidden line that says the same to programs.
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

/// Counts a plan without changes as zeros, even if the tool printed no numbers.
fn machine_project(project: &ProjectReport) -> MachineProject {
    let none = (project.outcome == ProjectOutcome::NoChanges).then(PlanCounts::default);
    MachineProject::new(&project.key, project.outcome, project.counts.or(none))
}
