//! Identifiers of comments on forges, and their form in the database.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Identifier of a comment on its forge. Some forges count the comments of a pull, so it means nothing without the
/// pull.
///
/// Stored jobs and rows have a number where the identifier is one. Version 0.2.0 knows only numbers, works beside this
/// version on the same database, and serves no forge with other identifiers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommentId(String);

impl CommentId {
    /// Creates an identifier from the text that the forge uses.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number in the database, which is unique for the comments of a pull. The number of another text is
    /// a part of its hash; nothing reads the text from it again.
    pub fn number(&self) -> i64 {
        self.as_number().map_or_else(
            || {
                let hash = Sha256::digest(&self.0);
                hash.iter()
                    .take(8)
                    .fold(0, |number, byte| (number << 8) | i64::from(*byte))
            },
            u64::cast_signed,
        )
    }

    fn as_number(&self) -> Option<u64> {
        let number: u64 = self.0.parse().ok()?;
        (number.to_string() == self.0).then_some(number)
    }
}

impl From<u64> for CommentId {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl fmt::Display for CommentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for CommentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_number() {
            Some(number) => serializer.serialize_u64(number),
            None => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for CommentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum StoredCommentId {
            Number(u64),
            Text(String),
        }
        Ok(match StoredCommentId::deserialize(deserializer)? {
            StoredCommentId::Number(number) => Self::from(number),
            StoredCommentId::Text(text) => Self(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers of different versions read each other's jobs.
    #[test]
    fn stored_jobs_have_a_number_where_the_identifier_is_one() {
        for (text, stored) in [
            ("12", "12"),
            ("18446744073709551615", "18446744073709551615"),
            ("7/12", r#""7/12""#),
            ("012", r#""012""#),
        ] {
            let id = CommentId::new(text);
            assert_eq!(serde_json::to_string(&id).unwrap(), stored);
            assert_eq!(serde_json::from_str::<CommentId>(stored).unwrap(), id);
        }
    }

    #[test]
    fn a_row_has_the_number_or_one_that_belongs_to_the_text() {
        let number = |text: &str| CommentId::new(text).number();
        assert_eq!((number("12"), number("18446744073709551615")), (12, -1));
        assert_ne!(number("7/12"), number("7/13"));
        assert_eq!(number("7/12"), number("7/12"));
    }
}
