//! What Lockkeeper needs of a forge. A folder per forge implements it; nothing above this room knows
//! a forge's field names.

mod access;
mod gates;
pub mod github;
mod listing;
mod memberships;
mod permit;
mod ssh;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::model::{
    Approval, Aside, BranchName, CommitSha, CommitStatus, ForgeRepo, HostName, MergeMethod,
    Mergeability, Pull, PullRef, RepoId,
};
use crate::secret::Secret;

pub use access::{AccessError, Held, RepoAccess};
pub use gates::{GateError, LocalGates, RateGates};
pub use listing::{Budget, ListedPage, ListedPull, OpenPulls, PageAsk};
pub use memberships::{KEPT, Memberships};
pub use permit::{Permit, WritePermit};
pub use ssh::SshLogin;

/// Which credentials of the forge to use: the GitHub App installation the event came through, if any.
pub type Installation = Option<u64>;

/// Why a forge did not do what was asked, classified where it is known best.
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// It does not exist, or we may not see it.
    #[error("{what} was not found on {host}, or the credentials of Lockkeeper may not see it")]
    NotFound {
        /// What was asked for.
        what: String,
        /// Where.
        host: HostName,
    },
    /// The credentials are wrong or lack a permission.
    #[error("{host} refused the credentials for {what}: {message}")]
    Denied {
        /// What was asked for.
        what: String,
        /// Where.
        host: HostName,
        /// The forge's own words, cut to one line.
        message: String,
    },
    /// Too many requests; the forge says when to come back.
    #[error("{host} asks to wait until {until} before {what}")]
    RateLimited {
        /// What was asked for.
        what: String,
        /// Where.
        host: HostName,
        /// From `Retry-After` or `X-RateLimit-Reset`.
        until: DateTime<Utc>,
    },
    /// The repository has another name: who asks by the old one is sent on.
    #[error("{} rejected {what}: {message}", .repo.host())]
    Moved {
        /// What was asked for.
        what: String,
        /// The name that was asked by.
        repo: Box<RepoId>,
        /// What the answer was.
        message: String,
    },
    /// A passing fault: connection, time-out, 5xx. Whether the request had an effect is not known.
    #[error("{host} could not be reached for {what}: {message}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Where.
        host: HostName,
        /// Cause, in one line and without secrets.
        message: String,
    },
    /// The forge understood and said no; trying again will not help.
    #[error("{host} rejected {what}: {message}")]
    Rejected {
        /// What was asked for.
        what: String,
        /// Where.
        host: HostName,
        /// The forge's own words, cut to one line.
        message: String,
    },
}

/// A repository as its forge knows it at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFacts {
    /// Identifier and name.
    pub at: ForgeRepo,
    /// Whether nothing in it can be changed any more.
    pub archived: bool,
    /// The branch into which pulls go unless they say otherwise.
    pub default_branch: BranchName,
}

/// Answer of a forge to a request to merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeAnswer {
    /// The pull is merged.
    Merged,
    /// A rule of the forge or of the branch forbids it at this moment; the forge's own words, in one line.
    NotNow(String),
    /// The pull has another head than the one that was named.
    HeadMoved,
}

/// User name and password for git over HTTP, good for some minutes at least; or a key with which it goes by SSH.
#[derive(Clone, Debug)]
pub struct GitCredentials {
    /// User name; `x-access-token` for GitHub App installations.
    pub username: String,
    /// Token.
    pub password: Secret,
    /// Where there is one, git goes by SSH, whatever the URL says, and the others are empty.
    pub ssh: Option<Arc<SshLogin>>,
    /// Whether the owner of the repository gave them; if not, they are the server's own.
    pub of_owner: bool,
}

impl GitCredentials {
    /// User name and password.
    pub fn new(username: String, password: Secret) -> Self {
        Self {
            username,
            password,
            ssh: None,
            of_owner: false,
        }
    }

    /// An SSH key, which only owners give.
    pub fn by_ssh(login: SshLogin) -> Self {
        Self {
            username: String::new(),
            password: Secret::new(""),
            ssh: Some(Arc::new(login)),
            of_owner: true,
        }
    }
}

/// What the server does at a forge beside what it always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Asks who is in which team.
    pub teams: bool,
    /// Merges pulls.
    pub merging: bool,
}

