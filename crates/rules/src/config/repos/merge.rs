//! Merges the settings of several places into one rule (reference 4.4, 5.2).
//!
//! The order is: the default, the entries of the server's file in their order, the top level of the repository's
//! file, its project. Each key is merged on its own. A repository can only set the keys of `allowed_overrides`.
//! `--disable-repo-locking` overrides everything about locks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::ServerRepos;
use super::config_source::ConfigSource;
use super::entry::{EntryHooks, EntrySettings, ReposEntry};
use super::environment::ProfileRules;
use super::policies::{DefinedPolicies, ProjectPolicies};
use super::policy::{DecidedBy, Decider, LockPolicy};
use super::project_rules::Decided;
use crate::config::lock_block::LockTiming;
use crate::config::overrides::{AllowedOverrides, OverrideKey};
use crate::config::repo::{AutodiscoverMode, DirGlob, RepoConfig};
use crate::config::workflow::Workflow;
use crate::config::{BranchFilter, Hook, RepoPermissions};
use crate::model::{BranchName, LockMode, LockScope, ProjectKey, RepoPath, Requirement, RunKind};

/// Rules of the administrator for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRules {
    pub(super) permissions: RepoPermissions,
    mode: Decided<LockMode>,
    scope: Decided<LockScope>,
    ttl: Decided<Option<Duration>>,
    /// `repo_locking`, the old form.
    locking: Decided<bool>,
    locking_is_off: bool,
    near_misses: Vec<Decider>,
    branch: Option<Decided<BranchFilter>>,
    config_file: Option<Decided<RepoPath>>,
    config_source: Option<Decided<ConfigSource>>,
    pub(super) workflow: Decided<String>,
    pub(super) plan_requirements: Decided<Vec<Requirement>>,
    pub(super) apply_requirements: Decided<Vec<Requirement>>,
    /// `None`: those of an apply are in effect.
    pub(super) import_requirements: Option<Decided<Vec<Requirement>>>,
    pub(super) silenced: Decided<BTreeSet<RunKind>>,
    four_eyes: Decided<bool>,
    policies: Arc<DefinedPolicies>,
    pub(super) policy_check: Decided<bool>,
    pub(super) custom_policy_check: Decided<bool>,
    environment_profile: Option<Decided<ProfileRules>>,
    /// Hooks of all matching entries, in the order of the file.
    hooks: Vec<Arc<EntryHooks>>,
    autodiscover: Autodiscover,
}

/// Search for projects that no configuration lists (reference 3.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Autodiscover {
    /// Condition for a search. `None` leaves it to `--autodiscover-mode`.
    pub mode: Option<Decided<AutodiscoverMode>>,
    /// Directories that are not projects.
    pub ignore_paths: Option<Decided<Vec<DirGlob>>>,
}

impl RepoRules {
    pub(super) fn new(server: &ServerRepos) -> Self {
        let policy_check = Decided {
            value: server.policy_checks,
            by: if server.policy_checks {
                Decider::Flag("enable-policy-checks")
            } else {
                Decider::Default
            },
        };
        Self {
            permissions: RepoPermissions {
                workflows: Arc::clone(&server.workflows),
                policy_sets: !server.policies.is_empty(),
                ..RepoPermissions::default()
            },
            mode: Decided::default_of(LockMode::default()),
            scope: Decided::default_of(LockScope::default()),
            ttl: Decided::default_of(None),
            locking: Decided::default_of(true),
            locking_is_off: server.locking_is_off,
            near_misses: Vec::new(),
            branch: None,
            config_file: None,
            config_source: None,
            workflow: Decided::default_of(Workflow::DEFAULT.to_owned()),
            plan_requirements: Decided::default_of(Vec::new()),
            apply_requirements: Decided::default_of(Vec::new()),
            import_requirements: None,
            silenced: Decided::default_of(BTreeSet::new()),
            four_eyes: Decided::default_of(false),
            policies: Arc::clone(&server.policies),
            policy_check,
            custom_policy_check: Decided::default_of(false),
            environment_profile: None,
            hooks: Vec::new(),
            autodiscover: Autodiscover::default(),
        }
    }

    pub(super) fn add(&mut self, entry: &ReposEntry, file: &Arc<str>) {
        let (by, said) = (decider(entry, file), &entry.said);
        self.mode.set(said.locks.mode, &by);
        self.scope.set(said.locks.scope, &by);
        self.ttl.set(said.locks.ttl.map(|limit| limit.0), &by);
        self.locking.set(said.locking, &by);
        self.workflow.set(said.workflow.clone(), &by);
        self.plan_requirements
            .set(said.plan_requirements.clone(), &by);
        self.apply_requirements
            .set(said.apply_requirements.clone(), &by);
        // An empty list takes nothing away.
        let imports = said.import_requirements.as_ref();
        let imports = imports.filter(|list| !list.is_empty() || self.import_requirements.is_none());
        replace(&mut self.import_requirements, imports, &by);
        self.silenced.set(said.silence.clone(), &by);
        self.four_eyes.set(said.four_eyes, &by);
        self.policy_check.set(said.policy_check, &by);
        self.custom_policy_check.set(said.custom_policy_check, &by);
        replace(
            &mut self.environment_profile,
            said.environment_profile.as_ref(),
            &by,
        );
        self.hooks.push(Arc::clone(&said.hooks));
        self.add_permissions(said);
        self.add_places(said, &by);
    }

