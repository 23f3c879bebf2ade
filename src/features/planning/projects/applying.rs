//! Prepares and runs an apply: recorded plans, each in a checkout of exactly the planned commits.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore};

use super::sparse::ComputedExtents;
use super::{NO_GROUP_LIMIT, Site, Work, links, max_parallel_groups, policy_work};
use crate::config::workflow::Workflow;
use crate::context::Ctx;
use crate::features::planning::CommandCx;
use crate::features::planning::needs::Findings;
use crate::features::planning::policies::PlannedRules;
use crate::git::{Checkout, MirrorInUse};
use crate::model::{PlanRecord, RunKind};
use crate::store::{PlanPolicies, TeamMember};
use crate::workflow::{CheckedOut, CommentWords, FoundTool, RunError, RunOutput, Source};

/// Inputs of an apply that must be ready before its gate.
pub(in crate::features::planning) struct ApplyInputs {
    pub tool: FoundTool,
    pub workflow: Arc<Workflow>,
    /// Plan file, if the plan has one.
    pub file: Option<Vec<u8>>,
    pub checkout: Arc<Checkout>,
    /// Policy checks of the plan; empty if no policy set concerns it.
    pub policies: PlanPolicies,
    /// People who have approved violations as members of a team, and still are.
    pub members: Vec<TeamMember>,
    /// Guard of the mirror, from before the gate to the end of the run.
    pub _in_use: MirrorInUse,
}

impl Work {
    /// Builds the work of an apply from its plans. `parallel_apply: false` lets only one group be applied at a time.
    /// So does a merge with several states of the base branch, because they are checked out in the same place.
    pub fn of_plans(
        ctx: &Ctx,
        PlannedRules { policies, others }: PlannedRules,
        plans: &[&PlanRecord],
    ) -> Self {
        let reached = ComputedExtents::of(plans.iter().map(|plan| plan.project.clone()));
        let made_of: HashSet<CheckedOut> = plans
            .iter()
            .map(|plan| ctx.checkouts.checked_out(&Source::of_plan(plan)))
            .collect();
        let work = Self {
            projects: Vec::new(),
            not_known: Vec::new(),
            group_permits: Semaphore::new(NO_GROUP_LIMIT),
            source: None,
            policies,
            others,
            behind: None,
            findings: Findings::default(),
            checkouts: Mutex::default(),
            reached,
            links: links::KnownLinks::default(),
            policy_inputs: policy_work::SharedPolicyInputs::default(),
        };
        let parallel = made_of.len() < 2
            && work
                .configs()
                .all(|config| config.parallel_apply != Some(false));
        Self {
            group_permits: Semaphore::new(max_parallel_groups(Some(parallel))),
            ..work
        }
    }

    /// Applies one plan, in a checkout of exactly the planned commits.
    pub async fn apply(
        &self,
        cx: &CommandCx<'_>,
        plan: &PlanRecord,
        ready: &ApplyInputs,
        extra: &[String],
        output: &RunOutput,
    ) -> Result<String, RunError> {
        let facts = self.facts(cx, RunKind::Apply, &ready.workflow, extra).await;
        let site = Site::of(self, cx, &ready.checkout, &plan.project, facts).await?;
        let place = site.place(
            cx,
            &plan.project,
            &ready.workflow,
            CommentWords::only(extra),
            output,
        );
        cx.ctx
            .runs
            .terraform
            .apply(&place, &ready.tool, ready.file.as_deref())
            .await
    }
}
