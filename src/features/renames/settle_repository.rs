//! Finds the repository that a delivery named differently from the stored one, and moves the data of a renamed one.
//!
//! A second run is harmless: it finds everything in its place.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::identity;
use crate::context::Ctx;
use crate::features::owners::{self, Service};
use crate::kit::jobs::{ATTEMPTS_WHILE_AWAY, patient};
use crate::model::{ForgeRepo, RepositoryChange, RepositoryEventKind};
use crate::queue::{Job, JobError, RunningJob};

/// A repository as a delivery named it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettleRepository {
    /// Repository in the words of the delivery.
    pub told: ForgeRepo,
}

#[async_trait]
impl Job<Ctx> for SettleRepository {
    const KIND: &'static str = "settle_repository";
    /// Before the deliveries that follow, which would have to find out the same.
    const PRIORITY: i64 = 45;
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_AWAY;

    fn lane(&self) -> String {
        format!("repository:{}:{}", self.told.repo.host(), self.told.id)
    }

    async fn run(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<(), JobError> {
        let repo = identity::settle(ctx, &self.told, Some(attempt.lease.id))
            .await
            .map_err(|error| patient(error, attempt))?;
        if owners::service(ctx, &repo).await? == Service::Served {
            let news = RepositoryChange {
                repo,
                kind: RepositoryEventKind::Changed,
            };
            ctx.store.repository_event_append(&news).await?;
            ctx.mirror_wake_up.send();
        }
        Ok(())
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        let ForgeRepo { id, repo, .. } = &self.told;
        warn!(%repo, id, error = error.message(), "Could not determine the repository of a delivery");
        Ok(())
    }
}
