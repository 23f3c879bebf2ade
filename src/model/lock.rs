//! The lock of a project's path and workspace.

use std::fmt;

use chrono::{DateTime, Utc};

use super::ids::{CommandId, LockId};
use super::lock_mode::LockScope;
use super::outcome::CommandKind;
use super::path::RepoPath;
use super::project::{ProjectKey, ProjectName, WorkspaceName};
use super::pull::PullRef;
use super::repo::RepoId;

/// What a lock protects. The separate columns are the key; the text form is for people.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct LockKey {
    /// Repository, with its host.
    pub repo: RepoId,
    /// Path.
    pub dir: RepoPath,
    /// Workspace.
    pub workspace: WorkspaceName,
    /// The project, where each project has a lock of its own (`repo_locks.scope: project`); else the lock covers
    /// everything in the directory and workspace.
    pub project: Option<ProjectName>,
}

impl LockKey {
    /// The lock of everything in the project's directory and workspace.
    pub fn of(repo: &RepoId, project: &ProjectKey) -> Self {
        Self {
            repo: repo.clone(),
            dir: project.dir.clone(),
            workspace: project.workspace.clone(),
            project: None,
        }
    }

    /// The lock of the project alone. One without a name has none of its own and takes that of the directory.
    pub fn of_project(repo: &RepoId, project: &ProjectKey) -> Self {
        Self {
            project: project.name.clone(),
            ..Self::of(repo, project)
        }
    }

    /// The lock of the project in this scope.
    pub fn in_scope(scope: LockScope, repo: &RepoId, project: &ProjectKey) -> Self {
        match scope {
            LockScope::Workspace => Self::of(repo, project),
            LockScope::Project => Self::of_project(repo, project),
        }
    }

    /// Whether a project needs this lock.
    pub fn covers(&self, project: &ProjectKey) -> bool {
        self.dir == project.dir
            && self.workspace == project.workspace
            && (self.project.is_none() || self.project == project.name)
    }
}

impl fmt::Display for LockKey {
    /// The classic text form: `owner/repo/path/workspace`, with `/project` behind it if it is the lock of one project.
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

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Identity of this holding.
    pub id: LockId,
    /// What it protects.
    pub key: LockKey,
    /// Project for which it was taken.
    pub project: ProjectKey,
    /// The pull that holds it.
    pub pull: PullRef,
    /// What an application that holds it is called; a pull goes by its number.
    pub title: Option<String>,
    /// Page of that pull for people.
    pub pull_url: String,
    /// Who caused it to be taken.
    pub holder: String,
    /// Why it was taken, one clause: "planned by `lockkeeper plan`".
    pub reason: String,
    /// Since when.
    pub taken_at: DateTime<Utc>,
    /// When the pull was last active; its time limit counts from here.
    pub active_at: DateTime<Utc>,
}

impl Lock {
    /// For people: `pull request #12`, `application network (branch main)`.
    pub fn called(&self) -> String {
        self.pull.number.called(self.title.as_deref())
    }
}

/// What goes on under a lock, for those who would take it from its pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockStanding {
    /// An apply, an import or a `state rm` is changing things under it.
    pub applying: bool,
    /// Commands that work under it or are about to: plans, and applies that have not begun to change anything.
    pub at_work: Vec<(CommandId, CommandKind)>,
    /// Something was applied under it, which the base branch does not have yet: the next plan of another pull would
    /// undo it.
    pub applied: bool,
}

impl LockStanding {
    /// Whether it can be taken from its pull without harm.
    pub fn is_idle(&self) -> bool {
        !self.applying && self.at_work.is_empty() && !self.applied
    }
}

/// A place in the line for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The lock.
    pub key: LockKey,
    /// The pull that waits.
    pub pull: PullRef,
    /// Page of that pull for people.
    pub pull_url: String,
    /// Project for which it waits.
    pub project: ProjectKey,
    /// Who asked.
    pub asker: String,
    /// Since when.
    pub since: DateTime<Utc>,
}
