//! The lock of a project's path and workspace, and the server-wide apply lock.

use std::fmt;

use chrono::{DateTime, Utc};

use super::ids::LockId;
use super::path::RepoPath;
use super::project::{ProjectKey, WorkspaceName};
use super::pull::PullRef;
use super::repo::RepoId;

/// What a lock protects. The separate columns are the key; the text form is for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct LockKey {
    /// Repository, with its host.
    pub repo: RepoId,
    /// Path.
    pub dir: RepoPath,
    /// Workspace.
    pub workspace: WorkspaceName,
}

impl LockKey {
    /// The lock that a project needs.
    pub fn of(repo: &RepoId, project: &ProjectKey) -> Self {
        Self { repo: repo.clone(), dir: project.dir.clone(), workspace: project.workspace.clone() }
    }
}

impl fmt::Display for LockKey {
    /// The classic text form: `owner/repo/path/workspace`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.repo.full_name(), self.dir, self.workspace)
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
    /// Page of that pull for people.
    pub pull_url: String,
    /// Who caused it to be taken.
    pub holder: String,
    /// Why it was taken, one clause: "planned by `lockkeeper plan`".
    pub reason: String,
    /// Since when.
    pub taken_at: DateTime<Utc>,
}

/// The server-wide switch that stops every apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyLock {
    /// Who switched it on.
    pub holder: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub taken_at: DateTime<Utc>,
}
