//! Holds the data of the emulated GitHub and enforces its rules. The rules do not depend on the wire, so they are the
//! same for tests and clients.
//!
//! There are two locks, always taken in this order:
//! - `gate` (asynchronous) is held by code that moves refs, from the first look at a ref until the records agree with
//!   it.
//! - `state` (never held across an await) guards the records. Code that changes records creates the events under the
//!   same lock, so an event shows the world as it was at that moment.

mod comments;
mod lfs;
mod lifecycle;
mod names;
mod protection;
mod pulls;
mod pushes;
mod renames;
mod repos;
mod reviews;
mod roles;
mod state;
mod statuses;
mod teams;
mod users;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use chrono::{DateTime, SubsecRound, Utc};
use tokio::sync::watch;

use crate::clock::Clock;

use super::git::CommitSignature;
use super::options::{AppOptions, Options};

pub use comments::{EmulatedComment, MAX_COMMENT_CHARS};
pub use protection::Protection;
pub use pulls::{EmulatedPull, NewPull};
pub use reviews::{Review, ReviewState};
pub use roles::Role;
pub use statuses::{NewStatus, ShaStatus, StatusState, Statuses};
pub use teams::NewTeam;

pub(super) use comments::CommentError;
pub(super) use lifecycle::{MergeError, MergePayload};
pub(super) use names::FullName;
pub(super) use repos::{Push, RepoHandle};
pub(super) use state::{InstallationToken, Reaction, Repo, WorldState};
pub(super) use statuses::StatusError;
pub(super) use teams::{MembershipState, Team};
pub(super) use users::{User, UserKind};

/// A change of the world that webhooks report.
#[derive(Clone, Debug)]
pub(super) struct WorldEvent {
    pub(super) name: &'static str,
    /// Id of the repository, for the header with the owner of the hook.
    pub(super) repo: u64,
    pub(super) body: serde_json::Value,
}

/// Account that acts, and if it acts through the GitHub App.
#[derive(Clone, Debug)]
pub(super) struct Author {
    pub(super) login: String,
    pub(super) via_app: bool,
}

impl Author {
    pub(super) fn person(login: &str) -> Self {
        Self {
            login: login.to_owned(),
            via_app: false,
        }
    }
}

/// Repositories, pull requests, comments and statuses of the emulated GitHub.
pub(super) struct EmulatedWorld {
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    pub(super) base_url: String,
    pub(super) app: Option<AppOptions>,
    pub(super) developer: String,
    state: Mutex<WorldState>,
    gate: tokio::sync::Mutex<()>,
    version: watch::Sender<u64>,
}

impl EmulatedWorld {
    pub(super) fn new(options: &Options, base_url: String) -> Self {
        Self {
            directory: options.directory.join("git"),
            clock: Arc::clone(&options.clock),
            base_url,
            app: options.app.clone(),
            developer: options.developer.clone(),
            state: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
            version: watch::Sender::new(0),
        }
    }

    /// Returns the current time in whole seconds, as GitHub stores it.
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.clock.now().trunc_subsecs(0)
    }

    /// Locks the records for reading.
    pub(super) fn state(&self) -> MutexGuard<'_, WorldState> {
        self.state
            .lock()
            .expect("no code panics while it holds the records")
    }

    /// Subscribes to a counter that grows with every change of the records.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Changes the records and notifies all subscribers.
    fn change<T>(&self, change: impl FnOnce(&mut WorldState) -> T) -> T {
        let result = change(&mut self.state());
        self.version.send_modify(|version| *version += 1);
        result
    }

    fn signature(&self, login: &str) -> CommitSignature {
        CommitSignature {
            login: login.to_owned(),
            email: User::new(login).email(),
            at: self.now(),
        }
    }
}
