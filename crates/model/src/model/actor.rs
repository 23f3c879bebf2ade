//! Actors: the person or program behind a change, and the way of its request.

use super::person::AccountId;
use super::text::text_enum;

text_enum! {
    /// Way by which a request arrived.
    pub enum Origin {
        /// A comment on a pull.
        Comment = "comment",
        /// A change of the pull: opened, updated, closed.
        Pull = "pull",
        /// A page of the dashboard.
        Page = "page",
        /// A request to the JSON API.
        Api = "api",
        /// A push to the repository of accounts.
        Git = "git",
        /// The command line on the server's machine.
        Cli = "cli",
        /// A reconciler of Lockkeeper.
        Reconciler = "reconciler",
        /// The queue of a lock.
        Queue = "queue",
    }
}

impl Origin {
    /// Returns the way in words that follow a verb: "stopped on the dashboard".
    pub const fn way(self) -> &'static str {
        match self {
            Self::Comment => "by comment",
            Self::Pull => "by a push",
            Self::Page => "on the dashboard",
            Self::Api => "through the API",
            Self::Git => "with git",
            Self::Cli => "on the command line",
            Self::Reconciler => "by a reconciler",
            Self::Queue => "when its turn came",
        }
    }
}

/// A person or program that acts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Actor {
    /// Login on the forge, name of the web user, or `lockkeeper`.
    pub login: String,
    /// Way of the request.
    pub origin: Origin,
    /// Account of the person on this server, if there was one at the time of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountId>,
}

impl Actor {
    /// Creates an actor without an account.
    pub fn new(login: impl Into<String>, origin: Origin) -> Self {
        Self {
            login: login.into(),
            origin,
            account: None,
        }
    }

    /// Returns a person or bot on the forge that wrote a comment.
    pub fn commenter(login: &str) -> Self {
        Self::new(login, Origin::Comment)
    }

    /// Returns Lockkeeper as the actor.
    pub fn lockkeeper(origin: Origin) -> Self {
        Self::new("lockkeeper", origin)
    }

    /// Returns the person who changed a pull.
    pub fn of_pull(login: &str) -> Self {
        Self::new(login, Origin::Pull)
    }

    /// Adds the account of the person.
    #[must_use]
    pub fn with_account(mut self, account: Option<AccountId>) -> Self {
        self.account = account;
        self
    }
}
