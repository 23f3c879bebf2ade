//! Combines the rules of the administrator with the configuration of the repository, for the projects of a command. A
//! plan uses the configuration of its checkout, and an apply uses the configuration of its plan.

use std::collections::HashMap;
use std::sync::Arc;

use lockkeeper_policy::sets::{PolicySet, SetName};
use semver::Version;

use super::policy_checks::CurrentSet;
use super::{CommandCx, config_file};
use crate::config::repo::{OverrideKey, RepoConfig};
use crate::config::repos::{LockPolicy, ProjectRules, RepoRules};
use crate::config::workflow::Workflow;
use crate::discovery::OrderPosition;
use crate::errors::describe_error;
use crate::features::replies::Reply;
use crate::model::{CommandId, PlanRecord, ProjectKey};

/// Rules for the projects of a command.
pub(super) struct Policies {
    rules: RepoRules,
    config: Option<RepoConfig>,
    /// True if the repository may have a configuration that could not be read.
    is_unread: bool,
    /// Reason why nothing may be applied while the configuration cannot be read.
    refusal: Option<String>,
}

/// Rules for the plans of an apply: each plan has the configuration with which it was made.
pub(super) struct PlannedRules {
    /// Rules of the first plan, and of all plans with the same configuration.
    pub policies: Policies,
    /// Rules of plans with another configuration. It comes from another state of the base branch, if that matters, or
    /// from hooks that ran for another command.
    pub others: HashMap<ProjectKey, Arc<Policies>>,
}

impl PlannedRules {
    /// Reads each configuration once.
    pub async fn read(cx: &CommandCx<'_>, plans: &[&PlanRecord]) -> Result<Self, sqlx::Error> {
        let rules = cx.ctx.settings.rules(&cx.pull.at.repo);
        let goes_by_base = config_file::goes_by_base(cx.ctx, &rules);
        let Some((first, rest)) = plans.split_first() else {
            return Ok(Self {
                policies: Policies::new(rules, None),
                others: HashMap::new(),
            });
        };
        let written = config_file::written(cx, &rules).await?;
        let made_by = |plan: &PlanRecord| {
            let command = written.get(&plan.run).copied();
            (
                command,
                (goes_by_base && command.is_none()).then(|| plan.base.clone()),
            )
        };
        let policies = Policies::of_plan(cx, first, written.get(&first.run).copied()).await;
        let (mut others, mut read) = (HashMap::new(), HashMap::new());
        for plan in rest.iter().filter(|plan| made_by(plan) != made_by(first)) {
            let by = made_by(plan);
            if !read.contains_key(&by) {
                read.insert(
                    by.clone(),
                    Arc::new(Policies::of_plan(cx, plan, by.0).await),
                );
            }
            others.insert(plan.project.clone(), Arc::clone(&read[&by]));
        }
        Ok(Self { policies, others })
    }

    /// Returns why nothing may be applied: the configuration that the administrator requires cannot be read.
    pub fn refusal(&self) -> Option<Reply> {
        self.policies.refusal()
    }

    /// Returns the rules of the plan of a project.
    pub fn of(&self, project: &ProjectKey) -> &Policies {
        self.others
            .get(project)
            .map_or(&self.policies, |policies| &**policies)
    }
}

impl Policies {
    pub fn new(rules: RepoRules, config: Option<RepoConfig>) -> Self {
        Self {
            rules,
            config,
            is_unread: false,
            refusal: None,
        }
    }

    /// Builds the rules if the configuration of the repository is unknown.
    fn unread(rules: RepoRules) -> Self {
        Self {
            is_unread: true,
            ..Self::new(rules, None)
        }
    }

    pub fn with_config(self, config: Option<RepoConfig>) -> Self {
        Self { config, ..self }
    }

