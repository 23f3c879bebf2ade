//! Identifiers of data directories, which name the disk of a mirror. Names of servers change with every start, but
//! mirrors outlive them.

use std::fmt;
use std::str::FromStr;

use crate::model::text::text_type;

/// The identifier of a data directory, stored in its file `replica-id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataDirId(String);

/// Error for a text that is not the identifier of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id consists of 1 to 64 lower-case letters, digits and `-`")]
pub struct InvalidDataDirId;

impl DataDirId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DataDirId {
    type Err = InvalidDataDirId;

    fn from_str(text: &str) -> Result<Self, InvalidDataDirId> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let is_id = (1..=64).contains(&text.len()) && text.bytes().all(plain);
        if is_id {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidDataDirId)
        }
    }
}

impl fmt::Display for DataDirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_type!(DataDirId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_ids() {
        for text in ["a", "0197-abc", &"z".repeat(64)] {
            assert_eq!(text.parse::<DataDirId>().unwrap().to_string(), text);
        }
        for text in ["", "A", "a b", "a/b", "../a", "a\n", &"z".repeat(65)] {
            assert_eq!(text.parse::<DataDirId>(), Err(InvalidDataDirId), "{text:?}");
        }
    }
}
