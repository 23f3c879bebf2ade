//! Names of encryption keys.

use std::fmt;
use std::str::FromStr;

use crate::model::text_type;

/// The name of a key: 1 to 64 letters, digits, dots, hyphens and underscores.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyName(String);

/// Error for a text that is not the name of a key. The message does not repeat the text, which may be a key in the
/// wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a key must have 1 to 64 letters, digits, dots, hyphens and underscores, as in `2026-11`"
)]
pub struct InvalidKeyName;

impl KeyName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = InvalidKeyName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let valid = (1..=64).contains(&text.len()) && text.chars().all(fits);
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidKeyName)
        }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_type!(KeyName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for text in ["a", "2026-11", "prod_eu.1"] {
            assert_eq!(text.parse::<KeyName>().unwrap().to_string(), text);
        }
        for text in ["", "a b", "a:b", "ä", "a/b", "a=", &"x".repeat(65)] {
            assert_eq!(text.parse::<KeyName>(), Err(InvalidKeyName), "{text:?}");
        }
    }
}
