//! Identities of people and programs that request an action.

use crate::model::{Actor, Origin};

/// Name of a user of the pages or the API if the server requires no password.
pub const NOBODY: &str = "somebody at the dashboard";

/// A person or program that requests an action, and how Lockkeeper knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An account of the forge, by a comment.
    Commenter(String),
    /// An account of the forge, by opening or changing a pull.
    Pusher(String),
    /// A user of the pages.
    Web(String),
    /// A program that uses the API, with the name of the account whose password it sent.
    Api(String),
    /// A user of the command line on the server's machine. Such a user can read the database, so no rule can limit
    /// them.
    Cli(String),
    /// Lockkeeper itself, with the name of the component.
    System(&'static str),
}

/// A requester over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkRequester {
    /// Identity of the requester.
    pub who: Identity,
    /// Address that the request came from, if known.
    pub remote: Option<String>,
}

impl NetworkRequester {
    /// Returns the actor for stored events, without the address.
    pub fn actor(&self) -> Actor {
        self.who.actor()
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        self.who.name()
    }
}

impl Identity {
    /// Returns the identity of the actor of a command.
    pub fn of_actor(actor: &Actor) -> Self {
        let login = actor.login.clone();
        match actor.origin {
            Origin::Comment => Self::Commenter(login),
            Origin::Pull => Self::Pusher(login),
            Origin::Page => Self::Web(login),
            Origin::Api | Origin::Git => Self::Api(login),
            Origin::Cli => Self::Cli(login),
            Origin::Reconciler => Self::System("reconciler"),
            Origin::Queue => Self::System("queue"),
        }
    }

    /// Returns the actor for stored events.
    pub fn actor(&self) -> Actor {
        let (login, origin) = match self {
            Self::Commenter(login) => (login.as_str(), Origin::Comment),
            Self::Pusher(login) => (login.as_str(), Origin::Pull),
            Self::Web(user) => (user.as_str(), Origin::Page),
            Self::Api(user) => (user.as_str(), Origin::Api),
            Self::Cli(user) => (user.as_str(), Origin::Cli),
            Self::System(part) => (*part, Origin::Reconciler),
        };
        Actor {
            login: login.to_owned(),
            origin,
        }
    }

    /// Returns the account of the identity. Comments and pushes have the same account, and so have the pages and the
    /// API. Returns `None` if the account is unknown.
    pub fn account(&self) -> Option<Account> {
        match self {
            // GitHub shows `ghost` in place of every deleted account.
            Self::Commenter(login) | Self::Pusher(login) if login.eq_ignore_ascii_case("ghost") => {
                None
            }
            Self::Commenter(login) | Self::Pusher(login) => {
                Some(Account::Forge(login.to_ascii_lowercase()))
            }
            Self::Web(user) | Self::Api(user) if user == NOBODY => None,
            Self::Web(user) | Self::Api(user) => Some(Account::Pages(user.clone())),
            Self::Cli(user) => Some(Account::Server(user.clone())),
            Self::System(_) => None,
        }
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Commenter(name)
            | Self::Pusher(name)
            | Self::Web(name)
            | Self::Api(name)
            | Self::Cli(name) => name,
            Self::System(part) => part,
        }
    }
}

/// An account and the place where it exists. Two accounts in different places differ, even if they have the same
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// An account of the forge. Case does not matter.
    Forge(String),
    /// An account of the pages and the API.
    Pages(String),
    /// A user of a server's machine.
    Server(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_the_same_by_every_way_it_comes() {
        let (kim, other) = (|| "kim".to_owned(), |name: &str| name.to_owned());
        assert_eq!(
            Identity::Commenter(kim()).account(),
            Identity::Pusher(other("Kim")).account()
        );
        assert_eq!(
            Identity::Web(kim()).account(),
            Identity::Api(kim()).account()
        );
        let accounts = [
            Identity::Commenter(kim()),
            Identity::Web(kim()),
            Identity::Cli(kim()),
            Identity::Api(other("Kim")),
        ];
        let accounts: Vec<Account> = accounts.iter().filter_map(Identity::account).collect();
        assert!(
            (1..4).all(|end| !accounts[..end].contains(&accounts[end])),
            "{accounts:?}"
        );
        for nobody in [
            Identity::Commenter(other("ghost")),
            Identity::Web(other(NOBODY)),
            Identity::Api(other(NOBODY)),
            Identity::System("queue"),
        ] {
            assert_eq!(nobody.account(), None, "{nobody:?}");
        }
    }

    #[test]
    fn an_identity_and_its_record_tell_the_same() {
        for origin in Origin::ALL
            .iter()
            .copied()
            .filter(|origin| !matches!(origin, Origin::Git | Origin::Reconciler | Origin::Queue))
        {
            let actor = Actor {
                login: "kim".to_owned(),
                origin,
            };
            let identity = Identity::of_actor(&actor);
            assert_eq!((identity.actor(), identity.name()), (actor, "kim"));
        }
        // A push is as good as the password that it comes with, as at the API.
        let pusher = Actor {
            login: "kim".to_owned(),
            origin: Origin::Git,
        };
        assert_eq!(Identity::of_actor(&pusher), Identity::Api("kim".to_owned()));
        assert_eq!(
            Identity::System("reconciler").actor().origin,
            Origin::Reconciler
        );
    }
}
