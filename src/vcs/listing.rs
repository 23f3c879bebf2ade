//! Lists of open pulls, and what a forge lets us ask.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::model::{PullHead, PullNumber};

/// Which page of a list is asked for.
#[derive(Clone, Copy, Debug)]
pub struct PageAsk<'a> {
    /// From 1.
    pub number: usize,
    /// The tag that the forge gave with the answer we have.
    pub etag: Option<&'a str>,
}

/// An answer about open pulls.
#[derive(Clone, Debug)]
pub struct OpenPulls {
    /// The page.
    pub page: ListedPage,
    /// What is left of the right to ask; `None` where the forge does not say, so does not limit it.
    pub budget: Option<Budget>,
}

/// A page of open pulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedPage {
    /// As it was when the tag was given.
    Unchanged,
    /// As it is now.
    Fresh {
        /// The pulls.
        pulls: Vec<ListedPull>,
        /// Whether another page follows.
        more: bool,
        /// With this the forge can be asked whether anything has changed.
        etag: Option<String>,
    },
}

/// An open pull as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPull {
    /// Its number.
    pub number: PullNumber,
    /// Where it stands.
    pub at: PullHead,
    /// When anything about it changed last, by the clock of the forge.
    pub updated_at: DateTime<Utc>,
    /// Whether nothing in its repository can be changed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
}

/// What is left of the right to ask a forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Requests that may still be sent.
    pub remaining: u64,
    /// Requests of a whole window.
    pub limit: u64,
    /// When the next window begins.
    pub resets_at: DateTime<Utc>,
    /// Whether each owner of repositories has a budget of their own, as installations of an App do.
    pub per_owner: bool,
}

impl Budget {
    /// Whether less than so many percent are left.
    pub fn is_below(&self, percent: u64) -> bool {
        u128::from(self.remaining) * 100 < u128::from(self.limit) * u128::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_below_a_share_of_the_whole_window() {
        let left = |remaining, limit| Budget {
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
