//! Shows the findings of policy checks beside the lines of a commit, where the forge can.
//!
//! The job reads the newest plans of the commit when it runs, so a second run is harmless: the forge replaces annotations
//! only by different ones. Annotations decide nothing. The comments have all findings, so a forge that refuses
//! annotations is not asked again until the next plan, and nobody waits for them.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use crate::context::Ctx;
use crate::forges::ForgeError;
use crate::kit::jobs::{ATTEMPTS_WHILE_AWAY, write_permit};
use crate::model::{AnnotationSet, CommitSha, PlanRecord, PullRef, StatusTarget, Subject};
use crate::queue::{Job, JobError, RunningJob};
use crate::render::{CheckedProject, annotations};

/// Annotations of a commit that may have changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AnnotateFindings {
    /// Pull with the commit.
    pub pull: PullRef,
    /// Commit that was planned.
    pub commit: CommitSha,
}

impl AnnotateFindings {
    /// Creates the job for a commit of a pull. Applications have no annotations: one on a commit of their branch would be
    /// visible in every pull request.
    pub fn of_pull(pull: &PullRef, commit: &CommitSha) -> Option<Self> {
        (!pull.subject.is_application()).then(|| Self {
            pull: pull.clone(),
            commit: commit.clone(),
        })
    }

    /// Returns the annotations; `None` if there is no plan of the commit any more, perhaps because the pull was closed.
    async fn annotations(&self, ctx: &Ctx) -> Result<Option<AnnotationSet>, sqlx::Error> {
        let mut plans = ctx.store.plan_list(&self.pull).await?;
        plans.retain(|plan| plan.head == self.commit);
        if plans.is_empty() {
            return Ok(None);
        }
        let results = ctx.store.policy_results(&self.pull).await?;
        let checked = |plan: &PlanRecord| Some((plan.project.clone(), results.get(&plan.id)?));
        let found: Vec<_> = plans.iter().filter_map(checked).collect();
        let projects: Vec<CheckedProject<'_>> = found
            .iter()
            .map(|(project, policies)| CheckedProject {
                project,
                verdicts: &policies.verdicts,
            })
            .collect();
        let settings = &ctx.settings;
        Ok(Some(annotations(
            &settings.comments.status_name,
            format!("{}/", settings.base_url),
            settings.report_style().quiet_policies,
            &projects,
        )))
    }
}

#[async_trait]
impl Job<Ctx> for AnnotateFindings {
    const KIND: &'static str = "annotate_findings";
    /// After comments and statuses, which people wait for.
    const PRIORITY: i64 = 20;
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_AWAY;

    fn lane(&self) -> String {
        format!("annotations:{}@{}", self.pull.repo, self.commit)
    }

    async fn run(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<(), JobError> {
        let store = &ctx.store;
        if store.job_is_outdated(&attempt.lease).await? {
            return Ok(());
        }
        let Subject::Pull(number) = self.pull.subject else {
            return Ok(());
        };
        let Some(set) = self.annotations(ctx).await? else {
            return Ok(());
        };
        let target = StatusTarget {
            repo: self.pull.repo.clone(),
            pull: Some(number),
            commit: self.commit.clone(),
        };
        let permit = write_permit(ctx);
        let forge = ctx.forges.of(&self.pull.repo)?;
        match forge.annotate(&target, &set, &permit).await {
            Ok(answer) => {
                debug!(pull = %self.pull, commit = %self.commit, ?answer, "Annotated the findings of policy checks");
                Ok(())
            }
            Err(
                error @ (ForgeError::Denied { .. }
                | ForgeError::NotFound { .. }
                | ForgeError::Rejected { .. }),
            ) => {
                warn!(pull = %self.pull, commit = %self.commit, %error, "Could not annotate the findings of policy checks");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(pull = %self.pull, commit = %self.commit, error = error.message(), "Could not annotate the findings of policy checks");
        Ok(())
    }
}
