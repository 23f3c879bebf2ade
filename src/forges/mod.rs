//! Defines the interface to forges. Each forge has a folder that implements it, and no other module knows the field
//! names of a forge.

mod access;
mod gates;
pub mod github;
mod listing;
mod memberships;
mod permit;
mod registry;
mod ssh;
mod webhook;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::model::{
    AnnotationSet, Approval, BranchName, CommentId, CommitSha, CommitStatus, ForgeRepo, HostName,
    IgnoredStatuses, MergeMethod, Mergeability, Pull, PullRef, RepoId, StatusTarget,
};
use crate::secret::Secret;

pub use access::{AccessError, RepoAccess, StoredAccess};
pub use gates::{GateError, LocalGates, RateGates};
pub use listing::{ListedPage, ListedPull, OpenPulls, PageQuery, RequestBudget};
pub use memberships::{KEPT, Memberships};
pub use permit::{Permit, WritePermit};
pub use registry::Forges;
pub use ssh::SshLogin;
pub use webhook::{
    DeliveryHeader, ForgeKind, ParsedDelivery, SenderCheck, VerifiedSender, WebhookError,
    WebhookSource, Webhooks,
};

/// Error of a forge operation. The implementation of the forge classifies it, because it knows the causes best.
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// The object does not exist, or Lockkeeper may not see it.
    #[error("{what} was not found on {host}, or the credentials of Lockkeeper may not see it")]
    NotFound {
        /// Description of the request.
        what: String,
        host: HostName,
    },
    /// The server has no connection to the host. The repository was served under other settings.
    #[error("{host} is not a forge of this server, which is configured for {configured}")]
    NotConfigured {
        host: HostName,
        /// Hosts of the configured forges.
        configured: String,
    },
    /// The credentials are wrong or lack a permission.
    #[error("{host} refused the credentials for {what}: {message}")]
    Denied {
        /// Description of the request.
        what: String,
        host: HostName,
        /// Message of the forge, cut to one line.
        message: String,
    },
    /// The forge received too many requests and gave a time for the next one.
    #[error("{host} asks to wait until {until} before {what}")]
    RateLimited {
        /// Description of the request.
        what: String,
        host: HostName,
        /// Time from `Retry-After` or `X-RateLimit-Reset`.
        until: DateTime<Utc>,
    },
    /// The repository has another name: the forge redirects requests with the old one.
    #[error("{} rejected {what}: {message}", .repo.host())]
    Moved {
        /// Description of the request.
        what: String,
        /// Name that the request used.
        repo: Box<RepoId>,
        /// Message about the answer.
        message: String,
    },
    /// The forge failed temporarily: connection, time-out, 5xx. The request may or may not have had an effect.
    #[error("{host} could not be reached for {what}: {message}")]
    Unavailable {
        /// Description of the request.
        what: String,
        host: HostName,
        /// Cause, in one line and without secrets.
        message: String,
    },
    /// The forge understood and rejected the request; a retry will not help.
    #[error("{host} rejected {what}: {message}")]
    Rejected {
        /// Description of the request.
        what: String,
        host: HostName,
        /// Message of the forge, cut to one line.
        message: String,
    },
}

/// Current facts about a repository at its forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFacts {
    /// Identifier and name of the repository.
    pub at: ForgeRepo,
    /// True if the repository is archived, so that nothing in it can change.
    pub archived: bool,
    /// Default target branch of pulls.
    pub default_branch: BranchName,
}

/// A comment of the bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostedComment {
    pub id: CommentId,
    /// Time by the clock of the forge, in its precision. GitHub names whole seconds.
    pub created_at: DateTime<Utc>,
}

/// Answer of a forge to a merge request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeAnswer {
    /// The pull is merged.
    Merged,
    /// A rule of the forge or of the branch forbids the merge at this moment. The text is the message of the forge,
    /// in one line.
    NotNow(String),
    /// The pull has another head than the requested one.
    HeadMoved,
}

/// Answer of a forge to a request to show annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotateAnswer {
    /// The annotations are shown, and no others under their name.
    Shown,
    /// No annotations have to be shown or replaced.
    NothingToShow,
    /// The credentials for the repository may not show annotations. Nothing was sent.
    NotPossible,
}

