//! What the pages and the API may be used for: `--web-allow`.
//!
//! There is one account for both (`--web-basic-auth`), so this is a list of actions and not of people.

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
            Self::Unknown(_) => format!("choose from {}, or write `all` or `none`", Action::words()),
            Self::NoneAndMore => "write `none` alone, or leave it out".to_owned(),
        }
    }
}

/// The actions that the web user and its scripts may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebRules(BTreeSet<Action>);

impl Default for WebRules {
    /// Everything, as on the pages of Atlantis.
    fn default() -> Self {
        Self(Action::ALL.iter().copied().collect())
    }
}

impl WebRules {
    /// Reads the words of the list: actions, `all`, or `none`.
    pub fn new(words: &[impl AsRef<str>]) -> Result<Self, InvalidWebRule> {
        let words: Vec<String> = words.iter().map(|word| word.as_ref().trim().to_ascii_lowercase()).collect();
        if words.iter().any(|word| word == "none") {
            return if words.len() == 1 { Ok(Self(BTreeSet::new())) } else { Err(InvalidWebRule::NoneAndMore) };
        }
        let mut allowed = BTreeSet::new();
        for word in words {
            match Action::of_word(&word) {
                _ if word == "all" => allowed.extend(Action::ALL),
                Some(action) => drop(allowed.insert(action)),
                None => return Err(InvalidWebRule::Unknown(word)),
            }
        }
        Ok(Self(allowed))
    }

    /// Whether it may be done.
    pub fn allows(&self, action: Action) -> bool {
        self.0.contains(&action)
    }
}

impl fmt::Display for WebRules {
    /// As it could have been written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|action| action.as_str()).collect();
        f.write_str(&if words.is_empty() { "none".to_owned() } else { words.join(",") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let rules = WebRules::new(&text.split(',').collect::<Vec<_>>());
        rules.map(|rules| rules.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_of_actions_all_or_none() {
        assert_eq!(read("discard, Unlock_Any"), Ok("unlock_any,discard".to_owned()));
        assert_eq!(read("none"), Ok("none".to_owned()));
        assert_eq!(WebRules::new(&["all"]), Ok(WebRules::default()));
        assert_eq!(read("none,discard"), Err("`none` stands beside other words".to_owned()));
        assert_eq!(read("discard,aply"), Err("`aply` is not an action".to_owned()));
        let rules = WebRules::new(&["discard"]).unwrap();
        assert!(rules.allows(Action::Discard) && !rules.allows(Action::ApplyLock));
        assert!(Action::ALL.iter().all(|action| WebRules::default().allows(*action)));
    }
}
