//! Errors of git operations.

use std::fmt::Display;

use super::classify::{self, Class};
use crate::config::size::shown;
use crate::process::{CallOutput, HoldError, ProcessError};

/// Error of a git operation. `doing` completes "cannot …". `message` is the text of git, at most three lines, without
/// credentials and control characters.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GitError {
    /// The repository, ref or commit does not exist, or the credentials may not see it.
    #[error("cannot {doing}: {message}")]
    NotFound {
        doing: String,
        /// Message of git, at most three lines.
        message: String,
    },
    /// The forge refused the credentials, or requires some.
    #[error("cannot {doing}: the forge refused the credentials: {message}")]
    AuthFailed {
        doing: String,
        /// Message of git, at most three lines.
        message: String,
    },
    /// The network or the forge failed temporarily; a retry later may succeed.
    #[error("cannot {doing}: the forge is unreachable or closed the connection: {message}")]
    Unreachable {
        doing: String,
        /// Message of git, at most three lines.
        message: String,
    },
    /// The mirror is damaged. [`super::Mirror::fetch`] fixes that automatically; other callers fetch again.
    #[error("cannot {doing}: the mirror is damaged: {message}")]
    Corrupt {
        doing: String,
        /// Message of git, at most three lines.
        message: String,
    },
    /// Git refuses what was pushed: an object does not pass `fsck`. Only another push changes that.
    #[error("cannot {doing}: git refuses the pushed content (`git fsck`): {message}")]
    Fsck {
        doing: String,
        /// Message of git, which names the object.
        message: String,
    },
    /// The mirror or the checkout is not as Lockkeeper wrote it. The next fetch replaces the mirror.
    #[error(
        "cannot {doing}: another program changed the files of the repository on the server: {message}"
    )]
    Altered {
        doing: String,
        /// Description of the difference.
        message: String,
    },
    /// The operation exceeded its time limit.
    #[error("cannot {doing}: {message}")]
    TimedOut {
        doing: String,
        /// Description of the time limit.
        message: String,
    },
    /// A run started earlier still uses the checkout.
    #[error("cannot {doing}: {message}")]
    Busy {
        doing: String,
        /// Description of the wait for the run.
        message: String,
    },
    /// A file exceeds the size limit of the caller.
    #[error("`{path}` is too large: it has {}, the limit is {}", shown(*.size), shown(*.limit))]
    TooLarge {
        /// Path in the repository.
        path: String,
        /// Size of the file in bytes.
        size: u64,
        /// Size limit in bytes.
        limit: u64,
    },
    /// Failure of any other kind.
    #[error("cannot {doing}: {message}")]
    Other {
        doing: String,
        /// Message of git or of Lockkeeper.
        message: String,
    },
}

impl GitError {
    pub(super) fn other(doing: impl Into<String>, message: impl Display) -> Self {
        Self::Other {
            doing: doing.into(),
            message: message.to_string(),
        }
    }

    /// Returns the message without the attempted operation.
    pub(super) fn into_message(self) -> String {
        match self {
            Self::TooLarge { .. } => self.to_string(),
            Self::NotFound { message, .. }
            | Self::AuthFailed { message, .. }
            | Self::Unreachable { message, .. }
            | Self::Corrupt { message, .. }
            | Self::Fsck { message, .. }
            | Self::Altered { message, .. }
            | Self::TimedOut { message, .. }
            | Self::Busy { message, .. }
            | Self::Other { message, .. } => message,
        }
    }

    pub(super) fn from_process(doing: impl Into<String>, error: ProcessError) -> Self {
        let doing = doing.into();
        if matches!(error, ProcessError::TimedOut { .. }) {
            return Self::TimedOut {
                doing,
                message: error.to_string(),
            };
        }
        Self::Other {
            doing,
            message: format!("{:#}", anyhow::Error::new(error)),
        }
    }

    pub(super) fn from_hold(doing: impl Into<String>, error: HoldError) -> Self {
        let doing = doing.into();
        match error {
            HoldError::Busy { .. } => Self::Busy {
                doing,
                message: error.to_string(),
            },
            HoldError::Io { .. } => Self::Other {
                doing,
                message: format!("{:#}", anyhow::Error::new(error)),
            },
        }
    }

    pub(super) fn from_io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Other {
            doing,
            message: error.to_string(),
        }
    }

    /// Classifies a failed call by its standard error output.
    pub(super) fn from_output(
        doing: impl Into<String>,
        output: &CallOutput,
        secret: Option<&str>,
    ) -> Self {
        let stderr = output.stderr.text();
        let doing = doing.into();
        let message = classify::message(&stderr, output.code, secret);
        match classify::classify(&stderr) {
            Class::AuthFailed => Self::AuthFailed { doing, message },
            Class::NotFound => Self::NotFound { doing, message },
            Class::Unreachable => Self::Unreachable { doing, message },
            Class::Fsck => Self::Fsck { doing, message },
            Class::Corrupt => Self::Corrupt { doing, message },
            Class::Other => Self::Other { doing, message },
        }
    }
}
