//! Defines the start options of an emulated GitHub.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use url::Url;

use crate::clock::{Clock, SystemClock};
use crate::secret::Secret;

/// Start options of an emulated GitHub.
#[derive(Clone)]
pub struct Options {
    pub(super) directory: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) webhook_secret: Secret,
    pub(super) webhook_target: Option<Url>,
    pub(super) accounts: Vec<(String, Secret)>,
    pub(super) app: Option<AppOptions>,
    pub(super) developer: String,
    pub(super) port: u16,
}

impl Options {
    /// Creates options. The git repositories are created below `directory`, which must not contain any yet. All other
    /// data is in memory and ends with the emulator. `webhook_secret` signs the webhooks.
    pub fn new(directory: &Path, clock: Arc<dyn Clock>, webhook_secret: Secret) -> Self {
        Self {
            directory: directory.to_owned(),
            clock,
            webhook_secret,
            webhook_target: None,
            accounts: Vec::new(),
            app: None,
            developer: "alice".to_owned(),
            port: 0,
        }
    }

    /// Accepts a personal access token, over REST and git, as that user.
    #[must_use]
    pub fn with_token(mut self, login: &str, token: Secret) -> Self {
        self.accounts.push((login.to_owned(), token));
        self
    }

    /// Installs a GitHub App on everything; webhooks then carry its installation.
    #[must_use]
    pub fn with_app(mut self, app: AppOptions) -> Self {
        self.app = Some(app);
        self
    }

    /// Sets the target of webhooks, which can also be set later.
    #[must_use]
    pub fn with_webhook_target(mut self, target: Url) -> Self {
        self.webhook_target = Some(target);
        self
    }

    /// Sets the default author of commits and pull requests; `alice` by default.
    #[must_use]
    pub fn with_developer(mut self, login: &str) -> Self {
        login.clone_into(&mut self.developer);
        self
    }

    /// Sets a fixed port on 127.0.0.1; by default a free port is used.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
}

/// A GitHub App that is installed on every repository.
#[derive(Clone)]
pub struct AppOptions {
    pub(super) id: u64,
    pub(super) slug: String,
    pub(super) installation: u64,
    pub(super) public_key_pem: String,
    pub(super) clock: Arc<dyn Clock>,
}

impl AppOptions {
    /// Creates options. `public_key_pem` (RSA) verifies the App's JSON web tokens; the App acts as `{slug}[bot]`.
    pub fn new(id: u64, slug: &str, installation: u64, public_key_pem: &str) -> Self {
        Self {
            id,
            slug: slug.to_owned(),
            installation,
            public_key_pem: public_key_pem.to_owned(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Sets the clock for the life of JSON web tokens and installation tokens. The default is the clock of the
    /// machine, even in a world with a manual clock, because client libraries (octocrab among them) read that one.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the login of the App's own account.
    pub fn bot_login(&self) -> String {
        format!("{}[bot]", self.slug)
    }
}