/// Place where git finds the head of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadSource {
    /// A ref in the repository of the pull, such as `refs/pull/12/head`.
    Ref(String),
    /// A branch of the repository of the pull or of a fork.
    Branch { repo: RepoId, branch: BranchName },
}

impl HeadSource {
    /// Returns the ref that a fetch from a repository brings the head with. A branch of a fork has none there. Its
    /// commit can only be fetched by its id.
    pub fn ref_in(&self, repo: &RepoId) -> Option<String> {
        match self {
            Self::Ref(name) => Some(name.clone()),
            Self::Branch { repo: own, branch } => {
                (own == repo).then(|| format!("refs/heads/{branch}"))
            }
        }
    }
}

/// Credentials for git: user name and password over HTTP, valid for some minutes at least, or a key for SSH.
#[derive(Clone, Debug)]
pub struct GitCredentials {
    /// User name; `x-access-token` for GitHub App installations.
    pub username: String,
    pub password: Secret,
    /// SSH key. If present, git uses SSH regardless of the URL, and user name and password are empty.
    pub ssh: Option<Arc<SshLogin>>,
    /// True if the owner of the repository gave the credentials; otherwise they are the server's own.
    pub of_owner: bool,
}

impl GitCredentials {
    /// Creates credentials with a user name and password.
    pub fn new(username: String, password: Secret) -> Self {
        Self {
            username,
            password,
            ssh: None,
            of_owner: false,
        }
    }

    /// Creates credentials with an SSH key, which only owners give.
    pub fn by_ssh(login: SshLogin) -> Self {
        Self {
            username: String::new(),
            password: Secret::new(""),
            ssh: Some(Arc::new(login)),
            of_owner: true,
        }
    }
}

/// Limits of a forge that other modules need to know. The adapter keeps all other limits itself: it cuts the
/// description of a status, and reports the merge methods of a repository ([`Forge::merge_methods`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Maximum size of a comment in bytes. Longer replies are split.
    pub comment_bytes: usize,
}

/// Optional features of the server that use the forge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgeFeatures {
    /// True if the server asks for team members.
    pub teams: bool,
    /// True if the server merges pulls.
    pub merging: bool,
}

