//! Shared state of all pages and API routes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use lockkeeper_policy::sets::PolicySet;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::auth::WebAuth;
use super::csrf::CsrfKey;
use super::errors::WebError;
use super::sign_in_limiter::SignInLimiter;
use super::templates::Templates;
use crate::authz::{AuthzError, Decision, OutsideScope, Resource};
use crate::claims::CredentialStore;
use crate::clock::{Clock, Ids};
use crate::config::access::{Action, Identity, NetworkRequester};
use crate::config::server::{Periods, TrustedProxies, WebHosts};
use crate::context::{FileState, LiveAccounts};
use crate::locks::{HandOver, HandOverOutcome};
use crate::model::{AccountId, Actor, BranchName, CommandId, ForgeHosts, RepoId, Rights};
use crate::queue::WakeUp;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::workflow::OutputHub;

/// Maximum number of browsers that watch runs on this replica. Each takes a connection and some queries per second (P12).
const VIEWERS: usize = 256;

/// Hands locks over on behalf of a permitted user, and notifies the pull requests.
#[async_trait]
pub trait HandOverLocks: Send + Sync + 'static {
    /// Carries out the request, or returns why not.
    async fn hand_over(&self, request: &HandOver) -> Result<HandOverOutcome, sqlx::Error>;
}

/// Result of a request to cancel a command.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelling {
    /// Cancelled before it began.
    Dropped,
    /// Asked to stop while it was running.
    Interrupted,
    /// Not cancelled, because an apply runs and the request was not forced.
    ApplyRunning,
    /// Not cancelled, because the command has ended.
    Over,
}

/// Cancels a command on behalf of a dashboard user or a script, and notifies the pull request.
#[async_trait]
pub trait Cancel: Send + Sync + 'static {
    /// Cancels a command. A running apply is only interrupted with `force`.
    async fn cancel(
        &self,
        id: CommandId,
        who: &Actor,
        force: bool,
    ) -> Result<Cancelling, sqlx::Error>;
}

/// Decides about permissions. Every change asks it first.
#[async_trait]
pub trait Authority: Send + Sync + 'static {
    /// Decides, and stores a denial in the audit log.
    async fn check(
        &self,
        who: &NetworkRequester,
        action: Action,
        on: &Resource<'_>,
    ) -> Result<Decision, AuthzError>;

    /// Checks whether a resource is within the limits of a user. Nothing is stored.
    async fn within(
        &self,
        user: &str,
        on: &Resource<'_>,
    ) -> Result<Result<(), OutsideScope>, AuthzError>;

    /// Returns the current default branch of a repository. If the forge cannot say it, that is an error.
    async fn default_branch(&self, repo: &RepoId) -> Result<BranchName, AuthzError>;

    /// Returns true if a page should offer the action to this user.
    fn offers(&self, who: &Identity, action: Action) -> bool;
}

/// Mark of the present password of an account. It changes with the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordMark(pub u64);

/// Outcome of checking the HTTP password of an account.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordVerdict {
    /// The password is right.
    Right(PasswordMark),
    /// The password is right, but the account is not active.
    Inactive,
    /// The password is wrong, or there is no such account.
    Wrong,
}

/// Checks the HTTP passwords of accounts.
#[async_trait]
pub trait AccountPasswords: Send + Sync + 'static {
    /// Checks the password of an account. Takes as long for a wrong password if there is no account.
    async fn check(
        &self,
        account: Option<AccountId>,
        password: &str,
    ) -> anyhow::Result<PasswordVerdict>;

    /// Checks the password without a slow hash. `None` if one is necessary.
    async fn recall(
        &self,
        account: AccountId,
        password: &str,
    ) -> anyhow::Result<Option<PasswordVerdict>>;

    /// Returns the mark of the present password. `None` if the account cannot sign in.
    async fn mark(&self, account: AccountId) -> anyhow::Result<Option<PasswordMark>>;
}

