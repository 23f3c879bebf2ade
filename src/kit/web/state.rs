//! What every page and answer is made from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::auth::WebAuth;
use super::csrf::CsrfKey;
use super::errors::Failure;
use super::guesses::Guesses;
use super::templates::Templates;
use crate::claims::Credentials;
use crate::clock::{Clock, Ids};
use crate::config::access::{Action, Asker, Identity};
use crate::config::server::{Periods, TrustedProxies, WebHosts};
use crate::context::{FileState, LiveAccounts};
use crate::handlers::authz::{AuthzError, Decision, Outside, Resource};
use crate::locks::{Gave, Giving};
use crate::model::{Actor, BranchName, CommandId, ForgeHosts, RepoId, Rights};
use crate::queue::Nudge;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::workflow::OutputHub;

/// Browsers that may watch runs at the same time on this replica; each costs a connection and a query a second (P12).
const VIEWERS: usize = 256;

/// Takes locks from pulls for somebody who may, and tells them.
#[async_trait]
pub trait GiveLocks: Send + Sync + 'static {
    /// Does what is wanted, or says why not.
    async fn give(&self, giving: &Giving) -> Result<Gave, sqlx::Error>;
}

/// What came of the wish to cancel a command.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelling {
    /// It had not begun and never will.
    Dropped,
    /// It is asked to stop.
    Interrupted,
    /// It is an apply under way, and nobody said that it may be cut off.
    ApplyRunning,
    /// It has ended.
    Over,
}

/// Cancels a command for somebody at the dashboard or a script, and tells the pull.
#[async_trait]
pub trait Cancel: Send + Sync + 'static {
    /// An apply under way is only interrupted with `force`.
    async fn cancel(
        &self,
        id: CommandId,
        who: &Actor,
        force: bool,
    ) -> Result<Cancelling, sqlx::Error>;
}

/// Decides who may do what. Whatever changes something asks first.
#[async_trait]
pub trait Authority: Send + Sync + 'static {
    /// Decides, and puts a denial on record.
    async fn check(
        &self,
        who: &Asker,
        action: Action,
        on: &Resource<'_>,
    ) -> Result<Decision, AuthzError>;

    /// Whether something is within what a user is limited to. Nothing is put on record.
    async fn within(
        &self,
        user: &str,
        on: &Resource<'_>,
    ) -> Result<Result<(), Outside>, AuthzError>;

    /// The default branch of a repository, as its forge says it now; what cannot be found out is an error.
    async fn default_branch(&self, repo: &RepoId) -> Result<BranchName, AuthzError>;

    /// Whether a page should offer it to somebody.
    fn offers(&self, who: &Identity, action: Action) -> bool;
}

