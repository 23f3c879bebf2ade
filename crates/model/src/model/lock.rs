//! The lock of a project's path and workspace.

use std::fmt;

use chrono::{DateTime, Utc};

use super::ids::{CommandId, LockId};
use super::lock_mode::LockScope;
use super::outcome::CommandKind;
use super::path::RepoPath;
use super::person::Person;
use super::project::{ProjectKey, ProjectName, WorkspaceName};
use super::pull::PullRef;
use super::repo::RepoId;

/// Subject of a lock. The separate columns are the key; the text form is for people.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct LockKey {
    /// Repository, with its host.
    pub repo: RepoId,
    /// Directory of the project.
    pub dir: RepoPath,
    /// Workspace of the project.
    pub workspace: WorkspaceName,
    /// Name of the project, if each project has its own lock (`repo_locks.scope: project`). Otherwise the lock covers
    /// everything in the directory and workspace.
    pub project: Option<ProjectName>,
}

impl LockKey {
    /// Returns the lock of everything in the project's directory and workspace.
    pub fn of(repo: &RepoId, project: &ProjectKey) -> Self {
        Self {
            repo: repo.clone(),
            dir: project.dir.clone(),
            workspace: project.workspace.clone(),
            project: None,
        }
    }

    /// Returns the lock of the project alone. A project without a name takes the lock of its directory.
    pub fn of_project(repo: &RepoId, project: &ProjectKey) -> Self {
        Self {
            project: project.name.clone(),
            ..Self::of(repo, project)
        }
    }

    /// Returns the lock of the project in this scope.
    pub fn in_scope(scope: LockScope, repo: &RepoId, project: &ProjectKey) -> Self {
        match scope {
            LockScope::Workspace => Self::of(repo, project),
            LockScope::Project => Self::of_project(repo, project),
        }
    }

    /// Returns true if the project needs this lock.
    pub fn covers(&self, project: &ProjectKey) -> bool {
        self.dir == project.dir
            && self.workspace == project.workspace
            && (self.project.is_none() || self.project == project.name)
    }
}

impl fmt::Display for LockKey {
    /// Formats the classic text form: `owner/repo/path/workspace`, followed by `/project` if the lock covers one
    /// project.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}",
            self.repo.full_name(),
            self.dir,
            self.workspace
        )?;
        self.project
            .as_ref()
            .map_or(Ok(()), |project| write!(f, "/{project}"))
    }
}

/// A lock that a pull holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Identifier of the lock, until its release.
    pub id: LockId,
    /// Subject of the lock.
    pub key: LockKey,
    /// Project for which the lock was taken.
    pub project: ProjectKey,
    /// Pull that holds the lock.
    pub pull: PullRef,
    /// Name of the application that holds the lock. A pull needs none, because it has a number.
    pub title: Option<String>,
    /// Page of that pull for people.
    pub pull_url: String,
    /// Person who caused the lock to be taken.
    pub holder: Person,
    /// Reason of the lock, in one clause: "planned by `lockkeeper plan`".
    pub reason: String,
    /// Time when the lock was taken.
    pub taken_at: DateTime<Utc>,
    /// Time of the last activity of the pull. The time limit of the lock counts from here.
    pub active_at: DateTime<Utc>,
}

impl Lock {
    /// Returns the name of the holder for people: `pull request #12`, `application network (branch main)`.
    pub fn holder_name(&self) -> String {
        self.pull.subject.display_name(self.title.as_deref())
    }
}

/// Work under a lock, for a check before the lock is taken from its pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockUse {
    /// True if an apply, an import or a `state rm` makes changes under the lock.
    pub applying: bool,
    /// Commands that work under the lock or are about to: plans, and applies that have not begun to make changes.
    pub at_work: Vec<(CommandId, CommandKind)>,
    /// True if an apply under the lock made changes that the base branch does not have yet. The next plan of another
    /// pull would undo them.
    pub applied: bool,
}

impl LockUse {
    /// Returns true if the lock can be taken from its pull without harm.
    pub fn is_idle(&self) -> bool {
        !self.applying && self.at_work.is_empty() && !self.applied
    }
}

/// An entry in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Lock that the pull waits for.
    pub key: LockKey,
    /// Pull in the queue.
    pub pull: PullRef,
    /// Page of that pull for people.
    pub pull_url: String,
    /// Project for which the pull waits.
    pub project: ProjectKey,
    /// Person who requested it.
    pub asker: Person,
    /// Time of the request.
    pub since: DateTime<Utc>,
}
