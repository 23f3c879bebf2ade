//! What holds for the projects of a command: the rules of the operator, and what the repository says. A
//! plan goes by the checkout that it plans, an apply by the configuration that its plan was made by.

use std::collections::HashMap;
use std::sync::Arc;

use super::{CommandCx, config_file};
use crate::config::repo::{OverrideKey, RepoConfig};
use crate::config::repos::{LockPolicy, ProjectRules, RepoRules};
use crate::config::workflow::Workflow;
use crate::discovery::Order;
use crate::errors::describe_error;
use crate::handlers::reply::Reply;
use crate::model::{CommandId, PlanRecord, ProjectKey};

/// What holds for the projects of a command.
pub(super) struct Policies {
    rules: RepoRules,
    config: Option<RepoConfig>,
    /// Whether the repository may have said what could not be read.
    is_unread: bool,
    /// Why nothing may be applied by what could not be read.
    refusal: Option<String>,
}

/// What holds for the plans of an apply: each goes by the configuration that it was made by.
pub(super) struct OfPlans {
    /// Of the first of them, and of all that were made by the same.
    pub policies: Policies,
    /// Of those that were made by another one: of another state of the base branch, where that matters, or by what hooks
    /// have written for another command.
    pub others: HashMap<ProjectKey, Arc<Policies>>,
}

impl OfPlans {
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

    /// Why nothing may be applied: what the operator wants to be asked cannot be.
    pub fn refusal(&self) -> Option<Reply> {
        self.policies.refusal()
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

    /// Where nobody can find out what the repository says.
    fn unread(rules: RepoRules) -> Self {
        Self {
            is_unread: true,
            ..Self::new(rules, None)
        }
    }

    pub fn with_config(self, config: Option<RepoConfig>) -> Self {
        Self { config, ..self }
    }

    /// For an apply: the configuration that the plan was made by; `written`: of the command whose hooks may have written it.
    /// If it cannot be read any more, or says what the operator does not allow any more, the operator's own rules hold, and
    /// no lock is left out because of that (P6).
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
                    "The configuration that was planned cannot be read"
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
        let hint = "Comment the same again once it can be read; nothing was applied.".to_owned();
        self.refusal
            .clone()
            .map(|message| Reply::refused("config", message, vec![hint]))
    }

    /// What the operator says.
    pub fn of_operator(&self) -> &RepoRules {
        &self.rules
    }

    /// Whether it could not be found out what the repository says.
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Everything that holds for a project.
    pub fn project(&self, project: &ProjectKey) -> ProjectRules {
        self.rules.project(self.config.as_ref(), project)
    }

    /// The steps of a project.
    pub fn workflow(&self, project: &ProjectKey) -> Arc<Workflow> {
        self.project(project).workflow.value
    }

    pub fn config(&self) -> Option<&RepoConfig> {
        self.config.as_ref()
    }

    /// When the turn of a plan comes; `None`: the repository may have said what could not be read. A project that nobody
    /// configured keeps the place that the search gave it.
    pub fn order(&self, plan: &PlanRecord) -> Option<Order> {
        if self.is_unread {
            return None;
        }
        let entry = self
            .config
            .as_ref()
            .and_then(|config| config.entry_of(&plan.project));
        Some(entry.map_or_else(|| Order::in_group(plan.order_group), Order::of))
    }

    /// Whether the repository may have demanded something of an apply that nobody can read now.
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