    fn add_permissions(&mut self, said: &EntrySettings) {
        if let Some(allowed) = &said.allowed_overrides {
            self.permissions.overrides.clone_from(allowed);
        }
        if let Some(allowed) = &said.allowed_workflows {
            self.permissions.allowed_workflows = Arc::clone(allowed);
        }
        if let Some(allowed) = said.allow_custom_workflows {
            self.permissions.custom_workflows = allowed;
        }
    }

    fn add_places(&mut self, said: &EntrySettings, by: &Decider) {
        replace(&mut self.branch, said.branch.as_ref(), by);
        replace(&mut self.config_file, said.config_file.as_ref(), by);
        replace(&mut self.config_source, said.config_source.as_ref(), by);
        if let Some(request) = &said.autodiscover {
            replace(&mut self.autodiscover.mode, Some(&request.mode), by);
            replace(
                &mut self.autodiscover.ignore_paths,
                request.ignore_paths.as_ref(),
                by,
            );
        }
    }

    pub(super) fn miss(&mut self, entry: &ReposEntry, file: &Arc<str>) {
        self.near_misses.push(decider(entry, file));
    }

    /// Returns the permissions of the repository, for [`RepoConfig::parse`].
    pub fn permissions(&self) -> &RepoPermissions {
        &self.permissions
    }

    /// Returns the keys that the repository's file may set.
    pub fn allowed_overrides(&self) -> &AllowedOverrides {
        self.permissions.overrides()
    }

    /// Returns entries whose expression fits only a part of the repository's id. They are not in effect here, but
    /// would be in Atlantis.
    pub fn near_misses(&self) -> &[Decider] {
        &self.near_misses
    }

