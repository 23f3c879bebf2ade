//! What an emulated GitHub is started with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use url::Url;

use crate::clock::{Clock, SystemClock};
use crate::secret::Secret;

/// How to start an emulated GitHub.
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
    /// The git repositories are made below `directory`, which must hold none yet; everything else is in memory and ends
    /// with the emulator. `webhook_secret` signs the webhooks.
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

    /// Where webhooks go; can also be set later.
    #[must_use]
    pub fn with_webhook_target(mut self, target: Url) -> Self {
        self.webhook_target = Some(target);
        self
    }

    /// Who makes the commits and opens what nobody else is named for; `alice` unless told.
    #[must_use]
    pub fn with_developer(mut self, login: &str) -> Self {
        login.clone_into(&mut self.developer);
        self
    }

    /// A fixed port on 127.0.0.1; a free one unless told.
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
    /// `public_key_pem` (RSA) is what the App's JSON web tokens are verified with; the App acts as `{slug}[bot]`.
    pub fn new(id: u64, slug: &str, installation: u64, public_key_pem: &str) -> Self {
        Self {
            id,
            slug: slug.to_owned(),
            installation,
            public_key_pem: public_key_pem.to_owned(),
            clock: Arc::new(SystemClock),
        }
    }

    /// The clock for the life of JSON web tokens and installation tokens. It is the machine's unless told, even in
    /// a world with a manual clock: the libraries of clients (octocrab among them) read the machine's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Login of the App's own account.
    pub fn bot_login(&self) -> String {
        format!("{}[bot]", self.slug)
    }
}
