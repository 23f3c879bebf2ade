//! Removes duplicate comments. A request can arrive after its sender gave it up and posted the comment again.
//!
//! A second run is harmless: it finds one comment and leaves it.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::context::Ctx;
use crate::forges::PostedComment;
use crate::kit::jobs::{ATTEMPTS_WHILE_REFUSED, delayed_search, write_permit};
use crate::model::PullRef;
use crate::queue::{Job, JobError, RunningJob};
use crate::store::NewJob;

/// A comment that may exist twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveDuplicates {
    /// Pull of the comment.
    pub pull: PullRef,
    /// Marker of the comment, see [`super::PostComment::marker`].
    pub marker: String,
    /// Earliest time of the comment, by the clock of the forge.
    pub since: DateTime<Utc>,
    /// Number of looks before this one.
    pub looks: usize,
}

impl RemoveDuplicates {
    /// Returns the job of the next look, if there is one.
    pub(super) fn at_its_time(&self, ctx: &Ctx) -> Option<NewJob> {
        delayed_search(ctx, self.looks, self.to_new())
    }

    /// Deletes all but the first of the comments, because people have read and answered the first.
    pub(super) async fn keep_first(
        &self,
        ctx: &Ctx,
        found: &[PostedComment],
    ) -> Result<(), JobError> {
        for later in found.iter().skip(1) {
            let deleted = ctx
                .forges
                .of(&self.pull.repo)?
                .comment_delete(&self.pull, &later.id, &write_permit(ctx))
                .await;
            deleted?;
            info!(pull = %self.pull, comment = %later.id, "Deleted a duplicate comment");
        }
        Ok(())
    }
}

#[async_trait]
impl Job<Ctx> for RemoveDuplicates {
    const KIND: &'static str = "remove_duplicates";
    /// After all work that somebody waits for.
    const PRIORITY: i64 = 5;
    /// As long as a run may delay the move of a renamed repository.
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_REFUSED;

    fn lane(&self) -> String {
        format!("duplicates:{}", self.pull)
    }

    async fn run(&self, ctx: &Ctx, _attempt: &RunningJob) -> Result<(), JobError> {
        let found = ctx
            .forges
            .of(&self.pull.repo)?
            .comment_find(&self.pull, &self.marker, self.since)
            .await;
        self.keep_first(ctx, &found?).await?;
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
        warn!(pull = %self.pull, error = error.message(), "Could not check for duplicate comments");
        Ok(())
    }
}
