//! Defines pull requests, and the data to open one.

use chrono::{DateTime, Utc};

use crate::git::Comparison;
use crate::model::{BranchName, CommitSha, PullNumber, PullState};

use super::{EmulatedComment, Review};

/// A pull request of the emulated forge.
#[derive(Clone, Debug)]
pub struct EmulatedPull {
    /// Number within the repository.
    pub number: PullNumber,
    pub title: String,
    /// Description in Markdown, if any.
    pub body: Option<String>,
    /// Login of the author.
    pub author: String,
    /// State: open, closed or merged.
    pub state: PullState,
    /// True if the pull request is a draft.
    pub draft: bool,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// Repository of the head: `owner/name`, lower-cased.
    pub head_repo: String,
    /// Branch of the head.
    pub head_branch: BranchName,
    /// Newest commit of the head branch.
    pub head: CommitSha,
    /// Branch that the pull request is merged into.
    pub base_branch: BranchName,
    /// Tip of the base branch at the last comparison.
    pub base: CommitSha,
    /// Trial merge of an open pull request (none if there are conflicts), or the real merge of a merged one.
    pub merge_commit: Option<CommitSha>,
    /// Login of the account that merged it.
    pub merged_by: Option<String>,
    /// Time when the pull request was opened.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
    /// Time when the pull request was closed or merged.
    pub closed_at: Option<DateTime<Utc>>,
    /// Changed files and number of commits.
    pub diff: Comparison,
    /// Comments, the oldest first.
    pub comments: Vec<EmulatedComment>,
    /// Reviews, the oldest first.
    pub reviews: Vec<Review>,
    /// Changes of the base branch, the oldest first.
    pub(crate) base_changes: Vec<BaseChange>,
    pub(crate) id: u64,
}

/// Change of the base branch of a pull request.
#[derive(Clone, Debug)]
pub(crate) struct BaseChange {
    pub(crate) id: u64,
    /// Login of the account that changed the base branch.
    pub(crate) by: String,
    /// Time of the change.
    pub(crate) at: DateTime<Utc>,
}

impl EmulatedPull {
    /// Returns true if the pull request is neither closed nor merged.
    pub fn is_open(&self) -> bool {
        self.state == PullState::Open
    }

    pub(super) fn comes_from(&self, repo: &str, branch: &BranchName) -> bool {
        self.head_repo == repo && self.head_branch == *branch
    }
}

/// Data of a pull request to open.
#[derive(Clone, Debug)]
pub struct NewPull {
    pub(super) branch: String,
    pub(super) base: String,
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) author: String,
    pub(super) draft: bool,
    pub(super) labels: Vec<String>,
    pub(super) head_repo: Option<String>,
}

impl NewPull {
    /// Creates a pull request from `branch` into `main`, by `alice`, with the branch as title, ready for review. The
    /// other methods change these values.
    pub fn from_branch(branch: &str) -> Self {
        Self {
            branch: branch.to_owned(),
            base: super::state::DEFAULT_BRANCH.to_owned(),
            title: branch.to_owned(),
            body: None,
            author: "alice".to_owned(),
            draft: false,
            labels: Vec::new(),
            head_repo: None,
        }
    }

    /// Sets another base branch than `main`.
    #[must_use]
    pub fn into_base(mut self, base: &str) -> Self {
        base.clone_into(&mut self.base);
        self
    }

    /// Sets the title of the pull request.
    #[must_use]
    pub fn titled(mut self, title: &str) -> Self {
        title.clone_into(&mut self.title);
        self
    }

    /// Sets the description of the pull request.
    #[must_use]
    pub fn described(mut self, body: &str) -> Self {
        self.body = Some(body.to_owned());
        self
    }

    /// Sets the author of the pull request.
    #[must_use]
    pub fn by(mut self, author: &str) -> Self {
        author.clone_into(&mut self.author);
        self
    }

    /// Makes the pull request a draft.
    #[must_use]
    pub fn draft(mut self) -> Self {
        self.draft = true;
        self
    }

    /// Adds a label to the pull request.
    #[must_use]
    pub fn labelled(mut self, label: &str) -> Self {
        self.labels.push(label.to_owned());
        self
    }

    /// Sets the fork that contains the branch.
    #[must_use]
    pub fn from_fork(mut self, repo: &str) -> Self {
        self.head_repo = Some(repo.to_ascii_lowercase());
        self
    }
}