    /// Builds the rules for an apply, from the configuration with which the plan was made. `written` is the command
    /// whose hooks may have written it. It may be unreadable by now, or contain settings that the administrator does
    /// not allow any more. Then the administrator's own rules are in effect. No lock is left out because of that
    /// (P6).
    pub async fn of_plan(
        cx: &CommandCx<'_>,
        plan: &PlanRecord,
        written: Option<CommandId>,
    ) -> Self {
        let rules = cx.ctx.settings.rules(&plan.pull.repo);
        match config_file::of_plan(cx, &rules, plan, written).await {
            Ok(config) => Self::new(rules, config),
            Err(error) => {
                tracing::warn!(
                    error = describe_error(&*error),
                    "The configuration of a plan cannot be read"
                );
                let refusal = config_file::refusal(cx.ctx, &rules, &error);
                Self {
                    refusal,
                    ..Self::unread(rules)
                }
            }
        }
    }

    fn refusal(&self) -> Option<Reply> {
        let hint = "Nothing was applied. Run the command again once it can be read.".to_owned();
        self.refusal
            .clone()
            .map(|message| Reply::refused("config", message, vec![hint]))
    }

    /// Returns the rules of the administrator.
    pub fn of_operator(&self) -> &RepoRules {
        &self.rules
    }

    /// Returns true if the configuration of the repository is unknown.
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Returns all rules of a project.
    pub fn project(&self, project: &ProjectKey) -> ProjectRules {
        self.rules.project(self.config.as_ref(), project)
    }

    /// Returns the workflow of a project.
    pub fn workflow(&self, project: &ProjectKey) -> Arc<Workflow> {
        self.project(project).workflow.value
    }

    /// Returns the policy sets that concern a project of a pull request with these labels. `None`: its plans are not
    /// checked. If the configuration of the repository is unknown, the administrator alone decides.
    pub fn sets(&self, project: &ProjectKey, labels: &[String]) -> Option<Vec<CurrentSet>> {
        let found = self.rules.policies(self.config.as_ref(), project)?;
        let version = found.conftest_version.as_ref();
        let of_set = |set: &Arc<PolicySet>| {
            let digest = set.digest(version);
            let position = found.step_sets.iter().position(|name| *name == set.name);
            let digest = match position {
                Some(position) => digest.at_position(position),
                None => digest,
            };
            (Arc::clone(set), digest)
        };
        Some(
            found
                .sets
                .iter()
                .filter(|set| set.concerns(project, labels))
                .map(of_set)
                .collect(),
        )
    }

    /// Returns the version of conftest for a project, if the administrator requires one.
    pub fn conftest_version(&self, project: &ProjectKey) -> Option<Version> {
        self.rules
            .policies(self.config.as_ref(), project)?
            .conftest_version
    }

    /// Returns the sets of the server that steps check in projects such as this one, in their order.
    pub fn step_sets(&self, project: &ProjectKey) -> Vec<SetName> {
        self.rules
            .policies(self.config.as_ref(), project)
            .map(|found| found.step_sets)
            .unwrap_or_default()
    }

    pub fn config(&self) -> Option<&RepoConfig> {
        self.config.as_ref()
    }

    /// Returns the position of a plan in the order. `None`: the repository may have a configuration that could not be
    /// read. A project that is not configured keeps its position from the search.
    pub fn order(&self, plan: &PlanRecord) -> Option<OrderPosition> {
        if self.is_unread {
            return None;
        }
        let entry = self
            .config
            .as_ref()
            .and_then(|config| config.entry_of(&plan.project));
        Some(entry.map_or_else(
            || OrderPosition::in_group(plan.order_group),
            OrderPosition::of,
        ))
    }

    /// Returns true if the repository may have requirements for an apply that nobody can read now.
    pub fn hides_demands(&self) -> bool {
        self.is_unread
            && self
                .rules
                .permissions()
                .allows(OverrideKey::ApplyRequirements)
    }

    pub fn of(&self, project: &ProjectKey) -> LockPolicy {
        if self.is_unread {
            return self.rules.lock_policy_unread();
        }
        self.rules.lock_policy(self.config.as_ref(), project)
    }
}