/// The dashboard and the API.
pub struct WebState {
    pub store: Store,
    /// Clock for texts such as "3 minutes ago".
    pub clock: Arc<dyn Clock>,
    /// Source of the references of requests.
    pub ids: Arc<dyn Ids>,
    /// Notifier for the output of runs.
    pub hub: OutputHub,
    /// Public address of the server. Its path is put in front of every link.
    pub public_url: Url,
    /// User of the pages and the API. `None` lets everybody look at facts.
    pub auth: Option<WebAuth>,
    /// Host names and addresses of the pages and the API.
    pub hosts: WebHosts,
    /// Accounts that are limited to owners.
    pub accounts: Arc<LiveAccounts>,
    /// Checks the passwords of those that sign in with an account in Git.
    pub passwords: Arc<dyn AccountPasswords>,
    /// Proxies that are believed about the address of a client.
    pub trusted_proxies: TrustedProxies,
    /// Word that starts commands in comments, for hints.
    pub executable: String,
    /// Hands locks over on request.
    pub hand_over: Arc<dyn HandOverLocks>,
    /// Cancels commands on request.
    pub cancel: Arc<dyn Cancel>,
    /// Credentials that owners stored for their repositories.
    pub credentials: CredentialStore,
    /// Decides about permissions of users.
    pub authority: Arc<dyn Authority>,
    /// Token that is cancelled when the server begins to stop. It ends the streams.
    pub shutting_down: CancellationToken,
    /// Version, shown to users of the pages.
    pub version: String,
    /// Metrics that monitors read.
    pub metrics: Metrics,
    /// Retention time of runs. `None`: forever.
    pub keep_runs: Option<Duration>,
    /// Periods of the reconcilers.
    pub periods: Periods,
    /// Hosts that are forges.
    pub forges: ForgeHosts,
    /// Wakes the reconciler of mirrors.
    pub mirror_wake_up: WakeUp,
    /// State of the `--repo-config` file. `None`: there is no such file.
    pub repo_config: Arc<dyn Fn() -> Option<FileState> + Send + Sync>,
    /// Accepted settings of the server that have no effect, a sentence for each.
    pub without_effect: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Policy sets that are configured now.
    pub policy_sets: Arc<dyn Fn() -> Vec<PolicySet> + Send + Sync>,
    /// Key of the forms, templates and counters.
    pub parts: WebParts,
}

/// Key of the forms, templates and counters of [`WebState`].
pub struct WebParts {
    pub(crate) csrf: CsrfKey,
    pub(crate) sign_in_limiter: SignInLimiter,
    pub(crate) templates: Templates,
    pub(crate) viewers: Arc<Semaphore>,
    /// Time when the metrics were last read from the database.
    pub(crate) metrics_read_at: Mutex<Option<DateTime<Utc>>>,
}

impl WebParts {
    /// Reads the key of the forms from the database, where all replicas share it, and creates it if there is none. Every
    /// page shows the version, and links to the registry of modules if the server has one.
    pub async fn load(
        store: &Store,
        public_url: &Url,
        version: &str,
        has_registry: bool,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self {
            csrf: CsrfKey::load(store).await?,
            sign_in_limiter: SignInLimiter::default(),
            templates: Templates::new(base_path(public_url), version, has_registry),
            viewers: Arc::new(Semaphore::new(VIEWERS)),
            metrics_read_at: Mutex::default(),
        })
    }
}

impl WebState {
    /// Fails if the user may not perform the action.
    pub(crate) async fn permit(
        &self,
        who: &NetworkRequester,
        action: Action,
        on: &Resource<'_>,
    ) -> Result<(), WebError> {
        match self.authority.check(who, action, on).await? {
            Decision::Granted => Ok(()),
            Decision::Denied(denial) => Err(WebError::not_allowed(&denial)),
        }
    }

    /// Returns the rights of a user who registers something.
    pub(crate) async fn rights(&self, who: &NetworkRequester) -> Result<Rights, WebError> {
        let whole = self.authority.within(who.name(), &Resource::Server).await?;
        Ok(if whole.is_ok() {
            Rights::Whole
        } else {
            Rights::Limited
        })
    }

    /// Turns a path of ours into a link: with the path of the public address in front.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", base_path(&self.public_url))
    }
}

impl fmt::Debug for WebState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web")
            .field("public_url", &self.public_url.as_str())
            .finish_non_exhaustive()
    }
}

/// Returns `/lockkeeper` of `https://host/lockkeeper/`, and an empty text for the root.
fn base_path(public_url: &Url) -> &str {
    public_url.path().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_public_address_is_the_start_of_every_link() {
        for (url, base) in [
            ("https://h", ""),
            ("https://h/", ""),
            ("https://h/a/b/", "/a/b"),
            ("http://h:1/a", "/a"),
        ] {
            assert_eq!(base_path(&url.parse().unwrap()), base, "{url}");
        }
    }
}
