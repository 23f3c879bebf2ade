//! Merges both files into the rules of one project (reference 4.4): workflow, requirements, silence, tool and order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::merge::RepoRules;
use super::policies::ProjectPolicies;
use super::policy::Decider;
use super::project_rules::{Decided, Demands, ProjectRules};
use crate::config::overrides::OverrideKey;
use crate::config::repo::{PolicyCheckRequest, ProjectConfig, RepoConfig, RequirementRequest};
use crate::config::workflow::Workflow;
use crate::model::{ProjectKey, Requirement, RunKind};

/// The repository's file, and its entry for the project.
#[derive(Clone, Copy)]
struct RepositoryConfig<'a> {
    config: &'a RepoConfig,
    entry: &'a ProjectConfig,
}

impl RepositoryConfig<'_> {
    fn by(self, line: usize) -> Decider {
        Decider::Repo {
            file: self.config.file_name.clone(),
            line,
        }
    }

    fn decided<T>(self, value: T, line: usize) -> Decided<T> {
        Decided {
            value,
            by: self.by(line),
        }
    }
}

impl RepoRules {
    /// Returns the rules for a project. `config` is the file of the repository [for the base
    /// branch](RepoConfig::for_base), if it has one.
    pub fn project(&self, config: Option<&RepoConfig>, project: &ProjectKey) -> ProjectRules {
        let own = config.and_then(|config| {
            Some(RepositoryConfig {
                config,
                entry: config.entry_of(project)?,
            })
        });
        let entry = own.map(|own| own.entry);
        ProjectRules {
            lock: self.lock_policy(config, project),
            workflow: self.workflow_for(own),
            plan_requirements: self.plan_demands(own),
            apply_requirements: self.apply_demands(own),
            import_requirements: self.import_demands(own),
            silenced: self.silenced_for(config, entry),
            environment_profile: self.environment_profile(project),
            policies: self.policies_for(own, project),
            distribution: own
                .and_then(|own| Some(own.decided(own.entry.distribution?, own.entry.line))),
            version: own.and_then(|own| {
                Some(own.decided(own.entry.terraform_version.clone()?, own.entry.line))
            }),
        }
    }

    /// Returns the workflow that the project chooses, else the server's choice. A workflow of the repository
    /// overrides one of the server.
    fn workflow_for(&self, own: Option<RepositoryConfig<'_>>) -> Decided<Arc<Workflow>> {
        let chosen = own.and_then(|own| {
            let request = own
                .entry
                .workflow
                .as_ref()
                .filter(|_| self.allows(OverrideKey::Workflow))?;
            let brought = own
                .config
                .workflows
                .get(&request.name)
                .filter(|_| self.permissions.custom_workflows);
            let value = brought
                .cloned()
                .or_else(|| self.workflow_of_server(&request.name))?;
            Some(own.decided(value, request.line))
        });
        chosen.unwrap_or_else(|| {
            let value = self
                .workflow_of_server(&self.workflow.value)
                .unwrap_or_else(Workflow::builtin);
            Decided {
                value,
                by: self.workflow.by.clone(),
            }
        })
    }

    fn workflow_of_server(&self, name: &str) -> Option<Arc<Workflow>> {
        let defined = self.permissions.workflows.get(name).cloned();
        defined.or_else(|| (name == Workflow::DEFAULT).then(Workflow::builtin))
    }

    fn plan_demands(&self, own: Option<RepositoryConfig<'_>>) -> Demands {
        let request = own.and_then(|own| Some((own, own.entry.plan_requirements.as_ref()?)));
        self.demands(
            &self.plan_requirements,
            request,
            OverrideKey::PlanRequirements,
        )
    }

    fn apply_demands(&self, own: Option<RepositoryConfig<'_>>) -> Demands {
        let request = own.and_then(|own| Some((own, own.entry.apply_requirements.as_ref()?)));
        self.demands(
            &self.apply_requirements,
            request,
            OverrideKey::ApplyRequirements,
        )
    }

    /// Returns the requirements for changes of the state without a plan. A file that does not set them leaves them to its
    /// requirements for an apply, because these changes run the code of the pull request with the credentials of applies.
    fn import_demands(&self, own: Option<RepositoryConfig<'_>>) -> Demands {
        let request = own
            .and_then(|own| Some((own, own.entry.import_requirements.as_ref()?)))
            .filter(|_| self.allows(OverrideKey::ImportRequirements));
        match (&self.import_requirements, request) {
            (None, None) => self.apply_demands(own),
            (server, request) => self.demands(
                server.as_ref().unwrap_or(&self.apply_requirements),
                request,
                OverrideKey::ImportRequirements,
            ),
        }
    }

    /// Returns the requirements of the server and those of the project. The project's list replaces the server's only
    /// if the administrator allows [`OverrideKey::FewerRequirements`].
    fn demands(
        &self,
        server: &Decided<Vec<Requirement>>,
        request: Option<(RepositoryConfig<'_>, &RequirementRequest)>,
        key: OverrideKey,
    ) -> Demands {
        let request = request.filter(|_| self.allows(key));
        let mut demands = Demands::default();
        if request.is_none() || !self.allows(OverrideKey::FewerRequirements) {
            server
                .value
                .iter()
                .for_each(|demand| demands.add(*demand, &server.by));
        }
        if let Some((own, request)) = request {
            let by = own.by(request.line);
            request
                .requirements
                .iter()
                .for_each(|demand| demands.add(*demand, &by));
        }
        demands
    }

    /// Returns the policy sets of the project, and the source of the decision to check them.
    fn policies_for(
        &self,
        own: Option<RepositoryConfig<'_>>,
        project: &ProjectKey,
    ) -> Option<Decided<ProjectPolicies>> {
        let request = |key, of: fn(&ProjectConfig) -> Option<PolicyCheckRequest>| {
            let own = own.filter(|_| self.allows(key))?;
            let PolicyCheckRequest { is_on, line } = of(own.entry)?;
            Some(own.decided(is_on, line))
        };
        let check = request(OverrideKey::PolicyCheck, |entry| entry.policy_check)
            .unwrap_or_else(|| self.policy_check.clone());
        if !check.value {
            return None;
        }
        let custom = request(OverrideKey::CustomPolicyCheck, |entry| {
            entry.custom_policy_check
        })
        .map_or(self.custom_policy_check.value, |custom| custom.value);
        Some(Decided {
            value: self.policies_of_server(project, custom),
            by: check.by,
        })
    }

    fn silenced_for(
        &self,
        config: Option<&RepoConfig>,
        entry: Option<&ProjectConfig>,
    ) -> Decided<BTreeSet<RunKind>> {
        let own = config
            .filter(|_| self.allows(OverrideKey::SilencePrComments))
            .and_then(|config| {
                let of_project = entry.and_then(|entry| entry.silence_pr_comments.as_ref());
                let request = of_project.or(config.silence_pr_comments.as_ref())?;
                let by = Decider::Repo {
                    file: config.file_name.clone(),
                    line: request.line,
                };
                Some(Decided {
                    value: request.runs.clone(),
                    by,
                })
            });
        own.unwrap_or_else(|| self.silenced.clone())
    }
}
