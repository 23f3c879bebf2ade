//! Defines lists of open pulls, and the request budget of a forge.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::model::{PullHead, PullNumber};

/// Page of a list to request.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery<'a> {
    /// Number of the page, from 1.
    pub number: usize,
    /// Tag that the forge sent with the stored answer.
    pub etag: Option<&'a str>,
}

/// Answer about open pulls.
#[derive(Clone, Debug)]
pub struct OpenPulls {
    pub page: ListedPage,
    /// Remaining budget; `None` where the forge does not report one and so has no limit.
    pub budget: Option<RequestBudget>,
}

/// Page of open pulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedPage {
    /// The page has not changed since the tag was sent.
    Unchanged,
    /// The page as it is now.
    Fresh {
        pulls: Vec<ListedPull>,
        /// True if another page follows.
        more: bool,
        /// Tag to ask the forge for changes of this page.
        etag: Option<String>,
    },
}

/// Open pull as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPull {
    pub number: PullNumber,
    /// Head, base branch and draft state of the pull.
    pub at: PullHead,
    /// Time of the last change of the pull, by the clock of the forge.
    pub updated_at: DateTime<Utc>,
    /// True if the repository of the pull is archived, so that nothing in it can change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
}

/// Remaining right to send requests to a forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBudget {
    /// Number of requests that may still be sent.
    pub remaining: u64,
    /// Number of requests in a whole window.
    pub limit: u64,
    /// Start of the next window.
    pub resets_at: DateTime<Utc>,
    /// True if each owner of repositories has a separate budget, as installations of an App do.
    pub per_owner: bool,
}

impl RequestBudget {
    /// Returns true if less than `percent` percent of the budget are left.
    pub fn is_below(&self, percent: u64) -> bool {
        u128::from(self.remaining) * 100 < u128::from(self.limit) * u128::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_below_a_share_of_the_whole_window() {
        let left = |remaining, limit| RequestBudget {
            remaining,
            limit,
            resets_at: DateTime::UNIX_EPOCH,
            per_owner: false,
        };
        assert!(!left(1000, 5000).is_below(20));
        assert!(left(999, 5000).is_below(20));
        assert!(
            !left(0, 0).is_below(20),
            "a forge that says nothing sensible limits nothing"
        );
        assert!(!left(u64::MAX, u64::MAX).is_below(20));
    }
}
