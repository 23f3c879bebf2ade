//! Who did something, and by which way.

use super::text::text_enum;

text_enum! {
    /// The way by which a wish reached us.
    pub enum Origin {
        /// A comment on a pull.
        Comment = "comment",
        /// The pull itself: opened, updated, closed.
        Pull = "pull",
        /// A page of the dashboard.
        Page = "page",
        /// The JSON API.
        Api = "api",
        /// The command line on the server's machine.
        Cli = "cli",
        /// Lockkeeper's own repair.
        Reconciler = "reconciler",
        /// The line of those who wait for a lock.
        Queue = "queue",
    }
}

impl Origin {
    /// The way in words that follow what somebody did: "stopped on the dashboard".
    pub const fn way(self) -> &'static str {
        match self {
            Self::Comment => "by comment",
            Self::Pull => "by a push",
            Self::Page => "on the dashboard",
            Self::Api => "through the API",
            Self::Cli => "on the command line",
            Self::Reconciler => "by repair",
            Self::Queue => "when its turn came",
        }
    }
}

/// Somebody who acts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Actor {
    /// Login on the forge, name of the web user, or `lockkeeper`.
    pub login: String,
    /// By which way.
    pub origin: Origin,
}

impl Actor {
    /// A person or bot on the forge, by comment.
    pub fn commenter(login: &str) -> Self {
        Self {
            login: login.to_owned(),
            origin: Origin::Comment,
        }
    }

    /// Lockkeeper itself.
    pub fn lockkeeper(origin: Origin) -> Self {
        Self {
            login: "lockkeeper".to_owned(),
            origin,
        }
    }

    /// Who caused a change of a pull.
    pub fn of_pull(login: &str) -> Self {
        Self {
            login: login.to_owned(),
            origin: Origin::Pull,
        }
    }
}
