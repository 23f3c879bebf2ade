//! Kinds of commands and runs and how they can end (design section 8).

use super::text::text_enum;

text_enum! {
    /// What can be asked for on a pull.
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
        /// `help`, and the answer to a command that could not be read.
        Help = "help",
    }
}

text_enum! {
    /// What is run on one project.
    pub enum RunKind {
        /// Stage `plan`.
        Plan = "plan",
        /// Stage `apply`.
        Apply = "apply",
        /// Asks the program for its version.
        Version = "version",
        /// Stage `import`.
        Import = "import",
        /// Stage `state_rm`.
        StateRm = "state_rm",
    }
}

impl CommandKind {
    /// What it runs on projects, if anything.
    pub const fn runs(self) -> Option<RunKind> {
        match self {
            Self::Plan | Self::Autoplan => Some(RunKind::Plan),
            Self::Apply => Some(RunKind::Apply),
            Self::Version => Some(RunKind::Version),
            Self::Import => Some(RunKind::Import),
            Self::StateRm => Some(RunKind::StateRm),
            Self::Unlock | Self::Cancel | Self::Explain | Self::Help => None,
        }
    }

    /// Whether it changes infrastructure or a state: it is never begun again by itself (P3), nothing but a person
    /// interrupts it, and an apply lock stops it.
    pub const fn changes(self) -> bool {
        match self {
            Self::Apply | Self::Import | Self::StateRm => true,
            Self::Plan
            | Self::Autoplan
            | Self::Unlock
            | Self::Cancel
            | Self::Explain
            | Self::Version
            | Self::Help => false,
        }
    }

    /// The name in the words of Atlantis: of hooks (`commands`, `COMMAND_NAME`) and of `--allow-commands`.
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
            | Self::Help => self.as_str(),
        }
    }
}

impl RunKind {
    /// Whether statuses of the commit tell of it (reference 9.1: of plans and applies only).
    pub const fn has_status(self) -> bool {
        match self {
            Self::Plan | Self::Apply => true,
            Self::Version | Self::Import | Self::StateRm => false,
        }
    }
}

text_enum! {
    /// How a whole command ended.
    pub enum CommandOutcome {
        /// Every project ended well.
        Success = "success",
        /// Some did, some did not.
        Partial = "partial",
        /// None did, or something broke.
        Failure = "failure",
        /// A rule forbade it; nothing was run.
        Refused = "refused",
        /// Nothing went wrong, and something waits in line for a lock: it is done when its turn comes.
        Waiting = "waiting",
    }
}

text_enum! {
    /// How one project ended.
    pub enum ProjectOutcome {
        /// A plan with changes is waiting to be applied.
        Planned = "planned",
        /// Nothing to change.
        NoChanges = "no_changes",
        /// The plan was applied.
        Applied = "applied",
        /// Apply found nothing to do.
        UpToDate = "up_to_date",
        /// A resource was imported.
        Imported = "imported",
        /// A resource was taken out of the state.
        StateRemoved = "state_removed",
        /// What was asked about was told; nothing is different now.
        Told = "told",
        /// The plan was thrown away.
        Discarded = "discarded",
        /// Another pull holds the lock, and this one is in line for it.
        Waiting = "waiting",
        /// Another pull holds the lock.
        Locked = "locked",
        /// A rule forbade it.
        Refused = "refused",
        /// Something broke.
        Failed = "failed",
        /// Somebody or a shutdown stopped it.
        Cancelled = "cancelled",
        /// Not tried because something before it failed.
        Skipped = "skipped",
        /// Policies hold.
        PolicyPassed = "policy_passed",
        /// Policies do not hold.
        PolicyFailed = "policy_failed",
    }
}

impl ProjectOutcome {
    /// Whether the project got what was asked for.
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
            | Self::PolicyPassed => true,
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
    /// What the outcomes of the projects amount to; no projects at all is a success.
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
        use ProjectOutcome::{Failed, Locked, NoChanges, Planned, Waiting};
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
        ] {
            assert_eq!(
                CommandOutcome::of(projects.clone()),
                expected,
                "{projects:?}"
            );
        }
    }
}
