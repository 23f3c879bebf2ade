//! Implements reviews of a pull request.

use chrono::{DateTime, Utc};

use crate::EmulatorError;
use crate::model::{CommitSha, PullNumber};

use super::EmulatedWorld;

/// Verdict of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewState {
    /// The reviewer approved the pull request.
    Approved,
    /// The reviewer requested changes.
    ChangesRequested,
    /// The reviewer commented without a verdict.
    Commented,
    /// The review was dismissed later.
    Dismissed,
}

/// Review of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Id of the review.
    pub id: u64,
    /// Login of the reviewer.
    pub author: String,
    /// Verdict of the review.
    pub state: ReviewState,
    /// Commit that was reviewed.
    pub commit: CommitSha,
    /// Time when the review was submitted.
    pub at: DateTime<Utc>,
}

impl EmulatedWorld {
    /// Submits a review. An author may not approve their own pull request or request changes on it.
    pub(crate) fn review(
        &self,
        repo: &str,
        number: PullNumber,
        by: &str,
        state: ReviewState,
    ) -> Result<(), EmulatorError> {
        let at = self.now();
        self.change(|world| {
            let id = world.next_id();
            let pull = world.repo_mut(repo)?.pull_mut(number)?;
            if pull.author.eq_ignore_ascii_case(by) && state != ReviewState::Commented {
                return Err(EmulatorError::Refused(
                    "a user cannot review their own pull request in this way".to_owned(),
                ));
            }
            let (author, commit) = (by.to_owned(), pull.head.clone());
            pull.reviews.push(Review {
                id,
                author,
                state,
                commit,
                at,
            });
            Ok(())
        })
    }

    /// Dismisses every review of an account.
    pub(crate) fn dismiss(
        &self,
        repo: &str,
        number: PullNumber,
        of: &str,
    ) -> Result<(), EmulatorError> {
        self.change(|world| {
            let pull = world.repo_mut(repo)?.pull_mut(number)?;
            for review in pull.reviews.iter_mut().filter(|review| review.author == of) {
                review.state = ReviewState::Dismissed;
            }
            Ok(())
        })
    }
}
