//! Who wants to do something.

use crate::model::{Actor, Origin};

/// Who uses the pages or the API of a server that asks for no password.
pub const NOBODY: &str = "somebody at the dashboard";

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
        Actor {
            login: login.to_owned(),
            origin,
        }
    }

    /// The account behind it: the same one whether it comments or pushes, and whether it uses the pages or the API. `None`:
    /// no account is known.
    pub fn account(&self) -> Option<Account> {
        match self {
            // `ghost` stands for every account that is gone.
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

    /// The name, for messages.
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

/// An account, by where it is one. What goes by the same name in two places is two accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// On the forge, where case does not matter.
    Forge(String),
    /// Of the pages and the API.
    Pages(String),
    /// On a server's machine.
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
            .filter(|origin| !matches!(origin, Origin::Reconciler | Origin::Queue))
        {
            let actor = Actor {
                login: "kim".to_owned(),
                origin,
            };
            let identity = Identity::of_actor(&actor);
            assert_eq!((identity.actor(), identity.name()), (actor, "kim"));
        }
        assert_eq!(
            Identity::System("reconciler").actor().origin,
            Origin::Reconciler
        );
    }
}
