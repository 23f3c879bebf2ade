//! Defines accounts. Accounts need no registration: every login exists, and its id is derived from the login.

use sha2::{Digest, Sha256};

/// Kind of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::emulator) enum UserKind {
    /// Account of a person.
    User,
    /// Account of a GitHub App.
    Bot,
    /// Owner of repositories that is not a person.
    Organization,
}

impl UserKind {
    pub(in crate::emulator) fn as_str(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Bot => "Bot",
            Self::Organization => "Organization",
        }
    }
}

/// Account with its kind.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct User {
    pub(in crate::emulator) login: String,
    pub(in crate::emulator) kind: UserKind,
}

impl User {
    /// Creates a person, or a bot if the login ends in `[bot]`.
    pub(in crate::emulator) fn new(login: &str) -> Self {
        let kind = if login.ends_with("[bot]") {
            UserKind::Bot
        } else {
            UserKind::User
        };
        Self {
            login: login.to_owned(),
            kind,
        }
    }

    /// Returns the id. The same login always has the same id, regardless of its case.
    pub(in crate::emulator) fn id(&self) -> u64 {
        let hash = Sha256::digest(self.login.to_ascii_lowercase());
        u64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % 100_000_000) + 1
    }

    /// Returns the address that GitHub puts into commits. Its host is fixed, because commit ids must not depend on
    /// the port.
    pub(in crate::emulator) fn email(&self) -> String {
        format!("{}+{}@users.noreply.github.com", self.id(), self.login)
    }
}
