//! Plans and default branches that use a module, as pages, the API and the command line show them.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::versions::VersionKey;
use serde::Serialize;

use super::{BranchUseLimits, ListedBranchUse, ModuleUse};
use crate::model::{CommitSha, PlanState, ProjectName, RepoId, RepoPath, Subject, WorkspaceName};
use crate::store::{Result, Store};

/// A plan or a default branch that uses a module.
#[derive(Serialize)]
#[serde(tag = "used_by", rename_all = "snake_case")]
pub(super) enum UseView {
    Plan {
        repo: RepoId,
        pull: Subject,
        dir: RepoPath,
        workspace: WorkspaceName,
        project: Option<ProjectName>,
        kind: NameKind,
        name: String,
        version: String,
        /// State of the plan.
        plan: PlanState,
        planned_at: DateTime<Utc>,
    },
    DefaultBranch {
        repo: RepoId,
        commit: Option<CommitSha>,
        dir: RepoPath,
        kind: NameKind,
        name: String,
        /// Versions that the code allows. Empty: all.
        wanted: String,
        /// The only version that is allowed, if there is one.
        version: Option<String>,
        looked_at: Option<DateTime<Utc>>,
    },
}

impl From<&ModuleUse> for UseView {
    fn from(used: &ModuleUse) -> Self {
        Self::Plan {
            repo: used.pull.repo.clone(),
            pull: used.pull.subject,
            dir: used.project.dir.clone(),
            workspace: used.project.workspace.clone(),
            project: used.project.name.clone(),
            kind: used.key.kind(),
            name: used.key.name().as_str().to_owned(),
            version: used.key.version(),
            plan: used.state,
            planned_at: used.planned_at,
        }
    }
}

impl From<&ListedBranchUse> for UseView {
    fn from(listed: &ListedBranchUse) -> Self {
        let used = &listed.used;
        Self::DefaultBranch {
            repo: listed.repo.clone(),
            commit: listed.head.clone(),
            dir: used.dir.clone(),
            kind: used.name.kind(),
            name: used.name.as_str().to_owned(),
            wanted: used.wanted.clone(),
            version: used.version.as_ref().map(VersionKey::version),
            looked_at: listed.looked_at,
        }
    }
}

/// Plans and default branches that use a name, or one version of it.
pub(super) struct ModuleUses {
    pub plans: Vec<ModuleUse>,
    pub branches: Vec<ListedBranchUse>,
    /// True if there may be more plans than were read.
    pub has_more_plans: bool,
    /// True if there may be more uses on default branches than were read.
    pub has_more_branches: bool,
}

impl ModuleUses {
    /// Maximum number of uses of each kind that the pages and the API read. Those of plans are also in repositories that the
    /// person does not see.
    pub const MOST: i64 = 1_000;

    /// Reads the uses in all repositories.
    pub async fn all(
        store: &Store,
        name: &RegistryName,
        version: Option<&VersionKey>,
    ) -> Result<Self> {
        let plans = store.registry_uses(name, version, i64::MAX).await?;
        let branches = store.registry_branch_uses(name, version, i64::MAX).await?;
        Ok(Self {
            plans,
            branches,
            has_more_plans: false,
            has_more_branches: false,
        })
    }

    /// Reads the uses in the repositories of the limits, at most `limits.total` of each of the two kinds.
    pub async fn within(
        store: &Store,
        name: &RegistryName,
        version: Option<&VersionKey>,
        limits: BranchUseLimits<'_>,
    ) -> Result<Self> {
        let is_full = |found: usize, most: i64| i64::try_from(found).is_ok_and(|many| many >= most);
        let mut plans = store.registry_uses(name, version, limits.total).await?;
        let has_more_plans = is_full(plans.len(), limits.total);
        if let Some(repos) = limits.repos {
            let repos: HashSet<&RepoId> = repos.iter().collect();
            plans.retain(|used| repos.contains(&used.pull.repo));
        }
        let mut branches = store.registry_branch_uses_of_each(name, limits).await?;
        let mut of_each = branches.chunk_by(|one, other| one.repo == other.repo);
        let has_more_branches = is_full(branches.len(), limits.total)
            || of_each.any(|uses| is_full(uses.len(), limits.of_repo));
        branches.retain(|listed| version.is_none_or(|version| listed.used.allows(version)));
        Ok(Self {
            plans,
            branches,
            has_more_plans,
            has_more_branches,
        })
    }

    /// Returns all uses as the API and the command line show them, plans first.
    pub fn views(&self) -> impl Iterator<Item = UseView> {
        let plans = self.plans.iter().map(UseView::from);
        plans.chain(self.branches.iter().map(UseView::from))
    }
}
