//! Defines the errors of actions that the world refuses.

use crate::model::PullNumber;

use super::git::EmulatedGitError;

/// Reason that an action on the emulated forge failed.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The text is not `owner/name`.
    #[error(
        "`{0}` is not a repository name: expected `owner/name` of letters, digits, `.`, `-` and `_`"
    )]
    BadRepoName(String),
    /// No repository with this name exists.
    #[error("the emulated forge has no repository `{0}`; create it first")]
    NoRepo(String),
    /// A repository with this name exists already.
    #[error("the emulated forge already has a repository `{0}`")]
    RepoExists(String),
    /// The directory is left from an earlier world. Records are kept in memory only, so that world cannot be
    /// continued.
    #[error("{0} was left by an earlier emulator; remove it or name another directory")]
    DirectoryInUse(std::path::PathBuf),
    /// The repository has no pull request with this number.
    #[error("`{0}` has no pull request #{1}")]
    NoPull(String, PullNumber),
    /// The repository has no such comment.
    #[error("`{0}` has no comment {1}")]
    NoComment(String, u64),
    /// The delivery does not exist or was dropped.
    #[error("there is no webhook delivery {0}, or it was dropped because it is too old")]
    NoDelivery(uuid::Uuid),
    /// The repository has no such branch.
    #[error("`{0}` has no branch `{1}`")]
    NoBranch(String, String),
    /// The branch or pull request number is not well-formed.
    #[error(transparent)]
    BadRef(#[from] crate::model::InvalidRef),
    /// A forge would not allow the action, for this reason.
    #[error("a forge would refuse: {0}")]
    Refused(String),
    /// Head and base of the pull request conflict.
    #[error("{0}#{1} has conflicts with its base branch and cannot be merged")]
    Conflict(String, PullNumber),
    /// A git command failed.
    #[error(transparent)]
    Git(#[from] EmulatedGitError),
    /// The port or the directory cannot be used.
    #[error("cannot start the emulated forge: {0}")]
    Start(#[source] std::io::Error),
    /// The public key of the App is invalid.
    #[error("the public key of the emulated GitHub App is not an RSA key in PEM form: {0}")]
    AppKey(String),
}
