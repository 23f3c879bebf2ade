//! Reacts to a comment whose command was accepted, so that its author sees at once that Lockkeeper read it.
//!
//! A second run is harmless: the forge keeps one reaction of a kind per account and comment.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::Ctx;
use crate::forges::ForgeError;
use crate::model::{CommentId, PullRef, RepoId, Subject};
use crate::queue::{Job, JobError, RunningJob};

/// A reaction to add.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddReaction {
    /// Repository of the comment.
    pub repo: RepoId,
    /// Pull of the comment. A job of version 0.2.0 has none, and its only forge, GitHub, needs none.
    #[serde(default = "unknown_pull")]
    pub number: Subject,
    /// Identifier of the comment on the forge.
    pub comment: CommentId,
    /// Reaction, in the forge's words: `eyes`.
    pub content: String,
}

fn unknown_pull() -> Subject {
    Subject::pull(0)
}

#[async_trait]
impl Job<Ctx> for AddReaction {
    const KIND: &'static str = "add_reaction";
    /// A reaction is useful only before the reply arrives.
    const PRIORITY: i64 = 32;
    /// A quarter of an hour. Later, nobody looks for a reaction any more.
    const MAX_ATTEMPTS: i64 = 10;

    fn lane(&self) -> String {
        format!("reaction:{}:{}", self.repo, self.comment)
    }

    async fn run(&self, ctx: &Ctx, _attempt: &RunningJob) -> Result<(), JobError> {
        let at = PullRef {
            repo: self.repo.clone(),
            subject: self.number,
        };
        let forge = ctx.forges.of(&self.repo)?;
        match forge.comment_react(&at, &self.comment, &self.content).await {
            Ok(()) => Ok(()),
            // The comment was deleted.
            Err(error @ ForgeError::NotFound { .. }) => Err(JobError::fail(error)),
            Err(error) => Err(error.into()),
        }
    }

    async fn report_failure(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(repo = %self.repo, comment = %self.comment, error = error.message(), "Could not add a reaction");
        Ok(())
    }
}
