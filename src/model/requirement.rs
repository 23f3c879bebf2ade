//! What must hold of a pull before something is done for it (reference 8).

use super::text::text_enum;

impl Requirement {
    /// Those that are written as one word.
    pub const WORDS: &[Self] = &[Self::Approved, Self::Mergeable, Self::Undiverged];

    /// Whether a pull that meets this requirement meets the other one, too.
    pub fn implies(self, other: Self) -> bool {
        self == other || (self, other) == (Self::Approved, Self::ApprovedOnce)
    }
}

text_enum! {
    /// A condition of a plan, an apply or an import.
    pub enum Requirement {
        /// Somebody else approves of the head commit of the pull.
        Approved = "approved",
        /// Somebody else approved of the pull, of whatever commit.
        ApprovedOnce = "approved: {stale: true}",
        /// The forge would let the pull be merged.
        Mergeable = "mergeable",
        /// The pull contains all of the base branch.
        Undiverged = "undiverged",
    }
}
