//! Implements the roles of accounts in a repository.

use crate::EmulatorError;

use super::{EmulatedWorld, Repo};

/// Accounts that may write to every new repository. Others have no role until a test gives them one.
pub(super) const USUAL_PEOPLE: [&str; 6] = ["alice", "bob", "carol", "dave", "emil", "olga"];

/// Role of an account in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No rights beyond those of everybody.
    None,
    /// Right to read the repository.
    Read,
    /// Right to read the repository, and to work on issues and pull requests.
    Triage,
    /// Right to push to the repository.
    Write,
    /// Right to push to the repository, and to change most settings.
    Maintain,
    /// All rights on the repository.
    Admin,
}

impl Role {
    /// Returns true if the role includes another one.
    pub(crate) const fn has(self, other: Self) -> bool {
        self as u8 >= other as u8
    }
}

impl EmulatedWorld {
    /// Gives an account a role in a repository, in place of its former role.
    pub(crate) fn set_role(
        &self,
        repo: &str,
        login: &str,
        role: Role,
    ) -> Result<(), EmulatorError> {
        self.change(|world| {
            world
                .repo_mut(repo)?
                .roles
                .insert(login.to_ascii_lowercase(), role);
            Ok(())
        })
    }

    /// Makes a repository readable for everybody.
    pub(crate) fn make_public(&self, repo: &str) -> Result<(), EmulatorError> {
        self.change(|world| {
            world.repo_mut(repo)?.public = true;
            Ok(())
        })
    }
}

impl Repo {
    /// Returns the role of an account in the repository.
    pub(crate) fn role(&self, login: &str) -> Role {
        let role = self
            .roles
            .get(&login.to_ascii_lowercase())
            .copied()
            .unwrap_or(Role::None);
        if self.public && role == Role::None {
            Role::Read
        } else {
            role
        }
    }

    /// Returns true if an account may push to the repository.
    pub(crate) fn lets_write(&self, login: &str) -> bool {
        self.role(login).has(Role::Write)
    }
}