/// A connection to one forge.
#[async_trait]
pub trait Forge: Send + Sync + 'static {
    /// The host in the repository ids of this forge.
    fn host(&self) -> &HostName;

    /// Name of the bot's own account on the forge, without `@`; asked of the forge once and remembered.
    async fn login(&self) -> Result<String, ForgeError>;

    /// What the credentials of the server lack that it needs, as far as the forge says it: `the scope repo`. An error: they
    /// are not taken, or nobody answers.
    async fn missing(&self, uses: Uses) -> Result<Vec<String>, ForgeError>;

    /// What the forge says of a pull now.
    async fn pull(&self, at: &PullRef, via: Installation) -> Result<Pull, ForgeError>;

    /// The repository that a name leads to, also where it has another name now.
    async fn repository(&self, repo: &RepoId, via: Installation) -> Result<RepoFacts, ForgeError>;

    /// The repository with an identifier. It is asked for with the credentials for `known_as`.
    async fn repository_by_id(
        &self,
        id: u64,
        known_as: &RepoId,
        via: Installation,
    ) -> Result<RepoFacts, ForgeError>;

    /// Whether a repository that is there has a branch.
    async fn has_branch(
        &self,
        repo: &RepoId,
        via: Installation,
        branch: &BranchName,
    ) -> Result<bool, ForgeError>;

    /// A page of the open pulls of a repository, oldest first; where nothing has changed since the answer whose tag is
    /// given, the forge only says so.
    async fn open_pulls(
        &self,
        repo: &RepoId,
        via: Installation,
        page: PageAsk<'_>,
    ) -> Result<OpenPulls, ForgeError>;

    /// Who approves of a pull, by the reviews that it has now.
    async fn approval(&self, at: &PullRef, via: Installation) -> Result<Approval, ForgeError>;

    /// Whether an account may write to a repository. One that does not exist may not.
    async fn may_write(
        &self,
        repo: &RepoId,
        via: Installation,
        login: &str,
    ) -> Result<bool, ForgeError>;

    /// Whether everybody may read a repository, also if the forge does not tell.
    async fn is_public(&self, repo: &RepoId, via: Installation) -> Result<bool, ForgeError>;

    /// Whether the forge would let a pull be merged now. Statuses that are left aside do not stand in the way, as far as
    /// the forge tells of everything else that it demands.
    async fn mergeability(
        &self,
        at: &PullRef,
        via: Installation,
        aside: &Aside<'_>,
    ) -> Result<Mergeability, ForgeError>;

    /// Methods by which pulls of a repository may be merged, as far as the forge tells.
    async fn merge_methods(
        &self,
        repo: &RepoId,
        via: Installation,
    ) -> Result<Vec<MergeMethod>, ForgeError>;

    /// Merges a pull, but only at exactly this head. Not repeated inside: an [`ForgeError::Unavailable`] leaves open
    /// whether it got through, which [`Self::pull`] answers.
    async fn merge(
        &self,
        at: &PullRef,
        via: Installation,
        head: &CommitSha,
        method: MergeMethod,
        permit: &WritePermit,
    ) -> Result<MergeAnswer, ForgeError>;

    /// Posts a comment and returns its id. Not repeated inside: an [`ForgeError::Unavailable`] leaves open
    /// whether it got through, which [`Self::comment_find`] answers.
    async fn comment_post(
        &self,
        at: &PullRef,
        via: Installation,
        body: &str,
        permit: &WritePermit,
    ) -> Result<u64, ForgeError>;

    /// Deletes a comment of the bot; one that is gone already is no error.
    async fn comment_delete(
        &self,
        repo: &RepoId,
        via: Installation,
        comment: u64,
        permit: &WritePermit,
    ) -> Result<(), ForgeError>;

    /// Finds the comments of the bot on the pull, not older than `since`, whose hidden last line has `marker`; the oldest
    /// first. There are several where a request arrived after it had been given up and repeated.
    async fn comment_find(
        &self,
        at: &PullRef,
        via: Installation,
        marker: &str,
        since: DateTime<Utc>,
    ) -> Result<Vec<u64>, ForgeError>;

    /// Reacts to a comment in the forge's own words for it (`eyes`); doing it twice is harmless.
    async fn comment_react(
        &self,
        repo: &RepoId,
        via: Installation,
        comment: u64,
        content: &str,
    ) -> Result<(), ForgeError>;

    /// Puts a status on a commit; doing it twice is harmless, doing it late is not.
    async fn status_set(
        &self,
        repo: &RepoId,
        via: Installation,
        commit: &CommitSha,
        status: &CommitStatus,
        permit: &WritePermit,
    ) -> Result<(), ForgeError>;

    /// Whether an account belongs to a team, or to one below it, of the organisation that owns the repository. A team
    /// that does not exist, or that our credentials may not see, has no members. An invitation that was not accepted
    /// yet does not count.
    async fn team_has(
        &self,
        repo: &RepoId,
        via: Installation,
        team: &str,
        login: &str,
    ) -> Result<bool, ForgeError>;

    /// Slugs of the teams of the organisation that owns the repository, as far as our credentials may see them; none if
    /// a person owns it. More than `most` of them are [`ForgeError::Rejected`].
    async fn team_list(
        &self,
        repo: &RepoId,
        via: Installation,
        most: usize,
    ) -> Result<Vec<String>, ForgeError>;

    /// URL for `git fetch`, without credentials.
    fn clone_url(&self, repo: &RepoId) -> String;

    /// The ref under which the forge offers the head of a pull: `refs/pull/12/head`.
    fn pull_head_ref(&self, at: &PullRef) -> String;

    /// Fresh credentials for [`Self::clone_url`].
    async fn git_credentials(
        &self,
        repo: &RepoId,
        via: Installation,
    ) -> Result<GitCredentials, ForgeError>;

    /// Fresh credentials for code of other repositories on the forge that code of this one refers to; `None`: the ones that
    /// there are, are for this repository alone. Where the forge can limit them, they can only read.
    async fn module_credentials(
        &self,
        repo: &RepoId,
        via: Installation,
    ) -> Result<Option<GitCredentials>, ForgeError>;
}
