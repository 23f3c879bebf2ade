//! Describes the target of an action, about which [`super::check`] decides.

use std::fmt;

use crate::model::{
    ApplyScope, BranchName, Concern, Lock, LockKey, OwnerName, ProjectKey, Pull, PullRef, RepoId,
    RepoUrl,
};

/// A command on a pull request that was read from the forge.
#[derive(Clone, Copy, Debug)]
pub struct PullCommand<'a> {
    pub pull: &'a Pull,
    /// Arguments of the command ([`crate::command::Command::comment_args`]).
    pub args: &'a [String],
}

/// Decision about an owner's repositories that only the account of the whole server makes.
#[derive(Clone, Copy, Debug)]
pub struct Reserved<'a> {
    /// Owner who would benefit.
    pub owner: &'a OwnerName,
    /// Address of the repository.
    pub url: &'a RepoUrl,
    /// Kind of the decision.
    pub what: ReservedAction<'a>,
}

/// Kind of a decision that only the account of the whole server makes.
#[derive(Clone, Copy, Debug)]
pub enum ReservedAction<'a> {
    /// A repository that nobody has claimed gets its first owner.
    FirstClaim,
    /// An application works on another branch than the default one. The second value is the default branch, if it is
    /// known.
    OtherBranch(&'a BranchName, Option<&'a BranchName>),
}

impl fmt::Display for Reserved<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, url, what } = self;
        match what {
            ReservedAction::FirstClaim => write!(f, "the first claim of {url}, for {owner}"),
            ReservedAction::OtherBranch(branch, _) => {
                write!(f, "the branch {branch} of {url}, for {owner}")
            }
        }
    }
}

