//! Sets the newest status of a context again, because an older one can have arrived after it.
//!
//! A second run is harmless: it repeats the status that is in effect.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::Ctx;
use crate::features::replies::SetStatus;
use crate::kit::jobs::delayed_search;
use crate::model::JobId;
use crate::queue::{Job, JobError, RunningJob};
use crate::store::NewJob;

/// A status that an older one may have overwritten.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RepeatStatus {
    /// Lane of the statuses of this context on this commit.
    pub statuses: String,
    /// Job whose request may be still under way.
    pub since: JobId,
    /// Number of looks before this one.
    pub looks: usize,
}

impl RepeatStatus {
    /// Returns the job of the next look, if there is one.
    pub(super) fn at_its_time(&self, ctx: &Ctx) -> Option<NewJob> {
        delayed_search(ctx, self.looks, self.to_new())
    }
}

#[async_trait]
impl Job<Ctx> for RepeatStatus {
    const KIND: &'static str = "repeat_status";
    /// After all work that somebody waits for.
    const PRIORITY: i64 = 5;
    /// The job uses nothing but the database.
    const MAX_ATTEMPTS: i64 = 10;

    fn lane(&self) -> String {
        format!("repeat:{}", self.statuses)
    }

    async fn run(&self, ctx: &Ctx, _attempt: &RunningJob) -> Result<(), JobError> {
        let kind = <SetStatus as Job<Ctx>>::KIND;
        ctx.store
            .job_repeat_newest(
                kind,
                <SetStatus as Job<Ctx>>::PRIORITY,
                &self.statuses,
                self.since,
            )
            .await?;
        let next = Self {
            looks: self.looks + 1,
            ..self.clone()
        };
        if let Some(job) = next.at_its_time(ctx) {
            ctx.store.job_push(&job).await?;
        }
        Ok(())
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(
            statuses = self.statuses,
            error = error.message(),
            "Could not set a status again"
        );
        Ok(())
    }
}
