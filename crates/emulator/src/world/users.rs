//! Defines accounts. Accounts need no registration: every login exists, and its id is derived from the login.

use sha2::{Digest, Sha256};

/// Kind of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserKind {
    /// Account of a person.
    Person,
    /// Account of a program.
    Bot,
    /// Owner of repositories that is not a person.
    Organization,
}

/// Account with its kind.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) login: String,
    pub(crate) kind: UserKind,
}

impl User {
    /// Returns the id. The same login always has the same id, regardless of its case and its kind.
    pub(crate) fn id(&self) -> u64 {
        user_id(&self.login)
    }
}

/// Returns the id of the account with this login.
pub(crate) fn user_id(login: &str) -> u64 {
    let hash = Sha256::digest(login.to_ascii_lowercase());
    u64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % 100_000_000) + 1
}
