//! Accounts. They need no registration: whoever is named exists, and the id follows from the login.

use sha2::{Digest, Sha256};

/// What an account is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::emulator) enum UserKind {
    /// A person.
    User,
    /// A GitHub App's own account.
    Bot,
    /// An owner of repositories that is no person.
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

/// An account.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct User {
    pub(in crate::emulator) login: String,
    pub(in crate::emulator) kind: UserKind,
}

impl User {
    /// A person, or a bot when the login ends in `[bot]`.
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

    /// The same id for the same login, whatever its case, in every run.
    pub(in crate::emulator) fn id(&self) -> u64 {
        let hash = Sha256::digest(self.login.to_ascii_lowercase());
        u64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % 100_000_000) + 1
    }

    /// The address GitHub puts into commits. Its host is fixed: commit ids must not depend on our port.
    pub(in crate::emulator) fn email(&self) -> String {
        format!("{}+{}@users.noreply.github.com", self.id(), self.login)
    }
}
