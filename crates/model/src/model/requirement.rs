//! Requirements: conditions that a pull must meet before a command runs (reference 8).

use super::text::text_enum;

impl Requirement {
    /// Requirements that are written as one word.
    pub const WORDS: &[Self] = &[Self::Approved, Self::Mergeable, Self::Undiverged];

    /// Returns true if a pull that meets this requirement also meets the other one.
    pub fn implies(self, other: Self) -> bool {
        self == other || (self, other) == (Self::Approved, Self::ApprovedOnce)
    }
}

text_enum! {
    /// A condition of a plan, an apply or an import.
    pub enum Requirement {
        /// Another person approves of the head commit of the pull.
        Approved = "approved",
        /// Another person approved of the pull, at any commit.
        ApprovedOnce = "approved: {stale: true}",
        /// The forge would let the pull be merged.
        Mergeable = "mergeable",
        /// The pull contains all of the base branch.
        Undiverged = "undiverged",
    }
}
