//! Runs the jobs of all features.

use std::sync::Arc;

use anyhow::anyhow;
use async_trait::async_trait;

use super::renames;
use crate::context::ServerCtx;
use crate::forges::ForgeError;
use crate::kit::jobs::JobKind;
use crate::model::RepoId;
use crate::queue::{JobError, Runner, RunningJob};
use crate::telemetry::Metric;

/// Runs every kind of job, each with a context that writes only under its lease.
pub struct Jobs(Arc<ServerCtx>);

#[async_trait]
impl Runner for Jobs {
    async fn run(&self, attempt: &RunningJob) -> Result<(), JobError> {
        let ran = match self.call(attempt).await {
            Err(error) => Err(self.after_move(attempt, error).await),
            Ok(()) => Ok(()),
        };
        if let Err(JobError::Retry { .. }) = &ran {
            self.count(Metric::JobErrors, attempt);
        }
        ran
    }

    async fn report_failure(&self, attempt: &RunningJob, error: &JobError) -> anyhow::Result<()> {
        self.count(Metric::JobsGivenUp, attempt);
        match kind(&attempt.lease.kind) {
            Some(kind) => (kind.report_failure)(&self.0.under(attempt), attempt, error).await,
            None => Ok(()),
        }
    }

    fn max_attempts(&self, name: &str) -> i64 {
        kind(name).map_or(1, |kind| kind.max_attempts)
    }

    fn max_cut_offs(&self, name: &str) -> i64 {
        kind(name).map_or(0, |kind| kind.max_cut_offs)
    }
}

impl Jobs {
    /// Creates the runner of jobs over a context.
    pub fn new(ctx: Arc<ServerCtx>) -> Self {
        Self(ctx)
    }

    async fn call(&self, attempt: &RunningJob) -> Result<(), JobError> {
        let name = &attempt.lease.kind;
        let kind = kind(name).ok_or_else(|| {
            JobError::Fail(anyhow!(
                "this version does not know jobs of the kind `{name}`"
            ))
        })?;
        (kind.run)(&self.0.under(attempt), attempt).await
    }

    /// Moves the data of a repository after a job found that it has another name. The job moves as well, and is
    /// retried.
    async fn after_move(&self, attempt: &RunningJob, error: JobError) -> JobError {
        let Some(repo) = moved(&error) else {
            return error;
        };
        match renames::follow_redirect(&self.0.under(attempt), &repo, Some(attempt.lease.id)).await
        {
            Ok(()) => {
                let (JobError::Retry { error, .. } | JobError::Fail(error)) = error;
                // The job has the new name now. If it has not, endless retries would not help.
                let at = (attempt.lease.tries() <= TRIES_AFTER_A_MOVE).then(|| self.0.clock.now());
                JobError::Retry { at, error }
            }
            Err(error) => error,
        }
    }

    /// Counts a failure by the kind of its job. The queue may hold jobs of a newer version.
    fn count(&self, metric: Metric, attempt: &RunningJob) {
        let name = kind(&attempt.lease.kind).map_or("unknown", |kind| kind.name);
        self.0.metrics.count(metric, &[name]);
    }
}

/// Finds the kind with this name among the kinds of all features.
fn kind(name: &str) -> Option<&'static JobKind> {
    super::job_kinds().find(|kind| kind.name == name)
}

/// Maximum number of immediate retries of a job that was moved to another repository.
const TRIES_AFTER_A_MOVE: i64 = 3;

/// Returns the old name of a renamed repository, if the rename caused the error.
fn moved(error: &JobError) -> Option<RepoId> {
    let (JobError::Retry { error, .. } | JobError::Fail(error)) = error;
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(ForgeError::Moved { repo, .. }) => Some((**repo).clone()),
        _ => None,
    })
}
