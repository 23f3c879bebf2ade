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
        /// The plan was thrown away.
        Discarded = "discarded",
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
            | Self::Discarded
            | Self::PolicyPassed => true,
            Self::Locked | Self::Refused | Self::Failed | Self::Cancelled | Self::Skipped | Self::PolicyFailed => false,
        }
    }
}

impl CommandOutcome {
    /// What the outcomes of the projects amount to; no projects at all is a success.
    pub fn of(projects: impl IntoIterator<Item = ProjectOutcome>) -> Self {
        let (mut good, mut bad, mut refused) = (0, 0, 0);
        for outcome in projects {
            if matches!(outcome, ProjectOutcome::Locked | ProjectOutcome::Refused) {
                refused += 1;
            } else if outcome.is_success() {
                good += 1;
            } else {
                bad += 1;
            }
        }
        match (good, bad, refused) {
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
        use ProjectOutcome::{Failed, Locked, NoChanges, Planned};
        for (projects, expected) in [
            (vec![], CommandOutcome::Success),
            (vec![Planned, NoChanges], CommandOutcome::Success),
            (vec![Planned, Locked], CommandOutcome::Partial),
            (vec![Locked, Locked], CommandOutcome::Refused),
            (vec![Locked, Failed], CommandOutcome::Failure),
        ] {
            assert_eq!(CommandOutcome::of(projects.clone()), expected, "{projects:?}");
        }
    }
}
