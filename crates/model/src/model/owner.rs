//! Owners: the teams or tenants of a server.

use std::fmt;
use std::str::FromStr;

use super::text::text_type;

/// Error for a text that is not the name of an owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of an owner: write 1 to {max} letters, digits, `.`, `-` or `_`, with a letter or digit first",
    max = OwnerName::MAX_BYTES
)]
pub struct InvalidOwnerName(String);

/// The name of an owner, e.g. `team-net`. Names that differ only by case are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerName(String);

impl OwnerName {
    /// Maximum length in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Lower-cases and checks a name.
    pub fn new(text: &str) -> Result<Self, InvalidOwnerName> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || text.len() > Self::MAX_BYTES || !text.chars().all(fine) {
            return Err(InvalidOwnerName(
                text.chars().take(Self::MAX_BYTES).collect(),
            ));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for OwnerName {
    type Err = InvalidOwnerName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

text_type!(OwnerName);

/// Rights of the account that registers something for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// All rights: the account of the whole server, and everyone who uses the command line on its database.
    Whole,
    /// Rights of an account that is limited to owners. It uses what these have claimed. It claims nothing that nobody
    /// has claimed, and allows no other branch than the default one.
    Limited,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_plain_and_compared_without_case() {
        assert_eq!(
            OwnerName::new("Team-Net_1.x").unwrap().as_str(),
            "team-net_1.x"
        );
        for text in [
            "",
            "-net",
            ".",
            "..",
            "a b",
            "a/b",
            "é",
            "a\n",
            &"a".repeat(65),
        ] {
            assert!(OwnerName::new(text).is_err(), "{text:?}");
        }
        insta::assert_snapshot!(
            OwnerName::new("a b").unwrap_err(),
            @r#""a b" is not the name of an owner: write 1 to 64 letters, digits, `.`, `-` or `_`, with a letter or digit first"#
        );
    }
}
