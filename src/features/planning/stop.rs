//! Ends the work on a command, or on one of its projects, before everything is done.

use crate::features::replies::Reply;
use crate::queue::JobError;

/// Reason why work ends early. Functions that can refuse return it as their error, so that `?` leaves all callers.
pub(super) enum Stop<R = Reply> {
    /// The people at the pull request get this reply, or the project gets this report.
    Reply(R),
    /// An internal error. The queue retries the command or gives up.
    Job(JobError),
}

impl<R, E: Into<JobError>> From<E> for Stop<R> {
    fn from(error: E) -> Self {
        Self::Job(error.into())
    }
}

impl<R> Stop<R> {
    /// Returns the reply, for callers for which a refusal is one of the results.
    pub fn into_reply(self) -> Result<R, JobError> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::Job(error) => Err(error),
        }
    }
}
