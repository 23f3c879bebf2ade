//! Identities of people and programs that request an action.

use crate::model::{AccountId, Actor, Origin};

/// Name of a user of the pages or the API if the server requires no password.
pub const NOBODY: &str = "somebody at the dashboard";

/// A person or program that requests an action, and how Lockkeeper knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An account of the forge, by a comment.
    Commenter(NamedRequester),
    /// An account of the forge, by opening or changing a pull.
    Pusher(NamedRequester),
    /// A user of the pages.
    Web(NamedRequester),
    /// A program that uses the API, with the name of the account whose password it sent.
    Api(NamedRequester),
    /// A user of the command line on the server's machine. Such a user can read the database, so no rule can limit
    /// them.
    Cli(String),
    /// Lockkeeper itself, with the name of the component.
    System(&'static str),
}

/// Login of a person or program, and their account on this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRequester {
    /// Login on the forge, or name of the web user.
    pub login: String,
    /// Account on this server. It decides about no permission: it is for the audit log and for `four_eyes`.
    pub account: Option<AccountId>,
}

impl From<&str> for NamedRequester {
    fn from(login: &str) -> Self {
        Self {
            login: login.to_owned(),
            account: None,
        }
    }
}

impl From<&Actor> for NamedRequester {
    fn from(actor: &Actor) -> Self {
        Self {
            login: actor.login.clone(),
            account: actor.account,
        }
    }
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
        match actor.origin {
            Origin::Comment => Self::Commenter(actor.into()),
            Origin::Pull => Self::Pusher(actor.into()),
            Origin::Page => Self::Web(actor.into()),
            Origin::Api | Origin::Git => Self::Api(actor.into()),
            Origin::Cli => Self::Cli(actor.login.clone()),
            Origin::Reconciler => Self::System("reconciler"),
            Origin::Queue => Self::System("queue"),
        }
    }

    /// Returns the actor for stored events.
    pub fn actor(&self) -> Actor {
        let named =
            |who: &NamedRequester, origin| Actor::new(&who.login, origin).with_account(who.account);
        match self {
            Self::Commenter(who) => named(who, Origin::Comment),
            Self::Pusher(who) => named(who, Origin::Pull),
            Self::Web(who) => named(who, Origin::Page),
            Self::Api(who) => named(who, Origin::Api),
            Self::Cli(user) => Actor::new(user, Origin::Cli),
            Self::System(part) => Actor::new(*part, Origin::Reconciler),
        }
    }

    /// Returns the account of the identity. Comments and pushes have the same account, and so have the pages and the
    /// API. Returns `None` if the account is unknown.
    pub fn account(&self) -> Option<Account> {
        match self {
            // GitHub shows `ghost` in place of every deleted account.
            Self::Commenter(who) | Self::Pusher(who) if who.login.eq_ignore_ascii_case("ghost") => {
                None
            }
            Self::Commenter(who) | Self::Pusher(who) => {
                Some(Account::Forge(who.login.to_ascii_lowercase()))
            }
            Self::Web(who) | Self::Api(who) if who.login == NOBODY => None,
            Self::Web(who) | Self::Api(who) => Some(Account::Pages(who.login.clone())),
            Self::Cli(user) => Some(Account::Server(user.clone())),
            Self::System(_) => None,
        }
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Commenter(who) | Self::Pusher(who) | Self::Web(who) | Self::Api(who) => {
                &who.login
            }
            Self::Cli(user) => user,
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
        assert_eq!(
            Identity::Commenter("kim".into()).account(),
            Identity::Pusher("Kim".into()).account()
        );
        assert_eq!(
            Identity::Web("kim".into()).account(),
            Identity::Api("kim".into()).account()
        );
        let accounts = [
            Identity::Commenter("kim".into()),
            Identity::Web("kim".into()),
            Identity::Cli("kim".into()),
            Identity::Api("Kim".into()),
        ];
        let accounts: Vec<Account> = accounts.iter().filter_map(Identity::account).collect();
        assert!(
            (1..4).all(|end| !accounts[..end].contains(&accounts[end])),
            "{accounts:?}"
        );
        for nobody in [
            Identity::Commenter("ghost".into()),
            Identity::Web(NOBODY.into()),
            Identity::Api(NOBODY.into()),
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
            // Everybody with a shell on the server can be everybody.
            let account = (origin != Origin::Cli).then_some(AccountId::FIRST);
            let actor = Actor::new("kim", origin).with_account(account);
            let identity = Identity::of_actor(&actor);
            assert_eq!((identity.actor(), identity.name()), (actor, "kim"));
        }
        // A push is as good as the password that it comes with, as at the API.
        let pusher = Actor::new("kim", Origin::Git);
        assert_eq!(Identity::of_actor(&pusher), Identity::Api("kim".into()));
        assert_eq!(
            Identity::System("reconciler").actor().origin,
            Origin::Reconciler
        );
    }
}
