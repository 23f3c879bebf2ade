//! What holds for the locks of the projects of a command: the rules of the operator, and what the repository says. A
//! plan goes by the checkout that it plans, an apply by the head commit that was planned.

use super::CommandCx;
use crate::config::repo::{FILE_NAMES, Permissions, RepoConfig};
use crate::config::repos::{LockPolicy, RepoRules};
use crate::discovery::Order;
use crate::jobs::describe_error;
use crate::model::{PlanRecord, ProjectKey, RepoPath};

/// What holds for the locks of the projects of a command.
pub(super) struct Policies {
    rules: RepoRules,
    config: Option<RepoConfig>,
    /// Whether the repository may have said what could not be read.
    is_unread: bool,
}

impl Policies {
    pub fn new(rules: RepoRules, config: Option<RepoConfig>) -> Self {
        Self { rules, config, is_unread: false }
    }

    pub fn with_config(self, config: Option<RepoConfig>) -> Self {
        Self { config, ..self }
    }

    /// For an apply: the configuration at the head that was planned. If it cannot be read any more, or says what the
    /// operator does not allow any more, the operator's own rules hold, and no lock is left out because of that (P6).
    pub async fn of_plan(cx: &CommandCx<'_>, plan: &PlanRecord) -> Self {
        let rules = cx.ctx.settings.rules(&plan.pull.repo);
        match planned(cx, plan, rules.permissions()).await {
            Ok(config) => Self::new(rules, config),
            Err(error) => {
                tracing::warn!(error = describe_error(&*error), "The configuration that was planned cannot be read");
                Self { is_unread: true, ..Self::new(rules, None) }
            }
        }
    }

    pub fn config(&self) -> Option<&RepoConfig> {
        self.config.as_ref()
    }

    pub fn rules(&self) -> &RepoRules {
        &self.rules
    }

    /// When the turn of a project comes; `None`: the repository may have said what could not be read.
    pub fn order(&self, project: &ProjectKey) -> Option<Order> {
        let rules = (!self.is_unread).then(|| self.rules.project(self.config.as_ref(), project))?;
        Some(Order { group: rules.execution_order_group, after: rules.depends_on })
    }

    pub fn of(&self, project: &ProjectKey) -> LockPolicy {
        if self.is_unread {
            return self.rules.lock_policy_unread();
        }
        self.rules.lock_policy(self.config.as_ref(), project)
    }
}

/// On this replica the commit may never have been fetched.
async fn planned(
    cx: &CommandCx<'_>,
    plan: &PlanRecord,
    permissions: &Permissions,
) -> anyhow::Result<Option<RepoConfig>> {
    cx.ctx.checkouts.fetch_plan(&*cx.ctx.forge, plan, cx.row.installation).await?;
    for file in FILE_NAMES {
        let path = RepoPath::new(file).expect("a plain name is a path");
        let most = RepoConfig::MAX_BYTES as u64;
        if let Some(text) = cx.ctx.checkouts.read(&plan.pull.repo, &plan.head, &path, most).await? {
            let config = RepoConfig::parse(file, &text, permissions)?;
            return Ok(Some(config.for_base(&plan.base_branch)?));
        }
    }
    Ok(None)
}
