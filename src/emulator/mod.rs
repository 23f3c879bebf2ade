//! Emulates GitHub on loopback: repositories, pull requests, comments, statuses and users, with the protocol of
//! GitHub.
//!
//! `lockkeeper demo` needs a forge to show the whole path of a comment on any machine. The tests need one that
//! behaves like GitHub and, on request, like GitHub on a bad day. The emulator is strict: it refuses a request that
//! GitHub would refuse, with the same answer. A test compares every answer with GitHub's published OpenAPI
//! description.
//!
//! - `world`: the data and the rules; `git`: the real bare repositories below it.
//! - `github`, the wire: REST below `/api/v3` (as GitHub Enterprise Server), smart-HTTP git, Git LFS, and a page per pull
//!   request.
//! - `hooks`: signed webhooks; `faults`: bad days; `record`: the exchanges with clients.
//!
//! Some features are left out on purpose: check runs, rulesets, comments in reviews, labels, GraphQL, tags, uploads
//! of LFS, permissions below the level of a repository, redirects of git, pull requests that count as merged because
//! their commits were pushed to the base, `ping` and `status` events. An unknown route is 404 as on GitHub.

mod actions;
mod error;
mod faults;
mod git;
mod github;
mod hooks;
mod inspect;
mod options;
mod record;

mod world;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use octocrab::jsonwebtoken::DecodingKey;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::secret::Secret;

pub use error::EmulatorError;
pub use faults::Fault;
pub use git::{Change, Comparison, EmulatedGitError, FileChange};
pub use hooks::{Delivering, EmulatedDelivery, RecordedDelivery, SendAttempt};
pub use options::{AppOptions, Options};
pub use record::Exchange;
pub use world::{
    EmulatedComment, EmulatedPull, MAX_COMMENT_CHARS, NewPull, NewStatus, NewTeam, Protection,
    Review, ReviewState, Role, ShaStatus, StatusState, Statuses,
};

use faults::Faults;
use hooks::Hooks;
use record::ExchangeLog;
use world::{EmulatedWorld, WorldEvent};

/// A running emulated GitHub. Clones are handles to the same instance, which stops accepting connections when the
/// last handle is dropped.
#[derive(Clone)]
pub struct Emulator {
    shared: Arc<EmulatorState>,
    _server: Arc<AbortOnDropHandle<()>>,
}

/// State that the handle and the wire share.
struct EmulatorState {
    world: EmulatedWorld,
    hooks: Hooks,
    faults: Faults,
    log: ExchangeLog,
    accounts: Vec<(String, Secret)>,
    app_key: Option<DecodingKey>,
    hidden_reads: std::sync::atomic::AtomicU32,
    requests: AtomicU64,
    limits: github::RateLimit,
}

impl EmulatorState {
    fn new(options: &Options, base_url: &str) -> Result<Self, EmulatorError> {
        let key = |pem: &str| {
            DecodingKey::from_rsa_pem(pem.as_bytes())
                .map_err(|error| EmulatorError::AppKey(error.to_string()))
        };
        let app = options.app.as_ref();
        let (secret, target) = (
            options.webhook_secret.clone(),
            options.webhook_target.clone(),
        );
        Ok(Self {
            world: EmulatedWorld::new(options, base_url.to_owned()),
            hooks: Hooks::new(base_url, secret, app.map(|app| app.id), target),
            faults: Faults::default(),
            log: ExchangeLog::default(),
            accounts: options.accounts.clone(),
            app_key: app.map(|app| key(&app.public_key_pem)).transpose()?,
            hidden_reads: 0.into(),
            requests: 0.into(),
            limits: github::RateLimit::default(),
        })
    }

    /// Queues webhooks in the order of the world and sends them in the background, so that no client waits.
    fn publish_later(self: &Arc<Self>, events: Vec<WorldEvent>) {
        self.hooks.enqueue(events);
        let shared = Arc::clone(self);
        tokio::spawn(async move { shared.hooks.pump().await });
    }
}

impl Emulator {
    /// Starts serving on 127.0.0.1.
    pub async fn start(mut options: Options) -> Result<Self, EmulatorError> {
        // git runs inside its repository, where a relative path would have another meaning.
        options.directory =
            std::path::absolute(&options.directory).map_err(EmulatorError::Start)?;
        let listener = TcpListener::bind(("127.0.0.1", options.port))
            .await
            .map_err(EmulatorError::Start)?;
        let address = listener.local_addr().map_err(EmulatorError::Start)?;
        let shared = Arc::new(EmulatorState::new(&options, &format!("http://{address}"))?);
        let server = tokio::spawn(github::serve(listener, Arc::clone(&shared)));
        Ok(Self {
            shared,
            _server: Arc::new(AbortOnDropHandle::new(server)),
        })
    }

    /// Returns the origin of pages and git: `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> &str {
        &self.shared.world.base_url
    }

    /// Returns the root of the REST API: `http://127.0.0.1:PORT/api/v3`.
    pub fn api_url(&self) -> String {
        format!("{}/api/v3", self.base_url())
    }

    async fn publish(&self, events: Vec<WorldEvent>) {
        self.shared.hooks.enqueue(events);
        self.shared.hooks.pump().await;
    }
}
