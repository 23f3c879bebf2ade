//! Who wants to do something.

use crate::model::{Actor, Origin};

/// Somebody who wants to do something, by the way on which we know who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An account of the forge, by comment.
    Commenter(String),
    /// An account of the forge, by opening or changing a pull.
    Pusher(String),
    /// A user of the pages.
    Web(String),
    /// A program that uses the API, with the name of the account whose password it has.
    Api(String),
    /// A user of the machine who runs our command line: whoever may read the database may do everything anyway.
    Cli(String),
    /// Lockkeeper itself, and which part of it.
    System(&'static str),
}

/// Somebody who asks over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Who it is.
    pub who: Identity,
    /// The address the wish came from, as far as it is known.
    pub remote: Option<String>,
}

impl Asker {
    /// The same for records, without the address.
    pub fn actor(&self) -> Actor {
        self.who.actor()
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        self.who.name()
    }
}

impl Identity {
    /// Who is behind a command on a pull.
    pub fn of_actor(actor: &Actor) -> Self {
        let login = actor.login.clone();
        match actor.origin {
            Origin::Comment => Self::Commenter(login),
            Origin::Pull => Self::Pusher(login),
            Origin::Page => Self::Web(login),
            Origin::Api => Self::Api(login),
            Origin::Cli => Self::Cli(login),
            Origin::Reconciler => Self::System("reconciler"),
            Origin::Queue => Self::System("queue"),
        }
    }

    /// The same for records.
    pub fn actor(&self) -> Actor {
        let (login, origin) = match self {
            Self::Commenter(login) => (login.as_str(), Origin::Comment),
            Self::Pusher(login) => (login.as_str(), Origin::Pull),
            Self::Web(user) => (user.as_str(), Origin::Page),
            Self::Api(user) => (user.as_str(), Origin::Api),
            Self::Cli(user) => (user.as_str(), Origin::Cli),
            Self::System(part) => (*part, Origin::Reconciler),
        };
        Actor { login: login.to_owned(), origin }
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Commenter(name) | Self::Pusher(name) | Self::Web(name) | Self::Api(name) | Self::Cli(name) => name,
            Self::System(part) => part,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_and_its_record_tell_the_same() {
        for origin in Origin::ALL.iter().copied().filter(|origin| !matches!(origin, Origin::Reconciler | Origin::Queue))
        {
            let actor = Actor { login: "kim".to_owned(), origin };
            let identity = Identity::of_actor(&actor);
            assert_eq!((identity.actor(), identity.name()), (actor, "kim"));
        }
        assert_eq!(Identity::System("reconciler").actor().origin, Origin::Reconciler);
    }
}