/// Connection to one forge.
#[async_trait]
pub trait Forge: Send + Sync + 'static {
    /// Returns the host in the repository ids of this forge.
    fn host(&self) -> &HostName;

    /// Returns the limits of this forge.
    fn capabilities(&self) -> Capabilities;

    /// Returns the name of the bot's own account on the forge, without `@`. The forge is asked once, and the answer
    /// is cached.
    async fn login(&self) -> Result<String, ForgeError>;

    /// Returns the rights that the server needs and its credentials lack, as far as the forge reports them:
    /// `the scope repo`. An error means that the forge refuses the credentials or does not answer.
    async fn missing(&self, uses: ForgeFeatures) -> Result<Vec<String>, ForgeError>;

    /// Looks up again how to reach a repository before the next request, because the credentials for it did not work.
    fn renew_access(&self, repo: &RepoId);

    /// Returns the current state of a pull at the forge.
    async fn pull(&self, at: &PullRef) -> Result<Pull, ForgeError>;

    /// Returns the repository with this name, even if its name has changed since.
    async fn repository(&self, repo: &RepoId) -> Result<RepoFacts, ForgeError>;

    /// Returns the repository with an identifier. The request uses the credentials for `known_as`.
    async fn repository_by_id(&self, id: u64, known_as: &RepoId) -> Result<RepoFacts, ForgeError>;

    /// Returns the newest commit of a branch of an existing repository, or `None` if there is no such branch.
    async fn branch_tip(
        &self,
        repo: &RepoId,
        branch: &BranchName,
    ) -> Result<Option<CommitSha>, ForgeError>;

    /// Returns a page of the open pulls of a repository, oldest first. If nothing has changed since the answer with
    /// the given tag, the forge only reports that.
    async fn open_pulls(&self, repo: &RepoId, page: PageQuery<'_>)
    -> Result<OpenPulls, ForgeError>;

    /// Returns the approval of a pull from its current reviews. Only those count that are newer than the last change of
    /// the base branch. If the forge does not tell when that was, there is no answer.
    async fn approval(&self, at: &PullRef) -> Result<Approval, ForgeError>;

    /// Returns true if an account may write to a repository. An account that does not exist may not.
    async fn may_write(&self, repo: &RepoId, login: &str) -> Result<bool, ForgeError>;

    /// Returns true if everybody may read a repository, or if the forge does not tell.
    async fn is_public(&self, repo: &RepoId) -> Result<bool, ForgeError>;

    /// Returns whether the forge would let a pull be merged now. Statuses in `ignored` do not count as obstacles,
    /// provided that the forge reports all its other conditions.
    async fn mergeability(
        &self,
        at: &PullRef,
        ignored: &IgnoredStatuses<'_>,
    ) -> Result<Mergeability, ForgeError>;

    /// Returns the merge methods of a repository, as far as the forge reports them.
    async fn merge_methods(&self, repo: &RepoId) -> Result<Vec<MergeMethod>, ForgeError>;

    /// Merges a pull, but only at exactly this head. Never retries: after an [`ForgeError::Unavailable`] it is unknown
    /// whether the request had an effect. Use [`Self::pull`] to find out.
    async fn merge(
        &self,
        at: &PullRef,
        head: &CommitSha,
        method: MergeMethod,
        permit: &WritePermit,
    ) -> Result<MergeAnswer, ForgeError>;

    /// Posts a comment and returns it. Never retries: after an [`ForgeError::Unavailable`] it is unknown whether
    /// the request had an effect. Use [`Self::comment_find`] to find out.
    async fn comment_post(
        &self,
        at: &PullRef,
        body: &str,
        permit: &WritePermit,
    ) -> Result<PostedComment, ForgeError>;

    /// Deletes a comment of the bot; a missing comment is no error.
    async fn comment_delete(
        &self,
        at: &PullRef,
        comment: &CommentId,
        permit: &WritePermit,
    ) -> Result<(), ForgeError>;

    /// Finds the comments of the bot on the pull, not older than `since`, whose hidden last line has `marker`; the
    /// oldest first. Several exist if a request arrived after it had been given up and retried.
    async fn comment_find(
        &self,
        at: &PullRef,
        marker: &str,
        since: DateTime<Utc>,
    ) -> Result<Vec<PostedComment>, ForgeError>;

    /// Reacts to a comment with a reaction in the forge's own words (`eyes`). A repetition is harmless.
    async fn comment_react(
        &self,
        at: &PullRef,
        comment: &CommentId,
        content: &str,
    ) -> Result<(), ForgeError>;

    /// Sets a status on a commit. A repetition is harmless, a late request is not.
    async fn status_set(
        &self,
        on: &StatusTarget,
        status: &CommitStatus,
        permit: &WritePermit,
    ) -> Result<(), ForgeError>;

    /// Shows annotations beside the lines of a commit. They replace all that were shown under the same name. A
    /// repetition is harmless.
    async fn annotate(
        &self,
        on: &StatusTarget,
        annotations: &AnnotationSet,
        permit: &WritePermit,
    ) -> Result<AnnotateAnswer, ForgeError>;

    /// Returns true if an account belongs to a team, or to one below it, of the organisation that owns the
    /// repository. A team that does not exist, or that the credentials may not see, has no members. An invitation
    /// that was not accepted yet does not count.
    async fn team_has(&self, repo: &RepoId, team: &str, login: &str) -> Result<bool, ForgeError>;

    /// Returns the slugs of the teams of the organisation that owns the repository, as far as the credentials may see
    /// them. A repository of a person has none. More than `most` of them are [`ForgeError::Rejected`].
    async fn team_list(&self, repo: &RepoId, most: usize) -> Result<Vec<String>, ForgeError>;

    /// Returns the URL for `git fetch`, without credentials.
    fn clone_url(&self, repo: &RepoId) -> String;

    /// Returns where git finds the head of a pull.
    async fn head_source(&self, at: &PullRef) -> Result<HeadSource, ForgeError>;

    /// Returns fresh credentials for [`Self::clone_url`].
    async fn git_credentials(&self, repo: &RepoId) -> Result<GitCredentials, ForgeError>;

    /// Returns fresh credentials for code of other repositories on the forge that this repository's code refers to.
    /// Returns `None` if the only credentials are for this repository alone. If the forge can limit the credentials,
    /// they only allow reads.
    async fn module_credentials(&self, repo: &RepoId)
    -> Result<Option<GitCredentials>, ForgeError>;
}
