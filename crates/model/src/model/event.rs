//! Events: the meaning of deliveries in our own words, without the field names of a forge.

use chrono::{DateTime, Utc};

use super::comment::CommentId;
use super::mirror::RepositoryEventKind;
use super::pull::{BranchName, CommitSha, PullHead, PullRef};
use super::repo::RepoId;

/// A delivery as a forge adapter understood it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A change of a pull.
    Pull(PullEvent),
    /// A new comment on a pull.
    Comment(CommentEvent),
    /// A change of whole repositories, whose mirrors need a sync.
    Repositories {
        /// Changed repositories; at least one.
        news: Vec<RepositoryChange>,
    },
    /// A delivery that needs no action. The reason is stored with the delivery.
    Ignored {
        /// One sentence for the page of deliveries.
        reason: String,
    },
}

/// A change of a repository.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RepositoryChange {
    /// Repository of the change.
    pub repo: RepoId,
    /// Kind of the change.
    pub kind: RepositoryEventKind,
}

/// A change of a pull.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PullEvent {
    /// Pull of the change.
    pub pull: PullRef,
    /// Kind of the change.
    pub action: PullAction,
    /// True if the pull is a draft now.
    pub draft: bool,
    /// Newest commit of the pull, if the forge named it.
    #[serde(default)]
    pub head: Option<CommitSha>,
    /// Branch that the pull wants to change, if the forge named it.
    #[serde(default)]
    pub base_branch: Option<BranchName>,
    /// Login of the person who changed the pull.
    pub sender: String,
    /// Number of that person on the forge, if the forge named it. A login can change its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<u64>,
}

impl PullEvent {
    /// Returns the state of the pull after the event, if the forge sent all of it.
    pub fn pull_head(&self) -> Option<PullHead> {
        let (head, base_branch) = (self.head.clone()?, self.base_branch.clone()?);
        Some(PullHead {
            head,
            base_branch,
            draft: self.draft,
        })
    }
}

/// Kinds of changes of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullAction {
    /// Opened for the first time.
    Opened,
    /// Opened again after it was closed.
    Reopened,
    /// Changed from a draft to a normal pull.
    ReadyForReview,
    /// Updated with new commits.
    Updated,
    /// Moved to another base branch.
    BaseChanged,
    /// Closed, with or without a merge.
    Closed,
}

/// A new comment on a pull.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommentEvent {
    /// Pull with the comment.
    pub pull: PullRef,
    /// Identifier of the comment on the forge. One comment is one command, however often it is delivered (P2).
    pub comment: CommentId,
    /// Raw Markdown of the comment.
    pub body: String,
    /// Login of the author.
    pub author: String,
    /// Number of the author on the forge. Unlike a login, it never belongs to anybody else. `None` if the forge does not
    /// say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_id: Option<u64>,
    /// True if the forge says that the author is a bot.
    pub author_is_bot: bool,
    /// Time when the author wrote the comment, in seconds. `None` if the forge does not say it. The delivery may come much
    /// later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<DateTime<Utc>>,
}

impl Event {
    /// Returns the repository of the event.
    pub fn repo(&self) -> Option<&RepoId> {
        match self {
            Self::Pull(event) => Some(&event.pull.repo),
            Self::Comment(event) => Some(&event.pull.repo),
            Self::Repositories { news } => news.first().map(|news| &news.repo),
            Self::Ignored { .. } => None,
        }
    }

    /// Returns the event of a pull with the new name of its repository.
    #[must_use]
    pub fn in_repo(mut self, name: &RepoId) -> Self {
        match &mut self {
            Self::Pull(event) => event.pull.repo = name.clone(),
            Self::Comment(event) => event.pull.repo = name.clone(),
            Self::Repositories { .. } | Self::Ignored { .. } => {}
        }
        self
    }

    /// Returns the repositories that changed, if any.
    pub fn repository_changes(&self) -> Vec<RepositoryChange> {
        match self {
            Self::Pull(event) => {
                let (repo, kind) = (event.pull.repo.clone(), RepositoryEventKind::Pull);
                vec![RepositoryChange { repo, kind }]
            }
            Self::Repositories { news } => news.clone(),
            Self::Comment(_) | Self::Ignored { .. } => Vec::new(),
        }
    }
}