/// Target of an action that needs a permission.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    Pull(PullCommand<'a>),
    /// A command on a pull request, decided without asking the forge about the pull request.
    Unseen {
        pull: &'a PullRef,
        /// Arguments of the command ([`crate::command::Command::comment_args`]).
        args: &'a [String],
    },
    /// One project of a pull request.
    Project(PullCommand<'a>, &'a ProjectKey),
    /// A lock, from outside of the pull request that holds it.
    Lock(&'a Lock),
    /// Applies of a repository, or of a directory in it.
    Applies(&'a ApplyScope),
    /// Mirrors of a repository.
    Repository(&'a RepoId),
    /// Applications and credentials of an owner.
    Owner(&'a OwnerName),
    /// Property of an owner that only the account of the whole server decides about.
    Reserved(Reserved<'a>),
    /// Everything that this server does.
    Server,
}

impl<'a> From<&'a ApplyScope> for Resource<'a> {
    fn from(scope: &'a ApplyScope) -> Self {
        match scope {
            ApplyScope::Repo(_) | ApplyScope::Path { .. } => Self::Applies(scope),
            ApplyScope::Server | ApplyScope::Unknown(_) => Self::Server,
        }
    }
}

impl<'a> Resource<'a> {
    /// Returns the resource of an owner. If the owner is unknown, the resource is the whole server.
    pub fn of_owner(owner: Option<&'a OwnerName>) -> Self {
        owner.map_or(Self::Server, Self::Owner)
    }
}

impl Resource<'_> {
    /// Returns the repository of the resource; `None` for the whole server.
    pub fn repo(&self) -> Option<&RepoId> {
        match self {
            Self::Pull(asked) | Self::Project(asked, _) => Some(&asked.pull.at.repo),
            Self::Unseen { pull, .. } => Some(&pull.repo),
            Self::Lock(lock) => Some(&lock.key.repo),
            Self::Applies(scope) => scope.repo(),
            Self::Repository(repo) => Some(repo),
            Self::Owner(_) | Self::Reserved(_) | Self::Server => None,
        }
    }

    /// Returns the lock of the resource, for the audit log.
    pub(super) fn lock_key(&self) -> Option<LockKey> {
        match self {
            Self::Pull(_)
            | Self::Unseen { .. }
            | Self::Applies(_)
            | Self::Repository(_)
            | Self::Owner(_)
            | Self::Reserved(_)
            | Self::Server => None,
            Self::Project(asked, project) => Some(LockKey::of(&asked.pull.at.repo, project)),
            Self::Lock(lock) => Some(lock.key.clone()),
        }
    }

    /// Returns the applies of the resource, for the audit log.
    pub(super) fn apply_scope(&self) -> Option<ApplyScope> {
        match self {
            Self::Applies(scope) => Some((*scope).clone()),
            Self::Pull(_)
            | Self::Unseen { .. }
            | Self::Project(..)
            | Self::Lock(_)
            | Self::Repository(_)
            | Self::Owner(_)
            | Self::Reserved(_)
            | Self::Server => None,
        }
    }

    /// Returns the pull request of the resource, for the audit log.
    pub(super) fn pull(&self) -> Option<PullRef> {
        match self {
            Self::Pull(asked) | Self::Project(asked, _) => Some(asked.pull.at.clone()),
            Self::Unseen { pull, .. } => Some((*pull).clone()),
            Self::Lock(lock) => Some(lock.pull.clone()),
            Self::Applies(_)
            | Self::Repository(_)
            | Self::Owner(_)
            | Self::Reserved(_)
            | Self::Server => None,
        }
    }

    /// Returns the owner or the repository of the resource, for the audit log. Only needed if it has no lock, applies
    /// or pull request.
    pub(super) fn concern(&self) -> Option<Concern> {
        match self {
            Self::Owner(owner) | Self::Reserved(Reserved { owner, .. }) => {
                Some(Concern::Owner((*owner).clone()))
            }
            Self::Repository(repo) => Some(Concern::Repo((*repo).clone())),
            Self::Pull(_)
            | Self::Unseen { .. }
            | Self::Project(..)
            | Self::Lock(_)
            | Self::Applies(_)
            | Self::Server => None,
        }
    }

    /// Returns the pull request as the forge sees it, if the forge was asked.
    pub(super) fn seen(&self) -> Option<&Pull> {
        match self {
            Self::Pull(asked) | Self::Project(asked, _) => Some(asked.pull),
            Self::Unseen { .. }
            | Self::Lock(_)
            | Self::Applies(_)
            | Self::Repository(_)
            | Self::Owner(_)
            | Self::Reserved(_)
            | Self::Server => None,
        }
    }

    /// Returns the arguments of the command, if the resource has one.
    pub(super) fn args(&self) -> Option<&[String]> {
        match self {
            Self::Pull(asked) | Self::Project(asked, _) => Some(asked.args),
            Self::Unseen { args, .. } => Some(args),
            Self::Lock(_)
            | Self::Applies(_)
            | Self::Repository(_)
            | Self::Owner(_)
            | Self::Reserved(_)
            | Self::Server => None,
        }
    }

    /// Returns the project, if the resource has one.
    pub(super) fn project(&self) -> Option<&ProjectKey> {
        match self {
            Self::Project(_, project) => Some(project),
            Self::Lock(lock) => Some(&lock.project),
            Self::Pull(_)
            | Self::Unseen { .. }
            | Self::Applies(_)
            | Self::Repository(_)
            | Self::Owner(_)
            | Self::Reserved(_)
            | Self::Server => None,
        }
    }
}

impl fmt::Display for Resource<'_> {
    /// Formats the resource for the log and the audit log: `github.com/acme/infra#12 dir: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pull(asked) => asked.pull.at.fmt(f),
            Self::Unseen { pull, .. } => pull.fmt(f),
            Self::Project(asked, project) => write!(f, "{} {project}", asked.pull.at),
            Self::Lock(lock) => write!(f, "{}/{} of {}", lock.key.repo.host(), lock.key, lock.pull),
            Self::Applies(scope) => write!(f, "applies in {scope}"),
            Self::Repository(repo) => write!(f, "the mirrors of {repo}"),
            Self::Owner(owner) => write!(f, "the resources of {owner}"),
            Self::Reserved(reserved) => reserved.fmt(f),
            Self::Server => f.write_str("the server"),
        }
    }
}
