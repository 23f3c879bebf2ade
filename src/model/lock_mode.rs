//! When a lock is taken and what it covers: the words of `repo_locks` (reference 7.2).

use super::text::text_enum;

text_enum! {
    /// When the lock of a project is taken.
    #[derive(Default)]
    pub enum LockMode {
        /// By the first plan; an apply takes or verifies it.
        #[default]
        OnPlan = "on_plan",
        /// By an apply; pulls may plan side by side.
        OnApply = "on_apply",
        /// Never.
        Disabled = "disabled",
    }
}

impl LockMode {
    /// Whether a plan takes the lock before it runs.
    pub const fn taken_by_plan(self) -> bool {
        matches!(self, Self::OnPlan)
    }

    /// Whether an apply needs the lock: it takes it, or verifies that it is held.
    pub const fn taken_by_apply(self) -> bool {
        matches!(self, Self::OnPlan | Self::OnApply)
    }
}

text_enum! {
    /// Which projects share a lock.
    #[derive(Default)]
    pub enum LockScope {
        /// Those with the same directory and workspace, whatever they are called: they share a state.
        #[default]
        Workspace = "workspace",
        /// None: each name has a lock of its own, for repositories that keep several states in one directory and
        /// workspace.
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
