//! What a delivery means, in our words; no forge's field names.

use super::mirror::RepositoryEventKind;
use super::pull::{BranchName, CommitSha, PullHead, PullRef};
use super::repo::RepoId;

/// A delivery as a forge adapter understood it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Something happened to a pull.
    Pull(PullEvent),
    /// Somebody commented on a pull.
    Comment(CommentEvent),
    /// Something happened to repositories as a whole: mirrors of them are to be brought in step.
    Repositories {
        /// To which, and what; at least one.
        news: Vec<RepositoryNews>,
    },
    /// Nothing to do; the reason is kept with the delivery.
    Ignored {
        /// One sentence for the page of deliveries.
        reason: String,
    },
}

/// Something happened to a repository.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RepositoryNews {
    /// To which.
    pub repo: RepoId,
    /// What.
    pub kind: RepositoryEventKind,
    /// GitHub App installation through which we heard of it.
    pub installation: Option<u64>,
}

/// A change of a pull.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PullEvent {
    /// The pull.
    pub pull: PullRef,
    /// What happened.
    pub action: PullAction,
    /// Whether the pull is a draft now.
    pub draft: bool,
    /// Its newest commit, if the forge said it.
    #[serde(default)]
    pub head: Option<CommitSha>,
    /// The branch it wants to change, if the forge said it.
    #[serde(default)]
    pub base_branch: Option<BranchName>,
    /// Login of who did it.
    pub sender: String,
    /// GitHub App installation the event came through.
    pub installation: Option<u64>,
}

impl PullEvent {
    /// Where the pull stood when it happened, if the forge said all of it.
    pub fn standing(&self) -> Option<PullHead> {
        let (head, base_branch) = (self.head.clone()?, self.base_branch.clone()?);
        Some(PullHead {
            head,
            base_branch,
            draft: self.draft,
        })
    }
}

/// What can happen to a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullAction {
    /// Opened for the first time.
    Opened,
    /// Opened again after it was closed.
    Reopened,
    /// No longer a draft.
    ReadyForReview,
    /// New commits.
    Updated,
    /// Another base branch.
    BaseChanged,
    /// Closed or merged.
    Closed,
}

/// A new comment on a pull.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommentEvent {
    /// The pull.
    pub pull: PullRef,
    /// The forge's id of the comment; the same comment is one command, however often it is delivered (P2).
    pub comment: u64,
    /// Raw Markdown.
    pub body: String,
    /// Login of who wrote it.
    pub author: String,
    /// Whether the forge says the author is a bot.
    pub author_is_bot: bool,
    /// GitHub App installation the event came through.
    pub installation: Option<u64>,
}

impl Event {
    /// The repository the event is about.
    pub fn repo(&self) -> Option<&RepoId> {
        match self {
            Self::Pull(event) => Some(&event.pull.repo),
            Self::Comment(event) => Some(&event.pull.repo),
            Self::Repositories { news } => news.first().map(|news| &news.repo),
            Self::Ignored { .. } => None,
        }
    }

    /// GitHub App installation the event came through.
    pub fn installation(&self) -> Option<u64> {
        match self {
            Self::Pull(event) => event.installation,
            Self::Comment(event) => event.installation,
            Self::Repositories { news } => news.iter().find_map(|news| news.installation),
            Self::Ignored { .. } => None,
        }
    }

    /// The same event of a pull, in a repository that has another name by now.
    #[must_use]
    pub fn in_repo(mut self, name: &RepoId) -> Self {
        match &mut self {
            Self::Pull(event) => event.pull.repo = name.clone(),
            Self::Comment(event) => event.pull.repo = name.clone(),
            Self::Repositories { .. } | Self::Ignored { .. } => {}
        }
        self
    }

    /// The repositories that were changed, if any were.
    pub fn news(&self) -> Vec<RepositoryNews> {
        match self {
            Self::Pull(event) => {
                let (repo, kind) = (event.pull.repo.clone(), RepositoryEventKind::Pull);
                vec![RepositoryNews {
                    repo,
                    kind,
                    installation: event.installation,
                }]
            }
            Self::Repositories { news } => news.clone(),
            Self::Comment(_) | Self::Ignored { .. } => Vec::new(),
        }
    }
}
