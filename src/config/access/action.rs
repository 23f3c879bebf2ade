//! What a rule can give or withhold.

use crate::model::text_enum;

text_enum! {
    /// Something that not everybody may do.
    pub enum Action {
        /// Plan, by comment or because the pull changed.
        Plan = "plan",
        /// Apply plans.
        Apply = "apply",
        /// Give back the locks of the own pull by comment.
        Unlock = "unlock",
        /// Take the lock of any pull away by force, or hand it to one that waits for it, from outside of that pull.
        UnlockAny = "unlock_any",
        /// Release a lock of which nothing is in use, and throw away the plans under it, from outside of its pull.
        Discard = "discard",
        /// Stop applies, everywhere or somewhere, or allow them again.
        ApplyLock = "apply_lock",
        /// Take the lease of exclusive work away from the server that holds it.
        Lease = "lease",
        /// Ask for a mirror to be brought in step now.
        Sync = "sync",
        /// Stop what waits or is being planned on the own pull.
        Cancel = "cancel",
        /// Interrupt an apply.
        CancelForce = "cancel_force",
        /// Take something that exists into the state.
        Import = "import",
        /// Let something leave the state.
        StateRm = "state_rm",
        /// Let plans pass although policies failed.
        ApprovePolicies = "approve_policies",
        /// Ask which tool would run.
        Version = "version",
        /// Change owners, and what belongs to them: applications, credentials.
        Owners = "owners",
    }
}

impl Action {
    /// Reads a word of a list, in any case. `state` is how Atlantis calls `state_rm` there.
    pub fn of_word(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        if word == "state" {
            return Some(Self::StateRm);
        }
        word.parse().ok()
    }

    /// Every word, for messages: `plan, apply, …`.
    pub(super) fn words() -> String {
        Self::ALL
            .iter()
            .map(|action| action.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Whether only people who have signed in can do it on the pages, whatever the operator allows others: all but what the pages
    /// of Atlantis have for everybody, and harmless neighbours of it.
    pub const fn needs_account(self) -> bool {
        match self {
            Self::UnlockAny | Self::Discard | Self::ApplyLock | Self::Sync | Self::Cancel => false,
            Self::Plan
            | Self::Apply
            | Self::Unlock
            | Self::Lease
            | Self::CancelForce
            | Self::Import
            | Self::StateRm
            | Self::ApprovePolicies
            | Self::Version
            | Self::Owners => true,
        }
    }

    /// What follows "may not" and "may": "apply", "stop applies or allow them again".
    pub const fn deed(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Unlock => "unlock",
            Self::UnlockAny => "take locks from pull requests by force or hand them over",
            Self::Discard => "release locks and discard their plans",
            Self::ApplyLock => "stop applies or allow them again",
            Self::Lease => "take leases away from servers",
            Self::Sync => "ask for repositories to be synchronised",
            Self::Cancel => "cancel",
            Self::CancelForce => "interrupt an apply",
            Self::Import => "import",
            Self::StateRm => "remove resources from the state",
            Self::ApprovePolicies => "approve policies",
            Self::Version => "ask for the version",
            Self::Owners => "change owners, applications and credentials",
        }
    }

    /// The name of the command in the words of Atlantis, which external programs are told (reference 1.8).
    pub const fn command_name(self) -> &'static str {
        match self {
            Self::StateRm => "state",
            Self::Plan
            | Self::Apply
            | Self::Unlock
            | Self::UnlockAny
            | Self::Discard
            | Self::ApplyLock
            | Self::Lease
            | Self::Sync
            | Self::Cancel
            | Self::CancelForce
            | Self::Import
            | Self::ApprovePolicies
            | Self::Version
            | Self::Owners => self.as_str(),
        }
    }
}
