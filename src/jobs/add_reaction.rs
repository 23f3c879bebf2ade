//! Reacts to a comment whose command was accepted, so that whoever wrote it sees at once that it was read.
//!
//! A second run is harmless: the forge keeps one reaction of a kind per account and comment.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::Ctx;
use crate::model::RepoId;
use crate::queue::{Attempt, Job, JobError};
use crate::vcs::{ForgeError, Installation};

/// A reaction to add.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddReaction {
    /// In which repository.
    pub repo: RepoId,
    /// Through which installation of the forge's app.
    pub installation: Installation,
    /// To which comment.
    pub comment: u64,
    /// Which, in the forge's words: `eyes`.
    pub content: String,
}

#[async_trait]
impl Job<Ctx> for AddReaction {
    const KIND: &'static str = "add_reaction";
    /// It is of use only before the answer is there.
    const PRIORITY: i64 = 32;
    /// A quarter of an hour; then nobody looks for it any more.
    const MAX_ATTEMPTS: i64 = 10;

    fn lane(&self) -> String {
        format!("reaction:{}:{}", self.repo, self.comment)
    }

    async fn run(&self, ctx: &Ctx, _attempt: &Attempt) -> Result<(), JobError> {
        match ctx
            .forge
            .comment_react(&self.repo, self.installation, self.comment, &self.content)
            .await
        {
            Ok(()) => Ok(()),
            // Somebody deleted the comment.
            Err(error @ ForgeError::NotFound { .. }) => Err(JobError::fail(error)),
            Err(error) => Err(error.into()),
        }
    }

    async fn gave_up(&self, _ctx: &Ctx, error: &JobError) -> anyhow::Result<()> {
        warn!(repo = %self.repo, comment = self.comment, error = error.message(), "A reaction could not be added");
        Ok(())
    }
}
