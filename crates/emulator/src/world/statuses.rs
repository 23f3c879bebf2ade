//! Implements the statuses of commits.

use chrono::{DateTime, Utc};

use crate::EmulatorError;
use crate::model::CommitSha;

use super::{Author, EmulatedWorld, Repo};

/// State of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusState {
    /// The check itself failed.
    Error,
    /// The check ended with a negative result.
    Failure,
    /// The check is not finished.
    Pending,
    /// The check ended with a positive result.
    Success,
}

impl StatusState {
    /// Returns the state as a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Failure => "failure",
            Self::Pending => "pending",
            Self::Success => "success",
        }
    }
}

/// Status of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShaStatus {
    /// Id of the status.
    pub id: u64,
    /// Commit that the status belongs to.
    pub sha: CommitSha,
    /// Name of the status.
    pub context: String,
    pub state: StatusState,
    /// Description in one line for people.
    pub description: Option<String>,
    /// Web page with details.
    pub target_url: Option<String>,
    /// Login of the account that set the status.
    pub creator: String,
    /// Time when the status was set.
    pub created_at: DateTime<Utc>,
}

/// Statuses of one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses {
    /// Newest status of each context, in the order in which the contexts first appeared.
    pub latest: Vec<ShaStatus>,
    /// All statuses that were ever set, the oldest first.
    pub history: Vec<ShaStatus>,
}

impl Statuses {
    /// Returns the newest status of a context.
    pub fn of(&self, context: &str) -> Option<&ShaStatus> {
        self.latest.iter().find(|status| status.context == context)
    }
}

/// Data of a status to set on a commit.
#[derive(Clone, Debug)]
pub struct NewStatus {
    pub state: StatusState,
    /// Name of the status.
    pub context: String,
    /// Description in one line for people.
    pub description: Option<String>,
    /// Web page with details.
    pub target_url: Option<String>,
}

/// Reason that a status is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    /// The repository does not contain the commit.
    #[error("there is no commit {0}")]
    NoCommit(String),
    /// The commit has as many statuses of this context as the forge allows.
    #[error("the commit has too many statuses of this context")]
    TooMany,
    /// The repository does not exist, or git failed.
    #[error(transparent)]
    Other(#[from] EmulatorError),
}

impl EmulatedWorld {
    /// Returns the commit with this id, if the repository contains it.
    pub(crate) async fn commit(&self, repo: &str, sha: &str) -> Result<CommitSha, StatusError> {
        let git = self.repo_handle(repo)?.git;
        let unknown = || StatusError::NoCommit(sha.to_owned());
        let commit = CommitSha::new(sha).map_err(|_| unknown())?;
        // Commits are never removed, so a commit that the records mention exists.
        if !self.state().repo(repo)?.has_on_record(&commit) {
            git.resolve(commit.as_str())
                .await
                .map_err(EmulatorError::from)?
                .ok_or_else(unknown)?;
        }
        Ok(commit)
    }

    /// Sets a status on a commit of the repository.
    pub(crate) fn set_status(
        &self,
        repo: &str,
        commit: CommitSha,
        by: &Author,
        new: NewStatus,
    ) -> Result<ShaStatus, StatusError> {
        let now = self.now();
        let max = self.conventions.max_statuses_of_context;
        self.change(|world| {
            let NewStatus {
                state,
                context,
                description,
                target_url,
            } = new;
            let id = world.next_id();
            let repo = world.repo_mut(repo)?;
            let same = |status: &&ShaStatus| {
                status.sha == commit && status.context.eq_ignore_ascii_case(&context)
            };
            if repo.statuses.iter().filter(same).count() >= max {
                return Err(StatusError::TooMany);
            }
            let status = ShaStatus {
                id,
                sha: commit,
                context,
                state,
                description,
                target_url,
                creator: by.login.clone(),
                created_at: now,
            };
            repo.statuses.push(status.clone());
            Ok(status)
        })
    }
}

impl Repo {
    fn has_on_record(&self, commit: &CommitSha) -> bool {
        self.statuses.iter().any(|status| status.sha == *commit)
            || self.open_pulls().any(|pull| pull.head == *commit)
    }

    /// Returns the statuses of a commit.
    pub(crate) fn statuses_of(&self, sha: &CommitSha) -> Statuses {
        let history: Vec<ShaStatus> = self
            .statuses
            .iter()
            .filter(|status| status.sha == *sha)
            .cloned()
            .collect();
        let mut latest: Vec<ShaStatus> = Vec::new();
        for status in &history {
            match latest
                .iter_mut()
                .find(|old| old.context.eq_ignore_ascii_case(&status.context))
            {
                Some(old) => *old = status.clone(),
                None => latest.push(status.clone()),
            }
        }
        Statuses { latest, history }
    }
}
