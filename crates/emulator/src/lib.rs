//! Emulates a forge on loopback: repositories, pull requests, comments, statuses and users, with the protocol of
//! GitHub.
//!
//! `lockkeeper demo` needs a forge to show the whole path of a comment on any machine. The tests need one that
//! behaves like GitHub and, on request, like GitHub on a bad day. The emulator is strict: it refuses a request that
//! GitHub would refuse, with the same answer. A test compares every answer with GitHub's published OpenAPI
//! description.
//!
//! - `world`: the data, the rules and the events, in the words of no forge; `git`: the real bare repositories below it.
//! - `github`: the wire of GitHub. It answers REST, git and Git LFS requests, and builds the webhooks of events.
//! - `hooks`: the queue of webhooks; `faults`: bad days; `record`: the exchanges with clients; `lines`: connections
//!   that can be cut. They are the same for every wire.
//!
//! `world` and `git` import no wire, and only a wire knows the words and JSON of its forge. The wire of another forge
//! is a folder beside `github`. It provides:
//! - its `Conventions` for the world, such as the maximum length of a comment,
//! - a function that serves requests: it reads the records, calls the world's actions, and passes their events to
//!   `publish_later`,
//! - a function that builds the signed webhook for a `WorldEvent`,
//! - a struct for state that only its forge has, such as tokens and rate limits.
//!
//! `EmulatorState` holds this struct. Tests and the demo keep using [`Emulator`], because its actions change the
//! world.
//!
//! Some features are left out on purpose: check suites, rulesets, comments in reviews, labels, GraphQL, events of pull
//! requests other than a change of the base branch, webhooks of tags, uploads of LFS, permissions below the level of a
//! repository, redirects of git, pull requests that count as merged because their commits were pushed to the base,
//! `ping` and `status` events. An unknown route is 404 as on GitHub.

mod actions;
mod error;
mod faults;
mod git;
mod github;
mod hooks;
mod inspect;
mod lines;
mod options;
mod record;
mod world;

use std::sync::Arc;

use lockkeeper_model::{clock, model, secret};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub use error::EmulatorError;
pub use faults::Fault;
pub use git::{Change, Comparison, EmulatedGitError, FileChange, FileChangeKind};
pub use hooks::{Delivering, EmulatedDelivery, RecordedDelivery, SendAttempt};
pub use options::{AppOptions, Options};
pub use record::Exchange;
pub use world::{
    CheckRunFacts, EmulatedAnnotation, EmulatedCheckRun, EmulatedComment, EmulatedPull, NewPull,
    NewStatus, NewTeam, Protection, Review, ReviewState, Role, ShaStatus, StatusState, Statuses,
};

use faults::Faults;
use github::GitHubWire;
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
    github: GitHubWire,
}

impl EmulatorState {
    fn new(options: &Options, base_url: String) -> Result<Self, EmulatorError> {
        Ok(Self {
            world: EmulatedWorld::new(options, github::CONVENTIONS),
            hooks: Hooks::new(options.webhook_target.clone()),
            faults: Faults::default(),
            log: ExchangeLog::default(),
            github: GitHubWire::new(options, base_url)?,
        })
    }

    /// Queues the webhooks of events in the order of the world.
    fn enqueue(&self, events: &[WorldEvent]) {
        for event in events {
            self.hooks.enqueue(|id| self.github.webhook(id, event));
        }
    }

    /// Queues webhooks and sends them in the background, so that no client waits.
    fn publish_later(self: &Arc<Self>, events: &[WorldEvent]) {
        self.enqueue(events);
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
        let shared = Arc::new(EmulatorState::new(&options, format!("http://{address}"))?);
        let server = tokio::spawn(github::serve(listener, Arc::clone(&shared)));
        Ok(Self {
            shared,
            _server: Arc::new(AbortOnDropHandle::new(server)),
        })
    }

    /// Returns the origin of pages and git: `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> &str {
        &self.shared.github.base_url
    }

    /// Returns the root of the REST API: `http://127.0.0.1:PORT/api/v3`.
    pub fn api_url(&self) -> String {
        self.shared.github.api("")
    }

    async fn publish(&self, events: &[WorldEvent]) {
        self.shared.enqueue(events);
        self.shared.hooks.pump().await;
    }
}
