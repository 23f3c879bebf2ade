//! What must hold of a pull before something is done for it (reference 8).

use super::text::text_enum;

text_enum! {
    /// A condition of a plan, an apply or an import.
    pub enum Requirement {
        /// Somebody else approves of the pull.
        Approved = "approved",
        /// The forge would let the pull be merged.
        Mergeable = "mergeable",
        /// The pull contains all of the base branch.
        Undiverged = "undiverged",
    }
}
