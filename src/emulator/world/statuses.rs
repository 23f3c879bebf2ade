//! Implements commit statuses, with GitHub's rules.

use chrono::{DateTime, Utc};

use crate::emulator::EmulatorError;
use crate::model::CommitSha;

use super::{Author, EmulatedWorld, Repo};

/// State of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// Returns the state as GitHub spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Failure => "failure",
            Self::Pending => "pending",
            Self::Success => "success",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Error, Self::Failure, Self::Pending, Self::Success]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// Status of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShaStatus {
    /// Id of the status on GitHub.
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

/// Status to set, as in the request.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct NewStatus {
    /// One of the four states, as text.
    pub state: String,
    /// Name of the status, `default` if absent.
    pub context: Option<String>,
    /// Description in one line for people.
    pub description: Option<String>,
    /// Web page with details.
    pub target_url: Option<String>,
}

/// Reason that GitHub refuses a status.
#[derive(Debug, thiserror::Error)]
pub(in crate::emulator) enum StatusError {
    /// A field breaks a rule.
    #[error("{message}")]
    Invalid {
        field: &'static str,
        message: String,
    },
    /// The repository does not contain the commit.
    #[error("No commit found for SHA: {0}")]
    NoCommit(String),
    /// The commit has 1000 statuses of this context already.
    #[error("This SHA and context has reached the maximum number of statuses.")]
    TooMany,
    /// The repository does not exist, or git failed.
    #[error(transparent)]
    Other(#[from] EmulatorError),
}

const MAX_DESCRIPTION_CHARS: usize = 140;
const MAX_CONTEXT_CHARS: usize = 255;
const MAX_PER_CONTEXT: usize = 1000;

impl NewStatus {
    fn check(&self) -> Result<StatusState, StatusError> {
        let invalid = |field, message: &str| {
            Err(StatusError::Invalid {
                field,
                message: message.to_owned(),
            })
        };
        let longer = |text: &Option<String>, max| {
            text.as_ref().is_some_and(|text| text.chars().count() > max)
        };
        let Some(state) = StatusState::parse(&self.state) else {
            return invalid("state", "state is not included in the list");
        };
        if longer(&self.description, MAX_DESCRIPTION_CHARS) {
            return invalid(
                "description",
                "description is too long (maximum is 140 characters)",
            );
        }
        if longer(&self.context, MAX_CONTEXT_CHARS) {
            return invalid("context", "context is too long (maximum is 255 characters)");
        }
        match &self.target_url {
            Some(url)
                if !url.is_empty()
                    && !url.starts_with("http://")
                    && !url.starts_with("https://") =>
            {
                invalid("target_url", "target_url must use http(s) scheme")
            }
            _ => Ok(state),
        }
    }
}

impl EmulatedWorld {
    /// Sets a status on a commit.
    pub(in crate::emulator) async fn set_status(
        &self,
        repo: &str,
        sha: &str,
        by: &Author,
        new: NewStatus,
    ) -> Result<ShaStatus, StatusError> {
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
        let state = new.check()?;
        let now = self.now();
        self.change(|world| {
            let context = new.context.unwrap_or_else(|| "default".to_owned());
            let id = world.next_id();
            let repo = world.repo_mut(repo)?;
            let same = |status: &&ShaStatus| {
                status.sha == commit && status.context.eq_ignore_ascii_case(&context)
            };
            if repo.statuses.iter().filter(same).count() >= MAX_PER_CONTEXT {
                return Err(StatusError::TooMany);
            }
            let (description, target_url) = (new.description, new.target_url);
            let creator = by.login.clone();
            let status = ShaStatus {
                id,
                sha: commit,
                context,
                state,
                description,
                target_url,
                creator,
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
    pub(in crate::emulator) fn statuses_of(&self, sha: &CommitSha) -> Statuses {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn new(state: &str, description: &str, url: &str) -> NewStatus {
        let (description, target_url) = (Some(description.to_owned()), Some(url.to_owned()));
        NewStatus {
            state: state.to_owned(),
            context: None,
            description,
            target_url,
        }
    }

    #[test]
    fn a_status_is_checked_by_githubs_rules() {
        assert!(matches!(
            new("success", &"ü".repeat(140), "https://x").check(),
            Ok(StatusState::Success)
        ));
        for (status, wrong) in [
            (new("done", "", ""), "state"),
            (new("success", &"x".repeat(141), ""), "description"),
            (new("success", "", "ftp://x"), "target_url"),
        ] {
            assert!(
                matches!(status.check(), Err(StatusError::Invalid { field, .. }) if field == wrong),
                "{wrong}"
            );
        }
    }
}
