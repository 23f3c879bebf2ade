//! Why the world refuses an action.

use crate::model::PullNumber;

use super::git::GitError;

/// Why an action on the emulated GitHub did not happen.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The text is not `owner/name`.
    #[error(
        "`{0}` is not a repository name: expected `owner/name` of letters, digits, `.`, `-` and `_`"
    )]
    BadRepoName(String),
    /// Nobody created it.
    #[error("the emulated GitHub has no repository `{0}`; create it first")]
    NoRepo(String),
    /// It exists already.
    #[error("the emulated GitHub already has a repository `{0}`")]
    RepoExists(String),
    /// An earlier world left it there; records are kept in memory only, so it cannot be taken up again.
    #[error("{0} is left from an earlier emulated GitHub; remove it or give another directory")]
    DirectoryInUse(std::path::PathBuf),
    /// Nobody opened it.
    #[error("`{0}` has no pull request #{1}")]
    NoPull(String, PullNumber),
    /// No such comment.
    #[error("`{0}` has no comment {1}")]
    NoComment(String, u64),
    /// No such delivery.
    #[error("there was no webhook delivery {0}, or it is so long ago that it was forgotten")]
    NoDelivery(uuid::Uuid),
    /// The branch is missing.
    #[error("`{0}` has no branch `{1}`")]
    NoBranch(String, String),
    /// The branch or pull number is not well-formed.
    #[error(transparent)]
    BadRef(#[from] crate::model::InvalidRef),
    /// GitHub would not allow it; says why.
    #[error("GitHub would refuse: {0}")]
    Refused(String),
    /// Head and base conflict.
    #[error("{0}#{1} has conflicts with its base branch and cannot be merged")]
    Conflict(String, PullNumber),
    /// git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The port or the directory.
    #[error("cannot start the emulated GitHub: {0}")]
    Start(#[source] std::io::Error),
    /// The App's key.
    #[error("the public key of the emulated GitHub App is not an RSA key in PEM form: {0}")]
    AppKey(String),
}
