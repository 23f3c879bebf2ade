//! How what is said in several places becomes one rule (reference 4.4, 5.2): the default, then the entries of the
//! server's file in their order, each key on its own, then the top of the repository's file, then its project. A
//! repository is heard only about the keys of `allowed_overrides`. `--disable-repo-locking` ends all discussion.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::policy::{DecidedBy, Decider, LockPolicy};
use super::project_rules::{Decided, Demands, ProjectRules};
use crate::config::lock_block::LockWish;
use crate::config::overrides::{AllowedOverrides, OverrideKey};
use crate::config::repo::{AutodiscoverMode, DirGlob, RepoConfig};
use crate::config::workflow::Workflow;
use crate::config::{BranchFilter, Hook};
use crate::model::{BranchName, LockMode, LockScope, ProjectKey, RepoPath};

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
    branch: Option<Decided<BranchFilter>>,
    config_file: Option<Decided<RepoPath>>,
    pre_hooks: Vec<Hook>,
    /// With the `branch` of the entry that has them.
    post_hooks: Vec<(Option<BranchFilter>, Hook)>,
    autodiscover: Autodiscover,
}

/// Whether and where projects are looked for that are not listed (reference 3.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Autodiscover {
    /// Whether; `None` leaves it to `--autodiscover-mode`.
    pub mode: Option<Decided<AutodiscoverMode>>,
    /// Directories that are none.
    pub ignore_paths: Option<Decided<Vec<DirGlob>>>,
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
            branch: None,
            config_file: None,
            pre_hooks: Vec::new(),
            post_hooks: Vec::new(),
            autodiscover: Autodiscover::default(),
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

    /// What holds for a project. `config` is the file of the repository, if it has one.
    pub fn project(&self, config: Option<&RepoConfig>, project: &ProjectKey) -> ProjectRules {
        let entry = config.and_then(|config| config.entry_of(project));
        let by = |line| Decider::Repo { file: config.map(|config| config.file_name.clone()).unwrap_or_default(), line };
        ProjectRules {
            lock: self.lock_policy(config, project),
            workflow: Decided::default_of(Workflow::builtin()),
            plan_requirements: Demands::default(),
            apply_requirements: Demands::default(),
            import_requirements: Demands::default(),
            silenced: Decided::default_of(BTreeSet::new()),
            distribution: entry.and_then(|entry| Some(Decided { value: entry.distribution?, by: by(entry.line) })),
            version: entry
                .and_then(|entry| Some(Decided { value: entry.terraform_version.clone()?, by: by(entry.line) })),
            execution_order_group: entry.map_or(0, |entry| entry.execution_order_group),
            depends_on: entry.map(|entry| entry.depends_on.clone()).unwrap_or_default(),
        }
    }

    /// Base branches whose pulls are served; `None`: all.
    pub fn branch(&self) -> Option<&Decided<BranchFilter>> {
        self.branch.as_ref()
    }

    /// Where the file of the repository is; `None`: one of [`crate::config::repo::FILE_NAMES`].
    pub fn config_file(&self) -> Option<&Decided<RepoPath>> {
        self.config_file.as_ref()
    }

    /// What is run before a command.
    pub fn pre_hooks(&self) -> &[Hook] {
        &self.pre_hooks
    }

    /// What is run after a command on a pull into this branch.
    pub fn post_hooks<'a>(&'a self, base: &'a BranchName) -> impl Iterator<Item = &'a Hook> {
        let fits = |branch: &Option<BranchFilter>| branch.as_ref().is_none_or(|branch| branch.fits(base));
        self.post_hooks.iter().filter(move |(branch, _)| fits(branch)).map(|(_, hook)| hook)
    }

    /// Whether projects that are not listed are looked for; `None` leaves it to the flag.
    pub fn autodiscover(&self, config: Option<&RepoConfig>) -> Autodiscover {
        let own = config.and_then(|config| Some((config, config.autodiscover.as_ref()?)));
        let by = |config: &RepoConfig, line| Decider::Repo { file: config.file_name.clone(), line };
        Autodiscover {
            mode: self
                .autodiscover
                .mode
                .clone()
                .or_else(|| own.map(|(config, wish)| Decided { value: wish.mode, by: by(config, wish.line) })),
            ignore_paths: self.autodiscover.ignore_paths.clone().or_else(|| {
                own.and_then(|(config, wish)| {
                    Some(Decided { value: wish.ignore_paths.clone()?, by: by(config, wish.line) })
                })
            }),
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
