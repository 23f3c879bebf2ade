//! What can go wrong with git.

use std::fmt::Display;

use super::classify::{self, Class};
use crate::config::size::shown;
use crate::process::{HoldError, Output, ProcessError};

/// Why git did not do what was asked. `doing` completes "cannot …"; `message` is git's own words, at most three lines,
/// without credentials and control characters.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GitError {
    /// The repository, ref or commit does not exist, or the credentials may not see it.
    #[error("cannot {doing}: {message}")]
    NotFound {
        /// What was tried.
        doing: String,
        /// Git's words.
        message: String,
    },
    /// The forge refused the credentials, or wants some.
    #[error("cannot {doing}, the credentials were refused: {message}")]
    AuthFailed {
        /// What was tried.
        doing: String,
        /// Git's words.
        message: String,
    },
    /// A passing fault of network or forge; worth another try later.
    #[error("cannot {doing}, the server could not be reached or broke off: {message}")]
    Unreachable {
        /// What was tried.
        doing: String,
        /// Git's words.
        message: String,
    },
    /// The mirror is damaged. [`super::Mirror::fetch`] repairs that by itself; another caller fetches again.
    #[error("cannot {doing}, the local copy is damaged: {message}")]
    Corrupt {
        /// What was tried.
        doing: String,
        /// Git's words.
        message: String,
    },
    /// Git refuses what was pushed: an object does not pass `fsck`. Only another push changes that.
    #[error("cannot {doing}, git refuses what was pushed (`git fsck`): {message}")]
    Fsck {
        /// What was tried.
        doing: String,
        /// Git's words, which name the object.
        message: String,
    },
    /// The mirror or the checkout is not as Lockkeeper wrote it. The next fetch replaces the mirror.
    #[error(
        "cannot {doing}: the copy of the repository on the server was changed by something other than Lockkeeper: {message}"
    )]
    Altered {
        /// What was tried.
        doing: String,
        /// What differs.
        message: String,
    },
    /// It took too long.
    #[error("cannot {doing}: {message}")]
    TimedOut {
        /// What was tried.
        doing: String,
        /// How long we waited.
        message: String,
    },
    /// A run started earlier still uses the checkout.
    #[error("cannot {doing}: {message}")]
    Busy {
        /// What was tried.
        doing: String,
        /// Since when.
        message: String,
    },
    /// A file is larger than the caller wants to read.
    #[error("`{path}` is {} long; the longest file that is read here has {}", shown(*.size), shown(*.limit))]
    TooLarge {
        /// Path in the repository.
        path: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Anything else.
    #[error("cannot {doing}: {message}")]
    Other {
        /// What was tried.
        doing: String,
        /// Git's words, or ours.
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

    /// The words without what was tried.
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

    /// Classifies a call that failed by what it wrote to standard error.
    pub(super) fn from_output(
        doing: impl Into<String>,
        output: &Output,
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
