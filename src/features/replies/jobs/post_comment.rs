//! Posts one comment of the bot.
//!
//! A second run is harmless: every comment carries its own marker. Every attempt but the first searches the comments
//! of the pull for it, because an attempt may have succeeded although its answer was lost. [`RemoveDuplicates`] finds
//! a comment that arrives even later.
//!
//! The comments of a result count down what is left to be shown of it, in their order. If one cannot be posted, the result
//! never counts as shown, and nobody applies a plan that a comment should have shown.

use std::collections::BTreeMap;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::context::Ctx;
use crate::features::replies::RemoveDuplicates;
use crate::forges::PostedComment;
use crate::kit::jobs::{ATTEMPTS_WHILE_AWAY, patient, write_permit};
use crate::model::{CommandId, PullRef};
use crate::queue::{Job, JobError, RunningJob};
use crate::store::{JobState, ResultPart, ResultTimes, Store};

/// Maximum lag of the forge's clock behind ours.
const MAX_CLOCK_OFFSET: TimeDelta = TimeDelta::minutes(10);

/// A comment to post.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PostComment {
    /// Pull to comment on.
    pub pull: PullRef,
    /// Markdown of the comment.
    pub body: String,
    /// Part of the hidden last line of the body. No other comment has it there.
    pub marker: String,
    /// Earliest time of the comment by our clock. The forge's clock may differ by [`MAX_CLOCK_OFFSET`].
    pub since: DateTime<Utc>,
    /// Part of the result of a command that the comment shows.
    pub shows: Option<ResultPart>,
}

impl PostComment {
    async fn post(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<PostedComment, JobError> {
        let posted = ctx
            .forges
            .of(&self.pull.repo)?
            .comment_post(&self.pull, &self.body, &write_permit(ctx))
            .await;
        let comment = posted.map_err(|error| patient(error.into(), attempt))?;
        info!(pull = %self.pull, comment = %comment.id, "Posted a comment");
        Ok(comment)
    }

    /// Posts the comment unless an earlier attempt succeeded. Such an attempt may also be still under way.
    async fn post_again(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<(), JobError> {
        let (pull, since) = (self.pull.clone(), self.since - MAX_CLOCK_OFFSET);
        let duplicates = RemoveDuplicates {
            pull,
            marker: self.marker.clone(),
            since,
            looks: 0,
        };
        let found = ctx
            .forges
            .of(&self.pull.repo)?
            .comment_find(&self.pull, &self.marker, since)
            .await;
        let found = found.map_err(|error| patient(error.into(), attempt))?;
        if let Some(comment) = found.first() {
            info!(pull = %self.pull, comment = %comment.id, "The comment had been posted before");
            self.record(&ctx.store, comment).await?;
            duplicates.keep_first(ctx, &found).await?;
        } else {
            let comment = self.post(ctx, attempt).await?;
            self.record(&ctx.store, &comment).await?;
        }
        if let Some(job) = duplicates.at_its_time(ctx) {
            ctx.store.job_push(&job).await?;
        }
        Ok(())
    }

    /// Records what people can read now.
    async fn record(&self, store: &Store, comment: &PostedComment) -> Result<(), JobError> {
        if let Some(part) = &self.shows {
            store.command_shown(part, comment.created_at).await?;
        }
        Ok(())
    }
}

/// Returns when the last of the comments that are left of a result was posted, by the clock of the server that posted it.
/// `None`: it is not certain that all of them are.
///
/// A server of version 0.2.0 that works beside this one does not record that it has posted a comment, but it ends the job.
pub(crate) async fn posted_at(
    store: &Store,
    pull: &PullRef,
    command: CommandId,
    times: &ResultTimes,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let Some(ended) = times.finished_at else {
        return Ok(None);
    };
    let lane = lane(pull);
    let jobs = store.job_list_of_lane(&lane, PostComment::KIND, ended - MAX_CLOCK_OFFSET);
    let mut posted = BTreeMap::new();
    for job in jobs
        .await?
        .into_iter()
        .filter(|job| job.state == JobState::Done)
    {
        let comment = serde_json::from_str::<PostComment>(&job.payload).ok();
        let part = comment.and_then(|comment| comment.shows);
        if let Some(part) = part.filter(|part| part.command == command) {
            posted.insert(part.left, job.finished_at);
        }
    }
    let left = (1..=times.comments_left).map(|left| posted.get(&left).copied().flatten());
    let left: Option<Vec<DateTime<Utc>>> = left.collect();
    Ok(left.and_then(|times| times.into_iter().max()))
}

fn lane(pull: &PullRef) -> String {
    format!("comments:{pull}")
}

#[async_trait]
impl Job<Ctx> for PostComment {
    const KIND: &'static str = "post_comment";
    const PRIORITY: i64 = 30;
    const MAX_ATTEMPTS: i64 = ATTEMPTS_WHILE_AWAY;

    fn lane(&self) -> String {
        lane(&self.pull)
    }

    async fn run(&self, ctx: &Ctx, attempt: &RunningJob) -> Result<(), JobError> {
        if attempt.lease.attempt > 1 {
            return self.post_again(ctx, attempt).await;
        }
        let comment = self.post(ctx, attempt).await?;
        self.record(&ctx.store.last_of_job(), &comment).await
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(pull = %self.pull, error = error.message(), "Could not post a comment");
        Ok(())
    }
}
