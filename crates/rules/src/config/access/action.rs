//! Actions that a rule can permit or refuse.

use crate::model::text_enum;

text_enum! {
    /// An action that needs permission.
    pub enum Action {
        /// Plan, requested by a comment or by a change of the pull.
        Plan = "plan",
        /// Apply plans of a pull.
        Apply = "apply",
        /// Release the locks of the own pull by a comment.
        Unlock = "unlock",
        /// Release the lock of any pull by force, or hand it over to a queued pull, from outside that pull.
        UnlockAny = "unlock_any",
        /// Release a lock that is not in use, and discard its plans, from outside its pull.
        Discard = "discard",
        /// Set or remove an apply lock, for the whole server or a part of it.
        ApplyLock = "apply_lock",
        /// Take the lease of exclusive work away from the server that holds it.
        Lease = "lease",
        /// Request that a mirror is synchronised now.
        Sync = "sync",
        /// Cancel queued work and running plans of the own pull.
        Cancel = "cancel",
        /// Interrupt a running apply.
        CancelForce = "cancel_force",
        /// Import an existing resource into the state.
        Import = "import",
        /// Remove a resource from the state.
        StateRm = "state_rm",
        /// Let plans be applied although they violate policies.
        ApprovePolicies = "approve_policies",
        /// Show the version of the tool that would run.
        Version = "version",
        /// Change owners, and their applications and credentials.
        Owners = "owners",
        /// Invite, join, change and remove other deployments of the registry.
        Peers = "peers",
    }
}

impl Action {
    /// Parses a word of a list, in any case. `state` is the word of Atlantis for `state_rm`.
    pub fn of_word(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        if word == "state" {
            return Some(Self::StateRm);
        }
        word.parse().ok()
    }

    /// Returns true if the word `all` includes the action. With `peers`, a password permits that versions of other
    /// deployments count here, and a server that already has `all` must not get that with an upgrade.
    pub const fn is_in_all(self) -> bool {
        match self {
            Self::Peers => false,
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
            | Self::StateRm
            | Self::ApprovePolicies
            | Self::Version
            | Self::Owners => true,
        }
    }

    /// Returns all words for messages: `plan, apply, …`.
    pub(super) fn words() -> String {
        Self::ALL
            .iter()
            .map(|action| action.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Returns true if only signed-in people can do the action on the pages, even if the administrator allows it to
    /// anonymous visitors. The exceptions are actions that the pages of Atlantis offer to everybody, and similar
    /// harmless ones.
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
            | Self::Owners
            | Self::Peers => true,
        }
    }

    /// Returns the words that follow "may" or "may not" in a message: "apply", "stop applies or allow them again".
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Unlock => "unlock",
            Self::UnlockAny => "take locks from pull requests by force or hand them over",
            Self::Discard => "release locks and discard their plans",
            Self::ApplyLock => "stop applies or allow them again",
            Self::Lease => "take leases away from servers",
            Self::Sync => "request syncs of repositories",
            Self::Cancel => "cancel",
            Self::CancelForce => "interrupt an apply",
            Self::Import => "import",
            Self::StateRm => "remove resources from the state",
            Self::ApprovePolicies => "approve policies",
            Self::Version => "request the version",
            Self::Owners => "change owners, applications and credentials",
            Self::Peers => "change what the registry exchanges with other deployments",
        }
    }

    /// Returns the name that Atlantis gives the command. External programs expect it (reference 1.8).
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
            | Self::Owners
            | Self::Peers => self.as_str(),
        }
    }
}
