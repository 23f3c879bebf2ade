//! The words of `repo_locks` (reference 7.2): when a lock is taken, and which projects share it.

use super::text::text_enum;

text_enum! {
    /// Time at which the lock of a project is taken.
    #[derive(Default)]
    pub enum LockMode {
        /// The first plan takes the lock; an apply takes or verifies it.
        #[default]
        OnPlan = "on_plan",
        /// An apply takes the lock; pulls may plan side by side.
        OnApply = "on_apply",
        /// No command takes a lock.
        Disabled = "disabled",
    }
}

impl LockMode {
    /// Returns true if a plan takes the lock before it runs.
    pub const fn taken_by_plan(self) -> bool {
        matches!(self, Self::OnPlan)
    }

    /// Returns true if an apply needs the lock. The apply takes it, or verifies that its pull holds it.
    pub const fn taken_by_apply(self) -> bool {
        matches!(self, Self::OnPlan | Self::OnApply)
    }
}

text_enum! {
    /// Projects that share a lock.
    #[derive(Default)]
    pub enum LockScope {
        /// Projects with the same directory and workspace share a lock, because they share a state. Their names do
        /// not matter.
        #[default]
        Workspace = "workspace",
        /// No projects share a lock: each name has its own. This is for repositories that keep several states in one
        /// directory and workspace.
        Project = "project",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_the_lock_follows_from_the_mode() {
        let taken = |mode: &LockMode| (mode.as_str(), mode.taken_by_plan(), mode.taken_by_apply());
        let all: Vec<_> = LockMode::ALL.iter().map(taken).collect();
        assert_eq!(
            all,
            [
                ("on_plan", true, true),
                ("on_apply", false, true),
                ("disabled", false, false)
            ]
        );
        assert_eq!(
            (LockMode::default(), LockScope::default()),
            (LockMode::OnPlan, LockScope::Workspace)
        );
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for mode in LockMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(*mode));
        }
        for scope in LockScope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(*scope));
        }
    }
}
