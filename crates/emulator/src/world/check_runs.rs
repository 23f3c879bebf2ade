//! Implements the check runs of commits, with their annotations.

use chrono::{DateTime, Utc};

use crate::EmulatorError;
use crate::model::CommitSha;

use super::{EmulatedWorld, Repo};

/// Check run of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatedCheckRun {
    /// Id of the check run.
    pub id: u64,
    /// Commit that was checked.
    pub sha: CommitSha,
    /// Everything that its App says about it.
    pub facts: CheckRunFacts,
    /// Annotations in the order in which they were added.
    pub annotations: Vec<EmulatedAnnotation>,
    /// Time when the check run was created.
    pub created_at: DateTime<Utc>,
}

/// Everything that an App says about a check run, except for annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckRunFacts {
    /// Name of the check.
    pub name: String,
    /// Reference that only the App understands.
    pub external_id: Option<String>,
    /// Web page with details.
    pub details_url: Option<String>,
    /// Result of the check; `None` while it is in progress.
    pub conclusion: Option<String>,
    /// Heading above the summary.
    pub title: Option<String>,
    /// Text for people, as Markdown.
    pub summary: Option<String>,
}

/// Annotation of lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatedAnnotation {
    /// Path from the root of the repository.
    pub path: String,
    /// First line, counted from 1.
    pub start_line: u64,
    /// Last line, which is not before the first one.
    pub end_line: u64,
    /// Weight: `notice`, `warning` or `failure`.
    pub level: String,
    /// Heading above the message.
    pub title: Option<String>,
    /// Text for people, without Markdown.
    pub message: String,
}

impl EmulatedWorld {
    /// Adds a check run to a commit of the repository.
    pub(crate) fn add_check_run(
        &self,
        repo: &str,
        sha: CommitSha,
        facts: CheckRunFacts,
        annotations: Vec<EmulatedAnnotation>,
    ) -> Result<EmulatedCheckRun, EmulatorError> {
        let created_at = self.now();
        self.change(|world| {
            let id = world.next_id();
            let run = EmulatedCheckRun {
                id,
                sha,
                facts,
                annotations,
                created_at,
            };
            world.repo_mut(repo)?.check_runs.push(run.clone());
            Ok(run)
        })
    }

    /// Changes a check run, and adds the annotations that the change returns. `None` if it does not exist.
    pub(crate) fn change_check_run(
        &self,
        repo: &str,
        id: u64,
        change: impl FnOnce(&mut CheckRunFacts) -> Vec<EmulatedAnnotation>,
    ) -> Result<Option<EmulatedCheckRun>, EmulatorError> {
        self.change(|world| {
            let runs = &mut world.repo_mut(repo)?.check_runs;
            Ok(runs.iter_mut().find(|run| run.id == id).map(|run| {
                let annotations = change(&mut run.facts);
                run.annotations.extend(annotations);
                run.clone()
            }))
        })
    }
}

impl Repo {
    /// Returns the check runs of a commit, the oldest first.
    pub(crate) fn check_runs_of(&self, sha: &CommitSha) -> Vec<&EmulatedCheckRun> {
        self.check_runs
            .iter()
            .filter(|run| run.sha == *sha)
            .collect()
    }
}
