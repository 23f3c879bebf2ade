//! Settings for locks and for their queues.

use super::problems::StartupWarning;
use super::reader::{ReadResult, SettingReader};
use super::section::section;

section! {
    /// Settings for locks, and for their queues.
    pub struct LockingConfig in Locks {
        /// Queue a plan if another pull request holds the lock; otherwise the plan is refused.
        pub queue: bool = switch("lock-queue").or("true"),

        /// Take no locks at all. Deprecated: write `repo_locks: {mode: disabled}` for these repositories in the
        /// file of --repo-config.
        pub is_off: bool = switch("disable-repo-locking") => read_lock_switch,
    }
}

/// Reads the switch that turns off all locks.
pub(super) fn read_lock_switch(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<bool> {
    let is_off = reader.switch(flag)?;
    if is_off {
        let advice = "no lock is taken anywhere, so two pull requests can change the same state at once; deprecated: \
                      write `repo_locks: {mode: disabled}` for these repositories into the file of \
                      --repo-config";
        reader.warn(StartupWarning::with(flag, advice));
    }
    Ok(is_off)
}
