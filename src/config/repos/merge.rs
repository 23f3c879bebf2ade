//! How what is said in several places becomes one rule (reference 4.4, 5.2): the default, then the entries of the
//! server's file in their order, each key on its own, then the top of the repository's file, then its project. A
//! repository is heard only about the keys of `allowed_overrides`. `--disable-repo-locking` ends all discussion.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::policy::{DecidedBy, Decider, LockPolicy};
use crate::config::lock_block::LockWish;
use crate::config::overrides::{AllowedOverrides, OverrideKey};
use crate::config::repo::RepoConfig;
use crate::model::{LockMode, LockScope, ProjectKey, RepoPath};

/// A value, and who decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decided<T> {
    value: T,
    by: Decider,
}

impl<T> Decided<T> {
    fn default_of(value: T) -> Self {
        Self { value, by: Decider::Default }
    }

    fn set(&mut self, value: Option<T>, by: &Decider) {
        if let Some(value) = value {
            *self = Self { value, by: by.clone() };
        }
    }
}

/// What the operator says about one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRules {
    allowed_overrides: AllowedOverrides,
    mode: Decided<LockMode>,
    scope: Decided<LockScope>,
    ttl: Decided<Option<Duration>>,
    /// `repo_locking`, the old form.
    locking: Decided<bool>,
    locking_is_off: bool,
    near_misses: Vec<Decider>,
}

impl RepoRules {
    pub(super) fn new(locking_is_off: bool) -> Self {
        Self {
            allowed_overrides: AllowedOverrides::default(),
            mode: Decided::default_of(LockMode::default()),
            scope: Decided::default_of(LockScope::default()),
            ttl: Decided::default_of(None),
            locking: Decided::default_of(true),
            locking_is_off,
            near_misses: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, entry: &Entry, file: &Arc<str>) {
        let by = decider(entry, file);
        self.mode.set(entry.locks.mode, &by);
        self.scope.set(entry.locks.scope, &by);
        self.ttl.set(entry.locks.ttl.map(|limit| limit.0), &by);
        self.locking.set(entry.locking, &by);
        if let Some(allowed) = &entry.allowed_overrides {
            self.allowed_overrides.clone_from(allowed);
        }
    }

    pub(super) fn miss(&mut self, entry: &Entry, file: &Arc<str>) {
        self.near_misses.push(decider(entry, file));
    }

    /// What the repository may decide itself.
    pub fn allowed_overrides(&self) -> &AllowedOverrides {
        &self.allowed_overrides
    }

    /// Entries whose expression fits a part of the repository's id only, so that they do not count here, while Atlantis
    /// would let them.
    pub fn near_misses(&self) -> &[Decider] {
        &self.near_misses
    }

    /// After how long without activity locks go back; `None`: never.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl.value
    }

    /// What holds for the lock of a project. `config` is the file of the repository, if it has one.
    pub fn lock_policy(&self, config: Option<&RepoConfig>, project: &ProjectKey) -> LockPolicy {
        let mode = self.mode_for(config, project);
        LockPolicy {
            mode: mode.value,
            scope: self.scope.value,
            ttl: self.ttl.value,
            decided_by: DecidedBy { mode: mode.by, scope: self.scope.by.clone(), ttl: self.ttl.by.clone() },
        }
    }

    /// What holds while it cannot be found out what the repository says: if it may say something, it may have asked for
    /// the lock.
    pub fn lock_policy_unread(&self) -> LockPolicy {
        let policy = self.lock_policy(None, &ProjectKey::of_dir(RepoPath::root()));
        if policy.mode != LockMode::Disabled
            || self.locking_is_off
            || !self.allowed_overrides.allows(OverrideKey::RepoLocks)
        {
            return policy;
        }
        let decided_by = DecidedBy { mode: Decider::Default, ..policy.decided_by };
        LockPolicy { mode: LockMode::default(), decided_by, ..policy }
    }

    fn mode_for(&self, config: Option<&RepoConfig>, project: &ProjectKey) -> Decided<LockMode> {
        if self.locking_is_off {
            return Decided { value: LockMode::Disabled, by: Decider::Flag("disable-repo-locking") };
        }
        let own = config.and_then(|config| self.wish(config, project));
        own.unwrap_or_else(|| self.mode_of_server())
    }

    /// Reading the file has refused a wish that is not allowed; whoever read it with other rules is not heard either.
    fn wish(&self, config: &RepoConfig, project: &ProjectKey) -> Option<Decided<LockMode>> {
        if !self.allowed_overrides.allows(OverrideKey::RepoLocks) {
            return None;
        }
        let of_project = config.entry_of(project).and_then(|entry| entry.repo_locks);
        let LockWish { mode, line } = of_project.or(config.repo_locks)?;
        Some(Decided { value: mode, by: Decider::Repo { file: config.file_name.clone(), line } })
    }

    /// The old form wins over the new one, as in Atlantis.
    fn mode_of_server(&self) -> Decided<LockMode> {
        if self.locking.value {
            self.mode.clone()
        } else {
            Decided { value: LockMode::Disabled, by: self.locking.by.clone() }
        }
    }
}

fn decider(entry: &Entry, file: &Arc<str>) -> Decider {
    Decider::Server { file: Arc::clone(file), line: entry.line, id: entry.id.to_string() }
}
