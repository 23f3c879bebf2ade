//! What accounts may do in a repository.

use crate::emulator::EmulatorError;

use super::{Repo, World};

/// People who may write to every new repository. Others have no role until somebody gives them one.
pub(super) const USUAL_PEOPLE: [&str; 6] = ["alice", "bob", "carol", "dave", "emil", "olga"];

/// What an account may do in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing that others may not.
    None,
    /// Read it.
    Read,
    /// Read it, and work on issues and pull requests.
    Triage,
    /// Push to it.
    Write,
    /// Push to it, and change most settings.
    Maintain,
    /// Everything.
    Admin,
}

impl Role {
    /// As GitHub spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Triage => "triage",
            Self::Write => "write",
            Self::Maintain => "maintain",
            Self::Admin => "admin",
        }
    }

    /// The base role that GitHub shows in its place where only those of old are told.
    pub(in crate::emulator) const fn base(self) -> Self {
        match self {
            Self::Triage => Self::Read,
            Self::Maintain => Self::Write,
            Self::None | Self::Read | Self::Write | Self::Admin => self,
        }
    }

    /// Whether it includes another one.
    pub(in crate::emulator) const fn has(self, other: Self) -> bool {
        self as u8 >= other as u8
    }
}

impl World {
    /// Gives an account a role in a repository, in place of the one that it had.
    pub(in crate::emulator) fn set_role(
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

    /// Lets everybody read a repository.
    pub(in crate::emulator) fn make_public(&self, repo: &str) -> Result<(), EmulatorError> {
        self.change(|world| {
            world.repo_mut(repo)?.public = true;
            Ok(())
        })
    }
}

impl Repo {
    /// What an account may do in the repository.
    pub(in crate::emulator) fn role(&self, login: &str) -> Role {
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

    /// Whether an account may push to the repository.
    pub(in crate::emulator) fn lets_write(&self, login: &str) -> bool {
        self.role(login).has(Role::Write)
    }
}
