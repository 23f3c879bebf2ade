//! What somebody wants to do something to.

use std::fmt;

use crate::model::{
    ApplyScope, BranchName, Concern, Lock, LockKey, OwnerName, ProjectKey, Pull, PullRef, RepoId,
    RepoUrl,
};
use crate::vcs::Installation;

/// A command on a pull.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The pull.
    pub pull: &'a Pull,
    /// The way to the forge.
    pub via: Installation,
    /// What stands behind the command ([`crate::command::Command::comment_args`]).
    pub args: &'a [String],
}

/// What only the account of the whole server decides about an owner's repositories.
#[derive(Clone, Copy, Debug)]
pub struct Reserved<'a> {
    /// For whom.
    pub owner: &'a OwnerName,
    /// The repository.
    pub url: &'a RepoUrl,
    /// What.
    pub what: ReservedDeed<'a>,
}

/// What is decided.
#[derive(Clone, Copy, Debug)]
pub enum ReservedDeed<'a> {
    /// A repository that nobody has claimed becomes the owner's.
    FirstClaim,
    /// An application works on another branch than the default one; that one, if it was asked for.
    OtherBranch(&'a BranchName, Option<&'a BranchName>),
}

impl fmt::Display for Reserved<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, url, what } = self;
        match what {
            ReservedDeed::FirstClaim => write!(f, "the first claim of {url}, for {owner}"),
            ReservedDeed::OtherBranch(branch, _) => {
                write!(f, "the branch {branch} of {url}, for {owner}")
            }
        }
    }
}

/// What somebody wants to do something to.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    /// A pull.
    Pull(Asked<'a>),
    /// A command on a pull about which the forge is asked nothing.
    Unseen {
        /// The pull.
        pull: &'a PullRef,
        /// The way to the forge.
        via: Installation,
        /// What stands behind the command ([`crate::command::Command::comment_args`]).
        args: &'a [String],
    },
    /// One project of a pull.
    Project(Asked<'a>, &'a ProjectKey),
    /// A lock, from outside of the pull that holds it.
    Lock(&'a Lock),
    /// The applies of a repository, or of a directory in it.
    Applies(&'a ApplyScope),
    /// The mirrors of a repository.
    Repository(&'a RepoId),
    /// What is of an owner: applications, credentials.
    Owner(&'a OwnerName),
    /// What is of an owner, and only the account of the whole server decides it.
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
    /// What is of this owner. Of an owner that cannot be told, it is as if it were everything.
    pub fn of_owner(owner: Option<&'a OwnerName>) -> Self {
        owner.map_or(Self::Server, Self::Owner)
    }
}

impl Resource<'_> {
    /// The repository it is in, and the way to its forge; `None` for the whole server.
    pub fn repo(&self) -> Option<(&RepoId, Installation)> {
        match self {
            Self::Pull(asked) | Self::Project(asked, _) => Some((&asked.pull.at.repo, asked.via)),
            Self::Unseen { pull, via, .. } => Some((&pull.repo, *via)),
            Self::Lock(lock) => Some((&lock.key.repo, None)),
            Self::Applies(scope) => scope.repo().map(|repo| (repo, None)),
            Self::Repository(repo) => Some((*repo, None)),
            Self::Owner(_) | Self::Reserved(_) | Self::Server => None,
        }
    }

    /// The lock it is about, for records.
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

    /// The applies it is about, for records.
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

    /// The pull it is about, for records.
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

    /// The owner or the repository it is about, for records, where neither lock, applies nor pull say it.
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

    /// The pull as the forge sees it, if that was asked.
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

    /// What stands behind the command, if it is one.
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

    /// The project, if it is about one.
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
    /// For the log and the record: `github.com/acme/infra#12 dir: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pull(asked) => asked.pull.at.fmt(f),
            Self::Unseen { pull, .. } => pull.fmt(f),
            Self::Project(asked, project) => write!(f, "{} {project}", asked.pull.at),
            Self::Lock(lock) => write!(f, "{}/{} of {}", lock.key.repo.host(), lock.key, lock.pull),
            Self::Applies(scope) => write!(f, "applies in {scope}"),
            Self::Repository(repo) => write!(f, "the mirrors of {repo}"),
            Self::Owner(owner) => write!(f, "what is of {owner}"),
            Self::Reserved(reserved) => reserved.fmt(f),
            Self::Server => f.write_str("the server"),
        }
    }
}