    /// Returns the idle time after which locks expire. `None`: locks never expire.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl.value
    }

    /// Returns the rules for the lock of a project. `config` is the file of the repository, if it has one.
    pub fn lock_policy(&self, config: Option<&RepoConfig>, project: &ProjectKey) -> LockPolicy {
        let mode = self.mode_for(config, project);
        LockPolicy {
            mode: mode.value,
            scope: self.scope.value,
            ttl: self.ttl.value,
            decided_by: DecidedBy {
                mode: mode.by,
                scope: self.scope.by.clone(),
                ttl: self.ttl.by.clone(),
            },
        }
    }

    pub(super) fn allows(&self, key: OverrideKey) -> bool {
        self.permissions.allows(key)
    }

    /// Returns the base branches whose pulls are served. `None` stands for all.
    pub fn branch(&self) -> Option<&Decided<BranchFilter>> {
        self.branch.as_ref()
    }

    /// Returns true if the account that planned must not apply. The repository cannot set this.
    pub fn four_eyes(&self) -> &Decided<bool> {
        &self.four_eyes
    }

    /// Returns the policy sets for the plans of a project. `None`: its plans are not checked. A project that no set
    /// concerns has no sets.
    pub fn policies(
        &self,
        config: Option<&RepoConfig>,
        project: &ProjectKey,
    ) -> Option<ProjectPolicies> {
        Some(self.project(config, project).policies?.value)
    }

    /// Returns true if plans in the repository may be checked: the administrator switches that on, or lets the file of the
    /// repository do so for single projects.
    pub fn may_check_policies(&self) -> bool {
        let is_possible = self.allows(OverrideKey::PolicyCheck) && !self.policies.is_empty();
        self.policy_check.value || is_possible
    }

    pub(super) fn policies_of_server(&self, project: &ProjectKey, custom: bool) -> ProjectPolicies {
        self.policies.of_project(project, custom)
    }

    /// Returns the environment profile of a project, if it has one. The repository cannot set this.
    pub(super) fn environment_profile(&self, project: &ProjectKey) -> Option<Decided<String>> {
        let rules = self.environment_profile.as_ref()?;
        Some(Decided {
            value: rules.value.profile_of(project)?.to_owned(),
            by: rules.by.clone(),
        })
    }

    /// Returns the path of the repository's file. `None` stands for one of [`crate::config::repo::FILE_NAMES`].
    pub fn config_file(&self) -> Option<&Decided<RepoPath>> {
        self.config_file.as_ref()
    }

    /// Returns the source of the repository's file. `None` leaves it to `--repo-config-source`.
    pub fn config_source(&self) -> Option<&Decided<ConfigSource>> {
        self.config_source.as_ref()
    }

    /// Returns the hooks before a command on a pull into this branch.
    pub fn pre_hooks<'a>(&'a self, base: &'a BranchName) -> impl Iterator<Item = &'a Hook> {
        self.hooks_for(base).flat_map(|hooks| &hooks.pre)
    }

    /// Returns the hooks after a command on a pull into this branch.
    pub fn post_hooks<'a>(&'a self, base: &'a BranchName) -> impl Iterator<Item = &'a Hook> {
        self.hooks_for(base).flat_map(|hooks| &hooks.post)
    }

    fn hooks_for<'a>(&'a self, base: &'a BranchName) -> impl Iterator<Item = &'a EntryHooks> {
        let fits =
            |hooks: &&EntryHooks| hooks.branch.as_ref().is_none_or(|branch| branch.fits(base));
        self.hooks.iter().map(|hooks| &**hooks).filter(fits)
    }

    /// Returns the search for projects that no configuration lists. A mode of `None` leaves it to the flag.
    pub fn autodiscover(&self, config: Option<&RepoConfig>) -> Autodiscover {
        let own = config.and_then(|config| Some((config, config.autodiscover.as_ref()?)));
        let by = |config: &RepoConfig, line| Decider::Repo {
            file: config.file_name.clone(),
            line,
        };
        Autodiscover {
            mode: self.autodiscover.mode.clone().or_else(|| {
                own.map(|(config, request)| Decided {
                    value: request.mode,
                    by: by(config, request.line),
                })
            }),
            ignore_paths: self.autodiscover.ignore_paths.clone().or_else(|| {
                own.and_then(|(config, request)| {
                    Some(Decided {
                        value: request.ignore_paths.clone()?,
                        by: by(config, request.line),
                    })
                })
            }),
        }
    }

    /// Returns the lock rules for a repository whose file cannot be read. If the file may set the mode, it may have
    /// requested a lock.
    pub fn lock_policy_unread(&self) -> LockPolicy {
        let policy = self.lock_policy(None, &ProjectKey::of_dir(RepoPath::root()));
        let may_speak =
            self.allows(OverrideKey::RepoLocks) || self.allows(OverrideKey::RepoLocking);
        if policy.mode != LockMode::Disabled || self.locking_is_off || !may_speak {
            return policy;
        }
        let decided_by = DecidedBy {
            mode: Decider::Default,
            ..policy.decided_by
        };
        LockPolicy {
            mode: LockMode::default(),
            decided_by,
            ..policy
        }
    }

    fn mode_for(&self, config: Option<&RepoConfig>, project: &ProjectKey) -> Decided<LockMode> {
        if self.locking_is_off {
            return Decided {
                value: LockMode::Disabled,
                by: Decider::Flag("disable-repo-locking"),
            };
        }
        let Some(config) = config else {
            return self.mode_of_server();
        };
        let mut mode = self.mode_of_server();
        let of_project = config.entry_of(project).and_then(|entry| entry.repo_locks);
        for request in [config.repo_locks, of_project]
            .into_iter()
            .flatten()
            .filter(|request| self.hears(*request))
        {
            // The old form requests some lock, but not this particular mode.
            let is_met = request.is_old_form
                && request.mode != LockMode::Disabled
                && mode.value != LockMode::Disabled;
            if !is_met {
                mode = Decided {
                    value: request.mode,
                    by: Decider::Repo {
                        file: config.file_name.clone(),
                        line: request.line,
                    },
                };
            }
        }
        mode
    }

    /// Returns true if the repository may set this. The reader of the file has refused a forbidden request already,
    /// unless the file was read with other rules.
    fn hears(&self, request: LockTiming) -> bool {
        self.allows(if request.is_old_form {
            OverrideKey::RepoLocking
        } else {
            OverrideKey::RepoLocks
        })
    }

    /// Returns the mode of the server. The old form overrides the new one, as in Atlantis.
    fn mode_of_server(&self) -> Decided<LockMode> {
        if self.locking.value {
            self.mode.clone()
        } else {
            Decided {
                value: LockMode::Disabled,
                by: self.locking.by.clone(),
            }
        }
    }
}

fn replace<T: Clone>(rule: &mut Option<Decided<T>>, value: Option<&T>, by: &Decider) {
    if let Some(value) = value {
        *rule = Some(Decided {
            value: value.clone(),
            by: by.clone(),
        });
    }
}

fn decider(entry: &ReposEntry, file: &Arc<str>) -> Decider {
    Decider::Server {
        file: Arc::clone(file),
        line: entry.line,
        id: entry.id.to_string(),
    }
}
