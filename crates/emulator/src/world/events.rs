//! Defines the events of the world, in the words of no forge. A wire turns them into the webhooks of its forge.

use std::sync::Arc;

use crate::EmulatorError;
use crate::git::CommitInfo;
use crate::model::{BranchName, CommitSha, PullNumber};

use super::{EmulatedComment, EmulatedPull, FullName, Repo, User, WorldState};

/// A change of the world, with the records that it left. Later changes copy the records that an event shares, so an
/// event shows the world as it was.
#[derive(Clone, Debug)]
pub(crate) struct WorldEvent {
    /// Repository in which it happened. A deleted one is as it was before.
    pub(crate) repo: Arc<Repo>,
    /// Login of the account that made the change.
    pub(crate) by: String,
    /// Kind of the change, with its details.
    pub(crate) change: WorldChange,
}

/// Kind of a change, with its details.
#[derive(Clone, Debug)]
pub(crate) enum WorldChange {
    /// A pull request was opened.
    PullOpened(PullSnapshot),
    /// A closed pull request was opened again.
    PullReopened(PullSnapshot),
    /// A pull request was merged, or closed without a merge; its state says which.
    PullClosed(PullSnapshot),
    /// The head of a pull request moved.
    PullUpdated {
        pull: PullSnapshot,
        /// Head before the change.
        before: CommitSha,
        /// Head after the change.
        after: CommitSha,
    },
    /// A pull request has another base branch.
    PullBaseChanged {
        pull: PullSnapshot,
        /// Base branch before the change.
        old_branch: BranchName,
        /// Tip of that branch at the last comparison.
        old_base: CommitSha,
    },
    /// A draft was marked as ready for review.
    PullMarkedReady(PullSnapshot),
    /// A pull request was converted to a draft.
    PullMarkedDraft(PullSnapshot),
    /// A comment was posted.
    CommentAdded(CommentSnapshot),
    /// The text of a comment was replaced.
    CommentEdited {
        comment: CommentSnapshot,
        /// Text before the change.
        old_body: String,
    },
    /// A comment was removed.
    CommentDeleted(CommentSnapshot),
    /// A branch was created, moved or deleted.
    Pushed(BranchPush),
    /// A repository has another name, or another owner, or both.
    RepositoryRenamed {
        /// Name before the change.
        old_name: FullName,
        /// Owner before the change.
        old_owner: User,
    },
    /// A repository was archived.
    RepositoryArchived,
    /// A repository was deleted.
    RepositoryDeleted,
}

/// Pull request of an event. Its base is in the repository of the event.
#[derive(Clone, Debug)]
pub(crate) struct PullSnapshot {
    pub(crate) pull: Arc<EmulatedPull>,
    /// Repository of the head; `None` if it was deleted.
    pub(crate) head_repo: Option<Arc<Repo>>,
}

/// Comment of an event, with its pull request.
#[derive(Clone, Debug)]
pub(crate) struct CommentSnapshot {
    pub(crate) pull: Arc<EmulatedPull>,
    pub(crate) comment: EmulatedComment,
}

/// A branch that moved, with its new commits.
#[derive(Clone, Debug)]
pub(crate) struct BranchPush {
    pub(crate) branch: BranchName,
    /// Tip before the push; `None` for a new branch.
    pub(crate) before: Option<CommitSha>,
    /// Tip after the push; `None` for a deleted branch.
    pub(crate) after: Option<CommitSha>,
    /// True if commits were removed from the branch.
    pub(crate) forced: bool,
    /// Commits that were added, the oldest first.
    pub(crate) commits: Vec<CommitInfo>,
    /// Commit at the tip of the branch, unless the branch was deleted.
    pub(crate) head: Option<CommitInfo>,
}

impl WorldState {
    /// Builds an event of a repository from its current records.
    pub(super) fn repository_event(
        &self,
        repo: &str,
        by: &str,
        change: WorldChange,
    ) -> Result<WorldEvent, EmulatorError> {
        Ok(WorldEvent {
            repo: Arc::clone(self.repo(repo)?),
            by: by.to_owned(),
            change,
        })
    }

    /// Builds an event of a pull request from its current records.
    pub(super) fn pull_event(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
        change: impl FnOnce(PullSnapshot) -> WorldChange,
    ) -> Result<WorldEvent, EmulatorError> {
        let pull = Arc::clone(self.repo(repo)?.pull(number)?);
        let head_repo = self.head_repo(&pull).map(Arc::clone);
        self.repository_event(repo, by, change(PullSnapshot { pull, head_repo }))
    }

    /// Builds an event of a comment from the current records of its pull request.
    pub(super) fn comment_event(
        &self,
        repo: &str,
        (number, comment): (PullNumber, &EmulatedComment),
        by: &str,
        change: impl FnOnce(CommentSnapshot) -> WorldChange,
    ) -> Result<WorldEvent, EmulatorError> {
        let pull = Arc::clone(self.repo(repo)?.pull(number)?);
        let comment = comment.clone();
        self.repository_event(repo, by, change(CommentSnapshot { pull, comment }))
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn an_event_shows_the_records_as_they_were() {
        let mut state = WorldState::default();
        let name = FullName::parse("acme/infra").unwrap();
        state.add_repo(&name, None, DateTime::UNIX_EPOCH);
        let event = state
            .repository_event("acme/infra", "alice", WorldChange::RepositoryArchived)
            .unwrap();
        state.repo_mut("acme/infra").unwrap().public = true;
        assert!(state.repo("acme/infra").unwrap().public);
        assert!(!event.repo.public);
    }
}
