//! A pull request as GitHub keeps it.

use chrono::{DateTime, Utc};

use crate::emulator::git::Comparison;
use crate::model::{BranchName, CommitSha, PullNumber, PullState};

use super::{Comment, Repo, Review, StatusState};

/// A pull request.
#[derive(Clone, Debug)]
pub struct Pull {
    /// Number within the repository.
    pub number: PullNumber,
    /// Title.
    pub title: String,
    /// Description.
    pub body: Option<String>,
    /// Login of who opened it.
    pub author: String,
    /// Open, closed or merged.
    pub state: PullState,
    /// Whether it is a draft.
    pub draft: bool,
    /// Its labels.
    pub labels: Vec<String>,
    /// Repository of the head: `owner/name`, lower-cased.
    pub head_repo: String,
    /// Branch of the head.
    pub head_branch: BranchName,
    /// Newest commit.
    pub head: CommitSha,
    /// Branch it wants to change.
    pub base_branch: BranchName,
    /// Tip of that branch when it was last compared.
    pub base: CommitSha,
    /// The trial merge while it is open (none if there are conflicts), the real merge once it is merged.
    pub merge_commit: Option<CommitSha>,
    /// Login of who merged it.
    pub merged_by: Option<String>,
    /// When it was opened.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
    /// When it was closed or merged.
    pub closed_at: Option<DateTime<Utc>>,
    /// Changed files and commits.
    pub diff: Comparison,
    /// The conversation, oldest first.
    pub comments: Vec<Comment>,
    /// Reviews, oldest first.
    pub reviews: Vec<Review>,
    /// So many reads find that GitHub does not know yet whether it can be merged.
    pub(super) unsettled: u32,
    pub(in crate::emulator) id: u64,
}

impl Pull {
    /// Whether it is neither closed nor merged.
    pub fn is_open(&self) -> bool {
        self.state == PullState::Open
    }

    pub(super) fn comes_from(&self, repo: &str, branch: &BranchName) -> bool {
        self.head_repo == repo && self.head_branch == *branch
    }

    /// Whether GitHub knows if it can be merged.
    pub(in crate::emulator) fn is_settled(&self) -> bool {
        self.is_open() && self.unsettled == 0
    }

    /// GitHub's word for whether it can be merged into its repository.
    pub(in crate::emulator) fn mergeable_state(&self, repo: &Repo) -> &'static str {
        if !self.is_settled() {
            return "unknown";
        }
        if self.merge_commit.is_none() {
            return "dirty";
        }
        if self.draft {
            return "draft";
        }
        if repo.blocks(self) {
            return "blocked";
        }
        let all_well = repo
            .statuses_of(&self.head)
            .latest
            .iter()
            .all(|status| status.state == StatusState::Success);
        if all_well { "clean" } else { "unstable" }
    }
}

/// A pull request to open.
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
    /// From `branch` into `main`, by `alice`, with the branch as title, ready for review; change it with the methods.
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

    /// Into another branch than `main`.
    #[must_use]
    pub fn into_base(mut self, base: &str) -> Self {
        base.clone_into(&mut self.base);
        self
    }

    /// Its title.
    #[must_use]
    pub fn titled(mut self, title: &str) -> Self {
        title.clone_into(&mut self.title);
        self
    }

    /// Its description.
    #[must_use]
    pub fn described(mut self, body: &str) -> Self {
        self.body = Some(body.to_owned());
        self
    }

    /// Who opens it.
    #[must_use]
    pub fn by(mut self, author: &str) -> Self {
        author.clone_into(&mut self.author);
        self
    }

    /// As a draft.
    #[must_use]
    pub fn draft(mut self) -> Self {
        self.draft = true;
        self
    }

    /// With one more label.
    #[must_use]
    pub fn labelled(mut self, label: &str) -> Self {
        self.labels.push(label.to_owned());
        self
    }

    /// The branch is in a fork.
    #[must_use]
    pub fn from_fork(mut self, repo: &str) -> Self {
        self.head_repo = Some(repo.to_ascii_lowercase());
        self
    }
}
