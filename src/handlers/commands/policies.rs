//! What holds for the locks of the projects of a command: the rules of the operator, and what the repository says. A
//! plan goes by the checkout that it plans, an apply by the head commit that was planned.

use super::CommandCx;
use crate::config::repo::{AllowedOverrides, FILE_NAMES, RepoConfig};
use crate::config::repos::{LockPolicy, RepoRules};
use crate::model::{PlanRecord, ProjectKey, RepoPath};

/// What holds for the locks of the projects of a command.
pub(super) struct Policies {
    rules: RepoRules,
    config: Option<RepoConfig>,
}

impl Policies {
    pub fn new(rules: RepoRules, config: Option<RepoConfig>) -> Self {
        Self { rules, config }
    }

    pub fn with_config(self, config: Option<RepoConfig>) -> Self {
        Self { config, ..self }
    }

    /// For an apply: the configuration at the head that was planned. One that cannot be read any more, or says what
    /// the operator does not allow any more, is as none: the operator's own rules hold.
    pub async fn of_plan(cx: &CommandCx<'_>, plan: &PlanRecord) -> Self {
        let rules = cx.ctx.settings.rules(&plan.pull.repo);
        let config = planned(cx, plan, rules.allowed_overrides()).await;
        Self { rules, config }
    }

    pub fn config(&self) -> Option<&RepoConfig> {
        self.config.as_ref()
    }

    pub fn of(&self, project: &ProjectKey) -> LockPolicy {
        self.rules.lock_policy(self.config.as_ref(), project)
    }
}

async fn planned(cx: &CommandCx<'_>, plan: &PlanRecord, allowed: &AllowedOverrides) -> Option<RepoConfig> {
    for file in FILE_NAMES {
        let path = RepoPath::new(file).expect("a plain name is a path");
        let text = cx.ctx.checkouts.read(&plan.pull.repo, &plan.head, &path, RepoConfig::MAX_BYTES as u64).await;
        if let Ok(Some(text)) = text {
            return RepoConfig::parse(file, &text, allowed).ok();
        }
    }
    None
}
