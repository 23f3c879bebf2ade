//! Rules for actions on the pages and in the API: `--web-allow`. The word `all` has every action except those that have to
//! be named ([`Action::is_in_all`]).
//!
//! One account covers both (`--web-basic-auth`), so the list has actions and no people. Without that account, every
//! visitor can use the pages, so the pages only show. `--allow-anonymous-web` then adds the actions of the list,
//! except those that need an account ([`Action::needs_account`]).

use std::collections::BTreeSet;
use std::fmt;

use super::Action;

/// The list of actions is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWebRule {
    /// A word is not an action.
    #[error("`{0}` is not an action")]
    Unknown(String),
    /// `none` is in the list together with other words.
    #[error("`none` cannot be combined with other words")]
    NoneAndMore,
}

impl InvalidWebRule {
    /// Returns the correction to suggest.
    pub fn fix(&self) -> String {
        match self {
            Self::Unknown(_) => {
                let others = Action::ALL.iter().filter(|action| !action.is_in_all());
                let named: Vec<String> = others.map(|action| format!("`{action}`")).collect();
                format!(
                    "choose from {}, or write `all`, which does not include {}, or `none`",
                    Action::words(),
                    named.join(", ")
                )
            }
            Self::NoneAndMore => "write only `none`, or remove it".to_owned(),
        }
    }
}

/// Actions that are allowed on the pages and in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebRules {
    allowed: BTreeSet<Action>,
    /// True if nobody signs in, so that every visitor may do these actions.
    anonymous: bool,
}

/// Returns the actions of the word `all`.
fn in_all() -> impl Iterator<Item = Action> {
    let all = Action::ALL.iter().copied();
    all.filter(|action| action.is_in_all())
}

impl Default for WebRules {
    /// Allows all actions that need not be named to people who have signed in.
    fn default() -> Self {
        Self {
            allowed: in_all().collect(),
            anonymous: false,
        }
    }
}

impl WebRules {
    /// Parses the words of the list: actions, `all`, or `none`.
    pub fn new(words: &[impl AsRef<str>]) -> Result<Self, InvalidWebRule> {
        let words: Vec<String> = words
            .iter()
            .map(|word| word.as_ref().trim().to_ascii_lowercase())
            .collect();
        if words.iter().any(|word| word == "none") {
            let nothing = Self {
                allowed: BTreeSet::new(),
                anonymous: false,
            };
            return if words.len() == 1 {
                Ok(nothing)
            } else {
                Err(InvalidWebRule::NoneAndMore)
            };
        }
        let mut allowed = BTreeSet::new();
        for word in words {
            match Action::of_word(&word) {
                _ if word == "all" => allowed.extend(in_all()),
                Some(action) => drop(allowed.insert(action)),
                None => return Err(InvalidWebRule::Unknown(word)),
            }
        }
        Ok(Self {
            allowed,
            anonymous: false,
        })
    }

    /// Returns the rules of a server without sign-in: the rules without the actions that need an account.
    #[must_use]
    pub fn without_account(mut self) -> Self {
        self.allowed.retain(|action| !action.needs_account());
        Self {
            anonymous: true,
            ..self
        }
    }

    /// Returns the rules of a server without sign-in on which nothing can be changed.
    pub fn read_only() -> Self {
        Self {
            allowed: BTreeSet::new(),
            anonymous: true,
        }
    }

    /// Returns true if nobody signs in, so that the rules are in effect for every visitor.
    pub fn is_anonymous(&self) -> bool {
        self.anonymous
    }

    /// Returns true if no action is allowed.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty()
    }

    /// Returns the allowed actions that need an account.
    pub fn needing_account(&self) -> impl Iterator<Item = Action> + '_ {
        self.allowed
            .iter()
            .copied()
            .filter(|action| action.needs_account())
    }

    /// Returns true if the action is allowed.
    pub fn allows(&self, action: Action) -> bool {
        self.allowed.contains(&action)
    }
}

impl fmt::Display for WebRules {
    /// Writes the rules in the syntax of the flag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.allowed.iter().map(|action| action.as_str()).collect();
        f.write_str(&if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(",")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let rules = WebRules::new(&text.split(',').collect::<Vec<_>>());
        rules
            .map(|rules| rules.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_of_actions_all_or_none() {
        assert_eq!(
            read("discard, Unlock_Any"),
            Ok("unlock_any,discard".to_owned())
        );
        assert_eq!(read("none"), Ok("none".to_owned()));
        assert_eq!(WebRules::new(&["all"]), Ok(WebRules::default()));
        assert_eq!(
            read("none,discard"),
            Err("`none` cannot be combined with other words".to_owned())
        );
        assert_eq!(
            read("discard,aply"),
            Err("`aply` is not an action".to_owned())
        );
        let rules = WebRules::new(&["discard"]).unwrap();
        assert!(rules.allows(Action::Discard) && !rules.allows(Action::ApplyLock));
    }

    #[test]
    fn all_does_not_include_what_has_to_be_named() {
        let all = WebRules::default();
        let others = Action::ALL.iter().filter(|action| !all.allows(**action));
        assert_eq!(others.collect::<Vec<_>>(), [&Action::Peers]);
        let named = WebRules::new(&["all", "peers"]).unwrap();
        assert!(Action::ALL.iter().all(|action| named.allows(*action)));
        assert_eq!(named.to_string(), format!("{all},peers"));
    }

    #[test]
    fn people_without_an_account_never_run_anything() {
        let rules = WebRules::default().without_account();
        assert_eq!(
            rules.to_string(),
            "unlock_any,discard,apply_lock,sync,cancel"
        );
        assert!(rules.is_anonymous() && rules.needing_account().next().is_none());
        assert_eq!(
            WebRules::read_only(),
            WebRules::new(&["none"]).unwrap().without_account()
        );
    }
}
