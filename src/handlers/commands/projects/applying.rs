//! What an apply works on: plans on record, each in a checkout of exactly what it was made of.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::{Mutex, Semaphore};

use super::sparse::Reached;
use super::{ABREAST, Site, Work, abreast};
use crate::config::workflow::Workflow;
use crate::context::Ctx;
use crate::git::Checkout;
use crate::handlers::commands::CommandCx;
use crate::handlers::commands::config_file::{self, Reading};
use crate::handlers::commands::needs::Findings;
use crate::handlers::commands::policies::{OfPlans, Policies};
use crate::model::{PlanRecord, RunKind};
use crate::workflow::{RunError, RunOutput, Source, Tool};

/// What has to be at hand before the gate of an apply is asked.
pub(in crate::handlers::commands) struct Ready {
    pub tool: Tool,
    pub workflow: Arc<Workflow>,
    /// The plan file, if the plan has one.
    pub file: Option<Vec<u8>>,
    pub checkout: Arc<Checkout>,
}

impl Work {
    /// For an apply: each plan says itself what it was made of.
    pub fn of_plans(ctx: &Ctx, OfPlans { policies, others }: OfPlans, plans: &[&PlanRecord]) -> Self {
        let findings = Findings::default();
        let reached = Reached::of(plans.iter().map(|plan| plan.project.clone()));
        let abreast = Semaphore::new(ABREAST);
        let (projects, source, checkouts) = (Vec::new(), None, Mutex::default());
        let made_of = plans.iter().map(|plan| ctx.checkouts.checked_out(&Source::of_plan(plan)));
        let is_mixed = made_of.collect::<HashSet<_>>().len() > 1;
        Self { projects, abreast, source, policies, others, is_mixed, findings, checkouts, reached }
            .with_places_to_apply()
    }

    /// `parallel_apply: false` lets only one group be applied at a time.
    fn with_places_to_apply(self) -> Self {
        let parallel = !self.is_mixed && self.configs().all(|config| config.parallel_apply != Some(false));
        Self { abreast: Semaphore::new(abreast(Some(parallel))), ..self }
    }

    /// For an apply with hooks: by the configuration as it is after them, which may be in the checkout in which they ran.
    pub async fn after_hooks(self, cx: &CommandCx<'_>, source: &Source, checkout: Arc<Checkout>) -> Self {
        let found = match Reading::of_source(cx, self.policies.of_operator(), source, true).await {
            Ok(reading) => {
                let read = tokio::task::spawn_blocking(move || reading.config(Some(&checkout))).await;
                read.context("reading the configuration broke off").and_then(|config| Ok(config?))
            }
            Err(error) => Err(error.into()),
        };
        let policies = self.policies.of_checkout(found);
        let others = if config_file::is_of_checkout(cx.ctx, policies.of_operator()) {
            // The hooks have made it of one state of the base branch only.
            let moved = Arc::new(Policies::moved(policies.of_operator().clone()));
            self.others.into_keys().map(|project| (project, Arc::clone(&moved))).collect()
        } else {
            self.others
        };
        Self { policies, others, ..self }.with_places_to_apply()
    }

    /// Applies one plan, in a checkout of exactly what was planned.
    pub async fn apply(
        &self,
        cx: &CommandCx<'_>,
        plan: &PlanRecord,
        ready: &Ready,
        extra: &[String],
        output: &RunOutput,
    ) -> Result<String, RunError> {
        let facts = self.facts(cx, RunKind::Apply, &ready.workflow, extra).await;
        let site = Site::of(cx, &ready.checkout, &plan.project, facts).await?;
        let place = site.place(cx, &plan.project, &ready.workflow, extra, output);
        cx.ctx.terraform.apply(&place, &ready.tool, ready.file.as_deref()).await
    }
}