/// What [`Web`] is built from.
pub struct Setup {
    /// The database.
    pub store: Store,
    /// The present, for "3 minutes ago".
    pub clock: Arc<dyn Clock>,
    /// Where the references of requests come from.
    pub ids: Arc<dyn Ids>,
    /// News of what runs print.
    pub hub: OutputHub,
    /// Where people reach the server; its path is put in front of every link.
    pub public_url: Url,
    /// Who may use the pages and the API; `None` lets everybody look at facts.
    pub auth: Option<WebAuth>,
    /// Names and addresses by which pages and API are asked for.
    pub hosts: WebHosts,
    /// Who of these is limited to owners.
    pub accounts: Arc<LiveAccounts>,
    /// Who is believed about where a request comes from.
    pub trusted_proxies: TrustedProxies,
    /// The word that starts commands at pulls, for hints.
    pub executable: String,
    /// Takes locks from pulls.
    pub giving: Arc<dyn GiveLocks>,
    /// Cancels commands.
    pub cancel: Arc<dyn Cancel>,
    /// What owners gave for their repositories.
    pub credentials: Credentials,
    /// Decides who may do what.
    pub authority: Arc<dyn Authority>,
    /// Cancelled when the server begins to stop; ends the streams.
    pub shutting_down: CancellationToken,
    /// Shown to those who may use the pages.
    pub version: String,
    /// Numbers for monitors.
    pub metrics: Metrics,
    /// How long runs are kept; `None`: for ever.
    pub keep_runs: Option<Duration>,
    /// How often repairs look.
    pub periods: Periods,
    /// Hosts that are forges.
    pub forges: ForgeHosts,
    /// Wakes the repair of mirrors.
    pub mirror_nudge: Nudge,
    /// How it stands about the file of `--repo-config`; `None`: there is none.
    pub repo_config: Arc<dyn Fn() -> Option<FileState> + Send + Sync>,
    /// What of the server's configuration is accepted and has no effect, a sentence each.
    pub without_effect: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// The dashboard and the API.
pub struct Web {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) hub: OutputHub,
    pub(crate) public_url: Url,
    pub(crate) auth: Option<WebAuth>,
    pub(crate) hosts: WebHosts,
    pub(crate) guesses: Guesses,
    pub(crate) accounts: Arc<LiveAccounts>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) executable: String,
    pub(crate) giving: Arc<dyn GiveLocks>,
    pub(crate) cancel: Arc<dyn Cancel>,
    pub(crate) credentials: Credentials,
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) shutting_down: CancellationToken,
    pub(crate) version: String,
    pub(crate) metrics: Metrics,
    /// When the database was last read for them.
    pub(crate) metrics_read_at: Mutex<Option<DateTime<Utc>>>,
    pub(crate) keep_runs: Option<Duration>,
    pub(crate) periods: Periods,
    pub(crate) forges: ForgeHosts,
    pub(crate) mirror_nudge: Nudge,
    pub(crate) repo_config: Arc<dyn Fn() -> Option<FileState> + Send + Sync>,
    pub(crate) without_effect: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    pub(crate) csrf: CsrfKey,
    pub(crate) viewers: Arc<Semaphore>,
    pub(crate) templates: Templates,
}

impl Web {
    /// Reads the key of the forms from the database, where all replicas share it, and makes it when there is none.
    pub async fn new(setup: Setup) -> Result<Self, sqlx::Error> {
        let csrf = CsrfKey::load(&setup.store).await?;
        let templates = Templates::new(base_path(&setup.public_url), &setup.version);
        Ok(Self {
            store: setup.store,
            clock: setup.clock,
            ids: setup.ids,
            hub: setup.hub,
            public_url: setup.public_url,
            auth: setup.auth,
            hosts: setup.hosts,
            guesses: Guesses::default(),
            accounts: setup.accounts,
            trusted_proxies: setup.trusted_proxies,
            executable: setup.executable,
            giving: setup.giving,
            cancel: setup.cancel,
            credentials: setup.credentials,
            authority: setup.authority,
            shutting_down: setup.shutting_down,
            version: setup.version,
            metrics: setup.metrics,
            metrics_read_at: Mutex::default(),
            keep_runs: setup.keep_runs,
            periods: setup.periods,
            forges: setup.forges,
            mirror_nudge: setup.mirror_nudge,
            repo_config: setup.repo_config,
            without_effect: setup.without_effect,
            csrf,
            viewers: Arc::new(Semaphore::new(VIEWERS)),
            templates,
        })
    }

    /// Goes on only if somebody may do something.
    pub(crate) async fn permit(
        &self,
        who: &Asker,
        action: Action,
        on: &Resource<'_>,
    ) -> Result<(), Failure> {
        match self.authority.check(who, action, on).await? {
            Decision::Granted => Ok(()),
            Decision::Denied(denial) => Err(Failure::not_allowed(&denial)),
        }
    }

    /// What somebody may decide by registering something.
    pub(crate) async fn rights(&self, who: &Asker) -> Result<Rights, Failure> {
        let whole = self.authority.within(who.name(), &Resource::Server).await?;
        Ok(if whole.is_ok() {
            Rights::Whole
        } else {
            Rights::Limited
        })
    }

    /// A path of ours as a link: with the path of the public address in front.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", base_path(&self.public_url))
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web")
            .field("public_url", &self.public_url.as_str())
            .finish_non_exhaustive()
    }
}

/// `/lockkeeper` of `https://host/lockkeeper/`; empty for the root.
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
