//! Holds the data of the emulated forge and enforces its rules, which are the same for tests and clients.
//!
//! The world knows no wire: its records, refusals and events ([`WorldEvent`]) are in the words of no forge. A wire
//! turns them into the JSON, the texts and the webhooks of its forge, and provides the few values that the world
//! needs from it ([`Conventions`]).
//!
//! There are two locks, always taken in this order:
//! - `gate` (asynchronous) is held by code that moves refs, from the first look at a ref until the records agree with
//!   it.
//! - `state` (never held across an await) guards the records. Code that changes records creates the events under the
//!   same lock and shares the changed records with them. A later change copies records that are shared, so an event
//!   shows the world as it was at that moment.

mod check_runs;
mod comments;
mod events;
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
use crate::model::PullNumber;

use super::git::CommitSignature;
use super::options::Options;

pub use check_runs::{CheckRunFacts, EmulatedAnnotation, EmulatedCheckRun};
pub use comments::EmulatedComment;
pub use protection::Protection;
pub use pulls::{EmulatedPull, NewPull};
pub use reviews::{Review, ReviewState};
pub use roles::Role;
pub use statuses::{NewStatus, ShaStatus, StatusState, Statuses};
pub use teams::NewTeam;

pub(super) use comments::CommentError;
pub(super) use events::{BranchPush, CommentSnapshot, PullSnapshot, WorldChange, WorldEvent};
pub(super) use lifecycle::MergeError;
pub(super) use names::FullName;
pub(super) use protection::MergeRefusal;
pub(super) use pulls::BaseChange;
pub(super) use repos::{Push, RepoHandle};
pub(super) use state::{Reaction, Repo, WorldState};
pub(super) use statuses::StatusError;
pub(super) use teams::{MembershipState, Team};
pub(super) use users::{User, UserKind, user_id};

/// Values that the world needs and that differ between forges. The wire provides them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conventions {
    /// Directory of the refs of pull requests, such as `refs/pull`. Clients may read but not push these refs.
    pub(super) pull_refs: &'static str,
    /// Mail address in commits, of the account with a login.
    pub(super) email: fn(&str) -> String,
    /// Maximum length of a comment, in characters.
    pub(super) max_comment_chars: usize,
    /// Maximum number of statuses with the same context on a commit.
    pub(super) max_statuses_of_context: usize,
}

/// Account that acts, and if it acts through an app.
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

/// Repositories, pull requests, comments and statuses of the emulated forge.
pub(super) struct EmulatedWorld {
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    conventions: Conventions,
    developer: String,
    state: Mutex<WorldState>,
    gate: tokio::sync::Mutex<()>,
    version: watch::Sender<u64>,
}

impl EmulatedWorld {
    pub(super) fn new(options: &Options, conventions: Conventions) -> Self {
        Self {
            directory: options.directory.join("git"),
            clock: Arc::clone(&options.clock),
            conventions,
            developer: options.developer.clone(),
            state: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
            version: watch::Sender::new(0),
        }
    }

    /// Returns the current time in whole seconds, as forges store it.
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
            email: (self.conventions.email)(login),
            at: self.now(),
        }
    }

    /// Returns the name of a ref of a pull request: its `head`, or its trial `merge`.
    fn pull_ref(&self, number: PullNumber, which: &str) -> String {
        format!("{}/{number}/{which}", self.conventions.pull_refs)
    }
}
