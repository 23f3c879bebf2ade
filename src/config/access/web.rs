//! What the pages and the API may be used for: `--web-allow`.
//!
//! There is one account for both (`--web-basic-auth`), so this is a list of actions and not of people. Without that account
//! anybody who reaches the server uses the pages, so they only show; `--allow-anonymous-web` adds the actions of the list,
//! but never one that needs an account ([`Action::needs_account`]).

use std::collections::BTreeSet;
use std::fmt;

use super::Action;

/// Why a word of the list is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWebRule {
    /// There is no such action.
    #[error("`{0}` is not an action")]
    Unknown(String),
    /// `none` beside something.
    #[error("`none` stands beside other words")]
    NoneAndMore,
}

impl InvalidWebRule {
    /// What to write instead.
    pub fn fix(&self) -> String {
        match self {
            Self::Unknown(_) => {
                format!("choose from {}, or write `all` or `none`", Action::words())
            }
            Self::NoneAndMore => "write `none` alone, or leave it out".to_owned(),
        }
    }
}

/// The actions that may be done on the pages and by scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebRules {
    allowed: BTreeSet<Action>,
    /// Nobody signs in, so these are the actions of anybody who reaches the server.
    anonymous: bool,
}

impl Default for WebRules {
    /// Everything, for those who have signed in.
    fn default() -> Self {
        Self {
            allowed: Action::ALL.iter().copied().collect(),
            anonymous: false,
        }
    }
}

impl WebRules {
    /// Reads the words of the list: actions, `all`, or `none`.
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
                _ if word == "all" => allowed.extend(Action::ALL),
                Some(action) => drop(allowed.insert(action)),
                None => return Err(InvalidWebRule::Unknown(word)),
            }
        }
        Ok(Self {
            allowed,
            anonymous: false,
        })
    }

    /// Returns the rules of a server on which nobody signs in: without the actions that need an account.
    #[must_use]
    pub fn without_account(mut self) -> Self {
        self.allowed.retain(|action| !action.needs_account());
        Self {
            anonymous: true,
            ..self
        }
    }

    /// Returns the rules of a server on which nobody signs in and nothing can be changed.
    pub fn read_only() -> Self {
        Self {
            allowed: BTreeSet::new(),
            anonymous: true,
        }
    }

    /// Whether nobody signs in, so that the rules hold for anybody who reaches the server.
    pub fn is_anonymous(&self) -> bool {
        self.anonymous
    }

    /// Whether nothing may be done.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty()
    }

    /// The actions that need an account.
    pub fn needing_account(&self) -> impl Iterator<Item = Action> + '_ {
        self.allowed
            .iter()
            .copied()
            .filter(|action| action.needs_account())
    }

    /// Whether it may be done.
    pub fn allows(&self, action: Action) -> bool {
        self.allowed.contains(&action)
    }
}

impl fmt::Display for WebRules {
    /// As it could have been written.
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
            Err("`none` stands beside other words".to_owned())
        );
        assert_eq!(
            read("discard,aply"),
            Err("`aply` is not an action".to_owned())
        );
        let rules = WebRules::new(&["discard"]).unwrap();
        assert!(rules.allows(Action::Discard) && !rules.allows(Action::ApplyLock));
        assert!(
            Action::ALL
                .iter()
                .all(|action| WebRules::default().allows(*action))
        );
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
