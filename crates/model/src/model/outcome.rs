//! Kinds of commands and runs, and their outcomes (design section 8).

use super::text::text_enum;

text_enum! {
    /// Commands that can be requested on a pull.
    pub enum CommandKind {
        /// `plan` by comment.
        Plan = "plan",
        /// Plan because the pull changed.
        Autoplan = "autoplan",
        /// `apply`.
        Apply = "apply",
        /// `unlock`.
        Unlock = "unlock",
        /// `cancel`.
        Cancel = "cancel",
        /// `explain`.
        Explain = "explain",
        /// `version`.
        Version = "version",
        /// `import`.
        Import = "import",
        /// `state rm`.
        StateRm = "state_rm",
        /// `approve_policies`.
        ApprovePolicies = "approve_policies",
        /// `help`, and the reply to a command that could not be read.
        Help = "help",
    }
}

text_enum! {
    /// Work on one project.
    pub enum RunKind {
        /// The stage `plan` of the workflow.
        Plan = "plan",
        /// The stage `apply` of the workflow.
        Apply = "apply",
        /// The version query of the program.
        Version = "version",
        /// The stage `import` of the workflow.
        Import = "import",
        /// The stage `state_rm` of the workflow.
        StateRm = "state_rm",
    }
}

impl CommandKind {
    /// Returns the kind of run on each project, if the command has runs.
    pub const fn runs(self) -> Option<RunKind> {
        match self {
            Self::Plan | Self::Autoplan => Some(RunKind::Plan),
            Self::Apply => Some(RunKind::Apply),
            Self::Version => Some(RunKind::Version),
            Self::Import => Some(RunKind::Import),
            Self::StateRm => Some(RunKind::StateRm),
            Self::Unlock | Self::Cancel | Self::Explain | Self::ApprovePolicies | Self::Help => {
                None
            }
        }
    }

    /// Returns true if the command changes infrastructure or a state. Such a command is never restarted automatically
    /// (P3), only a person interrupts it, and an apply lock stops it.
    pub const fn changes(self) -> bool {
        match self {
            Self::Apply | Self::Import | Self::StateRm => true,
            Self::Plan
            | Self::Autoplan
            | Self::Unlock
            | Self::Cancel
            | Self::Explain
            | Self::Version
            | Self::ApprovePolicies
            | Self::Help => false,
        }
    }

    /// Returns the name in the words of Atlantis: of hooks (`commands`, `COMMAND_NAME`) and of `--allow-commands`.
    pub const fn classic_name(self) -> &'static str {
        match self {
            Self::StateRm => "state",
            Self::Plan
            | Self::Autoplan
            | Self::Apply
            | Self::Unlock
            | Self::Cancel
            | Self::Explain
            | Self::Version
            | Self::Import
            | Self::ApprovePolicies
            | Self::Help => self.as_str(),
        }
    }
}

impl RunKind {
    /// Returns true if the commit has statuses for this kind (reference 9.1: for plans and applies only).
    pub const fn has_status(self) -> bool {
        match self {
            Self::Plan | Self::Apply => true,
            Self::Version | Self::Import | Self::StateRm => false,
        }
    }
}

text_enum! {
    /// Outcome of a whole command.
    pub enum CommandOutcome {
        /// All projects got the requested result.
        Success = "success",
        /// At least one project succeeded, and at least one did not.
        Partial = "partial",
        /// No project succeeded, or an error ended the command.
        Failure = "failure",
        /// A rule forbade the command; no project ran.
        Refused = "refused",
        /// No project failed, and at least one is queued for a lock. The command continues when its turn comes.
        Waiting = "waiting",
    }
}

text_enum! {
    /// Outcome of one project.
    pub enum ProjectOutcome {
        /// The plan has changes and waits for an apply.
        Planned = "planned",
        /// The plan has no changes.
        NoChanges = "no_changes",
        /// The plan was applied.
        Applied = "applied",
        /// The apply found nothing to do.
        UpToDate = "up_to_date",
        /// A resource was imported.
        Imported = "imported",
        /// A resource was removed from the state.
        StateRemoved = "state_removed",
        /// The question was answered and nothing changed.
        Told = "told",
        /// The plan was discarded.
        Discarded = "discarded",
        /// Another pull holds the lock, and this one is queued for it.
        Waiting = "waiting",
        /// Another pull holds the lock.
        Locked = "locked",
        /// A rule forbade the run.
        Refused = "refused",
        /// An error ended the run.
        Failed = "failed",
        /// A person or a shutdown stopped the run.
        Cancelled = "cancelled",
        /// The run did not start because an earlier one failed.
        Skipped = "skipped",
        /// All policies of the project passed.
        PolicyPassed = "policy_passed",
        /// Approvals of policy violations were given or withdrawn, and the policies do not pass yet.
        PolicyPending = "policy_pending",
        /// At least one policy failed.
        PolicyFailed = "policy_failed",
    }
}

impl ProjectOutcome {
    /// Returns true if the project got the requested result.
    pub fn is_success(self) -> bool {
        match self {
            Self::Planned
            | Self::NoChanges
            | Self::Applied
            | Self::UpToDate
            | Self::Imported
            | Self::StateRemoved
            | Self::Told
            | Self::Discarded
            | Self::PolicyPassed
            | Self::PolicyPending => true,
            Self::Waiting
            | Self::Locked
            | Self::Refused
            | Self::Failed
            | Self::Cancelled
            | Self::Skipped
            | Self::PolicyFailed => false,
        }
    }
}

impl CommandOutcome {
    /// Combines the outcomes of the projects. No projects at all is a success.
    pub fn of(projects: impl IntoIterator<Item = ProjectOutcome>) -> Self {
        let (mut good, mut bad, mut refused, mut waiting) = (0, 0, 0, 0);
        for outcome in projects {
            if outcome == ProjectOutcome::Waiting {
                waiting += 1;
            } else if matches!(outcome, ProjectOutcome::Locked | ProjectOutcome::Refused) {
                refused += 1;
            } else if outcome.is_success() {
                good += 1;
            } else {
                bad += 1;
            }
        }
        match (good, bad, refused) {
            (_, 0, 0) if waiting > 0 => Self::Waiting,
            (_, 0, 0) => Self::Success,
            (0, 0, _) => Self::Refused,
            (0, _, _) => Self::Failure,
            _ => Self::Partial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_a_command_follows_from_its_projects() {
        use ProjectOutcome::{
            Failed, Locked, NoChanges, Planned, PolicyFailed, PolicyPending, Refused, Waiting,
        };
        for (projects, expected) in [
            (vec![], CommandOutcome::Success),
            (vec![Planned, NoChanges], CommandOutcome::Success),
            (vec![Planned, Locked], CommandOutcome::Partial),
            (vec![Locked, Locked], CommandOutcome::Refused),
            (vec![Locked, Failed], CommandOutcome::Failure),
            (vec![Planned, Waiting], CommandOutcome::Waiting),
            (vec![Waiting, Locked], CommandOutcome::Refused),
            (vec![Waiting, Failed], CommandOutcome::Failure),
            (vec![Planned, Waiting, Failed], CommandOutcome::Partial),
            (vec![PolicyPending], CommandOutcome::Success),
            (vec![PolicyPending, Refused], CommandOutcome::Partial),
            (vec![PolicyFailed], CommandOutcome::Failure),
        ] {
            assert_eq!(
                CommandOutcome::of(projects.clone()),
                expected,
                "{projects:?}"
            );
        }
    }
}
