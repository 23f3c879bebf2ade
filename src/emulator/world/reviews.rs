//! Reviews of a pull request, by GitHub's rules.

use chrono::{DateTime, Utc};

use crate::emulator::EmulatorError;
use crate::model::{CommitSha, PullNumber};

use super::World;

/// What a review says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewState {
    /// It is fine.
    Approved,
    /// It is not.
    ChangesRequested,
    /// Neither.
    Commented,
    /// It was taken back.
    Dismissed,
}

impl ReviewState {
    /// As GitHub spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "APPROVED",
            Self::ChangesRequested => "CHANGES_REQUESTED",
            Self::Commented => "COMMENTED",
            Self::Dismissed => "DISMISSED",
        }
    }
}

/// A review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// GitHub's id of it.
    pub id: u64,
    /// Login of who wrote it.
    pub author: String,
    /// What it says.
    pub state: ReviewState,
    /// The commit that was looked at.
    pub commit: CommitSha,
    /// When it was submitted.
    pub at: DateTime<Utc>,
}

impl World {
    /// Submits a review. Nobody may approve of their own pull, or ask themselves for changes.
    pub(in crate::emulator) fn review(
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
                    "nobody may review their own pull request so".to_owned(),
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

    /// Dismisses every review of somebody.
    pub(in crate::emulator) fn dismiss(
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
